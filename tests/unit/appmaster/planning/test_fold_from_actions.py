"""What the view records of each started action, so that the next turn does not plan it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.fold.from_actions import start
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import DecisionKind, Outcome
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import JobState, Lack, PlannerPolicy
from appmaster.planning.state.model import SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.reasons import FailureReason, HandoverMotive, Loss, Reason, Setback, SetbackKind
from appmaster.planning.state.view import (
    ClusterView,
    Command,
    ContainerRequest,
    EndingContainer,
    Failover,
    Handover,
    LostActive,
    Operation,
    Presence,
    Rebalancing,
    RequestKind,
    RequestState,
)
from standby.shared.model import InputFailures, ProcessorId, SlotId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    MIXED,
    PROCESSOR,
    SECOND,
    SLOT,
    THIRD,
    Change,
    changed,
    decision,
    free,
    of_container,
    of_holder,
    of_job,
    of_records,
    of_view,
    policy,
    unchanged,
    with_another,
    without_container,
)

AT_MS = 9_000
OTHER = ANOTHER.processor


# ---- records ----


def test_a_decision_is_under_way_until_its_records_are_written(whole: ClusterView) -> None:
    failures = InputFailures(10, 1)
    view = changed(
        whole, of_view(writing={THIRD: "1-1"}, crashes={FIRST: failures, THIRD: failures}, decisions=8)
    )
    after = start(view, decision(view, DecisionKind.FAILURES), AT_MS)
    assert after.writing == {FIRST: "1-9", SECOND: "1-9", THIRD: "1-1"}
    assert after.crashes == {THIRD: failures}
    assert after.decisions == 9
    assert (after.bindings, after.in_sync_ms, after.failovers) == ({}, {}, {})


def test_a_container_waits_for_the_decision_that_gives_it_tasks(whole: ClusterView) -> None:
    after = start(whole, decision(whole, DecisionKind.BIND, container="c5"), AT_MS)
    assert after.bindings == {"1-9": "c5"}
    assert {each.id: each.binding for each in after.containers.values() if each.binding} == {"c5": "1-9"}
    gone = start(whole, decision(whole, DecisionKind.BIND, container="gone"), AT_MS)
    assert (gone.bindings, gone.containers) == ({}, whole.containers)


def test_the_time_of_the_last_write_of_an_in_sync_set_is_kept(whole: ClusterView) -> None:
    assert start(whole, decision(whole, DecisionKind.IN_SYNC), AT_MS).in_sync_ms == {PROCESSOR: AT_MS}


def test_a_failover_begins_with_its_decision(whole: ClusterView) -> None:
    promotion = decision(whole, DecisionKind.FAILOVER, active=1, epoch=2)
    assert start(whole, promotion, AT_MS).failovers.keys() == {PROCESSOR}


WAITING = Attempts((8_000,), 20_000, 3, Setback(SetbackKind.REFUSED))


def test_the_host_of_a_displaced_standby_is_requested_at_once(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[DecisionKind, int, Attempts | None, Attempts | None]] = {
        "it waits": (DecisionKind.DISPLACE, 0, WAITING, replace(WAITING, not_before_ms=0, in_row=0)),
        "nothing had failed": (DecisionKind.DISPLACE, 0, None, None),
        "another copy is active": (DecisionKind.DISPLACE, 1, WAITING, WAITING),
        "no standby is displaced": (DecisionKind.RESTORE, 0, WAITING, WAITING),
    }
    for case, (kind, active, known, after) in cases.items():
        view = of_view(attempts={} if known is None else {SLOT: known})(whole)
        displaced = decision(view, kind, tasks=(FIRST,), active=active)
        assert start(view, displaced, AT_MS).attempts.get(SLOT) == after, case


# ---- jobs ----


def test_what_is_done_for_a_job_is_known(whole: ClusterView) -> None:
    model = todo.WriteModel("job", whole.jobs["job"].model, "more containers")
    cases: Mapping[str, tuple[todo.Action, Mapping[str, Any], Mapping[str, Any]]] = {
        "its model is written": (model, {}, {"is_modelling": True}),
        "its tasks are fenced": (todo.FenceTasks(3, "job", (FIRST, SECOND)), {}, {"fence": 3}),
        "its fence is waived": (
            todo.WaiveFence("job"),
            {"fence": 3, "fencing_error": "no broker"},
            {"fence": 0, "is_fenced": True, "fencing_error": ""},
        ),
    }
    for case, (action, before, after) in cases.items():
        view = of_job(**before)(whole)
        assert start(view, action, AT_MS).jobs["job"] == replace(view.jobs["job"], **after), case


FAILED = Reason(FailureReason.POISON, "poison")
EARLIER = Reason(FailureReason.TOO_OFTEN, "too often")

#: The status that is written, the job before and after, and whether its processors are unsettled.
STATUSES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], bool]] = {
    "it is deployed": (
        {"state": "deployed"},
        {"was_deployed": False, "last_traceback": "Traceback"},
        {"state": JobState.DEPLOYED, "was_deployed": True, "last_traceback": ""},
        False,
    ),
    "it is deployed, and its code fails": (
        {"state": "deployed", "traceback": "Traceback"},
        {"last_traceback": "Traceback"},
        {"state": JobState.DEPLOYED, "traceback": "Traceback"},
        False,
    ),
    "it is not deployed yet": (
        {"state": "incomplete"},
        {"was_deployed": False, "last_traceback": "Traceback"},
        {"state": JobState.INCOMPLETE},
        False,
    ),
    "it is not deployed any more": (
        {"state": "incomplete", "reasons": ("a", "b"), "lacks": (Lack(PROCESSOR, "a"),)},
        {"was_deployed": True},
        {"state": JobState.INCOMPLETE, "reasons": ("a", "b"), "lacks": (Lack(PROCESSOR, "a"),)},
        False,
    ),
    "it fails": (
        {"state": "failed", "failure": FAILED},
        {},
        {"state": JobState.FAILED, "failure": FAILED},
        True,
    ),
    "it had failed": (
        {"state": "failed", "failure": FAILED, "is_over": True},
        {"failure": EARLIER},
        {"state": JobState.FAILED, "is_reported_over": True},
        False,
    ),
}


def test_what_a_status_changes(whole: ClusterView) -> None:
    for case, (status, before, after, unsettles) in STATUSES.items():
        view = of_job(**before)(whole)
        written = start(view, todo.WriteStatus("job", **{"reasons": (), **status}), AT_MS)
        assert written.jobs["job"] == replace(view.jobs["job"], **after), case
        assert written.unsettled == ({PROCESSOR} if unsettles else set()), case


# ---- losses ----


@pytest.mark.parametrize("may_return", [True, False])
def test_a_lost_container_has_no_roles_and_the_host_of_a_silent_one_is_avoided(
    whole: ClusterView, *, may_return: bool
) -> None:
    cases: Mapping[str, tuple[str, Loss, set[str]]] = {
        "it is silent": ("c5", Loss.SILENT, {"h2"}),
        "it lost its stream": ("c5", Loss.NO_STREAM, set()),
        "it is silent and has no copy": ("c9", Loss.SILENT, set()),
    }
    for case, (container, loss, avoided) in cases.items():
        view = changed(whole, free("c9", "h4"))
        after = start(view, todo.DeclareLost(container, Reason(loss), may_return), AT_MS)
        assert after.logged_lost == {container}, case
        assert after.avoided.keys() == avoided, case
        presence = {each.id: each.presence for each in after.containers.values()}
        assert presence.get(container) == (Presence.SUSPECT if may_return else None), case


def test_a_leader_doubts_itself_for_the_longest_time_out_of_its_jobs(whole: ClusterView) -> None:
    cases: tuple[tuple[tuple[int, ...], int], ...] = (((700, 900), 900), ((900, 700), 900), ((), 2_000))
    for timeouts_ms, longest_ms in cases:
        policies = {str(each): PlannerPolicy(heartbeat_timeout_ms=each) for each in timeouts_ms}
        jobs = {name: replace(whole.jobs["job"], policy=each) for name, each in policies.items()}
        doubting = start(of_view(jobs=jobs)(whole), todo.DoubtSelf(3, 4), AT_MS)
        assert doubting.self_doubt_until_ms == AT_MS + longest_ms, timeouts_ms


def test_an_active_that_was_lost_without_a_leader_is_missed_and_its_loss_is_logged_once(
    whole: ClusterView,
) -> None:
    missed = LostActive("gone", Loss.GONE_BEFORE_TAKEOVER, 500)
    view = of_view(lost_actives={OTHER: missed}, logged_lost=frozenset({"c1"}))(whole)
    after = start(view, todo.MissActive(PROCESSOR, missed), AT_MS)
    assert after.lost_actives == {PROCESSOR: missed, OTHER: missed}
    assert after.logged_lost == {"c1", "gone"}


# ---- hand-overs and the spread of actives ----


def prepared(motive: HandoverMotive) -> Change:
    """Have a hand-over of both processors be prepared."""
    handover = Handover(1, "c5", 500, Reason(motive))
    return of_view(handovers={PROCESSOR: handover, OTHER: handover})


def test_a_hand_over_is_prepared(whole: ClusterView) -> None:
    reason = Reason(HandoverMotive.ASKED)
    after = start(whole, todo.PrepareHandover(PROCESSOR, 1, "c5", reason), AT_MS)
    assert after.handovers == {PROCESSOR: Handover(1, "c5", AT_MS, reason)}
    assert after.unsettled == {PROCESSOR}


REBALANCE = prepared(HandoverMotive.REBALANCE)

GIVEN_UP: Mapping[str, tuple[Mapping[str, Rebalancing], Rebalancing, Change]] = {
    "the first in vain": ({"job": Rebalancing(moves=1)}, Rebalancing(None, AT_MS + 200, 1, 1), REBALANCE),
    "the fifth": ({"job": Rebalancing(in_vain=4)}, Rebalancing(None, AT_MS + 3_200, 0, 5), REBALANCE),
    "the sixth": ({"job": Rebalancing(in_vain=5)}, Rebalancing(None, AT_MS + 3_200, 0, 6), REBALANCE),
    "the first, although its spread was even": (
        {},
        Rebalancing(None, AT_MS + 200, 0, 1),
        # It is settled: an unsettled one has its job in the table.
        lambda view: of_view(unsettled=frozenset({PROCESSOR}))(REBALANCE(view)),
    ),
    "it was to spread nothing": (
        {"job": Rebalancing(moves=1)},
        Rebalancing(moves=1),
        prepared(HandoverMotive.ASKED),
    ),
    "it is over already": ({"job": Rebalancing(moves=1)}, Rebalancing(moves=1), unchanged),
}


def test_after_a_hand_over_in_vain_the_next_one_that_spreads_actives_waits(whole: ClusterView) -> None:
    for case, (before, after, change) in GIVEN_UP.items():
        view = changed(whole, policy(rebalance_pause_ms=100), of_view(rebalancing=before), change)
        given_up = start(view, todo.ForgetHandover(PROCESSOR, "its standby is gone"), AT_MS)
        left = {each: handover for each, handover in view.handovers.items() if each == OTHER}
        assert given_up.handovers == left, case
        assert given_up.rebalancing == {"job": after}, case
        assert given_up.unsettled == {PROCESSOR}, case


def test_a_hand_over_of_a_job_that_is_gone_is_forgotten(whole: ClusterView) -> None:
    view = changed(whole, REBALANCE, of_view(jobs={}, rebalancing={}))
    given_up = start(view, todo.ForgetHandover(PROCESSOR, "its job is gone"), AT_MS)
    assert given_up.handovers.keys() == {OTHER}
    assert not given_up.rebalancing


def test_a_job_is_whole_once_all_its_processors_are_settled(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[set[ProcessorId], Mapping[str, Rebalancing], Mapping[str, Rebalancing]]] = {
        "all are": ({PROCESSOR}, {"job": Rebalancing(moves=1)}, {"job": Rebalancing(AT_MS, moves=1)}),
        "another is not": ({PROCESSOR, OTHER}, {"job": Rebalancing(moves=1)}, {"job": Rebalancing(moves=1)}),
        "the spread is not to be checked": ({PROCESSOR}, {}, {}),
    }
    for case, (unsettled, before, after) in cases.items():
        rest = Rebalancing(moves=2)
        view = of_view(unsettled=frozenset(unsettled), rebalancing={**before, "other": rest})(whole)
        settled = start(view, todo.Settle((PROCESSOR,)), AT_MS)
        assert settled.unsettled == unsettled - {PROCESSOR}, case
        assert settled.rebalancing == {**after, "other": rest}, case


RESTING: Mapping[str, tuple[Mapping[str, Rebalancing], int | None, Mapping[str, Rebalancing]]] = {
    "it is looked at later": ({"job": Rebalancing(700, 800, 1)}, 9_500, {"job": Rebalancing(700, 9_500, 1)}),
    "it is even": ({"job": Rebalancing(700, 800, 1), "other": Rebalancing()}, None, {"other": Rebalancing()}),
    "it is even, but not whole": (
        {"job": Rebalancing(None, 800, 1, is_asked=True)},
        None,
        {"job": Rebalancing()},
    ),
    "it is not to be checked": ({}, 9_500, {}),
}


def test_when_the_spread_of_a_job_is_checked_again(whole: ClusterView) -> None:
    for case, (before, until_ms, after) in RESTING.items():
        view = of_view(rebalancing=before)(whole)
        assert start(view, todo.RestRebalancing("job", until_ms), AT_MS).rebalancing == after, case


# ---- commands ----


def test_an_answered_command_is_over_and_clears_failures(whole: ClusterView) -> None:
    first, second = (Command(number, Operation.UNPARK, PROCESSOR) for number in (1, 2))
    view = changed(whole, of_view(commands=(first, second), attempts={SLOT: WAITING, ANOTHER: WAITING}))
    after = start(view, todo.Answer(1, "unparked", clears=(SLOT,)), AT_MS)
    assert after.commands == (second,)
    assert after.attempts == {ANOTHER: WAITING}
    assert after.rebalancing == whole.rebalancing


def test_a_requested_rebalance_begins_without_what_was_in_vain(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[Mapping[str, Rebalancing], int | None]] = {
        "nothing was to be checked": ({}, AT_MS),
        "it is whole": ({"job": Rebalancing(700, 20_000, 2, 3)}, 700),
        "it is not whole": ({"job": Rebalancing(None, 20_000, 2, 3)}, None),
    }
    for case, (before, whole_ms) in cases.items():
        view = of_view(rebalancing=before)(whole)
        after = start(view, todo.Answer(1, "started", rebalances="job"), AT_MS)
        assert after.rebalancing == {"job": Rebalancing(whole_ms, is_asked=True)}, case


# ---- containers ----


def test_a_spare_container_serves_the_slot_that_takes_it(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[Slot, Change, set[ProcessorId]]] = {
        "a copy's": (SLOT, unchanged, {PROCESSOR}),
        "a copy's of a mixed job": (SLOT, MIXED, {PROCESSOR}),
        "a mixed job's": (SharedSlotId("job", 0), MIXED, {PROCESSOR, OTHER}),
    }
    for case, (slot, change, unsettled) in cases.items():
        view = changed(whole, with_another, free("c9", "h4", SpareSlotId("job", 0)), change)
        after = start(view, todo.TakeSpare("c9", slot), AT_MS)
        assert after.containers["c9"].slot == slot, case
        assert after.unsettled == unsettled, case


ASSIGNMENT = todo.SendAssignment("c5", 5, 7, (), (), "digest")


def test_what_a_container_was_told_and_asked_is_known(whole: ClusterView) -> None:
    left = {"presence": Presence.LEAVING, "since_ms": AT_MS, "farewell": "it is replaced"}
    cases: Mapping[str, tuple[todo.Action, Mapping[str, Any]]] = {
        "what to hold": (ASSIGNMENT, {"sent": 7, "sent_digest": "digest", "sent_ms": AT_MS}),
        "to exit": (todo.SendExit("c5", 5, "it is replaced"), left),
        "whether its port answers": (todo.ProbePort("c5", 5), {"is_probing": True, "probed_ms": AT_MS}),
    }
    for case, (action, changes) in cases.items():
        known = replace(whole.containers["c5"], **changes)
        assert start(whole, action, AT_MS).containers == {**whole.containers, "c5": known}, case


def test_assignments_are_numbered_on_from_the_highest(whole: ClusterView) -> None:
    for sends, then in ((6, 7), (8, 8)):
        assert start(of_view(sends=sends)(whole), ASSIGNMENT, AT_MS).sends == then, sends


def test_a_failover_is_ordered_by_the_first_assignment_after_its_record(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[str, int, int, int]] = {
        "the first one with it": ("c5", 600, 0, AT_MS),
        "a further one": ("c5", 600, 700, 700),
        "its record is not written": ("c5", 0, 0, 0),
        "it is to another container": ("c6", 600, 0, 0),
    }
    for case, (to, recorded_ms, before_ms, ordered_ms) in cases.items():
        failover = Failover(
            PROCESSOR, "gone", Loss.SILENT, 1, to, 500, recorded_ms=recorded_ms, ordered_ms=before_ms
        )
        view = of_view(failovers={PROCESSOR: failover})(whole)
        after = start(view, ASSIGNMENT, AT_MS)
        assert after.failovers == {PROCESSOR: replace(failover, ordered_ms=ordered_ms)}, case


def test_a_container_that_was_given_back_is_being_probed(whole: ClusterView) -> None:
    ending = EndingContainer(5, 500, 20_000)
    view = changed(whole, without_container(1), of_view(ending={"c5": ending}))
    after = start(view, todo.ProbePort("c5", 5), AT_MS)
    assert after.ending == {"c5": replace(ending, probed_ms=AT_MS)}


# ---- requests ----


def test_a_requested_container_is_asked_for(whole: ClusterView) -> None:
    view = of_view(decisions=8)(whole)
    action = todo.RequestContainer(4, SLOT, "h1", RequestKind.PREFERRED, "it was there", cell=2)
    after = start(view, action, AT_MS)
    assert after.requests == {
        4: ContainerRequest(4, SLOT, "h1", RequestKind.PREFERRED, RequestState.ASKING, AT_MS, cell=2)
    }
    assert after.decisions == 9


def asked(
    slot: Slot, kind: RequestKind = RequestKind.NAMED, state: RequestState = RequestState.WAITING
) -> ContainerRequest:
    return ContainerRequest(4, slot, "h1", kind, state, 500)


EXPIRED = Setback(SetbackKind.NOT_GRANTED, "h1", 700)
VACANT, GONE = SlotId(PROCESSOR, 3), SlotId(ProcessorId("gone", "main", 0), 0)
RESERVING = asked(VACANT, RequestKind.RESERVATION)

#: The request, why it is cancelled, the failures of its slot, whether its host is avoided, and when the next standby
#: may be displaced.
CANCELLED: Mapping[
    str, tuple[ContainerRequest, str | Setback, tuple[int, ...] | None, bool, Mapping[ProcessorId, int]]
] = {
    "it was not granted": (asked(VACANT), EXPIRED, (), True, {}),
    "its container did not come": (asked(VACANT, state=RequestState.GRANTED), EXPIRED, (AT_MS,), True, {}),
    "it is not needed": (asked(VACANT), "its slot is taken", None, True, {}),
    "it was for a spare container": (asked(SpareSlotId("job", 0)), EXPIRED, (), False, {}),
    "it was for a mixed job": (asked(SharedSlotId("job", 0)), EXPIRED, (), True, {}),
    "it was to reserve a host": (RESERVING, EXPIRED, (), False, {PROCESSOR: AT_MS + 2_400}),
    "its job is gone": (replace(RESERVING, slot=GONE), EXPIRED, None, False, {}),
}


def test_what_a_cancelled_request_leaves(whole: ClusterView) -> None:
    for case, (cancelled, reason, failures, avoids, no_displacing) in CANCELLED.items():
        rest = replace(asked(ANOTHER), number=5)
        view = changed(
            whole,
            policy(samehost_timeout_ms=0, request_timeout_ms=600),
            of_view(requests={4: cancelled, 5: rest}),
        )
        after = start(view, todo.CancelRequest(4, "s_4", Outcome.EXPIRED, reason, avoid="h1"), AT_MS)
        assert after.requests == {5: rest}, case
        found = after.attempts.get(cancelled.slot)
        assert (found and found.failures_ms) == failures, case
        assert after.avoided.keys() == ({"h1"} if avoids else set()), case
        assert after.no_displacing == no_displacing, case
        is_for_a_copy = isinstance(cancelled.slot, SlotId) and cancelled.slot.processor == PROCESSOR
        assert after.unsettled == ({PROCESSOR} if is_for_a_copy else set()), case


def test_no_host_is_avoided_without_need(whole: ClusterView) -> None:
    view = of_view(requests={4: asked(VACANT)})(whole)
    assert not start(view, todo.CancelRequest(4, "s_4", Outcome.EXPIRED, EXPIRED), AT_MS).avoided


# ---- containers that are given back ----

OF_NO_USE = Setback(SetbackKind.OF_NO_USE, "h4", detail="why")

IN_VAIN: Mapping[str, tuple[Outcome, str, Setback | None, Change]] = {
    "it shares its host": (
        Outcome.SAME_HOST,
        "c9",
        replace(OF_NO_USE, kind=SetbackKind.SAME_HOST),
        unchanged,
    ),
    "its host is drained": (Outcome.DRAINED, "c9", OF_NO_USE, unchanged),
    "its slot is taken": (Outcome.SURPLUS, "c9", OF_NO_USE, unchanged),
    "its job has ended": (Outcome.ENDED, "c9", None, unchanged),
    "its job is gone": (Outcome.SURPLUS, "c9", None, of_view(jobs={})),
    "an earlier leader requested it": (Outcome.SURPLUS, "c9", None, of_container("c9", slot=None)),
    "it is replaced": (Outcome.REPLACED, "c5", None, unchanged),
    "it was lost": (Outcome.LOST, "c5", Setback(SetbackKind.LOST, "h2", detail="lost"), unchanged),
}


def test_when_the_next_request_waits_after_a_container_was_given_back(whole: ClusterView) -> None:
    """None of it spends retry budget."""
    for case, (outcome, container, last, change) in IN_VAIN.items():
        view = changed(whole, free("c9", "h4", VACANT), change)
        after = start(view, todo.ReleaseContainer(container, "s_9", outcome, "why"), AT_MS)
        assert container not in after.containers, case
        assert not after.ending, case
        found = [(each.failures_ms, each.last) for each in after.attempts.values()]
        assert found == ([] if last is None else [((), last)]), case


def test_the_container_of_a_displaced_standby_may_still_run_for_a_while(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[str, bool, Change]] = {
        "it has the displaced standby": ("c5", True, of_records(SECOND, displaced=1)),
        "it has another copy": ("c6", False, of_records(SECOND, displaced=1)),
        "its job is gone": (
            "c5",
            False,
            lambda view: of_view(jobs={})(of_records(SECOND, displaced=1)(view)),
        ),
    }
    for case, (container, is_so, change) in cases.items():
        view = changed(whole, policy(stop_timeout_ms=700), of_holder(1, incarnation=77), change)
        after = start(view, todo.ReleaseContainer(container, "s_9", Outcome.REPLACED, "displaced"), AT_MS)
        assert after.ending == ({container: EndingContainer(77, AT_MS, AT_MS + 700)} if is_so else {}), case
