"""What can happen to a cluster, as the leader learns of it: past tense, frozen. Pure.

``at_ms`` is the leader's clock when the event came in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appmaster.planning.state.actions import Action
from appmaster.planning.state.job import Effect, Policy
from appmaster.planning.state.model import JobModel, JobSpec
from appmaster.planning.state.reasons import Failure, Loss, Reason
from appmaster.planning.state.view import Command, Recorded
from locality.hosts import HostInfo
from standby.shared.exits import ProcessEnd
from standby.shared.model import Leftover, ReplicaStatus


@dataclass(frozen=True, slots=True)
class Elected:
    """This candidate leads now, under ``epoch``."""

    epoch: int
    now_ms: int
    wall_offset_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; comes last in each turn, so deadlines are judged after all other news.

    ``stalled_ms`` is for how long the leader itself stood still since the last tick beyond its due:
    nobody else is to blame for that silence (rule `who-is-lost`).
    """

    now_ms: int
    stalled_ms: int = 0


@dataclass(frozen=True, slots=True)
class JobLoaded:
    """A job was found, or changed what it asks for."""

    name: str
    run: str
    spec: JobSpec
    model: JobModel | None
    """As recorded; None: it has none yet."""
    policy: Policy
    revision: int = 1
    is_wanted: bool = True
    purge: bool = False
    was_deployed: bool = False
    """Whether a leader before this one had it deployed already."""
    failure: Reason[Failure] | None = None
    """Why a leader before this one gave it up; None when none did."""
    traceback: str = ""
    """Where its code had raised what it was given up for; empty when it had not."""
    notes: tuple[str, ...] = ()
    quarantined: str = ""
    obstacle: str = ""
    """Why it cannot go on, whatever its containers do: a topic of it was made again."""
    changelog_risk: str = ""
    """Why its changelog is about to lose records; empty: it is not."""
    is_fence_waived: bool = False
    """It is to end although its tasks may not be fenced: an operator has said so."""


@dataclass(frozen=True, slots=True)
class TopicNoted:
    """A topic of a job was recorded, or is found to be another one: for the event log."""

    job: str
    topic: str
    kind: str
    """What it is to the job: `appmaster.topics.ids.Kind`."""
    reason: str
    recorded_id: str
    """Kafka's id of it as recorded; empty: none was."""
    topic_id: str
    """Kafka's id of the one that is there."""
    is_changed: bool = False
    """It is another topic than the recorded one; else none was recorded."""


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """A job that had ended was deleted, with its records."""

    name: str


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
    """What is known of hosts, whether or not they can be asked for; without cells, the hosts that can be."""

    hosts: tuple[HostInfo, ...]


@dataclass(frozen=True, slots=True)
class HostsDrained:
    """The drained hosts, all of them."""

    hosts: Mapping[str, str]
    """Host → why."""


@dataclass(frozen=True, slots=True)
class Commanded:
    """Somebody asks for something to be done now; `Answer` tells what came of it."""

    command: Command


@dataclass(frozen=True, slots=True)
class CommandWithdrawn:
    """Who asked for something waits no longer, and has been told that nobody decided about it."""

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
    """As it registered in ZooKeeper; empty: it has not, or this leader has not read it."""
    incarnation: int = 0
    """Likewise: with it, its port can be asked."""


@dataclass(frozen=True, slots=True)
class ContainerUnregistered:
    """A container's registration in ZooKeeper is gone: its session has ended."""

    container: str
    at_ms: int

    @property
    def loss(self) -> Reason[Loss]:
        """What it means for a container that this leader has not heard."""
        return Reason(Loss.UNREGISTERED, "its session ended, and it did not find the new leader")


@dataclass(frozen=True, slots=True)
class CellFound:
    """A cell's Skein AM answers: it can be asked for containers, on these hosts by name."""

    cell: int
    attempt: str
    hosts: tuple[str, ...]
    at_ms: int
    master: str = ""
    """The host of the Skein AM; empty: not known."""


@dataclass(frozen=True, slots=True)
class CellAwaited:
    """A new leader leads on although this cell's Skein AM has not answered; `CellFound` or `CellLost` follows."""

    cell: int
    attempt: str
    at_ms: int
    master: str = ""
    """As of `CellFound`."""


@dataclass(frozen=True, slots=True)
class CellLost:
    """A cell's Skein AM is gone, or cannot be reached; ``attempt`` is the one that it was of."""

    cell: int
    attempt: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class RequestPlaced:
    """YARN has the request; ``skein_id`` is the id of the container to come."""

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


@dataclass(frozen=True, slots=True)
class ContainerCompleted:
    """YARN says that a container has ended."""

    skein_id: str
    message: str
    at_ms: int
    is_from_outside: bool = False
    """Of one that never registered: whether its witness says, or must be taken to say by its own end, that somebody
    from outside ended it. False also where that is not known."""

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
    """A container lives."""

    container: str
    incarnation: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """A container says how its replicas are."""

    container: str
    incarnation: int
    number: int
    replicas: tuple[ReplicaStatus, ...]
    warm: bool
    rss_bytes: int
    at_ms: int
    revisions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """A container's stream ended without a word."""

    container: str
    incarnation: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class PortProbed:
    """The port of a container that broke off, or is silent, was asked: it accepts, or nobody listens."""

    container: str
    incarnation: int
    accepts: bool
    at_ms: int
    end: ProcessEnd | None = None
    """How its process ended, as the witness of that says; None: it lives, or nobody is left to say."""
    is_answered: bool = True
    """Whether the host answered at all: its kernel does, also for a process that stands still."""
    is_running: bool = True
    """Whether the process answered, too; False also where that is not known."""

    @property
    def loss(self) -> Reason[Loss]:
        """What it means that nobody listens there: it is dead."""
        if self.end is None:
            return Reason(Loss.PORT_REFUSED)
        return Reason(Loss.PROCESS_ENDED, str(self.end))


@dataclass(frozen=True, slots=True)
class TasksFenced:
    """Every task's writer of an undeploying job has been fenced."""

    job: str


@dataclass(frozen=True, slots=True)
class FencingFailed:
    """The fencing of an undeploying job's tasks failed and is to be tried again."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """Something could not be done for a job, for a reason that concerns it alone; it is tried again."""

    job: str
    effect: Effect
    reason: str


@dataclass(frozen=True, slots=True)
class EffectDone:
    """It has been done, after it had failed."""

    job: str
    effect: Effect


@dataclass(frozen=True, slots=True)
class Started:
    """The driver has begun an action; or the next turn would ask for it again."""

    action: Action
    at_ms: int


Event = (
    Elected
    | Ticked
    | JobLoaded
    | TopicNoted
    | JobForgotten
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
    | StreamBroken
    | PortProbed
    | TasksFenced
    | FencingFailed
    | EffectFailed
    | EffectDone
    | Started
)
