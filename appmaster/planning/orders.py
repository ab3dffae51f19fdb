"""What each container is to be told: always its whole wanted state, from acknowledged records. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from appmaster.planning.actions import Action, FenceTasks, SendAssign, SendExit
from appmaster.planning.detect import policy_of
from appmaster.planning.view import ClusterView, Container, Presence
from standby.model import ReplicaId, Role, Wanted


def wanted(view: ClusterView, container: Container) -> tuple[Wanted, ...] | None:
    """Return the replicas that the records give to ``container``; None while they are being written."""
    slot = container.slot
    if slot is None or not container.is_bound:
        return ()
    recorded = view.settled(slot.processor)
    if recorded is None:
        return None
    return tuple(
        Wanted(
            ReplicaId(each.record.task, slot.copy),
            Role.ACTIVE if each.record.active == slot.copy else Role.STANDBY,
            each.record.epoch,
        )
        for each in recorded
        if each.record.placed.get(slot.copy) == container.id
    )


def orders(view: ClusterView) -> Iterator[Action]:
    """Yield orders for every container that has not been told, or has not reported, what is wanted of it."""
    for job in view.jobs.values():
        leaves = not job.is_wanted or bool(job.failure)
        if leaves and not job.is_fenced and not job.is_fencing and _is_withdrawn(view, job.name):
            yield FenceTasks(job.name, job.model.tasks())
    number = view.sends
    for container in view.containers.values():
        if container.presence is Presence.ORPHAN:
            yield SendExit(container.id, container.incarnation, "YARN gave it to nobody this leader knows")
        if container.presence is not Presence.LIVE:
            continue
        if container.slot is not None and container.slot.processor.job in view.jobs:
            job = view.jobs[container.slot.processor.job]
            if not job.is_wanted or job.failure:
                if job.is_fenced:
                    yield SendExit(
                        container.id,
                        container.incarnation,
                        job.failure or "the job is being undeployed",
                        job.purge,
                    )
                continue
        replicas = wanted(view, container)
        if replicas is None or not container.is_bound or container.slot is None:
            continue
        digest = f"{container.incarnation} {replicas!r}"
        is_told = container.sent > 0 and container.sent_digest == digest
        is_heeded = container.obeyed >= container.sent
        waited = view.now_ms - container.sent_ms
        if is_told and (is_heeded or waited < policy_of(view, container).resend_ms):
            continue
        number += 1
        # A resend repeats the number of what it repeats.
        yield SendAssign(
            container.id,
            container.incarnation,
            container.sent if is_told else number,
            replicas,
            container.slot.processor.job,
            digest,
        )


def _is_withdrawn(view: ClusterView, job: str) -> bool:
    """Return whether no task of ``job`` has an active any more, durably."""
    return all(
        task not in view.writing
        and (view.records.get(task) is None or view.records[task].record.active is None)
        for task in view.jobs[job].model.tasks()
    )
