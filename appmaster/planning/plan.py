"""``plan(view, policy-in-view)``: every difference between what is and what should be. Pure.

The passes run in a fixed order and each returns actions; what one pass decides shows in the view only in the next
turn. Within a turn they share a `Turn`, by which a later pass leaves alone what an earlier one has given away. A turn
is cut at `MOST_ACTIONS`; the rest comes in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from appmaster.planning.containers import assignments, detect
from appmaster.planning.jobs import commands, models, status
from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests import needs, releases, requests
from appmaster.planning.rules import deploy
from appmaster.planning.state.actions import (
    Action,
    Answer,
    DeclareLost,
    DoubtSelf,
    ForgetHandover,
    MissActive,
    PrepareHandover,
    Settle,
    WaiveFence,
    WriteModel,
    WriteRecords,
    WriteStatus,
)
from appmaster.planning.state.view import ClusterView

#: A turn starts at most so many actions.
MOST_ACTIONS: Final = 5_000

#: Actions that change the view alone.
INWARD: Final = (DeclareLost, DoubtSelf, MissActive, PrepareHandover, ForgetHandover, Settle, WaiveFence)

#: Actions that must be durable before anybody is told.
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
        # Who is lost decides everything else: judge first, go on in the next turn, at once.
        return losses
    actions = [*_all(view)]
    actions.sort(key=_urgency)
    return tuple(actions[:MOST_ACTIONS])


def _all(view: ClusterView) -> Iterator[Action]:
    turn = Turn(view)
    yield from models.writes(turn)
    yield from commands.answers(turn)
    yield from deploy.writes(turn)
    yield from assignments.assignments(view)
    yield from detect.probes(view)
    needed = needs.needs(turn)
    yield from releases.releases(turn, needed)
    yield from requests.requests(turn, needed)
    yield from status.statuses(turn)


def _urgency(action: Action) -> int:
    """Return the rank of an action: what must be durable goes before what is told (stable sort)."""
    if isinstance(action, INWARD):
        return 0
    if isinstance(action, _DURABLE):
        return 1
    return 3 if isinstance(action, Answer) else 2
