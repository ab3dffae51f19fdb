"""The gap in the output after a failure, by size of the state: ``python -m benchmarks.stategap``.

Two tasks have 0.1, 1 and 4 GB of state together (4 KB per key) and get 1,000 records a second of a thousand other
keys. A process is killed (SIGKILL, with its children) at least three times: standfast's active; one of two Kafka
Streams instances with a standby each (default and tuned detection); and, up to 1 GB, Spark and Quix Streams, which
are restarted at once on an empty disk. All figures come from the outputs: the longest silence of the tasks that were
hit, that of the *other* task, whose readers an open transaction of the killed process may block, and the lost and
duplicate records. For standfast the phases are listed as well. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.broker import whole_arena
from benchmarks.contest import ROOT, Failed, Results, say
from benchmarks.dataset import make_topic
from benchmarks.entrants import ALL, SMALL, TASKS, Entrant, entrant
from benchmarks.judge import Seen, are_past, exactness, silences
from benchmarks.report import Report
from benchmarks.rounds import answer_of, order
from benchmarks.running import Running
from benchmarks.streams import Place
from embedded.cluster import LocalCluster

_LIVE_KEYS: Final = 1_000

#: Number of the first key that only fills the state.
_BALLAST: Final = 1_000_000_000
_BALLAST_BYTES: Final = 4_096

_OUTPUT: Final = struct.Struct(">qq")
_FIRST_SECONDS: Final = 300.0
_RECOVERED_SECONDS: Final = 300.0
#: The lowest rate, records of 4 KB per second, that is assumed while the state is filled.
_SLOWEST_A_SECOND: Final = 500
#: Time after the tasks that were hit are back: a silence that ends later would be another one.
_AFTER_SECONDS: Final = 3.0

_MEASURES: Final = (
    ("gap_seconds", "gap of the tasks hit, s", 1.0),
    ("other_gap_seconds", "gap of the other task, s", 1.0),
)


class Listener:
    """Reads the committed outputs on a separate thread, and records when each arrived."""

    def __init__(self, place: Place) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": place.bootstrap,
                "group.id": "listener",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(place.output, 0, 0)])
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._ballast: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, is_so: Callable[[Sequence[Seen], int], bool], seconds: float) -> bool:
        """Return whether the condition on live outputs and the number of ballast keys held in time."""
        give_up = time.monotonic() + seconds
        with self._changed:
            while not is_so(self._seen, len(self._ballast)):
                left = give_up - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def seen(self) -> list[Seen]:
        """Return all outputs of live keys so far, in order of arrival."""
        with self._changed:
            return list(self._seen)

    def close(self) -> None:
        """End it."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            messages = self._consumer.consume(2_000, 0.05)
            now = time.time_ns()
            with self._changed:
                for message in messages:
                    key, value = message.key(), message.value()
                    if message.error() is not None or key is None or value is None:
                        continue
                    name = int(key.removeprefix(b"key-"))
                    due, number = _OUTPUT.unpack(value)
                    if name >= _BALLAST:
                        self._ballast.add(name)
                    else:
                        self._seen.append(Seen(name, number, due, now))
                if messages:
                    self._changed.notify_all()
        self._consumer.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every round succeeded, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stategap", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 1.0, 4.0])
    parser.add_argument("--only", nargs="+", choices=ALL, default=ALL, help="some contestants (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="kills of each (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--steady-seconds", type=float, default=10.0, help="flow before each kill")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "stategap.json")
    arguments = parser.parse_args(argv)
    report = Report(arguments.output, "A failure, by size of the state", _MEASURES, arguments)

    def measure() -> None:
        with whole_arena(arguments.scratch) as (cluster, scratch):
            for turn, size in enumerate(arguments.gigabytes):
                names = [each for each in arguments.only if size <= 1 or each not in SMALL]
                found = report.case(f"{size:g} GB", names)
                for name in order(names, turn):
                    place = Place(
                        cluster.kafka_bootstrap, f"gap{turn}-{ALL.index(name)}", scratch / str(turn)
                    )
                    with found.attempt(f"{size:g} GB, {name}"):
                        _contestant(arguments, cluster, place, name, size, found)

    return report.carry_out(measure)


def _contestant(
    arguments: argparse.Namespace, cluster: LocalCluster, place: Place, name: str, size: float, found: Results
) -> None:
    """Run all rounds of one contestant with one size."""
    log = arguments.output.parent / "logs" / f"stategap-{place.job}.log"
    make_topic(place.bootstrap, place.input, TASKS, "delete")
    make_topic(place.bootstrap, place.output, 1, "delete")
    with ExitStack() as stack:
        stack.callback(_clean, place)
        one = entrant(name, cluster, place, log)
        listener = Listener(place)
        stack.callback(listener.close)
        stack.callback(one.close)
        _rounds(arguments, place, one, listener, size, name, found)


def _clean(place: Place) -> None:
    """Remove the topics and the state of a contestant."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    ours = [each for each in admin.list_topics(timeout=30).topics if place.job in each]
    for future in admin.delete_topics(ours).values() if ours else ():
        future.result(30)
    shutil.rmtree(place.state, ignore_errors=True)


def _rounds(
    arguments: argparse.Namespace,
    place: Place,
    one: Entrant,
    listener: Listener,
    size: float,
    name: str,
    found: Results,
) -> None:
    title = f"{size:g} GB, {name}"
    log = arguments.output.parent / "logs" / "stategap-load.log"
    keys = max(1, round(size * 1e9 / _BALLAST_BYTES))
    one.start()
    ballast = ["--keys", str(keys), "--first-key", str(_BALLAST), "--in-order"]
    with _load(place, keys, 0, [*ballast, "--value-bytes", str(_BALLAST_BYTES)], log) as load:
        load.join(600)
    if not listener.wait(lambda _, number: number == keys, _FIRST_SECONDS + keys / _SLOWEST_A_SECOND):
        raise Failed("the state did not become as large as it should")
    say(f"{title}: the state is there")
    with _load(place, 1 << 40, arguments.rate, ["--keys", str(_LIVE_KEYS)], log) as load:
        for turn in range(arguments.rounds):
            one.ready()
            _await_outputs(listener, range(TASKS), time.time_ns())
            time.sleep(arguments.steady_seconds)
            answer = _failure(one, listener)
            found.add(name, answer)
            say(f"{title}, round {turn + 1}: {_short(answer)}")
            one.mend()
        load.end(60)
        sent = answer_of(load.join(60))["records"]
    listener.wait(lambda seen, _: len({(each.key, each.number) for each in seen}) >= sent, 60)
    # Any further output is a duplicate.
    time.sleep(2)
    wrong = exactness(((each.key, each.number) for each in listener.seen()), sent)
    say(f"{title}: {sent:,} records, {wrong.lost} lost, {wrong.doubled} doubled")
    # The values of all rounds together are listed with each round.
    found.amend(name, {"lost": wrong.lost, "doubled": wrong.doubled, "records": sent})


def _failure(one: Entrant, listener: Listener) -> dict[str, Any]:
    """Kill, and return the effects in the outputs."""
    begun = time.time_ns()
    tasks = one.kill()

    _await_outputs(listener, tasks, begun)
    time.sleep(_AFTER_SECONDS)
    found = silences(listener.seen(), TASKS, begun, time.time_ns())
    others = [each for task, each in found.items() if task not in tasks]
    return {
        "tasks": list(tasks),
        "gap_seconds": max(found[task] for task in tasks),
        **({"other_gap_seconds": max(others)} if others else {}),
        **one.phases(begun // 1_000_000),
    }


def _await_outputs(listener: Listener, tasks: Collection[int], since: int) -> None:
    """Wait until the input from before ``since`` has been processed; raises `Failed`."""
    if not listener.wait(lambda seen, _: are_past(seen, tasks, TASKS, since), _RECOVERED_SECONDS):
        raise Failed(f"the outputs of the tasks {tuple(tasks)} do not come, or come too late")


def _load(place: Place, records: int, rate: float, more: Sequence[str], log: Path) -> Running:
    return Running(
        [
            *(sys.executable, "-m", "benchmarks.load", "--bootstrap", place.bootstrap),
            *("--topic", place.input, "--partitions", str(TASKS)),
            *("--records", str(records), "--rate", str(rate), *more),
        ],
        log,
    )


def _short(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items() if isinstance(value, float))


if __name__ == "__main__":
    sys.exit(main())
