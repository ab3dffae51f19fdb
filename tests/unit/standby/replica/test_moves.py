"""Moves that no walk through the table judges: lost state, the role of a new replica, a newer epoch of a standby."""

from __future__ import annotations

import pytest

from standby.replica.lifecycle import RUNNING, Effect, Order, Replica, Signal, opened, step
from standby.replica.reconcile import reconcile
from standby.shared.model import Phase, ReplicaId, Role, TaskId, Wanted

ID = ReplicaId(TaskId("job", "main", 0), 1)


@pytest.mark.parametrize("phase", [each for each in RUNNING if each is not Phase.OPENING])
def test_a_replica_whose_state_is_lost_wipes_it_and_begins_anew(phase: Phase) -> None:
    replica, effects = step(Replica(ID, Role.STANDBY, phase, 3), Order(ID, Signal.STATE_LOST, 3))
    assert replica.phase is Phase.OPENING
    assert effects == (Effect.HALT, Effect.WIPE_STORE, Effect.OPEN_STORE)


def test_a_late_word_of_lost_state_does_not_wipe_what_is_being_opened_anew() -> None:
    opening = Replica(ID, Role.STANDBY, Phase.OPENING, 3)
    assert step(opening, Order(ID, Signal.STATE_LOST, 3)) == (opening, ())


def test_a_new_replica_has_the_role_of_its_order_and_is_a_standby_without_one() -> None:
    for told, role in ((Role.ACTIVE, Role.ACTIVE), (Role.STANDBY, Role.STANDBY), (None, Role.STANDBY)):
        assert opened(Order(ID, Signal.OPEN, 3, told)) == (
            Replica(ID, role, Phase.OPENING, 3),
            (Effect.OPEN_STORE,),
        )


def test_a_standby_that_stays_one_takes_a_newer_epoch_over() -> None:
    held = {ID: Replica(ID, Role.STANDBY, Phase.TAILING, 3)}
    (order,) = reconcile([Wanted(ID, Role.STANDBY, 4)], held)
    assert order == Order(ID, Signal.DEMOTE, 4, Role.STANDBY)
    assert step(held[ID], order) == (Replica(ID, Role.STANDBY, Phase.TAILING, 4), ())
