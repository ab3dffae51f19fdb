"""One leadership, after the election: loads what is recorded, and leads until the end or until it is deposed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.blame import describe_error, is_of_job, is_of_record
from appmaster.driver import Driver, is_finished
from appmaster.effects import LeaderEffects
from appmaster.leadership.cells import Cells
from appmaster.leadership.election import Election
from appmaster.leadership.loading import JobLoading, has_new_work
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

#: Between two attempts to read the records while ZooKeeper does not answer, seconds.
_AGAIN_SECONDS: Final = 0.1

#: Before jobs that could not be read are read again, seconds.
_RELOAD_SECONDS: Final = 1.0


@dataclass
class Candidate:
    """One application master's part in the election, and its leadership."""

    zookeeper: LeaderSession
    cells: Cells
    effects: LeaderEffects
    driver: Driver
    inbox: Inbox[Event]
    election: Election
    clock: Clock
    topics: Callable[[KafkaSettings], InputTopics]
    """Makes a connection to a job's brokers."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Host → its rack, as YARN reported it when the application was submitted."""
    quarantined: Callable[[], Mapping[str, str]] = dict
    """Returns the jobs whose code no container can load now, and why."""
    waiting: Callable[[], Mapping[str, str]] = dict
    """Returns the jobs whose present revision is not active yet, and what it waits for."""
    ends_with_jobs: bool = True
    """Whether the cluster ends with its last job."""

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
            lambda: self._growth.found,
            self.quarantined,
            self.waiting,
        )
        self.departures = Departures(
            self.zookeeper.registry,
            lambda: self.driver.view,
            self.inbox.post,
            self.clock.monotonic_ms,
            self.effects.writer.put,
        )
        self._has_loaded = threading.Event()
        self._lock = threading.Lock()
        self._is_reload_due = False
        """Whether a read of the jobs waits for the writer; guarded by the lock."""

    def has_more(self, view: ClusterView) -> bool:
        """Return whether a job's record asks for more than the leader had seen when every job had ended.

        A job whose record cannot be read is not led, and does not keep the cluster from ending either. Raises
        `Transient`.
        """
        found: dict[str, JobRecord] = {}
        for name in self.zookeeper.jobs.names():
            try:
                record = self.zookeeper.jobs.read(name)
            except Exception as error:
                if not is_of_record(error):
                    raise
                _log.error("job %s cannot be led, and ends with the others: %s", name, describe_error(error))
                continue
            if record is not None:
                found[name] = record
        return has_new_work(found, view)

    def resign(self, reason: str) -> None:
        """Stop leading, and leave the election (any thread): another candidate leads, or this session is over."""
        self.election.leave(reason)

    def outdated(self, seen: int) -> None:
        """Make way for a leader whose epoch is above ``seen``, which a container has obeyed (any thread).

        If that was a later leader's epoch, this leader is deposed. Otherwise ZooKeeper's state was lost, or restored
        from an earlier day, and containers would not obey this leader.
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
        """Lead until every job has ended, if the cluster ends then; return the last view. Raises `Fenced` when deposed.

        ``taken_over`` is called after the first turn: queued changes need a leader that knows what exists.
        """
        self.driver.turn([Elected(epoch, self.clock.monotonic_ms()), *self._taken_over()])
        self._has_loaded.set()
        self.reload()  # for changes that were made before
        taken_over()
        self.departures.follow()
        self.cells.start()
        self._growth.start()
        try:
            self.driver.run(
                lambda view: self.election.has_left or (self.ends_with_jobs and is_finished(view))
            )
        finally:
            self._growth.stop()
        if self.election.has_left:
            raise Fenced(self.election.why)
        return self.driver.view

    def _taken_over(self) -> list[Event]:
        """Return everything that is recorded and runs; tried again until this candidate leaves the election.

        A lease that ends meanwhile is no reason to give up: nothing is done before it is renewed, and if that is
        refused, another candidate leads.
        """
        while True:
            try:
                return self._look_around()
            except Transient as error:
                if self.election.has_left:
                    raise Fenced(self.election.why) from error
                _log.warning("the take-over begins again: %s", error)
                self.election.pause(_AGAIN_SECONDS)

    def _look_around(self) -> list[Event]:
        """Return a take-over's first events.

        Their order matters. The transaction that raised the epoch came before: what is read now is final for the
        former leader, and only this leader changes it, so the cells' AMs can be asked while records are read. Cells
        and their containers come before records, because a record that names an unlisted container names a dead one.
        Watches are set with each read. Deaths in the meantime show in the first turn. Inventories arrive as containers
        connect to this leader; each is then sent its whole assignment, and none is judged for its silence before it
        had time to connect.
        """
        self.cells.begin()
        registered = self.zookeeper.registry.registrations()
        for each in registered:
            self.effects.control.learn(each.record.container, each.record.host, each.record.port)
        recorded = self._read()
        found = with_registered(self.cells.take_over(), registered, self.clock.monotonic_ms())
        return [*found, *recorded]

    def _read(self) -> list[Event]:
        """Return what is recorded, as events; `reload` is called when it changes.

        Task records are read only of jobs that the leader does not know yet: it alone writes those of the others.
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
                found[name] = error  # the other jobs are led nevertheless
                continue
            if loaded is not None:
                found[name] = loaded
        are_taken_over = not self._has_loaded.is_set()
        return [HostsDrained(drained, are_taken_over), *self.loading.events(found, new)]

    def _drained(self) -> Mapping[str, str]:
        """Return the drained hosts, or the last known ones if they cannot be read: leading is more important."""
        try:
            return self.zookeeper.changes.drained(self.reload)
        except Exception as error:
            if not is_of_record(error):
                raise
            _log.error("the drained hosts cannot be read; those last known stay drained: %s", error)
            return self.driver.view.drained

    def reload(self) -> None:
        """Read the jobs again, on the writer's thread, because a watcher must not make calls itself.

        A read that waits for the writer is enough for any number of changes: a lost connection fires the watch of every
        record at once, and each read of all of them would delay the writes of a failover.

        Before the first turn nothing is read a second time: records that change meanwhile would arrive as new ones.
        """
        if not self._has_loaded.is_set():
            return

        def read() -> None:
            with self._lock:
                self._is_reload_due = False  # before the read: what changes during it may be missing
            try:
                events = self._read()
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

        with self._lock:
            is_due, self._is_reload_due = self._is_reload_due, True
        if not is_due:
            self.effects.writer.put(read)


def verdict(view: ClusterView) -> tuple[bool, str]:
    """Return whether the application succeeded, and what YARN is to show as its diagnostics."""
    failed = [job for job in view.jobs.values() if job.state is JobState.FAILED]
    if failed:
        return False, "; ".join(f"{job.name}: {job.failure}" for job in failed)
    return True, "every job was undeployed"
