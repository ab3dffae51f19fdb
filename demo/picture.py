"""The timeline of a run as a picture: rates, backlog, the hosts of the actives, and the gaps enlarged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np

# Before pyplot is imported: there may be no display.
mpl.use("Agg")

from matplotlib import pyplot as plt

from demo.gaps import Gap
from demo.report import Failover

#: A rate covers the time before each moment; outputs become visible when their batch is committed, several
#: times a second.
_RATE_SECONDS: Final = 1.0
_STEP_SECONDS: Final = 0.1
#: The minimum width of a stretch, as a part of the picture's width.
_LEAST_SHARE: Final = 0.25
_ZOOM_BEFORE_SECONDS: Final = 2.0
_ZOOM_AFTER_SECONDS: Final = 3.0
_IN, _OUT, _LAG, _GAP = "#4c72b0", "#55a868", "#8172b3", "#c44e52"
_HOSTS: Final = ("#4c72b0", "#dd8452", "#55a868", "#8172b3", "#937860", "#da8bc3")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the run with input at one rate; it has its own axes."""

    begin_ms: int
    """It lasts until the next one begins, or until the end of the run."""
    title: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The data of the picture; all times are Unix milliseconds by the brokers' clock."""

    input_times: Mapping[int, Sequence[int]]
    output_times: Mapping[int, Sequence[int]]
    failovers: Sequence[Failover]
    gaps: Sequence[Sequence[Gap]]
    """Of each failover, the gap of each affected task."""
    actives: Sequence[tuple[int, Mapping[int, str]]]
    """When the status was queried, and which host had each task's active then."""
    stretches: Sequence[Stretch] = ()
    """In order; if empty, the whole run is one stretch."""


def draw(timeline: Timeline, path: Path) -> None:
    """Write the picture to ``path`` (PNG)."""
    figure = plt.figure(figsize=(13, 9), constrained_layout=True)
    outer = figure.add_gridspec(2, 1, height_ratios=(7, 3))
    records = [times for times in (*timeline.input_times.values(), *timeline.output_times.values()) if times]
    first = min((times[0] for times in records), default=0)
    stretches = timeline.stretches or (Stretch(first, ""),)
    start = stretches[0].begin_ms
    begins = [(each.begin_ms - start) / 1_000 for each in stretches]
    last = (max((times[-1] for times in records), default=start) - start) / 1_000
    ends = [*begins[1:], max(last, begins[-1] + 1)]
    lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
    shares = [max(each / sum(lengths), _LEAST_SHARE) for each in lengths]
    grid = outer[0].subgridspec(3, len(stretches), height_ratios=(3, 2, 2), width_ratios=shares)
    for number, (stretch, begin, end) in enumerate(zip(stretches, begins, ends, strict=True)):
        rate = figure.add_subplot(grid[0, number])
        _draw_rates(rate, timeline, start, (begin, end))
        rate.set_title(stretch.title, loc="right", fontsize=9)
        backlog = figure.add_subplot(grid[1, number], sharex=rate)
        _draw_backlog(backlog, timeline, start, (begin, end))
        owners = figure.add_subplot(grid[2, number], sharex=rate)
        _draw_owners(owners, timeline, start, has_legend=number == len(stretches) - 1)
        for axes in (rate, backlog, owners):
            _mark_failures(axes, timeline, start, (begin, end), has_labels=axes is rate)
            axes.set_xlim(begin, end)
        owners.set_xlabel("seconds since the stream began")
        if number == 0:
            rate.set_ylabel("records in the last second")
            # At the top, away from curves and labels.
            rate.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8, frameon=False)
            backlog.set_ylabel("records waiting")
            owners.set_ylabel("active on")
    zooms = outer[1].subgridspec(1, max(1, len(timeline.failovers)))
    for number in range(len(timeline.failovers)):
        _draw_zoom(figure.add_subplot(zooms[0, number]), timeline, number)
    figure.suptitle("A hot standby takes over: 2013's flights out of New York through standfast")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def rates_at(seconds: Any, moments: Any) -> Any:
    """Return the records per second in the second before each of ``moments``; ``seconds`` rise."""
    until = np.searchsorted(seconds, moments, side="right")
    since = np.searchsorted(seconds, np.asarray(moments) - _RATE_SECONDS, side="right")
    return (until - since) / _RATE_SECONDS


def _seconds(times: Mapping[int, Sequence[int]], start: int) -> Any:
    everything = [np.asarray(each, dtype=np.int64) for each in times.values() if len(each)]
    return (np.sort(np.concatenate(everything)) - start) / 1_000 if everything else np.zeros(0)


def _draw_rates(axes: Any, timeline: Timeline, start: int, span: tuple[float, float]) -> None:
    # The first second of a stretch would show the rate of the previous one.
    moments = np.arange(span[0] + _RATE_SECONDS, span[1], _STEP_SECONDS)
    came = rates_at(_seconds(timeline.input_times, start), moments)
    went = rates_at(_seconds(timeline.output_times, start), moments)
    axes.plot(moments, came, label="in", color=_IN, linewidth=1.2)
    axes.plot(moments, went, label="out, committed", color=_OUT, linewidth=1.2)
    # A backlog is processed in bursts whose height has no meaning; the input's rate determines the scale.
    axes.set_ylim(0, 1.5 * max(1.0, came.max(initial=0.0)))


