"""The question to the placement rules, and their answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from locality.fit import Rest
from locality.history import StateOnDisk
from locality.hosts import HostInfo
from standby.shared.model import Held, TaskId


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another copy of a task in question, placed or about to be."""

    label: str
    """Its name in texts, such as ``job/main:0#1``."""
    host: HostInfo


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """Where should one copy of some tasks go? Everything that the rules look at, except the hosts."""

    siblings: tuple[Sibling, ...] = ()
    """The other copies of its tasks: placed, kept for a suspect, moving, or requested on a named host."""
    histories: Mapping[TaskId, tuple[Held, ...]] = field(default_factory=dict)
    """Each task in question → hosts that held it; empty if there is no history."""
    leftovers: Mapping[TaskId, tuple[StateOnDisk, ...]] = field(default_factory=dict)
    """Task → its state as found by containers on their hosts' disks, at most one entry per host."""
    preferred: str | None = None
    """The last host of this copy; None if it never had one, like the standbys of a first deployment."""
    drained: Mapping[str, str] = field(default_factory=dict)
    """Drained hosts → the reason to show."""
    avoided: Mapping[str, str] = field(default_factory=dict)
    """Hosts that are down or avoided for a while, such as one that let a request expire → the reason to show."""
    loads: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Host → copies there of all tasks, and those of the same role; without the copy in question."""
    cells: Mapping[int, int] = field(default_factory=dict)
    """Cell → its containers, of all tasks and roles."""
    rests: Mapping[str, Rest] = field(default_factory=dict)
    """In a pool: host → what is left of the process there that fits best."""
    shuns_masters: bool = True
    """Whether hosts with another cell's master are avoided; not for a container that may hold any tasks."""
    spread: tuple[str, ...] = ("cell", "rack")
    """``job.locality.spread``: what copies should not share, most important first."""


class Verdict(NamedTuple):
    """One host, judged for one question."""

    host: str
    is_allowed: bool
    reasons: tuple[str, ...]
    """Why it has its rank, in the order of the rules; for a refused host, why it is refused."""
    rank: tuple[Any, ...]
    """Sorts the verdicts on one question, best first, refused ones last."""
    cell: int = 1
