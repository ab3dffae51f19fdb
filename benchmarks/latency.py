"""The latency of outputs at a steady, low rate: ``python -m benchmarks.latency``.

The count by key of `benchmarks.steady` at 1,000 records a second: the time from the moment at which a record was due
until a consumer of committed records could read its output, and the cores used. Unlike there, every contestant gets
the same rate. In addition to the contestants of that benchmark there is Spark's real-time mode. From Python it has no
state, so it forwards records unchanged, at least once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks.broker import arena
from benchmarks.contest import ROOT, Failed, say
from benchmarks.referee import Referee
from benchmarks.report import Report
from benchmarks.rounds import order
from benchmarks.steady import find_missing
from benchmarks.streams import ALL, OURS_CALLED, OURS_PACED, SPARK_REALTIME, Case, Place

_CONTESTANTS: Final = (*ALL, OURS_CALLED, OURS_PACED, SPARK_REALTIME)

_MEASURES: Final = (
    ("latency_p50_ms", "p50, ms", 1.0),
    ("latency_p99_ms", "p99, ms", 1.0),
    ("latency_max_ms", "most, ms", 1.0),
    ("half_load_cores", "cores", 1.0),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every contestant finished every case, else 1."""
    arguments = _arguments(argv)
    report = Report(arguments.output, f"At {arguments.rate:,.0f} records a second", _MEASURES, arguments)

    def measure() -> None:
        with arena(arguments.scratch) as (bootstrap, scratch):
            find_missing(arguments.only, report)
            _contest(arguments, bootstrap, scratch, report)

    return report.carry_out(measure)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.latency", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--rate", type=float, default=1_000.0, help="records a second (default: %(default)s)")
    parser.add_argument("--partitions", type=int, nargs="+", default=[4], help="tasks of the container")
    parser.add_argument("--only", nargs="+", choices=_CONTESTANTS, default=_CONTESTANTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--warm-seconds", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=20.0, help="the window (default: %(default)s)")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "latency.json")
    return parser.parse_args(argv)


def _contest(arguments: argparse.Namespace, bootstrap: str, scratch: Path, report: Report) -> None:
    numbers = count()
    for partitions in arguments.partitions:
        case = Case("count", partitions, 0)
        names = [each for each in arguments.only if each not in report.skipped]
        found = report.case(str(case), names)
        for turn in range(arguments.rounds):
            for name in order(names, turn):
                title = f"{case}, round {turn + 1} of {arguments.rounds}, {name}"
                with found.attempt(title):
                    # A new job each time, so that nothing of an earlier run is reused.
                    job = f"latency-{next(numbers):05}"
                    answer = _measure(arguments, Place(bootstrap, job, scratch / job), name, case)
                    found.add(name, answer)
                    say(
                        f"{title}: p50 {answer['latency_p50_ms']:.0f} ms, p99 {answer['latency_p99_ms']:.0f} ms, "
                        f"{answer['half_load_cores']:.2f} cores"
                    )


def _measure(arguments: argparse.Namespace, place: Place, name: str, case: Case) -> dict[str, Any]:
    referee = Referee(name, case, place, arguments.keys, arguments.output.parent / "logs")
    try:
        found = referee.latency(arguments.rate, arguments.warm_seconds, arguments.seconds)
    finally:
        shutil.rmtree(place.state, ignore_errors=True)
    if found["lost_records"]:
        raise Failed(f"{found['lost_records']:.0f} records were lost, or came too late to be seen")
    return found


if __name__ == "__main__":
    sys.exit(main())
