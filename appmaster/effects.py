"""Carries out the planner's actions; every outcome comes back as an event.

An error while one job's action is carried out concerns only that job (`appmaster.blame`): it is posted as an event, and
the action is tried again after a growing pause. The other jobs are led meanwhile.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from appmaster.blame import Blame, blame, describe_error, is_of_job
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import Action, RecordWrite
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import EffectKind
from appmaster.planning.state.model import job_of
from appmaster.planning.state.view import ClusterView, Command, Recorded
from appmaster.ports import ContainerRequests, ControlPort, LeaderRecords
from appmaster.records import EndedRecord, StatusRecord
from standby.errors import Transient, Unavailable
from standby.replica.failing import doubled_seconds
from standby.shared import wire
from standby.shared.clock import Clock, have_ended
from standby.shared.probes import Probe, no_probe
from standby.shared.wire import JobDefinition
from standby.threads.worker import Worker, fatal

_log = logging.getLogger(__name__)

#: Pause between attempts to find out the outcome of a write while ZooKeeper does not answer, seconds.
_RETRY_SECONDS: Final = 0.2

#: Pause before something that failed for one job is tried again, seconds: the first, doubled each time; the longest.
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 15.0

# Named points; see `standby.shared.probes`.
WRITING: Final = "leader: records about to be written"
WRITTEN: Final = "leader: records written, not announced"
REQUESTED: Final = "leader: container requested"
ASSIGNING: Final = "leader: assignment about to be sent"


def _start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="fence", daemon=True).start()


@dataclass
class LeaderEffects:
    """Carries out actions in the outside world."""

    post: Callable[[Event], None]
    clock: Clock
    records: LeaderRecords
    cells: ContainerRequests
    control: ControlPort
    fence: Callable[[JobDefinition], None]
    """Fences the writers of every task of a job; may take long; raises `StandfastError`."""
    resign: Callable[[str], None]
    """Called, on any thread, when another candidate leads: nothing may be written any more."""
    reload: Callable[[], None]
    """Causes the jobs and their records to be read again and passed to the leader."""
    replies: Replies
    definitions: dict[str, dict[int, JobDefinition]] = field(default_factory=dict)
    """Job → each known revision of it."""
    broken: Callable[[BaseException], None] = fatal
    """Called, on any thread, for an error after which the process has to end."""
    beside: Callable[[Callable[[], None]], None] = _start_thread
    """Runs work that takes long on a separate thread."""
    probe: Probe = no_probe
    writer: Worker = field(init=False)
    """Runs work that must keep its order and may block on ZooKeeper."""
    _failed: dict[tuple[str, EffectKind], int] = field(default_factory=dict)
    """Job and effect → how often in a row it has failed; guarded by the lock."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _statuses: dict[str, int] = field(default_factory=dict)
    """Job → the number of its latest status to write; used on the writer's thread."""

    def __post_init__(self) -> None:
        self.writer = Worker("records", failed=self._writer_failed).start()

    def carry_out(self, action: Action, view: ClusterView) -> None:
        """Start ``action``; never blocks on a server. Raises no error that affects only one job."""
        try:
            self._begin(action, view)
        except Exception as error:
            if not is_of_job(error):
                raise
            self._not_begun(action, view, error)

    def _begin(self, action: Action, view: ClusterView) -> None:
        if isinstance(action, todo.WriteRecords):
            self.writer.put(lambda: self._write_records(action))
        elif isinstance(action, todo.WriteModel):
            self.writer.put(lambda: self._write_model(action, view.jobs[action.job].spec.stage))
        elif isinstance(action, todo.Answer):
            self.replies.reply(action)
        elif isinstance(action, todo.WriteStatus):
            job = view.jobs[action.job]
            deployment = EndedRecord(job.run, job.revision)
            self.writer.put(lambda: self._write_status(action, deployment))
        elif isinstance(action, todo.SendAssignment):
            self._send_assignment(action, view)
        elif isinstance(action, todo.SendExit):
            self.control.send(
                action.container, action.incarnation, wire.Exit(view.epoch, action.reason, action.purge)
            )
            self._done(_served_by(view, action.container), EffectKind.SEND_EXIT)
        elif isinstance(action, todo.ProbePort):
            self.control.probe(action.container, action.incarnation)
            self._done(_served_by(view, action.container), EffectKind.PROBE_PORT)
        elif isinstance(action, todo.RequestContainer):
            self.cells.request(action.number, action.host, action.cell, action.demand)
            self.probe(REQUESTED)
            self._done(job_of(action.slot), EffectKind.REQUEST_CONTAINER)
        elif isinstance(action, (todo.CancelRequest, todo.ReleaseContainer)):
            self.cells.release(action.skein_id)
        elif isinstance(action, todo.FenceTasks):
            self.beside(lambda: self._fence(action))

    def _not_begun(self, action: Action, view: ClusterView, error: Exception) -> None:
        """Post that an action could not be started, so that the planner, or a later attempt, continues from there."""
        if isinstance(action, todo.FenceTasks):
            self._not_fenced(action, error)
        elif isinstance(action, todo.RequestContainer):
            self._note(job_of(action.slot), EffectKind.REQUEST_CONTAINER, error)
            self.post(
                happened.RequestRefused(action.number, describe_error(error), self.clock.monotonic_ms())
            )
        elif isinstance(action, todo.ProbePort):
            self._note(_served_by(view, action.container), EffectKind.PROBE_PORT, error)
            # A container that cannot be asked does not count as silent; it is asked again.
            self.post(
                happened.PortProbed(action.container, action.incarnation, True, self.clock.monotonic_ms())
            )
        elif isinstance(action, (todo.CancelRequest, todo.ReleaseContainer)):
            self._not_given_back(action.skein_id, action.job, error)
        elif isinstance(action, todo.SendAssignment):
            # Sent again, like one that was not reported as applied.
            self._note(_job_in(action), EffectKind.SEND_ASSIGNMENT, error)
        elif isinstance(action, todo.SendExit):
            # A container that does not exit is given back to YARN.
            self._note(_served_by(view, action.container), EffectKind.SEND_EXIT, error)
        else:
            # It belongs to no job: the client gets no answer, and asks again.
            _log.error("%s could not be carried out", type(action).__name__, exc_info=error)

    # ---- what failed ----

    def _note(self, job: str, effect: EffectKind, error: BaseException) -> float:
        """Post that something failed for a job; return the pause before it is tried again, seconds."""
        with self._lock:
            failures = self._failed[job, effect] = self._failed.get((job, effect), 0) + 1
        _log.error(
            "%s: %s: %s", job, effect.value, describe_error(error), exc_info=error if failures == 1 else None
        )
        self.post(happened.EffectFailed(job, effect, describe_error(error)))
        return doubled_seconds(failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    def _done(self, job: str, effect: EffectKind) -> None:
        """Post that something succeeded for a job, if it had failed before."""
        if not self._failed:
            return
        with self._lock:
            had_failed = self._failed.pop((job, effect), 0) > 0
        if had_failed:
            _log.info("%s: %s: done", job, effect.value)
            self.post(happened.EffectDone(job, effect))

    def _written(
        self, job: str, effect: EffectKind, write: Callable[[], bool], again: Callable[[], None]
    ) -> None:
        """Write something of a job, on the writer's thread; ``write`` returns whether it succeeded.

        A failure concerns only that job: ``again`` follows, on the same thread, after a pause, so that the writer is
        available to the other jobs.
        """
        try:
            if write():
                self._done(job, effect)
        except Exception as error:
            whose = blame(error)
            if whose is Blame.LEADERSHIP:
                self.resign(str(error))
            elif whose is Blame.PROCESS:
                raise
            else:
                pause = self._note(job, effect, error)
                self.clock.later(pause, lambda: self.writer.put(again))

    def _writer_failed(self, error: BaseException) -> None:
        if blame(error) is Blame.PROCESS:
            self.broken(error)
            return
        _log.error("records: an unexpected error", exc_info=error)

    def _not_given_back(self, skein_id: str, job: str, error: BaseException) -> None:
        """Give something back to YARN later, because it could not be done now: nothing else remembers it."""

        def again() -> None:
            try:
                self.cells.release(skein_id)
            except Exception as once_more:
                if not is_of_job(once_more):
                    raise
                self._not_given_back(skein_id, job, once_more)
            else:
                self._done(job, EffectKind.GIVE_BACK)

        self.clock.later(self._note(job, EffectKind.GIVE_BACK, error), lambda: self.writer.put(again))

    def _send_assignment(self, action: todo.SendAssignment, view: ClusterView) -> None:
        known = [self.definitions.get(job, {}).get(revision) for job, revision in action.jobs]
        definitions = tuple(each for each in known if each is not None)
        if len(definitions) < len(known):
            # The revision is too old to be kept: no assignment can describe what the container runs.
            reason = f"its revisions {dict(action.jobs)} are no longer kept"
            self.control.send(action.container, action.incarnation, wire.Exit(view.epoch, reason))
            return
        message = wire.Assignment(view.epoch, action.incarnation, action.number, action.replicas, definitions)
        self.probe(ASSIGNING)
        self.control.send(action.container, action.incarnation, message)
        self._done(_job_in(action), EffectKind.SEND_ASSIGNMENT)

    def _write_model(self, action: todo.WriteModel, stage: str) -> None:
        def write() -> bool:
            while True:
                try:
                    written = self.records.write_model(action.model, stage)
                except Transient as error:
                    _log.warning("model %d of %s: %s", action.model.version, action.job, error)
                    self.clock.sleep(_RETRY_SECONDS)
                    continue
                if written is not None:
                    self.post(happened.ModelWritten(action.job, written))
                    return True
                # Another version is there; it may be this one, written although the answer was lost.
                refused("the recorded model had changed")
                return False

        def refused(why: str) -> None:
            # Once it has been read, a new one may be written.
            self.post(happened.ModelRefused(action.job, why))
            self.reload()

        self._written(
            action.job,
            EffectKind.WRITE_MODEL,
            write,
            lambda: refused("it could not be written the last time"),
        )

    def _write_records(self, action: todo.WriteRecords) -> None:
        job = action.processor.job

        def write() -> bool:
            self.probe(WRITING)
            while True:
                try:
                    written = self.records.write_tasks(action.changes)
                    break
                except Transient as error:
                    _log.warning("decision %s: outcome unknown: %s", action.decision, error)
                    written = self._read_back(action)
                    if written is not None:
                        break
            self.probe(WRITTEN)
            if written is not None:
                self.post(happened.RecordsWritten(action.decision, written, self.clock.monotonic_ms()))
                return True
            self.post(happened.RecordsRefused(action.decision, "a record was changed after the decision"))
            read()
            return False

        def read() -> bool:
            self._reload(action)
            return False

        def read_again() -> None:
            # No decision is made about the tasks until their records have been read.
            self._written(job, EffectKind.WRITE_RECORDS, read, read_again)

        def refused() -> None:
            # It may have been written; an error does not tell.
            self.post(happened.RecordsRefused(action.decision, "it could not be written the last time"))
            read_again()

        self._written(job, EffectKind.WRITE_RECORDS, write, refused)

    def _read_back(self, action: todo.WriteRecords) -> tuple[Recorded, ...] | None:
        """Return the records if a write of unknown outcome was done after all; None: do it again."""
        while True:
            self.clock.sleep(_RETRY_SECONDS)
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
                self.clock.sleep(_RETRY_SECONDS)
                continue
            self.post(happened.RecordsLoaded(as_recorded(action.changes, present)))
            return

    def _write_status(self, action: todo.WriteStatus, deployment: EndedRecord) -> None:
        status = StatusRecord(
            action.state,
            action.reasons,
            self.clock.now_ms(),
            action.traceback,
            deployment if action.is_over else None,
            failure=action.failure.kind.value if action.failure is not None else "",
            is_unfenceable=action.is_unfenceable,
            run=deployment.run,
            revision=deployment.revision,
            is_at_risk=action.is_at_risk,
        )
        number = self._statuses[action.job] = self._statuses.get(action.job, 0) + 1

        def write() -> bool:
            while True:
                try:
                    self.records.write_status(action.job, status)
                    return True
                except Transient as error:
                    _log.warning("status of %s: %s", action.job, error)
                    self.clock.sleep(_RETRY_SECONDS)

        def again() -> None:
            # Unless there is a newer one by now.
            if self._statuses.get(action.job) == number:
                self._written(action.job, EffectKind.WRITE_STATUS, write, again)

        again()

    def _fence(self, action: todo.FenceTasks) -> None:
        try:
            revisions = self.definitions[action.job]
            self.fence(revisions[max(revisions)])
        except Exception as error:  # noqa: BLE001 - this thread's outermost level
            if blame(error) is Blame.PROCESS:
                self.broken(error)
                return
            # Also for `Fenced`: here it is about the job's writers, not the leader.
            self._not_fenced(action, error)
            return
        self.post(happened.TasksFenced(action.number, action.job))

    def _not_fenced(self, action: todo.FenceTasks, error: Exception) -> None:
        _log.error("%s cannot be fenced: %s", action.job, describe_error(error))
        self.post(happened.FencingFailed(action.number, action.job, describe_error(error)))


def _served_by(view: ClusterView, container: str) -> str:
    """Return the job that a container serves; empty if that is not known."""
    known = view.containers.get(container)
    job = view.job_of(known) if known is not None else None
    return job.name if job is not None else ""


def _job_in(action: todo.SendAssignment) -> str:
    """Return the job of an assignment, the first one of several."""
    return action.jobs[0][0] if action.jobs else ""


class Replies:
    """Commands that wait for the leader's answer; safe to use from several threads."""

    def __init__(self, post: Callable[[Event], None], clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[todo.Answer]] = {}

    def ask(self, make: Callable[[int], Command], timeout_seconds: float) -> todo.Answer:
        """Return the leader's answer to the command that ``make`` makes of its number; raises `Unavailable`."""
        number = next(self._numbers)
        answer: Future[todo.Answer] = Future()
        self._waiting[number] = answer
        try:
            self._post(happened.Commanded(make(number)))
            if have_ended(self._clock, (answer,), timeout_seconds):
                return answer.result()
            # Otherwise it would be done later, unexpectedly, for example when ZooKeeper is available again.
            self._post(happened.CommandWithdrawn(number))
            raise Unavailable(f"the leader has not decided within {timeout_seconds:g} s")
        finally:
            self._waiting.pop(number, None)

    def reply(self, answer: todo.Answer) -> None:
        """Pass an answer to the caller that waits for it."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None:
            waiting.set_result(answer)


def as_recorded(changes: Sequence[RecordWrite], present: Sequence[Recorded]) -> tuple[Recorded, ...]:
    """Return the records of the tasks in ``changes``; a task without one gets a blank record.

    A blank record has version -1: the planner then creates it.
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
