"""What is wanted and what is held give the orders that are due."""

from __future__ import annotations

import itertools

from standby.replica.lifecycle import TAKING_OVER, Order, Replica, Signal
from standby.replica.reconcile import reconcile
from standby.shared.model import Phase, ReplicaId, Role, TaskId, Wanted

ID = ReplicaId(TaskId("job", "main", 0), 0)
OTHER = ReplicaId(TaskId("job", "main", 0), 1)


STANDBY, ACTIVE = Role.STANDBY, Role.ACTIVE


def signals(wanted: tuple[Role, int] | None, phase: Phase, role: Role = STANDBY) -> list[Signal]:
    """Return what is due to a replica of epoch 5 when its ``wanted`` role and epoch are these."""
    wish = () if wanted is None else (Wanted(ID, *wanted),)
    return [each.signal for each in reconcile(wish, {ID: Replica(ID, role, phase, 5)})]


def test_a_new_wish_opens_in_its_role_after_what_is_not_wanted_is_revoked() -> None:
    assert reconcile((Wanted(ID, ACTIVE, 3),), {}) == (Order(ID, Signal.OPEN, 3, ACTIVE),)
    orders = reconcile((Wanted(OTHER, STANDBY, 5),), {ID: Replica(ID, STANDBY, Phase.TAILING, 5)})
    assert [(each.replica, each.signal) for each in orders] == [(ID, Signal.REVOKE), (OTHER, Signal.OPEN)]
    for closing in (Phase.CLOSING, Phase.CLOSED):
        assert signals(None, closing) == [], closing


def test_an_older_epoch_is_ignored() -> None:
    for phase, role in itertools.product(Phase, Role):
        assert signals((role, 4), phase) == [], (phase, role)


def test_a_standby_is_promoted_once_it_is_open_and_as_long_as_it_is_one_only_takes_newer_epochs_over() -> (
    None
):
    assert signals((ACTIVE, 6), Phase.OPENING) == [Signal.RECLAIM], "no move: it keeps epoch and role alone"
    for phase in (Phase.RESTORING, Phase.TAILING):
        assert signals((ACTIVE, 6), phase) == [Signal.PROMOTE], phase
    for phase in (Phase.OPENING, Phase.RESTORING, Phase.TAILING):
        assert signals((STANDBY, 5), phase) == [], phase
        assert signals((STANDBY, 6), phase) == [Signal.DEMOTE], phase


def test_an_active_claims_again_only_under_a_newer_epoch() -> None:
    for phase in (*TAKING_OVER, Phase.ACTIVE):
        assert signals((ACTIVE, 5), phase, ACTIVE) == [], phase
        assert signals((ACTIVE, 6), phase, ACTIVE) == [Signal.RECLAIM], phase
        assert signals((STANDBY, 6), phase, ACTIVE) == [Signal.DEMOTE], phase


def test_an_end_stays_until_a_newer_decision_and_what_has_closed_opens_when_it_is_wanted_again() -> None:
    for phase in (Phase.FENCED, Phase.FAILED):
        assert signals((STANDBY, 5), phase) == [], phase
        assert signals((STANDBY, 6), phase) == [Signal.OPEN], phase
    assert signals((STANDBY, 5), Phase.CLOSED) == [Signal.OPEN]
