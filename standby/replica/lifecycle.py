"""The lifecycle of a replica: every phase, signal and transition, in one literal table. Pure.

Signals are orders (what the leader wants, made by `standby.replica.reconcile`) and results (of effects). The table
is total: late, repeated and crossing signals have rows like any other (rule `late-order`), and most of these rows
keep the phase.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from standby.shared.model import Phase, ReplicaId, Role


class Signal(str, enum.Enum):
    """An event in the life of a replica."""

    OPEN = "open"
    """Order: hold this replica."""
    PROMOTE = "promote"
    """Order: become active."""
    RECLAIM = "reclaim"
    """Order: claim the task again, under a newer epoch than the one it is, or is becoming, active in."""
    DEMOTE = "demote"
    """Order: be a standby."""
    REVOKE = "revoke"
    """Order: release the replica."""

    OPENED = "opened"
    """Result: the local store is open and passed its checks."""
    CAUGHT_UP = "caught-up"
    """Result: the replay is within the lag policy."""
    FELL_BEHIND = "fell-behind"
    """Result: the replay is outside the lag policy."""
    STATE_LOST = "state-lost"
    """Result: the local state is not trustworthy or cannot be continued; it must be restored from scratch."""
    WRITER_FENCED = "writer-fenced"
    """Result: the replica's producer is initialised, so every earlier writer of the task is fenced."""
    DRAINED = "drained"
    """Result: the changelog is applied up to its end after the fence."""
    CLAIMED = "claimed"
    """Result: the epoch is committed with the offsets; this replica owns the task."""
    WRITER_LOST = "writer-lost"
    """Result: the replica's producer is fenced, broken or stuck; it is not known whether there is a newer owner."""
    INPUT_FAILED = "input-failed"
    """Result: the job's code failed on input, or a record was given up; the task continues. Reported at once."""
    FENCED = "fenced"
    """Result: there is a newer owner, or the producer was fenced repeatedly."""
    FAILED = "failed"
    """Result: the replica cannot continue here."""
    RELEASED = "released"
    """Result: the store is closed, and nothing of the replica is running any more."""


#: Signals from a leader; all others are results of effects.
ORDERS: Final = frozenset({Signal.OPEN, Signal.PROMOTE, Signal.RECLAIM, Signal.DEMOTE, Signal.REVOKE})


class Effect(str, enum.Enum):
    """An action that the runtime must execute after a transition; idempotent, and executed in order."""

    HALT = "halt"
    """Stop what is running for the replica: its takeover, its input, its replay."""
    OPEN_STORE = "open store"
    """Open and check the local store; answers OPENED or FAILED."""
    WIPE_STORE = "wipe store"
    """Close and delete the local store."""
    REPLAY = "replay"
    """Apply the changelog from the store's position on; answers CAUGHT_UP, FELL_BEHIND, STATE_LOST, FAILED."""
    TAKE_OVER = "take over"
    """Take over the task (rule `one-way`), while replaying; answers WRITER_FENCED, DRAINED, CLAIMED, and
    WRITER_LOST, STATE_LOST, FENCED or FAILED if it ends early."""
    OPEN_INPUT = "open input"
    """Read the input from the committed offset; answers WRITER_LOST, FENCED or FAILED."""
    CLOSE_STORE = "close store"
    """Close the local store, keeping its files; answers RELEASED."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as its container sees it."""

    id: ReplicaId
    role: Role
    """The role that it was last assigned."""
    phase: Phase
    epoch: int


@dataclass(frozen=True, slots=True)
class Order:
    """A signal for one replica."""

    replica: ReplicaId
    signal: Signal
    epoch: int
    """For orders, the epoch of the order. For results, the replica's epoch when the effect began."""
    role: Role | None = None
    """Orders only: the replica's new role."""


Moves = Mapping[tuple[Phase, Signal], tuple[Phase, tuple[Effect, ...]]]

#: Phases of becoming active.
TAKING_OVER: Final = (Phase.FENCING, Phase.DRAINING, Phase.CLAIMING)

#: Phases in which the replica is running, and its store is open or being opened.
RUNNING: Final = (Phase.OPENING, Phase.RESTORING, Phase.TAILING, *TAKING_OVER, Phase.ACTIVE)

#: Phases in which nothing is running; only an order to open leaves them.
ENDED: Final = (Phase.FENCED, Phase.FAILED, Phase.CLOSED)

_GIVE_UP: Final = (Effect.HALT, Effect.CLOSE_STORE)
_START_AGAIN: Final = (Effect.HALT, Effect.WIPE_STORE, Effect.OPEN_STORE)
_GO_ON_AS_STANDBY: Final = (Effect.HALT, Effect.REPLAY)
_CLAIM_AGAIN: Final = (Effect.HALT, Effect.TAKE_OVER)

#: Every transition. A test walks the whole table, and docs/lifecycle.md is generated from it.
MOVES: Final[Moves] = {
    # By default a signal changes nothing: late results, repeated orders, crossing orders.
    **{(phase, signal): (phase, ()) for phase in Phase for signal in Signal},
    # A promotion that arrives while the store is being opened is issued again once it is open.
    (Phase.OPENING, Signal.OPENED): (Phase.RESTORING, (Effect.REPLAY,)),
    (Phase.RESTORING, Signal.CAUGHT_UP): (Phase.TAILING, ()),
    (Phase.TAILING, Signal.FELL_BEHIND): (Phase.RESTORING, ()),
    # Promotion. The replay continues: nothing is halted.
    (Phase.RESTORING, Signal.PROMOTE): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.TAILING, Signal.PROMOTE): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.RESTORING, Signal.RECLAIM): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.TAILING, Signal.RECLAIM): (Phase.FENCING, (Effect.TAKE_OVER,)),
    (Phase.FENCING, Signal.WRITER_FENCED): (Phase.DRAINING, ()),
    (Phase.DRAINING, Signal.DRAINED): (Phase.CLAIMING, ()),
    (Phase.CLAIMING, Signal.CLAIMED): (Phase.ACTIVE, (Effect.OPEN_INPUT,)),
    # A broken producer, or a newer epoch for the same replica: repeat the whole takeover (rule `fence-no-proof`).
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
    # Reopening happens after the close, because effects of one replica are executed in order.
    **{(phase, Signal.OPEN): (Phase.OPENING, (Effect.OPEN_STORE,)) for phase in ENDED},
}


def opened(order: Order) -> tuple[Replica, tuple[Effect, ...]]:
    """Return the new replica that an OPEN order creates, and the effects to execute."""
    return Replica(order.replica, order.role or Role.STANDBY, Phase.OPENING, order.epoch), (
        Effect.OPEN_STORE,
    )


def step(replica: Replica, order: Order) -> tuple[Replica, tuple[Effect, ...]]:
    """Return the replica after ``order``, and the effects to execute, in order.

    An order of an older epoch is from a deposed leader, and a result of an older epoch is from cancelled work: both
    change nothing.
    """
    if order.epoch < replica.epoch:
        return replica, ()
    phase, effects = MOVES[replica.phase, order.signal]
    role = replica.role if order.role is None else order.role
    return replace(replica, phase=phase, epoch=order.epoch, role=role), effects
