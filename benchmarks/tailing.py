"""The cost of a standby: ``python -m benchmarks.tailing``.

A job that counts by key gets 5,000 and 50,000 records a second. Its active, a standby that tails it, and the generator
are separate processes, without YARN. In a window of 30 seconds it measures the CPU time of active and standby, as a
share of one core, and the delay until the standby has each commit of the active. In the end both must have the same
state. At least five rounds; the order of the rates rotates. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from benchmarks import meter, traced
from benchmarks.broker import arena
from benchmarks.contest import ROOT, Failed, Results, say
from benchmarks.dataset import STORE, checksum, make_topic
from benchmarks.kernel import Job
from benchmarks.lags import delays
from benchmarks.replica import changelog_of, command
from benchmarks.report import Report
from benchmarks.rounds import answer_of, order, quantile
from benchmarks.running import Running
from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import prefix
from standby.replica.store.origin import DATABASE

#: The time-out for the start of a container, including its JVM.
_START_SECONDS: Final = 180.0

_MEASURES: Final = (
    ("active_core_share", "active, % of a core", 100.0),
    ("standby_core_share", "standby, % of a core", 100.0),
    ("price", "standby / active, %", 100.0),
    ("lag_p50_seconds", "lag p50, ms", 1_000.0),
    ("lag_p99_seconds", "lag p99, ms", 1_000.0),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every round succeeded with equal states, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tailing", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--rates", type=int, nargs="+", default=[5_000, 50_000], help="records a second")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--feed", choices=("plain", "spark"), default="plain", help="of the active")
    parser.add_argument("--step", choices=("count", "profile"), default="count")
    parser.add_argument("--seconds", type=float, default=30.0, help="the window (default: %(default)s)")
    parser.add_argument("--warm-seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "tailing.json")
    arguments = parser.parse_args(argv)
    report = Report(arguments.output, "A tailing standby", _MEASURES, arguments)

    def measure() -> None:
        results = report.case(
            f"{arguments.feed} feed, {arguments.step}", [_name(rate) for rate in arguments.rates]
        )
        with arena(arguments.scratch) as (bootstrap, scratch):
            for turn in range(arguments.rounds):
                for rate in order(arguments.rates, turn):
                    _round(arguments, bootstrap, scratch, turn, rate, results)

    return report.carry_out(measure)


def _name(rate: int) -> str:
    return f"{rate:,} records/s"


def _round(
    arguments: argparse.Namespace, bootstrap: str, scratch: Path, turn: int, rate: int, results: Results
) -> None:
    name = _name(rate)
    state = scratch / f"{turn}-{rate}"
    with results.attempt(f"round {turn + 1}, {name}"):
        found = _measure(arguments, bootstrap, state, f"tail-{turn}-{rate}", rate)
        results.add(name, found)
        say(
            f"round {turn + 1} of {arguments.rounds}, {name}: active {found['active_core_share']:.1%}, "
            f"standby {found['standby_core_share']:.1%} of a core, lag p99 {found['lag_p99_seconds'] * 1e3:.0f} ms"
        )
    shutil.rmtree(state, ignore_errors=True)


def _measure(
    arguments: argparse.Namespace, bootstrap: str, state: Path, name: str, rate: int
) -> dict[str, Any]:
    job = Job(name, arguments.partitions, changelog_of(name), bootstrap, state, {})
    for topic in (f"{name}-in", f"{name}-out", job.changelog):
        make_topic(bootstrap, topic, job.tasks)
    state.mkdir(parents=True)
    transform = "unchanged" if arguments.feed == "spark" else None
    traces = [state / f"trace-{copy}.json" for copy in range(2)]
    logs = arguments.output.parent / "logs"
    with ExitStack() as stack:
        active, standby = (
            stack.enter_context(
                Running(
                    command(job, copy, 2, transform=transform, step=arguments.step, trace=traces[copy]),
                    logs / f"tailing-{copy}.log",
                )
            )
            for copy in range(2)
        )
        for each in (active, standby):
            each.await_ready(_START_SECONDS)
        total = round(rate * (arguments.warm_seconds + arguments.seconds + 1))
        load = stack.enter_context(
            Running(
                [
                    *(sys.executable, "-m", "benchmarks.load", "--bootstrap", bootstrap),
                    *("--topic", f"{name}-in", "--partitions", str(job.tasks)),
                    *("--records", str(total), "--rate", str(rate), "--keys", str(arguments.keys)),
                ],
                logs / "tailing-load.log",
            )
        )
        time.sleep(arguments.warm_seconds)
        begin, before = time.monotonic(), [meter.cpu_seconds((each.pid,)) for each in (active, standby)]
        time.sleep(arguments.seconds)
        end, after = time.monotonic(), [meter.cpu_seconds((each.pid,)) for each in (active, standby)]
        memory = [meter.resident_bytes((each.pid,)) for each in (active, standby)]
        written = answer_of(load.join(60 + arguments.seconds))
        _await_equal(arguments, bootstrap, job)
        active.end(60)
        standby.end(60)
    notes = [traced.load(each) for each in traces]
    lags = [lag for task in notes[0] for lag in delays(notes[0][task], notes[1].get(task, []), begin, end)]
    if not lags:
        raise Failed("nothing was committed in the window")
    _compare(job)
    spent = [(b - a) / (end - begin) for a, b in zip(before, after, strict=True)]
    return {
        "active_core_share": spent[0],
        "standby_core_share": spent[1],
        "price": spent[1] / spent[0],
        "lag_p50_seconds": quantile(lags, 0.5),
        "lag_p99_seconds": quantile(lags, 0.99),
        "lag_max_seconds": max(lags),
        "commits": len(lags),
        "active_bytes": memory[0],
        "standby_bytes": memory[1],
        "generator_most_late_seconds": written["most_late_seconds"],
    }


def _await_equal(arguments: argparse.Namespace, bootstrap: str, job: Job) -> None:
    """Wait until all input is committed: from then on the standby needs at most one more poll."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": job.definition.group})
    try:
        places = [TopicPartition(f"{job.name}-in", each) for each in range(job.tasks)]
        ends = {each.partition: consumer.get_watermark_offsets(each, 20)[1] for each in places}
        give_up = time.monotonic() + 60 + arguments.seconds
        while {each.partition: each.offset for each in consumer.committed(places, 20)} != ends:
            if time.monotonic() > give_up:
                raise Failed("the active does not keep up with the rate")
            time.sleep(0.1)
    finally:
        consumer.close()
    # The measured lags are well below; for a condition observed from outside there is no event.
    time.sleep(2)


def _compare(job: Job) -> None:
    """Raise `Failed` unless both hosts have the same state."""
    found = []
    for copy in range(2):
        keys = total = 0
        for task in job.task_ids:
            database = open_database(job.state_of(f"host-{copy}", task) / DATABASE, Profile.SERVING)
            try:
                for key, value in database.items(prefix(STORE)):
                    total += checksum(key, value)
                    keys += 1
            finally:
                database.close()
        found.append((keys, total))
    if found[0] != found[1] or not found[0][0]:
        raise Failed(f"active and standby differ: {found[0]} and {found[1]} (keys, checksum)")


if __name__ == "__main__":
    sys.exit(main())
