"""The next version of a job model, after a change of the job or when a processor is parked. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests.requests import exhausted
from appmaster.planning.rules.failover import poison
from appmaster.planning.state.actions import Action, WriteModel
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import Job, OnExhausted
from appmaster.planning.state.model import JobModel, propose
from appmaster.planning.state.reasons import FailureReason, Reason
from appmaster.planning.state.view import ClusterView
from standby.shared.model import Phase, ProcessorId, SlotId


def writes(turn: Turn) -> Iterator[Action]:
    """Yield the next model of every job whose recorded one differs from what the job asks for."""
    for job in turn.view.jobs.values():
        if job.is_modelling or not job.is_led:
            continue
        model, reason = next_model(turn.view, job)
        if model is not job.model:
            yield write(turn, job, model, reason)
            continue
        if job.policy.on_exhausted is not OnExhausted.PARK:
            continue
        for processor, why in exhaustions(turn, job):
            if not job.model.processors[processor].parked:
                yield write(turn, job, job.model.parking(processor, why), str(why))
                break


def write(turn: Turn, job: Job, model: JobModel, reason: str) -> WriteModel:
    """Return the writing of a job's next model. Another one in this turn would have the same version."""
    turn.modelled.add(job.name)
    return WriteModel(job.name, model, reason)


def next_model(view: ClusterView, job: Job) -> tuple[JobModel, str]:
    """Return the model that the job's configuration asks for, and why; the present one if it is right."""
    if job.is_model_right:
        return job.model, ""
    if job.model.version == 0:
        return propose(job.name, job.spec), "the first model"
    actives = {
        processor: recorded.record.active
        for processor, each in job.model.processors.items()
        if each.tasks
        and (recorded := view.records.get(each.tasks[0])) is not None
        and recorded.record.active is not None
    }
    return propose(job.name, job.spec, job.model, actives), "the job's configuration has changed"


def exhaustions(turn: Turn, job: Job) -> Iterator[tuple[ProcessorId, Reason[FailureReason]]]:
    """Yield the processors that failed more often than the job allows, or that cannot succeed, and why.

    A container that belongs to no processor (as in a mixed job) parks none: the job fails then, whatever the
    policy.
    """
    view = turn.view
    for slot, attempts in sorted(
        ((slot, each) for slot, each in view.attempts.items() if isinstance(slot, SlotId)),
        key=lambda each: each[0],
    ):
        if slot.processor in job.model.processors and exhausted(view, job, attempts):
            yield slot.processor, too_often(job, str(slot), attempts)
    for processor in sorted(view.unsettled):
        if processor.job != job.name or processor not in job.model.processors:
            continue
        for cohort in turn.cohorts(job, processor) or ():
            why = poison(cohort, turn)
            active = cohort.record.active
            holder = turn.holder(cohort, active) if active is not None else None
            for status in turn.statuses(cohort, active, holder) if holder and active is not None else ():
                if status is not None and status.phase is Phase.FAILED and status.fault.is_poison:
                    why = Reason(FailureReason.POISON, f"{status.replica.task}: {status.detail}")
            if why is not None and not (holder is not None and not holder.has_ended):
                yield processor, why


def too_often(job: Job, what: str, attempts: Attempts) -> Reason[FailureReason]:
    """Return the reason that ``what`` has used up the retry budget of a job."""
    return Reason(
        FailureReason.TOO_OFTEN,
        f"{what} failed {len(attempts.failures_ms)} times within {job.policy.retry_window_ms} ms, "
        f"{job.policy.retry_count} are allowed; the last time: {attempts.last}",
    )
