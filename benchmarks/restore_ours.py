"""A contestant of `benchmarks.restore`: one container of standfast gets its standbys' state.

``changelog``: by replaying it. ``peer``: by fetching it from another container, a standby in sync, which is a
separate process (``give``) whose CPU time is included; it has left-over state of an earlier round.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks import meter
from benchmarks.contest import ROOT
from benchmarks.dataset import STORE, checksum
from benchmarks.kernel import Container, FixedRecords, Job, fetching_from, keys_in
from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import prefix
from standby.replica.store.origin import DATABASE
from standby.shared.model import Phase, Role

_PATIENCE_SECONDS = 3_600.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=("changelog", "peer", "give"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--provider-state", type=Path)
    parser.add_argument("--credentials", type=Path)
    arguments = parser.parse_args(argv)
    arguments.start_seconds = time.time() - psutil.Process().create_time()
    if arguments.way == "give":
        give(arguments)
    elif arguments.way == "changelog":
        meter.answer(restore(arguments, None, 0))
    else:
        with subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "benchmarks.restore_ours",
                    "give",
                    "--bootstrap",
                    arguments.bootstrap,
                ),
                *("--topic", arguments.topic, "--partitions", str(arguments.partitions)),
                *("--state", str(arguments.provider_state), "--credentials", str(arguments.credentials)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as provider:
            assert provider.stdout is not None
            port = int(provider.stdout.readline())
            meter.answer(restore(arguments, provider.pid, port))
            assert provider.stdin is not None
            provider.stdin.close()
    return 0


def give(arguments: argparse.Namespace) -> None:
    """Hold every task as a standby and provide copies, until standard input ends."""
    container = Container(_job(arguments, "-1"), "provider", FixedRecords(None, 1, {0: "provider"}))
    container.want(0, Role.STANDBY)
    container.wait(lambda each: each.phase is Phase.TAILING, _PATIENCE_SECONDS)
    # If it had to restore itself, the compaction after that is not part of the fetching container's cost.
    meter.settled_cpu_seconds()
    sys.stdout.write(f"{container.give(keys_in(arguments.credentials))}\n")
    sys.stdout.flush()
    sys.stdin.read()
    container.close()


def restore(arguments: argparse.Namespace, provider: int | None, port: int) -> dict[str, object]:
    """Return the cost until every standby was in sync, and its state then."""
    job = _job(arguments, "-1" if provider is None else "0")
    # The provider's own restore, if any, is not part of this contestant's cost; its work from here on is.
    spent = meter.cpu_seconds((provider,)) if provider is not None else 0.0
    peers = fetching_from(keys_in(arguments.credentials), "provider", port) if provider is not None else None
    placed = {1: "taker"} if provider is None else {0: "provider", 1: "taker"}
    begun = time.monotonic()
    container = Container(job, "taker", FixedRecords(None, 1, placed), peers=peers)
    container.want(1, Role.STANDBY)
    container.wait(lambda each: each.phase is Phase.TAILING, _PATIENCE_SECONDS)
    wall, cpu = time.monotonic() - begun, meter.cpu_seconds() - spent
    found: dict[str, object] = {
        "wall_seconds": wall,
        "from_start_seconds": wall + arguments.start_seconds,
        "cpu_seconds": cpu,
        "peak_bytes": meter.peak_bytes(),
        "settled_cpu_seconds": meter.settled_cpu_seconds() - spent,
    }
    if provider is not None:
        found["provider_peak_bytes"] = meter.peak_bytes((provider,))
    container.close()
    return {**found, **state_of(job)}


def state_of(job: Job) -> dict[str, object]:
    """Return number of keys and checksum of the state on the disk."""
    keys = total = 0
    for task in job.task_ids:
        database = open_database(job.state_of("taker", task) / DATABASE, Profile.SERVING)
        try:
            for key, value in database.items(prefix(STORE)):
                total += checksum(key, value)
                keys += 1
        finally:
            database.close()
    return {"keys": keys, "checksum": f"{total % (1 << 64):016x}"}


def _job(arguments: argparse.Namespace, least: str) -> Job:
    return Job(
        arguments.topic,
        arguments.partitions,
        arguments.topic,
        arguments.bootstrap,
        arguments.state,
        {"job.restore.peer.min.records": least},
    )


if __name__ == "__main__":
    sys.exit(main())
