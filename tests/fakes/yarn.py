"""A cluster without I/O: YARN, ZooKeeper and containers as the planner sees them, one event at a time.

It obeys the planner's actions with the peculiarities measured on real clusters: a request for a host
that is down waits for ever, RUNNING comes before the process, a released container takes a moment
to die, a silent host closes no socket. Virtual time only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from appmaster.effects import as_recorded
from appmaster.eventlog.derive import derive
from appmaster.eventlog.entries import CATALOGUE, LogEntry
from appmaster.planning import invariants
from appmaster.planning.fold.apply import apply
from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import JobState, PlannerPolicy
from appmaster.planning.state.model import JobModel, JobSpec
from appmaster.planning.state.view import ClusterView, Command, Operation, Recorded
from locality.fit import Demand, PoolProcess, fits
from locality.hosts import HostInfo
from standby.shared.exits import ProcessEnd
from standby.shared.model import (
    Leftover,
    NodeOffer,
    Phase,
    ProcessorId,
    ReplicaStatus,
    Role,
    StartStep,
    TaskId,
    TaskRecord,
    Wanted,
)
from standby.shared.naming import POOL

A = TypeVar("A", bound=todo.Action)

HEARTBEAT_MS = 150

#: How long the registration of a process of a pool outlives it.
SESSION_MS = 6_000
RESTORE_MS = 300

#: A job that is whole and evenly spread, and for which nothing was done for so long, is left as it is.
CALM_MS = 3_000

#: A segmentation fault of unknown cause.
FAULT: Final = ProcessEnd(-11)


#: The fields that every entry of the event log has.
_FIELDS: Final = ("job", "task", "copy", "container", "host", "task_epoch", "reason", "decision")


#: What of a view its own invariants are about.
_JUDGED: Final = ("records", "assigned", "unsettled", "jobs", "rebalancing")


def hosts_of(view: ClusterView) -> dict[str, str]:
    """Return container → its host, as far as a leader knows."""
    return {each.id: each.host for each in view.containers.values()}


def check_entry(entry: LogEntry) -> None:
    """Check that an entry has what the catalogue says of its kind, and nothing else."""
    described = CATALOGUE[entry.kind]
    assert type(entry.details) is described.details, entry
    assert {each for each in _FIELDS if getattr(entry, each) is not None} <= set(described.about), entry


@dataclass
class Process:
    """A container's process as it is, whatever the leader thinks."""

    skein_id: str
    container: str
    host: str
    incarnation: int
    pid: int
    is_frozen: bool = False
    is_still: bool = False
    """Whether its witness sees it standing still while it is frozen."""
    waits_for_disk: bool = False
    """Whether it is its disk that it waits for while it is frozen, as its witness sees."""
    is_scripted: bool = False
    """Its replicas are as a test says, whatever it is ordered."""
    is_connected: bool = False
    number: int = 0
    replicas: dict[str, ReplicaStatus] = field(default_factory=dict)
    wanted: tuple[Wanted, ...] = ()
    ready_ms: int = 0
    revisions: dict[str, int] = field(default_factory=dict)
    cell: int = 1
    attempt: str = ""
    """The attempt of its cell that started it."""
    is_leaving: bool = False
    """It is asked to end, and has said so."""
    restores_until_ms: int = 0
    """Until when its replicas restore their states, which they have lost."""

    def report(self, partition: int | None = None, **changes: Any) -> None:
        """Have its replicas, or that of one task, report so from now on, whatever it is ordered."""
        self.is_scripted = True
        for name, each in self.replicas.items():
            if partition in (None, each.replica.task.partition):
                self.replicas[name] = replace(each, **changes)


def in_time(process: Process, wanted: Wanted) -> Phase:
    """Return the phase of a replica that has done what was wanted of it."""
    return Phase.ACTIVE if wanted.role is Role.ACTIVE else Phase.TAILING


