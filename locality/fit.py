"""Which process of a pool a request may have, and which of several it is to have. Pure.

A process offers what its node was started with, and a job asks for what it asks of YARN: a group as a node label, and
memory and cores as the size of a container; and for as many tasks as the process is to take. A group is exclusive, as
YARN's labels are by default: its processes are for the jobs that name it, and those of no group for the jobs that name
none. What a node does not limit (0) is enough for any job.

The best of several is the one that is left with the least: large processes stay for what needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from standby.shared.model import NodeOffer

#: What is left of a process's memory, tasks and cores; what has no limit ranks last.
Rest = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks of a process."""

    job: str = ""
    """For which job it is; of no influence."""
    group: str = ""
    memory_mb: int = 0
    cores: int = 0
    tasks: int = 0


#: It is satisfied by any process that is of no group.
ANY: Final = Demand()


@dataclass(frozen=True, slots=True)
class PoolProcess:
    """A process of a pool, as far as it matters for a choice."""

    host: str
    offer: NodeOffer
    is_free: bool = True
    """It waits, or is being started."""
    is_foreign: bool = False
    """It speaks another version of the protocol, so that it cannot be claimed."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """One thing of which a process may have a limited amount, most important first in `_LIMITS`."""

    asked: Callable[[Demand], int]
    offered: Callable[[NodeOffer], int]
    words: str
    """After an amount."""
    keys: str
    """What to change: the job's key, the node's option."""


_LIMITS: Final = (
    _Limit(
        lambda demand: demand.memory_mb,
        lambda offer: offer.memory_mb,
        "MiB",
        "cluster-manager.container.memory.mb, --memory",
    ),
    _Limit(
        lambda demand: demand.tasks,
        lambda offer: offer.tasks,
        "tasks",
        "job.container.count, --tasks",
    ),
    _Limit(
        lambda demand: demand.cores,
        lambda offer: offer.cores,
        "cores",
        "cluster-manager.container.cpu.cores, --cores",
    ),
)


def fits(demand: Demand, offer: NodeOffer | None) -> bool:
    """Return whether a process may serve a demand; None: it is not of a pool, and was started for it."""
    return offer is None or (
        demand.group == offer.group and all(_is_enough(each, demand, offer) for each in _LIMITS)
    )


def serves(process: PoolProcess, demand: Demand) -> bool:
    """Return whether a process may be claimed for a demand, now or when it is free."""
    return not process.is_foreign and fits(demand, process.offer)


def rest(demand: Demand, offer: NodeOffer) -> Rest:
    """Return what is left of a process that serves a demand: the least is the best."""
    memory, tasks, cores = (
        each.offered(offer) - each.asked(demand) if each.offered(offer) else float("inf") for each in _LIMITS
    )
    return memory, tasks, cores


def why_none(demand: Demand, processes: Sequence[PoolProcess]) -> str:
    """Return why no process of a pool can serve a demand, whether it is free or not; empty if one can.

    The text changes only with the processes' offers, not with what is claimed of them.
    """
    if not processes or any(serves(each, demand) for each in processes):
        return ""
    offers = [each.offer for each in processes if not each.is_foreign]
    if not offers:
        return "the processes of the pool are of another version of standfast"
    there = [each for each in offers if each.group == demand.group]
    if not there:
        if demand.group:
            return f"no process of the pool is of group {demand.group} (yarn.container.label, --group)"
        return (
            "every process of the pool is of a group, and the job names none (yarn.container.label, --group)"
        )
    of_group = f" of group {demand.group}" if demand.group else ""
    for each in _LIMITS:
        if not any(_is_enough(each, demand, offer) for offer in there):
            most = max(map(each.offered, there))
            return f"no process{of_group} has {each.asked(demand)} {each.words}, the largest has {most} ({each.keys})"
    asked = " and ".join(f"{each.asked(demand)} {each.words}" for each in _LIMITS if each.asked(demand))
    return f"no process{of_group} has {asked} at once"


def level(total: int, limits: Iterable[int]) -> int:
    """Return the lowest level to which containers can be filled with ``total`` copies in all.

    ``limits``: how many each takes; 0: any number. If they cannot take as many, ``total``: only the limits count then.
    """
    known = list(limits)
    if not known:
        return total
    found = -(-total // len(known))
    while found < total and sum(min(each or found, found) for each in known) < total:
        found += 1
    return found


def _is_enough(limit: _Limit, demand: Demand, offer: NodeOffer) -> bool:
    offered = limit.offered(offer)
    return not offered or limit.asked(demand) <= offered
