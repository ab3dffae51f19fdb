"""The effects of the control loop: imperative, frozen. None of them may block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from standby.shared.model import Wanted
from standby.shared.records import ControllerRecord
from standby.shared.wire import Hello, JobDefinition, Report


@dataclass(frozen=True, slots=True)
class Register:
    """Create the container's znode; answered by `Registered` or `RegistrationFailed`."""


@dataclass(frozen=True, slots=True)
class LookUpLeader:
    """Read the leader and set a watch; answered by `LeaderChanged` or `LeaderUnknown`."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Connect to the leader and introduce the container; the stream's events carry its number."""

    stream: int
    leader: ControllerRecord
    hello: Hello


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Close the stream; its later events are ignored."""

    stream: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Hand the assignment to the kernel."""

    assignment: tuple[Wanted, ...]
    jobs: Mapping[str, JobDefinition]


@dataclass(frozen=True, slots=True)
class SendReport:
    """Report the replicas' statuses to the leader; the loop adds the memory in use."""

    stream: int
    report: Report


@dataclass(frozen=True, slots=True)
class CloseReplicas:
    """Make the kernel close everything; answered by `ReplicasClosed`."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Quit:
    """End the process with this exit code; the last effect."""

    code: int
    reason: str
    purge: bool = False
    """Remove the state of this container's jobs first; everything is closed by then."""


@dataclass(frozen=True, slots=True)
class WriteLog:
    """Write a log line."""

    text: str
    is_warning: bool = False


ControlEffect = (
    Register | LookUpLeader | OpenStream | CloseStream | Assign | SendReport | CloseReplicas | Quit | WriteLog
)
