"""The life of a replica: every phase, every signal, every move, in one literal table. Pure.

Signals are orders (what the leader wants, made by `standby.replica.reconcile`) and results (what came
of the effects). The table is total: a late, repeated or crossing signal has its row like any other
(rule `late-order`), and most of these rows say "stay".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from standby.shared.model import Phase, ReplicaId, Role


class Signal(str, enum.Enum):
    """What may happen to a replica."""

    OPEN = "open"
    """Order: hold this replica."""
    PROMOTE = "promote"
    """Order: become active."""
    RECLAIM = "reclaim"
    """Order: claim the task again, under a newer epoch than the one it is, or is becoming, active in."""
    DEMOTE = "demote"
    """Order: be a standby."""
    REVOKE = "revoke"
    """Order: give the replica up."""

    OPENED = "opened"
    """Result: the local store is open and passed its checks."""
    CAUGHT_UP = "caught-up"
    """Result: the replay is within the lag policy."""
    FELL_BEHIND = "fell-behind"
    """Result: the replay is outside the lag policy."""
    STATE_LOST = "state-lost"
    """Result: the local state cannot be trusted or continued; it must be restored from the start."""
    WRITER_FENCED = "writer-fenced"
    """Result: the own producer is initialised, so every earlier writer of the task is fenced."""
    DRAINED = "drained"
    """Result: the changelog is applied up to its end after the fence."""
    CLAIMED = "claimed"
    """Result: the epoch is committed with the offsets; the task is this replica's."""
    WRITER_LOST = "writer-lost"
    """Result: the own producer is fenced, broken or stuck; whether there is a newer owner is not known."""
    INPUT_FAILED = "input-failed"
    """Result: the job's code failed on input, or a record was given up; it goes on, and is reported at once."""
    FENCED = "fenced"
    """Result: there is a newer owner, or the producer was fenced again and again."""
    FAILED = "failed"
    """Result: the replica cannot go on here."""
    RELEASED = "released"
    """Result: the store is closed and nothing of the replica runs any more."""


#: Signals that are given by a leader; all others tell what came of an effect.
ORDERS: Final = frozenset({Signal.OPEN, Signal.PROMOTE, Signal.RECLAIM, Signal.DEMOTE, Signal.REVOKE})


class Effect(str, enum.Enum):
    """What the runtime owes after a move; each is idempotent, and they are carried out in order."""

    HALT = "halt"
    """Cut short what runs for the replica: its way to active, its input, its replay."""
    OPEN_STORE = "open store"
    """Open and check the local store; answers OPENED or FAILED."""
    WIPE_STORE = "wipe store"
    """Close and delete the local store."""
    REPLAY = "replay"
    """Apply the changelog from the store's position on; answers CAUGHT_UP, FELL_BEHIND, STATE_LOST, FAILED."""
    TAKE_OVER = "take over"
    """Go the one way to active (rule `one-way`), replaying meanwhile; answers WRITER_FENCED, DRAINED, CLAIMED,
    and WRITER_LOST, STATE_LOST, FENCED or FAILED where it ends early."""
    OPEN_INPUT = "open input"
    """Read the input from the committed offset; answers WRITER_LOST, FENCED or FAILED."""
    CLOSE_STORE = "close store"
    """Close the local store, keeping its files; answers RELEASED."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as its container sees it."""

    id: ReplicaId
    role: Role
    """What it was last told to be."""
    phase: Phase
    epoch: int


@dataclass(frozen=True, slots=True)
class Order:
    """A signal for one replica."""

    replica: ReplicaId
    signal: Signal
    epoch: int
    """Orders: the epoch they were given in. Results: the replica's epoch when the effect began."""
    role: Role | None = None
    """Orders only: the role that the replica shall have."""


Moves = Mapping[tuple[Phase, Signal], tuple[Phase, tuple[Effect, ...]]]

#: Phases in which a replica is on its way to active.
TAKING_OVER: Final = (Phase.FENCING, Phase.DRAINING, Phase.CLAIMING)

#: Phases in which something of the replica runs, and its store is open or being opened.
RUNNING: Final = (Phase.OPENING, Phase.RESTORING, Phase.TAILING, *TAKING_OVER, Phase.ACTIVE)

