"""The report of a run, and the judgement on it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from demo.events import Event
from demo.gaps import Disturbance, Gap

#: The steps of a failover as the event ``failover_finished`` times them, in their order.
STEPS: Final = ("detected", "recorded", "ordered", "fenced", "drained", "active", "first_commit")


@dataclass(frozen=True, slots=True)
class Failover:
    """One failure that was caused, and what came of it."""

    kind: str
    """``process`` or ``host``."""
    victim: str
    """The container or the host."""
    disturbance: Disturbance
    steps: Mapping[int, Mapping[str, int]]
    """Partition → step → Unix milliseconds, from the event log."""
    is_restored: bool


def step_times(events: Iterable[Event], since_ms: int) -> dict[int, dict[str, int]]:
    """Return partition → step → Unix milliseconds of the failovers that were detected after ``since_ms``."""
    found: dict[int, dict[str, int]] = {}
    for event in events:
        if event.kind != "failover_finished" or event.data is None:
            continue
        for partition, times in event.data.get("tasks", {}).items():
            steps = {
                name.removesuffix("_ms"): int(value) for name, value in times.items() if value is not None
            }
            if steps.get("detected", event.at_ms) >= since_ms:
                found[int(partition)] = steps
    return found


def describe(failover: Failover, gaps: Sequence[Gap], undisturbed_ms: Mapping[int, int]) -> dict[str, Any]:
    """Return the failover as it stands in the report; times in milliseconds since the failure.

    The single figures are those of the task that waited longest, ``per_task`` has all. ``gaps`` are those
    of `demo.gaps.gaps`, longest first; ``undisturbed_ms`` tells the longest interval without a failure.
    """
    begun = failover.disturbance.begun_ms
    by_partition = {gap.partition: gap for gap in gaps}

    def of_task(partition: int) -> dict[str, Any]:
        gap = by_partition.get(partition)
        steps = failover.steps.get(partition, {})
        return {
            **{f"{step}_ms": steps[step] - begun if step in steps else None for step in STEPS},
            "first_output_ms": gap.first_ms - begun if gap is not None else None,
            "gap_ms": gap.length_ms if gap is not None else None,
            "longest_gap_without_failure_ms": undisturbed_ms.get(partition),
        }

    tasks = failover.disturbance.tasks
    longest = gaps[0].partition if gaps else min(tasks, default=-1)
    return {
        "kind": failover.kind,
        "victim": failover.victim,
        "tasks": list(tasks),
        "longest_waiting_task": longest,
        **of_task(longest),
        "restored": failover.is_restored,
        "restored_ms": failover.disturbance.restored_ms - begun if failover.is_restored else None,
        "warm_ms": failover.disturbance.settled_ms - begun if failover.is_restored else None,
        "per_task": {str(partition): of_task(partition) for partition in tasks},
    }


def faults(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return in words everything for which a demo must not end well; empty when it did what it promises."""
    found = [
        f"{report[name]} {text}"
        for name, text in (
            ("lost", "outputs lost"),
            ("duplicated", "outputs duplicated"),
            ("mismatched", "outputs wrong"),
            ("misordered", "outputs out of order"),
            ("state_mismatched", "state keys wrong"),
            ("same_host_violations", "times an active and its standby shared a host"),
        )
        if report[name]
    ]
    if report["outputs_seen"] == 0:
        found.append("no output at all")
    if report["records_in"] != report["records_sent"]:
        found.append(f"{report['records_sent']} records sent, {report['records_in']} in the input topic")
    if not report["replicas_restored"]:
        found.append("replicas not restored")
    found += [
        f"no output from task {partition} after the {failover['kind']} {failover['victim']} was lost"
        for failover in report["failovers"]
        for partition, times in failover["per_task"].items()
        if times["gap_ms"] is None
    ]
    return tuple(found)


def summary(failovers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | int | None]]:
    """Return median, minimum and maximum of each time of ``failovers``, as `describe` gives them."""
    names = [*(f"{step}_ms" for step in STEPS), "first_output_ms", "gap_ms", "restored_ms", "warm_ms"]
    return {name: _spread([each[name] for each in failovers if each.get(name) is not None]) for name in names}


def _spread(values: Sequence[int]) -> dict[str, float | int | None]:
    if not values:
        return {"count": 0, "median": None, "minimum": None, "maximum": None}
    return {
        "count": len(values),
        "median": statistics.median(values),
        "minimum": min(values),
        "maximum": max(values),
    }
