"""The lifecycle table, row by row."""

from __future__ import annotations

import itertools
from dataclasses import replace

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
    assert (held.phase, effects) == (Phase.OPENING, (Effect.OPEN_STORE,))
    for signal, phase, owed in (
        (Signal.OPENED, Phase.RESTORING, (Effect.REPLAY,)),
        (Signal.CAUGHT_UP, Phase.TAILING, ()),
        (Signal.PROMOTE, Phase.FENCING, (Effect.TAKE_OVER,)),
        (Signal.WRITER_FENCED, Phase.DRAINING, ()),
        (Signal.DRAINED, Phase.CLAIMING, ()),
        (Signal.CLAIMED, Phase.ACTIVE, (Effect.OPEN_INPUT,)),
    ):
        epoch, role = (6, Role.ACTIVE) if signal is Signal.PROMOTE else (held.epoch, None)
        held, effects = step(held, Order(ID, signal, epoch, role))
        assert (held.phase, effects) == (phase, owed)
    assert (held.epoch, held.role) == (6, Role.ACTIVE)


def test_an_older_epoch_changes_nothing_and_a_newer_one_is_kept_even_without_a_move() -> None:
    for phase, signal in MOVES:
        before = Replica(ID, Role.STANDBY, phase, 5)
        assert step(before, Order(ID, signal, 4, Role.ACTIVE)) == (before, ()), (phase, signal)
    tailing = Replica(ID, Role.STANDBY, Phase.TAILING, 5)
    after, effects = step(tailing, Order(ID, Signal.DEMOTE, 9, Role.STANDBY))
    assert (after.epoch, after.phase, effects) == (9, Phase.TAILING, ())


def test_a_replica_whose_state_is_lost_wipes_it_and_begins_anew_and_once() -> None:
    lost = Order(ID, Signal.STATE_LOST, 3)
    opening = Replica(ID, Role.STANDBY, Phase.OPENING, 3)
    for phase in set(RUNNING) - {Phase.OPENING}:
        replica, effects = step(replace(opening, phase=phase), lost)
        assert replica.phase is Phase.OPENING, phase
        assert effects == (Effect.HALT, Effect.WIPE_STORE, Effect.OPEN_STORE), phase
    assert step(opening, lost) == (opening, ()), "a late word does not wipe what is being opened anew"


def test_a_new_replica_has_the_role_of_its_order_and_is_a_standby_without_one() -> None:
    for told, role in ((Role.ACTIVE, Role.ACTIVE), (Role.STANDBY, Role.STANDBY), (None, Role.STANDBY)):
        expected = Replica(ID, role, Phase.OPENING, 3), (Effect.OPEN_STORE,)
        assert opened(Order(ID, Signal.OPEN, 3, told)) == expected
