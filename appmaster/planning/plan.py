"""``plan(view)``: the differences between the cluster's state and its desired state, as actions. Pure.

The passes run in a fixed order and each returns actions. What one pass decides shows in the view only in the next
turn. Within a turn the passes share a `Turn`, so that a later pass does not use what an earlier one has given away.
A turn has at most `MOST_ACTIONS` actions; the rest follows in the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from appmaster.planning.containers import assignments, detect
from appmaster.planning.jobs import commands, models, status
from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests import needs, releases, requests, room, spares
from appmaster.planning.rules import deploy
from appmaster.planning.state.actions import (
    Action,
    Answer,
    DeclareLost,
    DoubtSelf,
    ForgetHandover,
    MissActive,
    PrepareHandover,
    RestRebalancing,
    Settle,
    TakeSpare,
    WaiveFence,
    WriteModel,
    WriteRecords,
    WriteStatus,
)
from appmaster.planning.state.view import ClusterView

#: Most actions that one turn starts.
MOST_ACTIONS: Final = 5_000

#: Actions that change only the view.
INWARD: Final = (
    *(DeclareLost, DoubtSelf, MissActive, PrepareHandover, ForgetHandover, Settle, RestRebalancing),
    *(TakeSpare, WaiveFence),
)

#: Actions that must be durable before any container is informed of them.
_DURABLE: Final = (WriteRecords, WriteModel, WriteStatus)


def plan(view: ClusterView) -> tuple[Action, ...]:
    """Return what is to be done now, durable writes first.

    The result depends on where the cluster is, not on how it got there: a leader that restarts and
    rebuilds the same view makes the same plan. A settled cluster gives an empty one.
    """
    if view.epoch == 0:
        return ()
    losses = tuple(detect.losses(view))
    if losses:
        # Every other decision depends on which containers are lost: only that is judged now; the next turn follows.
        return losses
    actions = [*_all(view)]
    actions.sort(key=_urgency)
    return tuple(actions[:MOST_ACTIONS])


def _all(view: ClusterView) -> Iterator[Action]:
    turn = Turn(view)
    room.make_room(turn)
    yield from models.writes(turn)
    yield from commands.answers(turn)
    yield from deploy.writes(turn)
    yield from assignments.assignments(view, turn.touched)
    yield from detect.probes(view)
    needed = needs.needs(turn)
    for each in spares.take(turn, needed):
        needed[each.slot] = replace(needed[each.slot], is_met=True)
        yield each
    spare = spares.share(turn, needed)
    yield from releases.releases(turn, needed, spare)
    yield from requests.requests(turn, {**needed, **spare.needs})
    yield from status.statuses(turn)


def _urgency(action: Action) -> int:
    """Return the rank of an action: durable writes come before messages to containers (stable sort)."""
    if isinstance(action, INWARD):
        return 0
    if isinstance(action, _DURABLE):
        return 1
    return 3 if isinstance(action, Answer) else 2
