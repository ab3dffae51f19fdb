"""The status of a job: its state, what keeps it from the next one, and when it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.jobs.status import statuses
from appmaster.planning.state.actions import WriteStatus
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import EffectKind, JobState, Lack, OnExhausted, PlannerPolicy
from appmaster.planning.state.model import JobModel, SharedSlotId, SpareSlotId
from appmaster.planning.state.reasons import FailureReason, HandoverMotive, Reason, Setback, SetbackKind
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    Failover,
    Presence,
    Trouble,
    TroubleKind,
)
from locality.fit import Demand, PoolProcess
from standby.shared.model import Fault, NodeOffer, Phase, ProcessorId, ReplicaId, Role
from standby.shared.naming import POOL
from tests.unit.appmaster.planning.views import (
    FIRST,
    ONE,
    PARKED,
    PROCESSOR,
    SECOND,
    TASKS,
    UNSETTLED,
    Change,
    a_pool,
    changed,
    free,
    of_holder,
    of_job,
    of_model,
    of_records,
    of_status,
    of_view,
    parted,
    requested,
    taking,
    turned,
    unchanged,
    without_container,
)

P: Final = "job/main:0"
ACTIVE_0: Final = "task 1, copy 0: "
STANDBY_1: Final = "task 1, copy 1: "


def status(view: ClusterView, *changes: Change) -> WriteStatus:
    """Return the status after the changes, whatever was written before."""
    (found,) = statuses(turned(view, UNSETTLED, *changes, of_job(traceback="other")))
    assert isinstance(found, WriteStatus)
    return found


def found(view: ClusterView, *changes: Change) -> tuple[str, tuple[str, ...]]:
    action = status(view, *changes)
    return action.state, action.reasons


def short(view: ClusterView, *changes: Change) -> list[str]:
    """Return what the processor lacks, without its name."""
    return [each.text for each in status(view, *changes).lacks]


# ---- when it is written ----


@pytest.mark.parametrize(
    ("is_so", "change"),
    [
        pytest.param(False, unchanged, id="nothing has changed"),
        pytest.param(True, of_job(state=JobState.INCOMPLETE), id="its state has"),
        pytest.param(True, of_job(notes=("an input grew",)), id="its reasons have"),
        pytest.param(True, of_job(traceback="x"), id="its traceback has"),
        pytest.param(True, of_job(is_reported_over=True), id="it is not over any more"),
        pytest.param(True, of_job(is_risk_logged=True), id="its changelog is at risk"),
    ],
)
def test_a_status_is_written_if_it_has_changed(whole: ClusterView, change: Change, *, is_so: bool) -> None:
    assert bool([*statuses(turned(whole, change))]) is is_so


FAILED: Final = Reason(FailureReason.OTHER, "it cannot")


@pytest.mark.parametrize(
    ("is_over", "changes"),
    [
        (True, (of_job(failure=FAILED, is_fenced=True),)),
        (False, (of_job(failure=FAILED),)),
        (False, (of_job(is_wanted=False, is_fenced=True),)),
    ],
)
def test_whether_a_failed_job_is_over(
    whole: ClusterView, changes: tuple[Change, ...], *, is_over: bool
) -> None:
    assert status(whole, *changes).is_over is is_over


def test_a_status_says_whether_the_fence_fails(whole: ClusterView) -> None:
    assert not status(whole).is_unfenceable
    assert status(whole, of_job(fencing_error="no broker")).is_unfenceable


# ---- the traceback ----

TRACED: Final = of_job(last_traceback="Traceback")
FAILING: Final = of_holder(0, troubles=(Trouble(ReplicaId(FIRST, 0), TroubleKind.FAILING, "no number"),))
BEHIND: Final = of_holder(0, troubles=(Trouble(ReplicaId(FIRST, 0), TroubleKind.BEHIND),))
SETTLED: Final = of_view(unsettled=frozenset())
HAS_FAILED: Final = (of_holder(0, has_ended=True), of_status(0, FIRST, phase=Phase.FAILED))
LOST_1: Final = without_container(1)


def a_cell(attempt: str, state: CellState) -> Change:
    """Have one cell, in this state, beside one that is lost."""
    lost = Cell(1, "a0", (), CellState.LOST, 0)
    return of_view(cells={1: lost, 2: Cell(2, attempt, (), state, 0)})


@pytest.mark.parametrize(
    ("is_so", "changes"),
    [
        pytest.param(False, (), id="not if the job is well"),
        pytest.param(True, (LOST_1,), id="if it lacks something"),
        pytest.param(True, (FAILING,), id="if its code fails now"),
        pytest.param(False, (BEHIND,), id="not if it is behind"),
        pytest.param(True, (*HAS_FAILED, SETTLED), id="if its code has failed for good"),
        pytest.param(
            True,
            (*HAS_FAILED, of_view(writing={FIRST: "1-9"})),
            id="if it has, and a record is being written before it is judged",
        ),
        pytest.param(
            False, (of_status(0, FIRST, phase=Phase.FAILED), SETTLED), id="not if nothing has ended"
        ),
        pytest.param(False, (of_holder(0, has_ended=True), SETTLED), id="not if nothing has failed"),
        pytest.param(False, (LOST_1, of_job(is_wanted=False)), id="not if the job is over soon"),
    ],
)
def test_when_a_status_has_the_last_traceback(
    whole: ClusterView, changes: tuple[Change, ...], *, is_so: bool
) -> None:
    assert status(whole, TRACED, *changes).traceback == ("Traceback" if is_so else "")


# ---- the state ----

REFUSED_TWICE: Final = of_job(refused=3, refusal="no such option")
REFUSAL: Final = "was refused in 3 containers in a row; the last time: no such option"
ENDS: Final = of_job(is_wanted=False)
FENCED: Final = of_job(is_wanted=False, is_fenced=True)
EMPTY: Final = of_view(containers={}, records={})
TWICE: Final = Attempts(failures_ms=(90, 91), last=Setback(SetbackKind.LOST, detail="it ended"))
LIMIT: Final = of_job(policy=PlannerPolicy(retry_count=1))
PARKS: Final = of_job(policy=PlannerPolicy(retry_count=1, on_exhausted=OnExhausted.PARK))
TOO_OFTEN: Final = "failed 2 times within 300000 ms, 1 are allowed; the last time: it ended"


def failing(slot: Any) -> Change:
    return of_view(now_ms=100, attempts={slot: TWICE})


def changed_topic(**more: Any) -> Change:
    """Have a replica report that a topic was made again."""
    status = of_status(0, SECOND, phase=Phase.FAILED, fault=Fault.CHANGED_TOPIC, detail="in was made again")
    return lambda view: of_holder(0, **{"has_ended": True, **more})(status(view))


OLD: Final = of_holder(0, revisions={"job": 0})

UNFENCED: Final = (
    "its tasks cannot be fenced: no broker; this is tried again, and its containers end only once they are "
    "fenced"
)

STATES: Mapping[str, tuple[JobState, tuple[str, ...], tuple[Change, ...]]] = {
    "it is whole": (JobState.DEPLOYED, (), ()),
    "it has notes": (
        JobState.DEPLOYED,
        ("gone", "an input grew"),
        (of_job(quarantined="gone", notes=("an input grew",)),),
    ),
    "its code fails": (
        JobState.DEPLOYED,
        ("job/main.0: the job's code fails, and is tried again: no number",),
        (FAILING,),
    ),
    "it does not keep up": (
        JobState.DEPLOYED,
        ("job/main.0: does not keep up: more than 30 s behind the end of its input",),
        (BEHIND,),
    ),
    "it lacks nothing that its cell could tell of": (
        JobState.DEPLOYED,
        (),
        (of_view(cells={1: Cell(1, "", (), CellState.UP, 0, note="the pool is old")}),),
    ),
    "it has no model yet": (
        JobState.DEPLOYING,
        ("its job model is being made",),
        (of_job(model=JobModel("job", {}, version=0)), of_view(records={}, containers={})),
    ),
    "it lacks something": (
        JobState.INCOMPLETE,
        (f"{P}: copy 1: about to be requested", "the pool is old", "gone"),
        (
            LOST_1,
            of_job(was_deployed=True, notes=("gone",)),
            of_view(cells={1: Cell(1, "", (), CellState.UP, 0, note="the pool is old")}),
        ),
    ),
    "it lacks something from the beginning": (
        JobState.DEPLOYING,
        (f"{P}: copy 1: about to be requested",),
        (LOST_1, of_job(was_deployed=False)),
    ),
    "a processor is parked": (JobState.INCOMPLETE, (f"{P}: parked: ",), (PARKED, LOST_1)),
    # ---- it failed ----
    "it failed": (JobState.FAILED, ("it cannot",), (of_job(failure=FAILED),)),
    "a topic was made again": (
        JobState.FAILED,
        ("in was made again",),
        (of_job(obstacle="in was made again"),),
    ),
    "a replica says so": (JobState.FAILED, ("in was made again",), (changed_topic(),)),
    "a replica says so, which runs still": (
        JobState.INCOMPLETE,
        (f"{P}: {ACTIVE_0}failed",),
        (changed_topic(has_ended=False),),
    ),
    "one of another revision says so": (
        JobState.INCOMPLETE,
        (f"{P}: {ACTIVE_0}failed",),
        (changed_topic(revisions={"job": 0}),),
    ),
    "its code is refused": (
        JobState.FAILED,
        (f"its code or configuration {REFUSAL}",),
        (REFUSED_TWICE,),
    ),
    "its code is refused, and an earlier one works": (
        JobState.DEPLOYED,
        (f"revision 1 {REFUSAL}; update it again, or roll back",),
        (REFUSED_TWICE, OLD),
    ),
    "its code is refused, and has committed elsewhere": (
        JobState.DEPLOYED,
        (f"revision 1 {REFUSAL}; update it again, or roll back",),
        (REFUSED_TWICE, of_status(0, FIRST, first_commit_ms=1)),
    ),
    "an earlier one has ended": (
        JobState.FAILED,
        (f"its code or configuration {REFUSAL}",),
        (REFUSED_TWICE, OLD, of_holder(0, has_ended=True)),
    ),
    "an earlier one is cut off": (
        JobState.FAILED,
        (f"its code or configuration {REFUSAL}",),
        (REFUSED_TWICE, OLD, of_holder(0, presence=Presence.BROKEN)),
    ),
    "an earlier one is a standby": (
        JobState.FAILED,
        (f"its code or configuration {REFUSAL}",),
        (REFUSED_TWICE, of_holder(1, revisions={"job": 0})),
    ),
    "a slot failed too often": (JobState.FAILED, (f"{ONE} {TOO_OFTEN}",), (LIMIT, failing(ONE))),
    "a slot failed too often, and is parked": (JobState.DEPLOYED, (), (PARKS, failing(ONE))),
    "containers failed too often": (
        JobState.FAILED,
        (f"containers {TOO_OFTEN}",),
        (PARKS, failing(SharedSlotId("job", 0))),
    ),
    "another job's did": (JobState.DEPLOYED, (), (LIMIT, failing(SharedSlotId("other", 0)))),
    "a spare container did": (JobState.DEPLOYED, (), (LIMIT, failing(SpareSlotId("job", 0)))),
    # ---- it ends ----
    "it has ended": (JobState.UNDEPLOYED, (), (FENCED, EMPTY)),
    "it is not fenced yet": (JobState.UNDEPLOYING, (), (ENDS, EMPTY)),
    "it failed, and ends": (JobState.UNDEPLOYED, (), (FENCED, of_job(failure=FAILED), EMPTY)),
    "its containers run": (JobState.UNDEPLOYING, ("its containers have not all ended",), (FENCED,)),
    "a container of no job runs": (
        JobState.UNDEPLOYING,
        ("its containers have not all ended",),
        (FENCED, EMPTY, free("c9", "h4", None)),
    ),
    "one that is not ours runs": (
        JobState.UNDEPLOYED,
        (),
        (FENCED, EMPTY, free("c9", "h4", None, presence=Presence.ORPHAN)),
    ),
    "a container is requested": (
        JobState.UNDEPLOYING,
        ("YARN still has requests for its containers",),
        (FENCED, EMPTY, requested(ONE, "h4")),
    ),
    "another job's container is requested": (
        JobState.UNDEPLOYED,
        (),
        (FENCED, EMPTY, requested(SharedSlotId("other", 1), "h4")),
    ),
    # ---- it is set aside ----
    "what the leader cannot do": (
        JobState.DEPLOYED,
        (
            UNFENCED,
            "set aside, for containers cannot be requested: no AM; this is tried again",
        ),
        (of_job(fencing_error="no broker", faults={EffectKind.REQUEST_CONTAINER: "no AM"}),),
    ),
}


@pytest.mark.parametrize(("state", "reasons", "changes"), STATES.values(), ids=STATES)
def test_the_state_of_a_job_and_its_reasons(
    whole: ClusterView, state: JobState, reasons: tuple[str, ...], changes: tuple[Change, ...]
) -> None:
    assert found(whole, *changes) == (state.value, reasons)


def test_the_first_ten_reasons_are_listed_and_the_others_counted(whole: ClusterView) -> None:
    processors = {
        ProcessorId("job", "main", each): replace(
            whole.jobs["job"].model.processors[PROCESSOR], parked=Reason(FailureReason.POISON, str(each))
        )
        for each in range(11)
    }
    action = status(whole, of_model(processors=processors))
    assert action.reasons[-2:] == ("job/main:9: parked: 9", "and 1 more")
    assert len(action.reasons) == 11
    assert len(action.lacks) == 10
    fewer = {each: found for each, found in processors.items() if each.number < 10}
    assert status(whole, of_model(processors=fewer)).reasons[-1] == "job/main:9: parked: 9"


# ---- what a processor lacks ----

NOT_IN_SYNC: Final = of_records(SECOND, in_sync=(0, 2))


def hands_over(to: str, *, is_planned: bool = True) -> Change:
    failover = Failover(PROCESSOR, "c9", HandoverMotive.ASKED, 0, to, 0, is_planned=is_planned)
    return of_view(failovers={PROCESSOR: failover})


LACKS: Mapping[str, tuple[list[str], tuple[Change, ...]]] = {
    "it is settled": ([], (of_view(unsettled=frozenset()), LOST_1)),
    "it is lost": (["copy 1: about to be requested"], (LOST_1,)),
    "it may come back": (
        ["copy 1: its container on h2 is suspect"],
        (of_holder(1, presence=Presence.SUSPECT),),
    ),
    "two are lost": (
        ["copy 1: about to be requested", "copy 2: about to be requested"],
        (LOST_1, without_container(2)),
    ),
    "it is displaced": (
        ["copy 1: displaced by the active"],
        (LOST_1, of_records(FIRST, SECOND, displaced=1)),
    ),
    "it is requested": (["copy 1: waiting for a container on h4"], (LOST_1, requested(ONE, "h4"))),
    "its container has come": (
        ["copy 1: its container on h4 is live"],
        (LOST_1, free("c9", "h4", ONE)),
    ),
    "its code is not there": (
        ["copy 1: not requested while its code is unavailable"],
        (LOST_1, of_job(quarantined="gone")),
    ),
    "its request failed": (
        ["copy 1: requested again soon; host h4 gave no container"],
        (LOST_1, of_view(attempts={ONE: Attempts(last=Setback(SetbackKind.NOT_GRANTED, "h4", 9))})),
    ),
    "it has not failed": (["copy 1: about to be requested"], (LOST_1, of_view(attempts={ONE: Attempts()}))),
    # ---- in a pool ----
    "no process is large enough": (
        [
            "copy 1: no process fits: no process has 2 tasks, the largest has 1 (job.container.count, --tasks)",
        ],
        (LOST_1, a_pool(PoolProcess("h4", NodeOffer(tasks=1)))),
    ),
    "one waits beside another copy": (
        [f"copy 1: no process waits on another host: h1 holds {P}#0, a copy of the same tasks"],
        (LOST_1, a_pool(PoolProcess("h1", NodeOffer()))),
    ),
    "one waits": (["copy 1: about to be requested"], (LOST_1, a_pool(PoolProcess("h4", NodeOffer())))),
    "no cell answers": (["copy 1: no cell answers"], (LOST_1, a_cell("a1", CellState.LOST))),
    "no cell answers a new leader": (["copy 1: no cell answers"], (LOST_1, a_cell("a1", CellState.AWAITED))),
    "one of its cells does": (["copy 1: about to be requested"], (LOST_1, a_cell("a1", CellState.UP))),
    "no process has come to the pool": (
        ["copy 1: the pool has no processes"],
        (LOST_1, a_cell(POOL, CellState.AWAITED)),
    ),
    # ---- an active ----
    "it is not active yet": ([f"{ACTIVE_0}claiming"], (of_status(0, SECOND, phase=Phase.CLAIMING),)),
    "it is still a standby": ([f"{ACTIVE_0}to become active"], (of_status(0, SECOND, role=Role.STANDBY),)),
    "it is of another epoch": ([f"{ACTIVE_0}to become active"], (of_status(0, SECOND, epoch=0),)),
    "it is handed over": ([], (of_status(0, SECOND, phase=Phase.CLAIMING), hands_over("c4"))),
    "it is handed over, and does not say anything": ([], (of_status(0, SECOND, epoch=0), hands_over("c4"))),
    "it is handed over, and has failed": (
        [f"{ACTIVE_0}failed"],
        (of_status(0, SECOND, phase=Phase.FAILED), hands_over("c4")),
    ),
    "it fails over": (
        [f"{ACTIVE_0}claiming"],
        (of_status(0, SECOND, phase=Phase.CLAIMING), hands_over("c4", is_planned=False)),
    ),
    "another one is handed over to": (
        [f"{ACTIVE_0}claiming"],
        (of_status(0, SECOND, phase=Phase.CLAIMING), hands_over("c5")),
    ),
    "a new leader has yet to hear from it": (
        [],
        (of_holder(0, presence=Presence.EXPECTED), of_status(0, SECOND, epoch=0)),
    ),
    "nor was it ever active": (
        [f"{ACTIVE_0}to become active"],
        (
            of_holder(0, presence=Presence.EXPECTED),
            of_status(0, SECOND, epoch=0),
            of_records(SECOND, claimed=False),
        ),
    ),
    "nor was its job deployed": (
        [f"{ACTIVE_0}to become active"],
        (
            of_holder(0, presence=Presence.EXPECTED),
            of_status(0, SECOND, epoch=0),
            of_job(was_deployed=False),
        ),
    ),
    "it waits for the state that another process has": (
        [f"{ACTIVE_0}waiting: it is in use"],
        (of_status(0, SECOND, phase=Phase.OPENING, waits_for="it is in use"),),
    ),
    # ---- a standby ----
    "it is in sync, as the record has it": ([], (of_status(1, SECOND, phase=Phase.RESTORING),)),
    "it is in sync, and says nothing": ([], (of_status(1, SECOND, epoch=0),)),
    "it has failed": ([f"{STANDBY_1}failed"], (of_status(1, SECOND, phase=Phase.FAILED),)),
    "it restores": ([f"{STANDBY_1}restoring"], (NOT_IN_SYNC, of_status(1, SECOND, phase=Phase.RESTORING))),
    "it waits for its state": (
        [f"{STANDBY_1}waiting: no disk has room"],
        (
            NOT_IN_SYNC,
            of_status(1, SECOND, phase=Phase.OPENING, waits_for="no disk has room"),
        ),
    ),
    "it gets its state": (
        [f"{STANDBY_1}opening"],
        (NOT_IN_SYNC, of_status(1, SECOND, phase=Phase.OPENING, detail="fetching: 3.2 of 9.7 MB")),
    ),
    "it is behind": ([f"{STANDBY_1}not in sync"], (NOT_IN_SYNC,)),
    "it is still active": (
        [f"{STANDBY_1}to become a standby"],
        (NOT_IN_SYNC, of_status(1, SECOND, role=Role.ACTIVE)),
    ),
    "it says nothing": ([f"{STANDBY_1}to become a standby"], (NOT_IN_SYNC, of_status(1, SECOND, epoch=0))),
    # ---- a record that is being written ----
    "it lacks what it lacked": (
        ["copy 1: lost"],
        (
            of_view(writing={FIRST: "1-9"}),
            of_job(lacks=(Lack(PROCESSOR, "copy 1: lost"), Lack(ProcessorId("job", "main", 1), "x"))),
        ),
    ),
}


@pytest.mark.parametrize(("lacks", "changes"), LACKS.values(), ids=LACKS)
def test_what_a_processor_lacks(whole: ClusterView, lacks: list[str], changes: tuple[Change, ...]) -> None:
    assert short(whole, *changes) == lacks


@pytest.mark.parametrize(
    ("is_so", "changes"),
    [
        pytest.param(
            True,
            (
                free("c9", "h1", ONE),
                of_records(FIRST, placed={1: "c9"}),
                of_records(SECOND, placed={0: "c4", 2: "c6"}),
            ),
            id="one has no host of its own",
        ),
        pytest.param(False, (parted,), id="each has a container"),
    ],
)
def test_tasks_that_are_placed_apart_need_a_process_that_takes_all(
    whole: ClusterView, changes: tuple[Change, ...], *, is_so: bool
) -> None:
    said = "no process fits: no process has 2 tasks, the largest has 1 (job.container.count, --tasks)"
    assert (said in short(whole, a_pool(PoolProcess("h4", NodeOffer(tasks=1))), *changes)) is is_so


FULL: Final = "its containers take no more tasks (--tasks, job.container.count)"
BESIDE: Final = (
    "no container on another host has room (--tasks): h2 holds job/main:1#0, a copy of the same tasks"
)
SOON: Final = "about to be requested"
THREE: Final = of_model(containers=3)


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        pytest.param(FULL, taking(c3=1, c4=2), id="all are full"),
        pytest.param(BESIDE, taking(c3=1, c4=3), id="one beside another copy has room"),
        pytest.param(SOON, taking(c3=2, c4=3), id="another has room, as the one beside another copy has"),
        pytest.param("no process waits", (*taking(c3=1, c4=2), THREE), id="one is missing"),
        pytest.param(
            SOON,
            (*taking(c3=1, c4=2), THREE, a_pool(PoolProcess("h4", NodeOffer()))),
            id="one is missing, and one waits",
        ),
        pytest.param(
            "no process fits: no process of the pool is of group gpu (yarn.container.label, --group)",
            (of_job(policy=PlannerPolicy(demand=Demand(group="gpu"))), THREE),
            id="none will ever do",
        ),
        pytest.param("no process waits", (of_view(containers={}),), id="none is there"),
        pytest.param(SOON, (*taking(c3=1, c4=2), of_view(cells={})), id="on YARN"),
    ],
)
def test_why_a_copy_of_a_mixed_job_has_no_place(
    mixed_pair: ClusterView, why: str, changes: tuple[Change, ...]
) -> None:
    second = ProcessorId("job", "main", 1)
    view = changed(
        mixed_pair,
        a_pool(PoolProcess("h1", NodeOffer(), is_free=False)),
        of_records(SECOND, placed={0: "c4"}),
        *changes,
    )
    assert short(view, of_view(unsettled=frozenset({second})))[-1] == f"copy 1: {why}"


def test_a_mixed_job_says_why_it_keeps_more_containers_than_it_asks_for(mixed: ClusterView) -> None:
    kept = (of_model(containers=2), a_pool(PoolProcess("h1", NodeOffer())), *taking(c5=2))
    (found,) = statuses(turned(mixed, *kept))
    assert isinstance(found, WriteStatus)
    assert "3 containers are kept" in " ".join(found.reasons)


def test_a_processor_that_lacks_nothing_or_is_parked_hides_no_other(three: ClusterView) -> None:
    processors = [*three.jobs["job"].model.processors]
    every = of_view(unsettled=frozenset({ProcessorId("first", "main", 0), *processors}))
    model = three.jobs["job"].model.parking(processors[0], Reason(FailureReason.POISON))
    view = changed(three, of_model(processors=model.processors), of_records(*TASKS[2], placed={0: "c9"}))
    first = replace(view.jobs["job"], name="first", model=JobModel("first", {}))
    view = changed(view, of_view(jobs={"first": first, "job": view.jobs["job"]}), every)
    writing = of_view(writing={TASKS[1][0]: "1-9"})
    found = [each for each in statuses(turned(view, writing)) if isinstance(each, WriteStatus)][-1]
    assert [str(each) for each in found.lacks] == [
        "job/main:0: parked: ",
        "job/main:2: copy 1: its container on h6 is live",
    ]