def _draw_backlog(axes: Any, timeline: Timeline, start: int, span: tuple[float, float]) -> None:
    moments = np.arange(*span, _STEP_SECONDS)
    came = np.searchsorted(_seconds(timeline.input_times, start), moments, side="right")
    went = np.searchsorted(_seconds(timeline.output_times, start), moments, side="right")
    axes.fill_between(moments, np.maximum(came - went, 0), color=_LAG, alpha=0.5, linewidth=0)
    axes.set_ylim(bottom=0)


def _draw_owners(axes: Any, timeline: Timeline, start: int, *, has_legend: bool) -> None:
    """Draw one bar per task, coloured by the host of its active, and white during a gap in its output."""
    hosts = sorted({host for _, owners in timeline.actives for host in owners.values()})
    colours = {host: _HOSTS[number % len(_HOSTS)] for number, host in enumerate(hosts)}
    partitions = sorted(timeline.output_times)
    for (at, owners), (until, _) in zip(timeline.actives, timeline.actives[1:], strict=False):
        for partition, host in owners.items():
            left, right = (at - start) / 1_000, (until - start) / 1_000
            axes.barh(partition, right - left, left=left, height=0.7, color=colours[host], linewidth=0)
    for gap in (each for gaps in timeline.gaps for each in gaps):
        left, right = (gap.last_ms - start) / 1_000, (gap.first_ms - start) / 1_000
        axes.barh(gap.partition, right - left, left=left, height=0.7, color="white", linewidth=0)
    axes.set_yticks(partitions, [f"task {partition}" for partition in partitions])
    if not has_legend:
        return
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours[host]) for host in hosts]
    axes.legend(
        handles, hosts, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=max(1, len(hosts))
    )


def _mark_failures(
    axes: Any, timeline: Timeline, start: int, span: tuple[float, float], *, has_labels: bool
) -> None:
    for failover, gaps in zip(timeline.failovers, timeline.gaps, strict=True):
        at = (failover.disturbance.begun_ms - start) / 1_000
        if not span[0] <= at < span[1]:
            continue
        axes.axvline(at, color=_GAP, linewidth=1, linestyle="--")
        for gap in gaps[:1]:
            axes.axvspan(
                (gap.last_ms - start) / 1_000, (gap.first_ms - start) / 1_000, color=_GAP, alpha=0.25
            )
        restored = (failover.disturbance.restored_ms - start) / 1_000
        if failover.is_restored:
            axes.axvline(restored, color=_OUT, linewidth=1, linestyle=":")
        if has_labels:
            _label(axes, f"{failover.kind} lost ", at, _GAP)
            if failover.is_restored:
                _label(axes, "all in sync ", restored, _OUT)


def _label(axes: Any, text: str, at: float, colour: str) -> None:
    """Write a label along a vertical line, without shrinking the axes for it."""
    label = axes.annotate(
        text,
        (at, 0.98),
        xycoords=("data", "axes fraction"),
        color=colour,
        fontsize=8,
        rotation=90,
        ha="right",
        va="top",
        annotation_clip=True,
    )
    label.set_in_layout(False)


def _draw_zoom(axes: Any, timeline: Timeline, number: int) -> None:
    """Draw every output record of the affected tasks as a tick, around the failure."""
    failover, gaps = timeline.failovers[number], timeline.gaps[number]
    begun = failover.disturbance.begun_ms
    longest = max((gap.first_ms - begun for gap in gaps), default=0) / 1_000
    left, right = -_ZOOM_BEFORE_SECONDS, longest + _ZOOM_AFTER_SECONDS
    partitions = sorted(timeline.output_times)
    for partition in partitions:
        times = (np.unique(np.asarray(timeline.output_times[partition], dtype=np.int64)) - begun) / 1_000
        shown = times[(times >= left) & (times <= right)]
        is_affected = partition in failover.disturbance.tasks
        axes.plot(
            shown, np.full(len(shown), partition), "|", color=_OUT if is_affected else "#999999", markersize=9
        )
    for gap in gaps:
        axes.barh(
            gap.partition,
            gap.length_ms / 1_000,
            left=(gap.last_ms - begun) / 1_000,
            height=0.6,
            color=_GAP,
            alpha=0.25,
            linewidth=0,
        )
        middle = (gap.last_ms + gap.first_ms) / 2_000 - begun / 1_000
        axes.annotate(f"{gap.length_ms:,} ms", (middle, gap.partition), ha="center", va="center", fontsize=8)
    axes.axvline(0, color=_GAP, linewidth=1, linestyle="--")
    axes.set_xlim(left, right)
    axes.set_yticks(partitions, [f"task {partition}" for partition in partitions])
    axes.set_ylim(min(partitions, default=0) - 0.6, max(partitions, default=0) + 0.6)
    axes.set_xlabel(f"seconds since the {failover.kind} was lost; a tick per output")
