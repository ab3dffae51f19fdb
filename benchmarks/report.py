"""The results of a benchmark that compares contestants: JSON, a picture next to it, a table and an exit status."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.contest import Results, say
from demo.interrupt import Interrupted
from demo.versions import versions
from standby.errors import StandfastError

#: Key of a figure, its title with the unit, and the factor for that unit.
Measure = tuple[str, str, float]


class Report:
    """Results by case. Every answer is written to the file at once, because a run of hours may end early."""

    def __init__(
        self, output: Path, title: str, measures: Sequence[Measure], arguments: argparse.Namespace
    ) -> None:
        """``output`` is the JSON file; the picture is next to it."""
        self._output, self._title, self._measures = output, title, measures
        self._settings = {key: str(value) for key, value in vars(arguments).items() if key != "output"}
        self._load_before = round(os.getloadavg()[0], 2)
        self._versions = versions()
        self._cases: dict[str, Results] = {}
        self._skipped: dict[str, str] = {}
        self._is_complete = False

    @property
    def skipped(self) -> Mapping[str, str]:
        """Contestants that cannot run here, and why."""
        return self._skipped

    def skip(self, name: str, reason: object) -> None:
        """Record that a contestant cannot run here."""
        self._skipped[name] = str(reason)
        say(f"skipped: {name}: {reason}")

    def case(self, name: str, contestants: Sequence[str]) -> Results:
        """Return the empty results of a new case."""
        found = self._cases[name] = Results({each: [] for each in contestants}, changed=self._save)
        return found

    def carry_out(self, measure: Callable[[], None]) -> int:
        """Measure, show the results, and return the exit status.

        0 if every contestant finished everything, 1 if one failed, else that of the interruption or the error
        that ended it; the results so far are shown as well.
        """
        status = 0
        try:
            measure()
            self._is_complete = True
        except Interrupted as interrupted:
            status = interrupted.exit_status
        except StandfastError as error:
            say(f"benchmark: {error}")
            status = error.exit_status
        if self._cases:
            self._save()
            chart.bars(self._output.with_suffix(".png"), self._title, self._measures, self._medians())
            self._show()
        return status or int(any(each.failures for each in self._cases.values()))

    def _medians(self) -> dict[str, Any]:
        return {name: each.as_json()["medians"] for name, each in self._cases.items()}

    def _save(self) -> None:
        content = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "is_complete": self._is_complete,
            "versions": self._versions,
            "settings": self._settings,
            "load_before": self._load_before,
            "skipped": self._skipped,
            "results": {name: each.as_json() for name, each in self._cases.items()},
        }
        self._output.parent.mkdir(parents=True, exist_ok=True)
        # If this process ends now, the file is either the old or the new one, never a part.
        new = self._output.with_suffix(".new")
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        new.replace(self._output)

    def _show(self) -> None:
        for case, contestants in self._medians().items():
            print(f"{case}: medians (ranges)")
            for name, figures in contestants.items():
                cells = [
                    f"{label} {_cell(figures[key], factor)}"
                    for key, label, factor in self._measures
                    if key in figures
                ]
                print(f"  {name:36}" + ("; ".join(cells) or "nothing"))
        for each in self._cases.values():
            for failure in each.failures:
                print(f"failed: {failure}")
        print(self._output)


def _cell(figure: Mapping[str, float], factor: float) -> str:
    median, least, most = (figure[each] * factor for each in ("median", "min", "max"))
    return f"{median:.2f} ({least:.2f}–{most:.2f})"
