"""ZooKeeper: sessions that expire, versioned records, transactions that check the controller epoch, late watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from msgspec import structs

from appmaster.leadership.ports import RegisteredContainer
from appmaster.leadership.suspicion import Beat
from appmaster.planning.state.actions import RecordWrite
from appmaster.planning.state.model import JobModel
from appmaster.planning.state.view import Recorded
from standby.errors import Fenced, Transient
from standby.shared.model import TaskId, TaskRecord
from standby.shared.records import ContainerRecord, ControllerRecord
from tests.simulation.clock import Clock
from tests.simulation.process import Process

SESSION_MS = 3_000


@dataclass
class Session:
    """A process's session, as the servers see it."""

    process: Process
    lost: Callable[[], None]
    """Called in the process once it hears that the session has expired."""
    moved: Callable[[], None]
    """Called in the process when a watch on the leader's record fires."""
    connected: Callable[[bool], None] = lambda is_up: None
    ended: Callable[[], None] = lambda: None
    """Called when the servers have ended it, whatever its process knows."""
    is_open: bool = True
    is_told: bool = False
    """Its process knows that it has expired."""
    watches: bool = False
    silent_since_ms: int | None = None
    registration: RegisteredContainer | None = None
    """Ephemeral: what a container's process registered in it."""
    watches_containers: Callable[[], None] | None = None
    """Called once, in the process, when a container registers or is registered no more."""