#: Phases in which nothing runs and from which only an order to open leads back.
ENDED: Final = (Phase.FENCED, Phase.FAILED, Phase.CLOSED)

_GIVE_UP: Final = (Effect.HALT, Effect.CLOSE_STORE)
_START_AGAIN: Final = (Effect.HALT, Effect.WIPE_STORE, Effect.OPEN_STORE)
_GO_ON_AS_STANDBY: Final = (Effect.HALT, Effect.REPLAY)
_CLAIM_AGAIN: Final = (Effect.HALT, Effect.TAKE_OVER)

#: Every move. One test walks the whole table, and docs/lifecycle.md is drawn from it.
MOVES: Final[Moves] = {
    # Whatever is not said below changes nothing: a late result, a repeated order, orders that crossed.
    **{(phase, signal): (phase, ()) for phase in Phase for signal in Signal},
    # A promotion that comes while the store is still being opened is given again once it is open.
    (Phase.OPENING, Signal.OPENED): (Phase.RESTORING, (Effect.REPLAY,)),
    (Phase.RESTORING, Signal.CAUGHT_UP): (Phase.TAILING, ()),
    (Phase.TAILING, Signal.FELL_BEHIND): (Phase.RESTORING, ()),
    # Promotion. The replay goes on under it: nothing is halted.
    (Phase.RESTORING, Signal.PROMOTE): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.TAILING, Signal.PROMOTE): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.RESTORING, Signal.RECLAIM): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.TAILING, Signal.RECLAIM): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.FENCING, Signal.WRITER_FENCED): (Phase.DRAINING, ()),
    (Phase.DRAINING, Signal.DRAINED): (Phase.CLAIMING, ()),
    (Phase.CLAIMING, Signal.CLAIMED): (Phase.ACTIVE, (Effect.OPEN_INPUT,)),
    # A broken producer, and a newer epoch for the same replica: the whole way again (rule `fence-no-proof`).
    **{(phase, Signal.WRITER_LOST): (Phase.FENCING, _CLAIM_AGAIN) for phase in (*TAKING_OVER, Phase.ACTIVE)},
    **{(phase, Signal.RECLAIM): (Phase.FENCING, _CLAIM_AGAIN) for phase in (*TAKING_OVER, Phase.ACTIVE)},
    # Back to standby.
    **{
        (phase, Signal.DEMOTE): (Phase.RESTORING, _GO_ON_AS_STANDBY) for phase in (*TAKING_OVER, Phase.ACTIVE)
    },
    # Ends.
    **{
        (phase, Signal.STATE_LOST): (Phase.OPENING, _START_AGAIN)
        for phase in RUNNING
        if phase is not Phase.OPENING
    },
    **{(phase, Signal.FENCED): (Phase.FENCED, _GIVE_UP) for phase in (*TAKING_OVER, Phase.ACTIVE)},
    **{(phase, Signal.FAILED): (Phase.FAILED, _GIVE_UP) for phase in RUNNING},
    **{(phase, Signal.REVOKE): (Phase.CLOSING, _GIVE_UP) for phase in (*RUNNING, Phase.FENCED, Phase.FAILED)},
    (Phase.CLOSING, Signal.RELEASED): (Phase.CLOSED, ()),
    # And back: after its close has run, since effects of one replica are carried out in order.
    **{(phase, Signal.OPEN): (Phase.OPENING, (Effect.OPEN_STORE,)) for phase in ENDED},
}


def opened(order: Order) -> tuple[Replica, tuple[Effect, ...]]:
    """Return the new replica that an OPEN order makes, and the effects its runtime owes."""
    return Replica(order.replica, order.role or Role.STANDBY, Phase.OPENING, order.epoch), (
        Effect.OPEN_STORE,
    )


def step(replica: Replica, order: Order) -> tuple[Replica, tuple[Effect, ...]]:
    """Return the replica after ``order``, and the effects its runtime owes, first to last.

    An order of an older epoch was given by a deposed leader, a result of an older epoch belongs to work
    that was called off: both change nothing.
    """
    if order.epoch < replica.epoch:
        return replica, ()
    phase, effects = MOVES[replica.phase, order.signal]
    role = replica.role if order.role is None else order.role
    return replace(replica, phase=phase, epoch=order.epoch, role=role), effects
