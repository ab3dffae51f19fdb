"""The lifecycle table, row by row."""

from __future__ import annotations

import itertools

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
from standby.shared.model import Phase, ReplicaId, Role, TaskId

ID = ReplicaId(TaskId("job", "main", 3), 1)


def test_every_row_keeps_the_rules_of_the_table() -> None:
    assert MOVES.keys() == set(itertools.product(Phase, Signal))
    steps = (Phase.FENCING, Phase.DRAINING, Phase.CLAIMING, Phase.ACTIVE)
    for (phase, signal), (after, effects) in MOVES.items():
        row = f"{phase} after {signal}: {after}, {effects}"
        # What runs is stopped before its store is closed or wiped, and before the way to active is begun anew.
        is_begun_anew = Effect.TAKE_OVER in effects and phase in (*TAKING_OVER, Phase.ACTIVE)
        if is_begun_anew or {Effect.WIPE_STORE, Effect.CLOSE_STORE} & {*effects}:
            assert effects[0] is Effect.HALT, row
        # Only claiming leads to active: there is one way.
        becomes_active = after is Phase.ACTIVE and phase is not Phase.ACTIVE
        if becomes_active:
            assert (phase, signal, effects) == (Phase.CLAIMING, Signal.CLAIMED, (Effect.OPEN_INPUT,)), row
        assert (Effect.OPEN_INPUT in effects) == becomes_active, row
        # A store is opened exactly when a replica (again) begins to open, and never while it may be open.
        assert (Effect.OPEN_STORE in effects) == (after is Phase.OPENING and phase is not Phase.OPENING), row
        if Effect.OPEN_STORE in effects:
            assert phase in ENDED or Effect.WIPE_STORE in effects, row
        # Nothing leaves an end but an order; results never revive anything.
        if phase in ENDED and signal not in ORDERS:
            assert (after, effects) == (phase, ()), row
        # Every end of something that runs closes what it holds.
        if phase in RUNNING and after in (Phase.FENCED, Phase.FAILED, Phase.CLOSING):
            assert effects == (Effect.HALT, Effect.CLOSE_STORE), row
        # On the way to active the order is fence, drain, claim.
        if phase in steps and after in steps and steps.index(after) > steps.index(phase):
            assert steps.index(after) == steps.index(phase) + 1, row


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
        assert MOVES[phase, signal] == (phase, ()), (phase, signal)


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


def test_an_older_epoch_changes_nothing_and_a_newer_one_is_kept_even_without_a_move() -> None:
    for phase, signal in MOVES:
        before = Replica(ID, Role.STANDBY, phase, 5)
        assert step(before, Order(ID, signal, 4, Role.ACTIVE)) == (before, ()), (phase, signal)
    tailing = Replica(ID, Role.STANDBY, Phase.TAILING, 5)
    after, effects = step(tailing, Order(ID, Signal.DEMOTE, 9, Role.STANDBY))
    assert (after.epoch, after.phase, effects) == (9, Phase.TAILING, ())
