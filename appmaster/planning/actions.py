"""What the leader can do: imperative, frozen, in the order in which they are to be carried out. Pure.

Durable ones come first in every plan: nobody is told of a decision before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from standby.model import ProcessorId, SlotId, TaskId, TaskRecord, Wanted


@dataclass(frozen=True, slots=True)
class Change:
    """One task record to write."""

    record: TaskRecord
    expected_version: int | None
    """The ZooKeeper version it replaces; None: it must not exist yet."""


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Write all of a decision's records in one transaction that checks the controller epoch."""

    decision: str
    processor: ProcessorId
    changes: tuple[Change, ...]
    kind: str
    """What the decision is: ``bind``, ``failover``, ``in-sync``, ``claimed``, ``undeploy``."""
    reason: str
    binding: tuple[str, SlotId] | None = None
    """The container that the decision binds, and to what."""
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Record how far a job is."""

    job: str
    state: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """Take a container's roles for lost. Nothing leaves the leader: the view alone changes."""

    container: str
    reason: str
    may_return: bool
    """YARN still lists it: it keeps its slot for the grace time and is used again if it comes back."""


@dataclass(frozen=True, slots=True)
class DoubtSelf:
    """Give everybody one more time-out: so many are silent that the fault is likely here."""

    silent: int
    of: int


@dataclass(frozen=True, slots=True)
class FenceTasks:
    """Fence the writers of an undeploying job's tasks."""

    job: str
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class SendAssign:
    """Send a container its whole wanted state."""

    container: str
    incarnation: int
    number: int
    replicas: tuple[Wanted, ...]
    job: str
    digest: str


@dataclass(frozen=True, slots=True)
class SendExit:
    """Tell a container to close everything and end."""

    container: str
    incarnation: int
    reason: str
    purge: bool = False


@dataclass(frozen=True, slots=True)
class ProbePort:
    """Find out whether a container's own port accepts."""

    container: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Take back a request that YARN has not granted (or whose container never came)."""

    number: int
    skein_id: str
    reason: str
    avoid: str = ""
    """Host that is not to be asked for a while; empty: none."""


@dataclass(frozen=True, slots=True)
class ReleaseContainer:
    """Give a container back to YARN, which ends its process."""

    container: str
    skein_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequestContainer:
    """Ask YARN for a container."""

    number: int
    slot: SlotId
    host: str | None
    reason: str


Action = (
    WriteRecords
    | WriteStatus
    | DeclareLost
    | DoubtSelf
    | FenceTasks
    | SendAssign
    | SendExit
    | ProbePort
    | CancelRequest
    | ReleaseContainer
    | RequestContainer
)
