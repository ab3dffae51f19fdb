"""The status of each job, and what keeps it from the next state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from appmaster.planning.jobs.models import exhaustions, too_often
from appmaster.planning.placement.pool_fit import has_room, is_pool, why_no_process, why_none_waits
from appmaster.planning.placement.shared_containers import shared_containers, why_no_container
from appmaster.planning.placement.turn import Cohort, Turn, is_current
from appmaster.planning.placement.upgrade import why_kept
from appmaster.planning.requests.requests import exhausted
from appmaster.planning.state.actions import Action, WriteStatus
from appmaster.planning.state.job import EffectKind, Job, JobState, Lack, OnExhausted
from appmaster.planning.state.model import SharedSlotId, job_of
from appmaster.planning.state.reasons import FailureReason, Reason
from appmaster.planning.state.troubles import present_troubles, trouble_text
from appmaster.planning.state.view import Container, Presence, Trouble, TroubleKind
from locality.rules import closed_by
from standby.replica.lifecycle import ENDED
from standby.shared.model import Fault, Phase, ReplicaStatus, Role, SlotId, TaskRecord

#: Most reasons that a status lists; the rest is counted.
_MOST_REASONS = 10

#: What the leader cannot do for a job that is set aside, in words.
_CANNOT: Final[Mapping[EffectKind, str]] = {
    EffectKind.WRITE_RECORDS: "its tasks' records cannot be written",
    EffectKind.WRITE_MODEL: "its model cannot be written",
    EffectKind.WRITE_STATUS: "its status cannot be written",
    EffectKind.SEND_ASSIGNMENT: "its containers cannot be sent their assignments",
    EffectKind.SEND_EXIT: "its containers cannot be told to exit",
    EffectKind.PROBE_PORT: "its containers' ports cannot be probed",
    EffectKind.REQUEST_CONTAINER: "containers cannot be requested",
    EffectKind.GIVE_BACK: "containers cannot be given back",
}


def statuses(turn: Turn) -> Iterator[Action]:
    """Yield the new status of every job whose status has changed."""
    present = present_troubles(turn.view)
    for job in turn.view.jobs.values():
        troubles = present.get(job.name, [])
        found = _found(turn, job, troubles)
        state = found.state
        is_well = state is JobState.DEPLOYED and not _fails(turn, job, troubles)
        traceback = job.last_traceback if job.is_wanted and not is_well else ""
        is_over = state is JobState.FAILED and job.is_over
        reported = (job.state, job.reasons, job.traceback, job.is_reported_over, job.is_risk_recorded)
        if (state, found.reasons, traceback, is_over, job.is_risk_logged) != reported:
            yield WriteStatus(
                job.name,
                state.value,
                found.reasons,
                found.lacks,
                found.failure,
                traceback,
                is_over,
                bool(job.fencing_error),
                job.is_risk_logged,
            )


def _fails(turn: Turn, job: Job, troubles: list[Trouble]) -> bool:
    """Return whether the code of a job fails now: it is tried again, or has failed for good and is to be judged.

    A failed replica has no troubles any more, and it is judged once the record of its task has been written.
    """
    if any(each.kind is TroubleKind.FAILING for each in troubles):
        return True
    # Only a traceback would be forgotten otherwise, so no other job's replicas are searched.
    return bool(job.last_traceback) and any(
        status.phase is Phase.FAILED and status.replica.task.job == job.name
        for container in turn.of_job(job)
        if container.has_ended
        for status in container.statuses.values()
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A job's state, and what keeps it from the next one."""

    state: JobState
    reasons: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    failure: Reason[FailureReason] | None = None


def _found(turn: Turn, job: Job, troubles: list[Trouble]) -> _Found:
    view = turn.view
    if job.failure is not None and job.is_wanted:
        return _failed(job, job.failure)
    if not job.is_wanted:
        left = any(
            each.presence is not Presence.ORPHAN and (view.job_of(each) or job).name == job.name
            for each in view.containers.values()
        )
        asked = any(job_of(each.slot) == job.name for each in view.requests.values())
        if job.is_fenced and not left and not asked:
            return _Found(JobState.UNDEPLOYED)
        waits = [*_set_aside(job)]
        # Without numbers: a status with numbers would be written again with each container that ends.
        if left:
            waits.append("its containers have not all ended")
        if asked:
            waits.append("YARN still has requests for its containers")
        return _Found(JobState.UNDEPLOYING, tuple(waits))
    failure = _failure(turn, job)
    if failure is not None:
        return _failed(job, failure)
    if job.model.version == 0:
        return _Found(JobState.DEPLOYING, ("its job model is being made", *_set_aside(job)))
    missing = [Lack(processor, f"parked: {why}") for processor, why in job.model.parked.items()]
    missing += _missing(turn, job)
    notes = [each for each in (job.quarantined, _refused(job), why_kept(turn, job), *job.notes) if each]
    notes += [*_set_aside(job), *_at_most([trouble_text(each) for each in troubles])]
    if not missing:
        return _Found(JobState.DEPLOYED, tuple(notes))
    state = JobState.INCOMPLETE if job.was_deployed else JobState.DEPLOYING
    said = _at_most([str(each) for each in missing])
    notes = [*(each.note for each in view.cells.values() if each.note), *notes]
    return _Found(state, (*said, *notes), tuple(missing[:_MOST_REASONS]))


