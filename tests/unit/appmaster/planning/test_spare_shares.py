"""Which slot takes a spare container, how many spare containers a job has now, and which are given back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.requests.needs import Need
from appmaster.planning.requests.spares import SpareShare, share, take
from appmaster.planning.state.actions import TakeSpare
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import Processor, SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.reasons import Setback, SetbackKind
from appmaster.planning.state.view import (
    ClusterView,
    Presence,
    RequestState,
)
from locality.fit import PoolProcess
from standby.shared.model import NodeOffer, ProcessorId
from tests.unit.appmaster.planning.views import (
    FIRST,
    ONE,
    PROCESSOR,
    SLOT,
    TWO,
    UNSETTLED,
    Change,
    a_pool,
    asked_for,
    beside,
    changed,
    drained,
    free,
    of_container,
    of_job,
    of_model,
    of_records,
    of_view,
    requested,
    turned,
    without_container,
)


def spare(name: str, host: str, number: int = 0, **more: Any) -> Change:
    """Add a spare container, which is ready."""
    return lambda view: of_container(name, **{"is_warm": True, **more})(
        free(name, host, SpareSlotId("job", number))(view)
    )


def wants(count: int) -> Change:
    return of_job(policy=PlannerPolicy(spare_count=count))


def at(host: str, cell: int = 1) -> dict[str, Any]:
    return {"locations": frozenset({(host, cell)})}


def needed(view: ClusterView, asked: Mapping[Slot, Mapping[str, Any]], job: str = "job") -> dict[Slot, Need]:
    return {slot: Need(slot, view.jobs[job], **{"is_active": False, **more}) for slot, more in asked.items()}


# ---- which is taken ----


def taken(
    view: ClusterView, asked: Mapping[Slot, Mapping[str, Any]], *changes: Change
) -> list[tuple[str, Slot]]:
    turn = turned(view, *changes)
    found: list[TakeSpare] = [*take(turn, needed(turn.view, asked))]
    assert turn.taken == {each.container for each in found}
    return [(each.container, each.slot) for each in found]


HERE: Final = spare("c9", "h4")
RESERVED: Final = {"is_reservation": True, "is_active": True, "preferred": "h4"}
OWN_HOST: Final = {"only_host": True, "is_active": True, "preferred": "h4"}
MIXED: Final = SharedSlotId("job", 0)

#: A container on h4, of which it is not known what it has open.
UNCLEAR: Final = (free("c8", "h4", SLOT), of_container("c8", pid=0))

TAKES: Mapping[str, tuple[bool, dict[str, Any], tuple[Change, ...]]] = {
    "it is there": (True, {}, (HERE,)),
    "it is there, and starts": (True, {}, (spare("c9", "h4", is_warm=False),)),
    "there is none": (False, {}, (free("c9", "h4", SLOT),)),
    "its slot has one": (False, {"is_met": True}, (HERE,)),
    "one for its slot has come": (False, {}, (HERE, free("c7", "h5", ONE))),
    "one for its slot is being given its tasks": (
        False,
        {},
        (HERE, free("c7", "h5", ONE), of_container("c7", binding="1-9")),
    ),
    "one is requested": (True, {}, (HERE, requested(ONE, "h5"))),
    "one is requested, and starts": (False, {}, (HERE, requested(ONE, "h5", RequestState.GRANTED))),
    "it is cut off": (False, {}, (spare("c9", "h4", presence=Presence.BROKEN),)),
    "its revision is replaced": (False, {}, (spare("c9", "h4", revisions={"job": 0}),)),
    "its host is drained": (False, {}, (HERE, drained("h4"))),
    "it is too small": (False, {}, (spare("c9", "h4", offer=NodeOffer(tasks=1)),)),
    "it is beside another copy": (False, beside("h4"), (HERE,)),
    "it is on the only host that will do": (True, OWN_HOST, (HERE,)),
    "it is on another host than the only one": (False, {**OWN_HOST, "preferred": "h5"}, (HERE,)),
    "it is on the host that is reserved": (True, RESERVED, (HERE,)),
    "it is on another host than the reserved one": (False, {**RESERVED, "preferred": "h5"}, (HERE,)),
    "it is where the copy is to go": (True, at("h4"), (HERE,)),
    "it is not where the copy is to go": (False, at("h5"), (HERE,)),
    "it is in another cell": (False, at("h4", 2), (HERE,)),
    "a process on its host may have the tasks open": (False, {}, (HERE, *UNCLEAR)),
    "such a process is there, and the host is reserved": (True, RESERVED, (HERE, *UNCLEAR)),
    "requests on its host have failed": (True, {}, (HERE, of_view(now_ms=9, avoided={"h4": (10, "down")}))),
}


@pytest.mark.parametrize(("is_so", "asked", "changes"), TAKES.values(), ids=TAKES)
def test_when_a_slot_takes_a_spare_container(
    whole: ClusterView, is_so: bool, asked: dict[str, Any], changes: tuple[Change, ...]
) -> None:
    assert taken(whole, {ONE: asked}, *changes) == ([("c9", ONE)] if is_so else [])


def test_a_mixed_jobs_container_may_be_where_something_is_open(whole: ClusterView) -> None:
    assert taken(whole, {MIXED: {}}, HERE, *UNCLEAR) == [("c9", MIXED)]


def test_each_slot_takes_another_one(whole: ClusterView) -> None:
    asked: dict[Slot, dict[str, Any]] = {SLOT: {"is_met": True}, ONE: {}, TWO: {}, MIXED: {}}
    assert taken(whole, asked, HERE, spare("c10", "h5", 1)) == [("c9", ONE), ("c10", TWO)]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("c12", (spare("c11", "h4", is_warm=False), spare("c12", "h5")), id="a ready one"),
        pytest.param("c11", (spare("c11", "h4"), spare("c12", "h5")), id="by name of host"),
        pytest.param("c12", (spare("c11", "h1"), spare("c12", "h5")), id="on a host with less"),
        pytest.param("c11", (spare("c12", "h4"), spare("c11", "h4")), id="of one host the first"),
        pytest.param(
            "c12", (spare("c11", "h4"), spare("c12", "h4", cell=2)), id="in the cell without another copy"
        ),
        pytest.param(
            "c11",
            (spare("c11", "h5", is_warm=False), spare("c12", "h2")),
            id="one that starts, if no ready one will do",
        ),
    ],
)
def test_which_spare_container_is_taken(whole: ClusterView, name: str, changes: tuple[Change, ...]) -> None:
    assert taken(whole, {ONE: beside("h2")}, *changes) == [(name, ONE)]


# ---- how many there are to be ----


def shared(
    view: ClusterView,
    *changes: Change,
    asked: Mapping[Slot, Mapping[str, Any]] | None = None,
    taken: str = "",
) -> SpareShare:
    turn = turned(view, *changes)
    return share(turn, needed(turn.view, asked or {}))


def slots(found: SpareShare) -> list[int]:
    assert all(isinstance(each, SpareSlotId) and each.job == "job" for each in found.needs)
    assert not any(each.is_active for each in found.needs.values())
    return [each.number for each in found.needs if isinstance(each, SpareSlotId)]


def of_spare(number: int, state: RequestState = RequestState.WAITING) -> Change:
    return asked_for(number, SpareSlotId("job", number), state=state)


def in_vain(count: int, kind: SetbackKind = SetbackKind.NOT_GRANTED) -> Change:
    return of_view(attempts={ONE: Attempts(moves_in_row=count, last=Setback(kind))})


GRANTED: Final = RequestState.GRANTED
LACKS: Final[Mapping[Slot, Mapping[str, Any]]] = {ONE: {}}
COLD: Final = of_container("c5", is_warm=False)

WANTED: Mapping[str, tuple[list[int], tuple[Change, ...], Mapping[Slot, Mapping[str, Any]]]] = {
    "none": ([], (wants(0),), {}),
    "as many as are wanted": ([0, 1], (wants(2),), {}),
    "one is there": ([1], (wants(2), HERE), {}),
    "one is there with another number": ([0], (wants(2), spare("c9", "h4", 1)), {}),
    "one is lost": ([1], (wants(1), spare("c9", "h4", presence=Presence.SUSPECT)), {}),
    "one is requested": ([0, 1], (wants(2), of_spare(0)), {}),
    "one is requested, and starts": ([1, 0], (wants(2), of_spare(0), of_spare(1, GRANTED)), {}),
    "one is requested, and one fewer is wanted": ([1], (wants(1), of_spare(0), of_spare(1, GRANTED)), {}),
    "too many are there, and two are requested": (
        [],
        (wants(1), HERE, spare("c10", "h4", 1), of_spare(2), of_spare(3)),
        {},
    ),
    "all are there, and one is requested": ([], (wants(1), HERE, of_spare(1)), {}),
    "another container is requested": ([], (wants(1), requested(ONE, "h4")), {}),
    "another is, and one is requested": ([0], (wants(2), requested(ONE, "h4"), of_spare(0)), {}),
    "something lacks a container": ([], (wants(1),), LACKS),
    "something has what it lacked": ([0], (wants(1),), {ONE: {"is_met": True}}),
    "something lacks a container, and one is requested": ([], (wants(1), of_spare(0)), LACKS),
    "something lacks a container, and one starts": ([0], (wants(1), of_spare(0, GRANTED)), LACKS),
    "something is under way": ([], (wants(1), UNSETTLED, of_records(FIRST, claimed=False)), {}),
    "all of it is as it should be": ([0], (wants(1), UNSETTLED), {}),
    "a copy would be better elsewhere": ([0], (wants(1), UNSETTLED, requested(ONE, "h4")), {ONE: at("h4")}),
    "it would be, and its container starts": ([], (wants(1), requested(ONE, "h4", GRANTED)), {ONE: at("h4")}),
    "it would be, and its container is there": ([], (wants(1),), {ONE: {**at("h4"), "is_met": True}}),
    "it would be, and another one was lost": ([], (wants(1),), {ONE: at("h4"), TWO: {}}),
    "a copy gets no container": ([], (wants(1), in_vain(1)), LACKS),
    "something of another job is": (
        [0],
        (wants(1), of_view(unsettled=frozenset({ProcessorId("other", "main", 0)}))),
        {},
    ),
    "its code is not there": ([], (wants(1), of_job(quarantined="gone")), {}),
    "it has no model": ([], (wants(1), of_model(processors={}), of_view(records={})), {}),
    "its containers warm up": ([], (wants(1), COLD), {}),
    "its containers warm up, and one is requested": ([0], (wants(2), COLD, of_spare(0)), {}),
    "it is over soon": ([], (wants(1), of_job(is_wanted=False)), {}),
}


@pytest.mark.parametrize(("numbers", "changes", "asked"), WANTED.values(), ids=WANTED)
def test_which_spare_containers_are_needed(
    whole: ClusterView,
    numbers: list[int],
    changes: tuple[Change, ...],
    asked: Mapping[Slot, Mapping[str, Any]],
) -> None:
    assert slots(shared(whole, *changes, asked=asked)) == numbers


def test_none_is_needed_while_something_is_begun(whole: ClusterView) -> None:
    for begun in ("touched", "handing_over"):
        turn = turned(whole, wants(1), UNSETTLED)
        getattr(turn, begun).add(PROCESSOR)
        assert slots(share(turn, {})) == [], begun


def test_another_job_that_is_whole_hides_nothing(whole: ClusterView) -> None:
    other = ProcessorId("another", "main", 0)

    def with_another_job(view: ClusterView) -> ClusterView:
        job = view.jobs["job"]
        model = replace(job.model, processors={other: Processor((), (0,))})
        jobs = {**view.jobs, "another": replace(job, name="another", policy=PlannerPolicy(), model=model)}
        return replace(view, jobs=jobs, unsettled=frozenset({other, PROCESSOR}))

    lacks = of_records(FIRST, claimed=False)
    assert slots(shared(whole, wants(1), with_another_job)) == [0]
    assert slots(shared(whole, wants(1), with_another_job, lacks)) == []


def test_a_spare_container_that_is_taken_does_not_count(whole: ClusterView) -> None:
    turn = turned(whole, wants(1), HERE)
    turn.taken.add("c9")
    assert slots(share(turn, {})) == [1]


def test_a_job_that_has_ended_hides_no_other(whole: ClusterView) -> None:
    job = changed(whole, wants(1)).jobs["job"]
    both = of_view(jobs={"first": replace(job, name="first", is_wanted=False), "job": job})
    assert slots(shared(whole, both)) == [0]


# ---- which are given back ----

NOT_GRANTED: Final = Setback(SetbackKind.NOT_GRANTED)
ENOUGH: Final = "the job has enough spare containers"
NO_ROOM: Final = "job/main:0#1 finds no room"
TWO_SPARES: Final = (spare("c11", "h4"), spare("c12", "h5", 1))


def waits(*hosts: str) -> Change:
    """Have a pool in which a process waits on these hosts."""
    return a_pool(
        *(PoolProcess(each, NodeOffer()) for each in hosts), PoolProcess("h1", NodeOffer(), is_free=False)
    )


SURPLUS: Mapping[str, tuple[dict[str, str], tuple[Change, ...], Mapping[Slot, Mapping[str, Any]]]] = {
    "there are as many as are wanted": ({}, (wants(2),), {}),
    "one is too many": ({"c12": ENOUGH}, (wants(1),), {}),
    "none is wanted any more": ({"c11": ENOUGH, "c12": ENOUGH}, (wants(0),), {}),
    "the one that starts": ({"c11": ENOUGH}, (wants(1), of_container("c11", is_warm=False)), {}),
    "the one where copies are": ({"c11": ENOUGH}, (wants(1), of_container("c11", host="h1")), {}),
    "one that is there rather than one whose host is not known yet": (
        {"c11": ENOUGH},
        (wants(1), of_container("c12", host="", presence=Presence.EXPECTED)),
        {},
    ),
    "one that does not live is not": ({}, (wants(1), of_container("c12", presence=Presence.BROKEN)), {}),
    "one that has to leave does not count": ({}, (wants(1), drained("h5")), {}),
    "its job is over soon": ({}, (wants(0), of_job(is_wanted=False)), {}),
    # ---- on YARN ----
    "a slot lacks a container": ({}, (wants(2),), LACKS),
    "its request was not granted": ({"c12": NO_ROOM}, (wants(2), in_vain(1)), LACKS),
    "its request was not granted, and the copy is lost": (
        {"c12": NO_ROOM},
        (wants(2), without_container(1), of_view(attempts={ONE: Attempts(in_row=1, last=NOT_GRANTED)})),
        LACKS,
    ),
    "its requests were not granted": ({"c11": NO_ROOM, "c12": NO_ROOM}, (wants(2), in_vain(3)), LACKS),
    "they were for a better location of a copy": ({}, (wants(2), in_vain(3)), {ONE: at("h6")}),
    "its container ended": ({}, (wants(2), in_vain(1, SetbackKind.LOST)), LACKS),
    "it has its container": ({}, (wants(2), in_vain(1)), {ONE: {"is_met": True}}),
    "the one that it could use": ({"c11": NO_ROOM}, (wants(2), in_vain(1)), {ONE: beside("h5")}),
    "the one that is large enough": (
        {"c11": NO_ROOM},
        (wants(2), in_vain(1), of_container("c12", offer=NodeOffer(tasks=1))),
        LACKS,
    ),
    # ---- in a pool ----
    "a process waits": ({}, (wants(2), waits("h6")), LACKS),
    "none waits": ({"c12": NO_ROOM}, (wants(2), waits()), LACKS),
    "none waits where a copy would be better": ({}, (wants(2), waits()), {ONE: at("h6")}),
    "one waits beside another copy": ({"c12": NO_ROOM}, (wants(2), waits("h6")), {ONE: beside("h6")}),
    "one waits on a drained host": ({"c12": NO_ROOM}, (wants(2), waits("h6"), drained("h6")), LACKS),
    "a process is requested": ({}, (wants(2), waits(), requested(ONE, "h6")), LACKS),
    "one waits, and two are needed": (
        {"c12": "job/main:0#2 finds no room"},
        (wants(2), waits("h6")),
        {ONE: {}, TWO: {}},
    ),
    "one waits for one, which cannot use all, and another": (
        {},
        (wants(2), waits("h6", "h7")),
        {ONE: beside("h6"), TWO: {}},
    ),
    "two wait, if the first one leaves the other what it can use": (
        {},
        (wants(2), waits("h6", "h7")),
        {ONE: {}, MIXED: beside("h7")},
    ),
    "two wait on one host, for copies of the same tasks": (
        {"c12": "job/main:0#2 finds no room"},
        (wants(2), waits("h6", "h6")),
        {ONE: {}, TWO: {}},
    ),
    "two wait on one host, for containers of a mixed job": (
        {},
        (wants(2), waits("h6", "h6")),
        {MIXED: {}, SharedSlotId("job", 1): {}},
    ),
    "one is requested, and another lacks one": (
        {"c12": "job/main:0#2 finds no room"},
        (wants(2), waits(), requested(ONE, "h6")),
        {ONE: {}, TWO: {}},
    ),
    "nothing lacks a process": ({}, (wants(2), waits()), {}),
}


@pytest.mark.parametrize(("found", "changes", "asked"), SURPLUS.values(), ids=SURPLUS)
def test_which_spare_containers_are_given_back(
    whole: ClusterView,
    found: dict[str, str],
    changes: tuple[Change, ...],
    asked: Mapping[Slot, Mapping[str, Any]],
) -> None:
    assert shared(whole, *TWO_SPARES, *changes, asked=asked).surplus == found


def test_what_finds_no_room_costs_its_own_job_spare_containers_first(whole: ClusterView) -> None:
    """It may have the places of two: the one of its own job, and then one of another's."""
    job = changed(whole, wants(1)).jobs["job"]
    jobs = {
        each: replace(job, name=each, policy=PlannerPolicy(spare_count=count))
        for each, count in {"a": 2, "job": 1, "z": 1}.items()
    }
    spares = {"a": ("c21", "c22"), "job": ("c23",), "z": ("c24",)}
    view = changed(whole, of_view(jobs=jobs), in_vain(2))
    for name, containers in spares.items():
        for number, each in enumerate(containers):
            view = free(each, f"h{number + 5}", SpareSlotId(name, number))(view)
    assert {*shared(view, asked=LACKS).surplus} == {"c23", "c22"}
    assert {*shared(view, in_vain(9), asked=LACKS).surplus} == {"c21", "c22", "c23", "c24"}
