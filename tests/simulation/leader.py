"""A candidate's process: the real driver and planner, with the effects of every action in virtual time.

Mirrors `appmaster.leadership.candidate` and `appmaster.effects`: election, loading of the records, and reading back
writes with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from appmaster.driver import Driver
from appmaster.effects import as_recorded
from appmaster.eventlog.entries import LogEntry
from appmaster.leadership.election import BEAT_MS, lease_ms
from appmaster.leadership.lease import Lease
from appmaster.leadership.ports import RegisteredContainer
from appmaster.leadership.registered import Departures, with_registered
from appmaster.leadership.suspicion import Beat, PortAnswer, Suspicion
from appmaster.leadership.yarn_ids import attempt_of
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import Action
from appmaster.planning.state.events import Event
from appmaster.planning.state.model import JobModel
from appmaster.planning.state.view import ClusterView, Recorded
from locality.fit import PoolProcess
from standby.errors import Fenced, StandfastError, Transient
from standby.shared import wire
from standby.shared.exits import ProcessEnd
from standby.shared.model import TaskId
from standby.shared.records import ControllerRecord
from standby.threads.inbox import Inbox
from tests.simulation.clock import WALL_MS
from tests.simulation.network import Stream
from tests.simulation.process import Call, Course, Host, Process, Runner
from tests.simulation.replica import ZOOKEEPER_HOP
from tests.simulation.yarn import ENDED, REQUESTED, RUNNING
from tests.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

#: A leader with nothing to do turns this often.
TICK_MS = 300

#: `cluster.leader.timeout.ms`.
LEADER_TIMEOUT_MS = 1_000

#: A lease ends a little before its leader could be deposed.
LEASE_MS = lease_ms(LEADER_TIMEOUT_MS)

#: For how long a candidate has to know a leader before it judges its host quickly.
CALM_MS = 2_000

#: How long a candidate waits before it looks at the leader's port again: one that has answered, and one that has not.
#: The latter contains the time for which an answer is waited for.
LOOKS_MS = (240, 280)
LOOKS_SILENT_MS = (340, 380)

#: How soon the supervisor starts a new candidate.
RESTART_MS = (200, 900)

SKEIN_HOP = (1, 6)

#: For how long a new leader leaves a cell alone whose AM is silent.
SILENT_MS = 2_000


@dataclass(frozen=True)
class Told:
    """An entry of the event log."""

    leader: str
    """The candidate that reported it."""
    entry: LogEntry


class Candidate(Process):
    """One candidate, from its start until it is deposed or killed."""

    def __init__(self, world: World, host: Host, name: str, cell: int, attempt: str) -> None:
        super().__init__(world.clock, host, name)
        self.world = world
        self.cell = cell
        self.attempt = attempt
        self.epoch = 0
        self.port = world.next_port()
        #: Readings of the monotonic clocks of two processes have nothing to do with each other.
        self._offset_ms = self.clock.between(1_000, 9_000)
        self.lease = Lease(self._now, LEASE_MS)
        self.driver = Driver(
            Inbox(),
            self._carry_out,
            self._tell,
            self._now,
            lambda: WALL_MS + self.clock.now_ms,
            may_act=lambda: self.lease.is_valid,
        )
        self.is_leading = False
        self.dismissed: set[str] = set()
        """Containers that were ordered to end, or ended, in turns before this one."""
        self._dismissing: set[str] = set()
        self.lost: set[str] = set()
        self.failures = 0
        """Ordered to end in this turn."""
        self._waiting: list[Event] = []
        self._turn_at_ms: int | None = None
        self._turns = 0
        self._streams: dict[str, Stream] = {}
        self._known: dict[str, str] = {}
        self._room: tuple[frozenset[str], tuple[PoolProcess, ...]] = (frozenset(), ())
        """Hosts without room, and the processes of a pool, as they were last reported to it."""
        self._owed: set[str] = set()
        """Given back while the cell did not answer."""
        self._cells: dict[int, str] = {}
        """Cell → the attempt that answers, as far as this candidate knows; empty: none."""
        self._awaited: set[int] = set()
        """Cells that have said nothing since this candidate was elected, and may yet."""
        self._is_looking = False
        self._writes: list[Callable[[], Course]] = []
        self._is_writing = False
        self._resigned = ""
        self._session = world.zookeeper.connect(
            Session(self, lambda: self.resign("its session has expired"), lambda: None)
        )
        Runner(self, self._stand(), self._ended).begin()

    def _now(self) -> int:
        return self.clock.now_ms + self._offset_ms

    @property
    def view(self) -> ClusterView:
        return self.driver.view

    def resign(self, reason: str) -> None:
        """Give up leading: the process ends, and the supervisor starts another."""
        if self.is_alive and not self._resigned:
            self._resigned = reason
            self.clock.tell("{}: resigns: {}", self.name, reason)
            self.world.zookeeper.expire(self._session)
            self.kill()

    def died(self) -> None:
        """Close the sockets and have another candidate started."""
        self.clock.tell("{}: is dead", self.name)
        for each in list(self._streams.values()):
            if self.host.is_up:
                each.break_("the leader ended")
        self.world.candidate_died(self)

    # ---- election ----

    def _stand(self) -> Course:
        zookeeper, session = self.world.zookeeper, self._session
        yield self.clock.between(5, 50)
        epoch: int | None = None
        suspicion = Suspicion(LEADER_TIMEOUT_MS, CALM_MS)
        asked = self._now()
        while epoch is None:
            asked = self._now()
            answer, beat = PortAnswer.REFUSED, None
            try:
                leader: ControllerRecord | None = yield Call(
                    ZOOKEEPER_HOP, lambda: zookeeper.read_leader(session)
                )
                if leader is not None:
                    answer = self.world.answer_of(self, leader.port)
                is_lost = answer is PortAnswer.REFUSED
                if leader is not None and not is_lost:
                    beat = yield Call(ZOOKEEPER_HOP, zookeeper.read_beat)
                    is_lost = suspicion.is_lost(self._now(), leader.epoch, answer, beat)
                if is_lost:
                    epoch = yield Call(ZOOKEEPER_HOP, self._lead_after(leader, beat))
            except Transient:
                suspicion.reset()
            if epoch is None:
                yield self.clock.between(*(LOOKS_SILENT_MS if answer is PortAnswer.NONE else LOOKS_MS))
        self.epoch = epoch
        self.lease.renew(asked)
        Runner(self, self._keep_lease(), self._ended).begin()
        self.world.passed(self, "elected")
        yield 0
        now = self._now()
        events: list[Event] = [
            happened.Elected(epoch, now),
            *(yield Call(SKEIN_HOP, self._take_over_cells)),
        ]
        while not self.is_leading:
            try:
                registered = yield Call(ZOOKEEPER_HOP, zookeeper.registrations)
                recorded = yield Call((3, 15), lambda: self._read_job(has_records=False))
            except Transient:
                yield 200
                continue
            found = with_registered(events, registered, self._now())
            events = [*(_without_attempt(each) for each in found), *recorded]
            self.is_leading = True
        self._waiting = [*events, *self._waiting]
        self._turn_now()
        Departures(self, lambda: self.view, self.post, self._now, self._later).follow()

    def _later(self, look: Callable[[], None]) -> None:
        self.after(self.clock.between(2, 30), look)

    def registrations(self) -> tuple[RegisteredContainer, ...]:
        return self.world.zookeeper.registrations()

    def container_names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        assert watch is not None
        return self.world.zookeeper.watch_containers(self._session, watch)

    def _read_job(self, *, has_records: bool) -> list[Event]:
        world = self.world
        return world.job.load(tuple(world.hosts), world.zookeeper, has_records=has_records)

    def job_changed(self) -> None:
        """Read the job again: a watch fired. A candidate that is not elected yet reads it then."""
        if self.is_alive and self.epoch:
            self._write(self._reload_job)

    def _reload_job(self) -> Course:
        yield self.clock.between(2, 60)
        while not self.is_leading:
            yield 50
        events: list[Event] | None = None
        while events is None:
            try:
                events = yield Call((3, 15), lambda: self._read_job(has_records=True))
            except Transient:
                yield self.clock.between(200, 1_000)
        for each in events:
            self.post(each)

    def _lead_after(self, leader: ControllerRecord | None, last: Beat | None) -> Callable[[], int | None]:
        me = ControllerRecord(self.name, self.host.name, self.port, 0)

        def lead() -> int | None:
            epoch = self.world.zookeeper.lead(self._session, me, leader, last)
            if epoch is not None and leader is not None:
                self.world.invariants.deposed(leader)
            return epoch

        return self._step("epoch", lead)

    def _step(self, what: str, act: Callable[[], T]) -> Callable[[], T]:
        """Return ``act`` as something that takes effect outside: where a leader may be struck."""
        return lambda: self.world.steps.take(self, what, act)

    def _ended(self, error: StandfastError | None) -> None:
        if error is not None:
            self.resign(str(error))

    def _keep_lease(self) -> Course:
        while True:
            yield min(LEASE_MS // 4, BEAT_MS)
            asked = self._now()
            try:
                yield Call(ZOOKEEPER_HOP, lambda: self.world.zookeeper.confirm(self.epoch))
            except Transient:
                continue
            self.lease.renew(asked)

    def _take_over_cells(self) -> list[Event]:
        """Return which cells answer, and what runs there; one that is silent is awaited."""
        found: list[Event] = []
        for cell, attempt in self.world.yarn.recorded.items():
            if self.world.yarn.answers(cell) or self.world.am_refuses(cell):
                found += self._look_at_cell(cell)
                continue
            self._awaited.add(cell)
            self.after(SILENT_MS, self._judge, cell)
            master = self.world.yarn.master_as_told(attempt)
            found.append(happened.CellAwaited(cell, attempt, self._now(), master))
        return found

    def _judge(self, cell: int) -> None:
        """Take a cell for lost that has been silent since the take-over."""
        if cell in self._awaited:
            self._awaited.discard(cell)
            for each in self._look_at_cell(cell):
                self.post(each)

    def _look_at_cell(self, cell: int) -> list[Event]:
        """Return what is new of a cell's AM since the last look."""
        yarn = self.world.yarn
        before, attempt = self._cells.get(cell), yarn.answers(cell)
        if cell in self._awaited and not attempt and not self.world.am_refuses(cell):
            return []
        self._awaited.discard(cell)
        self._cells[cell] = attempt
        if before == attempt:
            return []
        if not attempt:
            return [happened.CellLost(cell, before or yarn.recorded[cell], "its AM refuses", self._now())]
        found: list[Event] = []
        if before:
            found.append(happened.CellLost(cell, before, "its AM is another", self._now()))
        found.append(self._found(cell, attempt))
        for each in [each for each in yarn.listed.values() if each.attempt == attempt]:
            if each.skein_id in self._owed:
                self._owed.discard(each.skein_id)
                yarn.kill_container(each.skein_id)
            elif each.state_as_told == RUNNING:
                self._known[each.skein_id] = RUNNING
                found.append(
                    happened.ContainerExpected(each.container, each.skein_id, self._now(), cell, attempt)
                )
            elif each.state == REQUESTED:
                yarn.kill_container(each.skein_id)
            else:
                # It has ended, or lives without a session: this leader does not know of it.
                self.world.dismissed.add(each.container)
        return found

    def _found(self, cell: int, attempt: str) -> happened.CellFound:
        yarn = self.world.yarn
        self._room = full, processes = yarn.full(), yarn.processes()
        master = yarn.master_as_told(attempt)
        hosts = tuple(self.world.hosts)
        return happened.CellFound(cell, attempt, hosts, self._now(), master, full, processes=processes)

    # ---- the driver's thread ----

    def post(self, event: Event, *, is_urgent: bool = True) -> None:
        """Put an event into the inbox; a mere sign of life waits for the next tick."""
        self._waiting.append(event)
        if is_urgent and self.is_leading:
            self._wake(self.clock.between(0, 4))

    def _wake(self, delay_ms: int) -> None:
        at_ms = self.clock.now_ms + delay_ms
        if self._turn_at_ms is None or self._turn_at_ms > at_ms:
            self._turn_at_ms = at_ms
            self._turns += 1
            self.after(delay_ms, self._turn, self._turns)

    def _turn(self, number: int) -> None:
        if number == self._turns:
            self._turn_now()

    def _turn_now(self) -> None:
        self._turn_at_ms = None
        events, self._waiting = self._waiting, []
        before = self.driver.view
        self.driver.turn(events)
        if self.world.is_pool:
            # What a leader takes for ended counts for it no longer, though nobody may have ended it.
            self.world.dismissed |= before.containers.keys() - self.driver.view.containers.keys()
        self.world.invariants.turned(self, before)
        self.dismissed |= self._dismissing
        if self.is_alive:
            self._wake(TICK_MS)

    def _tell(self, entry: LogEntry, view: ClusterView) -> None:
        self.clock.tell(
            "{}: {} {} {} {}", self.name, entry.kind.value, entry.container, entry.host, entry.reason
        )
        self.world.log.append(Told(self.name, entry))
        self.world.invariants.told(self, entry)

    # ---- actions ----

    def _carry_out(self, action: Action, view: ClusterView) -> None:
        invariants, yarn = self.world.invariants, self.world.yarn
        invariants.acting(self, action)
        if isinstance(action, todo.WriteRecords):
            self._write(lambda: self._write_records(action))
        elif isinstance(action, todo.WriteStatus):
            self._write(self._write_status)
        elif isinstance(action, todo.WriteModel):
            self._write(lambda: self._write_model(action))
        elif isinstance(action, todo.SendAssignment):
            invariants.ordering(self, action)
            self._send(
                action.container,
                action.incarnation,
                wire.Assignment(
                    view.epoch,
                    action.incarnation,
                    action.number,
                    action.replicas,
                    self.world.job.definitions(action),
                ),
            )
        elif isinstance(action, todo.SendExit):
            self._dismissing.add(action.container)
            self._send(
                action.container, action.incarnation, wire.Exit(view.epoch, action.reason, action.purge)
            )
        elif isinstance(action, todo.DeclareLost):
            invariants.declaring_lost(self, action)
        elif isinstance(action, todo.ProbePort):
            self.call(SKEIN_HOP, lambda: self.world.probe(self, action.container), self._probed(action))
        elif isinstance(action, todo.RequestContainer):
            host, cell = action.host, action.cell
            ask = self._step("request", lambda: yarn.add_container(host, cell, self.epoch))
            self.call(SKEIN_HOP, ask, self._requested(action.number))
        elif isinstance(action, todo.ReleaseContainer):
            self._dismissing.add(action.container)
            self.world.dismissed.add(action.container)
            self._give_back(action.skein_id)
        elif isinstance(action, todo.CancelRequest):
            self._give_back(action.skein_id)
        elif isinstance(action, todo.Answer):
            self.clock.tell("{}: answers: {}", self.name, action.said)

    def _probed(
        self, action: todo.ProbePort
    ) -> Callable[[tuple[bool, ProcessEnd | None, bool, bool, bool, bool], StandfastError | None], None]:
        return lambda found, _: self.post(
            happened.PortProbed(action.container, action.incarnation, found[0], self._now(), *found[1:])
        )

    def _give_back(self, skein_id: str) -> None:
        def done(_: None, error: StandfastError | None) -> None:
            if error is None:
                self._owed.discard(skein_id)

        # From now on, for the cell may be lost and found again before the answer comes.
        self._owed.add(skein_id)
        end = self._step("release", lambda: self.world.yarn.kill_container(skein_id))
        self.call(SKEIN_HOP, end, done)

    def _requested(self, number: int) -> Callable[[str, StandfastError | None], None]:
        def placed(skein_id: str, error: StandfastError | None) -> None:
            if error is not None:
                self.post(happened.RequestRefused(number, str(error), self._now()))
                return
            self.post(happened.RequestPlaced(number, skein_id))
            self.look_soon()

        return placed

    # ---- records ----

    def _write(self, course: Callable[[], Course]) -> None:
        """Write in the order of the decisions, one after the other."""
        self._writes.append(course)
        self._write_next()

    def _write_next(self) -> None:
        if self._is_writing or not self._writes:
            return
        self._is_writing = True
        course = self._writes.pop(0)

        def done(error: StandfastError | None) -> None:
            self._is_writing = False
            if error is not None:
                self.resign(str(error))
            self._write_next()

        Runner(self, course(), done).begin()

    def _write_records(self, action: todo.WriteRecords) -> Course:
        zookeeper = self.world.zookeeper
        tasks = tuple(each.record.task for each in action.changes)
        self.world.passed(self, "before a write")
        yield 0
        while True:
            written: tuple[Recorded, ...] | None
            try:
                write = self._step(
                    f"records: {action.kind.value}",
                    lambda: zookeeper.write_tasks(self.epoch, action.changes),
                )
                written = yield Call(ZOOKEEPER_HOP, write)
                break
            except Fenced:
                raise
            except Transient:
                self.clock.tell("{}: the outcome of {} is unknown", self.name, action.decision)
                present = yield from self._read(tasks)
                if len(present) == len(tasks) and all(
                    each.record.decision == action.decision for each in present
                ):
                    written = present
                    break
        if written is not None:
            self.world.passed(self, "after a write")
            yield 0
            self.post(happened.RecordsWritten(action.decision, written, self._now()))
            return
        self.post(happened.RecordsRefused(action.decision, "a record was changed after the decision"))
        self.post(happened.RecordsLoaded(as_recorded(action.changes, (yield from self._read(tasks)))))

    def _read(self, tasks: tuple[TaskId, ...]) -> Course:
        while True:
            yield self.clock.between(50, 200)
            try:
                return (yield Call(ZOOKEEPER_HOP, lambda: self.world.zookeeper.read_tasks(tasks)))
            except Transient:
                continue

    def _write_status(self) -> Course:
        # Nothing reads it here; it only takes its time among the other writes.
        yield self.clock.between(2, 10)

    def _write_model(self, action: todo.WriteModel) -> Course:
        written: JobModel | None = None
        is_answered = False
        while not is_answered:
            try:
                write = self._step(
                    "model", lambda: self.world.zookeeper.write_model(self.epoch, action.model)
                )
                written = yield Call(ZOOKEEPER_HOP, write)
                is_answered = True
            except Transient:
                yield self.clock.between(100, 300)
        if written is not None:
            self.post(happened.ModelWritten(action.job, written))
            return
        self.post(happened.ModelRefused(action.job, "the recorded model had changed"))
        yield from self._reload_job()

    # ---- YARN ----

    def look_soon(self) -> None:
        """Have the list of containers read at the next look."""
        if not self._is_looking and self.is_alive:
            self._is_looking = True
            self.after(self.clock.between(20, 400), self._look)

    def _look(self) -> None:
        self._is_looking = False
        if not self.is_leading:
            self.look_soon()
            return
        for cell in self.world.yarn.recorded:
            for event in self._look_at_cell(cell):
                self.post(event)
            room = self.world.yarn.full(), self.world.yarn.processes()
            if self._room != room and self._cells.get(cell):
                self.post(self._found(cell, self._cells[cell]))
        for each in list(self.world.yarn.listed.values()):
            if self._cells.get(each.cell) != each.attempt:
                continue
            before = self._known.get(each.skein_id)
            state = each.state_as_told
            if state in (before, REQUESTED):
                continue
            self._known[each.skein_id] = state
            if state == RUNNING:
                self.post(happened.ContainerGranted(each.skein_id, self._now()))
            elif state == ENDED:
                self.post(self.world.yarn.end_as_told(each, self._now()))

    # ---- control streams ----

    def hello(self, stream: Stream) -> None:
        hello = stream.hello
        if not self.epoch:
            stream.break_("it does not know yet that it leads")
            return
        if hello.controller_epoch > self.epoch:
            stream.break_("it obeyed a newer leader")
            self._write(lambda: self._make_way(hello.controller_epoch))
            return
        former = self._streams.get(hello.container)
        self._streams[hello.container] = stream
        if former is not None:
            former.break_("a newer stream of the same container")
        self.post(
            happened.ContainerRegistered(
                hello.container,
                hello.skein_id,
                hello.incarnation,
                hello.host,
                hello.pid,
                hello.http_port,
                hello.replicas,
                hello.leftovers,
                self._now(),
                hello.revisions,
                hello.cell,
                attempt_of(hello.container),
            )
        )

    def _make_way(self, seen: int) -> Course:
        rise = self._step("epoch", lambda: self.world.zookeeper.raise_epoch(self.epoch, seen))
        with suppress(Fenced, Transient):
            yield Call(ZOOKEEPER_HOP, rise)
        self.resign(f"a container has obeyed epoch {seen}")

    def hear(self, stream: Stream, message: wire.Up) -> None:
        container, incarnation = stream.hello.container, stream.hello.incarnation
        if isinstance(message, wire.Heartbeat):
            self.post(happened.HeartbeatReceived(container, incarnation, self._now()), is_urgent=False)
        elif isinstance(message, wire.Report):
            self.post(
                happened.ReportReceived(
                    container,
                    incarnation,
                    message.number,
                    message.replicas,
                    message.warm,
                    0,
                    self._now(),
                    message.revisions,
                    message.is_leaving,
                )
            )

    def stream_ended(self, stream: Stream) -> None:
        hello = stream.hello
        if self._streams.get(hello.container) is stream:
            del self._streams[hello.container]
            self.post(happened.ContainerStreamBroken(hello.container, hello.incarnation, self._now()))

    def _send(self, container: str, incarnation: int, message: wire.Down) -> None:
        stream = self._streams.get(container)
        if stream is not None and stream.hello.incarnation == incarnation:
            stream.order(message)

    def streams(self) -> list[Stream]:
        return list(self._streams.values())

    def hears(self, container: str) -> bool:
        stream = self._streams.get(container)
        return stream is not None and not stream.is_broken


def _without_attempt(event: Event) -> Event:
    """Return the event with Skein's id alone: here ids are of all attempts."""
    if not isinstance(event, happened.ContainerExpected):
        return event
    return replace(event, skein_id=event.skein_id.rpartition("/")[2])
