"""Pictures of results: bars of medians, with their ranges as whiskers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

# Before pyplot is imported: there may be no display.
mpl.use("Agg")
from matplotlib import pyplot as plt

#: Distinguishable for the colour-blind as well (Paul Tol's bright scheme); repeated if there are more
#: contestants.
_COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
_ROW_INCHES: Final = 0.27


def bars(
    path: Path,
    title: str,
    measures: Sequence[tuple[str, str, float]],
    groups: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    """Draw one panel for each of ``measures`` (key, axis label, factor), one bar per contestant.

    ``groups``: group → contestant → key → median, min and max, as `benchmarks.rounds.Figure.as_json` has them.
    A contestant without the key has no bar. Each contestant has the same colour in all groups. Each bar has its median
    as a number, because next to the longest bar others may be too short to see.
    """
    names = list(dict.fromkeys(name for each in groups.values() for name in each))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    # A row for the group's title, its contestants, and half a row of space.
    places, headings, bottom = [], [], 0.0
    for group, each in groups.items():
        headings.append((bottom, group))
        places += [(bottom + row, name, found) for row, (name, found) in enumerate(each.items(), start=1)]
        bottom += len(each) + 1.5
    size = (4.2 * len(measures) + 2.5, _ROW_INCHES * bottom + 1.4)
    figure, panels = plt.subplots(
        1, len(measures), figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for panel, (key, label, factor) in zip(panels[0], measures, strict=True):
        panel.set_title(label, fontsize=10)
        for place, name, found in places:
            if key in found:
                median, least, most = (found[key][each] * factor for each in ("median", "min", "max"))
                _bar(panel, place, colours[name], median, least, most)
        panel.margins(x=0.18)
        panel.set_xlim(left=0)
        panel.tick_params(axis="y", length=0)
        panel.spines[["top", "right"]].set_visible(False)
    first = panels[0][0]
    first.set_yticks(
        [place for place, _ in headings] + [place for place, _, _ in places],
        [group for _, group in headings] + [name for _, name, _ in places],
    )
    for text in first.get_yticklabels()[: len(headings)]:
        text.set_fontweight("bold")
    first.set_ylim(bottom - 0.5, -0.7)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bar(panel: Any, place: float, colour: str, median: float, least: float, most: float) -> None:
    panel.barh(place, median, color=colour)
    whisker = [[median - least], [most - median]]
    panel.errorbar(median, place, xerr=whisker, fmt="none", ecolor="#222222", capsize=2)
    digits = 0 if median >= 100 else 1 if median >= 10 else 2
    panel.annotate(
        f"{median:,.{digits}f}",
        (most, place),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )
