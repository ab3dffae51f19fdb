"""The withdrawal of a processor's tasks: what is recorded, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from appmaster.planning.rules.withdrawal import withdraw
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.reasons import DecisionBasis, FailureReason, Reason
from appmaster.planning.state.view import ClusterView
from standby.shared.model import InputFailures
from tests.unit.appmaster.planning.views import (
    FIRST,
    SECOND,
    Change,
    of_job,
    of_processor,
    of_records,
    recorded,
    seen,
    unchanged,
)

POISON, REFUSED = Reason(FailureReason.POISON), Reason(FailureReason.REFUSED)


def test_a_withdrawn_task_has_no_copies_and_their_hosts_are_remembered(whole: ClusterView) -> None:
    failed = of_records(FIRST, SECOND, displaced=1, failures=InputFailures(7, 1))
    turn, cohort = seen(whole, failed)
    record = recorded(withdraw(turn, cohort))
    assert (record.active, record.displaced, record.failures) == (None, None, None)
    assert [len(each) for each in (record.placed, record.moving, record.in_sync)] == [0, 0, 0]
    assert {each.host for each in record.history} == {"h1", "h2", "h3"}


@pytest.mark.parametrize(
    ("then", "changes"),
    [
        pytest.param(2, unchanged, id="it has an active"),
        pytest.param(2, of_records(FIRST, SECOND, placed={}), id="it has one that is nowhere"),
        pytest.param(1, of_records(FIRST, SECOND, active=None), id="it has copies only"),
        pytest.param(None, of_records(FIRST, SECOND, active=None, placed={}), id="it has neither"),
    ],
)
def test_the_epoch_rises_if_the_task_has_an_active_that_could_claim_it(
    whole: ClusterView, then: int | None, changes: Change
) -> None:
    decision = withdraw(*seen(whole, changes))
    assert (decision and recorded(decision).epoch) == then


ENDED: Final = of_job(is_wanted=False)

TOLD: Mapping[str, tuple[DecisionKind, DecisionBasis, tuple[Change, ...]]] = {
    "its job ends": (DecisionKind.UNDEPLOY, DecisionBasis.UNDEPLOYED, (ENDED,)),
    "its job was refused": (DecisionKind.UNDEPLOY, DecisionBasis.OTHER, (of_job(failure=REFUSED),)),
    "its job fails": (DecisionKind.UNDEPLOY, DecisionBasis.POISON, (of_job(failure=POISON),)),
    "it is parked": (DecisionKind.PARK, DecisionBasis.POISON, (of_processor(parked=POISON),)),
    "it is parked, and its job ends": (
        DecisionKind.UNDEPLOY,
        DecisionBasis.POISON,
        (of_processor(parked=POISON), ENDED),
    ),
}


@pytest.mark.parametrize(("kind", "basis", "changes"), TOLD.values(), ids=TOLD)
def test_why_a_task_is_withdrawn(
    whole: ClusterView, kind: DecisionKind, basis: DecisionBasis, changes: tuple[Change, ...]
) -> None:
    decision = withdraw(*seen(whole, *changes))
    assert decision is not None
    assert (decision.kind, decision.reason.kind) == (kind, basis)
