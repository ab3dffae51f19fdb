"""The events of a container's control loop: past tense, frozen.

Only :class:`InboxDrained`, which ends each turn of the loop, carries a time. So every deadline is evaluated after the
inbox is drained: a process that was suspended for a minute handles all pending events before it draws conclusions
from the clock (rule `who-is-lost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from standby.shared.model import Leftover, ReplicaId, ReplicaStatus
from standby.shared.records import ControllerRecord
from standby.shared.wire import Assignment, Exit


@dataclass(frozen=True, slots=True)
class SessionConnected:
    """ZooKeeper is connected, in the old session or a new one."""


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection to ZooKeeper broke. The session may still be alive: nothing is lost yet."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """ZooKeeper expired the session: the container's znode is gone."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The container's znode exists in the current session."""

    incarnation: int
    """Creation transaction id of the znode."""


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """The znode could not be created."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaderMoved:
    """The leader's znode changed; the leader must be read again."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader's znode was read; it may name the same leader as before."""

    leader: ControllerRecord | None
    """None: there is no leader."""


@dataclass(frozen=True, slots=True)
class LeaderUnknown:
    """The leader's znode could not be read: the last known leader is kept."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeftoversFound:
    """The host's disks were scanned for left-over state."""

    leftovers: tuple[Leftover, ...]


@dataclass(frozen=True, slots=True)
class StreamConnected:
    """The stream's connection to the leader is established; the leader has not sent anything yet."""

    stream: int


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The stream ended, or could not be established."""

    stream: int
    reason: str


@dataclass(frozen=True, slots=True)
class AssignmentReceived:
    """The leader sent what the container is to hold."""

    stream: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ExitReceived:
    """The leader ordered the container to end."""

    stream: int
    exit: Exit


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """A replica changed its phase; the end of the turn finds out which."""


@dataclass(frozen=True, slots=True)
class ReplicasClosed:
    """The kernel has closed everything, or its deadline passed."""

    in_time: bool


@dataclass(frozen=True, slots=True)
class Terminated:
    """The process received a termination signal."""

    signal: str


@dataclass(frozen=True, slots=True)
class Released:
    """The leader has given this process back to its pool."""


@dataclass(frozen=True, slots=True)
class InboxDrained:
    """The inbox is drained; this is the current situation."""

    now_ms: int
    """Monotonic time."""
    jitter: float
    """A new random number in [0, 1) for each turn."""
    statuses: Mapping[ReplicaId, ReplicaStatus]
    is_warm: bool
    broken: str | None
    revisions: Mapping[str, int] = field(default_factory=dict)
    """Job → revision that this process runs."""


ControlEvent = (
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
    | Released
    | InboxDrained
)
