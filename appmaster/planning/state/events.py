"""What can happen to a cluster, as the leader learns of it: events, named in the past tense and frozen. Pure.

``at_ms`` is the time on the leader's clock at which the event arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appmaster.planning.state.actions import Action
from appmaster.planning.state.job import EffectKind, PlannerPolicy
from appmaster.planning.state.model import JobModel, JobSpec
from appmaster.planning.state.reasons import FailureReason, Loss, Reason, Setback, SetbackKind
from appmaster.planning.state.view import Command, Recorded
from locality.fit import PoolProcess
from locality.hosts import HostInfo
from standby.shared.exits import ProcessEnd
from standby.shared.model import Leftover, NodeOffer, ReplicaStatus


@dataclass(frozen=True, slots=True)
class Elected:
    """This candidate leads now, under ``epoch``."""

    epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. Comes last in each turn, so that deadlines are judged after all other news.

    ``stalled_ms``: by how much the leader's own stall since the last tick exceeded the tick's interval. No container
    is to blame for silence in that time (rule `who-is-lost`). ``wall_offset_ms``: Unix milliseconds less ``now_ms``;
    None: as before. It changes when the clock is set, and when the machine was suspended.
    """

    now_ms: int
    stalled_ms: int = 0
    wall_offset_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobLoaded:
    """A job was found, or its requests changed."""

    name: str
    run: str
    spec: JobSpec
    model: JobModel | None
    """The recorded model; None: there is none yet."""
    policy: PlannerPolicy
    revision: int = 1
    is_wanted: bool = True
    purge: bool = False
    was_deployed: bool = False
    """Whether it was deployed under an earlier leader."""
    failure: Reason[FailureReason] | None = None
    """Why it failed under an earlier leader; None: it did not."""
    traceback: str = ""
    """The traceback of its code that belongs to that failure; empty: none."""
    notes: tuple[str, ...] = ()
    quarantined: str = ""
    obstacle: str = ""
    """Why it cannot continue, whatever its containers do: one of its topics was made again."""
    changelog_risk: str = ""
    """Why its changelog is about to lose records; empty: it is not, as far as is known."""
    is_changelog_known: bool = False
    """Whether the brokers have said if it is."""
    was_at_risk: bool = False
    """Whether it was, as an earlier leader has found last."""
    is_fence_waived: bool = False
    """It is to end even if its tasks are not fenced, as an operator has decided."""
    is_over: bool = False
    """Whether it ended, or failed, under an earlier leader, and its writers have been fenced."""


@dataclass(frozen=True, slots=True)
class TopicNoted:
    """A topic of a job was recorded, or turned out to be a different one. For the event log."""

    job: str
    topic: str
    kind: str
    """Its use in the job: `appmaster.topics.ids.TopicKind`."""
    reason: str
    recorded_id: str
    """The recorded Kafka id of the topic; empty: none was recorded."""
    topic_id: str
    """The Kafka id of the existing topic."""
    is_changed: bool = False
    """It differs from the recorded topic; else none was recorded."""


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """A job that had ended was deleted, with its records."""

    name: str


@dataclass(frozen=True, slots=True)
class JobsUnreadable:
    """The jobs that are not led because their records cannot be read or used, as far as the last read shows."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class ModelWritten:
    """A job's model is durable."""

    job: str
    model: JobModel


