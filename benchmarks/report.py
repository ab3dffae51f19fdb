"""How the benchmarks that compare contestants end: an error as an exit status, JSON, and a picture beside it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.contest import say
from demo.interrupt import Interrupted
from demo.versions import versions
from standby.errors import StandfastError


def carry_out(measure: Callable[[], None]) -> int:
    """Measure; return 0, or the exit status of the interruption or the error that ended it."""
    try:
        measure()
    except Interrupted as interrupted:
        return interrupted.exit_status
    except StandfastError as error:
        say(f"benchmark: {error}")
        return error.exit_status
    return 0


def settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return what was asked for, but for where the result goes."""
    return {key: str(value) for key, value in vars(arguments).items() if key != "output"}


def publish(
    output: Path,
    title: str,
    measures: Sequence[tuple[str, str, float]],
    told: Mapping[str, Any],
    medians: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    """Write ``told`` with date and versions as JSON, and a picture of the medians beside it (`chart.bars`)."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    output.parent.mkdir(parents=True, exist_ok=True)
    result = {"date": date, "versions": versions(), **told}
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    chart.bars(output.with_suffix(".png"), title, measures, medians)
