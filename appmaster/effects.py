"""Carries out the planner's actions; every outcome comes back as an event."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, TimeoutError  # noqa: A004 - in 3.10 not yet the built-in one
from dataclasses import dataclass, field, replace
from typing import Final

from appmaster.leadership.cells import Cells
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import Action, Change
from appmaster.planning.state.events import Event
from appmaster.planning.state.view import ClusterView, Command, Recorded
from appmaster.ports import ControlPort, LeaderRecords
from appmaster.records import EndedRecord, StatusRecord
from standby import wire
from standby.errors import Fenced, StandfastError, Transient, Unavailable
from standby.threads.worker import Worker
from standby.wire import JobDefinition

_log = logging.getLogger(__name__)

#: Pause between attempts to learn the outcome of a write while ZooKeeper does not answer, seconds.
_RETRY_SECONDS: Final = 0.2


@dataclass
class Effects:
    """The outer side of every action."""

    post: Callable[[Event], None]
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    records: LeaderRecords
    cells: Cells
    control: ControlPort
    fence: Callable[[JobDefinition], None]
    """Fences the writers of every task of a job, and may take long; raises `StandfastError`."""
    resign: Callable[[str], None]
    """Called, from any thread, when another leads: nothing may be written any more."""
    reload: Callable[[], None]
    """Has the jobs and their records read again, and given to the leader."""
    replies: Replies
    definitions: dict[str, dict[int, JobDefinition]] = field(default_factory=dict)
    """Job → each revision of it that is known."""
    writer: Worker = field(default_factory=lambda: Worker("records").start())
    """What must keep its order, and may block on ZooKeeper."""

    def carry_out(self, action: Action, view: ClusterView) -> None:
        """Begin ``action``; never blocks on a server."""
        if isinstance(action, todo.WriteRecords):
            self.writer.put(lambda: self._write_records(action))
        elif isinstance(action, todo.WriteModel):
            self.writer.put(lambda: self._write_model(action, view.jobs[action.job].spec.stage))
        elif isinstance(action, todo.Answer):
            self.replies.reply(action)
        elif isinstance(action, todo.WriteStatus):
            job = view.jobs[action.job]
            ended = EndedRecord(job.run, job.revision) if action.is_over else None
            self.writer.put(lambda: self._write_status(action, ended))
        elif isinstance(action, todo.SendAssignment):
            self._send_assignment(action, view)
        elif isinstance(action, todo.SendExit):
            self.control.send(
                action.container, action.incarnation, wire.Exit(view.epoch, action.reason, action.purge)
            )
        elif isinstance(action, todo.ProbePort):
            self.control.probe(action.container, action.incarnation)
        elif isinstance(action, todo.RequestContainer):
            self.cells.request(action.number, action.host, action.cell)
        elif isinstance(action, (todo.CancelRequest, todo.ReleaseContainer)):
            self.cells.release(action.skein_id)
        elif isinstance(action, todo.FenceTasks):
            threading.Thread(target=self._fence, args=(action,), name="fence", daemon=True).start()

    def _send_assignment(self, action: todo.SendAssignment, view: ClusterView) -> None:
        known = [self.definitions.get(job, {}).get(revision) for job, revision in action.jobs]
        definitions = tuple(each for each in known if each is not None)
        if len(definitions) < len(known):
            # So old that nobody has kept it: what the container runs cannot be said to it any more.
            reason = f"its revisions {dict(action.jobs)} are not kept any more"
            self.control.send(action.container, action.incarnation, wire.Exit(view.epoch, reason))
            return
        message = wire.Assignment(view.epoch, action.incarnation, action.number, action.replicas, definitions)
        self.control.send(action.container, action.incarnation, message)

    def _write_model(self, action: todo.WriteModel, stage: str) -> None:
        while True:
            try:
                written = self.records.write_model(action.model, stage)
            except Fenced as error:
                self.resign(str(error))
                return
            except Transient as error:
                _log.warning("model %d of %s: %s", action.model.version, action.job, error)
                time.sleep(_RETRY_SECONDS)
                continue
            if written is None:
                break
            self.post(happened.ModelWritten(action.job, written))
            return
        # Another version is there; perhaps this one, whose answer was lost.
        self.post(happened.ModelRefused(action.job, "the recorded model had changed"))
        self.reload()

    def _write_records(self, action: todo.WriteRecords) -> None:
        while True:
            try:
                written = self.records.write_tasks(action.changes)
                break
            except Fenced as error:
                self.resign(str(error))
                return
            except Transient as error:
                _log.warning("decision %s: outcome unknown: %s", action.decision, error)
                written = self._read_back(action)
                if written is not None:
                    break
        if written is not None:
            self.post(happened.RecordsWritten(action.decision, written, self.now_ms()))
            return
        self.post(happened.RecordsRefused(action.decision, "a record had changed under the decision"))
        self._reload(action)

    def _read_back(self, action: todo.WriteRecords) -> tuple[Recorded, ...] | None:
        """Return the records if the write of unknown outcome was done after all, else None: do it again."""
        while True:
            time.sleep(_RETRY_SECONDS)
            try:
                present = self.records.read_tasks(action.changes)
            except Transient:
                continue
            done = len(present) == len(action.changes) and all(
                each.record.decision == action.decision for each in present
            )
            return present if done else None

    def _reload(self, action: todo.WriteRecords) -> None:
        while True:
            try:
                present = self.records.read_tasks(action.changes)
            except Transient:
                time.sleep(_RETRY_SECONDS)
                continue
            self.post(happened.RecordsLoaded(as_recorded(action.changes, present)))
            return

    def _write_status(self, action: todo.WriteStatus, ended: EndedRecord | None) -> None:
        status = StatusRecord(
            action.state,
            action.reasons,
            self.wall_ms(),
            action.traceback,
            ended,
            failure=action.failure.kind.value if action.failure is not None else "",
        )
        while True:
            try:
                self.records.write_status(action.job, status)
                return
            except Fenced as error:
                self.resign(str(error))
                return
            except Transient as error:
                _log.warning("status of %s: %s", action.job, error)
                time.sleep(_RETRY_SECONDS)

    def _fence(self, action: todo.FenceTasks) -> None:
        try:
            revisions = self.definitions[action.job]
            self.fence(revisions[max(revisions)])
        except StandfastError as error:
            self.post(happened.FencingFailed(action.job, str(error)))
            return
        self.post(happened.TasksFenced(action.job))


class Replies:
    """Commands that wait for the leader's answer; safe to use from several threads."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[todo.Answer]] = {}

    def ask(self, make: Callable[[int], Command], timeout_seconds: float) -> todo.Answer:
        """Return the leader's answer to the command that ``make`` makes of its number; raises `Unavailable`."""
        number = next(self._numbers)
        answer: Future[todo.Answer] = Future()
        self._waiting[number] = answer
        try:
            self._post(happened.Commanded(make(number)))
            return answer.result(timeout_seconds)
        except TimeoutError as error:
            # Or it would be done all the same, to everybody's surprise, when ZooKeeper is back for example.
            self._post(happened.CommandWithdrawn(number))
            raise Unavailable(f"the leader has not decided within {timeout_seconds:g} s") from error
        finally:
            self._waiting.pop(number, None)

    def reply(self, answer: todo.Answer) -> None:
        """Hand an answer to whoever waits for it."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None:
            waiting.set_result(answer)


def as_recorded(changes: Sequence[Change], present: Sequence[Recorded]) -> tuple[Recorded, ...]:
    """Return what is recorded of the tasks in ``changes``, blank records for those that have none.

    A blank one has version -1: the planner creates it then.
    """
    known = {each.record.task: each for each in present}
    return tuple(
        known.get(each.record.task)
        or Recorded(
            replace(
                each.record,
                active=None,
                epoch=0,
                placed={},
                hosts={},
                in_sync=(),
                claimed=False,
                decision="",
                revision=0,
            ),
            -1,
        )
        for each in changes
    )
