"""The lifecycle table, row by row, and the page drawn from it."""

from __future__ import annotations

import pytest

from standby.model import Phase, ReplicaId, Role, TaskId
from standby.replica.lifecycle import (
    ENDED,
    MOVES,
    ORDERS,
    RUNNING,
    TAKING_OVER,
    Effect,
    Order,
    Replica,
    Signal,
    opened,
    step,
)

ID = ReplicaId(TaskId("job", "main", 3), 1)


def replica(phase: Phase, epoch: int = 5, role: Role = Role.STANDBY) -> Replica:
    return Replica(ID, role, phase, epoch)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("signal", Signal)
def test_every_row_keeps_the_rules_of_the_table(phase: Phase, signal: Signal) -> None:
    after, effects = MOVES[phase, signal]
    # What runs is stopped before its store is closed or wiped, and before the way to active is begun anew.
    for needs_halt in (Effect.WIPE_STORE, Effect.CLOSE_STORE):
        if needs_halt in effects:
            assert effects[0] is Effect.HALT
    if Effect.TAKE_OVER in effects and phase in (*TAKING_OVER, Phase.ACTIVE):
        assert effects[0] is Effect.HALT
    # Only claiming leads to active: there is one way.
    if after is Phase.ACTIVE and phase is not Phase.ACTIVE:
        assert (phase, signal, effects) == (Phase.CLAIMING, Signal.CLAIMED, (Effect.OPEN_INPUT,))
    assert (Effect.OPEN_INPUT in effects) == (after is Phase.ACTIVE and phase is not Phase.ACTIVE)
    # A store is opened exactly when a replica (again) begins to open, and never while it may be open.
    assert (Effect.OPEN_STORE in effects) == (after is Phase.OPENING and phase is not Phase.OPENING)
    if Effect.OPEN_STORE in effects:
        assert phase in ENDED or Effect.WIPE_STORE in effects
    # Nothing leaves an end but an order; results never revive anything.
    if phase in ENDED and signal not in ORDERS:
        assert (after, effects) == (phase, ())
    # Every end of something that runs closes what it holds.
    if phase in RUNNING and after in (Phase.FENCED, Phase.FAILED, Phase.CLOSING):
        assert effects == (Effect.HALT, Effect.CLOSE_STORE)
    # On the way to active the order is fence, drain, claim.
    steps = (Phase.FENCING, Phase.DRAINING, Phase.CLAIMING, Phase.ACTIVE)
    if phase in steps and after in steps and steps.index(after) > steps.index(phase):
        assert steps.index(after) == steps.index(phase) + 1


def test_repeated_and_late_orders_are_harmless() -> None:
    harmless = [
        (Phase.ACTIVE, Signal.PROMOTE),
        (Phase.FENCING, Signal.PROMOTE),
        (Phase.OPENING, Signal.PROMOTE),
        (Phase.TAILING, Signal.DEMOTE),
        (Phase.FENCED, Signal.PROMOTE),
        (Phase.FENCED, Signal.DEMOTE),
        (Phase.FAILED, Signal.PROMOTE),
        (Phase.CLOSING, Signal.REVOKE),
        (Phase.CLOSED, Signal.REVOKE),
        (Phase.CLOSING, Signal.CLAIMED),
        (Phase.TAILING, Signal.CLAIMED),
        (Phase.ACTIVE, Signal.OPEN),
    ]
    for phase, signal in harmless:
        assert MOVES[phase, signal] == (phase, ())


def test_a_promotion_walks_fencing_draining_claiming_active() -> None:
    held, effects = opened(Order(ID, Signal.OPEN, 5, Role.STANDBY))
    assert effects == (Effect.OPEN_STORE,)
    walked = [held.phase]
    owed: list[tuple[Effect, ...]] = []
    for signal in (
        Signal.OPENED,
        Signal.CAUGHT_UP,
        Signal.PROMOTE,
        Signal.WRITER_FENCED,
        Signal.DRAINED,
        Signal.CLAIMED,
    ):
        role = Role.ACTIVE if signal is Signal.PROMOTE else None
        held, effects = step(held, Order(ID, signal, 6 if signal is Signal.PROMOTE else held.epoch, role))
        walked.append(held.phase)
        owed.append(effects)
    assert walked == [
        Phase.OPENING,
        Phase.RESTORING,
        Phase.TAILING,
        Phase.FENCING,
        Phase.DRAINING,
        Phase.CLAIMING,
        Phase.ACTIVE,
    ]
    assert owed == [(Effect.REPLAY,), (), (Effect.TAKE_OVER,), (), (), (Effect.OPEN_INPUT,)]
    assert (held.epoch, held.role) == (6, Role.ACTIVE)


@pytest.mark.parametrize("signal", Signal)
def test_an_older_epoch_changes_nothing(signal: Signal) -> None:
    for phase in Phase:
        before = replica(phase)
        assert step(before, Order(ID, signal, 4, Role.ACTIVE)) == (before, ())


def test_a_newer_epoch_is_kept_even_without_a_move() -> None:
    after, effects = step(replica(Phase.TAILING), Order(ID, Signal.DEMOTE, 9, Role.STANDBY))
    assert (after.epoch, after.phase, effects) == (9, Phase.TAILING, ())
