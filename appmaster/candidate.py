"""A candidate's life: stand for leader, load what is recorded, lead until the end or until deposed."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.adapters.kazoo import ZooKeeper
from appmaster.adapters.skein import SkeinCell
from appmaster.config import policy, spec
from appmaster.driver import Driver, is_finished, now_ms
from appmaster.effects import Effects
from appmaster.growth import Growth
from appmaster.inbox import Inbox
from appmaster.planning.events import (
    Elected,
    Event,
    HostsExcluded,
    HostsKnown,
    JobLoaded,
    RecordsLoaded,
)
from appmaster.planning.model import JobSpec
from appmaster.planning.view import ClusterView, JobState
from appmaster.records import JobRecord
from appmaster.revising import asked_of
from locality.hosts import HostInfo, parse_table
from standby.config import JobConfig, parse
from standby.errors import BadConfiguration, Fenced, Transient
from standby.records import ControllerRecord

_log = logging.getLogger(__name__)

#: A leader whose port does not answer within this is not known to be dead, seconds.
_PORT_SECONDS: Final = 0.5

#: How often a leader's port is asked while its record stands, seconds.
_WATCH_SECONDS: Final = 0.5


@dataclass
class Candidate:
    """One application master's part in the election, and its leadership."""

    zookeeper: ZooKeeper
    cell: SkeinCell
    effects: Effects
    driver: Driver
    inbox: Inbox[Event]
    me: ControllerRecord
    wall_ms: Callable[[], int]
    racks: Mapping[str, str] = field(default_factory=dict)
    """Host → its rack, as YARN had it when the application was submitted."""
    records: Mapping[str, JobRecord] = field(default_factory=dict)
    """The jobs as they were loaded last; replaced, never changed, so any thread may read it."""
    _deposed: threading.Event = field(default_factory=threading.Event)
    _why: str = ""

    def __post_init__(self) -> None:
        self._growth = Growth(self.zookeeper, lambda: self.records, self.reload)

    def resign(self, reason: str) -> None:
        """Give up leading (any thread): another leads, or this session is over."""
        self._why = self._why or reason
        self._deposed.set()

    def stand(self) -> int:
        """Return the epoch under which this candidate leads; waits until it does.

        A leader's record is waited out, unless its port refuses: then the process behind it is dead
        and its session merely has not ended yet (design 4.13).
        """
        changed = threading.Event()
        while not self._deposed.is_set():
            changed.clear()
            leader = self.zookeeper.controller(changed.set)
            epoch = None
            if leader is None:
                epoch = self.zookeeper.lead(self.me)
            elif leader.candidate == self.me.candidate or _refuses(leader.host, leader.port):
                _log.info("the leader %s of epoch %d is dead: seizing", leader.candidate, leader.epoch)
                epoch = self.zookeeper.lead(self.me, depose=leader)
            if epoch is not None:
                return epoch
            changed.wait(_WATCH_SECONDS)
        raise Fenced(self._why)

    def lead(self, epoch: int) -> ClusterView:
        """Lead until every job has ended; return the last view. Raises `Fenced` when deposed."""
        clock = now_ms()
        events: list[Event] = [Elected(epoch, clock, self.wall_ms() - clock)]
        # The containers first: a record that names one YARN does not list is of a dead container.
        events += self.cell.expected()
        events += self._load()
        self.cell.start()
        self.driver.turn(events)
        self._growth.start()
        try:
            self.driver.run(lambda view: self._deposed.is_set() or is_finished(view))
        finally:
            self._growth.stop()
        if self._deposed.is_set():
            raise Fenced(self._why)
        return self.driver.view

    def _load(self) -> list[Event]:
        """Return every job and record as events; asked again whenever a job comes, goes or changes."""
        events: list[Event] = []
        hosts: list[HostInfo] = []
        records: dict[str, JobRecord] = {}
        notes = self._growth.notes
        excluded = self.zookeeper.excluded(self.reload)
        for name in self.zookeeper.jobs(self.reload):
            self.zookeeper.job(name, self.reload)
            loaded = self.zookeeper.load(name)
            if loaded is None:
                continue
            record = records[name] = loaded.job
            definition = record.definition
            config = parse(asked_of(record))
            known = {each.revision: each for each in (*reversed(record.former), definition)}
            self.effects.definitions.setdefault(name, {}).update(known)
            asked, problem = self._spec(name, config, definition.tasks)
            table = parse_table(config.racks, config.host_attributes)
            status = loaded.status
            state = status.state if status is not None else ""
            hosts += [table.host(each, rack=self.racks.get(each, "")) for each in self.cell.hosts]
            events.append(
                JobLoaded(
                    name,
                    definition.run,
                    asked,
                    loaded.model,
                    policy(config),
                    definition.revision,
                    record.is_wanted,
                    record.purge,
                    was_deployed=state in (JobState.DEPLOYED, JobState.INCOMPLETE),
                    failure=status.reasons[0] if status is not None and state == JobState.FAILED else "",
                    notes=tuple(each for each in (notes.get(name, ""), problem) if each),
                )
            )
            if name not in self.driver.view.jobs:
                events.append(RecordsLoaded(loaded.tasks))
        self.records = records
        by_name = {each.name: each for each in hosts}
        return [HostsKnown(tuple(by_name.values())), HostsExcluded(excluded), *events]

    def _spec(self, name: str, config: JobConfig, tasks: int) -> tuple[JobSpec, str]:
        """Return what is asked of a job's model, and why that cannot be had: then a running job stays as it is."""
        try:
            return spec(config, tasks), ""
        except BadConfiguration as error:
            known = self.driver.view.jobs.get(name)
            if known is None:
                raise
            return known.spec, str(error)

    def reload(self) -> None:
        """Read the jobs again, on the writer's thread: a watcher makes no calls of its own."""

        def read() -> None:
            try:
                events = self._load()
            except Transient as error:
                _log.warning("jobs could not be read: %s", error)
                threading.Timer(1.0, self.reload).start()
                return
            for each in events:
                self.inbox.post(each)

        self.effects.writer.submit(read)


def _refuses(host: str, port: int) -> bool:
    """Return whether nobody listens at a port; False while that is not certain."""
    try:
        with socket.create_connection((host, port), timeout=_PORT_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def verdict(view: ClusterView) -> tuple[bool, str]:
    """Return whether the application succeeded, and what YARN is to show as its diagnostics."""
    failed = [job for job in view.jobs.values() if job.state is JobState.FAILED]
    if failed:
        return False, "; ".join(f"{job.name}: {job.failure}" for job in failed)
    return True, "every job was undeployed"
