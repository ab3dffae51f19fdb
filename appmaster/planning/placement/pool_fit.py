"""Which processes of a pool a slot may have, and how many copies each takes (`locality.fit`). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from appmaster.planning.placement.turn import Turn
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.view import ClusterView, Container
from locality.fit import Demand, Rest, level, rest, serves, why_none
from standby.shared.naming import POOL


def is_pool(view: ClusterView) -> bool:
    """Return whether containers are processes of a pool, which may have none at present."""
    return any(each.attempt == POOL for each in view.cells.values())


def demand_of(job: Job, slot: Slot) -> Demand:
    """Return what a slot asks of a process: a container of a mixed job takes any number of tasks.

    A spare container has to take the tasks of any processor.
    """
    if isinstance(slot, SharedSlotId) or (isinstance(slot, SpareSlotId) and job.model.is_mixed):
        return replace(job.policy.demand, tasks=1)
    if isinstance(slot, SpareSlotId):
        most = max((len(each.tasks) for each in job.model.processors.values()), default=1)
        return replace(job.policy.demand, tasks=most)
    return replace(job.policy.demand, tasks=len(job.model.processors[slot.processor].tasks))


def rests(turn: Turn, demand: Demand) -> Mapping[str, Rest] | None:
    """Return each host with a process that fits and waits → what its best one would be left with; None on YARN."""
    if not is_pool(turn.view):
        return None
    if demand not in turn.rests:
        found: dict[str, Rest] = {}
        for each in turn.view.processes:
            if each.is_free and serves(each, demand):
                mine = rest(demand, each.offer)
                found[each.host] = min(mine, found.get(each.host, mine))
        turn.rests[demand] = found
    return turn.rests[demand]


def why_none_waits(turn: Turn, job: Job, slot: Slot, closed: Mapping[str, str]) -> str:
    """Return why no process that waits can be requested for a slot; empty on YARN, or if one can.

    ``closed``: hosts that it may not have → the reason.
    """
    waiting = rests(turn, demand_of(job, slot))
    if waiting is None:
        return ""
    closed = {**closed, **dict.fromkeys(turn.view.drained, "is drained")}
    if any(each not in closed for each in waiting):
        return ""
    if waiting:
        said = "; ".join(f"{each} {closed[each]}" for each in sorted(waiting))
        return f"no process waits on another host: {said}"
    is_any_free = any(each.is_free for each in turn.view.processes)
    return "no process that fits waits" if is_any_free else "no process waits"


def has_room(turn: Turn, container: Container, copies: int) -> bool:
    """Return whether a container takes so many more copies of tasks."""
    most = container.most_tasks
    return not most or turn.loads.of(container.id).copies + copies <= most


def capacity(containers: Iterable[Container], tasks: int) -> int:
    """Return how many copies of so many tasks containers take in all: on one host at most one of each task."""
    on_host: dict[str, int] = {}
    for each in containers:
        on_host[each.host] = min(tasks, on_host.get(each.host, 0) + (each.most_tasks or tasks))
    return sum(on_host.values())


def most_copies(total: int, share: int, containers: Sequence[Container]) -> int:
    """Return how many of ``total`` copies each of ``share`` containers holds at most if they are spread evenly.

    Those of the ``containers`` that take fewer leave more to the others; what is still missing may take any number.
    """
    limits = [each.most_tasks for each in containers]
    if not any(limits):
        return math.ceil(total / share)
    return level(total, [*limits, *[0] * (share - len(limits))])


def why_no_process(view: ClusterView, job: Job, slot: Slot) -> str:
    """Return why no process of the pool, whether it waits or not, can ever be claimed for a slot; empty if one can."""
    return why_none(demand_of(job, slot), view.processes)
