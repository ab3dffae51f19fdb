"""How far each job is, and why it is no further. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from appmaster.planning.actions import Action, WriteStatus
from appmaster.planning.requests import exhausted
from appmaster.planning.view import Attempts, ClusterView, Job, JobState
from standby.model import Phase, ReplicaId, Role, SlotId

#: Most reasons that a status carries; the rest is counted.
_MOST_REASONS = 10


def statuses(view: ClusterView) -> Iterator[Action]:
    """Yield the new status of every job whose status has changed."""
    for job in view.jobs.values():
        state, reasons = _status(view, job)
        if (state, reasons) != (job.state, job.reasons):
            yield WriteStatus(job.name, state.value, reasons)


def _status(view: ClusterView, job: Job) -> tuple[JobState, tuple[str, ...]]:
    if job.failure:
        return JobState.FAILED, (job.failure,)
    if not job.is_wanted:
        left = [
            each for each in view.containers.values() if each.slot and each.slot.processor.job == job.name
        ]
        asked = [each for each in view.requests.values() if each.slot.processor.job == job.name]
        if job.is_fenced and not left and not asked:
            return JobState.UNDEPLOYED, ()
        return JobState.UNDEPLOYING, ()
    for slot in job.model.slots():
        attempts = view.attempts.get(slot, Attempts())
        if exhausted(view, job, attempts):
            reason = (
                f"{slot} failed {len(attempts.failures_ms)} times within {job.policy.retry_window_ms} ms, "
                f"{job.policy.retry_count} are allowed; the last time: {attempts.last}"
            )
            return JobState.FAILED, (reason,)
    missing = tuple(_missing(view, job))
    if not missing:
        return JobState.DEPLOYED, ()
    if len(missing) > _MOST_REASONS:
        missing = (*missing[:_MOST_REASONS], f"and {len(missing) - _MOST_REASONS} more")
    return (JobState.INCOMPLETE if job.was_deployed else JobState.DEPLOYING), missing


def _missing(view: ClusterView, job: Job) -> Iterator[str]:
    """Yield what keeps the job from being deployed: each replica that is not in place and restored.

    The texts hold no figures that change by themselves, or the status would be written every second.
    """
    bound = view.bound()
    for slot in job.model.slots():
        container = bound.get(slot)
        if container is None:
            yield f"{slot}: {_why_unplaced(view, slot)}"
            continue
        for task in job.model.processors[slot.processor]:
            recorded = view.records.get(task)
            if recorded is None:
                yield f"{slot}: being recorded"
                continue
            status = container.statuses.get(ReplicaId(task, slot.copy))
            role = Role.ACTIVE if recorded.record.active == slot.copy else Role.STANDBY
            expected = Phase.ACTIVE if role is Role.ACTIVE else Phase.TAILING
            if status is None or status.role is not role:
                yield f"{task}#{slot.copy}: told to be {role.value}"
            elif status.phase is not expected:
                yield f"{task}#{slot.copy}: {status.phase.value}"
            elif role is Role.STANDBY and slot.copy not in recorded.record.in_sync:
                yield f"{task}#{slot.copy}: not in sync"


def _why_unplaced(view: ClusterView, slot: SlotId) -> str:
    for request in view.requests.values():
        if request.slot == slot:
            return f"waiting for a container on {request.host or 'any host'}"
    for container in view.containers.values():
        if container.slot == slot:
            return f"its container on {container.host} is {container.presence.value}"
    attempts = view.attempts.get(slot)
    if attempts is not None and attempts.last:
        return f"asked for again soon; {attempts.last}"
    return "about to be asked for"
