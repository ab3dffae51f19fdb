"""Carries out the planner's actions through the adapters; every outcome comes back as an event."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.adapters import kafka
from appmaster.adapters.grpc import ControlServer
from appmaster.adapters.kazoo import ZooKeeper, as_recorded
from appmaster.adapters.skein import SkeinCell
from appmaster.planning import actions as todo
from appmaster.planning import events as happened
from appmaster.planning.actions import Action
from appmaster.planning.events import Event
from appmaster.planning.view import ClusterView, Recorded
from appmaster.records import StatusRecord
from standby import wire
from standby.errors import Fenced, StandfastError, Transient
from standby.wire import JobDefinition

_log = logging.getLogger(__name__)

#: Pause between attempts to learn the outcome of a write while ZooKeeper does not answer, seconds.
_RETRY_SECONDS: Final = 0.2


class Sequential:
    """Runs jobs one after the other on a thread of its own: what must keep its order and may block."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Run ``job`` after those before it; returns at once."""
        self._jobs.put(job)

    def close(self, timeout_seconds: float) -> None:
        """Wait for what was submitted, at most so long."""
        self._jobs.put(None)
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


@dataclass
class Effects:
    """The outer side of every action."""

    post: Callable[[Event], None]
    now_ms: Callable[[], int]
    zookeeper: ZooKeeper
    cell: SkeinCell
    control: ControlServer
    cluster: str
    resign: Callable[[str], None]
    """Called, from any thread, when another leads: nothing may be written any more."""
    definitions: dict[str, JobDefinition] = field(default_factory=dict)
    writer: Sequential = field(default_factory=lambda: Sequential("records"))

    def carry_out(self, action: Action, view: ClusterView) -> None:
        """Begin ``action``; never blocks on a server."""
        if isinstance(action, todo.WriteRecords):
            self.writer.submit(lambda: self._write_records(action))
        elif isinstance(action, todo.WriteStatus):
            self.writer.submit(lambda: self._write_status(action))
        elif isinstance(action, todo.SendAssign):
            self.control.send(
                action.container,
                action.incarnation,
                wire.Assign(
                    view.epoch,
                    action.incarnation,
                    action.number,
                    action.replicas,
                    (self.definitions[action.job],),
                ),
            )
        elif isinstance(action, todo.SendExit):
            self.control.send(
                action.container, action.incarnation, wire.Exit(view.epoch, action.reason, action.purge)
            )
        elif isinstance(action, todo.ProbePort):
            self.control.probe(action.container, action.incarnation)
        elif isinstance(action, todo.RequestContainer):
            self.cell.request(action.number, action.host)
        elif isinstance(action, (todo.CancelRequest, todo.ReleaseContainer)):
            self.cell.release(action.skein_id)
        elif isinstance(action, todo.FenceTasks):
            threading.Thread(target=self._fence, args=(action,), name="fence", daemon=True).start()

    def _write_records(self, action: todo.WriteRecords) -> None:
        while True:
            try:
                written = self.zookeeper.write_tasks(action.changes)
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
                present = self.zookeeper.read_tasks(action.changes)
            except Transient:
                continue
            done = len(present) == len(action.changes) and all(
                each.record.decision == action.decision for each in present
            )
            return present if done else None

    def _reload(self, action: todo.WriteRecords) -> None:
        while True:
            try:
                present = self.zookeeper.read_tasks(action.changes)
            except Transient:
                time.sleep(_RETRY_SECONDS)
                continue
            self.post(happened.RecordsLoaded(as_recorded(action.changes, present)))
            return

    def _write_status(self, action: todo.WriteStatus) -> None:
        status = StatusRecord(action.state, action.reasons, kafka.now_ms())
        while True:
            try:
                self.zookeeper.write_status(action.job, status)
                return
            except Fenced as error:
                self.resign(str(error))
                return
            except Transient as error:
                _log.warning("status of %s: %s", action.job, error)
                time.sleep(_RETRY_SECONDS)

    def _fence(self, action: todo.FenceTasks) -> None:
        try:
            kafka.fence_job(self.cluster, self.definitions[action.job])
        except StandfastError as error:
            self.post(happened.FencingFailed(action.job, str(error)))
            return
        self.post(happened.TasksFenced(action.job))


def settings(bootstrap: str, further: Mapping[str, str]) -> dict[str, str | int | bool]:
    """Return the Kafka client settings of the cluster itself."""
    return {"bootstrap.servers": bootstrap, **further}