@dataclass
class FakeCluster:
    """Hosts, processes and records; `turn` runs the leader once, `run` lets time pass."""

    tasks: int = 4
    containers: int = 2
    standbys: int = 1
    is_mixed: bool = False
    hosts: tuple[str, ...] = ("h1", "h2", "h3")
    capacity: int = 8
    capacities: Mapping[str, int] = field(default_factory=dict)
    """Host → how many processes it takes, where that is not ``capacity``."""
    policy: PlannerPolicy = field(default_factory=PlannerPolicy)
    cells: tuple[int, ...] = ()
    """None: the planner knows of no cells."""
    masters: Mapping[int, str] = field(default_factory=dict)
    """Cell → the host of its master, as far as the planner knows it."""
    racks: Mapping[str, str] = field(default_factory=dict)
    is_pool: bool = False
    """Its cell is a pool with ``capacity`` processes on each host: the end of a process shows by its session alone."""
    offers: Mapping[str, NodeOffer] = field(default_factory=dict)
    """Host → what its processes offer, in a pool."""

    def __post_init__(self) -> None:
        self.now_ms = 1_000
        self.up = set(self.hosts)
        self.frozen: set[str] = set()
        self.processes: dict[str, Process] = {}
        self.waiting: dict[str, tuple[int, str | None, int]] = {}
        #: Request → what it asks of a process of a pool.
        self.demands: dict[str, Demand] = {}
        #: Cell → the attempt of it whose Skein AM answers; one that is away has none.
        self.attempts = {each: POOL if self.is_pool else f"{each}.1" for each in self.cells}
        #: Cell → its latest attempt, as its record has it.
        self.latest = dict(self.attempts)
        self.model: JobModel | None = None
        self.revision = 1
        self.is_wanted = True
        #: The job's status as the last leader wrote it.
        self.status = ""
        self.drained: dict[str, str] = {}
        self.said: list[todo.Answer] = []
        self.serial_commands = 0
        #: Containers that never confirm that a replica has stopped.
        self.never_stops: set[str] = set()
        self.versions: dict[TaskId, Recorded] = {}
        self.entries: list[LogEntry] = []
        self.actions: list[todo.Action] = []
        self.serial = 0
        self.fails_at_launch: Callable[[str], bool] = lambda host: False
        self.refuses_writes = 0
        #: Whether no host can be requested by name, as those that were added after the submit.
        self.refuses_names = False
        self.restore_ms = RESTORE_MS
        #: Up to where every copy's state is.
        self.applied = 10
        #: Whether standbys report that they are warm.
        self.is_warm = True
        #: Hosts on which they do not.
        self.cold_hosts: set[str] = set()
        #: How far behind every copy is, as it says.
        self.lag_ms = 0
        #: Host → what a container sees on its disks when its process begins.
        self.leftovers: dict[str, tuple[Leftover, ...]] = {}
        #: Containers that Kafka does not answer.
        self.cut_off: set[str] = set()
        #: The phase that a replica in a process comes to, by what is wanted of it.
        self.phase_of: Callable[[Process, Wanted], Phase] = in_time
        #: Containers that never get ready for a planned hand-over.
        self.never_prepares: set[str] = set()
        #: YARN grants nothing; Kafka fences no producer: what is under way stays so.
        self.grants_nothing = False
        self.fences_nothing = False
        #: Whether two copies of a task may be on one host: they were placed while their hosts were unknown.
        self.may_share_hosts = False
        self.later: list[tuple[int, happened.Event]] = []
        #: Container → what its witness will say of its end.
        self.ends: dict[str, ProcessEnd] = {}
        self.view = ClusterView()
        self.elect()

    # ---- the leader ----

    def elect(self, epoch: int = 1) -> None:
        """Start a (new) leader with an empty view: it loads what ZooKeeper and YARN say."""
        self.view = ClusterView()
        self.tell(happened.Elected(epoch, self.now_ms))
        self.load()
        self.tell_hosts()
        self.tell(happened.HostsDrained(dict(self.drained), is_taken_over=True))
        self.tell(happened.RecordsLoaded(tuple(self.versions.values())))
        for cell in self.cells:
            self._tell_cell(cell)
        for process in self.processes.values():
            process.is_connected = False
            if not self.cells or self.latest[process.cell] == process.attempt:
                self.expect(process)

    def tell_hosts(self) -> None:
        """Tell in which racks the hosts stand."""
        known = (HostInfo(each, rack=self.racks.get(each, "")) for each in self.hosts)
        self.tell(happened.HostsKnown(tuple(known)))

    def expect(self, process: Process) -> None:
        """Tell a new leader of a container that is listed, or registered where its cell's AM is silent."""
        self.tell(
            happened.ContainerExpected(
                process.container,
                process.skein_id,
                self.now_ms,
                process.cell,
                process.attempt,
                process.host if self.cells else "",
                process.incarnation if self.cells else 0,
                self._offer_of(process.host),
            )
        )

    def _tell_cell(self, cell: int) -> None:
        attempt = self.attempts.get(cell)
        if attempt is not None:
            master = self.masters.get(cell, "")
            self.tell(
                happened.CellFound(
                    cell,
                    attempt,
                    self.hosts,
                    self.now_ms,
                    master,
                    self._full(),
                    processes=self._offered(),
                )
            )
        else:
            self.tell(happened.CellLost(cell, self.latest[cell], "its AM refuses", self.now_ms))

    def _full(self) -> frozenset[str]:
        """Return the hosts of a pool on which every process is claimed, the last one a moment ago or longer."""
        held = Counter(each.host for each in self.processes.values())
        return frozenset(
            each for each in self.hosts if self.is_pool and held[each] >= self._capacity_of(each)
        )

    def _capacity_of(self, host: str) -> int:
        return self.capacities.get(host, self.capacity)

    def _offer_of(self, host: str) -> NodeOffer | None:
        return self.offers.get(host, NodeOffer()) if self.is_pool else None

    def _offered(self) -> tuple[PoolProcess, ...]:
        """Return the processes of a pool, those that are claimed first."""
        held = Counter(each.host for each in self.processes.values())
        return tuple(
            PoolProcess(host, offer, is_free=number >= held[host])
            for host in sorted(self.up)
            if (offer := self._offer_of(host)) is not None
            for number in range(self._capacity_of(host))
        )

    def lose_cell(self, cell: int, *, runs_on: bool = False) -> None:
        """Lose a cell's Skein AM; its containers end with it, or run on until YARN ends them."""
        attempt = self.attempts.pop(cell)
        self.waiting = {skein_id: each for skein_id, each in self.waiting.items() if each[2] != cell}
        if not runs_on:
            self.end_attempt(attempt)
        self.tell(happened.CellLost(cell, attempt, "its AM refuses", self.now_ms))

    def end_attempt(self, attempt: str) -> None:
        """Have YARN end what is left of an attempt; there is no AM that would tell of it."""
        for process in [each for each in self.processes.values() if each.attempt == attempt]:
            self.kill(process.skein_id)
            self.later.pop()

    def return_cell(self, cell: int) -> None:
        """Have YARN start the next attempt of a cell, which knows nothing of the one before."""
        self.serial += 1
        self.attempts[cell] = self.latest[cell] = f"{cell}.{self.serial}"
        self._tell_cell(cell)

    def load(self, **changes: int) -> None:
        """Tell the leader what is asked of the job; ``changes`` are of tasks, containers, standbys, revision."""
        for name, value in changes.items():
            setattr(self, name, value)
        spec = JobSpec("main", self.tasks, self.containers, self.standbys, self.is_mixed)
        self.tell(
            happened.JobLoaded(
                "job",
                "run1",
                spec,
                self.model,
                self.policy,
                self.revision,
                self.is_wanted,
                was_deployed=self.status in (JobState.DEPLOYED, JobState.INCOMPLETE),
            )
        )

    def drain(self, *hosts: str) -> None:
        """Have these hosts, and no others, emptied."""
        self.drained = dict.fromkeys(hosts, "drained by a test")
        self.tell(happened.HostsDrained(dict(self.drained), is_taken_over=False))

    def undeploy(self) -> None:
        """Have the job end: it is not wanted any more."""
        self.is_wanted = False
        self.load()

    def command(self, operation: Operation, processor: int | None = None, **more: Any) -> None:
        self.serial_commands += 1
        asked = ProcessorId("job", "main", processor) if processor is not None else None
        self.tell(happened.Commanded(Command(self.serial_commands, operation, asked, **more)))

    def tell(self, event: happened.Event) -> None:
        """Fold one event into the view and check every invariant."""
        before, self.view = self.view, apply(self.view, event)
        self._check(before)
        for entry in derive(before, event, self.view):
            check_entry(entry)
            self.entries.append(entry)

    def _check(self, before: ClusterView) -> None:
        """Check the invariants whose subjects an event has changed; most events are reports, and change none."""
        now = self.view
        if any(getattr(now, each) is not getattr(before, each) for each in _JUDGED):
            invariants.check(now)
        if now.records is not before.records or hosts_of(now) != hosts_of(before):
            assert self.may_share_hosts or not self.shared_hosts()

    def shared_hosts(self) -> list[str]:
        """Return which tasks have two copies on one host."""
        records = [each.record for each in self.view.records.values()]
        return [what for each in records for what in invariants.copies_on_different_hosts(self.view, each)]

    def turn(self) -> int:
        """Plan once and carry everything out; return how many actions there were."""
        self.tell(happened.Ticked(self.now_ms, wall_offset_ms=1_700_000_000_000))
        actions = plan(self.view)
        if actions:
            invariants.check(self.view, actions)
        for action in actions:
            self.actions.append(action)
            self.tell(happened.Started(action, self.now_ms))
            self.obey(action)
        return len(actions)

    def obey(self, action: todo.Action) -> None:
        """Carry out one action as the outside world would."""
        if isinstance(action, todo.WriteRecords):
            self._write(action)
        elif isinstance(action, todo.WriteModel):
            znode = -1 if self.model is None else self.model.znode
            assert action.model.znode == znode, action
            self.model = replace(action.model, znode=znode + 1)
            self.tell(happened.ModelWritten("job", self.model))
        elif isinstance(action, todo.WriteStatus):
            self.status = action.state
        elif isinstance(action, todo.Answer):
            self.said.append(action)
        elif isinstance(action, todo.RequestContainer):
            self._request(action)
        elif isinstance(action, todo.CancelRequest):
            self.waiting.pop(action.skein_id, None)
            self.kill(action.skein_id)
        elif isinstance(action, todo.ReleaseContainer):
            self.kill(action.skein_id)
        elif isinstance(action, todo.ProbePort):
            process = self.by_container(action.container)
            end = self.ends.pop(action.container, None)
            is_alive = process is not None
            is_answered = process is None or process.host not in self.frozen
            is_running = process is not None and self.can_hear(process)
            is_witnessed = process is not None and is_answered and not is_running
            is_still = is_witnessed and process is not None and process.is_still
            waits_for_disk = is_witnessed and process is not None and process.waits_for_disk
            self.tell(
                happened.PortProbed(
                    action.container,
                    action.incarnation,
                    is_alive,
                    self.now_ms,
                    end,
                    is_answered,
                    is_running,
                    is_still,
                    waits_for_disk,
                )
            )
        elif isinstance(action, todo.FenceTasks):
            if not self.fences_nothing:
                self.tell(happened.TasksFenced(action.number, action.job))
        elif isinstance(action, (todo.SendAssignment, todo.SendExit)):
            self._send(action)

    def _send(self, action: todo.SendAssignment | todo.SendExit) -> None:
        process = self.by_container(action.container)
        if process is None or not self.can_hear(process):
            return
        if isinstance(action, todo.SendExit):
            self.kill(process.skein_id)
            return
        if action.replicas != process.wanted:
            process.ready_ms = self.now_ms + self.restore_ms
        process.number, process.wanted = action.number, action.replicas
        process.revisions = {**dict(action.jobs), **process.revisions}

    def _write(self, action: todo.WriteRecords) -> None:
        if self.refuses_writes:
            self.refuses_writes -= 1
            self.tell(happened.RecordsRefused(action.decision, "a version did not match"))
            present = [
                self.versions[each.record.task]
                for each in action.changes
                if each.record.task in self.versions
            ]
            loaded = as_recorded(action.changes, present)
            self.later.append((self.now_ms + 10, happened.RecordsLoaded(loaded)))
            return
        written = []
        for change in action.changes:
            old = self.versions.get(change.record.task)
            assert (old.version if old else None) == change.expected_version, change
            version = 0 if old is None else old.version + 1
            self.versions[change.record.task] = Recorded(change.record, version)
            written.append(self.versions[change.record.task])
        self.tell(happened.RecordsWritten(action.decision, tuple(written), self.now_ms))

    # ---- the world ----

    def by_container(self, container: str) -> Process | None:
        """Return the process of a YARN container, dead ones excluded."""
        return next((each for each in self.processes.values() if each.container == container), None)

    def process(self, container: str) -> Process:
        """Return the process of a YARN container, which lives."""
        found = self.by_container(container)
        assert found is not None, container
        return found

    def can_hear(self, process: Process) -> bool:
        """Return whether a message reaches the process and moves it."""
        return not process.is_frozen and process.host not in self.frozen

    def _request(self, action: todo.RequestContainer) -> None:
        if self.refuses_names and action.host is not None:
            why = f"{action.host} has no service in cell {action.cell}"
            self.tell(happened.RequestRefused(action.number, why, self.now_ms))
            return
        self.serial += 1
        skein_id = f"s_{self.serial}"
        self.waiting[skein_id] = (self.now_ms + 100, action.host, action.cell)
        self.demands[skein_id] = action.demand
        self.tell(happened.RequestPlaced(action.number, skein_id))

    def crash(self, skein_id: str, end: ProcessEnd = FAULT) -> None:
        """End a process so that its witness stays, and says how."""
        process = self.processes.get(skein_id)
        if process is not None:
            self.ends[process.container] = end
            self.kill(skein_id)

    def kill(self, skein_id: str) -> None:
        """End a process as kill -9 does: its sockets close, YARN tells a moment later."""
        process = self.processes.pop(skein_id, None)
        if process is None:
            return
        if process.is_connected and process.host in self.up and process.host not in self.frozen:
            self.later.append(
                (
                    self.now_ms + 1,
                    happened.ContainerStreamBroken(process.container, process.incarnation, self.now_ms + 1),
                )
            )
        if self.is_pool:
            at_ms = self.now_ms + SESSION_MS
            ended: happened.Event = happened.ContainerUnregistered(process.container, at_ms, skein_id)
        else:
            at_ms = self.now_ms + 200
            ended = happened.ContainerCompleted(skein_id, "exit 137", at_ms)
        self.later.append((at_ms, ended))

    def lose_host(self, host: str, *, silent: bool) -> None:
        """Take a host away with everything on it."""
        if silent:
            self.frozen.add(host)
            return
        self.up.discard(host)
        self.frozen.discard(host)
        for process in [each for each in self.processes.values() if each.host == host]:
            self.kill(process.skein_id)

    def add_hosts(self, *hosts: str) -> None:
        """Have the cluster grow by empty hosts."""
        self.hosts += hosts
        self.up.update(hosts)

    def return_host(self, host: str) -> None:
        """Give the host back, empty."""
        if host in self.frozen:
            self.lose_host(host, silent=False)
        self.up.add(host)

    def grant(self) -> None:
        """Grant what waits, where there is room."""
        if self.grants_nothing:
            return
        for skein_id, (due, wanted_host, cell) in list(self.waiting.items()):
            usable = [
                each
                for each in sorted(self.up)
                if sum(1 for p in self.processes.values() if p.host == each) < self._capacity_of(each)
                and each not in self.frozen
                and fits(self.demands[skein_id], self._offer_of(each))
            ]
            if due > self.now_ms or not usable or (wanted_host and wanted_host not in usable):
                continue
            del self.waiting[skein_id]
            host = wanted_host or min(
                usable, key=lambda h: sum(1 for p in self.processes.values() if p.host == h)
            )
            self.tell(happened.ContainerGranted(skein_id, self.now_ms, self._offer_of(host)))
            if self.fails_at_launch(host):
                at_ms = self.now_ms + 50
                self.later.append((at_ms, happened.ContainerCompleted(skein_id, "exit 1", at_ms)))
                continue
            self.serial += 1
            self.processes[skein_id] = Process(
                skein_id,
                f"c{self.serial}",
                host,
                self.serial,
                1000 + self.serial,
                cell=cell,
                attempt=self.attempts.get(cell, ""),
            )
        for each in self.cells if self.is_pool else ():
            known = self.view.cells[each]
            if (known.hosts, known.full, known.processes) != (self.hosts, self._full(), self._offered()):
                self._tell_cell(each)

    def live(self) -> None:
        """Have every process that can say how it is."""
        for process in list(self.processes.values()):
            if not self.can_hear(process):
                continue
            if not process.is_connected:
                process.is_connected = True
                self.tell(
                    happened.ContainerRegistered(
                        process.container,
                        process.skein_id,
                        process.incarnation,
                        process.host,
                        process.pid,
                        0,
                        tuple(process.replicas.values()),
                        self.leftovers.get(process.host, ()),
                        self.now_ms,
                        process.revisions,
                        process.cell,
                        process.attempt,
                    )
                )
            if not process.is_scripted:
                self._obey(process)
            self.tell(
                happened.ReportReceived(
                    process.container,
                    process.incarnation,
                    process.number,
                    tuple(process.replicas.values()),
                    self.is_warm and process.host not in self.cold_hosts,
                    0,
                    self.now_ms,
                    process.revisions,
                    process.is_leaving,
                )
            )

    def _obey(self, process: Process) -> None:
        names = {str(each.replica) for each in process.wanted}
        if process.container not in self.never_stops:
            process.replicas = {each: status for each, status in process.replicas.items() if each in names}
        if self.now_ms >= process.ready_ms:
            process.replicas.update(
                {str(each.replica): self._status(process, each) for each in process.wanted}
            )

    def _status(self, process: Process, wanted: Wanted) -> ReplicaStatus:
        is_cut_off = process.container in self.cut_off
        restores = self.now_ms < process.restores_until_ms
        return ReplicaStatus(
            wanted.replica,
            wanted.role,
            Phase.RESTORING if restores else self.phase_of(process, wanted),
            wanted.epoch,
            applied=self.applied,
            end=None if is_cut_off else self.applied,
            lag_ms=None if is_cut_off else self.lag_ms,
            is_cut_off=is_cut_off and wanted.role is Role.ACTIVE,
            start_steps={StartStep.JOINED.value: self.now_ms},
            input_committed=10,
            input_end=None if is_cut_off else 10,
            since_ms=self.now_ms,
            is_prepared=wanted.is_next and process.container not in self.never_prepares,
        )

    def run(self, milliseconds: int, step_ms: int = 100) -> None:
        """Let time pass, the leader turning at every step until it has nothing more to do."""
        end = self.now_ms + milliseconds
        while self.now_ms < end:
            self.now_ms += step_ms
            due = [each for each in self.later if each[0] <= self.now_ms]
            self.later = [each for each in self.later if each[0] > self.now_ms]
            for _, event in sorted(due, key=lambda each: each[0]):
                self.tell(event)
            self.grant()
            self.live()
            for _ in range(50):
                if not self.turn():
                    break
            else:
                raise AssertionError(f"the planner never comes to rest: {self.actions[-5:]}")

    def settle(self, milliseconds: int) -> None:
        """Let time pass until the job is whole and has been left alone for `CALM_MS`; fail after so long."""
        end, calm_ms = self.now_ms + milliseconds, 0
        while self.now_ms < end and calm_ms < CALM_MS:
            known = len(self.actions)
            self.run(100)
            is_calm = len(self.actions) == known and self.is_whole()
            is_calm = is_calm and not self.view.unsettled and not self.view.rebalancing
            calm_ms = calm_ms + 100 if is_calm else 0
        assert self.is_whole(), (self.view.jobs, self.versions)

    # ---- what tests ask ----

    def is_whole(self) -> bool:
        """Return whether every replica is in place, in sync, on processes that live."""
        for record in (each.record for each in self.versions.values()):
            if len(record.in_sync) != 1 + self.standbys:
                return False
            for copy in record.in_sync:
                process = self.by_container(record.placed.get(copy, ""))
                if process is None or not self.can_hear(process):
                    return False
        return len(self.versions) == self.tasks

    def record(self, partition: int) -> TaskRecord:
        return self.versions[TaskId("job", "main", partition)].record

    def did(self, kind: type[A]) -> list[A]:
        return [each for each in self.actions if isinstance(each, kind)]

    def news(self, kind: str) -> list[LogEntry]:
        return [each for each in self.entries if each.kind == kind]

    def kinds(self) -> list[str]:
        return [each.kind.value for each in self.entries]

    def active_process(self, partition: int) -> Process:
        """Return the process that the record of a task names as its active."""
        record = self.record(partition)
        assert record.active is not None
        return self.process(record.placed[record.active])


def deployed(**more: Any) -> FakeCluster:
    """Return a cluster whose job is whole and whose planner is quiet; its story so far is forgotten."""
    cluster = FakeCluster(**more)
    cluster.settle(10_000)
    assert plan(cluster.view) == ()
    cluster.actions.clear()
    cluster.entries.clear()
    return cluster
