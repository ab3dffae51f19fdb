"""What can happen to a container, as its control loop learns of it: past tense, frozen.

None of them carries a time. The loop ends each of its turns with one :class:`Turned`, which does: so every
deadline is judged after the inbox is drained, and a process that was stopped for a minute hears all its news
before it draws conclusions from the clock (rule `who-is-lost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from standby.shared.model import Leftover, ReplicaId, ReplicaStatus
from standby.shared.wire import Assignment, Exit


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads the cluster, as ``/controller`` says."""

    candidate: str
    host: str
    port: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.candidate} at {self.host}:{self.port}, epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class SessionConnected:
    """ZooKeeper answers, in the old session or a new one."""


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection to ZooKeeper broke. The session may well live on: nothing is lost yet."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """ZooKeeper expired the session: the container's znode is gone."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The container's znode exists in the present session."""

    incarnation: int
    """Creation transaction id of the znode."""


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """The znode could not be made now."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaderMoved:
    """Something happened to the leader's znode; who leads is to be read again."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader's znode was read; it may name the same leader as before."""

    leader: Leader | None
    """None: there is none."""


@dataclass(frozen=True, slots=True)
class LeaderUnknown:
    """The leader's znode could not be read now: what was known stays."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeftoversFound:
    """The host's disks were looked through."""

    leftovers: tuple[Leftover, ...]


@dataclass(frozen=True, slots=True)
class StreamConnected:
    """The stream's connection to the leader stands; the leader has not said anything yet."""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The stream ended, or never came about."""

    stream: int
    reason: str


@dataclass(frozen=True, slots=True)
class AssignmentReceived:
    """The leader says what the container is to hold."""

    stream: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ExitReceived:
    """The leader says that the container is to end."""

    stream: int
    exit: Exit


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """A replica changed its phase; the turn's end looks at which."""


@dataclass(frozen=True, slots=True)
class ReplicasClosed:
    """The kernel has closed everything, or its deadline passed."""

    in_time: bool


@dataclass(frozen=True, slots=True)
class Terminated:
    """A signal asked the process to end."""

    signal: str


@dataclass(frozen=True, slots=True)
class Turned:
    """The inbox is drained; this is how things stand."""

    now_ms: int
    """Monotonic."""
    jitter: float
    """At least 0 and below 1, drawn anew for each turn."""
    statuses: Mapping[ReplicaId, ReplicaStatus]
    is_warm: bool
    broken: str | None
    revisions: Mapping[str, int] = field(default_factory=dict)
    """Job → revision of it that this process runs."""


Event = (
    SessionConnected
    | SessionSuspended
    | SessionLost
    | Registered
    | RegistrationFailed
    | LeaderMoved
    | LeaderChanged
    | LeaderUnknown
    | LeftoversFound
    | StreamConnected
    | StreamBroken
    | AssignmentReceived
    | ExitReceived
    | ReplicasChanged
    | ReplicasClosed
    | Terminated
    | Turned
)
