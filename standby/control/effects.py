"""What the control loop owes the world: imperative, frozen. None of them may block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from standby.control.events import Leader
from standby.shared.model import ReplicaStatus, Wanted
from standby.shared.wire import Hello, JobDefinition


@dataclass(frozen=True, slots=True)
class Register:
    """Make the container's znode; answered by `Registered` or `RegistrationFailed`."""


@dataclass(frozen=True, slots=True)
class LookUpLeader:
    """Read who leads and leave a watch; answered by `LeaderChanged` or `LeaderUnknown`."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Connect to the leader and introduce the container; the stream's events carry its number."""

    stream: int
    leader: Leader
    hello: Hello


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Drop the stream; nothing is heard of it any more."""

    stream: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Hand the assignment to the kernel."""

    assignment: tuple[Wanted, ...]
    jobs: Mapping[str, JobDefinition]


@dataclass(frozen=True, slots=True)
class SendReport:
    """Tell the leader how the replicas are; the loop adds the memory in use."""

    stream: int
    number: int
    replicas: tuple[ReplicaStatus, ...]
    is_warm: bool
    revisions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CloseReplicas:
    """Have the kernel close everything; answered by `ReplicasClosed`."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Quit:
    """End the process with this code; nothing comes after."""

    code: int
    reason: str
    purge: bool = False
    """Remove the state of this container's jobs before; everything is closed."""


@dataclass(frozen=True, slots=True)
class Note:
    """Say something in the log."""

    text: str
    is_warning: bool = False


Effect = (
    Register | LookUpLeader | OpenStream | CloseStream | Assign | SendReport | CloseReplicas | Quit | Note
)
