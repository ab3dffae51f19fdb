"""What is wanted and what is held give the orders that are due."""

from __future__ import annotations

import pytest

from standby.model import Phase, ReplicaId, Role, TaskId, Wanted
from standby.replica.lifecycle import TAKING_OVER, Order, Replica, Signal
from standby.replica.reconcile import reconcile

ID = ReplicaId(TaskId("job", "main", 0), 0)
OTHER = ReplicaId(TaskId("job", "main", 0), 1)


def held(phase: Phase, epoch: int = 5, role: Role = Role.STANDBY) -> dict[ReplicaId, Replica]:
    return {ID: Replica(ID, role, phase, epoch)}


def signals(wanted: Wanted | None, replicas: dict[ReplicaId, Replica]) -> list[Signal]:
    return [each.signal for each in reconcile(() if wanted is None else (wanted,), replicas)]


def test_a_new_wish_opens_in_its_role() -> None:
    wish = Wanted(ID, Role.ACTIVE, 3)
    assert reconcile((wish,), {}) == (Order(ID, Signal.OPEN, 3, Role.ACTIVE),)


def test_what_is_not_wanted_is_revoked_before_anything_is_opened() -> None:
    orders = reconcile((Wanted(OTHER, Role.STANDBY, 5),), held(Phase.TAILING))
    assert [(each.replica, each.signal) for each in orders] == [(ID, Signal.REVOKE), (OTHER, Signal.OPEN)]


@pytest.mark.parametrize("phase", [Phase.CLOSING, Phase.CLOSED])
def test_what_closes_is_not_revoked_again(phase: Phase) -> None:
    assert signals(None, held(phase)) == []


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("role", Role)
def test_an_older_epoch_is_ignored(phase: Phase, role: Role) -> None:
    assert signals(Wanted(ID, role, 4), held(phase)) == []


@pytest.mark.parametrize("phase", [Phase.RESTORING, Phase.TAILING])
def test_a_standby_is_promoted_once_it_is_open(phase: Phase) -> None:
    assert signals(Wanted(ID, Role.ACTIVE, 6), held(phase)) == [Signal.PROMOTE]


@pytest.mark.parametrize("phase", [*TAKING_OVER, Phase.ACTIVE])
def test_an_active_claims_again_only_under_a_newer_epoch(phase: Phase) -> None:
    replicas = held(phase, 5, Role.ACTIVE)
    assert signals(Wanted(ID, Role.ACTIVE, 5), replicas) == []
    assert signals(Wanted(ID, Role.ACTIVE, 6), replicas) == [Signal.RECLAIM]
    assert signals(Wanted(ID, Role.STANDBY, 6), replicas) == [Signal.DEMOTE]


@pytest.mark.parametrize("phase", [Phase.FENCED, Phase.FAILED])
def test_an_end_stays_until_a_newer_decision(phase: Phase) -> None:
    assert signals(Wanted(ID, Role.STANDBY, 5), held(phase)) == []
    assert signals(Wanted(ID, Role.STANDBY, 6), held(phase)) == [Signal.OPEN]


def test_a_closed_replica_that_is_wanted_again_opens() -> None:
    assert signals(Wanted(ID, Role.STANDBY, 5), held(Phase.CLOSED)) == [Signal.OPEN]


def test_a_settled_replica_gets_no_order() -> None:
    assert signals(Wanted(ID, Role.STANDBY, 5), held(Phase.TAILING)) == []
    assert signals(Wanted(ID, Role.STANDBY, 5), held(Phase.OPENING)) == []
