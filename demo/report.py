"""The report of a run, and whether the run succeeded. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from demo.events import Event
from demo.gaps import Disturbance, Gap
from standby.shared.model import StartStep

#: The steps of a failover in order, as timed by the event ``failover_finished``.
STEPS: Final = (
    *("detected", "recorded", "ordered", "fenced", "drained", "active"),
    *(each.value for each in StartStep),
    "first_commit",
)

#: By how much the leader's time of an event may be earlier than this machine's clock: it notes the difference of its
#: clocks once, when it is elected, and the machine's clock may be adjusted later.
CLOCKS_MS: Final = 1_000

#: How long before a loss a hand-over may have ended of which whoever chose the victim did not know.
_JUST_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Failover:
    """One failure or hand-over that was caused, and its effects."""

    kind: str
    """``process``, ``host`` or ``handover``."""
    victim: str
    """The container or the host."""
    disturbance: Disturbance
    steps: Mapping[int, Mapping[str, int]]
    """Partition → step → Unix milliseconds, from the event log."""
    is_restored: bool
    beside: Mapping[str, Any] = field(default_factory=dict)
    """What else happened until the tasks were processed again, if it was recorded; see `benchmarks.beside`."""


def step_times(
    events: Iterable[Event], since_ms: int, kind: str = "failover_finished"
) -> dict[int, dict[str, int]]:
    """Return partition → step → Unix milliseconds of the failovers that were detected after ``since_ms``.

    With the kind ``handover_finished``: of the hand-overs decided after it.
    """
    found: dict[int, dict[str, int]] = {}
    for event in events:
        if event.kind != kind or event.data is None:
            continue
        for partition, times in event.data.get("tasks", {}).items():
            steps = {
                name.removesuffix("_ms"): int(value) for name, value in times.items() if value is not None
            }
            if steps.get("detected", event.at_ms) >= since_ms - CLOCKS_MS:
                found[int(partition)] = steps
    return found


def moved_away(events: Iterable[Event], lost_ms: int, containers: Collection[str]) -> set[int]:
    """Return the partitions of tasks that were handed over from ``containers`` as they were lost, or just before."""
    return {
        int(partition)
        for event in events
        if event.kind == "handover_finished"
        and event.at_ms >= lost_ms - _JUST_MS
        and event.container not in containers
        for partition in (event.data or {}).get("tasks", {})
    }


def describe(failover: Failover, gaps: Sequence[Gap], before_ms: Mapping[int, int]) -> dict[str, Any]:
    """Return the failover as it is in the report; times in milliseconds since the failure, or the decision.

    The single figures are those of the task that waited longest; ``per_task`` has those of all. ``gaps`` come
    from `demo.gaps.gaps`, longest first, ``before_ms`` from `demo.gaps.longest_before_ms`.
    """
    begun = failover.disturbance.begun_ms
    by_partition = {gap.partition: gap for gap in gaps}

    def of_task(partition: int) -> dict[str, Any]:
        gap = by_partition.get(partition)
        steps = failover.steps.get(partition, {})
        times = {f"{step}_ms": steps[step] - begun if step in steps else None for step in STEPS}
        times["first_output_ms"] = gap.first_ms - begun if gap is not None else None
        return {
            **times,
            "phases_ms": phases(times),
            "gap_ms": gap.length_ms if gap is not None else None,
            "longest_gap_before_ms": before_ms.get(partition),
        }

    tasks = failover.disturbance.tasks
    longest = gaps[0].partition if gaps else min(tasks, default=-1)
    return {
        "kind": failover.kind,
        "victim": failover.victim,
        "tasks": list(tasks),
        "longest_waiting_task": longest,
        "calm_before_ms": begun - failover.disturbance.calm_from_ms,
        **of_task(longest),
        "restored": failover.is_restored,
        "restored_ms": failover.disturbance.restored_ms - begun if failover.is_restored else None,
        "warm_ms": failover.disturbance.settled_ms - begun if failover.is_restored else None,
        "per_task": {str(partition): of_task(partition) for partition in tasks},
        **({"beside": dict(failover.beside)} if failover.beside else {}),
    }


def phases(times: Mapping[str, int | None]) -> dict[str, int]:
    """Return the duration of each phase, milliseconds; ``times`` are the ends of the phases, since the failure.

    A phase without a time is included in the next one. The first commit coincides with the first output and is
    not a separate phase.
    """
    found: dict[str, int] = {}
    before = 0
    for name in (*STEPS[:-1], "first_output"):
        at = times.get(f"{name}_ms")
        if at is not None:
            found[name] = at - before
            before = at
    return found


def faults(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return in words every reason for which a demo fails; empty if it succeeded."""
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
    if report.get("returned_ms", 0) is None:
        found.append("processes of the host that came back did not end")
    if report.get("failovers_after_return"):
        found.append(f"{report['failovers_after_return']} failovers after the host came back")
    found += [
        f"no output from task {partition} after the {failover['kind']} {failover['victim']} was lost"
        for failover in report["failovers"]
        for partition, times in failover["per_task"].items()
        if times["gap_ms"] is None
    ]
    return tuple(found)


#: Median, minimum, maximum and number of some times.
Spread = dict[str, float | int | None]


def summary(failovers: Sequence[Mapping[str, Any]]) -> dict[str, Spread]:
    """Return median, minimum and maximum of each time of ``failovers``, as `describe` returns them."""
    names = [*(f"{step}_ms" for step in STEPS), "first_output_ms", "gap_ms", "restored_ms", "warm_ms"]
    return {name: _spread([each[name] for each in failovers if each.get(name) is not None]) for name in names}


def phase_summary(failovers: Sequence[Mapping[str, Any]]) -> dict[str, Spread]:
    """Return median, minimum and maximum of the duration of each phase, as `describe` returns them."""
    every = [each["phases_ms"] for each in failovers]
    names = [name for name in (*STEPS, "first_output") if any(name in each for each in every)]
    return {name: _spread([each[name] for each in every if name in each]) for name in names}


def _spread(values: Sequence[int]) -> Spread:
    if not values:
        return {"count": 0, "median": None, "minimum": None, "maximum": None}
    return {
        "count": len(values),
        "median": statistics.median(values),
        "minimum": min(values),
        "maximum": max(values),
    }
