"""The behaviour of a job on an overloaded machine: ``python -m benchmarks.overload --threads-per-core 20``.

The flights job runs on the embedded cluster under a steady stream, with each feed in turn. After an undisturbed time,
busy processes take the cores from everything: containers, masters, Kafka, YARN and ZooKeeper. The result has the
longest silence of a task before and during the load, the share of the stream that was processed, the backlog at its
end, when `status` first reported that a task does not keep up, how often a task was claimed, and how long the backlog
took afterwards. A round whose outputs or state are not exact in the end has failed. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.broker import whole_arena
from benchmarks.contest import ROOT, Failed, say
from benchmarks.report import Measure, Report
from benchmarks.rounds import order
from benchmarks.stream import endless
from demo.scenario import Scenario, Shape, now_ms
from demo.traffic import Traffic
from embedded.cluster import LocalCluster

_FEEDS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {
        "task.feed": "plain",
        "task.transform": "flights_plain:clean_table",
        "job.modules": "flights.py,flights_plain.py",
    },
    "spark": {},
}
_MEASURES: Final[tuple[Measure, ...]] = (
    ("silence_before_ms", "longest silence of a task in peace, s", 0.001),
    ("silence_ms", "longest silence of a task under load, s", 0.001),
    ("through_share", "of the stream that got through under load, %", 100.0),
    ("backlog", "records behind at its end, thousands", 0.001),
    ("told_seconds", "until status says that a task does not keep up, s", 1.0),
    ("epochs", "times that a task was claimed", 1.0),
    ("catch_up_seconds", "from the end of the load until nothing is left, s", 1.0),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every round succeeded and was exact, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overload", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--feeds", nargs="+", choices=tuple(_FEEDS), default=tuple(_FEEDS))
    parser.add_argument("--threads-per-core", type=int, default=20, help="that only compute")
    parser.add_argument("--rate", type=float, default=1_000.0, help="records a second")
    parser.add_argument("--peace-seconds", type=float, default=30.0)
    parser.add_argument("--load-seconds", type=float, default=120.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "overload.json")
    arguments = parser.parse_args(argv)
    report = Report(arguments.output, "A machine that is too busy", _MEASURES, arguments)

    def measure() -> None:
        found = report.case(f"{arguments.threads_per_core} threads a core", arguments.feeds)
        for turn in range(arguments.rounds):
            for feed in order(arguments.feeds, turn):
                with (
                    found.attempt(f"round {turn + 1}, {feed}"),
                    whole_arena(arguments.scratch) as (cluster, _),
                ):
                    found.add(feed, _round(arguments, cluster, feed))

    return report.carry_out(measure)


def _round(arguments: argparse.Namespace, cluster: LocalCluster, feed: str) -> dict[str, float]:
    # Claims are counted during the load: a hand-over that spreads actives would add some.
    settings = {**_FEEDS[feed], "job.locality.rebalance": "manual"}
    with Scenario(cluster, Shape(), say, settings) as scenario:
        scenario.submit()
        if scenario.wait_until_whole() is None or not scenario.wait_until_warm():
            raise Failed("the job did not become whole and warm")
        traffic = Traffic(cluster.kafka_bootstrap, endless(), arguments.rate)
        traffic.start()
        try:
            time.sleep(5.0)
            peace = (now_ms(), now_ms() + round(arguments.peace_seconds * 1000))
            time.sleep(arguments.peace_seconds)
            epochs = _epochs(scenario)
            with _busy(arguments.threads_per_core * (os.cpu_count() or 1)):
                load_from, begun = now_ms(), time.monotonic()
                reported = None
                while (passed := time.monotonic() - begun) < arguments.load_seconds:
                    time.sleep(1.0)
                    if reported is None and _is_reported(scenario):
                        reported = passed
                load = (load_from, now_ms())
        finally:
            traffic.stop()
        begun = time.monotonic()
        left = scenario.drain()
        caught_up = time.monotonic() - begun
        if left:
            raise Failed(f"{left} records were not processed")
        claimed = _epochs(scenario) - epochs
        found = scenario.verify()
        if not found.is_exact:
            raise Failed(found.findings())
        # Not every record leads to an output.
        share = found.outputs.expected / found.records_in
        came, all_that_came = (share * _count(found.input_times, each) for each in (load, (0, load[1])))
        went, all_that_went = (_count(found.output_times, each) for each in (load, (0, load[1])))
        answer: dict[str, float] = {
            "silence_before_ms": _longest_silence(found.output_times, peace),
            "silence_ms": _longest_silence(found.output_times, load),
            "through_share": went / came,
            "backlog": all_that_came - all_that_went,
            "epochs": claimed,
            "catch_up_seconds": caught_up,
            **({"told_seconds": reported} if reported is not None else {}),
        }
        say(
            f"{feed}: "
            + ", ".join(f"{label} {answer[key] * by:.1f}" for key, label, by in _MEASURES if key in answer)
        )
        return answer


def _epochs(scenario: Scenario) -> int:
    return sum(each.epoch for each in scenario.status().tasks)


def _is_reported(scenario: Scenario) -> bool:
    latest = scenario.watch.latest
    reasons = [each for job in latest.status.jobs for each in job.reasons] if latest is not None else []
    return any("does not keep up" in each for each in reasons)


def _count(times: Mapping[int, Sequence[int]], window: tuple[int, int]) -> int:
    begin, end = window
    return sum(begin <= each < end for every in times.values() for each in every)


def _longest_silence(times: Mapping[int, Sequence[int]], window: tuple[int, int]) -> float:
    """Return the longest time without output of a single task in the window, milliseconds."""
    begin, end = window
    return max(
        after - before
        for each in times.values()
        for before, after in pairwise((begin, *(at for at in each if begin <= at < end), end))
    )


@contextlib.contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Run the given number of busy processes, each with one thread."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            started.append(  # noqa: PERF401
                subprocess.Popen(
                    [sys.executable, "-S", "-E", "-c", "while True: pass"],
                    # Linux divides the processors first among sessions and then among the processes of each
                    # session. In one session all of them together would get as much as a single container.
                    start_new_session=True,
                )
            )
        yield
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.wait()


if __name__ == "__main__":
    sys.exit(main())
