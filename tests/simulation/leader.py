"""A candidate's process: the real driver and planner, with the outer side of every action in virtual time.

Mirrors `appmaster.candidate` and `appmaster.effects`: election, loading of what is recorded, and how writes of
unknown outcome are read back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from appmaster.adapters.kazoo import as_recorded
from appmaster.driver import Driver
from appmaster.inbox import Inbox
from appmaster.planning import actions as todo
from appmaster.planning import events as happened
from appmaster.planning.actions import Action
from appmaster.planning.events import Event
from appmaster.planning.model import JobModel
from appmaster.planning.view import ClusterView, News, Recorded
from standby import wire
from standby.control.events import Leader
from standby.errors import Fenced, StandfastError, Transient
from standby.model import TaskId
from tests.simulation.network import Stream
from tests.simulation.process import Call, Course, Host, Process, Runner
from tests.simulation.replica import ZOOKEEPER_HOP
from tests.simulation.yarn import ENDED, REQUESTED, RUNNING
from tests.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A leader with nothing to do turns this often.
TICK_MS = 300

#: How soon the supervisor starts a new candidate.
RESTART_MS = (200, 900)

SKEIN_HOP = (1, 6)


class Candidate(Process):
    """One candidate, from its start until it is deposed or killed."""

    def __init__(self, world: World, host: Host, name: str) -> None:
        super().__init__(world.clock, host, name)
        self.world = world
        self.epoch = 0
        self.port = world.next_port()
        #: Readings of the monotonic clocks of two processes have nothing to do with each other.
        self._offset_ms = self.clock.between(1_000, 9_000)
        self.driver = Driver(Inbox(), self._carry_out, self._tell, self._now)
        self.is_leading = False
        self.dismissed: set[str] = set()
        """Containers that were told to end, or ended, in turns before this one."""
        self._dismissing: set[str] = set()
        self.lost: set[str] = set()
        self.failures = 0
        """Told in this turn."""
        self._waiting: list[Event] = []
        self._turn_at_ms: int | None = None
        self._turns = 0
        self._streams: dict[str, Stream] = {}
        self._known: dict[str, str] = {}
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
        """Return what it knows."""
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
        while epoch is None:
            try:
                leader: Leader | None = yield Call(ZOOKEEPER_HOP, lambda: zookeeper.read_leader(session))
                if leader is None or self.world.refuses(leader.port):
                    epoch = yield Call(ZOOKEEPER_HOP, self._lead_after(leader))
            except Transient:
                pass
            if epoch is None:
                yield self.clock.between(100, 500)
        self.epoch = epoch
        self.world.passed(self, "elected")
        yield 0
        now = self._now()
        events: list[Event] = [
            happened.Elected(epoch, now, 1_700_000_000_000 - now),
            *(yield Call(SKEIN_HOP, self._expected)),
        ]
        while True:
            try:
                events += yield Call((3, 15), lambda: self._read_job(has_records=False))
                break
            except Transient:
                yield 200
        self.is_leading = True
        self._waiting = [*events, *self._waiting]
        self._turn_now()

    def _read_job(self, *, has_records: bool) -> list[Event]:
        world = self.world
        return world.job.load(tuple(world.hosts), world.zookeeper, has_records=has_records)

    def job_changed(self) -> None:
        """Read the job again: a watch fired. Who is not elected yet reads it then."""
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

    def _lead_after(self, leader: Leader | None) -> Callable[[], int | None]:
        return lambda: self.world.zookeeper.lead(self._session, self.name, self.host.name, self.port, leader)

    def _ended(self, error: StandfastError | None) -> None:
        if error is not None:
            self.resign(str(error))

    def _expected(self) -> list[Event]:
        yarn, found = self.world.yarn, list[Event]()
        for each in list(yarn.listed.values()):
            if each.state == RUNNING:
                self._known[each.skein_id] = RUNNING
                found.append(happened.ContainerExpected(each.container, each.skein_id, self._now()))
            elif each.state == REQUESTED:
                yarn.kill_container(each.skein_id)
        return found

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
        self.world.laws.turned(self, before)
        self.dismissed |= self._dismissing
        if self.is_alive:
            self._wake(TICK_MS)

    def _tell(self, news: News, view: ClusterView) -> None:
        self.clock.tell("{}: {} {} {} {}", self.name, news.kind, news.container, news.host, news.reason)
        self.world.laws.told(self, news)

    # ---- actions ----

    def _carry_out(self, action: Action, view: ClusterView) -> None:
        laws, yarn = self.world.laws, self.world.yarn
        if isinstance(action, todo.WriteRecords):
            self._write(lambda: self._write_records(action))
        elif isinstance(action, todo.WriteStatus):
            self._write(self._write_status)
        elif isinstance(action, todo.WriteModel):
            self._write(lambda: self._write_model(action))
        elif isinstance(action, todo.SendAssign):
            laws.ordering(self, action)
            self._send(
                action.container,
                action.incarnation,
                wire.Assign(
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
            laws.declaring_lost(self, action)
        elif isinstance(action, todo.ProbePort):
            self.call(SKEIN_HOP, lambda: self.world.accepts(action.container), self._probed(action))
        elif isinstance(action, todo.RequestContainer):
            host = action.host
            self.call(SKEIN_HOP, lambda: yarn.add_container(host), self._requested(action.number))
        elif isinstance(action, todo.ReleaseContainer):
            self._dismissing.add(action.container)
            self.world.dismissed.add(action.container)
            self.call(SKEIN_HOP, lambda: yarn.kill_container(action.skein_id), lambda *_: None)
        elif isinstance(action, todo.CancelRequest):
            self.call(SKEIN_HOP, lambda: yarn.kill_container(action.skein_id), lambda *_: None)
        elif isinstance(action, todo.Answer):
            self.clock.tell("{}: answers: {}", self.name, action.said)

    def _probed(self, action: todo.ProbePort) -> Callable[[bool, StandfastError | None], None]:
        return lambda accepts, _: self.post(
            happened.PortProbed(action.container, action.incarnation, accepts, self._now())
        )

    def _requested(self, number: int) -> Callable[[str, StandfastError | None], None]:
        def placed(skein_id: str, _: StandfastError | None) -> None:
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
                written = yield Call(ZOOKEEPER_HOP, lambda: zookeeper.write_tasks(self.epoch, action.changes))
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
        self.post(happened.RecordsRefused(action.decision, "a record had changed under the decision"))
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
                written = yield Call(
                    ZOOKEEPER_HOP, lambda: self.world.zookeeper.write_model(self.epoch, action.model)
                )
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
        for each in list(self.world.yarn.listed.values()):
            before = self._known.get(each.skein_id)
            if each.state in (before, REQUESTED):
                continue
            self._known[each.skein_id] = each.state
            if each.state == RUNNING:
                self.post(happened.ContainerGranted(each.skein_id, self._now()))
            elif each.state == ENDED:
                self.post(happened.ContainerCompleted(each.skein_id, each.message, self._now()))

    # ---- control streams ----

    def hello(self, stream: Stream) -> None:
        """Take a container's introduction."""
        hello = stream.hello
        if hello.controller_epoch > self.epoch:
            stream.break_("it obeyed a newer leader")
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
            )
        )

    def hear(self, stream: Stream, message: wire.Up) -> None:
        """Take a message of a stream."""
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
                )
            )

    def stream_ended(self, stream: Stream) -> None:
        """Take note that a stream is over."""
        hello = stream.hello
        if self._streams.get(hello.container) is stream:
            del self._streams[hello.container]
            self.post(happened.StreamBroken(hello.container, hello.incarnation, self._now()))

    def _send(self, container: str, incarnation: int, message: wire.Down) -> None:
        stream = self._streams.get(container)
        if stream is not None and stream.hello.incarnation == incarnation:
            stream.order(message)

    def streams(self) -> list[Stream]:
        """Return the streams that stand."""
        return list(self._streams.values())

    def hears(self, container: str) -> bool:
        """Return whether a stream of ``container`` stands here."""
        stream = self._streams.get(container)
        return stream is not None and not stream.is_broken