@dataclass
class ZooKeeper:
    """The ensemble."""

    clock: Clock
    written: Callable[[TaskRecord | None, TaskRecord], None]
    """Called with the record before and after each write: where the invariants of records are checked."""
    records: dict[TaskId, Recorded] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    leader: ControllerRecord | None = None
    leader_session: Session | None = None
    epoch: int = 0
    beat: Beat | None = None
    elected_ms: int = 0
    """When the present epoch began."""
    zxid: int = 100
    _untold: list[Session] = field(default_factory=list)
    """Expired sessions whose processes cannot be informed now."""
    is_away: bool = False
    flakiness: float = 0.0
    """How often an answer is lost, so that the outcome of a write stays unknown."""
    model: JobModel | None = None
    """Of the job; its ``znode`` is the version of its node."""

    # ---- sessions ----

    def connect(self, session: Session) -> Session:
        """Open a session; it lasts as long as its process gives signs of life."""
        self.sessions.append(session)
        session.process.on_contact.append(lambda _: self.contact_changed(session))
        return session

    def contact_changed(self, session: Session) -> None:
        """Begin or end to count a session's silence."""
        if self.is_away and not session.is_open and not session.is_told:
            self._untold.append(session)
            return
        if session.process.is_within_reach and not self.is_away:
            session.silent_since_ms = None
            if not session.is_open and not session.is_told:
                session.is_told = True
                session.process.receive(self.clock.between(1, 30), session.lost)
        elif session.silent_since_ms is None:
            session.silent_since_ms = self.clock.now_ms
            self.clock.after(SESSION_MS, self._expire_if_silent, session, self.clock.now_ms)

    def _expire_if_silent(self, session: Session, since_ms: int) -> None:
        if session.silent_since_ms == since_ms and not self.is_away:
            self.expire(session)

    def expire(self, session: Session) -> None:
        """End a session; what is ephemeral of it goes."""
        if not session.is_open:
            return
        session.is_open = False
        self.sessions.remove(session)
        self.clock.tell("zookeeper: the session of {} has expired", session.process.name)
        if self.leader_session is session:
            self._set_leader(None, None)
        if session.registration is not None:
            self._containers_changed()
        session.ended()
        if session.process.is_within_reach:
            session.is_told = True
            session.process.receive(self.clock.between(1, 30), session.lost)

    def go_away(self) -> None:
        """Stop to answer. No session expires meanwhile: no time is counted."""
        self.is_away = True
        for each in self.sessions:
            each.process.receive(self.clock.between(1, 30), each.connected, False)
            each.watches, each.watches_containers = False, None

    def return_(self) -> None:
        """Answer again; every session has its whole time-out before it."""
        self.is_away = False
        expired, self._untold = self._untold, []
        for each in expired:
            self.contact_changed(each)
        for each in list(self.sessions):
            each.silent_since_ms = None
            self.contact_changed(each)
            each.process.receive(self.clock.between(20, 300), each.connected, True)

    def restore(self, epoch: int, records: dict[TaskId, Recorded]) -> None:
        """Come back with the state of an earlier day, which knows none of today's sessions."""
        self.epoch, self.records = epoch, dict(records)
        for each in list(self.sessions):
            self.expire(each)

    # ---- the leader ----

    def lead(
        self,
        session: Session,
        me: ControllerRecord,
        depose: ControllerRecord | None,
        last: Beat | None = None,
    ) -> int | None:
        """Return the new epoch; None when somebody else was quicker, or the leader left a beat after ``last``.

        The epoch of ``me`` counts for nothing.
        """
        self.own(session)
        if self.leader is not None and self.leader != depose:
            return None
        if last is not None and self.beat != last:
            return None
        self.epoch += 1
        self.elected_ms = self.clock.now_ms
        candidate = me.candidate
        self._set_leader(structs.replace(me, epoch=self.epoch), session)
        self._beats(self.epoch)
        self.clock.tell("zookeeper: {} leads, epoch {}", candidate, self.epoch)
        return self.epoch

    def raise_epoch(self, epoch: int, seen: int) -> None:
        """Have the next epoch be above ``seen``, and end the leadership of ``epoch``."""
        self.answer()
        if not self.is_current(epoch):
            raise Fenced("another leader has taken over")
        self.epoch = max(seen, epoch)
        self._set_leader(None, None)
        self.clock.tell("zookeeper: the epoch is {}", self.epoch)

    def read_leader(self, session: Session) -> ControllerRecord | None:
        """Return the leader and leave a watch."""
        self.answer()
        session.watches = True
        return self.leader

    def _set_leader(self, leader: ControllerRecord | None, session: Session | None) -> None:
        self.leader, self.leader_session = leader, session
        for each in self.sessions:
            if each.watches:
                each.watches = False
                each.process.receive(self.clock.between(1, 60), each.moved)

    # ---- records ----

    def answer(self) -> None:
        """Raise `Transient` when the ensemble is away. A client whose session has expired goes on in a new one."""
        if self.is_away:
            raise Transient("ZooKeeper does not answer")

    def own(self, session: Session) -> None:
        """Raise `Transient` when nothing ephemeral can be made in the session."""
        self.answer()
        if not session.is_open:
            raise Transient("the session has expired")

    def register(self, session: Session, record: ContainerRecord) -> int:
        """Return the creation transaction id of a container's new node."""
        self.own(session)
        self.zxid += 1
        session.registration = RegisteredContainer(record, self.zxid)
        self._containers_changed()
        return self.zxid

    def registrations(self) -> tuple[RegisteredContainer, ...]:
        self.answer()
        return tuple(each.registration for each in self.sessions if each.registration is not None)

    def watch_containers(self, session: Session, watch: Callable[[], None]) -> frozenset[str]:
        """Return the registered names, and leave a watch."""
        self.own(session)
        session.watches_containers = watch
        return frozenset(each.record.container for each in self.registrations())

    def _containers_changed(self) -> None:
        for each in self.sessions:
            watch, each.watches_containers = each.watches_containers, None
            if watch is not None:
                each.process.receive(self.clock.between(1, 60), watch)

    def is_current(self, epoch: int) -> bool:
        """Return whether no leader was elected after ``epoch``: the check in every multi."""
        return epoch == self.epoch

    def confirm(self, epoch: int) -> None:
        """Leave a beat; raise `Fenced` when somebody was elected after ``epoch``."""
        self.answer()
        if not self.is_current(epoch):
            raise Fenced("another leader has taken over")
        self._beats(epoch)

    def read_beat(self) -> Beat | None:
        """Return the last beat of the last leader."""
        self.answer()
        return self.beat

    def _beats(self, epoch: int) -> None:
        self.beat = Beat(epoch, 0 if self.beat is None else self.beat.number + 1)

    def write_tasks(self, epoch: int, changes: tuple[RecordWrite, ...]) -> tuple[Recorded, ...] | None:
        """Write all of ``changes`` or none (None); raises as the adapter does."""
        self.answer()
        loses_answer = self.flakiness and self.clock.happens(self.flakiness)
        if loses_answer and self.clock.happens(0.5):
            raise Transient("lost on the way there")
        if not self.is_current(epoch):
            raise Fenced("another leader has taken over")
        for each in changes:
            present = self.records.get(each.record.task)
            if (present.version if present is not None else None) != each.expected_version:
                return None
        self.clock.check(
            epoch == self.epoch, "no_write_of_a_deposed_leader", "epoch {} writes under {}", epoch, self.epoch
        )
        results = []
        for each in changes:
            present = self.records.get(each.record.task)
            self.written(present.record if present is not None else None, each.record)
            recorded = Recorded(each.record, present.version + 1 if present is not None else 0)
            self.records[each.record.task] = recorded
            results.append(recorded)
        if loses_answer:
            raise Transient("lost on the way back")
        return tuple(results)

    def write_model(self, epoch: int, model: JobModel) -> JobModel | None:
        """Write the job's model in place of its version ``znode``; None when that is another by now."""
        self.answer()
        if not self.is_current(epoch):
            raise Fenced("another leader has taken over")
        present = self.model.znode if self.model is not None else -1
        if model.znode != present:
            return None
        self.model = replace(model, znode=model.znode + 1)
        self.clock.tell("model: version {}", model.version)
        if self.flakiness and self.clock.happens(self.flakiness):
            raise Transient("lost on the way back")
        return self.model

    def read_tasks(self, tasks: tuple[TaskId, ...]) -> tuple[Recorded, ...]:
        self.answer()
        if self.flakiness and self.clock.happens(self.flakiness):
            raise Transient("no answer in time")
        return tuple(self.records[each] for each in tasks if each in self.records)
