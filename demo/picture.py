"""The timeline of a run as a picture: rates, backlog, who processed what, and the gaps from close by."""

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

_BIN_SECONDS: Final = 0.5
_ZOOM_BEFORE_SECONDS: Final = 2.0
_ZOOM_AFTER_SECONDS: Final = 3.0
_IN, _OUT, _LAG, _GAP = "#4c72b0", "#55a868", "#8172b3", "#c44e52"
_HOSTS: Final = ("#4c72b0", "#dd8452", "#55a868", "#8172b3", "#937860", "#da8bc3")


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the picture is drawn from; all times are Unix milliseconds by the brokers' clock."""

    input_times: Mapping[int, Sequence[int]]
    output_times: Mapping[int, Sequence[int]]
    failovers: Sequence[Failover]
    gaps: Sequence[Sequence[Gap]]
    """Of each failover, the gap of each affected task."""
    actives: Sequence[tuple[int, Mapping[int, str]]]
    """When the status was asked, and which host held each task's active then."""


def draw(timeline: Timeline, path: Path) -> None:
    """Write the picture to ``path`` (PNG)."""
    zooms = len(timeline.failovers)
    figure = plt.figure(figsize=(13, 9), constrained_layout=True)
    grid = figure.add_gridspec(4, max(1, zooms), height_ratios=(3, 2, 2, 3))
    start = min((times[0] for times in timeline.input_times.values() if times), default=0)
    moments = [
        times[-1] for times in (*timeline.input_times.values(), *timeline.output_times.values()) if times
    ]
    length = (max(moments, default=start + 1_000) - start) / 1_000

    rate = figure.add_subplot(grid[0, :])
    _draw_rates(rate, timeline, start, length)
    backlog = figure.add_subplot(grid[1, :], sharex=rate)
    _draw_backlog(backlog, timeline, start, length)
    owners = figure.add_subplot(grid[2, :], sharex=rate)
    _draw_owners(owners, timeline, start)
    for axes in (rate, backlog, owners):
        _mark_failures(axes, timeline, start, has_labels=axes is rate)
        axes.set_xlim(0, length)
    owners.set_xlabel("seconds since the first record")
    for number in range(zooms):
        _draw_zoom(figure.add_subplot(grid[3, number]), timeline, number)
    figure.suptitle("A hot standby takes over: 2013's flights out of New York through standfast")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _seconds(times: Mapping[int, Sequence[int]], start: int) -> Any:
    everything = [np.asarray(each, dtype=np.int64) for each in times.values() if len(each)]
    return (np.sort(np.concatenate(everything)) - start) / 1_000 if everything else np.zeros(0)


def _draw_rates(axes: Any, timeline: Timeline, start: int, length: float) -> None:
    bins = np.arange(0, length + _BIN_SECONDS, _BIN_SECONDS)
    highest = 1.0
    for times, label, colour in (
        (timeline.input_times, "records in", _IN),
        (timeline.output_times, "records out, committed", _OUT),
    ):
        counts, _ = np.histogram(_seconds(times, start), bins)
        if times is timeline.input_times:
            highest = max(highest, *(counts / _BIN_SECONDS)) if len(counts) else highest
        axes.step(bins[:-1], counts / _BIN_SECONDS, where="post", label=label, color=colour, linewidth=1.2)
    axes.set_ylabel("records per second")
    # A backlog is worked off in bursts, whose height says nothing; the input's rate gives the scale.
    axes.set_ylim(0, 1.5 * highest)
    axes.legend(loc="upper left", fontsize=8)


def _draw_backlog(axes: Any, timeline: Timeline, start: int, length: float) -> None:
    moments = np.arange(0, length, 0.1)
    came = np.searchsorted(_seconds(timeline.input_times, start), moments, side="right")
    went = np.searchsorted(_seconds(timeline.output_times, start), moments, side="right")
    axes.fill_between(moments, np.maximum(came - went, 0), color=_LAG, alpha=0.5, linewidth=0)
    axes.set_ylabel("records waiting")
    axes.set_ylim(bottom=0)


def _draw_owners(axes: Any, timeline: Timeline, start: int) -> None:
    """One bar per task, coloured by the host of its active; white where a task put nothing out."""
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
    axes.set_ylabel("active on")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours[host]) for host in hosts]
    axes.legend(
        handles, hosts, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=max(1, len(hosts))
    )


def _mark_failures(axes: Any, timeline: Timeline, start: int, *, has_labels: bool) -> None:
    for failover, gaps in zip(timeline.failovers, timeline.gaps, strict=True):
        at = (failover.disturbance.begun_ms - start) / 1_000
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
    """Write along a vertical line; a label beyond the axes must not shrink the rest."""
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
