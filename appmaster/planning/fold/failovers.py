"""Failovers and planned hand-overs, from the decision until their tasks are processed again; used by `apply`. Pure."""

from __future__ import annotations

from dataclasses import replace

from appmaster.planning.fold.changes import unsettle
from appmaster.planning.state.actions import DecisionKind, WriteRecords
from appmaster.planning.state.mappings import put, without
from appmaster.planning.state.progress import progress
from appmaster.planning.state.reasons import HandoverMotive, Loss
from appmaster.planning.state.view import ClusterView, Container, Failover, LostActive, Rebalancing


def begun(view: ClusterView, action: WriteRecords, at_ms: int) -> ClusterView:
    """Return the view with a failover or hand-over begun, if the decision changes which copy is active.

    The lost active is no longer missed, and a hand-over that was being prepared is over. So is a failover or hand-over
    under way once no copy is to be active.
    """
    new = action.changes[0].record
    recorded = view.records.get(new.task)
    old = recorded.record if recorded is not None else None
    if new.active is None:
        # Its tasks are withdrawn: nobody takes over any more.
        return replace(
            view,
            failovers=without(view.failovers, action.processor),
            handovers=without(view.handovers, action.processor),
        )
    if old is not None and old.epoch == new.epoch:
        return view
    if action.kind is DecisionKind.RAISE:
        return view  # a new epoch of the same active, which is still missed if it was lost
    before = old.placed.get(old.active, "") if old is not None and old.active is not None else ""
    missed = view.lost_actives.get(action.processor)
    if missed is None and action.kind is DecisionKind.FAILOVER:
        # No container was lost: the active is stuck.
        missed = LostActive(before, Loss.STUCK, at_ms)
    to = new.placed.get(new.active, "")
    motive = action.reason.kind if isinstance(action.reason.kind, HandoverMotive) else None
    if to not in view.containers:
        return view
    if motive is not None:
        failover = Failover(action.processor, before, motive, new.active, to, at_ms, is_planned=True)
        if motive is HandoverMotive.REBALANCE:
            view = _moved(view, action.processor.job)
    elif missed is not None:
        failover = Failover(action.processor, missed.container, missed.loss, new.active, to, missed.at_ms)
    else:
        return view
    failover = replace(failover, tasks=tuple(each.record.task for each in action.changes))
    return replace(
        view,
        failovers=put(view.failovers, action.processor, failover),
        lost_actives=without(view.lost_actives, action.processor),
        handovers=without(view.handovers, action.processor),
    )


def _moved(view: ClusterView, job: str) -> ClusterView:
    known = view.rebalancing.get(job, Rebalancing())
    moved = replace(known, moves=known.moves + 1, in_vain=0)
    return replace(view, rebalancing=put(view.rebalancing, job, moved))


def followed(view: ClusterView, container: Container) -> ClusterView:
    """Return the view with the progress of every failover to ``container`` as of its last report."""
    for failover in view.failovers.values():
        if failover.to != container.id:
            continue
        found = progress(view, container, failover)
        if found is None:
            continue
        if not found.is_over:
            phases = replace(failover, phases=found.phases)
            view = replace(view, failovers=put(view.failovers, failover.processor, phases))
            continue
        view = replace(view, failovers=without(view.failovers, failover.processor))
        if found.is_finished:
            view = unsettle(view, (failover.processor,))
    return view
