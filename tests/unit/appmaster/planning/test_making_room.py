"""Which standby of a pool moves so that another copy finds a place, and where to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests.room import make_room
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import SharedSlotId
from appmaster.planning.state.reasons import DecisionBasis, FailureReason, HandoverMotive, Loss, Reason
from appmaster.planning.state.view import ClusterView, Failover, Handover, LostActive, Presence, RequestState
from locality.fit import Demand, PoolProcess
from locality.hosts import HostInfo
from standby.shared.model import NodeOffer, ProcessorId, SlotId
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import (
    ON,
    PROCESSORS,
    TASKS,
    Change,
    a_pool,
    changed,
    drained,
    free,
    of_container,
    of_job,
    of_model,
    of_records,
    of_view,
    offered,
    policy,
    requested,
    turned,
    without_host,
)

#: Processor → the hosts to one of which its standby is to move.
Moves = Mapping[int, set[str]]


def moves(view: ClusterView, *changes: Change) -> Moves:
    """Return which standbys are to move after the changes; each is copy 1, and moves within its cell."""
    turn = turned(view, *changes)
    make_room(turn)
    assert all(each.copy == 1 for each in turn.room.values())
    assert all(each.basis is DecisionBasis.MAKES_ROOM for each in turn.room.values())
    return {processor.number: hosts_of(turn, processor) for processor in turn.room}


def hosts_of(turn: Turn, processor: ProcessorId) -> set[str]:
    locations = turn.room[processor].locations
    assert all(cell == 1 for _, cell in locations)
    return {host for host, _ in locations}


def said(view: ClusterView, *changes: Change) -> str:
    """Return why a standby of processor 0 is to move."""
    turn = turned(view, *changes)
    make_room(turn)
    return turn.room[PROCESSORS[0]].reason


def pool(*hosts: str, tasks: int = 0) -> Change:
    """Have a process wait on each of these hosts, which takes so many tasks, beside one for other jobs."""
    return a_pool(
        *(PoolProcess(each, NodeOffer(tasks=tasks)) for each in hosts), PoolProcess("h7", NodeOffer("other"))
    )


def of_tasks(processor: int, **changes: Any) -> Change:
    return of_records(*TASKS[processor], **changes)


def of_model_of(processor: int, **changes: Any) -> Change:
    def change(view: ClusterView) -> ClusterView:
        processors = view.jobs["job"].model.processors
        number = PROCESSORS[processor]
        return of_model(processors={**processors, number: replace(processors[number], **changes)})(view)

    return change


def asked(processor: int, host: str, state: RequestState = RequestState.WAITING) -> Change:
    return requested(SlotId(PROCESSORS[processor], 1), host, state)


def unsettled(*processors: int) -> Change:
    return of_view(unsettled=frozenset(PROCESSORS[each] for each in processors))


#: Processor 2 has no standby, and a process waits beside its active, which only others can use.
LACKING: Final = (
    without_host("h6"),
    unsettled(2),
    pool("h3"),
    offered(*(HostInfo(f"h{each}") for each in range(1, 10))),
)

PARKED: Final = Reason(FailureReason.POISON)
HANDOVER: Final = Handover(1, ON["h4"], 0, Reason(HandoverMotive.ASKED))

FIRST, NEXT = {0: {"h3"}}, {1: {"h3"}}


def of_three(view: ClusterView) -> ClusterView:
    """Have processor 0 have a third copy, on h7."""
    third = of_tasks(0, placed={0: ON["h1"], 1: ON["h4"], 2: "c20"}, in_sync=(0, 1, 2))
    return changed(view, free("c20", "h7"), third, of_model_of(0, copies=(0, 2, 1)))


MOVERS: Mapping[str, tuple[Moves, tuple[Change, ...]]] = {
    "the first that can": (FIRST, ()),
    "none without a pool": ({}, (of_view(cells={}),)),
    "none if the job is over soon": ({}, (of_job(is_wanted=False),)),
    "none if its code is not there": ({}, (of_job(quarantined="gone"),)),
    "none for a parked processor": ({}, (of_model_of(2, parked=PARKED),)),
    "none for a processor that is settled": ({}, (unsettled(0),)),
    "none if the copy finds another place": ({}, (pool("h3", "h8"),)),
    "none for what is too small": ({}, (pool("h3", tasks=1),)),
    "none to a drained host": ({}, (drained("h3"),)),
    "not to one of several that is drained": (FIRST, (pool("h3", "h8"), drained("h8"))),
    # ---- what lacks a place ----
    "none for a copy that may come back": (
        {},
        (free("c12", "h6"), of_container("c12", presence=Presence.SUSPECT)),
    ),
    "none while the active is missed": (
        {},
        (of_view(lost_actives={PROCESSORS[2]: LostActive("c9", Loss.SILENT, 0)}), policy(restore_delay_ms=0)),
    ),
    "none while a standby is displaced": ({}, (of_tasks(2, displaced=1),)),
    "none while the tasks are placed apart": ({}, (of_records(TASKS[2][0], placed={0: ON["h3"]}),)),
    "none for a copy for which one is requested": ({}, (asked(2, "h8"),)),
    "none for a copy for which one has come": ({}, (free("c20", "h8", SlotId(PROCESSORS[2], 1)),)),
    # ---- what moves ----
    "not a parked one": (NEXT, (of_model_of(0, parked=PARKED),)),
    "not one that is to take over": (NEXT, (of_view(handovers={PROCESSORS[0]: HANDOVER}),)),
    "not a displaced one": (NEXT, (of_tasks(0, displaced=1),)),
    "not one without an active": (NEXT, (of_tasks(0, active=None),)),
    "not one whose active is lost": (NEXT, (without_host("h1"),)),
    "not one that is lost": (NEXT, (without_host("h4"),)),
    "not one that may be lost": (NEXT, (of_container("c10", presence=Presence.BROKEN),)),
    "not one that has to leave": (NEXT, (drained("h4"),)),
    "not one that is to be replaced": (NEXT, (of_container("c10", revisions={"job": 0}),)),
    "not one that is not in sync": (NEXT, (of_tasks(0, in_sync=(0,)),)),
    "not one beside one that moves": ({}, (of_tasks(0, moving={1: "c20"}), free("c20", "h8"))),
    "not one whose tasks are placed apart": (NEXT, (of_records(TASKS[0][1], placed={0: ON["h1"]}),)),
    "not an active": (
        {},
        (
            of_tasks(1, placed={0: ON["h2"]}),
            of_tasks(0, placed={0: ON["h1"]}),
            without_host("h4"),
            without_host("h5"),
            unsettled(2),
        ),
    ),
    "one of several, though another has to leave": (FIRST, (of_three, drained("h7"))),
    "one of several, though another is lost": (FIRST, (of_three, without_host("h7"))),
    "not one whose process is too small for the other copy": (
        NEXT,
        (of_container("c10", offer=NodeOffer(tasks=1)),),
    ),
    "one whose process is large enough": (FIRST, (of_container("c10", offer=NodeOffer(tasks=2)),)),
}


@pytest.mark.parametrize(("found", "changes"), MOVERS.values(), ids=MOVERS)
def test_which_standby_moves(three: ClusterView, found: Moves, changes: tuple[Change, ...]) -> None:
    assert moves(three, *LACKING, *changes) == found


def test_the_copy_that_finds_no_place_is_named(three: ClusterView) -> None:
    assert said(three, *LACKING) == "job/main:2#1 finds no other place"


def test_it_may_move_to_what_another_copy_would_have_had(three: ClusterView) -> None:
    """Processor 1 has no standby either. It alone can use h3, and only processor 0 can use h8 in its place."""
    assert moves(
        three,
        *LACKING,
        *(without_host("h5"), unsettled(1, 2), pool("h8", "h3")),
        *(of_tasks(2, placed={0: ON["h3"], 2: "c20"}), of_model_of(2, copies=(0, 1, 2)), free("c20", "h8")),
        of_container("c7", host="h3"),
    ) == {0: {"h8"}}


#: It has begun: a process beside the active of processor 2 is requested for the standby of processor 0.
BEGUN: Final = (*LACKING, pool(), asked(0, "h3"))
CAME: Final = free("c20", "h3", SlotId(PROCESSORS[0], 1))
WRITING: Final = of_view(writing={TASKS[2][1]: "1-99"})


def fails_over(since_ms: int) -> Change:
    def change(view: ClusterView) -> ClusterView:
        failover = Failover(PROCESSORS[1], "c8", Loss.SILENT, 1, ON["h5"], view.now_ms - since_ms)
        return replace(view, failovers={PROCESSORS[1]: failover})

    return change


GOING: Mapping[str, tuple[Moves, tuple[Change, ...]]] = {
    "while another copy needs what it leaves": (FIRST, ()),
    "once its container has come": (FIRST, (of_view(requests={}), CAME)),
    "although it is not in sync any more": (FIRST, (of_tasks(0, in_sync=(0,)),)),
    "not if the other copy finds another place": ({}, (pool("h8"),)),
    "not if it is requested where it cannot go": ({}, (asked(0, "h1"),)),
    "not if nothing lacks a place": ({}, (free("c12", "h6"),)),
    "while it is not known what another copy needs": (FIRST, (WRITING,)),
    "its container has come, and that is not known": (FIRST, (WRITING, of_view(requests={}), CAME)),
    "nothing is requested, and that is not known": ({}, (WRITING, of_view(requests={}))),
    "while a failover is under way": (FIRST, (fails_over(100),)),
    "none begins while a failover is under way": ({}, (fails_over(100), of_view(requests={}), pool("h3"))),
    "one begins when a failover takes long": (FIRST, (fails_over(3_001), of_view(requests={}), pool("h3"))),
    "none begins while that is not known": (
        {},
        (
            WRITING,
            requested(SlotId(PROCESSORS[1], 0), "h9"),
            of_view(unsettled=frozenset(PROCESSORS)),
            without_host("h4"),
            pool("h1"),
        ),
    ),
}


@pytest.mark.parametrize(("found", "changes"), GOING.values(), ids=GOING)
def test_a_move_that_has_begun_goes_on(three: ClusterView, found: Moves, changes: tuple[Change, ...]) -> None:
    assert moves(three, *BEGUN, *changes) == found


# ---- mixed jobs ----

GROUP: Final = Demand(group="gpu")
SIZE: Final = NodeOffer("gpu", tasks=2)


@pytest.fixture(scope="module")
def without_a_standby() -> ClusterView:
    """Containers on h1, h2 and h3 with an active each, the standbys of processors 0 and 1 on h2 and h1.

    There is room for one copy more on h3, beside the active of processor 2, which has no standby.
    """
    view = deployed(tasks=3, containers=3, is_mixed=True, hosts=("h1", "h2", "h3")).view
    at = {each.host: each.id for each in view.containers.values()}
    assert at == {"h1": "c4", "h2": "c5", "h3": "c6"}
    for each in at.values():
        view = of_container(each, offer=SIZE)(view)
    places = ({0: "c4", 1: "c5"}, {0: "c5", 1: "c4"}, {0: "c6"})
    for placed, tasks in zip(places, TASKS, strict=True):
        view = of_records(tasks[0], placed=placed)(view)
    return changed(
        view,
        of_job(policy=PlannerPolicy(demand=GROUP)),
        a_pool(PoolProcess("h1", SIZE, is_free=False)),
        unsettled(2),
    )


def crowded(view: ClusterView) -> ClusterView:
    """Have the active of processor 2 be on h1, where there is room in another container, and that of 0 on h3."""
    view = free("c7", "h3", SharedSlotId("job", 3))(of_container("c6", host="h1")(view))
    for name, tasks in (("c6", 3), ("c7", 1)):
        view = of_container(name, offer=NodeOffer("gpu", tasks=tasks))(view)
    return changed(
        view,
        of_records(TASKS[0][0], placed={0: "c7", 1: "c5"}),
        of_records(TASKS[1][0], placed={0: "c5", 1: "c6"}),
        of_records(TASKS[2][0], placed={0: "c4"}),
    )


def takes_one(name: str) -> Change:
    """Have a container take one copy only."""
    return of_container(name, offer=NodeOffer("gpu", tasks=1))


def with_an_empty_one(view: ClusterView) -> ClusterView:
    """Have the room on h3 be in an empty container."""
    empty = free("c7", "h3", SharedSlotId("job", 3))
    return changed(view, empty, takes_one("c6"), takes_one("c7"), of_model(containers=4))


OF_MIXED: Mapping[str, tuple[Moves, tuple[Change, ...]]] = {
    "where there is room": ({0: {"h3"}}, ()),
    "none while one of its containers takes any number": ({}, (of_container("c4", offer=NodeOffer("gpu")),)),
    "none while all take any number": (
        {},
        tuple(of_container(each, offer=NodeOffer("gpu")) for each in ("c4", "c5", "c6")),
    ),
    "where there is room, although others take any number": (
        {0: {"h3"}},
        (of_container("c6", offer=NodeOffer("gpu")), of_container("c5", offer=NodeOffer("gpu", tasks=2))),
    ),
    "none while another container is requested": ({}, (requested(SharedSlotId("job", 3), "h4"),)),
    "where there is room, beside a container more": ({0: {"h1"}}, (crowded, of_model(containers=4))),
    "none while a container more is given up": ({}, (crowded,)),
    "none while one is replaced": (
        {},
        (crowded, of_model(containers=4), of_container("c4", revisions={"job": 0})),
    ),
    "one container is missing, and none waits": ({0: {"h3"}}, (of_model(containers=4),)),
    "one is missing, and one waits": ({}, (of_model(containers=4), a_pool(PoolProcess("h9", SIZE)))),
    "all are there, though a process waits": ({0: {"h3"}}, (a_pool(PoolProcess("h9", SIZE)),)),
    "to an empty one": ({0: {"h3"}}, (with_an_empty_one,)),
    "none if a copy that has no place gets the only room": (
        {},
        (with_an_empty_one, of_records(TASKS[1][0], placed={0: "c5"}), takes_one("c4"), unsettled(1, 2)),
    ),
    "none if there is no room": ({}, (takes_one("c6"),)),
}


def test_which_standby_of_a_mixed_job_moves(without_a_standby: ClusterView) -> None:
    for case, (found, changes) in OF_MIXED.items():
        assert moves(without_a_standby, *changes) == found, case
