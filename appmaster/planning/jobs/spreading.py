"""How a job's actives are spread over hosts, and why not evenly: for `status` and `standfast rebalance`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appmaster.planning.placement.spread import active_processors, next_steps, stands_of
from appmaster.planning.rules.rebalance import is_busy
from appmaster.planning.state.job import Job
from appmaster.planning.state.view import ClusterView, Rebalancing


@dataclass(frozen=True, slots=True)
class ActiveSpread:
    """How the actives of a job are spread."""

    hosts: Mapping[str, int]
    """Host → active processors there; 0: the host has only standbys."""
    is_even: bool
    """Whether it is as even as the copies in sync permit, and no change of an active is under way."""
    is_asked: bool
    """Whether `standfast rebalance` asked for an even spread, and that is under way."""
    why: str
    """Why it is not even, or what it waits for; empty: it is even."""


def spread_of(view: ClusterView, job: Job) -> ActiveSpread:
    """Return how the actives of a job are spread."""
    known = view.rebalancing.get(job.name, Rebalancing())
    is_asked = known.is_asked and not known.is_spent(len(job.model.processors))
    is_even = not is_changing(view, job) and not next_steps(stands_of(view, job, is_asked=True))
    why = "" if is_even or not job.is_led else _why(view, job, known)
    return ActiveSpread(dict(active_processors(view, job)), is_even, is_asked, why)


def is_changing(view: ClusterView, job: Job) -> bool:
    """Return whether a hand-over or failover of the job is under way."""
    return any(each.job == job.name for each in view.handovers) or any(
        each.processor.job == job.name and view.holder(each.to) is not None
        for each in view.failovers.values()
    )


def _why(view: ClusterView, job: Job, known: Rebalancing) -> str:
    policy = job.policy
    if known.is_spent(len(job.model.processors)):
        return f"not even after {known.moves} hand-overs: no more until a container is lost or `standfast rebalance`"
    if known.is_asked or policy.rebalance == "auto":
        if is_busy(view, job):
            return "waits for the end of a hand-over or failover"
        if not known.is_asked and (known.whole_ms is None and job.name in view.rebalancing):
            return "waits until every copy is in place and in sync"
        if next_steps(stands_of(view, job, is_asked=known.is_asked)):
            due_ms = (known.whole_ms or 0) + policy.rebalance_pause_ms
            is_pausing = not known.is_asked and view.now_ms < due_ms
            return (
                "pauses before the next hand-over" if is_pausing else "waits for a standby in sync and warm"
            )
        return "actives stay where `standfast handover` moved them"
    return "job.locality.rebalance is manual"


def in_words(hosts: Mapping[str, int]) -> str:
    """Return the number of active processors per host, highest first."""
    ranked = sorted(hosts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{host} {count}" for host, count in ranked) or "none"
