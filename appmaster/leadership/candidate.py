"""A leadership, after `appmaster.leadership.election`: load what is recorded, lead until the end or until deposed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.blame import is_of_job, is_of_record, told
from appmaster.driver import Driver, is_finished
from appmaster.effects import Effects
from appmaster.leadership.cells import Cells
from appmaster.leadership.election import Election
from appmaster.leadership.loading import JobLoading, asks_more
from appmaster.leadership.ports import LeaderSession
from appmaster.leadership.registered import Departures, with_registered
from appmaster.planning.state.events import Elected, Event, HostsDrained
from appmaster.planning.state.job import JobState
from appmaster.planning.state.view import ClusterView
from appmaster.records import JobRecord, Loaded
from appmaster.topics.input_growth import InputGrowth
from appmaster.topics.ports import InputTopics
from standby.config import KafkaSettings
from standby.errors import Fenced, Transient
from standby.shared.clock import Clock
from standby.threads.inbox import Inbox

_log = logging.getLogger(__name__)

#: Between two attempts to read what is recorded while ZooKeeper does not answer, seconds.
_AGAIN_SECONDS: Final = 0.1

#: Before jobs that could not be read are read again, seconds.
_RELOAD_SECONDS: Final = 1.0


@dataclass(frozen=True)
class _Read:
    """What is recorded of jobs and hosts."""

    jobs: Mapping[str, Loaded | Exception]
    """All that there are, or why they cannot be read."""
    new: frozenset[str]
    """Jobs of which the tasks were read too."""
    drained: Mapping[str, str]


@dataclass
class Candidate:
    """One application master's part in the election, and its leadership."""

    zookeeper: LeaderSession
    cells: Cells
    effects: Effects
    driver: Driver
    inbox: Inbox[Event]
    election: Election
    clock: Clock
    topics: Callable[[KafkaSettings], InputTopics]
    """Makes a connection to a job's brokers."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Host → its rack, as YARN had it when the application was submitted."""
    quarantined: Callable[[], Mapping[str, str]] = dict
    """Gives the jobs whose code no container could load now, and why."""
    waiting: Callable[[], Mapping[str, str]] = dict
    """Gives the jobs whose present revision is not active yet, and what it waits for."""

    def __post_init__(self) -> None:
        self._growth = InputGrowth(
            self.zookeeper.jobs,
            lambda: self.loading.records,
            self.reload,
            self.topics,
            tell=self.inbox.post,
        )
        self.loading = JobLoading(
            self.effects.definitions,
            lambda: self.driver.view,
            self.racks,
            lambda: self._growth.notes,
            self.quarantined,
            waiting=self.waiting,
            obstacles=lambda: self._growth.obstacles,
            risks=lambda: self._growth.risks,
        )
        self.departures = Departures(
            self.zookeeper.registry,
            lambda: self.driver.view,
            self.inbox.post,
            self.clock.monotonic_ms,
            self.effects.writer.put,
        )
        self._has_loaded = threading.Event()

    def has_more(self, view: ClusterView) -> bool:
        """Return whether more is asked of some job than was seen when every one had ended. Raises `Transient`.

        One whose record cannot be read is not led, and does not keep the cluster from its end either.
        """
        found: dict[str, JobRecord] = {}
        for name in self.zookeeper.jobs.names():
            try:
                record = self.zookeeper.jobs.read(name)
            except Exception as error:
                if not is_of_record(error):
                    raise
                _log.error("job %s cannot be led, and ends with the others: %s", name, told(error))
                continue
            if record is not None:
                found[name] = record
        return asks_more(found, view)

    def resign(self, reason: str) -> None:
        """Give up leading, and standing (any thread): another leads, or this session is over."""
        self.election.leave(reason)

    def outdated(self, seen: int) -> None:
        """Make way for a leader whose epoch is above ``seen``, which a container has obeyed (any thread).

        If that was a later leader's, this one is deposed. Else ZooKeeper's state was lost, or is that of an earlier
        day, and nobody would obey this leader.
        """

        def rise() -> None:
            why = f"a container has obeyed epoch {seen}"
            if not self.election.has_left:
                try:
                    self.zookeeper.election.raise_epoch(seen)
                except (Fenced, Transient) as error:
                    _log.info("the epoch was not raised: %s", error)
                self.resign(why)

        self.effects.writer.put(rise)

    def lead(self, epoch: int, taken_over: Callable[[], None] = lambda: None) -> ClusterView:
        """Lead until every job has ended; return the last view. Raises `Fenced` when deposed.

        ``taken_over`` is called after the first turn: queued changes are for a leader that knows what there is.
        """
        now_ms = self.clock.monotonic_ms()
        self.driver.turn([Elected(epoch, now_ms, self.clock.now_ms() - now_ms), *self._taken_over()])
        self._has_loaded.set()
        self.reload()  # for what was asked before
        taken_over()
        self.departures.follow()
        self.cells.start()
        self._growth.start()
        try:
            self.driver.run(lambda view: self.election.has_left or is_finished(view))
        finally:
            self._growth.stop()
        if self.election.has_left:
            raise Fenced(self.election.why)
        return self.driver.view

    def _taken_over(self) -> list[Event]:
        """Return everything that is recorded and runs; asked again for as long as the lease lasts."""
        while True:
            try:
                return self._look_around()
            except Transient as error:
                if not self.election.is_leader:
                    raise
                _log.warning("the take-over begins again: %s", error)
                self.election.pause(_AGAIN_SECONDS)

    def _look_around(self) -> list[Event]:
        """Return a take-over's first events.

        Their order matters. The epoch's transaction came before: what is read now is what the leader before left for
        good, and nobody but this leader changes it, so that the cells' AMs are asked while records are read. Cells and
        their containers come before records, for a record that names a container which is in no list is of a dead one;
        watches are set with each reading. Deaths that happened meanwhile show in the first turn, inventories come as
        the containers find this leader, each is sent the whole of its roles then, and nobody is judged for silence
        before it had time to come.
        """
        self.cells.begin()
        registered = self.zookeeper.registry.registrations()
        for each in registered:
            self.effects.control.learn(each.record.container, each.record.host, each.record.port)
        read = self._read()
        found = with_registered(self.cells.take_over(), registered, self.clock.monotonic_ms())
        return [*found, *self._events(read)]

    def _read(self) -> _Read:
        """Return what is recorded; `reload` is called when it changes.

        Task records are read of jobs that the leader does not know: of the others nobody else writes them.
        """
        drained = self._drained()
        found: dict[str, Loaded | Exception] = {}
        names = self.zookeeper.jobs.names(self.reload)
        new = frozenset(names).difference(self.driver.view.jobs)
        for name in names:
            try:
                loaded = self.zookeeper.jobs.load(name, self.reload, has_tasks=name in new)
            except Exception as error:
                if not is_of_record(error):
                    raise
                found[name] = error  # the other jobs are led all the same
                continue
            if loaded is not None:
                found[name] = loaded
        return _Read(found, new, drained)

    def _drained(self) -> Mapping[str, str]:
        """Return the drained hosts, as far as that can be read: to lead matters more."""
        try:
            return self.zookeeper.changes.drained(self.reload)
        except Exception as error:
            if not is_of_record(error):
                raise
            _log.error("which hosts are drained is not known; those are that were when it was: %s", error)
            return self.driver.view.drained

    def _events(self, read: _Read) -> list[Event]:
        """Return what was read as events."""
        return [HostsDrained(read.drained), *self.loading.events(read.jobs, read.new)]

    def reload(self) -> None:
        """Read the jobs again, on the writer's thread: a watcher makes no calls of its own.

        Before the first turn nothing is read a second time: records would seem to come anew that change meanwhile.
        """
        if not self._has_loaded.is_set():
            return

        def read() -> None:
            try:
                events = self._events(self._read())
            except Transient as error:
                _log.warning("jobs could not be read: %s", error)
                self.clock.later(_RELOAD_SECONDS, self.reload)
                return
            except Exception as error:
                if not is_of_job(error):
                    raise
                _log.exception("jobs could not be read")
                self.clock.later(_RELOAD_SECONDS, self.reload)
                return
            for each in events:
                self.inbox.post(each)

        self.effects.writer.put(read)


def verdict(view: ClusterView) -> tuple[bool, str]:
    """Return whether the application succeeded, and what YARN is to show as its diagnostics."""
    failed = [job for job in view.jobs.values() if job.state is JobState.FAILED]
    if failed:
        return False, "; ".join(f"{job.name}: {job.failure}" for job in failed)
    return True, "every job was undeployed"
