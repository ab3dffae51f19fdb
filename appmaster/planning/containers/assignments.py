"""What each container is to hold. Always its whole assignment, built from acknowledged records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from appmaster.planning.containers.detect import policy_of
from appmaster.planning.state.actions import Action, FenceTasks, SendAssignment, SendExit, WaiveFence
from appmaster.planning.state.job import EVERY_HOST, Job, PlannerPolicy
from appmaster.planning.state.view import ClusterView, Container, Presence
from standby.shared.model import Phase, ProcessorId, ReplicaId, Role, TaskId, Wanted


def assignment_of(view: ClusterView, container: Container) -> tuple[Wanted, ...] | None:
    """Return the replicas that the records assign to ``container``; None while one of the records is being written."""
    found: list[Wanted] = []
    for task, copy in view.assigned.get(container.id, {}).items():
        if task in view.writing:
            return None
        record = view.records[task].record
        if record.displaced == copy:
            continue  # it is displaced: only its container is still there
        is_here = record.placed.get(copy) == container.id
        processor = view.processor_of(task)
        handover = view.handovers.get(processor) if processor is not None else None
        is_active = is_here and record.active == copy
        found.append(
            Wanted(
                ReplicaId(task, copy),
                Role.ACTIVE if is_active else Role.STANDBY,
                record.epoch,
                is_next=handover is not None
                and handover.to == container.id
                and handover.to_copy == copy
                and not is_active,
                is_paused=not is_active and _is_paused(view.jobs[task.job].policy, container),
            )
        )
    return tuple(sorted(found, key=lambda each: each.replica))


def _is_paused(policy: PlannerPolicy, container: Container) -> bool:
    return any(each in policy.restore_paused for each in (EVERY_HOST, container.host))


def _jobs(
    view: ClusterView, container: Container, replicas: tuple[Wanted, ...]
) -> tuple[tuple[str, int], ...]:
    """Return the jobs that a container serves, each in the revision that the container runs."""
    names = {each.replica.task.job for each in replicas}
    # A container without replicas keeps the jobs that it has warmed up until it is released. A spare one begins its
    # job.
    names.update(name for name in container.revisions if name in view.jobs)
    if (owner := view.job_of(container)) is not None:
        names.add(owner.name)
    return tuple((name, container.revisions.get(name, view.jobs[name].revision)) for name in sorted(names))


def _digest(container: Container, replicas: tuple[Wanted, ...]) -> str:
    return f"{container.incarnation} {replicas!r}"


def is_assignment_sent(view: ClusterView, container: Container) -> bool:
    """Return whether the last assignment that was sent to a container is the present one."""
    replicas = assignment_of(view, container)
    return (
        container.sent > 0 and replicas is not None and container.sent_digest == _digest(container, replicas)
    )


def is_up_to_date(view: ClusterView, container: Container) -> bool:
    """Return whether a container has reported that it applied its present assignment."""
    return container.applied >= container.sent and is_assignment_sent(view, container)


def is_of_unreadable(view: ClusterView, container: Container) -> bool:
    """Return whether a container has the code or copies of a job that cannot be led now, so that it goes on."""
    if not view.unreadable:
        return False
    served = {*container.revisions, *(each.task.job for each in container.statuses)}
    return not view.unreadable.isdisjoint(served)


def has_closed(view: ClusterView, container: Container, tasks: Iterable[TaskId], copy: int) -> bool:
    """Return whether a live container has reported that it closed a copy of ``tasks``, as its assignment requires."""
    if container.presence is not Presence.LIVE or not is_up_to_date(view, container):
        return False
    statuses = (container.statuses.get(ReplicaId(task, copy)) for task in tasks)
    return all(status is None or status.phase is Phase.CLOSED for status in statuses)


def assignments(view: ClusterView, touched: AbstractSet[ProcessorId] = frozenset()) -> Iterator[Action]:
    """Yield the assignment of each container that was not sent its present one or has not reported it as applied.

    ``touched`` are the processors about which this turn has decided already.
    """
    yield from _fences(view)
    number = view.sends
    restless = _restless(view)
    for container in view.containers.values():
        if container.presence is Presence.ORPHAN:
            yield SendExit(container.id, container.incarnation, "this leader does not know it")
        if container.presence is not Presence.LIVE or is_of_unreadable(view, container):
            continue
        held = view.assigned.get(container.id)
        is_applied = container.sent > 0 and container.applied >= container.sent
        if held and is_applied and container.id not in restless and not container.is_leaving:
            continue  # nothing has changed for it
        owner = view.job_of(container) or _only(view)
        if owner is not None and not owner.is_led:
            if owner.is_fenced:
                reason = str(owner.failure or "") or "the job is being undeployed"
                yield SendExit(container.id, container.incarnation, reason, owner.purge)
            continue
        if container.is_leaving and _has_handed_over(view, container, touched):
            yield SendExit(container.id, container.incarnation, "it is being stopped, and has no active")
            continue
        replicas = assignment_of(view, container)
        if replicas is None or not (held or container.sent or container.statuses or container.is_spare):
            continue
        digest = _digest(container, replicas)
        is_sent = container.sent > 0 and container.sent_digest == digest
        waited = view.now_ms - container.sent_ms
        if is_sent and (is_applied or waited < policy_of(view, container).resend_ms):
            continue
        number += 1
        # A resend repeats the number of what it repeats.
        yield SendAssignment(
            container.id,
            container.incarnation,
            container.sent if is_sent else number,
            replicas,
            _jobs(view, container, replicas),
            digest,
        )


def _has_handed_over(view: ClusterView, container: Container, touched: AbstractSet[ProcessorId]) -> bool:
    """Return whether the written records name no active in a container, and none of them is about to."""
    held = view.assigned.get(container.id, {})
    is_decided = not container.binding and not any(
        each in view.writing or view.processor_of(each) in touched for each in held
    )
    return is_decided and not view.actives_in(container.id)


def _fences(view: ClusterView) -> Iterator[Action]:
    """Yield the fence of every job that ends, once no task of it has an active, or the waiver of that fence."""
    number = view.fences
    for job in view.jobs.values():
        if job.is_led or job.is_fenced or not _is_withdrawn(view, job.name):
            continue
        if job.is_fence_waived and not job.is_wanted:
            yield WaiveFence(job.name)
        elif not job.is_fencing and view.now_ms >= job.fence_again_ms:
            number += 1
            yield FenceTasks(number, job.name, job.model.tasks)


def _restless(view: ClusterView) -> frozenset[str]:
    """Return the containers that hold a task of an unsettled processor."""
    return frozenset(
        container
        for processor in view.unsettled
        for task in view.job_tasks(processor)
        if (recorded := view.records.get(task)) is not None
        for container in (*recorded.record.placed.values(), *recorded.record.moving.values())
    )


def _only(view: ClusterView) -> Job | None:
    """Return the cluster's only job, to which a container of unknown job must belong; None if there are several."""
    return next(iter(view.jobs.values())) if len(view.jobs) == 1 else None


def _is_withdrawn(view: ClusterView, job: str) -> bool:
    """Return whether the written records of ``job`` no longer name an active for any task."""
    return all(
        task not in view.writing
        and (view.records.get(task) is None or view.records[task].record.active is None)
        for task in view.jobs[job].model.tasks
    )
