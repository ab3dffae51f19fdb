"""What the leader knows: one immutable value, changed only by `apply`. Pure.

Times are milliseconds of the leader's monotonic clock; `ClusterView.wall` converts them to Unix time, for logs and
for comparison with containers' reports.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.job import Job
from appmaster.planning.state.model import Slot, SpareSlotId, job_of
from appmaster.planning.state.reasons import HandoverMotive, Loss, Reason
from locality.fit import PoolProcess
from locality.hosts import HostInfo
from standby.shared.exits import ProcessEnd
from standby.shared.model import (
    InputFailures,
    Leftover,
    NodeOffer,
    Phase,
    ProcessorId,
    ReplicaId,
    ReplicaStatus,
    SlotId,
    TaskId,
    TaskRecord,
)


class Presence(str, enum.Enum):
    """What the leader knows about whether a container is alive."""

    EXPECTED = "expected"
    """Listed by YARN, or registered in ZooKeeper, when this leader took over; not heard from yet."""
    LIVE = "live"
    BROKEN = "broken"
    """Its stream broke; its port is being probed."""
    SUSPECT = "suspect"
    """Considered lost, but YARN still lists it: it may come back within a grace period."""
    ORPHAN = "orphan"
    """It connected, but this leader knows of no grant for it: it is to be told to exit (rule `orphan-exit`)."""
    LEAVING = "leaving"
    """Told to exit, or being released."""


#: Presences whose container may hold roles.
HOLDING = frozenset({Presence.EXPECTED, Presence.LIVE, Presence.BROKEN})

#: Presences of containers without a stream, which may be dead: their ports are probed.
PROBED = frozenset({Presence.EXPECTED, Presence.BROKEN})


class TroubleKind(enum.Enum):
    """What is wrong with an active that continues to run."""

    FAILING = "failing"
    """The job's code fails on its next input."""
    BEHIND = "behind"
    """It does not keep up with its input."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of an active that continues to run."""

    replica: ReplicaId
    kind: TroubleKind
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """Since when a replica has been in its present condition, according to its container's reports.

    Kept for a replica that is to be active but does not work: it makes no progress, or has no state yet. Also for a
    standby that is in step with a changelog whose end it knows: it could take over.
    """

    can_take_over: bool
    epoch: int
    reached: tuple[int | None, ...]
    """What changes with progress: the positions up to which its state and its input are processed. Empty while it
    restores its state: that is no progress compared with a copy that has it."""
    since_ms: int
    has_lost_state: bool = False
    """Whether it restores a state that it had under this epoch: its database was damaged, for example."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container that has registered, or is expected to."""

    id: str
    skein_id: str
    presence: Presence
    since_ms: int
    """When it entered its presence."""
    cell: int = 1
    attempt: str = ""
    """The attempt of its cell that started it (`Cell.attempt`); it ends with that attempt."""
    host: str = ""
    incarnation: int = 0
    pid: int = 0
    http_port: int = 0
    heard_ms: int = 0
    """When its last message arrived."""
    answered_ms: int = 0
    """When its host last answered a probe, which is made when the container is silent; 0: never."""
    responded_ms: int = 0
    """When its process last answered a probe."""
    still_since_ms: int = 0
    """Since when its witness has reported at each probe that its process stands still; 0: not at the last one."""
    still_ms: int = 0
    """For how long it certainly has: from that report to the start of the last probe."""
    at_disk_ms: int = 0
    """When its witness last reported that its process waits for its disk; 0: not since it was heard."""
    slot: Slot | None = None
    """The slot it was requested for; None: it was requested by an earlier leader."""
    binding: str = ""
    """The decision being written that gives it tasks; empty: none."""
    has_ended: bool = False
    """Some replica of it has FAILED or was FENCED, as of the last report."""
    revisions: Mapping[str, int] = field(default_factory=dict)
    """Job → the revision of it that this process runs."""
    is_warm: bool = False
    is_leaving: bool = False
    """Its process is asked to end (SIGTERM), and waits until its actives are handed over."""
    rss_bytes: int = 0
    statuses: Mapping[ReplicaId, ReplicaStatus] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()
    """Problems of its actives that continue to run, as of the last report."""
    standing: Mapping[ReplicaId, ReplicaProgress] = field(default_factory=dict)
    """Replicas that make no progress, or that could take over."""
    leftovers: tuple[Leftover, ...] = ()
    """State that it found on its host's disks when its process started, and does not hold itself."""
    applied: int = 0
    """Number of the last assignment it reported."""
    sent: int = 0
    """Number of the last assignment sent in this connection; 0: none yet."""
    sent_digest: str = ""
    """Digest of that assignment."""
    sent_ms: int = 0
    is_probing: bool = False
    """Its port is being probed at this moment."""
    probed_ms: int = 0
    """When its port was last probed."""
    looks: int = 0
    """How many probes of its port have completed since it was last heard from."""
    unanswered: int = 0
    """How many of the latest of these in a row its host did not answer."""
    loss: Reason[Loss] | None = None
    """Why it is suspected."""
    farewell: str = ""
    """Why it was told to exit, for people."""
    end: ProcessEnd | None = None
    """How its process ended; None: it is alive, or there is no witness left."""
    offer: NodeOffer | None = None
    """What it offers as a process of a pool; None: it is not of one, or that is not known."""

    @property
    def is_spare(self) -> bool:
        """Whether it is a spare container: it holds no copy, and none is placed there before a slot takes it."""
        return isinstance(self.slot, SpareSlotId)

    @property
    def most_tasks(self) -> int:
        """How many copies of tasks it takes; 0: any number."""
        return self.offer.tasks if self.offer is not None else 0

    @property
    def reason(self) -> str:
        """Why it is suspected, or leaving; empty when it is neither."""
        return self.farewell or str(self.loss or "")

    @property
    def silent_since_ms(self) -> int:
        """From when on it was not there, if its port refuses; leader's clock."""
        return self.heard_ms if self.presence is Presence.LIVE else self.since_ms

    @property
    def is_own_failure(self) -> bool:
        """Whether its own code made it unusable, and not something that YARN, a host or a person did to it."""
        return self.has_ended or (self.end is not None and not self.end.is_from_outside)

    @property
    def has_said_hello(self) -> bool:
        """Whether this leader has its inventory, which comes with its pid; the incarnation may be from ZooKeeper."""
        return self.pid > 0


