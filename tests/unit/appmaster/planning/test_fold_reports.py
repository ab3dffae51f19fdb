"""What the view learns from the heartbeats and the reports of containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.fold.apply import apply
from appmaster.planning.state import events as happened
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.model import Slot, SpareSlotId
from appmaster.planning.state.reasons import Loss, Setback, SetbackKind
from appmaster.planning.state.view import (
    ClusterView,
    Container,
    Failover,
    LostActive,
    Presence,
    ReplicaProgress,
    Trouble,
    TroubleKind,
)
from standby.shared.model import Fault, InputFailures, Phase, ReplicaId, ReplicaStatus, Role, SlotId, TaskId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    PROCESSOR,
    SECOND,
    SLOT,
    Change,
    changed,
    free,
    of_container,
    of_holder,
    of_job,
    of_status,
    of_view,
    policy,
    suspected,
    unchanged,
)

AT_MS = 12_000
OTHER = ANOTHER.processor
SPARE = SpareSlotId("job", 0)


# ---- heartbeats ----

HEARD: Mapping[str, tuple[Presence, Change]] = {
    "it is live": (Presence.LIVE, unchanged),
    "its stream broke": (Presence.LIVE, of_holder(0, presence=Presence.BROKEN)),
    "it was silent": (Presence.LIVE, suspected(0)),
    "it was lost before this leader": (Presence.LIVE, of_holder(0, presence=Presence.SUSPECT)),
    "its replica failed": (Presence.SUSPECT, suspected(0, Loss.REPLICA_FAILED)),
    "it has not connected": (Presence.EXPECTED, of_holder(0, presence=Presence.EXPECTED)),
    "it is told to exit": (Presence.LEAVING, of_holder(0, presence=Presence.LEAVING)),
}


def test_a_heartbeat_ends_the_silence_of_a_container(whole: ClusterView) -> None:
    """One that comes back by it has the actives again that were not replaced, and is looked at again."""
    for case, (presence, change) in HEARD.items():
        silent = {"looks": 3, "unanswered": 2, "still_since_ms": 700, "still_ms": 800, "at_disk_ms": 900}
        missed = {PROCESSOR: LostActive("c4", Loss.SILENT, 500), OTHER: LostActive("c8", Loss.SILENT, 500)}
        view = changed(whole, change, of_holder(0, **silent), of_view(lost_actives=missed))
        known = view.containers["c4"]
        after = apply(view, happened.HeartbeatReceived("c4", known.incarnation, AT_MS))
        comes_back = known.presence is not presence
        assert after.containers["c4"] == replace(
            known,
            presence=presence,
            since_ms=AT_MS if comes_back else known.since_ms,
            heard_ms=AT_MS,
            looks=0,
            unanswered=0,
            still_since_ms=0,
            still_ms=0,
            at_disk_ms=0,
        ), case
        assert after.lost_actives.keys() == ({OTHER} if comes_back else {PROCESSOR, OTHER}), case
        assert after.unsettled == ({PROCESSOR} if comes_back else set()), case


def test_a_process_that_speaks_although_it_was_given_up_is_an_orphan(whole: ClusterView) -> None:
    after = apply(whole, happened.HeartbeatReceived("c9", 9, AT_MS))
    orphan = Container("c9", "", Presence.ORPHAN, AT_MS, incarnation=9, heard_ms=AT_MS)
    assert after.containers == {**whole.containers, "c9": orphan}


# ---- reports ----


def report(view: ClusterView, container: str = "c5", **changes: Any) -> happened.ReportReceived:
    """Return a report of a container that is as in the view."""
    known = view.containers[container]
    event = happened.ReportReceived(
        container,
        known.incarnation,
        known.applied,
        tuple(known.statuses.values()),
        known.is_warm,
        known.rss_bytes,
        AT_MS,
        known.revisions,
        known.is_leaving,
    )
    return replace(event, **changes)


def test_a_container_is_as_it_reports(whole: ClusterView) -> None:
    replica = ReplicaId(FIRST, 1)
    failed = ReplicaStatus(replica, Role.ACTIVE, Phase.FAILED, 1)
    failing = ReplicaStatus(
        ReplicaId(SECOND, 1), Role.ACTIVE, Phase.ACTIVE, 1, failures=InputFailures(10, 1, "x")
    )
    event = happened.ReportReceived(
        "c5",
        whole.containers["c5"].incarnation,
        7,
        (failed, failing),
        warm=True,
        rss_bytes=99,
        at_ms=AT_MS,
        revisions={"job": 2},
        is_leaving=True,
    )
    after = apply(whole, event)
    assert after.containers["c5"] == replace(
        whole.containers["c5"],
        heard_ms=AT_MS,
        applied=7,
        statuses={replica: failed, failing.replica: failing},
        standing={},
        troubles=(Trouble(failing.replica, TroubleKind.FAILING, "x"),),
        has_ended=True,
        revisions={"job": 2},
        is_warm=True,
        is_leaving=True,
        rss_bytes=99,
    )


#: Whether such a report unsettles what has a copy in the container of copy 1, after these changes.
REPORTED: Mapping[str, tuple[bool, Change, Change]] = {
    "nothing is new": (False, unchanged, unchanged),
    "offsets are": (False, unchanged, of_status(1, FIRST, applied=99, end=99)),
    "its phase is": (True, unchanged, of_status(1, FIRST, phase=Phase.RESTORING)),
    "its lag is, within the bound": (False, unchanged, of_status(1, FIRST, lag_ms=500)),
    "it is not within the bound": (True, unchanged, of_status(1, FIRST, lag_ms=501)),
    "it is within the bound": (True, of_status(1, FIRST, lag_ms=501), of_status(1, FIRST, lag_ms=500)),
    "its lag is known": (True, of_status(1, FIRST, lag_ms=None), of_status(1, FIRST, lag_ms=501)),
    "its epoch is": (True, unchanged, of_status(1, FIRST, epoch=2)),
    "failures are": (True, unchanged, of_status(1, FIRST, failures=InputFailures(10, 1))),
    "it is prepared": (True, unchanged, of_status(1, FIRST, is_prepared=True)),
    "the assignment is applied": (True, of_holder(1, applied=6, sent=7), of_holder(1, applied=7)),
    "an earlier one is": (False, of_holder(1, applied=5, sent=7), of_holder(1, applied=6)),
    "its process is asked to end": (True, unchanged, of_holder(1, is_leaving=True)),
    "it has loaded a revision": (True, unchanged, of_holder(1, revisions={"job": 2})),
    "it makes no progress": (True, of_status(1, FIRST, role=Role.ACTIVE, phase=Phase.FENCING), unchanged),
}


def test_which_reports_call_for_a_decision(whole: ClusterView) -> None:
    for case, (unsettles, before, now) in REPORTED.items():
        view = changed(whole, policy(lag_time_ms=500), before)
        after = apply(view, report(now(view)))
        assert after.unsettled == ({PROCESSOR} if unsettles else set()), case


def test_a_report_shows_how_a_failover_goes_on(whole: ClusterView) -> None:
    failover = Failover(PROCESSOR, "gone", Loss.SILENT, 0, "c4", 500, (FIRST,), recorded_ms=600)
    view = of_view(failovers={PROCESSOR: failover})(whole)
    assert not apply(view, report(view, "c4")).failovers


CAN = ReplicaProgress(True, 0, (), AT_MS)

#: What is kept of a replica, given its status.
PROGRESS: Mapping[str, tuple[ReplicaProgress | None, Mapping[str, Any]]] = {
    "it could take over": (CAN, {}),
    "it does not know the end": (None, {"lag_ms": None}),
    "it restores": (None, {"phase": Phase.RESTORING}),
    "it is active": (None, {"role": Role.ACTIVE, "phase": Phase.ACTIVE}),
    "it is active, and cut off": (
        ReplicaProgress(False, 1, (10, 10), AT_MS),
        {"role": Role.ACTIVE, "phase": Phase.ACTIVE, "is_cut_off": True},
    ),
    "it becomes active": (
        ReplicaProgress(False, 2, (8, 9), AT_MS),
        {"role": Role.ACTIVE, "phase": Phase.DRAINING, "epoch": 2, "applied": 8, "input_committed": 9},
    ),
    "it restores, to become active": (
        ReplicaProgress(False, 2, (), AT_MS),
        {"role": Role.ACTIVE, "phase": Phase.RESTORING, "epoch": 2, "applied": 8},
    ),
    "it has failed": (None, {"role": Role.ACTIVE, "phase": Phase.FAILED}),
}


@pytest.mark.parametrize(("progress", "status"), PROGRESS.values(), ids=PROGRESS)
@pytest.mark.parametrize("before", [None, CAN, ReplicaProgress(True, 0, (), 700)])
def test_since_when_a_replica_has_been_in_its_condition(
    whole: ClusterView,
    before: ReplicaProgress | None,
    progress: ReplicaProgress | None,
    status: Mapping[str, Any],
) -> None:
    replica = ReplicaId(FIRST, 1)
    view = of_holder(1, standing={} if before is None else {replica: before})(whole)
    after = apply(view, report(of_status(1, FIRST, **status)(view)))
    is_as_before = progress == CAN and before is not None
    assert after.containers["c5"].standing.get(replica) == (before if is_as_before else progress)


def test_an_active_stands_still_since_anything_of_it_changed(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[int, ReplicaProgress]] = {
        "nothing": (700, ReplicaProgress(False, 2, (8, 9), 700)),
        "it replays": (AT_MS, ReplicaProgress(False, 2, (7, 9), 700)),
        "it commits": (AT_MS, ReplicaProgress(False, 2, (8, 8), 700)),
        "its epoch": (AT_MS, ReplicaProgress(False, 1, (8, 9), 700)),
    }
    for case, (since_ms, before) in cases.items():
        view = of_holder(1, standing={ReplicaId(FIRST, 1): before})(whole)
        status = {
            "role": Role.ACTIVE,
            "phase": Phase.DRAINING,
            "epoch": 2,
            "applied": 8,
            "input_committed": 9,
        }
        after = apply(view, report(of_status(1, FIRST, **status)(view)))
        assert after.containers["c5"].standing[ReplicaId(FIRST, 1)].since_ms == since_ms, case


WORKED = of_status(1, FIRST, role=Role.ACTIVE, phase=Phase.ACTIVE, epoch=2)
WIPED = ReplicaProgress(False, 2, (), 700, has_lost_state=True)

#: What was known of a replica that restores as the active of epoch 2, and whether it has lost its state.
LOSING: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "it was active": (True, (WORKED,)),
    "it was becoming active": (True, (WORKED, of_status(1, FIRST, phase=Phase.DRAINING))),
    "it was active under another epoch": (False, (WORKED, of_status(1, FIRST, epoch=1))),
    "it was a standby": (False, (of_status(1, FIRST, epoch=2),)),
    "it was failed": (False, (WORKED, of_status(1, FIRST, phase=Phase.FAILED))),
    "it had lost it": (True, (of_holder(1, standing={ReplicaId(FIRST, 1): WIPED}),)),
    "it had lost that of another epoch": (
        False,
        (of_holder(1, standing={ReplicaId(FIRST, 1): replace(WIPED, epoch=1)}),),
    ),
}


@pytest.mark.parametrize("phase", [Phase.OPENING, Phase.RESTORING])
@pytest.mark.parametrize(("is_lost", "before"), LOSING.values(), ids=LOSING)
def test_when_an_active_has_lost_its_state(
    whole: ClusterView, phase: Phase, is_lost: bool, before: tuple[Change, ...]
) -> None:
    view = changed(whole, *before)
    now = of_status(1, FIRST, role=Role.ACTIVE, phase=phase, epoch=2, applied=8)(view)
    found = apply(view, report(now)).containers["c5"].standing[ReplicaId(FIRST, 1)]
    assert found.has_lost_state is is_lost


def test_an_active_that_restores_has_made_no_progress_since_it_began(whole: ClusterView) -> None:
    view = of_holder(1, standing={ReplicaId(FIRST, 1): WIPED})(whole)
    for applied in (None, 7, 8):
        now = of_status(1, FIRST, role=Role.ACTIVE, phase=Phase.RESTORING, epoch=2, applied=applied)(view)
        assert apply(view, report(now)).containers["c5"].standing[ReplicaId(FIRST, 1)] == WIPED


# ---- failed requests for its slot ----

IN_ROW = Attempts((700,), 800, 3, Setback(SetbackKind.REFUSED), move_not_before_ms=900, moves_in_row=2)

SPARE_ONE, WARM = free("c9", "h4", SPARE), of_container("c9", is_warm=True)
RESTORE = tuple(of_status(1, each, phase=Phase.RESTORING) for each in (FIRST, SECOND))

#: The container that reports, its slot, and whether its slot has a container that works.
SERVING: Mapping[str, tuple[bool, str, Slot, tuple[Change, ...]]] = {
    "a standby in sync": (True, "c5", SlotId(PROCESSOR, 1), ()),
    "an active": (True, "c4", SLOT, ()),
    "a standby that restores": (False, "c5", SlotId(PROCESSOR, 1), RESTORE),
    "a warm container without replicas": (False, "c9", SLOT, (free("c9", "h4"), WARM)),
    "a spare container that starts": (False, "c9", SPARE, (SPARE_ONE,)),
    "a warm spare container": (True, "c9", SPARE, (SPARE_ONE, WARM)),
}


def test_failures_in_a_row_end_with_a_container_that_works(whole: ClusterView) -> None:
    for case, (serves, container, slot, changes) in SERVING.items():
        view = changed(whole, of_view(attempts={slot: IN_ROW, ANOTHER: IN_ROW}), *changes)
        after = apply(view, report(view, container)).attempts
        assert after == {slot: replace(IN_ROW, in_row=0) if serves else IN_ROW, ANOTHER: IN_ROW}, case


def test_a_container_of_no_known_slot_ends_no_failures(whole: ClusterView) -> None:
    view = changed(whole, free("c9", "h4", None), of_view(attempts={ANOTHER: IN_ROW}))
    assert apply(view, report(view, "c9", warm=True)).attempts == {ANOTHER: IN_ROW}


# ---- code that cannot be used, and tracebacks ----

REFUSED = of_status(1, SECOND, phase=Phase.FAILED, fault=Fault.REFUSED, detail="no module x")
COMMITS = of_status(1, SECOND, phase=Phase.ACTIVE, first_commit_ms=900)
#: Its first replica is of a job that is gone.
STRANGE = of_status(1, FIRST, replica=ReplicaId(TaskId("gone", "main", 0), 1))

OTHER_FAULT = of_status(1, SECOND, phase=Phase.FAILED, fault=Fault.OTHER, detail="x")
NONE, ONCE, TWICE = (0, ""), (1, "no module w"), (2, "no module w")

#: How many containers in a row could not use the code, and what the last one said.
REFUSALS: Mapping[str, tuple[tuple[int, str], tuple[int, str], Change, tuple[Change, ...]]] = {
    "it cannot": (NONE, (1, "no module x"), unchanged, (REFUSED,)),
    "it cannot, nor could another": (ONCE, (2, "no module x"), unchanged, (REFUSED,)),
    "it said so before": (ONCE, ONCE, REFUSED, ()),
    "it could not use an earlier revision": (NONE, NONE, of_job(revision=2), (REFUSED,)),
    "it failed of something else": (NONE, NONE, unchanged, (OTHER_FAULT,)),
    "it tries again": (ONCE, ONCE, unchanged, (of_status(1, SECOND, fault=Fault.REFUSED, detail="x"),)),
    "it commits": (TWICE, NONE, unchanged, (COMMITS, STRANGE)),
    "it is active, and has not committed": (
        TWICE,
        TWICE,
        unchanged,
        (of_status(1, SECOND, phase=Phase.ACTIVE),),
    ),
    "it had committed": (TWICE, TWICE, unchanged, (of_status(1, SECOND, first_commit_ms=900),)),
    "it commits with an earlier revision": (TWICE, TWICE, of_job(revision=2), (COMMITS,)),
}


def test_how_many_containers_in_a_row_cannot_use_the_code_of_a_job(whole: ClusterView) -> None:
    for case, (before, after, change, now) in REFUSALS.items():
        refused, refusal = before
        view = changed(
            whole, of_job(refused=refused, refusal=refusal), of_holder(1, revisions={"job": 1}), change
        )
        job = apply(view, report(changed(view, *now))).jobs["job"]
        assert (job.refused, job.refusal) == after, case


def test_what_a_job_that_is_gone_refuses_is_not_counted(whole: ClusterView) -> None:
    now = report(changed(whole, STRANGE))
    refusing = tuple(replace(each, phase=Phase.FAILED, fault=Fault.REFUSED) for each in now.replicas)
    view = of_holder(1, revisions={"job": 1, "gone": 1})(whole)
    after = apply(view, report(view, replicas=refusing))
    assert {name: job.refused for name, job in after.jobs.items()} == {"job": 1}


FAILS = {"phase": Phase.ACTIVE, "failures": InputFailures(10, 1)}
OVERCOME = {"phase": Phase.ACTIVE}

#: The traceback that the job had, that of the replica, and that of the job afterwards.
TRACEBACKS: Mapping[str, tuple[str, str | None, str, Mapping[str, Any], tuple[Change, ...]]] = {
    "its code raises": ("", "", "new", {**FAILS, "traceback": "new"}, ()),
    "its code raises something else": ("old", "old", "new", {**FAILS, "traceback": "new"}, ()),
    "a replica beside that of a job that is gone": ("", "", "new", {**FAILS, "traceback": "new"}, (STRANGE,)),
    "it is overcome": ("old", "old", "", OVERCOME, ()),
    "it fails, and has no traceback": ("old", "old", "old", FAILS, ()),
    "it is not active any more": ("old", "old", "old", {"phase": Phase.RESTORING}, ()),
    "another replica's is the last one": ("old", "other", "old", OVERCOME, ()),
    "it has just come": ("old", None, "old", OVERCOME, ()),
    "nothing had failed": ("", "", "", OVERCOME, ()),
}


def test_a_job_has_the_last_traceback_of_its_code_until_it_is_overcome(whole: ClusterView) -> None:
    for case, (before, had, after, status, changes) in TRACEBACKS.items():
        view = changed(whole, of_job(last_traceback=before), of_status(1, SECOND, traceback=had or ""))
        now = report(changed(view, of_status(1, SECOND, **{"traceback": "", **status}), *changes))
        if had is None:
            view = of_holder(1, statuses={})(view)
        assert apply(view, now).jobs["job"].last_traceback == after, case
