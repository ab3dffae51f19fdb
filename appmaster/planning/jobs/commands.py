"""Commands of operators that begin at once: a planned hand-over, a rebalance, unparking a processor. Pure.

A command is answered in the turn that sees it: with what begins now, or with why it cannot be done. What it begins
continues like any other hand-over; if the leader changes during its preparation, it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from appmaster.planning.jobs import models
from appmaster.planning.jobs.spreading import in_words, is_changing
from appmaster.planning.placement.spread import active_processors, next_steps, stands_of
from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules.planned import best_standby, prepared
from appmaster.planning.rules.rebalance import is_at_rest
from appmaster.planning.state.actions import Action, Answer, ForgetHandover, PrepareHandover
from appmaster.planning.state.job import Job
from appmaster.planning.state.reasons import HandoverMotive, Reason
from appmaster.planning.state.view import Command, Operation
from standby.errors import BrokenInvariant
from standby.shared.model import ProcessorId, SlotId


def answers(turn: Turn) -> Iterator[Action]:
    """Yield what each waiting command begins, and the answer to it."""
    for command in turn.view.commands:
        if command.operation is Operation.UNPARK:
            yield from _unpark(turn, command)
        elif command.operation is Operation.REBALANCE:
            yield _rebalance(turn, command)
        elif command.operation is Operation.HAND_OVER:
            yield from _hand_over(turn, command)
        else:
            _assert_never(command.operation)


def _assert_never(operation: NoReturn) -> NoReturn:
    """Make the type checker reject an operation without a branch."""
    raise BrokenInvariant(f"operation {operation} is unknown")


def _hand_over(turn: Turn, command: Command) -> Iterator[Action]:
    if command.processor is not None:
        asked = [command.processor]
    else:
        if command.container not in turn.view.containers:
            yield Answer(command.number, f"no container {command.container} is known", is_refused=True)
            return
        asked = sorted(turn.view.processors_in(command.container))
    found: dict[ProcessorId, tuple[Cohort, ...]] = {}
    refused: list[str] = []
    for processor in asked:
        job = turn.view.jobs.get(processor.job)
        if job is None or processor not in job.model.processors:
            refused.append(f"there is no {processor}")
            continue
        cohorts = turn.cohorts(job, processor)
        if cohorts is None:
            return  # its records are being written: the next turn answers, and nothing is begun before that
        found[processor] = cohorts
    begun: list[str] = []
    for processor, cohorts in found.items():
        if command.processor is None and not _is_active_in(turn, cohorts, command.container):
            continue
        action, why = _begin(turn, cohorts, command.copy)
        if action is None:
            refused.append(f"{processor}: {why}")
            continue
        if processor in turn.view.handovers:
            yield ForgetHandover(processor, "a command asks for another one")
        yield action
        begun.append(f"{processor} to copy {action.to_copy} in {action.container}")
    said = "; ".join(
        [f"handing over {', '.join(begun)}" if begun else "nothing to hand over"]
        if not refused or begun
        else []
    )
    yield Answer(
        command.number, "; ".join(each for each in (said, *refused) if each), is_refused=bool(refused)
    )


def _is_active_in(turn: Turn, cohorts: tuple[Cohort, ...], container: str) -> bool:
    return any(
        each.record.active is not None and each.record.placed.get(each.record.active) == container
        for each in cohorts
    )


def _begin(turn: Turn, cohorts: tuple[Cohort, ...], copy: int | None) -> tuple[PrepareHandover | None, str]:
    processor = cohorts[0].processor
    under_way = turn.view.handovers.get(processor)
    if processor in turn.handing_over or (
        under_way is not None and under_way.reason.kind is not HandoverMotive.REBALANCE
    ):
        return None, "a hand-over is being prepared already"
    record = cohorts[0].record
    if record.active is None or turn.holder(cohorts[0], record.active) is None:
        return None, "it has no active now"
    if copy == record.active:
        return None, f"copy {copy} is active already"
    target = best_standby(turn, cohorts[0], copy=copy)
    if target is None:
        which = "no standby" if copy is None else f"copy {copy} is no standby that"
        return None, f"{which} is in sync, so nothing can take over as planned"
    to_copy, container = target
    reason = Reason(HandoverMotive.ASKED, "by command")
    return prepared(turn, PrepareHandover(processor, to_copy, container.id, reason)), ""


def _rebalance(turn: Turn, command: Command) -> Answer:
    """Return the answer; if it is not a refusal, the rule *rebalance* starts to spread the job's actives."""
    job = turn.view.jobs.get(command.job)
    if job is None or not job.is_led:
        why = f"there is no job {command.job}" if job is None else f"{job.name} is not running"
        return Answer(command.number, why, is_refused=True)
    is_even = not next_steps(stands_of(turn.view, job, is_asked=True))
    if is_even and not is_changing(turn.view, job) and is_at_rest(turn, job):
        return Answer(
            command.number, f"actives are spread evenly: {in_words(active_processors(turn.view, job))}"
        )
    said = f"spreading actives, one hand-over after the other: {in_words(active_processors(turn.view, job))}"
    return Answer(command.number, said, rebalances=job.name)


def _unpark(turn: Turn, command: Command) -> Iterator[Action]:
    processor = command.processor
    job = turn.view.jobs.get(processor.job) if processor is not None else None
    if job is None or processor is None or processor not in job.model.processors:
        yield Answer(command.number, f"there is no {processor}", is_refused=True)
        return
    if not job.model.processors[processor].parked:
        yield Answer(command.number, f"{processor} is not parked", is_refused=True)
        return
    if job.is_modelling or job.name in turn.modelled:
        return  # the model is being written: the next turn answers
    yield models.write(turn, job, job.model.parking(processor, None), "unparked by command")
    places = tuple(SlotId(processor, copy) for copy in _copies(job, processor))
    yield Answer(command.number, f"{processor} runs again", clears=places)


def _copies(job: Job, processor: ProcessorId) -> tuple[int, ...]:
    return job.model.processors[processor].copies