class RequestKind(str, enum.Enum):
    """Why a request names its host."""

    PREFERRED = "preferred"
    """The host where the state lies, or where the copy was last."""
    NAMED = "named"
    """The best of the other hosts that are allowed."""
    ANY = "any"
    RESERVATION = "reservation"
    """Policy ``restart``: the host of a displaced standby."""


class RequestState(str, enum.Enum):
    """How far a request for a container has come."""

    ASKING = "asking"
    WAITING = "waiting"
    GRANTED = "granted"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """A requested container, until it registers."""

    number: int
    """Our own number for it."""
    slot: Slot
    host: str | None
    """The only host that is acceptable; None: any."""
    kind: RequestKind
    state: RequestState
    since_ms: int
    skein_id: str = ""
    cell: int = 1
    """The cell that was asked."""
    offer: NodeOffer | None = None
    """Of the process of a pool that was claimed for it; None: none was."""


class CellState(str, enum.Enum):
    """What the leader knows of a cell's Skein AM."""

    UP = "up"
    """It answers."""
    AWAITED = "awaited"
    """It has not answered this new leader yet, or has not started, and nothing indicates that it is gone: nothing is
    requested from it, and its containers stay as they are."""
    LOST = "lost"
    """It is gone, or silent for too long: the cell is lost (rule `lost-cell`)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as a source of containers: its Skein AM."""

    number: int
    attempt: str
    """YARN's id of the present attempt of its application; its containers' ids begin with it. Empty: there was none."""
    hosts: tuple[str, ...]
    """Hosts that can be requested from it by name."""
    state: CellState
    since_ms: int
    reason: str = ""
    am_host: str = ""
    """The host of its Skein AM, whose loss ends the cell; empty: not known, or gone."""
    full: frozenset[str] = frozenset()
    """Those of its hosts on which nothing can be requested now (a pool knows)."""
    note: str = ""
    """What of it cannot be used, and why; empty: all can, as far as is known."""
    processes: tuple[PoolProcess, ...] = ()
    """Those of a pool, claimed or not."""

    @property
    def is_up(self) -> bool:
        """Whether it can be asked for containers."""
        return self.state is CellState.UP


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task record together with its ZooKeeper version."""

    record: TaskRecord
    version: int


def places(record: TaskRecord) -> dict[str, int]:
    """Return container → copy number, for each container in which a record has a copy or to which it moves one."""
    return {
        **{container: copy for copy, container in record.placed.items()},
        **{container: copy for copy, container in record.moving.items()},
    }


@dataclass(frozen=True, slots=True)
class LostActive:
    """An active that is missed, until its tasks have a new one."""

    container: str
    loss: Loss
    at_ms: int
    cell: int = 0
    """The cell of that container; 0: not known."""


@dataclass(frozen=True, slots=True)
class EndingContainer:
    """A container that was given back and may still run."""

    incarnation: int
    since_ms: int
    until_ms: int
    """From then on it counts as dead, whatever its port says: its host may be unreachable."""
    probed_ms: int = 0


@dataclass(frozen=True, slots=True)
class Failover:
    """A failover or hand-over under way, until its tasks are processed again. Leader's clock.

    Requests for lost copies wait for it (`appmaster.planning.requests.requests`). Its times are logged when it is over.
    """

    processor: ProcessorId
    lost: str
    """The container that was active before."""
    reason: Loss | HandoverMotive
    to_copy: int
    to: str
    detected_ms: int
    tasks: tuple[TaskId, ...] = ()
    is_planned: bool = False
    recorded_ms: int = 0
    ordered_ms: int = 0
    phases: Mapping[tuple[TaskId, Phase], int] = field(default_factory=dict)
    """Unix milliseconds at which each task entered a phase, by the container's clock."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A planned hand-over that is being prepared: the standby gets ready while the active continues."""

    to_copy: int
    to: str
    """The container that becomes active."""
    since_ms: int
    reason: Reason[HandoverMotive]


