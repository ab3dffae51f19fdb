"""Which container is replaced or given up next, which are kept, and where copies may go meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.placement.turn import Turn
from appmaster.planning.placement.upgrade import (
    crowded_containers,
    extra_containers,
    is_restarting,
    may_take,
    next_container,
    outdated,
    removable_container,
    spare_hosts,
    surplus_container,
    why_kept,
    why_surplus,
)
from appmaster.planning.state.job import Job
from appmaster.planning.state.reasons import HandoverMotive
from appmaster.planning.state.view import ClusterView, Container, Failover, Presence
from locality.fit import PoolProcess
from standby.shared.model import NodeOffer, ProcessorId, TaskId
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import (
    FIRST,
    MORE,
    PARKED,
    PROCESSOR,
    SECOND,
    THIRD,
    UNSETTLED,
    Change,
    a_pool,
    drained,
    free,
    of_container,
    of_holder,
    of_job,
    of_model,
    of_processor,
    of_records,
    of_view,
    old,
    older,
    on,
    placed,
    seen,
    taking,
    turned,
)

FOREIGN: Final = ProcessorId("a job", "main", 0)


def ids(*found: Container | None) -> list[str]:
    return [each.id for each in found if each is not None]


def of_turn(view: ClusterView, *changes: Change) -> tuple[Turn, Job]:
    turn = turned(view, *changes)
    return turn, turn.view.jobs["job"]


def unsettled(*processors: ProcessorId) -> Change:
    return of_view(unsettled=frozenset(processors))


def with_another_job(view: ClusterView) -> ClusterView:
    """Add a job, of which a record is being written."""
    job = view.jobs["job"]
    processor = replace(job.model.processors[PROCESSOR], tasks=(TaskId("a job", "main", 0),))
    model = replace(job.model, job="a job", processors={FOREIGN: processor})
    return replace(
        view,
        jobs={**view.jobs, "a job": replace(job, name="a job", model=model)},
        writing={TaskId("a job", "main", 0): "1-9"},
        unsettled=view.unsettled | {FOREIGN},
    )


def failing_over(processor: ProcessorId) -> Change:
    failover = Failover(processor, "c1", HandoverMotive.ASKED, 1, "c2", 0)
    return of_view(failovers={processor: failover})


OUTDATED: Mapping[str, tuple[list[str], tuple[Change, ...]]] = {
    "none": ([], ()),
    "of an older revision": (["c5", "c6"], older(1, 2)),
    "not one that may be lost": (["c6"], (*older(1, 2), of_holder(1, presence=Presence.BROKEN))),
    "not one without copies": ([], (free("c9", "h4"), *old("c9"))),
}


@pytest.mark.parametrize(("found", "changes"), OUTDATED.values(), ids=OUTDATED)
def test_which_containers_are_outdated(
    whole: ClusterView, found: list[str], changes: tuple[Change, ...]
) -> None:
    assert ids(*outdated(*of_turn(whole, *changes))) == found


REFUSED: Final = of_job(refused=9)
LAGGING: Final = of_records(SECOND, in_sync=(0, 2))
WRITING: Final = of_view(writing={SECOND: "1-9"})
#: Copy 1 of the first task is in no container, and that of the second one is in c5.
APART: Final = (UNSETTLED, placed({}, without=1, of=(FIRST,)))

NEXT: Mapping[str, tuple[str | None, tuple[Change, ...]]] = {
    "none if all are current": (None, (UNSETTLED,)),
    "standbys come first": ("c5", older(0, 1, 2)),
    "then the active": ("c4", older(0)),
    "none once the revision was refused": (None, (*older(1), REFUSED)),
    "not while another copy is not in sync": (None, (*older(2), UNSETTLED, LAGGING)),
    "but while its own is not": ("c5", (*older(1, 2), UNSETTLED, LAGGING)),
    "nor while a record is being written": (None, (*older(1), UNSETTLED, WRITING)),
    "but while one of another job is": ("c5", (*older(1), UNSETTLED, with_another_job)),
    "which does not make up for a copy that is not in sync": (
        None,
        (*older(2), UNSETTLED, LAGGING, with_another_job),
    ),
    "nor while a new active has yet to commit": (None, (*older(1), failing_over(PROCESSOR))),
    "but while one of another job has": ("c5", (*older(1), failing_over(FOREIGN))),
    "whatever a parked processor lacks": ("c6", (*older(2), UNSETTLED, LAGGING, PARKED)),
    "while a copy waits for it": ("c5", (*older(1, 2), *APART)),
    "not while it waits for another one": (None, (*older(2), *APART)),
    "nor while it has no place": (None, (*older(2), UNSETTLED, placed({}, without=1))),
}


@pytest.mark.parametrize(("found", "changes"), NEXT.values(), ids=NEXT)
def test_which_container_is_replaced_next(
    whole: ClusterView, found: str | None, changes: tuple[Change, ...]
) -> None:
    assert next_container(*of_turn(whole, *changes)) == found


def test_one_processor_is_replaced_after_the_other() -> None:
    view = deployed(tasks=2, containers=2).view
    active, standby = (view.records[FIRST].record.placed[copy] for copy in (0, 1))
    others = [each for each in view.containers if each != standby]
    assert next_container(*of_turn(view, *old(*others))) == active
    assert next_container(*of_turn(view, *old(*view.containers))) == standby


RESTARTING: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "it is next": (True, older(1)),
    "another is": (False, older(2)),
    "there is only one standby": (True, (*older(1), of_processor(copies=(0, 1)))),
    "it is the only copy, which is filled elsewhere first": (False, (*older(1), of_processor(copies=(1,)))),
}


@pytest.mark.parametrize(("is_so", "changes"), RESTARTING.values(), ids=RESTARTING)
def test_when_a_container_is_replaced_now(
    whole: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    turn, cohort = seen(whole, *changes)
    assert is_restarting(turn, cohort, turn.view.containers["c5"]) is is_so


TAKING: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "all that are current": ("c4 c5 c6", ()),
    "not the one that is replaced": ("c4 c6", older(1, 2)),
    "of an older revision none while it is not known which": ("c4", (*older(1, 2), UNSETTLED, WRITING)),
    "all while none may be replaced": ("c4 c5 c6", (*older(1, 2), REFUSED)),
}


@pytest.mark.parametrize(("found", "changes"), TAKING.values(), ids=TAKING)
def test_which_containers_may_be_given_copies(
    whole: ClusterView, found: str, changes: tuple[Change, ...]
) -> None:
    turn, job = of_turn(whole, *changes)
    assert [each.id for each in turn.of_job(job) if may_take(turn, job, each)] == found.split()


# ---- mixed jobs ----

FEWER: Final = of_model(containers=2)
ALL: Final = unsettled(*(ProcessorId("job", "main", each) for each in range(3)))

TAKING_MIXED: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "not the surplus one, though it stays while a copy is not in sync": (
        "c5 c6",
        (FEWER, ALL, of_records(SECOND, in_sync=(0,))),
    ),
    "none of an older revision while one is replaced": ("c6", old("c4", "c5")),
    "all while none may be replaced": ("c4 c5 c6", (*old("c4", "c5"), REFUSED)),
}


@pytest.mark.parametrize(("found", "changes"), TAKING_MIXED.values(), ids=TAKING_MIXED)
def test_which_containers_of_a_mixed_job_may_be_given_copies(
    mixed: ClusterView, found: str, changes: tuple[Change, ...]
) -> None:
    turn, job = of_turn(mixed, *changes)
    assert [each.id for each in turn.of_job(job) if may_take(turn, job, each)] == found.split()


def test_the_container_of_a_mixed_job_with_the_fewest_actives_is_replaced_first(mixed: ClusterView) -> None:
    handed_over = of_records(THIRD, active=1)
    assert next_container(*of_turn(mixed, *old("c4", "c5", "c6"), handed_over)) == "c6"


SURPLUS: Mapping[str, tuple[list[str], tuple[Change, ...]]] = {
    "none": ([], ()),
    "by name": (["c4"], (FEWER,)),
    "one of an older revision first": (["c6"], (MORE, *on(c9="h1"), *old("c6"))),
    "then one that shares its host": (["c5"], (FEWER, *on(c5="h3"), of_records(THIRD, placed={0: "c6"}))),
    "then the one with the fewest copies": (["c5"], (FEWER, of_records(FIRST, placed={0: "c4"}))),
    "an empty one": (["c9"], (MORE,)),
    "not one that is to leave": ([], (MORE, drained("h4"))),
    "not one that may be lost": ([], (MORE, of_container("c9", presence=Presence.BROKEN))),
    "none if the others do not take all copies": ([], (FEWER, *taking(c5=2))),
    "whatever finds no place anyway": (["c4"], (FEWER, *on(c5="h1", c6="h1"))),
    "none if the job is not mixed": ([], (of_model(containers=2, is_mixed=False),)),
}


@pytest.mark.parametrize(("found", "changes"), SURPLUS.values(), ids=SURPLUS)
def test_which_container_a_mixed_job_is_to_give_up(
    mixed: ClusterView, found: list[str], changes: tuple[Change, ...]
) -> None:
    assert ids(surplus_container(*of_turn(mixed, *changes))) == found


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("the job has 3 containers and asks for 2", (FEWER,)),
        ("h3 holds another container of the job", SURPLUS["then one that shares its host"][1]),
    ],
)
def test_why_a_container_of_a_mixed_job_is_surplus(
    mixed: ClusterView, why: str, changes: tuple[Change, ...]
) -> None:
    turn, job = of_turn(mixed, *changes)
    chosen = surplus_container(turn, job)
    assert chosen is not None
    assert why_surplus(turn, job, chosen) == why


#: c5 lacks copy 1 of the first task, and c4 has given up that of the third one.
LOST: Final = (of_records(FIRST, placed={0: "c4"}), of_records(THIRD, placed={0: "c6"}))

#: Changes of a job with c4 as its surplus container, which has copy 0 of the first task and copy 1 of the third one.
REMOVABLE: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "all is in sync": (True, ()),
    "its own copy is not": (True, (of_records(FIRST, in_sync=(1,)),)),
    "its own copy was given up": (True, (of_records(FIRST, placed={1: "c5"}),)),
    "another copy is not": (False, (of_records(FIRST, in_sync=(0,)),)),
    "another copy is lost": (False, LOST),
    "another copy was nowhere yet": (False, (*LOST, of_records(FIRST, hosts={0: "h1"}))),
    "a record is being written": (False, (WRITING,)),
    "a copy of a processor that is gone is not in sync": (True, (unsettled(FOREIGN),)),
}


@pytest.mark.parametrize(("is_so", "changes"), REMOVABLE.values(), ids=REMOVABLE)
def test_when_the_surplus_container_of_a_mixed_job_is_emptied(
    mixed: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    assert ids(surplus_container(*of_turn(mixed, FEWER, ALL, *changes))) == ["c4"]
    turn, job = of_turn(mixed, FEWER, ALL, *changes)
    assert ids(removable_container(turn, job)) == (["c4"] if is_so else [])
    assert next_container(turn, job) == ("c4" if is_so else None)


def test_a_container_is_not_given_up_while_an_outdated_one_may_not_be_replaced(mixed: ClusterView) -> None:
    changes = (MORE, *old("c5"), of_view(writing={SECOND: "1-9"}), ALL)
    assert next_container(*of_turn(mixed, *changes)) is None


ON_A_POOL: Final = a_pool(PoolProcess("h1", NodeOffer()))
KEPT: Final = "3 containers are kept: 2 would not take its 6 copies (--tasks, job.container.count)"

WHY_KEPT: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "the others would not take all copies": (KEPT, (ON_A_POOL, FEWER, *taking(c5=2))),
    "one is given up": ("", (ON_A_POOL, FEWER)),
    "as many as it asks for": ("", (ON_A_POOL, *taking(c5=2))),
    "on YARN": ("", (FEWER, *taking(c5=2))),
    "it is not mixed": ("", (ON_A_POOL, of_model(containers=2, is_mixed=False), *taking(c5=2))),
}


@pytest.mark.parametrize(("said", "changes"), WHY_KEPT.values(), ids=WHY_KEPT)
def test_why_a_mixed_job_keeps_more_containers_than_it_asks_for(
    mixed: ClusterView, said: str, changes: tuple[Change, ...]
) -> None:
    assert why_kept(*of_turn(mixed, *changes)) == said


ON_ONE_HOST: Final = on(c5="h1", c6="h1")

#: Which containers share a host without need, and how many more are wanted for a while.
CROWDED: Mapping[str, tuple[str, int, tuple[Change, ...]]] = {
    "each is on a host of its own": ("", 0, ()),
    "there are as many hosts as copies": ("", 0, on(c5="h3")),
    "there are fewer": ("c5 c6", 1, (*on(c5="h3"), of_processor(copies=(0, 1, 2)))),
    "all are on one host": ("c4 c5 c6", 1, ON_ONE_HOST),
    "and one of them is to leave": ("c4 c5", 0, (*ON_ONE_HOST, of_container("c6", is_leaving=True))),
    "and one of them may be lost": ("c4 c5", 0, (*ON_ONE_HOST, of_container("c6", presence=Presence.BROKEN))),
    "and others are missing anyway": ("c4 c5 c6", 0, (*ON_ONE_HOST, of_model(containers=5))),
    "and there is no other host": ("c4 c5 c6", 0, (*ON_ONE_HOST, drained("h2", "h3", "h4"))),
    "and the job is not mixed": ("", 0, (*ON_ONE_HOST, of_model(is_mixed=False))),
    "one of them is of an older revision": ("", 0, old("c4")),
}


@pytest.mark.parametrize(("found", "more", "changes"), CROWDED.values(), ids=CROWDED)
def test_which_containers_of_a_mixed_job_share_a_host_while_copies_need_others(
    mixed: ClusterView, found: str, more: int, changes: tuple[Change, ...]
) -> None:
    turn, job = of_turn(mixed, *changes)
    assert ids(*crowded_containers(turn, job)) == found.split()
    assert extra_containers(turn, job) == more


@pytest.mark.parametrize(("changes", "more"), [((), 0), (old("c4"), 1)])
def test_an_outdated_container_of_a_job_without_standbys_is_replaced_by_another_first(
    mixed: ClusterView, changes: tuple[Change, ...], more: int
) -> None:
    model = mixed.jobs["job"].model
    only = {name: replace(each, copies=(0,)) for name, each in model.processors.items()}
    assert extra_containers(*of_turn(mixed, of_model(processors=only), *changes)) == more


@pytest.mark.parametrize(
    ("hosts", "changes"),
    [
        pytest.param(["h4"], (), id="those without a container"),
        pytest.param([], (drained("h4"),), id="not a drained one"),
        pytest.param(["h3", "h4"], (of_container("c6", presence=Presence.BROKEN),), id="one may be lost"),
        pytest.param(["h3", "h4"], (of_container("c6", is_leaving=True),), id="one is to leave"),
    ],
)
def test_on_which_hosts_a_job_could_have_another_container(
    mixed: ClusterView, hosts: list[str], changes: tuple[Change, ...]
) -> None:
    assert spare_hosts(*of_turn(mixed, *changes)) == hosts
