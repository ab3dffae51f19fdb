"""Throughput and latency of a steady stream: ``python -m benchmarks.steady``.

A count by key (``count``) and a heavier update (``profile``: 128 bytes of state, rewritten by each record), with one
output for each record and with 1, 4 and 16 tasks in one container, by standfast with either feed, Kafka Streams, Quix
Streams and Spark's own state; systems with standbys run with 0, 1 and 2 of them. At saturation: rows per second, and
CPU time per million rows. Then at half of that rate: the time from when a record was due until its output could be
read, p50 and p99. Contestants are separate processes on one broker, in rotating order, observed from outside. Writes
JSON and a picture.

All cases in five rounds take many hours: select with --steps, --partitions, --standbys and --only.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks.broker import arena
from benchmarks.contest import ROOT, Failed, say
from benchmarks.referee import Referee
from benchmarks.report import Report
from benchmarks.rounds import order
from benchmarks.streams import (
    ALL,
    OURS_BLIND,
    OURS_CALLED,
    QUIX,
    STREAMS,
    WITH_STANDBYS,
    Case,
    Place,
    commands,
)
from standby.errors import Unavailable

_MEASURES: Final = (
    ("rows_per_second", "thousand rows/s", 1e-3),
    ("cpu_seconds_per_million", "CPU s a million rows", 1.0),
    ("latency_p50_ms", "p50 at half, ms", 1.0),
    ("latency_p99_ms", "p99 at half, ms", 1.0),
    ("resident_bytes", "memory, MB", 1e-6),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every contestant finished every case, else 1."""
    arguments = _arguments(argv)
    report = Report(arguments.output, "A steady stream", _MEASURES, arguments)

    def measure() -> None:
        with arena(arguments.scratch) as (bootstrap, scratch):
            find_missing(arguments.only, report)
            _contest(arguments, bootstrap, scratch, report)

    return report.carry_out(measure)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.steady", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--steps", nargs="+", choices=("count", "profile"), default=["count", "profile"])
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=[1, 4, 16], help="tasks of the container"
    )
    parser.add_argument("--standbys", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--only", nargs="+", choices=(*ALL, OURS_CALLED, OURS_BLIND), default=ALL, help="some contestants"
    )
    parser.add_argument("--without-latency", action="store_true", help="measure at saturation only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backlog", type=int, default=4_000_000, help="records that wait, at saturation")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--warm-seconds", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0, help="each window (default: %(default)s)")
    parser.add_argument("--most-rate", type=float, default=100_000.0, help="of the generator, at half load")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "steady.json")
    return parser.parse_args(argv)


def find_missing(names: Sequence[str], report: Report) -> None:
    """Skip the contestants that cannot run here, and download the others."""
    case = Case("count", 1, 0)
    for name in names:
        if name in (QUIX, STREAMS):
            try:
                commands(name, case, Place("", "", Path()))
            except Unavailable as error:
                report.skip(name, error)


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases to measure."""
    for step in arguments.steps:
        for partitions in arguments.partitions:
            for standbys in arguments.standbys:
                yield Case(step, partitions, standbys)


def _contest(arguments: argparse.Namespace, bootstrap: str, scratch: Path, report: Report) -> None:
    numbers = count()
    for case in cases(arguments):
        names = [
            each
            for each in arguments.only
            if each not in report.skipped and (case.standbys == 0 or each in WITH_STANDBYS)
        ]
        found = report.case(str(case), names)
        for turn in range(arguments.rounds):
            for name in order(names, turn):
                title = f"{case}, round {turn + 1} of {arguments.rounds}, {name}"
                with found.attempt(title):
                    answer = _measure(arguments, bootstrap, scratch, numbers, name, case)
                    found.add(name, answer)
                    say(f"{title}: {_summary(answer)}")


def _measure(
    arguments: argparse.Namespace,
    bootstrap: str,
    scratch: Path,
    numbers: Iterator[int],
    name: str,
    case: Case,
) -> dict[str, Any]:
    def referee() -> Referee:
        # A new job each time, so that nothing of an earlier run is reused.
        job = f"steady-{next(numbers):05}"
        return Referee(
            name,
            case,
            Place(bootstrap, job, scratch / job),
            arguments.keys,
            arguments.output.parent / "logs",
        )

    try:
        fast = referee().saturation(arguments.backlog, arguments.warm_seconds, arguments.seconds)
        if arguments.without_latency:
            return fast
        rate = min(fast["rows_per_second"] / 2, arguments.most_rate)
        slow = referee().latency(rate, arguments.warm_seconds, arguments.seconds)
    finally:
        for each in scratch.iterdir():
            shutil.rmtree(each, ignore_errors=True)
    if slow["lost_records"]:
        raise Failed(f"{slow['lost_records']:.0f} records were lost, or came too late to be seen")
    return {**fast, **slow}


def _summary(answer: Mapping[str, float]) -> str:
    text = f"{answer['rows_per_second']:,.0f} rows/s, {answer['cpu_seconds_per_million']:.1f} CPU s a million"
    if "latency_p50_ms" in answer:
        text += f", p50 {answer['latency_p50_ms']:.0f} ms, p99 {answer['latency_p99_ms']:.0f} ms"
    return text


if __name__ == "__main__":
    sys.exit(main())