#: Most hand-overs per processor that spread a job's actives; after them the actives stay until a container is lost.
MOST_MOVES: Final = 2


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """A job that an event has affected, so that its actives may not be spread as evenly as its copies permit."""

    whole_ms: int | None = None
    """Since when all of its processors are settled; None: one is unsettled."""
    not_before_ms: int = 0
    """The spread is not checked before then."""
    moves: int = 0
    """Hand-overs that spread its actives since they were even or the job lost a container; limited."""
    in_vain: int = 0
    """How many hand-overs were given up since the last one that was done."""
    is_asked: bool = False
    """Whether `standfast rebalance` asked for it: with either value of the job's key, without pauses, and including
    actives that an operator chose."""

    def is_spent(self, processors: int) -> bool:
        """Return whether a job with so many processors has used up its hand-overs without an even spread."""
        return self.moves >= MOST_MOVES * processors


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's request for something to be done now."""

    number: int
    operation: Operation
    processor: ProcessorId | None = None
    container: str = ""
    copy: int | None = None
    job: str = ""


class Operation(str, enum.Enum):
    """The operations of commands; see `appmaster.planning.jobs.commands`."""

    HAND_OVER = "hand-over"
    """Hand the active role of a processor, or of everything in a container, over to a standby."""
    UNPARK = "unpark"
    """Let a parked processor run again."""
    REBALANCE = "rebalance"
    """Spread the actives of a job as evenly over hosts as its copies permit."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything that the leader knows."""

    epoch: int = 0
    """Controller epoch; 0: not leading."""
    now_ms: int = 0
    wall_offset_ms: int = 0
    jobs: Mapping[str, Job] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    """Jobs that are not led because their records cannot be read or used; their containers go on as they are."""
    records: Mapping[TaskId, Recorded] = field(default_factory=dict)
    writing: Mapping[TaskId, str] = field(default_factory=dict)
    """Tasks whose record is being written, with the decision; no other decision changes them meanwhile."""
    assigned: Mapping[str, Mapping[TaskId, int]] = field(default_factory=dict)
    """Index: container → the tasks that the records place there or move there, with their copy numbers."""
    containers: Mapping[str, Container] = field(default_factory=dict)
    bindings: Mapping[str, str] = field(default_factory=dict)
    """Decision being written → the container that it gives tasks to."""
    requests: Mapping[int, ContainerRequest] = field(default_factory=dict)
    described: Mapping[str, HostInfo] = field(default_factory=dict)
    """What is known about hosts, whether or not they can be requested; known independently of the cells."""
    hosts: Mapping[str, HostInfo] = field(default_factory=dict)
    """Hosts that can be requested by name."""
    cells: Mapping[int, Cell] = field(default_factory=dict)
    """Every cell ever seen; empty: there is only one, whose AM the planner does not watch."""
    offers: tuple[HostInfo, ...] = ()
    """Every host, once for each cell from which it can be requested at present."""
    drained: Mapping[str, str] = field(default_factory=dict)
    """Drained hosts (`standfast drain`), and why."""
    avoided: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Host → until when it is not requested, and why."""
    attempts: Mapping[Slot, Attempts] = field(default_factory=dict)
    failovers: Mapping[ProcessorId, Failover] = field(default_factory=dict)
    handovers: Mapping[ProcessorId, Handover] = field(default_factory=dict)
    rebalancing: Mapping[str, Rebalancing] = field(default_factory=dict)
    """Jobs whose spread is to be checked once they are whole. No other job is checked, so a quiet turn is cheap."""
    lost_actives: Mapping[ProcessorId, LostActive] = field(default_factory=dict)
    logged_lost: frozenset[str] = frozenset()
    """Containers whose loss this leader has logged, so that it logs each loss once."""
    ending: Mapping[str, EndingContainer] = field(default_factory=dict)
    """Containers that were given back with tasks in them, until they are known to be dead: YARN confirms at once, but
    the process ends a heartbeat or two later."""
    crashes: Mapping[TaskId, InputFailures] = field(default_factory=dict)
    """Ends of processes at a task's committed offset, to be recorded with the task's next decision."""
    ahead: Mapping[TaskId, int] = field(default_factory=dict)
    """Task → the epoch that a container has seen, if higher than its record's: ZooKeeper's state was lost, or was
    restored from an earlier day (rule `epoch-check`)."""
    no_displacing: Mapping[ProcessorId, int] = field(default_factory=dict)
    """Policy ``restart``: a standby was displaced in vain; no other is displaced before this time."""
    in_sync_ms: Mapping[ProcessorId, int] = field(default_factory=dict)
    """When the in-sync set of a processor was last written."""
    unsettled: frozenset[ProcessorId] = frozenset()
    """Processors with something to do or to wait for; the passes skip all others, so a quiet turn is cheap."""
    arrived_ms: Mapping[str, int] = field(default_factory=dict)
    """Job → when one of its containers last arrived or ended."""
    commands: tuple[Command, ...] = ()
    decisions: int = 0
    """Number of decisions of this leader; gives them ids."""
    sends: int = 0
    """Number of assignments sent by this leader; numbers them."""
    fences: int = 0
    """Number of fences begun by this leader, of all jobs; numbers them."""
    self_doubt_until_ms: int = 0
    """Silence is not judged before this time: so many fell silent at once that the leader suspects itself."""
    listening_until_ms: int = 0
    """Nor before this time: the leader stalled, and has yet to read what was sent to it meanwhile."""

    def wall(self, at_ms: int) -> int:
        """Return the leader's clock reading as Unix milliseconds."""
        return at_ms + self.wall_offset_ms

    def job_tasks(self, processor: ProcessorId) -> tuple[TaskId, ...]:
        """Return the tasks of a processor, in order; empty if the model has no such processor."""
        job = self.jobs.get(processor.job)
        found = job.model.processors.get(processor) if job is not None else None
        return found.tasks if found is not None else ()

    def processor_of(self, task: TaskId) -> ProcessorId | None:
        """Return the processor that holds a task; None if the model has no such task."""
        job = self.jobs.get(task.job)
        return job.model.processor_of.get(task) if job is not None else None

    def processors_in(self, container: str) -> frozenset[ProcessorId]:
        """Return the processors that have a task assigned to a container."""
        found = (self.processor_of(task) for task in self.assigned.get(container, ()))
        return frozenset(each for each in found if each is not None)

    def actives_in(self, container: str) -> list[TaskId]:
        """Return the tasks whose active is in a container, according to the records."""
        return [
            task
            for task, copy in self.assigned.get(container, {}).items()
            if self.records[task].record.active == copy
            and self.records[task].record.placed.get(copy) == container
        ]

    def holder(self, container: str | None) -> Container | None:
        """Return the container of that id if it may hold roles; else None."""
        found = self.containers.get(container) if container is not None else None
        return found if found is not None and found.presence in HOLDING else None

    def is_held(self, slot: Slot) -> bool:
        """Return whether every task of a slot has its copy in a container that may hold roles."""
        if not isinstance(slot, SlotId):
            return False
        records = [self.records.get(each) for each in self.job_tasks(slot.processor)]
        return all(
            each is not None and self.holder(each.record.placed.get(slot.copy)) is not None
            for each in records
        )

    def request_of(self, skein_id: str) -> ContainerRequest | None:
        """Return the request that has this id; None: it was withdrawn, or its container has registered."""
        return next((each for each in self.requests.values() if skein_id and each.skein_id == skein_id), None)

    def requests_of(self, job: str, *, are_spare: bool = False) -> list[ContainerRequest]:
        """Return the requests for slots of a job, or those for its spare containers."""
        return [
            each
            for each in self.requests.values()
            if job_of(each.slot) == job and isinstance(each.slot, SpareSlotId) is are_spare
        ]

    def spares_of(self, job: str) -> list[Container]:
        """Return the spare containers of a job that are alive, as far as is known."""
        return [
            each
            for each in self.containers.values()
            if isinstance(each.slot, SpareSlotId) and each.slot.job == job and each.presence in HOLDING
        ]

    def container_of(self, skein_id: str) -> Container | None:
        """Return the container that was granted under this id; None: it has not registered, or is gone."""
        return next((each for each in self.containers.values() if each.skein_id == skein_id), None)

    def is_orphaned(self, container: Container) -> bool:
        """Return whether a container will end with its cell, whose AM is gone (rule `lost-cell`)."""
        cell = self.cells.get(container.cell)
        if cell is None:
            return False
        return cell.state is CellState.LOST or cell.attempt != container.attempt

    def other_am(self, host: str, cell: int) -> int:
        """Return another cell whose Skein AM is on a host, so that the host's loss ends both cells; 0: none.

        A host that has the AMs of both cells does not count: its loss ends everything in both anyway.
        """
        found = [number for number, each in self.cells.items() if each.am_host == host]
        return min(found) if found and cell not in found else 0

    def falls_with(self, container: Container, host: str) -> bool:
        """Return whether a host has the Skein AM of a container's cell, so that its loss ends the container."""
        cell = self.cells.get(container.cell)
        return cell is not None and cell.am_host == host

    def is_of_cell_that_answers(self, container: Container) -> bool:
        """Return whether a container's cell is known to be alive; always true if the planner watches no cells."""
        cell = self.cells.get(container.cell)
        return cell is None or (cell.is_up and cell.attempt == container.attempt)

    def must_leave(self, container: Container) -> str:
        """Return why nothing may stay in a container or be placed there; empty: it may."""
        if container.host in self.drained:
            return f"{container.host} is drained"
        if self.is_orphaned(container):
            return f"cell {container.cell} is lost"
        if container.is_leaving:
            return f"{container.id} is being stopped"
        return ""

    @property
    def processes(self) -> tuple[PoolProcess, ...]:
        """The processes of the cluster's pool; empty on YARN."""
        return next((each.processes for each in self.cells.values() if each.processes), ())

    def is_free(self, container: Container) -> bool:
        """Return whether a container is live and nothing is placed, or about to be placed, there."""
        return (
            container.presence is Presence.LIVE
            and not container.binding
            and not self.assigned.get(container.id)
        )

    def home(self, container: str) -> SlotId | None:
        """Return the slot whose home a container is: the one to which most of its tasks belong."""
        counts = Counter(
            SlotId(processor, copy)
            for task, copy in self.assigned.get(container, {}).items()
            if (processor := self.processor_of(task)) is not None
        )
        return min(counts, key=lambda slot: (-counts[slot], slot), default=None)

    def job_of(self, container: Container) -> Job | None:
        """Return the job that a container serves or was requested for; None if neither is known."""
        for task in self.assigned.get(container.id, ()):
            return self.jobs.get(task.job)
        if container.slot is not None:
            return self.jobs.get(job_of(container.slot))
        # Requested by an earlier leader: its process has loaded the code of one job, and cannot load another's.
        return next((self.jobs[name] for name in container.revisions if name in self.jobs), None)

    def processors(self) -> Iterator[tuple[Job, ProcessorId]]:
        """Yield every processor of every job."""
        for job in self.jobs.values():
            for processor in job.model.processors:
                yield job, processor
