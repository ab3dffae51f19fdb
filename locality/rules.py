"""The rules of placement as one ordered table: first what may not be, then what is better. Pure.

In Nomad's manner: filters, then rankings, of which each decides only what those before it left open. The first filter
is the same-host check: no two copies of a task on one host (SEP-23).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from locality.history import NOTHING, Freshness, freshness
from locality.hosts import HostInfo
from locality.question import Question
from locality.samehost import closed_by


@dataclass(frozen=True, slots=True)
class Survey:
    """A question with the hosts that could be the answer."""

    question: Question
    hosts: Sequence[HostInfo]
    allowed: Sequence[HostInfo]
    """Those that no filter refuses."""


class Weight(Protocol):
    """One ranking, made ready for one survey."""

    otherwise: ClassVar[str]
    """What is said of a host that is less good and for which `reasons` has nothing to say."""
    better: ClassVar[str]
    """The same of a better one."""

    def rank(self, host: HostInfo) -> Any:
        """Return what sorts the hosts under this rule, the best lowest."""
        ...

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return what is worth saying of the host under this rule."""
        ...


@dataclass(frozen=True, slots=True)
class Filter:
    """A hard rule: a host that it refuses is never taken."""

    name: str
    refuse: Callable[[Question], Mapping[str, str]]
    """Returns the refused hosts → the reason."""
    says: str
    """What its reason says; for the documentation."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A soft rule: it prefers, and never refuses."""

    name: str
    weigh: Callable[[Survey], Weight | None]
    """Returns None where the rule can tell no host from another."""
    says: str


class Spread:
    """Fewest copies sharing the first thing of ``job.locality.spread``, then the second, and so on.

    A host of which a thing is not known shares it with nobody.
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
        # Many hosts stand in the same place, and each place is counted once.
        self._counts: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._told: dict[tuple[object, ...], tuple[str, ...]] = {}
        # Looked through only when something is shared, which the best host seldom does.
        self._differing: tuple[bool, ...] | None = None
        self._allowed: frozenset[tuple[int, ...]] | None = None

    def _place(self, host: HostInfo) -> tuple[object, ...]:
        if self._attributes:
            return *host.place, *[host.attributes.get(each, "") for each in self._attributes]
        return host.place

    def rank(self, host: HostInfo) -> tuple[int, ...]:
        """Return with how many other copies the host shares each thing."""
        place = self._place(host) if self._attributes else host.place
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = tuple(
                len(labels.get(host.value(thing), ()))
                for thing, labels in zip(self._things, self._labels, strict=True)
            )
        return counts

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return what the host shares with whom, and why that cannot be had better."""
        place = self._place(host)
        told = self._told.get(place)
        if told is None:
            counts = self.rank(host)
            told = self._told[place] = tuple(
                f"shares its {thing} with {_listed(self._labels[at][host.value(thing)])}"
                f"{self._excuse(at, counts)}"
                for at, thing in enumerate(self._things)
                if counts[at] and self._differs(at)
            )
        return told

    def _differs(self, at: int) -> bool:
        """Return whether the hosts differ in that thing: in a cluster of one cell, sharing it is no fault."""
        if self._differing is None:
            siblings = [each.host for each in self._survey.question.siblings]
            everywhere = {self._place(each): each for each in (*self._survey.hosts, *siblings)}.values()
            self._differing = tuple(
                len({each.value(thing) for each in everywhere}) > 1 for thing in self._things
            )
        return self._differing[at]

    def _excuse(self, at: int, counts: tuple[int, ...]) -> str:
        """Return why the spread of one thing had to be given up; empty when a better host is allowed."""
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
    """No host on which another cell has its master: its loss would take that cell's copies along with this one."""

    otherwise: ClassVar[str] = "has no other cell's master"
    better: ClassVar[str] = otherwise

    def rank(self, host: HostInfo) -> bool:
        """Return whether another cell's master is there."""
        return host.master_of != 0

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return which cell would be lost with the host."""
        return (f"has the master of cell {host.master_of}",) if host.master_of else ()


class State:
    """The fewest changelog records to replay, then the fewest tasks without any state, then the latest."""

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
        """Return how much of the state lies there, how it is known, and how far behind it is."""
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
    """The last host of the copy before all others: its page cache, its disk, what is left of its state."""

    otherwise: ClassVar[str] = "is not its last host"
    better: ClassVar[str] = otherwise

    def __init__(self, preferred: str) -> None:
        self._preferred = preferred

    def rank(self, host: HostInfo) -> bool:
        """Return whether the host is another one."""
        return host.name != self._preferred

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return that it is the last host, when it is."""
        return ("is its last host",) if host.name == self._preferred else ()


class Load:
    """The fewest copies of any task, then the fewest of the same role."""

    otherwise: ClassVar[str] = "carries no copies"
    better: ClassVar[str] = otherwise
    _NONE: ClassVar[tuple[int, int]] = (0, 0)

    def __init__(self, survey: Survey) -> None:
        self._loads = survey.question.loads

    def rank(self, host: HostInfo) -> tuple[int, int]:
        """Return how many copies the host carries, and how many of the same role."""
        return self._loads.get(host.name, self._NONE)

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return how much the host carries."""
        copies, same = self.rank(host)
        if not copies:
            return (self.otherwise,)
        return (f"carries {copies} cop{'y' if copies == 1 else 'ies'}, {same} of the same role",)


class CellLoad:
    """The cell with the fewest containers: what one of them loses when it falls is as little as can be."""

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
    """By name, numbers as numbers: the same view always gets the same answer."""

    otherwise: ClassVar[str] = "comes later by name"
    better: ClassVar[str] = "comes earlier by name"

    def rank(self, host: HostInfo) -> tuple[object, int]:
        """Return the host's place in the order of names."""
        return host.order, host.cell

    def reasons(self, host: HostInfo) -> tuple[str, ...]:
        """Return nothing: a name is no merit."""
        return ()


#: Every rule, in order. docs/locality.md shows this table, and a test keeps it so.
RULES: Final[tuple[Filter | Ranking, ...]] = (
    Filter(
        "same-host",
        lambda question: closed_by(question.siblings),
        "which copy of the same tasks is there, or is about to be",
    ),
    Filter("drained", lambda question: question.drained, "who drains the host, and why"),
    Filter(
        "avoided", lambda question: question.avoided, "why the host is not asked for now: down, or failing"
    ),
    Ranking(
        "spread",
        lambda survey: Spread(survey) if survey.question.siblings and survey.question.spread else None,
        "what is shared with which other copy, and why that cannot be had better",
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
        lambda survey: State(survey) if survey.question.histories else None,
        "how much of the state lies there, whether it was seen on the disk, and how far behind the freshest it is",
    ),
    Ranking(
        "preferred",
        lambda survey: Preferred(survey.question.preferred) if survey.question.preferred else None,
        "that it is the last host of this copy",
    ),
    Ranking("load", Load, "how many copies the host carries, and how many of them of the same role"),
    Ranking(
        "cell",
        lambda survey: CellLoad(survey.question.cells) if len(survey.question.cells) > 1 else None,
        "nothing: it keeps the cells at one size",
    ),
    Ranking("name", lambda _: Name(), "nothing: it only makes the answer the same each time"),
)

FILTERS: Final = tuple(each for each in RULES if isinstance(each, Filter))
RANKINGS: Final = tuple(each for each in RULES if isinstance(each, Ranking))


def _listed(labels: Sequence[str]) -> str:
    """Return the labels as people are told of them: many are counted."""
    first = sorted(labels)[:2]
    more = len(labels) - len(first)
    return " and ".join(first) + (f" and {more} more" if more else "")
