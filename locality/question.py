"""What the rules of placement are asked, and what they answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from locality.history import Found
from locality.hosts import HostInfo
from standby.shared.model import Held, TaskId


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another copy of a task in question, placed or about to be."""

    label: str
    """How people are told of it, such as ``job/main:0#1``."""
    host: HostInfo


@dataclass(frozen=True, slots=True)
class Question:
    """Where should one copy of some tasks go? Everything that the rules look at, except the hosts."""

    siblings: tuple[Sibling, ...] = ()
    """The other copies of its tasks: bound, kept for a suspect, being moved, or asked for by host."""
    histories: Mapping[TaskId, tuple[Held, ...]] = field(default_factory=dict)
    """Each task in question → hosts that held it; empty where nothing is remembered."""
    leftovers: Mapping[TaskId, tuple[Found, ...]] = field(default_factory=dict)
    """Task → its state as containers saw it on their hosts' disks, one entry for each host at most."""
    preferred: str | None = None
    """The last host of this copy; None when it never had one, as the standbys of a first deployment."""
    drained: Mapping[str, str] = field(default_factory=dict)
    """Hosts that people drain → the reason to show."""
    avoided: Mapping[str, str] = field(default_factory=dict)
    """Hosts that are down, or avoided for a while, such as one that let a request expire → the reason to show."""
    loads: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Host → copies there of all tasks, and those of the same role; without the copy in question."""
    cells: Mapping[int, int] = field(default_factory=dict)
    """Cell → its containers, of all tasks and roles."""
    shuns_masters: bool = True
    """Whether it matters that another cell's master is on a host: not for a container that is to hold any tasks."""
    spread: tuple[str, ...] = ("cell", "rack")
    """``job.locality.spread``: what copies should not share, most important first."""


class Verdict(NamedTuple):
    """One host, judged for one question."""

    host: str
    is_allowed: bool
    reasons: tuple[str, ...]
    """Why it stands where it does, by order of the rules; for a refused host why it is refused."""
    rank: tuple[Any, ...]
    """Sorts the verdicts on one question, best first, refused ones last."""
    cell: int = 1
