"""Which container of a mixed job a copy goes to, and what is to be done while containers are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.placement.shared_containers import (
    choose_shared,
    is_overloaded,
    lacks_room,
    less_loaded,
    shared_containers,
    why_no_container,
)
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.model import SharedSlotId
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    Presence,
)
from locality.fit import PoolProcess
from standby.shared.model import NodeOffer, TaskId
from tests.unit.appmaster.planning.views import (
    FIRST,
    MORE,
    PARKED,
    SECOND,
    THIRD,
    UNSETTLED,
    Change,
    a_pool,
    drained,
    free,
    gone,
    of_container,
    of_job,
    of_model,
    of_processor,
    of_records,
    of_view,
    old,
    on,
    policy,
    requested,
    seen,
    taking,
    turned,
)

SHARED: Final = SharedSlotId("job", 3)
FOUR: Final = (of_model(containers=4), MORE)


def has(task: TaskId, *containers: str) -> Change:
    """Have the copies of a task, by number, be in these containers and in no others; empty: in none."""
    return of_records(task, placed={copy: each for copy, each in enumerate(containers) if each})


def chosen(
    view: ClusterView, *changes: Change, copy: int = 1, activates: bool = False, leaves: str = ""
) -> str | None:
    """Return the container that is chosen for a copy of the first task."""
    found = choose_shared(*seen(view, *changes), copy, activates=activates, leaves=leaves)
    return found.id if found is not None else None


SHARING: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "all that serve it": ("c4 c5 c6", ()),
    "not one that may be lost": ("c4 c6", (of_container("c5", presence=Presence.BROKEN),)),
    "not one that is to leave": ("c4 c6", (drained("h2"),)),
    "not one that is given up": ("c5 c6", (of_model(containers=2),)),
    "an empty one": ("c4 c5 c6 c9", FOUR),
    "not an empty one of an older revision": ("c4 c5 c6", (*FOUR, *old("c9"))),
    "not an empty one beside others, where copies need more hosts": (
        "c4 c5 c6",
        (*FOUR, *on(c5="h1", c6="h1", c9="h1")),
    ),
}


@pytest.mark.parametrize(("found", "changes"), SHARING.values(), ids=SHARING)
def test_which_containers_the_tasks_of_a_mixed_job_share(
    mixed: ClusterView, found: str, changes: tuple[Change, ...]
) -> None:
    turn = turned(mixed, *changes)
    assert [each.id for each in shared_containers(turn, turn.view.jobs["job"])] == found.split()


# ---- standbys ----

#: Copy 1 of the first task was lost on h2. In c5 there is one copy, and there are two in c6 as in c4.
LOST: Final = has(FIRST, "c4")
#: As many in c6 as in c5.
ALIKE: Final = (LOST, has(SECOND, "c5"))
WAS_ON_H3: Final = of_records(FIRST, hosts={0: "h1", 1: "h3"})


def in_cells(*am_hosts: str, **cells: int) -> tuple[Change, ...]:
    """Have containers be in these cells, the Skein AMs of which are on these hosts."""
    up = {
        number: Cell(number, "", (), CellState.UP, 0, am_host=each) for number, each in enumerate(am_hosts, 1)
    }
    return of_view(cells=up), *(of_container(each, cell=number) for each, number in cells.items())


STANDBYS: Mapping[str, tuple[str | None, tuple[Change, ...]]] = {
    "the only one with room": ("c5", (LOST,)),
    "not one that takes no more": ("c6", (LOST, *taking(c5=1))),
    "the one with the fewest copies, before state where there are enough": (
        "c9",
        (LOST, *FOUR, has(SECOND, "c6", "c5")),
    ),
    "by state where there are not": ("c6", (*ALIKE, WAS_ON_H3)),
    "by state before the copies": ("c5", (*ALIKE, has(THIRD, "c4"))),
    "where it was last": ("c6", (*ALIKE, WAS_ON_H3, policy(host_affinity=False))),
    "by name": ("c5", (*ALIKE, of_records(FIRST, hosts={0: "h1"}))),
    "another cell than the active's": ("c6", (*ALIKE, *in_cells("", "", c6=2))),
    "not where the AM of the active's cell is": ("c6", (*ALIKE, *in_cells("h2"))),
    "not one whose cell has its AM beside the active": (
        "c6",
        (*ALIKE, *in_cells("", "h1", "h4", c5=2, c6=3)),
    ),
    "not the host of another copy": (None, (LOST, *on(c5="h1", c6="h1", c4="h3"), drained("h1"))),
    "none beyond its share while a container is missing": (None, (LOST, drained("h2"))),
    "any while none is missing": ("c6", (LOST, *on(c5="h1"))),
    "any for the only copy": ("c6", (of_processor(copies=(1,)), has(FIRST), drained("h2"), *on(c4="h2"))),
}


@pytest.mark.parametrize(("found", "changes"), STANDBYS.values(), ids=STANDBYS)
def test_where_a_standby_goes(mixed: ClusterView, found: str | None, changes: tuple[Change, ...]) -> None:
    assert chosen(mixed, *changes) == found


LEAVING: Mapping[str, tuple[str, str, tuple[Change, ...]]] = {
    "another host": ("c6", "h2", ()),
    "its own only if no other will do": ("c5", "h2", (of_model(containers=2), gone("c6"))),
    "by load before state": ("c6", "h4", (*ALIKE, has(THIRD, "c4"))),
    "its own cell does not count": (
        "c6",
        "h2",
        (*FOUR, has(SECOND, "c5"), *in_cells("", "", c5=2, c6=2)),
    ),
}


@pytest.mark.parametrize(("found", "leaves", "changes"), LEAVING.values(), ids=LEAVING)
def test_where_a_copy_moves(mixed: ClusterView, found: str, leaves: str, changes: tuple[Change, ...]) -> None:
    assert chosen(mixed, *changes, leaves=leaves) == found


# ---- actives ----

#: The first task has no active: c4 has none, the other two have one each, and c5 has the standby.
IDLE: Final = has(FIRST, "", "c5")
NEW: Final = of_records(FIRST, active=None)
#: c4 and c9 are empty: the third task has no standby.
EMPTY: Final = (*FOUR, IDLE, has(THIRD, "c6"))
WAS_ON_H4: Final = of_records(FIRST, hosts={0: "h4", 1: "h2"})
LAST_ON_H3: Final = of_records(FIRST, hosts={0: "h3", 1: "h2"})
#: Of two containers c4 has two standbys, and c5 has an active.
FEW_ACTIVES: Final = (
    *(of_model(containers=2), gone("c6"), policy(host_affinity=False)),
    *(has(FIRST), has(SECOND, "c5", "c4"), has(THIRD, "", "c4"), NEW),
)
#: c4 runs a revision that is not wanted any more, and was active nowhere.
ROLLED_BACK: Final = (of_job(revision=3, refused=9), of_container("c4", revisions={"job": 2}))

ACTIVES: Mapping[str, tuple[str | None, tuple[Change, ...]]] = {
    "the one without an active": ("c4", (IDLE, NEW)),
    "the one with the fewest copies": ("c9", (IDLE, NEW, *FOUR)),
    "the one with the fewest actives, though it has more copies": ("c4", FEW_ACTIVES),
    "by state": ("c9", (*EMPTY, WAS_ON_H4)),
    "by state before the copies": ("c6", (IDLE, has(THIRD, "c5", "c6"), LAST_ON_H3)),
    "where it was last": ("c9", (*EMPTY, WAS_ON_H4, policy(host_affinity=False))),
    "by name": ("c4", EMPTY),
    "none that was rolled back": ("c6", (IDLE, *ROLLED_BACK)),
    "none beyond its share": (None, (IDLE, NEW, drained("h1"))),
    "any for one that was active": ("c6", (IDLE, drained("h1"))),
}


@pytest.mark.parametrize(("found", "changes"), ACTIVES.values(), ids=ACTIVES)
def test_where_an_active_goes(mixed: ClusterView, found: str | None, changes: tuple[Change, ...]) -> None:
    assert chosen(mixed, *changes, copy=0, activates=True) == found


# ---- missing containers ----


def arrived(ago_ms: int) -> Change:
    """Have the last container have arrived so long ago."""
    return lambda view: replace(view, arrived_ms={"job": view.now_ms - ago_ms})


QUIET_MS: Final = 3_000
NEVER: Final = (of_job(was_deployed=False), of_records(FIRST, SECOND, THIRD, epoch=0))

BEGINNING: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "it was deployed before": (True, (of_records(FIRST, SECOND, THIRD, epoch=0),)),
    "a task of it was active before": (True, (*NEVER, of_records(THIRD, epoch=1))),
    "no container has come for a while": (True, (*NEVER, arrived(QUIET_MS))),
    "one has just come": (False, (*NEVER, arrived(QUIET_MS - 1))),
    "it is not known when one came": (False, (*NEVER, of_view(arrived_ms={}))),
    "none is missing": (True, (*NEVER, MORE)),
}


@pytest.mark.parametrize(("is_so", "changes"), BEGINNING.values(), ids=BEGINNING)
def test_when_a_mixed_job_begins(mixed: ClusterView, is_so: bool, changes: tuple[Change, ...]) -> None:
    assert (chosen(mixed, LOST, of_model(containers=4), arrived(0), *changes) is not None) is is_so


def in_vain(slot: SharedSlotId, in_row: int) -> Change:
    return of_view(attempts={slot: Attempts(in_row=in_row)})


def asked(slot: SharedSlotId = SHARED) -> Change:
    return requested(slot, "h4")


FULL: Final = a_pool(PoolProcess("h1", NodeOffer(), is_free=False))
WAITING: Final = a_pool(PoolProcess("h4", NodeOffer()))

MISSING: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "they may come": (False, ()),
    "requests failed twice": (True, (in_vain(SHARED, 2),)),
    "one failed": (False, (in_vain(SHARED, 1),)),
    "those of another job failed": (False, (in_vain(SharedSlotId("another", 0), 2),)),
    "the pool has no process for them": (True, (FULL,)),
    "it has one": (False, (WAITING,)),
    "one was requested": (False, (FULL, asked())),
    "one was requested after two failures": (True, (FULL, asked(), in_vain(SHARED, 2))),
    "they are there, and may be lost": (
        False,
        (
            FULL,
            *(free(f"c{each}", f"h{each}", SHARED, presence=Presence.BROKEN) for each in (7, 8, 9)),
        ),
    ),
}


@pytest.mark.parametrize(("is_so", "changes"), MISSING.values(), ids=MISSING)
def test_when_containers_take_the_share_of_those_that_are_missing(
    mixed: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    """With six containers each would have one copy: c5 has one."""
    assert chosen(mixed, LOST, of_model(containers=6), *changes) == ("c5" if is_so else None)


@pytest.mark.parametrize(
    ("containers", "gone_too", "found"),
    [
        pytest.param(1, (), "c4", id="it has all actives"),
        pytest.param(3, ("c4",), None, id="there is none"),
    ],
)
def test_an_only_container_or_none(
    mixed: ClusterView, containers: int, gone_too: tuple[str, ...], found: str | None
) -> None:
    changes = (
        *(of_model(containers=containers), of_processor(copies=(0,)), has(FIRST), NEW),
        *(has(SECOND, "c4"), has(THIRD, "c4"), gone("c5", "c6", *gone_too), in_vain(SHARED, 2)),
    )
    assert chosen(mixed, *changes, copy=0, activates=True) == found


WHY_NONE: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "on YARN": ("", ()),
    "none waits": ("no process waits", (FULL,)),
    "one waits on a host of it": ("", (a_pool(PoolProcess("h1", NodeOffer())),)),
    "copies need another host": (
        "no process waits on another host: h1 holds a container of job",
        (a_pool(PoolProcess("h1", NodeOffer())), *on(c5="h1", c6="h1")),
    ),
    "copies have enough hosts": ("", (a_pool(PoolProcess("h1", NodeOffer())), *on(c6="h1"))),
    "only one host is known": (
        "no process waits on another host: h1 holds a container of job",
        (a_pool(PoolProcess("h1", NodeOffer())), *on(c5="", c6="")),
    ),
    "one that is suspected does not count": (
        "no process waits on another host: h1 holds a container of job",
        (
            a_pool(PoolProcess("h1", NodeOffer())),
            *(of_container(each, presence=Presence.SUSPECT) for each in ("c5", "c6")),
        ),
    ),
}


@pytest.mark.parametrize(("said", "changes"), WHY_NONE.values(), ids=WHY_NONE)
def test_why_the_pool_has_no_process_for_a_mixed_job(
    mixed: ClusterView, said: str, changes: tuple[Change, ...]
) -> None:
    turn = turned(mixed, *changes)
    assert why_no_container(turn, turn.view.jobs["job"]) == said


# ---- balance ----

FIVE: Final = (of_model(containers=5), MORE, free("c8", "h5", SharedSlotId("job", 4)))

OVERLOADED: Mapping[str, tuple[str | None, tuple[Change, ...]]] = {
    "all have as many": (None, ()),
    "one has two fewer": ("c9", FOUR),
    "one has one fewer": (None, (has(THIRD, "c6"),)),
    "it has only this copy": (None, (*FOUR, has(SECOND, "c6", "c4"))),
    "of equal ones by name": ("c8", FIVE),
    "the one with the fewest": (
        "c9",
        (*FIVE, has(SECOND, "c5", "c8"), has(THIRD, "c6", "c5")),
    ),
    "not one on its own host": (None, (*FOUR, *on(c9="h2"))),
    "not one on the host of another copy": (None, (*FOUR, *on(c9="h1"))),
    "not while containers are replaced": (None, (*FOUR, *old("c6"))),
    "not while one is given up": (None, (MORE,)),
}


@pytest.mark.parametrize(("found", "changes"), OVERLOADED.values(), ids=OVERLOADED)
def test_which_container_relieves_that_of_a_copy(
    mixed: ClusterView, found: str | None, changes: tuple[Change, ...]
) -> None:
    turn, cohort = seen(mixed, *changes)
    holder = turn.view.containers["c5"]
    relief = less_loaded(turn, cohort, 1, holder)
    assert (relief and relief.id) == found
    assert is_overloaded(turn, cohort, 1, holder) is (found is not None)


LIMITED: Final = (UNSETTLED, *taking(c6=2))

LACKING: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "a copy is in no container": (True, (*LIMITED, LOST)),
    "its processor counts as settled": (False, (*LIMITED, LOST, of_view(unsettled=frozenset()))),
    "none of them takes only so many": (False, (UNSETTLED, LOST)),
    "all copies have one": (False, LIMITED),
    "it is not known": (True, (*LIMITED, of_view(writing={FIRST: "1-9"}))),
    "the processor is parked": (False, (*LIMITED, LOST, PARKED)),
}


@pytest.mark.parametrize(("is_so", "changes"), LACKING.values(), ids=LACKING)
def test_when_copies_of_a_mixed_job_lack_room(
    mixed: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    turn = turned(mixed, *changes)
    job = turn.view.jobs["job"]
    assert lacks_room(turn, job) is is_so
    assert lacks_room(turn, job) is is_so, "also when it is asked again"


def test_what_another_job_lacks_is_no_lack_of_this_one(mixed: ClusterView) -> None:
    turn = turned(mixed, *LIMITED, LOST)
    job = turn.view.jobs["job"]
    assert not lacks_room(turn, replace(job, name="another"))
