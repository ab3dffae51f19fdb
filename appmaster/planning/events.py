"""What can happen to a cluster, as the leader learns of it: past tense, frozen. Pure.

``at_ms`` is the leader's clock when the event came in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appmaster.planning.actions import Action
from appmaster.planning.model import JobModel, JobSpec
from appmaster.planning.view import Command, Policy, Recorded
from locality.hosts import HostInfo
from standby.model import Leftover, ReplicaStatus


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
    nobody else is to blame for that silence (design 4.9).
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
    failure: str = ""
    """Why a leader before this one gave it up; empty when none did."""
    notes: tuple[str, ...] = ()


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
    """The hosts that can be asked for by name, and what is known of them."""

    hosts: tuple[HostInfo, ...]


@dataclass(frozen=True, slots=True)
class HostsExcluded:
    """The hosts that are to be empty, all of them."""

    hosts: Mapping[str, str]
    """Host → why."""


@dataclass(frozen=True, slots=True)
class Commanded:
    """Somebody asks for something to be done now; `Answer` tells what came of it."""

    command: Command


@dataclass(frozen=True, slots=True)
class ContainerExpected:
    """A new leader found this container alive in YARN's list."""

    container: str
    skein_id: str
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
    """The port of a container whose stream broke was asked: it accepts, or nobody listens."""

    container: str
    incarnation: int
    accepts: bool
    at_ms: int


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
class Started:
    """The driver has begun an action; or the next turn would ask for it again."""

    action: Action
    at_ms: int


Event = (
    Elected
    | Ticked
    | JobLoaded
    | ModelWritten
    | ModelRefused
    | RecordsLoaded
    | RecordsWritten
    | RecordsRefused
    | HostsKnown
    | HostsExcluded
    | Commanded
    | ContainerExpected
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
    | Started
)
