"""The part of the control API that only the leader serves: the status, commands, and explanations of placement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from appmaster.api.server import text_in
from appmaster.effects import Replies
from appmaster.planning.placement.left_state import histories
from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests.needs import Need
from appmaster.planning.requests.requests import cell_loads, host_loads, placement_question
from appmaster.planning.state.job import Job
from appmaster.planning.state.view import ClusterView, Command, Operation
from locality.judging import explain
from standby.errors import BadConfiguration
from standby.shared.model import ProcessorId, SlotId, TaskId

#: How long a command waits for the turn that decides it: a record may be being written to ZooKeeper.
_DECISION_SECONDS: Final = 4.0

#: The operations that are commands.
_COMMANDS: Final = {
    "handover": Operation.HAND_OVER,
    "unpark": Operation.UNPARK,
    "rebalance": Operation.REBALANCE,
}


@dataclass(frozen=True)
class LeaderApi:
    """Answers questions; any thread may call it."""

    view: Callable[[], ClusterView]
    status: Callable[[], Mapping[str, Any]]
    replies: Replies

    def __call__(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to one question; errors are raised as `StandfastError` or are in the answer."""
        operation = asked.get("operation")
        if operation == "status":
            return self.status()
        if operation == "explain":
            return self._explain(_task(self.view(), asked))
        if operation in _COMMANDS:
            return self._command(_COMMANDS[operation], asked)
        return {"error": f"no such operation: {operation}", "status": 2}

    def _command(self, operation: Operation, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        view = self.view()
        container, processor, job = "", None, ""
        if operation is Operation.REBALANCE:
            job = text_in(asked, "job")
        elif asked.get("container"):
            container = text_in(asked, "container")
            served = {each.job for each in view.processors_in(container)}
            if asked.get("job") and served and asked["job"] not in served:
                raise BadConfiguration(f"{container} serves {', '.join(sorted(served))}, not {asked['job']}")
        elif asked.get("processor") is not None:
            processor = _processor(view, asked)
        else:
            task = _task(view, asked)
            processor = view.processor_of(task)
        copy = _number(asked, "copy") if asked.get("copy") is not None else None
        answer = self.replies.ask(
            lambda number: Command(number, operation, processor, container, copy, job), _DECISION_SECONDS
        )
        if answer.is_refused:
            return {"error": answer.said, "status": 1}
        return {"said": answer.said}

    def _explain(self, task: TaskId) -> Mapping[str, Any]:
        """Return why each copy of a task is where it is, and why no other location is better."""
        view = self.view()
        processor = view.processor_of(task)
        if processor is None:
            raise BadConfiguration(f"there is no task {task}")
        job = view.jobs[task.job]
        turn = Turn(view)
        found = next((each for each in turn.cohorts(job, processor) or () if task in each.tasks), None)
        if found is None:
            return {"task": str(task), "copies": [], "note": "its record is being written; ask again"}
        copies = []
        for copy in sorted({*found.copies, *found.record.placed}):
            holder = turn.holder(found, copy)
            slot = SlotId(processor, copy)
            need = Need(
                slot,
                job,
                is_active=copy == found.record.active,
                preferred=found.record.hosts.get(copy) if job.policy.host_affinity else None,
                siblings=turn.siblings((found,), slot),
                histories=histories(turn, (found,), copy),
            )
            # The load that the copy itself adds to its host and cell does not count.
            own = holder.id if holder is not None else ""
            asked = placement_question(turn, need, host_loads(turn, own), cell_loads(turn, own))
            present = turn.host(holder.host, holder.cell) if holder is not None else None
            copies.append(
                {
                    "copy": copy,
                    "role": "active" if copy == found.record.active else "standby",
                    "host": holder.host if holder is not None else None,
                    "container": holder.id if holder is not None else None,
                    "why": list(explain(asked, view.offers, present)),
                }
            )
        return {"task": str(task), "processor": str(processor), "copies": copies}


def _task(view: ClusterView, asked: Mapping[str, Any]) -> TaskId:
    job, partition = _job(view, asked), _number(asked, "partition")
    task = TaskId(job.name, job.spec.stage, partition)
    if view.processor_of(task) is None:
        raise BadConfiguration(f"{job.name} has no task {partition}; it has 0 to {len(job.model.tasks) - 1}")
    return task


def _processor(view: ClusterView, asked: Mapping[str, Any]) -> ProcessorId:
    job, number = _job(view, asked), _number(asked, "processor")
    processor = ProcessorId(job.name, job.spec.stage, number)
    if processor not in job.model.processors:
        numbers = ", ".join(str(each.number) for each in sorted(job.model.processors))
        raise BadConfiguration(f"{job.name} has no processor {number}; it has {numbers}")
    return processor


def _job(view: ClusterView, asked: Mapping[str, Any]) -> Job:
    name = text_in(asked, "job")
    if name not in view.jobs:
        raise BadConfiguration(f"there is no job {name} in this cluster")
    return view.jobs[name]


def _number(asked: Mapping[str, Any], name: str) -> int:
    value = asked.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadConfiguration(f"{name}: {value!r} is not a number")
    return value