def _failed(job: Job, failure: Reason[FailureReason]) -> _Found:
    return _Found(JobState.FAILED, (str(failure), *_set_aside(job)), failure=failure)


def _set_aside(job: Job) -> Iterator[str]:
    """Yield what the leader cannot do for a job at present, and why; it keeps trying, and leads the other jobs."""
    if job.fencing_error:
        yield (
            f"its tasks cannot be fenced: {job.fencing_error}; this is tried again, and its containers end "
            "only once they are fenced"
        )
    for effect, why in sorted(job.faults.items()):
        yield f"set aside, for {_CANNOT[effect]}: {why}; this is tried again"


def _at_most(reasons: list[str]) -> list[str]:
    """Return the first reasons, and the number of the others."""
    more = len(reasons) - _MOST_REASONS
    return [*reasons[:_MOST_REASONS], f"and {more} more"] if more > 0 else reasons


def _failure(turn: Turn, job: Job) -> Reason[FailureReason] | None:
    """Return why the job has to fail; None if it need not."""
    if topic := job.obstacle or _changed_topic(turn, job):
        return Reason(FailureReason.TOPIC, topic)
    if job.is_refused and not _has_working_active(turn, job):
        return Reason(FailureReason.REFUSED, f"its code or configuration {_refusals(job)}")
    if job.policy.on_exhausted is OnExhausted.FAIL:
        for _, why in exhaustions(turn, job):
            return why
    for slot, attempts in turn.view.attempts.items():
        if isinstance(slot, SharedSlotId) and slot.job == job.name and exhausted(turn.view, job, attempts):
            return too_often(job, "containers", attempts)
    return None


def _refusals(job: Job) -> str:
    return f"was refused in {job.refused} containers in a row; the last time: {job.refusal}"


def _refused(job: Job) -> str:
    """Return why an upgrade does not go on; empty if it does."""
    if not job.is_refused:
        return ""
    return f"revision {job.revision} {_refusals(job)}; update it again, or roll back"


def _has_working_active(turn: Turn, job: Job) -> bool:
    """Return whether a task of the job is active although its present revision was refused elsewhere.

    That is one of an earlier revision, or one that has committed.
    """
    return any(
        status.phase is Phase.ACTIVE
        and status.replica.task.job == job.name
        and (status.first_commit_ms is not None or not is_current(job, container))
        for container in turn.of_job(job)
        if container.presence is Presence.LIVE and not container.has_ended
        for status in container.statuses.values()
    )


def _changed_topic(turn: Turn, job: Job) -> str:
    """Return what a container of the job's present revision reports about a topic that was made again; or empty."""
    for container in turn.view.containers.values():
        if container.has_ended and container.revisions.get(job.name) == job.revision:
            for each in container.statuses.values():
                if each.replica.task.job == job.name and each.fault is Fault.CHANGED_TOPIC:
                    return each.detail
    return ""


def _missing(turn: Turn, job: Job) -> Iterator[Lack]:
    """Yield what keeps the job from being deployed: each replica that is not in place and restored.

    A settled processor lacks nothing. The texts contain no figures that change by themselves; otherwise the status
    would be written every second.
    """
    for other, processor in turn.unsettled():
        if other.name != job.name or job.model.processors[processor].parked:
            continue
        cohorts = turn.cohorts(job, processor)
        if cohorts is None:
            # Its records are being written: it may still lack what it lacked a moment ago.
            yield from (each for each in job.lacks if each.processor == processor)
            continue
        for cohort in cohorts:
            yield from _lacking(turn, cohort)
        slots = [SlotId(processor, each) for each in cohorts[0].copies] if not job.model.is_mixed else []
        is_apart = len(cohorts) > 1 and any(turn.home(cohorts, each) is None for each in slots)
        # Its tasks have yet to come together; where they are, they are processed.
        if is_apart and (why := why_no_process(turn.view, job, slots[0])):
            yield Lack(processor, f"no process fits: {why}")


