"""How far each job is, and why it is no further. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from appmaster.planning.actions import Action, WriteStatus
from appmaster.planning.model import BerthId, job_of
from appmaster.planning.models import exhaustions
from appmaster.planning.requests import exhausted
from appmaster.planning.turn import Cohort, Turn
from appmaster.planning.view import Job, JobState, OnExhausted, Presence
from standby.model import Phase, Role, SlotId

#: Most reasons that a status carries; the rest is counted.
_MOST_REASONS = 10


def statuses(turn: Turn) -> Iterator[Action]:
    """Yield the new status of every job whose status has changed."""
    for job in turn.view.jobs.values():
        state, reasons = _status(turn, job)
        if (state, reasons) != (job.state, job.reasons):
            yield WriteStatus(job.name, state.value, reasons)


def _status(turn: Turn, job: Job) -> tuple[JobState, tuple[str, ...]]:
    view = turn.view
    if job.failure and job.is_wanted:
        return JobState.FAILED, (job.failure,)
    if not job.is_wanted:
        left = any(
            each.presence is not Presence.ORPHAN and (view.job_of(each) or job).name == job.name
            for each in view.containers.values()
        )
        asked = any(job_of(each.place) == job.name for each in view.requests.values())
        if job.is_fenced and not left and not asked:
            return JobState.UNDEPLOYED, ()
        return JobState.UNDEPLOYING, ()
    failure = _failure(turn, job)
    if failure:
        return JobState.FAILED, (failure,)
    if job.model.version == 0:
        return JobState.DEPLOYING, ("its job model is being made",)
    missing = [f"{processor}: parked: {why}" for processor, why in job.model.parked.items()]
    missing += _missing(turn, job)
    notes = (job.withheld, *job.notes) if job.withheld else job.notes
    if len(missing) > _MOST_REASONS:
        missing = [*missing[:_MOST_REASONS], f"and {len(missing) - _MOST_REASONS} more"]
    if not missing:
        return JobState.DEPLOYED, notes
    return (JobState.INCOMPLETE if job.was_deployed else JobState.DEPLOYING), (*missing, *notes)


def _failure(turn: Turn, job: Job) -> str:
    """Return why the job has to be given up; empty when it has not."""
    if job.policy.on_exhausted is OnExhausted.FAIL:
        for _, why in exhaustions(turn, job):
            return why
    for place, attempts in turn.view.attempts.items():
        if isinstance(place, BerthId) and place.job == job.name and exhausted(turn.view, job, attempts):
            return (
                f"containers failed {len(attempts.failures_ms)} times within {job.policy.retry_window_ms} ms, "
                f"{job.policy.retry_count} are allowed; the last time: {attempts.last}"
            )
    return ""


def _missing(turn: Turn, job: Job) -> Iterator[str]:
    """Yield what keeps the job from being deployed: each replica that is not in place and restored.

    A settled processor lacks nothing. The texts hold no figures that change by themselves, or the status
    would be written every second.
    """
    for other, processor in turn.unsettled():
        if other.name != job.name or job.model.processors[processor].parked:
            continue
        cohorts = turn.cohorts(job, processor)
        if cohorts is None:
            # Being written: what it lacked a moment ago, it may lack still.
            yield from (each for each in job.reasons if each.startswith(f"{processor}:"))
            continue
        for cohort in cohorts:
            yield from _lacking(turn, cohort)


def _lacking(turn: Turn, cohort: Cohort) -> Iterator[str]:
    for copy in cohort.copies:
        slot = SlotId(cohort.processor, copy)
        holder = turn.holder(cohort, copy)
        if holder is None or holder.presence is Presence.SUSPECT:
            yield f"{cohort.processor}: copy {copy}: {_why_unplaced(turn, cohort, slot)}"
            continue
        role = Role.ACTIVE if cohort.record.active == copy else Role.STANDBY
        expected = Phase.ACTIVE if role is Role.ACTIVE else Phase.TAILING
        for each, status in zip(cohort.recorded, turn.statuses(cohort, copy, holder), strict=True):
            task = each.record.task.partition
            if status is None or status.role is not role:
                yield f"{cohort.processor}: task {task}, copy {copy}: told to be {role.value}"
            elif status.phase is not expected:
                yield f"{cohort.processor}: task {task}, copy {copy}: {status.phase.value}"
            elif role is Role.STANDBY and copy not in each.record.in_sync:
                yield f"{cohort.processor}: task {task}, copy {copy}: not in sync"


def _why_unplaced(turn: Turn, cohort: Cohort, slot: SlotId) -> str:
    view = turn.view
    if cohort.record.displaced == slot.copy:
        return "makes way for the active"
    request = turn.request_at(slot)
    if request is not None:
        return f"waiting for a container on {request.host or 'any host'}"
    for container in turn.free_at(cohort.job, slot):
        return f"its container on {container.host} is {container.presence.value}"
    kept = view.containers.get(cohort.record.placed.get(slot.copy, ""))
    if kept is not None:
        return f"its container on {kept.host} is {kept.presence.value}"
    if cohort.job.withheld:
        return "not asked for while its code cannot be had"
    attempts = view.attempts.get(slot)
    if attempts is not None and attempts.last:
        return f"asked for again soon; {_without_figures(attempts.last)}"
    return "about to be asked for"


def _without_figures(text: str) -> str:
    """Return a reason without the time that was waited, which differs each time."""
    return text.split(" in ", 1)[0]
