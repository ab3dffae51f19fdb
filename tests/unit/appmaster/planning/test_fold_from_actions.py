"""What the view records of each started action, so that the next turn does not plan it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.fold.from_actions import start
from appmaster.planning.state import actions as todo
from appmaster.planning.state.actions import DecisionKind, Outcome
from appmaster.planning.state.job import JobState, Lack, PlannerPolicy
from appmaster.planning.state.model import SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.reasons import FailureReason, HandoverMotive, Loss, Reason, Setback, SetbackKind
from appmaster.planning.state.view import (
    Attempts,
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


@pytest.mark.parametrize(("container", "bindings"), [("c5", {"1-9": "c5"}), ("gone", {})])
def test_a_container_waits_for_the_decision_that_gives_it_tasks(
    whole: ClusterView, container: str, bindings: Mapping[str, str]
) -> None:
    after = start(whole, decision(whole, DecisionKind.BIND, container=container), AT_MS)
    assert after.bindings == bindings
    assert {each.id: each.binding for each in after.containers.values() if each.binding} == {
        container: each for each, container in bindings.items()
    }


def test_the_time_of_the_last_write_of_an_in_sync_set_is_kept(whole: ClusterView) -> None:
    assert start(whole, decision(whole, DecisionKind.IN_SYNC), AT_MS).in_sync_ms == {PROCESSOR: AT_MS}


def test_a_failover_begins_with_its_decision(whole: ClusterView) -> None:
    promotion = decision(whole, DecisionKind.FAILOVER, active=1, epoch=2)
    assert start(whole, promotion, AT_MS).failovers.keys() == {PROCESSOR}


WAITING = Attempts((8_000,), 20_000, 3, Setback(SetbackKind.REFUSED))


@pytest.mark.parametrize(
    ("kind", "active", "known", "after"),
    [
        (DecisionKind.DISPLACE, 0, WAITING, replace(WAITING, not_before_ms=0, in_row=0)),
        (DecisionKind.DISPLACE, 0, None, None),
        (DecisionKind.DISPLACE, 1, WAITING, WAITING),
        (DecisionKind.RESTORE, 0, WAITING, WAITING),
    ],
    ids=["it waits", "nothing had failed", "another copy is active", "no standby is displaced"],
)
def test_the_host_of_a_displaced_standby_is_requested_at_once(
    whole: ClusterView, kind: DecisionKind, active: int, known: Attempts | None, after: Attempts | None
) -> None:
    view = of_view(attempts={} if known is None else {SLOT: known})(whole)
    displaced = decision(view, kind, tasks=(FIRST,), active=active)
    assert start(view, displaced, AT_MS).attempts.get(SLOT) == after


# ---- jobs ----


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        pytest.param(todo.FenceTasks(3, "job", (FIRST, SECOND)), {}, {"fence": 3}, id="its tasks are fenced"),
        pytest.param(
            todo.WaiveFence("job"),
            {"fence": 3, "fencing_error": "no broker"},
            {"fence": 0, "is_fenced": True, "fencing_error": ""},
            id="its fence is waived",
        ),
    ],
)
def test_what_is_done_when_a_job_ends_is_known(
    whole: ClusterView, action: todo.Action, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    view = of_job(**before)(whole)
    assert start(view, action, AT_MS).jobs["job"] == replace(view.jobs["job"], **after)


def test_a_model_is_being_written(whole: ClusterView) -> None:
    job = whole.jobs["job"]
    assert start(whole, todo.WriteModel("job", job.model, "more containers"), AT_MS).jobs == {
        "job": replace(job, is_modelling=True)
    }


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


@pytest.mark.parametrize(("status", "before", "after", "unsettles"), STATUSES.values(), ids=STATUSES)
def test_what_a_status_changes(
    whole: ClusterView,
    status: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    unsettles: bool,
) -> None:
    view = of_job(**before)(whole)
    written = start(view, todo.WriteStatus("job", **{"reasons": (), **status}), AT_MS)
    assert written.jobs["job"] == replace(view.jobs["job"], **after)
    assert written.unsettled == ({PROCESSOR} if unsettles else set())


# ---- losses ----


@pytest.mark.parametrize(
    ("container", "loss", "avoided"),
    [("c5", Loss.SILENT, {"h2"}), ("c5", Loss.NO_STREAM, set()), ("c9", Loss.SILENT, set())],
    ids=["it is silent", "it lost its stream", "it is silent and has no copy"],
)
@pytest.mark.parametrize("may_return", [True, False])
def test_a_lost_container_has_no_roles_and_the_host_of_a_silent_one_is_avoided(
    whole: ClusterView, container: str, loss: Loss, avoided: set[str], may_return: bool
) -> None:
    view = changed(whole, free("c9", "h4"))
    after = start(view, todo.DeclareLost(container, Reason(loss), may_return), AT_MS)
    assert after.logged_lost == {container}
    assert after.avoided.keys() == avoided
    presence = {each.id: each.presence for each in after.containers.values()}
    assert presence.get(container) == (Presence.SUSPECT if may_return else None)


@pytest.mark.parametrize(
    ("timeouts_ms", "longest_ms"), [((700, 900), 900), ((900, 700), 900), ((), 2_000)], ids=str
)
def test_a_leader_doubts_itself_for_the_longest_time_out_of_its_jobs(
    whole: ClusterView, timeouts_ms: tuple[int, ...], longest_ms: int
) -> None:
    jobs = {
        str(each): replace(whole.jobs["job"], policy=PlannerPolicy(heartbeat_timeout_ms=each))
        for each in timeouts_ms
    }
    doubting = start(of_view(jobs=jobs)(whole), todo.DoubtSelf(3, 4), AT_MS)
    assert doubting.self_doubt_until_ms == AT_MS + longest_ms


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

GIVEN_UP: Mapping[str, tuple[Rebalancing, Rebalancing, Change]] = {
    "the first in vain": (Rebalancing(moves=1), Rebalancing(None, AT_MS + 200, 1, 1), REBALANCE),
    "the fifth": (Rebalancing(in_vain=4), Rebalancing(None, AT_MS + 3_200, 0, 5), REBALANCE),
    "the sixth": (Rebalancing(in_vain=5), Rebalancing(None, AT_MS + 3_200, 0, 6), REBALANCE),
    "it was to spread nothing": (Rebalancing(moves=1), Rebalancing(moves=1), prepared(HandoverMotive.ASKED)),
    "it is over already": (Rebalancing(moves=1), Rebalancing(moves=1), unchanged),
}


@pytest.mark.parametrize(("before", "after", "change"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_after_a_hand_over_in_vain_the_next_one_that_spreads_actives_waits(
    whole: ClusterView, before: Rebalancing, after: Rebalancing, change: Change
) -> None:
    view = changed(whole, policy(rebalance_pause_ms=100), of_view(rebalancing={"job": before}), change)
    given_up = start(view, todo.ForgetHandover(PROCESSOR, "its standby is gone"), AT_MS)
    assert given_up.handovers == {each: left for each, left in view.handovers.items() if each == OTHER}
    assert given_up.rebalancing == {"job": after}
    assert given_up.unsettled == {PROCESSOR}


def test_the_first_hand_over_in_vain_is_counted_although_the_job_was_even(whole: ClusterView) -> None:
    """A settled processor of a job whose spread is not to be checked: an unsettled one has its job in the table."""
    view = changed(whole, REBALANCE, of_view(rebalancing={}, unsettled=frozenset({PROCESSOR})))
    given_up = start(view, todo.ForgetHandover(PROCESSOR, "its standby is gone"), AT_MS)
    assert given_up.rebalancing["job"].in_vain == 1


def test_a_hand_over_of_a_job_that_is_gone_is_forgotten(whole: ClusterView) -> None:
    view = changed(whole, REBALANCE, of_view(jobs={}, rebalancing={}))
    given_up = start(view, todo.ForgetHandover(PROCESSOR, "its job is gone"), AT_MS)
    assert given_up.handovers.keys() == {OTHER}
    assert not given_up.rebalancing


@pytest.mark.parametrize(
    ("unsettled", "before", "after"),
    [
        pytest.param(
            {PROCESSOR}, {"job": Rebalancing(moves=1)}, {"job": Rebalancing(AT_MS, moves=1)}, id="all are"
        ),
        pytest.param(
            {PROCESSOR, OTHER},
            {"job": Rebalancing(moves=1)},
            {"job": Rebalancing(moves=1)},
            id="another is not",
        ),
        pytest.param({PROCESSOR}, {}, {}, id="the spread is not to be checked"),
    ],
)
def test_a_job_is_whole_once_all_its_processors_are_settled(
    whole: ClusterView,
    unsettled: set[ProcessorId],
    before: Mapping[str, Rebalancing],
    after: Mapping[str, Rebalancing],
) -> None:
    rest = Rebalancing(moves=2)
    view = of_view(unsettled=frozenset(unsettled), rebalancing={**before, "other": rest})(whole)
    settled = start(view, todo.Settle((PROCESSOR,)), AT_MS)
    assert settled.unsettled == unsettled - {PROCESSOR}
    assert settled.rebalancing == {**after, "other": rest}


RESTING: Mapping[str, tuple[Mapping[str, Rebalancing], int | None, Mapping[str, Rebalancing]]] = {
    "it is looked at later": (
        {"job": Rebalancing(700, 800, 1)},
        9_500,
        {"job": Rebalancing(700, 9_500, 1)},
    ),
    "it is even": ({"job": Rebalancing(700, 800, 1), "other": Rebalancing()}, None, {"other": Rebalancing()}),
    "it is even, but not whole": (
        {"job": Rebalancing(None, 800, 1, is_asked=True)},
        None,
        {"job": Rebalancing()},
    ),
    "it is not to be checked": ({}, 9_500, {}),
}


@pytest.mark.parametrize(("before", "until_ms", "after"), RESTING.values(), ids=RESTING)
def test_when_the_spread_of_a_job_is_checked_again(
    whole: ClusterView,
    before: Mapping[str, Rebalancing],
    until_ms: int | None,
    after: Mapping[str, Rebalancing],
) -> None:
    view = of_view(rebalancing=before)(whole)
    assert start(view, todo.RestRebalancing("job", until_ms), AT_MS).rebalancing == after


# ---- commands ----


def test_an_answered_command_is_over_and_clears_failures(whole: ClusterView) -> None:
    first, second = (Command(number, Operation.UNPARK, PROCESSOR) for number in (1, 2))
    view = changed(
        whole,
        of_view(commands=(first, second), attempts={SLOT: WAITING, ANOTHER: WAITING}),
    )
    after = start(view, todo.Answer(1, "unparked", clears=(SLOT,)), AT_MS)
    assert after.commands == (second,)
    assert after.attempts == {ANOTHER: WAITING}
    assert after.rebalancing == whole.rebalancing


@pytest.mark.parametrize(
    ("before", "whole_ms"),
    [
        pytest.param({}, AT_MS, id="nothing was to be checked"),
        pytest.param({"job": Rebalancing(700, 20_000, 2, 3)}, 700, id="it is whole"),
        pytest.param({"job": Rebalancing(None, 20_000, 2, 3)}, None, id="it is not whole"),
    ],
)
def test_a_requested_rebalance_begins_without_what_was_in_vain(
    whole: ClusterView, before: Mapping[str, Rebalancing], whole_ms: int | None
) -> None:
    view = of_view(rebalancing=before)(whole)
    after = start(view, todo.Answer(1, "started", rebalances="job"), AT_MS)
    assert after.rebalancing == {"job": Rebalancing(whole_ms, is_asked=True)}


# ---- containers ----


@pytest.mark.parametrize(
    ("slot", "change", "unsettled"),
    [
        (SLOT, unchanged, {PROCESSOR}),
        (SLOT, MIXED, {PROCESSOR}),
        (SharedSlotId("job", 0), MIXED, {PROCESSOR, OTHER}),
    ],
    ids=["a copy's", "a copy's of a mixed job", "a mixed job's"],
)
def test_a_spare_container_serves_the_slot_that_takes_it(
    whole: ClusterView, slot: Slot, change: Change, unsettled: set[ProcessorId]
) -> None:
    view = changed(whole, with_another, free("c9", "h4", SpareSlotId("job", 0)), change)
    after = start(view, todo.TakeSpare("c9", slot), AT_MS)
    assert after.containers["c9"].slot == slot
    assert after.unsettled == unsettled


@pytest.mark.parametrize(("sends", "then"), [(6, 7), (8, 8)])
def test_an_assignment_is_numbered(whole: ClusterView, sends: int, then: int) -> None:
    view = of_view(sends=sends)(whole)
    after = start(view, todo.SendAssignment("c5", 5, 7, (), (), "digest"), AT_MS)
    assert after.sends == then
    assert after.containers == {
        **view.containers,
        "c5": replace(view.containers["c5"], sent=7, sent_digest="digest", sent_ms=AT_MS),
    }


@pytest.mark.parametrize(
    ("to", "recorded_ms", "before_ms", "ordered_ms"),
    [
        pytest.param("c5", 600, 0, AT_MS, id="the first one with it"),
        pytest.param("c5", 600, 700, 700, id="a further one"),
        pytest.param("c5", 0, 0, 0, id="its record is not written"),
        pytest.param("c6", 600, 0, 0, id="it is to another container"),
    ],
)
def test_a_failover_is_ordered_by_the_first_assignment_after_its_record(
    whole: ClusterView, to: str, recorded_ms: int, before_ms: int, ordered_ms: int
) -> None:
    failover = Failover(
        PROCESSOR, "gone", Loss.SILENT, 1, to, 500, recorded_ms=recorded_ms, ordered_ms=before_ms
    )
    view = of_view(failovers={PROCESSOR: failover})(whole)
    after = start(view, todo.SendAssignment("c5", 5, 7, (), (), "digest"), AT_MS)
    assert after.failovers == {PROCESSOR: replace(failover, ordered_ms=ordered_ms)}


def test_a_container_that_is_told_to_exit_leaves(whole: ClusterView) -> None:
    after = start(whole, todo.SendExit("c5", 5, "it is replaced"), AT_MS)
    assert after.containers["c5"] == replace(
        whole.containers["c5"], presence=Presence.LEAVING, since_ms=AT_MS, farewell="it is replaced"
    )


def test_a_container_is_being_probed(whole: ClusterView) -> None:
    after = start(whole, todo.ProbePort("c5", 5), AT_MS)
    assert after.containers["c5"] == replace(whole.containers["c5"], is_probing=True, probed_ms=AT_MS)


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
VACANT = SlotId(PROCESSOR, 3)

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
    "it was to reserve a host": (
        asked(VACANT, RequestKind.RESERVATION),
        EXPIRED,
        (),
        False,
        {PROCESSOR: AT_MS + 2_400},
    ),
    "its job is gone": (
        asked(SlotId(ProcessorId("gone", "main", 0), 0), RequestKind.RESERVATION),
        EXPIRED,
        None,
        False,
        {},
    ),
}


@pytest.mark.parametrize(
    ("cancelled", "reason", "failures", "avoids", "no_displacing"), CANCELLED.values(), ids=CANCELLED
)
def test_what_a_cancelled_request_leaves(
    whole: ClusterView,
    cancelled: ContainerRequest,
    reason: str | Setback,
    failures: tuple[int, ...] | None,
    avoids: bool,
    no_displacing: Mapping[ProcessorId, int],
) -> None:
    rest = replace(asked(ANOTHER), number=5)
    view = changed(whole, policy(samehost_timeout_ms=600), of_view(requests={4: cancelled, 5: rest}))
    after = start(view, todo.CancelRequest(4, "s_4", Outcome.EXPIRED, reason, avoid="h1"), AT_MS)
    assert after.requests == {5: rest}
    found = after.attempts.get(cancelled.slot)
    assert (found and found.failures_ms) == failures
    assert after.avoided.keys() == ({"h1"} if avoids else set())
    assert after.no_displacing == no_displacing
    is_for_a_copy = isinstance(cancelled.slot, SlotId) and cancelled.slot.processor == PROCESSOR
    assert after.unsettled == ({PROCESSOR} if is_for_a_copy else set())


def test_no_host_is_avoided_without_need(whole: ClusterView) -> None:
    view = of_view(requests={4: asked(VACANT)})(whole)
    assert not start(view, todo.CancelRequest(4, "s_4", Outcome.EXPIRED, EXPIRED), AT_MS).avoided


# ---- containers that are given back ----

IN_VAIN: Mapping[str, tuple[Outcome, str, SetbackKind | None, Change]] = {
    "it shares its host": (Outcome.SAME_HOST, "c9", SetbackKind.SAME_HOST, unchanged),
    "its host is drained": (Outcome.DRAINED, "c9", SetbackKind.OF_NO_USE, unchanged),
    "its slot is taken": (Outcome.SURPLUS, "c9", SetbackKind.OF_NO_USE, unchanged),
    "its job has ended": (Outcome.ENDED, "c9", None, unchanged),
    "its job is gone": (Outcome.SURPLUS, "c9", None, of_view(jobs={})),
    "an earlier leader requested it": (Outcome.SURPLUS, "c9", None, of_container("c9", slot=None)),
    "it is replaced": (Outcome.REPLACED, "c5", None, unchanged),
    "it was lost": (Outcome.LOST, "c5", SetbackKind.LOST, unchanged),
}


@pytest.mark.parametrize(("outcome", "container", "kind", "change"), IN_VAIN.values(), ids=IN_VAIN)
def test_when_the_next_request_waits_after_a_container_was_given_back(
    whole: ClusterView, outcome: Outcome, container: str, kind: SetbackKind | None, change: Change
) -> None:
    """None of it spends retry budget."""
    view = changed(whole, free("c9", "h4", VACANT), change)
    after = start(view, todo.ReleaseContainer(container, "s_9", outcome, "why"), AT_MS)
    assert container not in after.containers
    assert not after.ending
    found = [(each.failures_ms, each.last and each.last.kind) for each in after.attempts.values()]
    assert found == ([] if kind is None else [((), kind)])


def test_a_released_container_tells_why_it_was_in_vain(whole: ClusterView) -> None:
    view = changed(whole, free("c9", "h4", VACANT))
    after = start(view, todo.ReleaseContainer("c9", "s_9", Outcome.SAME_HOST, "h4 holds copy 1"), AT_MS)
    assert after.attempts[VACANT].last == Setback(SetbackKind.SAME_HOST, "h4", detail="h4 holds copy 1")


@pytest.mark.parametrize(
    ("container", "is_so", "change"),
    [
        pytest.param("c5", True, of_records(SECOND, displaced=1), id="it has the displaced standby"),
        pytest.param("c6", False, of_records(SECOND, displaced=1), id="it has another copy"),
        pytest.param(
            "c5",
            False,
            lambda view: of_view(jobs={})(of_records(SECOND, displaced=1)(view)),
            id="its job is gone",
        ),
    ],
)
def test_the_container_of_a_displaced_standby_may_still_run_for_a_while(
    whole: ClusterView, container: str, is_so: bool, change: Change
) -> None:
    view = changed(whole, policy(stop_timeout_ms=700), of_holder(1, incarnation=77), change)
    after = start(view, todo.ReleaseContainer(container, "s_9", Outcome.REPLACED, "displaced"), AT_MS)
    assert after.ending == ({container: EndingContainer(77, AT_MS, AT_MS + 700)} if is_so else {})
