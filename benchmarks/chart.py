"""Pictures of results: bars of medians, with their ranges as whiskers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

# Before pyplot is imported: there may be no display.
mpl.use("Agg")
from matplotlib import pyplot as plt


def bars(
    path: Path,
    title: str,
    measures: Sequence[tuple[str, str, float]],
    groups: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    """Draw one panel for each of ``measures`` (key, axis label, factor), one bar per contestant.

    ``groups``: group → contestant → key → median, min and max, as `benchmarks.rounds.Figure.as_json` has them.
    A contestant without the key has no bar.
    """
    names = [
        f"{contestant}\n{group}" if len(groups) > 1 else contestant
        for group, each in groups.items()
        for contestant in each
    ]
    rows = [found for each in groups.values() for found in each.values()]
    height = max(2.4, 0.55 * len(rows) + 1)
    figure, panels = plt.subplots(1, len(measures), figsize=(4.6 * len(measures), height), squeeze=False)
    for panel, (key, label, factor) in zip(panels[0], measures, strict=True):
        for place, found in enumerate(rows):
            if key not in found:
                continue
            median, least, most = (found[key][each] * factor for each in ("median", "min", "max"))
            panel.barh(place, median, color="#4477aa")
            panel.errorbar(
                median,
                place,
                xerr=[[median - least], [most - median]],
                fmt="none",
                ecolor="#222222",
                capsize=3,
            )
        panel.set_yticks(range(len(rows)), names if panel is panels[0][0] else [""] * len(rows))
        panel.invert_yaxis()
        panel.set_xlabel(label)
        panel.set_xlim(left=0)
    figure.suptitle(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