@dataclass(frozen=True, slots=True)
class ModelRefused:
    """A job's model was not written; the present one follows as `JobLoaded`."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecordsLoaded:
    """Task records as ZooKeeper has them now."""

    records: tuple[Recorded, ...]


@dataclass(frozen=True, slots=True)
class RecordsWritten:
    """A decision's records are durable."""

    decision: str
    records: tuple[Recorded, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class RecordsRefused:
    """A decision's records were not written; the present ones follow as `RecordsLoaded`."""

    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostsKnown:
    """What is known about hosts, whether or not they can be requested; without cells, the hosts that can be."""

    hosts: tuple[HostInfo, ...]


@dataclass(frozen=True, slots=True)
class HostsDrained:
    """All drained hosts."""

    hosts: Mapping[str, str]
    """Host → why."""
    is_taken_over: bool
    """Whether this leader found them when it took over: a former one has logged them."""


@dataclass(frozen=True, slots=True)
class Commanded:
    """An operator asks for something to be done now; `Answer` has the outcome."""

    command: Command


@dataclass(frozen=True, slots=True)
class CommandWithdrawn:
    """The sender of a command no longer waits, and was informed that nothing was decided about it."""

    number: int


@dataclass(frozen=True, slots=True)
class ContainerExpected:
    """A new leader found this container in its cell's list or, while its cell's AM is silent, registered."""

    container: str
    skein_id: str
    at_ms: int
    cell: int = 1
    attempt: str = ""
    host: str = ""
    """As registered in ZooKeeper; empty: not registered, or not read by this leader."""
    incarnation: int = 0
    """Likewise; its port can be probed only if the incarnation is known."""
    offer: NodeOffer | None = None
    """What it offers as a process of a pool; None: it is not of one."""


@dataclass(frozen=True, slots=True)
class ContainerUnregistered:
    """A container's registration in ZooKeeper is gone: its session has ended."""

    container: str
    at_ms: int
    skein_id: str = ""
    """Its grant, if it is of a pool: nothing else reports the end of such a container. Empty: YARN reports it."""

    @property
    def loss(self) -> Reason[Loss]:
        """What it means for a container that this leader has not heard from."""
        return Reason(Loss.UNREGISTERED, "its session ended, and it did not connect to the new leader")

    @property
    def setback(self) -> Setback:
        """What it means for a request whose container has not connected yet."""
        return Setback(SetbackKind.AT_LAUNCH, detail=f"the session of {self.container} ended")


@dataclass(frozen=True, slots=True)
class CellFound:
    """A cell's Skein AM answers: it can be asked for containers, on these hosts by name."""

    cell: int
    attempt: str
    hosts: tuple[str, ...]
    at_ms: int
    am_host: str = ""
    """The host of the Skein AM; empty: not known."""
    full: frozenset[str] = frozenset()
    """Those of its hosts on which no process of a pool waits. Empty for a cell of YARN, which does not tell."""
    note: str = ""
    """Which processes of a pool cannot be claimed, and why; empty: there are none."""
    processes: tuple[PoolProcess, ...] = ()
    """Those of a pool, claimed or not. Empty for a cell of YARN."""


@dataclass(frozen=True, slots=True)
class CellAwaited:
    """A new leader continues although this cell's Skein AM has not answered; `CellFound` or `CellLost` follows."""

    cell: int
    attempt: str
    """Empty: its application has not started, which may take as long as YARN has no room for it."""
    at_ms: int
    am_host: str = ""
    """As in `CellFound`."""


@dataclass(frozen=True, slots=True)
class CellLost:
    """A cell's Skein AM is gone, or cannot be reached; ``attempt`` is the attempt that it belonged to."""

    cell: int
    attempt: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class RequestPlaced:
    """YARN has accepted the request; ``skein_id`` is the id of its future container."""

    number: int
    skein_id: str


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The request could not be made."""

    number: int
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ContainerGranted:
    """YARN granted the container of a request; its process is about to start."""

    skein_id: str
    at_ms: int
    offer: NodeOffer | None = None
    """What it offers as a process of a pool; None: it is not of one."""


@dataclass(frozen=True, slots=True)
class ContainerCompleted:
    """YARN reports that a container has ended."""

    skein_id: str
    message: str
    at_ms: int
    is_from_outside: bool = False
    """Whether a container that never registered was ended from outside, as its witness reports or as must be assumed
    because the witness was ended, too. False also if that is not known."""

    @property
    def loss(self) -> Reason[Loss]:
        """What it means for a container that served."""
        return Reason(Loss.YARN_COMPLETED, self.message)


@dataclass(frozen=True, slots=True)
class ContainerRegistered:
    """A container opened its stream and introduced itself."""

    container: str
    skein_id: str
    incarnation: int
    host: str
    pid: int
    http_port: int
    replicas: tuple[ReplicaStatus, ...]
    leftovers: tuple[Leftover, ...]
    at_ms: int
    revisions: Mapping[str, int] = field(default_factory=dict)
    cell: int = 1
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A container sent a heartbeat."""

    container: str
    incarnation: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """A container reported the status of its replicas."""

    container: str
    incarnation: int
    number: int
    replicas: tuple[ReplicaStatus, ...]
    warm: bool
    rss_bytes: int
    at_ms: int
    revisions: Mapping[str, int] = field(default_factory=dict)
    is_leaving: bool = False
    """Its process is asked to end, and waits until its actives are handed over."""


@dataclass(frozen=True, slots=True)
class ContainerStreamBroken:
    """A container's stream ended without a farewell."""

    container: str
    incarnation: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class PortProbed:
    """The port of a container whose stream broke, or that is silent, was probed: it accepts or refuses."""

    container: str
    incarnation: int
    accepts: bool
    at_ms: int
    end: ProcessEnd | None = None
    """How its process ended, as its witness reports; None: it is alive, or there is no witness left."""
    is_answered: bool = True
    """Whether the host answered at all; its kernel answers also for a stalled process."""
    is_running: bool = True
    """Whether the process answered, too; False also if that is not known."""
    is_still: bool = False
    """Whether the process stands still, as its witness reports."""
    waits_for_disk: bool = False
    """Whether the process waits for its disk, as its witness reports."""
    waited_ms: int = 0
    """How long before ``at_ms`` the host answered."""

    @property
    def loss(self) -> Reason[Loss]:
        """What it means that the port refuses: the container is dead."""
        if self.end is None:
            return Reason(Loss.PORT_REFUSED)
        return Reason(Loss.PROCESS_ENDED, str(self.end))


@dataclass(frozen=True, slots=True)
class TasksFenced:
    """The writer of every task of an undeploying job has been fenced."""

    number: int
    """Of the fence."""
    job: str


@dataclass(frozen=True, slots=True)
class FencingFailed:
    """The fencing of an undeploying job's tasks failed; it is tried again."""

    number: int
    """Of the fence."""
    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """An effect failed for a job, for a reason that concerns only that job; it is tried again."""

    job: str
    effect: EffectKind
    reason: str


@dataclass(frozen=True, slots=True)
class EffectDone:
    """An effect that had failed has succeeded."""

    job: str
    effect: EffectKind


@dataclass(frozen=True, slots=True)
class Started:
    """The driver has started an action. Without this event the next turn would plan it again."""

    action: Action
    at_ms: int


Event = (
    Elected
    | Ticked
    | JobLoaded
    | TopicNoted
    | JobForgotten
    | JobsUnreadable
    | ModelWritten
    | ModelRefused
    | RecordsLoaded
    | RecordsWritten
    | RecordsRefused
    | HostsKnown
    | HostsDrained
    | Commanded
    | CommandWithdrawn
    | CellFound
    | CellAwaited
    | CellLost
    | ContainerExpected
    | ContainerUnregistered
    | RequestPlaced
    | RequestRefused
    | ContainerGranted
    | ContainerCompleted
    | ContainerRegistered
    | HeartbeatReceived
    | ReportReceived
    | ContainerStreamBroken
    | PortProbed
    | TasksFenced
    | FencingFailed
    | EffectFailed
    | EffectDone
    | Started
)
