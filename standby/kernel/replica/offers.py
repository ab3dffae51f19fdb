"""Decides whether a replica can give a copy of its state (docs/restoring.md)."""

from __future__ import annotations

from standby.kernel.active.active import ActiveTask
from standby.kernel.job import JobKernel
from standby.kernel.restore.snapshots import NotNow, Offer
from standby.kernel.store.store import TaskStore
from standby.replica.lifecycle import TAKING_OVER, Replica
from standby.shared.model import Phase


def offer_of(replica: Replica, store: TaskStore | None, active: ActiveTask | None, job: JobKernel) -> Offer:
    """Return what is needed to copy the replica's state. Raises `NotNow`. Thread-safe.

    A standby gives copies while it is in sync. An active gives none before its first commit after the promotion:
    until then, making copies would only delay it.
    """
    if store is None or replica.phase not in (Phase.TAILING, Phase.ACTIVE):
        raise NotNow(f"{replica.id} is {replica.phase.value}", is_soon=replica.phase in TAKING_OVER)
    if replica.phase is Phase.ACTIVE and (active is None or not _has_begun(active, job)):
        raise NotNow(f"{replica.id} has not committed anything yet", is_soon=True)
    return Offer(
        role=replica.role,
        epoch=replica.epoch,
        directory=store.directory,
        checkpoint=store.checkpoint,
        bytes_per_second=job.config.peer_max_bytes_per_second,
        concurrent=job.config.peer_max_concurrent,
    )


def _has_begun(active: ActiveTask, job: JobKernel) -> bool:
    """Return whether the active has committed input in its epoch, or has no input to commit."""
    end = job.ends.input(active.task.partition)
    return active.first_commit_ms is not None or (end is not None and end.offset <= active.committed.total)
