"""How far each job is, and why it is no further. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from appmaster.planning.actions import Action, WriteStatus
from appmaster.planning.model import BerthId, job_of
from appmaster.planning.models import exhaustions
from appmaster.planning.requests import exhausted
from appmaster.planning.troubles import in_words, present_troubles
from appmaster.planning.turn import Cohort, Turn
from appmaster.planning.view import (
    Container,
    Job,
    JobState,
    OnExhausted,
    Presence,
    Trouble,
    TroubleKind,
)
from standby.model import Phase, ReplicaStatus, Role, SlotId, TaskRecord
from standby.replica.identity import is_changed_topic
from standby.replica.lifecycle import ENDED

#: Most reasons that a status carries; the rest is counted.
_MOST_REASONS = 10


def statuses(turn: Turn) -> Iterator[Action]:
    """Yield the new status of every job whose status has changed."""
    present = present_troubles(turn.view)
    for job in turn.view.jobs.values():
        troubles = present.get(job.name, [])
        state, reasons = _status(turn, job, troubles)
        is_well = state is JobState.DEPLOYED and all(
            each.kind is not TroubleKind.FAILING for each in troubles
        )
        traceback = job.last_traceback if job.is_wanted and not is_well else ""
        is_over = state is JobState.FAILED and job.is_over
        told = (job.state, job.reasons, job.traceback, job.is_told_over)
        if (state, reasons, traceback, is_over) != told:
            yield WriteStatus(job.name, state.value, reasons, traceback, is_over)


def _status(turn: Turn, job: Job, troubles: list[Trouble]) -> tuple[JobState, tuple[str, ...]]:
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
    notes = [job.withheld, *job.notes] if job.withheld else list(job.notes)
    notes += _at_most([in_words(each) for each in troubles])
    if not missing:
        return JobState.DEPLOYED, tuple(notes)
    return (JobState.INCOMPLETE if job.was_deployed else JobState.DEPLOYING), (*_at_most(missing), *notes)


def _at_most(reasons: list[str]) -> list[str]:
    """Return the first reasons, and how many more there are."""
    more = len(reasons) - _MOST_REASONS
    return [*reasons[:_MOST_REASONS], f"and {more} more"] if more > 0 else reasons


def _failure(turn: Turn, job: Job) -> str:
    """Return why the job has to be given up; empty when it has not."""
    if why := job.obstacle or _changed_topic(turn, job):
        return why
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


def _changed_topic(turn: Turn, job: Job) -> str:
    """Return what a container of the job's present revision tells of a topic that is another one."""
    for container in turn.view.containers.values():
        if container.has_ended and container.revisions.get(job.name) == job.revision:
            for each in container.statuses.values():
                is_ours = each.replica.task.job == job.name and each.phase is Phase.FAILED
                if is_ours and is_changed_topic(each.detail):
                    return each.detail
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
        for each, status in zip(cohort.recorded, turn.statuses(cohort, copy, holder), strict=True):
            why = (
                _active_lacks(turn, cohort, holder, status)
                if cohort.record.active == copy
                else _standby_lacks(each.record, copy, status)
            )
            if why:
                yield f"{cohort.processor}: task {each.record.task.partition}, copy {copy}: {why}"


def _active_lacks(turn: Turn, cohort: Cohort, holder: Container, status: ReplicaStatus | None) -> str:
    """Return what keeps a task from being served; empty when it is, or when that changes hands as planned."""
    if status is not None and status.role is Role.ACTIVE and status.phase is Phase.ACTIVE:
        return ""
    handover = turn.view.failovers.get(cohort.processor)
    is_planned = handover is not None and handover.is_planned and handover.to == holder.id
    if is_planned and (status is None or status.phase not in ENDED):
        return ""
    # A new leader has its record's word until it has heard the container, or finds it lost.
    if holder.presence is Presence.EXPECTED and cohort.record.claimed and cohort.job.was_deployed:
        return ""
    if status is None or status.role is not Role.ACTIVE:
        return "told to be active"
    return status.phase.value


def _standby_lacks(record: TaskRecord, copy: int, status: ReplicaStatus | None) -> str:
    """Return what a standby lacks to be in sync; empty when its record says that it is, as of a former active."""
    if copy in record.in_sync and (status is None or status.phase not in ENDED):
        return ""
    if status is None or status.role is not Role.STANDBY:
        return "told to be standby"
    return status.phase.value if status.phase is not Phase.TAILING else "not in sync"


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
