"""A container's process: the real control core in virtual time, and the simulated kernel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from standby.control import events as told
from standby.control.core import step
from standby.control.effects import (
    Assign,
    CloseReplicas,
    CloseStream,
    ControlEffect,
    LookUpLeader,
    OpenStream,
    Quit,
    Register,
    SendReport,
    WriteLog,
)
from standby.control.state import ControlPolicy, ControlState
from standby.control.turn import due_in_ms
from standby.errors import StandfastError
from standby.shared import exits, wire
from standby.shared.exits import ProcessEnd
from standby.shared.model import Leftover, ReplicaId, TaskId, TaskRecord, Wanted
from standby.shared.records import ContainerRecord, ControllerRecord
from tests.simulation.clock import WALL_MS
from tests.simulation.kafka import Log
from tests.simulation.kernel import Kernel
from tests.simulation.network import Stream
from tests.simulation.process import Process
from tests.simulation.replica import ZOOKEEPER_HOP
from tests.simulation.yarn import Listed
from tests.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.simulation.world import World

HEARTBEAT_MS = 500

#: A quiet loop turns this often: news wakes it at once.
TICK_MS = 400

ORPHAN_MS = 6_000

#: How long a process of a pool waits until its actives are handed over.
LEAVE_MS = 3_000


class Container(Process):
    """One container, from its start to its end."""

    def __init__(self, world: World, listed: Listed, logs: Mapping[TaskId, Log]) -> None:
        host, container, skein_id = listed.host, listed.container, listed.skein_id
        assert host is not None
        super().__init__(world.clock, host, container)
        self.world = world
        self.skein_id = skein_id
        self.cell = listed.cell
        self.attempt = listed.attempt
        self.exit_code: int | None = None
        self.end: ProcessEnd | None = None
        """What its witness says; None: it lives, or its witness has ended with it."""
        self.kernel = Kernel(
            self,
            logs,
            world.run_id,
            self._read_record,
            lambda replica: world.invariants.claiming(self, replica),
            lambda replica: world.invariants.giving_up(self, replica),
            lambda step: world.passed(self, step),
            lambda: self.post(told.ReplicasChanged()),
        )
        identity = ContainerRecord(container, skein_id, listed.cell, host.name, 1, 2, 3, wire.PROTOCOL, "1")
        leave_ms = LEAVE_MS if world.is_pool else 0
        self.state = ControlState(identity, ControlPolicy(ORPHAN_MS, leave_timeout_ms=leave_ms))
        self._inbox: list[told.ControlEvent] = []
        self._turn_at_ms: int | None = None
        self._stream: Stream | None = None
        self._turns = 0
        self._session = self._connect()
        self.after(self.clock.between(5, 60), self._look_at_disks)
        self._tick()

    # ---- the loop ----

    def post(self, event: told.ControlEvent) -> None:
        """Put an event into the inbox, which wakes the loop."""
        self._inbox.append(event)
        self._wake(1)

    def _wake(self, delay_ms: int) -> None:
        at_ms = self.clock.now_ms + delay_ms
        if self._turn_at_ms is None or self._turn_at_ms > at_ms:
            self._turn_at_ms = at_ms
            self._turns += 1
            self.after(delay_ms, self._turn, self._turns)

    def _tick(self) -> None:
        due = due_in_ms(self.state, self.clock.now_ms)
        self._wake(min(TICK_MS, due) if due else TICK_MS)

    def _turn(self, number: int) -> None:
        if number != self._turns:
            return  # another turn came in between
        self._turn_at_ms = None
        waiting, self._inbox = self._inbox, []
        for event in waiting:
            self._apply(event)
        kernel = self.kernel
        self._apply(
            told.InboxDrained(
                self.clock.now_ms,
                self.clock.chance.random(),
                kernel.statuses(),
                kernel.is_warm,
                kernel.broken,
                kernel.revisions,
            )
        )
        if self.is_alive:
            self._tick()

    def _apply(self, event: told.ControlEvent) -> None:
        self.state, effects = step(self.state, event)
        for effect in effects:
            if self.is_alive:
                self._perform(effect)

    def _perform(self, effect: ControlEffect) -> None:
        session, zookeeper = self._session, self.world.zookeeper
        if isinstance(effect, WriteLog) and effect.is_warning:
            self.clock.tell("{}: {}", self.name, effect.text)
        elif isinstance(effect, Register):
            record = ContainerRecord(self.name, self.skein_id, self.cell, self.host.name, 1, 2, 3, 1, "")
            self.call(ZOOKEEPER_HOP, lambda: zookeeper.register(session, record), self._registered)
        elif isinstance(effect, LookUpLeader):
            self.call(ZOOKEEPER_HOP, lambda: zookeeper.read_leader(session), self._looked_up)
        elif isinstance(effect, OpenStream):
            self._stream = Stream(self, effect.stream, effect.hello)
            self.world.connect(self._stream, effect.leader)
            self._heartbeat(self._stream)
        elif isinstance(effect, CloseStream) and self._stream is not None:
            self._stream.break_("dropped by the container")
            self._stream = None
        elif isinstance(effect, SendReport) and self._stream is not None:
            self._stream.say(effect.report)
        elif isinstance(effect, Assign):
            self.obey(effect.assignment, effect.jobs)
        elif isinstance(effect, CloseReplicas):
            self.kernel.close(lambda: self.post(told.ReplicasClosed(in_time=True)))
        elif isinstance(effect, Quit):
            self._quit(effect)

    def obey(self, assignment: tuple[Wanted, ...], jobs: Mapping[str, wire.JobDefinition]) -> None:
        self.world.invariants.obeying(self, assignment)
        self.kernel.obey(assignment, jobs)

    def _quit(self, quit_: Quit) -> None:
        self.clock.tell("{}: ends: {}", self.name, quit_.reason)
        self.exit_code = quit_.code
        if quit_.code in exits.PERHAPS_OF_CODE:
            self._witness(ProcessEnd(quit_.code, self.kernel.running()))
        self.world.zookeeper.expire(self._session)
        self.kill()

    def end_by(self, number: int, *, oom_kills: int = 0) -> None:
        """End the process, and not its witness, by a signal."""
        if self.is_alive:
            self._witness(ProcessEnd(-number, self.kernel.running(), oom_kills=oom_kills))
            self.kill()

    def _witness(self, end: ProcessEnd) -> None:
        self.clock.tell("{}: {}, running {}", self.name, end, end.ran)
        self.world.invariants.ended(end)
        self.end = end

    def died(self) -> None:
        """Close the sockets, as the kernel of the host does; nothing does when the host is gone too."""
        self.clock.tell("{}: is dead", self.name)
        if self._stream is not None and self.host.is_up:
            self._stream.break_("its process ended", is_orderly=self.exit_code is not None)
        code = 137 if self.exit_code is None else self.exit_code
        is_from_outside = self.end.is_from_outside if self.end is not None else code in (exits.ORDERLY, 137)
        self.world.yarn.process_ended(self.name, code, is_from_outside=is_from_outside)

    # ---- ZooKeeper ----

    def _connect(self) -> Session:
        ended = partial(self.world.yarn.session_ended, self.name)
        session = Session(self, self._session_lost, self._moved, self._connected, ended)
        self.world.zookeeper.connect(session)
        if not self.world.zookeeper.is_away:
            self.receive(self.clock.between(5, 80), self._connected, True)
        return session

    def _connected(self, is_up: bool) -> None:
        if self._session.is_open:
            self.post(told.SessionConnected() if is_up else told.SessionSuspended())

    def _session_lost(self) -> None:
        self.post(told.SessionLost())
        self._session = self._connect()
        self._join(self._session)

    def _join(self, session: Session) -> None:
        """Register in the pool again, as soon as ZooKeeper answers."""

        def join() -> None:
            self.world.zookeeper.own(session)
            self.world.yarn.session_began(self.name)

        def joined(_: None, error: StandfastError | None) -> None:
            if error is not None and session.is_open:
                self.after(self.clock.between(50, 200), self._join, session)

        self.call(ZOOKEEPER_HOP, join, joined)

    def _moved(self) -> None:
        self.post(told.LeaderMoved())

    def _registered(self, czxid: int, error: StandfastError | None) -> None:
        self.post(told.Registered(czxid) if error is None else told.RegistrationFailed(str(error)))

    def _looked_up(self, leader: ControllerRecord | None, error: StandfastError | None) -> None:
        self.post(told.LeaderChanged(leader) if error is None else told.LeaderUnknown(str(error)))

    def _read_record(self, task: TaskId) -> TaskRecord | None:
        found = self.world.zookeeper.read_tasks((task,))
        return found[0].record if found else None

    # ---- the rest ----

    def break_stream(self, reason: str) -> None:
        """Break the stream to the leader, if there is one."""
        if self._stream is not None:
            self._stream.break_(reason)

    def _heartbeat(self, stream: Stream) -> None:
        if stream is self._stream and not stream.is_broken:
            stream.say(wire.Heartbeat(0))
            self.after(HEARTBEAT_MS, self._heartbeat, stream)

    def _look_at_disks(self) -> None:
        found = tuple(
            Leftover(task, self.world.run_id, position, WALL_MS + self.clock.now_ms)
            for task, (position, _) in sorted(self.host.disks.items())
            if task not in self.host.stores  # what a process has open is no left-over
        )
        self.post(told.LeftoversFound(found))

    def holds(self, task: TaskId) -> bool:
        return any(each.task == task and held.store is not None for each, held in self.kernel.held.items())

    def replica(self, replica: ReplicaId) -> object | None:
        return self.kernel.held.get(replica)
