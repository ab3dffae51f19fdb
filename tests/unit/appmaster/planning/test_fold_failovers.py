"""When a failover or a planned hand-over begins in the view, what begins with it, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appmaster.planning.fold.failovers import begun, followed
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.reasons import DecisionBasis, HandoverMotive, Loss, Reason
from appmaster.planning.state.view import ClusterView, Failover, Handover, LostActive, Rebalancing
from standby.shared.model import Phase, ProcessorId, TaskId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    OTHERWISE,
    PROCESSOR,
    SECOND,
    Change,
    changed,
    decision,
    of_records,
    of_status,
    of_view,
    unchanged,
)

AT_MS = 9_000
OTHER = ANOTHER.processor
FAILOVER, HANDOVER, BIND = DecisionKind.FAILOVER, DecisionKind.HANDOVER, DecisionKind.BIND


#: Copy 1 becomes active.
PROMOTED: Mapping[str, Any] = {"active": 1, "epoch": 2}

MISSED = of_view(lost_actives={PROCESSOR: LostActive("gone", Loss.SILENT, 500)})
ASKED = Reason(HandoverMotive.ASKED)

BEGINNING: Mapping[
    str,
    tuple[
        tuple[str, Loss | HandoverMotive, int] | None,
        DecisionKind,
        Reason[DecisionBasis] | Reason[HandoverMotive],
        Mapping[str, Any],
        Change,
    ],
] = {
    "the active was lost": (("gone", Loss.SILENT, 500), FAILOVER, OTHERWISE, {}, MISSED),
    "the active is stuck": (("c4", Loss.STUCK, AT_MS), FAILOVER, OTHERWISE, {}, unchanged),
    "the lost active starts elsewhere": (("gone", Loss.SILENT, 500), BIND, OTHERWISE, {}, MISSED),
    "a hand-over": (("c4", HandoverMotive.ASKED, AT_MS), HANDOVER, ASKED, {}, MISSED),
    "an active without a container hands over": (
        ("", HandoverMotive.ASKED, AT_MS),
        HANDOVER,
        ASKED,
        {},
        of_records(FIRST, SECOND, placed={1: "c5"}),
    ),
    "the first active starts": (None, BIND, OTHERWISE, {}, of_view(records={})),
    "the epoch stays the same": (None, FAILOVER, OTHERWISE, {"epoch": 1}, MISSED),
    "epochs rise above what containers have seen": (
        None,
        DecisionKind.RAISE,
        OTHERWISE,
        {"active": 0, "epoch": 6},
        MISSED,
    ),
    "the new active's container is gone": (None, FAILOVER, OTHERWISE, {"placed": {1: "c9"}}, MISSED),
}


def test_what_a_decision_begins(whole: ClusterView) -> None:
    for case, (then, kind, reason, record, change) in BEGINNING.items():
        view = change(whole)
        after = begun(view, decision(whole, kind, reason, **{**PROMOTED, **record}), AT_MS)
        if then is None:
            assert after is view, case
            continue
        lost, why, detected_ms = then
        failover = Failover(
            PROCESSOR, lost, why, 1, "c5", detected_ms, (FIRST, SECOND), is_planned=kind is HANDOVER
        )
        assert after.failovers == {PROCESSOR: failover}, case
        assert after.rebalancing == whole.rebalancing, case


def test_what_begins_ends_the_wait_for_the_active_and_the_preparation_of_its_processor_only(
    whole: ClusterView,
) -> None:
    missed = LostActive("c4", Loss.SILENT, 500)
    prepared = Handover(2, "c6", 500, ASKED)
    view = changed(
        whole,
        of_view(
            lost_actives={PROCESSOR: missed, OTHER: missed}, handovers={PROCESSOR: prepared, OTHER: prepared}
        ),
    )
    after = begun(view, decision(view, FAILOVER, **PROMOTED), AT_MS)
    assert after.lost_actives == {OTHER: missed}
    assert after.handovers == {OTHER: prepared}


def test_nobody_takes_over_once_no_copy_is_to_be_active(whole: ClusterView) -> None:
    failover = Failover(PROCESSOR, "c4", Loss.SILENT, 1, "c5", 500)
    prepared = Handover(2, "c6", 500, ASKED)
    both = {PROCESSOR: failover, OTHER: failover}
    view = changed(whole, MISSED, of_view(failovers=both, handovers={PROCESSOR: prepared, OTHER: prepared}))
    withdrawn = decision(whole, DecisionKind.UNDEPLOY, active=None, placed={}, epoch=2)
    after = begun(view, withdrawn, AT_MS)
    assert after == replace(view, failovers={OTHER: failover}, handovers={OTHER: prepared})


def test_hand_overs_that_spread_actives_are_counted(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[Mapping[str, Rebalancing], Rebalancing]] = {
        "the first one": ({}, Rebalancing(moves=1)),
        "a further one, after some in vain": (
            {"job": Rebalancing(700, 800, moves=1, in_vain=2, is_asked=True)},
            Rebalancing(700, 800, moves=2, is_asked=True),
        ),
    }
    for case, (before, after) in cases.items():
        view = of_view(rebalancing=before)(whole)
        spread = decision(view, HANDOVER, Reason(HandoverMotive.REBALANCE), (FIRST,), **PROMOTED)
        assert begun(view, spread, AT_MS).rebalancing == {"job": after}, case


# ---- the end ----


def under_way(processor: ProcessorId, task: TaskId, to: str = "c4") -> Failover:
    """Return a failover of one task to copy 0."""
    return Failover(processor, "gone", Loss.SILENT, 0, to, 500, (task,), recorded_ms=600)


#: The phases of a failover that goes on, None if it is over; whether its processor is unsettled.
FOLLOWING: Mapping[str, tuple[Mapping[tuple[TaskId, Phase], int] | None, bool, Change]] = {
    "it is active": (None, True, unchanged),
    "it claims its epoch": (
        {(SECOND, Phase.CLAIMING): 700},
        False,
        of_status(0, SECOND, phase=Phase.CLAIMING, since_ms=700),
    ),
    "another copy is active": (None, False, of_records(SECOND, active=1)),
    "its record is being written": ({}, False, of_view(writing={SECOND: "1-9"})),
}


def test_a_report_of_a_new_active_shows_how_each_failover_to_its_container_goes_on(
    whole: ClusterView,
) -> None:
    """Another failover to the same container is over in any case."""
    for case, (phases, unsettles, change) in FOLLOWING.items():
        failovers = {PROCESSOR: under_way(PROCESSOR, SECOND), OTHER: under_way(OTHER, FIRST)}
        view = changed(whole, change, of_view(failovers=failovers))
        after = followed(view, view.containers["c4"])
        going_on = {} if phases is None else {PROCESSOR: replace(failovers[PROCESSOR], phases=phases)}
        assert after.failovers == going_on, case
        assert after.unsettled == ({PROCESSOR} if unsettles else set()), case


def test_a_report_ends_no_failover_to_another_container(whole: ClusterView) -> None:
    other = under_way(PROCESSOR, SECOND, to="c5")
    view = of_view(failovers={PROCESSOR: other, OTHER: under_way(OTHER, FIRST)})(whole)
    assert followed(view, view.containers["c4"]).failovers == {PROCESSOR: other}