def _lacking(turn: Turn, cohort: Cohort) -> Iterator[Lack]:
    for copy in cohort.copies:
        slot = SlotId(cohort.processor, copy)
        holder = turn.holder(cohort, copy)
        if holder is None or holder.presence is Presence.SUSPECT:
            yield Lack(cohort.processor, f"copy {copy}: {_why_unplaced(turn, cohort, slot)}")
            continue
        for each, status in zip(cohort.recorded, turn.statuses(cohort, copy, holder), strict=True):
            why = (
                _active_lacks(turn, cohort, each.record, holder, status)
                if cohort.record.active == copy
                else _standby_lacks(each.record, copy, status)
            )
            if why:
                yield Lack(cohort.processor, f"task {each.record.task.partition}, copy {copy}: {why}")


def _active_lacks(
    turn: Turn, cohort: Cohort, record: TaskRecord, holder: Container, status: ReplicaStatus | None
) -> str:
    """Return what keeps a task from being processed; empty if it is processed or is being handed over as planned."""
    if status is not None and status.role is Role.ACTIVE and status.phase is Phase.ACTIVE:
        return ""
    handover = turn.view.failovers.get(cohort.processor)
    is_planned = handover is not None and handover.is_planned and handover.to == holder.id
    if is_planned and (status is None or status.phase not in ENDED):
        return ""
    # A new leader trusts the record until it has heard from the container or declares it lost.
    if holder.presence is Presence.EXPECTED and record.claimed and cohort.job.was_deployed:
        return ""
    if status is None or status.role is not Role.ACTIVE:
        return "to become active"
    return _does(status)


def _standby_lacks(record: TaskRecord, copy: int, status: ReplicaStatus | None) -> str:
    """Return what a standby lacks to be in sync; empty if its record has it in sync, as it has a former active."""
    if copy in record.in_sync and (status is None or status.phase not in ENDED):
        return ""
    if status is None or status.role is not Role.STANDBY:
        return "to become a standby"
    return _does(status) if status.phase is not Phase.TAILING else "not in sync"


def _does(status: ReplicaStatus) -> str:
    """Return the phase of a replica, or what it waits for that may never come by itself."""
    return f"waiting: {status.waits_for}" if status.waits_for else status.phase.value


def _why_no_room(turn: Turn, cohort: Cohort, slot: SlotId) -> str:
    """Return why no process of the pool can take a copy, now or later; empty on YARN, or if one can."""
    job = cohort.job
    if not turn.view.processes:
        return ""
    asked = SharedSlotId(job.name, 0) if job.model.is_mixed else slot
    if why := why_no_process(turn.view, job, asked):
        return f"no process fits: {why}"
    held = shared_containers(turn, job) if job.model.is_mixed else []
    if not held or len(held) < job.model.containers:
        return ""
    roomy = sorted({each.host for each in held if has_room(turn, each, 1)})
    if not roomy:
        return "its containers take no more tasks (--tasks, job.container.count)"
    closed = closed_by(turn.siblings((cohort,), slot))
    if any(each not in closed for each in roomy):
        return ""
    return f"no container on another host has room (--tasks): {'; '.join(f'{each} {closed[each]}' for each in roomy)}"


def _why_none_waits(turn: Turn, cohort: Cohort, slot: SlotId) -> str:
    """Return why no process of the pool is requested for a copy; empty on YARN, or if one is, or is not needed."""
    job = cohort.job
    if not job.model.is_mixed:
        return why_none_waits(turn, job, slot, closed_by(turn.siblings((cohort,), slot)))
    is_complete = len(shared_containers(turn, job)) >= job.model.containers
    return "" if is_complete else why_no_container(turn, job)


def _why_unplaced(turn: Turn, cohort: Cohort, slot: SlotId) -> str:
    view = turn.view
    if cohort.record.displaced == slot.copy:
        return "displaced by the active"
    if why := _why_no_room(turn, cohort, slot):
        return why
    request = turn.request_at(slot)
    if request is not None:
        return f"waiting for a container on {request.host or 'any host'}"
    for container in turn.free_at(cohort.job, slot):
        return f"its container on {container.host} is {container.presence.value}"
    kept = view.containers.get(cohort.record.placed.get(slot.copy, ""))
    if kept is not None:
        return f"its container on {kept.host} is {kept.presence.value}"
    if cohort.job.quarantined:
        return "not requested while its code is unavailable"
    if view.cells and not any(each.is_up for each in view.cells.values()):
        return "the pool has no processes" if is_pool(view) else "no cell answers"
    if why := _why_none_waits(turn, cohort, slot):
        return why
    attempts = view.attempts.get(slot)
    if attempts is not None and attempts.last is not None:
        return f"requested again soon; {attempts.last.words}"
    return "about to be requested"
