"""What the benchmarks share that disturb the flights job under a steady stream: options, input, report and exit."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, NoReturn

from demo.command import ROOT
from demo.interrupt import Interrupted
from demo.traffic import Traffic
from examples.flights.source import Raw, flights
from standby.errors import StandfastError, Unavailable


def parser_of(name: str, documentation: str | None, steady_seconds: float) -> argparse.ArgumentParser:
    """Return the parser of the benchmark ``name``, with the common options."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=(documentation or "").partition("\n\n")[0]
    )
    parser.add_argument(
        "--rate", type=float, default=1_000.0, help="records per second (default: %(default)s)"
    )
    parser.add_argument("--partitions", type=int, default=4, help="tasks (default: %(default)s)")
    parser.add_argument(
        "--steady-seconds",
        type=float,
        default=steady_seconds,
        help="flow before each disturbance (default: %(default)s)",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the job")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / f"{name}.json")
    return parser


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the keys of the job that were given."""
    return dict(text.split("=", 1) for text in arguments.set)


def status_of(measure: Callable[[], bool]) -> int:
    """Return the exit status of a benchmark: 0 if it was successful, else 1, or that of its error or interruption."""
    try:
        return 0 if measure() else 1
    except Interrupted as interrupted:
        return interrupted.exit_status
    except StandfastError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return error.exit_status


def save(result: Mapping[str, Any], output: Path) -> None:
    """Write the result as JSON."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def leave(status: int) -> NoReturn:
    """End the process at once: daemon threads of client libraries could delay the interpreter's exit for seconds."""
    sys.stdout.flush()
    os._exit(status)


def endless() -> Iterator[Raw]:
    """Yield the flights of 2013, then the same as if they were of 2014, and so on."""
    return chain.from_iterable(flights(years_later=years) for years in count())


def flow(seconds: float, traffic: Traffic) -> None:
    """Let records flow undisturbed; raises `Unavailable` if there are no more."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if traffic.join(0.5):
            raise Unavailable("the stream of input has ended")
