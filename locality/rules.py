"""The placement rules as one ordered table: filters first, then rankings. Pure.

As in Nomad, each ranking decides only between hosts that the ones before it rank equal. The first filter is the
same-host check: no two copies of a task on one host (SEP-23).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from locality.fit import Rest
from locality.history import NOTHING, Freshness, freshness
from locality.hosts import HostInfo
from locality.question import PlacementQuestion, Sibling


@dataclass(frozen=True, slots=True)
class Survey:
    """A question with the hosts that are possible answers."""

    question: PlacementQuestion
    hosts: Sequence[HostInfo]
    allowed: Sequence[HostInfo]
    """The hosts that no filter refuses."""


class Weight(Protocol):
    """A ranking, prepared for one survey."""

    otherwise: ClassVar[str]
    """The text for a less good host for which `reasons` is empty."""
    better: ClassVar[str]
    """The same for a better host."""

    def rank(self, host: HostInfo) -> Any:
        """Return the sort key of a host under this rule, the best lowest."""
        ...

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return what is worth mentioning about the host under this rule."""
        ...


@dataclass(frozen=True, slots=True)
class Filter:
    """A hard rule: a host that it refuses is never chosen."""

    name: str
    refuse: Callable[[PlacementQuestion], Mapping[str, str]]
    """Returns the refused hosts → the reason."""
    says: str
    """What its reason says, for the documentation."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A soft rule: it prefers hosts, and never refuses any."""

    name: str
    weigh: Callable[[Survey], Weight | None]
    """Returns None if the rule cannot distinguish any hosts."""
    says: str


class Spread:
    """Fewest copies with the same first attribute of ``job.locality.spread``, then the same second one, and so on.

    A host whose attribute is not known shares it with no other.
    """

    otherwise: ClassVar[str] = "shares nothing with another copy"
    better: ClassVar[str] = otherwise

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._things = survey.question.spread
        self._attributes = [each for each in self._things if each not in ("cell", "rack")]
        self._labels: list[dict[str, list[str]]] = []
        for thing in self._things:
            labels: dict[str, list[str]] = defaultdict(list)
            for sibling in survey.question.siblings:
                labels[sibling.host.value(thing)].append(sibling.label)
            labels.pop("", None)
            self._labels.append(labels)
        # Many hosts have the same location, and each location is counted once.
        self._counts: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._reasons: dict[tuple[object, ...], tuple[str, ...]] = {}
        # Computed only if something is shared, which is rare for the best host.
        self._differing: tuple[bool, ...] | None = None
        self._allowed: frozenset[tuple[int, ...]] | None = None

    def _place(self, host: HostInfo) -> tuple[object, ...]:
        if self._attributes:
            return *host.place, *[host.attributes.get(each, "") for each in self._attributes]
        return host.place

    def rank(self, host: HostInfo) -> tuple[int, ...]:
        """Return the number of other copies with which the host shares each attribute."""
        place = self._place(host) if self._attributes else host.place
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = tuple(
                len(labels.get(host.value(thing), ()))
                for thing, labels in zip(self._things, self._labels, strict=True)
            )
        return counts

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return what the host shares with which copies, and why that cannot be avoided."""
        place = self._place(host)
        reasons = self._reasons.get(place)
        if reasons is None:
            counts = self.rank(host)
            reasons = self._reasons[place] = tuple(
                f"shares its {thing} with {_listed(self._labels[at][host.value(thing)])}"
                f"{self._excuse(at, counts)}"
                for at, thing in enumerate(self._things)
                if counts[at] and self._differs(at)
            )
        return reasons

    def _differs(self, at: int) -> bool:
        """Return whether hosts differ in that attribute: in a cluster of one cell, sharing it is no fault."""
        if self._differing is None:
            siblings = [each.host for each in self._survey.question.siblings]
            everywhere = {self._place(each): each for each in (*self._survey.hosts, *siblings)}.values()
            self._differing = tuple(
                len({each.value(thing) for each in everywhere}) > 1 for thing in self._things
            )
        return self._differing[at]

    def _excuse(self, at: int, counts: tuple[int, ...]) -> str:
        """Return why the spread of one attribute had to be given up; empty if a better host is allowed."""
        if self._allowed is None:
            self._allowed = frozenset(map(self.rank, self._survey.allowed))
        thing = self._things[at]
        better = [ranks for ranks in self._allowed if ranks[at] < counts[at]]
        if not better:
            return f": no host in another {thing} is allowed"
        if all(ranks[:at] > counts[:at] for ranks in better):
            return f": hosts in another {thing} share more by {', '.join(self._things[:at])}"
        return ""


class Masters:
    """No host with another cell's master: its loss would end that cell's copies together with this one."""

    otherwise: ClassVar[str] = "has no other cell's master"
    better: ClassVar[str] = otherwise

    def rank(self, host: HostInfo) -> bool:
        """Return whether another cell's master is there."""
        return host.master_of != 0

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return which cell would be lost with the host."""
        return (f"has the master of cell {host.master_of}",) if host.master_of else ()


class StateFreshness:
    """The fewest changelog records to replay, then the fewest tasks without any state, then the latest use."""

    otherwise: ClassVar[str] = "holds none of its state"
    better: ClassVar[str] = otherwise

    def __init__(self, survey: Survey) -> None:
        question = survey.question
        self._tasks = len(question.histories)
        self._ranks = freshness(question.histories, question.leftovers)
        self._seen = {each.host for task in question.histories for each in question.leftovers.get(task, ())}

    def rank(self, host: HostInfo) -> Freshness:
        """Return how much of the state the host holds."""
        return self._ranks.get(host.name, NOTHING)

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return how much of the state is there, how that is known, and how far behind it is."""
        found = self.rank(host)
        if found.nothing:
            return ()
        text = (
            "holds its state"
            if not found.missing
            else f"holds the state of {self._tasks - found.missing} of its tasks"
        )
        seen = " (seen on its disk)" if host.name in self._seen else ""
        behind = f", {found.behind} records behind the freshest" if found.behind else ""
        return (f"{text}{seen}{behind}",)


