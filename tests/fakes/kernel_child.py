"""A kernel in a separate process: ``python -m tests.fakes.kernel_child SPEC``, for tests that kill it.

Reads its assignments as JSON lines from standard input, and writes its statuses as JSON lines.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from standby.adapters.kafka.broker import connect
from standby.adapters.processes import end_children
from standby.adapters.rocksdict import open_database
from standby.config import JobConfig
from standby.feed.functions import step_of
from standby.feed.make import make_feed
from standby.feed.plain import PlainFeed
from standby.kernel.environment import Environment
from standby.kernel.replicas import LocalReplicas
from standby.ports import Feed
from standby.shared import exits
from standby.shared.model import Wanted
from standby.shared.wire import JobDefinition
from tests.fakes.records import FileRecords
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS


class Spec(msgspec.Struct):
    """What the child is to be."""

    definition: JobDefinition
    host: str
    records: str
    kill_at: str
    """The probe point at which the process kills itself; empty: never."""
    hit: int
    """Which of the passings is the deadly one, counted from 1."""
    feed: str = "plain"
    """What reads its input, as `task.feed`."""
    delay_ms: float = 0
    """For how long the deadly passing is held up first, for what others do meanwhile."""
    hold_at: str = ""
    """The probe point that is not passed any more from its passing number ``hold_from`` on; empty: none."""
    hold_from: int = 1
    goes_on: bool = False
    """Whether it is not held up: it goes on, and the process dies so much later, in the midst of what it does."""


def spark_feed(config: JobConfig, job: JobDefinition) -> Feed:
    """Return a feed over Spark, of a JVM of this process's own."""
    return make_feed(
        replace(config, feed="spark", transform="tests.contracts.feed_functions:spark_unchanged"), job
    )


def main() -> None:
    """Hold replicas until the standard input ends, or the probe strikes."""
    # A crash in a library is printed with its stack.
    faulthandler.enable()
    spec = msgspec.json.decode(sys.argv[1], type=Spec)
    lock, passed, held = threading.Lock(), [0], [0]

    def die() -> None:
        time.sleep(spec.delay_ms / 1000)
        os.kill(os.getpid(), signal.SIGKILL)

    def probe(point: str) -> None:
        if point == spec.hold_at:
            with lock:
                held[0] += 1
                is_held = held[0] >= spec.hold_from
            if is_held:
                threading.Event().wait()
        if point != spec.kill_at:
            return
        with lock:
            passed[0] += 1
            is_deadly = passed[0] == spec.hit
        if is_deadly and spec.goes_on:
            threading.Thread(target=die).start()
        elif is_deadly:
            die()

    changed = threading.Event()
    environment = Environment(
        spec.definition.config["cluster.name"],
        spec.host,
        FileRecords(Path(spec.records)),
        PlainFeed if spec.feed == "plain" else spark_feed,
        connect,
        open_database,
        step_of,
        probe=probe,
    )
    replicas = LocalReplicas(environment, changed.set)

    def report() -> None:
        while True:
            changed.wait(5 * LOOK_SECONDS)
            changed.clear()
            if replicas.broken is not None:
                # As the whole container would.
                end_children()
                os._exit(exits.BROKEN)
            statuses = tuple(replicas.statuses().values())
            sys.stdout.write(msgspec.json.encode(statuses).decode() + "\n")
            sys.stdout.flush()
            replicas.note_reported(statuses)

    threading.Thread(target=report, daemon=True).start()
    jobs = {spec.definition.name: spec.definition}
    for line in sys.stdin:
        replicas.obey(msgspec.json.decode(line, type=tuple[Wanted, ...]), jobs)
    replicas.close(PATIENCE_SECONDS)


if __name__ == "__main__":
    main()