class Preferred:
    """The copy's last host before all others: because of its page cache, its disk, and what is left of its state."""

    otherwise: ClassVar[str] = "is not its last host"
    better: ClassVar[str] = otherwise

    def __init__(self, preferred: str) -> None:
        self._preferred = preferred

    def rank(self, host: HostInfo) -> bool:
        """Return whether the host is a different one."""
        return host.name != self._preferred

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return that it is the last host, if it is."""
        return ("is its last host",) if host.name == self._preferred else ()


class Fit:
    """The process of a pool that is left with the least: large ones stay for what needs them."""

    otherwise: ClassVar[str] = "has a process of exactly the size"
    better: ClassVar[str] = otherwise

    def __init__(self, rests: Mapping[str, Rest]) -> None:
        self._rests = rests

    def rank(self, host: HostInfo) -> Rest:
        """Return what is left of the process that fits best; hosts without one are last."""
        return self._rests.get(host.name, (math.inf,) * 3)

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return what the process there has more than is asked for, as far as it is limited."""
        more = [
            f"{each:g} {words}"
            for each, words in zip(self.rank(host), ("MiB", "tasks", "cores"), strict=True)
            if each and each != math.inf
        ]
        return (f"has a process with {', '.join(more)} more than is asked for",) if more else ()


class Load:
    """The fewest copies of any task, then the fewest of the same role."""

    otherwise: ClassVar[str] = "carries no copies"
    better: ClassVar[str] = otherwise
    _NONE: ClassVar[tuple[int, int]] = (0, 0)

    def __init__(self, survey: Survey) -> None:
        self._loads = survey.question.loads

    def rank(self, host: HostInfo) -> tuple[int, int]:
        """Return how many copies the host has, and how many of the same role."""
        return self._loads.get(host.name, self._NONE)

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return the load of the host."""
        copies, same = self.rank(host)
        if not copies:
            return (self.otherwise,)
        return (f"carries {copies} cop{'y' if copies == 1 else 'ies'}, {same} of the same role",)


class CellLoad:
    """The cell with the fewest containers, so that the loss of one cell affects as few as possible."""

    otherwise: ClassVar[str] = "is in a cell with more containers"
    better: ClassVar[str] = "is in a cell with fewer containers"

    def __init__(self, cells: Mapping[int, int]) -> None:
        self._cells = cells

    def rank(self, host: HostInfo) -> int:
        """Return how many containers the host's cell has."""
        return self._cells.get(host.cell, 0)

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return nothing: it would be said of every host of the cell."""
        return ()


class Name:
    """By name, with numbers compared as numbers, so that the same view always gives the same answer."""

    otherwise: ClassVar[str] = "comes later by name"
    better: ClassVar[str] = "comes earlier by name"

    def rank(self, host: HostInfo) -> tuple[object, int]:
        """Return the host's position in the order of names."""
        return host.order, host.cell

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return nothing: a name is not an advantage."""
        return ()


def closed_by(siblings: Iterable[Sibling]) -> dict[str, str]:
    """Return each host that holds one of ``siblings`` → the reason why it may not take another copy."""
    closed: dict[str, str] = {}
    for each in sorted(siblings, key=lambda each: each.label):
        closed.setdefault(each.host.name, f"holds {each.label}, a copy of the same tasks")
    return closed


#: Every rule, in order. docs/locality.md shows this table, and a test keeps it so.
RULES: Final[tuple[Filter | Ranking, ...]] = (
    Filter(
        "same-host",
        lambda question: closed_by(question.siblings),
        "which copy of the same tasks is there, or is about to be",
    ),
    Filter("drained", lambda question: question.drained, "who drained the host, and why"),
    Filter(
        "avoided", lambda question: question.avoided, "why the host is not requested now: down, or failing"
    ),
    Ranking(
        "spread",
        lambda survey: Spread(survey) if survey.question.siblings and survey.question.spread else None,
        "what is shared with which other copy, and why no better host is available",
    ),
    Ranking(
        "master",
        lambda survey: (
            Masters()
            if survey.question.shuns_masters and any(each.master_of for each in survey.hosts)
            else None
        ),
        "which other cell has its master there, and would be lost with the host",
    ),
    Ranking(
        "state",
        lambda survey: StateFreshness(survey) if survey.question.histories else None,
        "how much of the state is there, whether it was seen on the disk, and how far behind the freshest it is",
    ),
    Ranking(
        "preferred",
        lambda survey: Preferred(survey.question.preferred) if survey.question.preferred else None,
        "that it is the last host of this copy",
    ),
    Ranking(
        "fit",
        lambda survey: Fit(survey.question.rests) if len(set(survey.question.rests.values())) > 1 else None,
        "in a pool with processes of several sizes: how much larger than needed the one there is",
    ),
    Ranking("load", Load, "how many copies the host has, and how many of them have the same role"),
    Ranking(
        "cell",
        lambda survey: CellLoad(survey.question.cells) if len(survey.question.cells) > 1 else None,
        "nothing: it keeps the cells equally large",
    ),
    Ranking("name", lambda _: Name(), "nothing: it only makes the result deterministic"),
)

FILTERS: Final = tuple(each for each in RULES if isinstance(each, Filter))
RANKINGS: Final = tuple(each for each in RULES if isinstance(each, Ranking))


def _listed(labels: Sequence[str]) -> str:
    """Return the labels as a text; if there are many, the rest is counted."""
    first = sorted(labels)[:2]
    more = len(labels) - len(first)
    return " and ".join(first) + (f" and {more} more" if more else "")
