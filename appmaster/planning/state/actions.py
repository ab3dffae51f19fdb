"""What the leader can do: actions, named in the imperative and frozen. Pure.

Durable actions come first in every plan: no container is informed of a decision before it is written.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

from appmaster.planning.state.job import Lack
from appmaster.planning.state.model import JobModel, Slot
from appmaster.planning.state.reasons import (
    DecisionBasis,
    FailureReason,
    HandoverMotive,
    Loss,
    NoStandbyReason,
    Reason,
    Setback,
)
from appmaster.planning.state.view import LostActive, RequestKind
from locality.fit import ANY, Demand
from standby.shared.model import ProcessorId, SlotId, TaskId, TaskRecord, Wanted


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """One task record to write."""

    record: TaskRecord
    expected_version: int | None
    """The ZooKeeper version that it replaces; None: the record must not exist yet."""


class Outcome(str, enum.Enum):
    """What became of a request, or of its container."""

    EXPIRED = "expired"
    SURPLUS = "surplus"
    """Its slot is taken, or no longer wanted."""
    SAME_HOST = "same-host"
    """It was started on a host that holds another copy (Invariant 1)."""
    DRAINED = "drained"
    """It was started on a drained host."""
    LOST = "lost"
    """The container was lost, or cannot be used any more."""
    REPLACED = "replaced"
    """As planned: another container took over its work."""
    ENDED = "ended"
    """The job ended."""


class DecisionKind(str, enum.Enum):
    """The kind of a decision about task records."""

    BIND = "bind"
    """Replicas are placed in a container."""
    FAILOVER = "failover"
    """A lost active is replaced, in place or (policy ``restart``) on its standby's host."""
    DISPLACE = "displace"
    """Policy ``restart``: a standby is displaced, so that the active can start on its host."""
    RESTORE = "restore"
    """Policy ``restart``: the standby's host was not available; the standby is restored in place."""
    HANDOVER = "handover"
    """A planned change of active."""
    MOVE = "move"
    """A copy is being filled elsewhere."""
    MOVED = "moved"
    """That copy took its place."""
    STAY = "stay"
    """A move is given up."""
    DROP = "drop"
    """A copy is given up as planned: fewer are wanted, its host is drained, or its container is replaced."""
    RAISE = "raise"
    """Epochs rise above what containers have seen: ZooKeeper's state is older than theirs."""
    CLAIMED = "claimed"
    IN_SYNC = "in-sync"
    FAILURES = "failures"
    """Failures of user code were counted."""
    PARK = "park"
    """A processor is withdrawn after too many failures."""
    UNDEPLOY = "undeploy"


class FailoverPolicy(str, enum.Enum):
    """`job.hotstandby.failover`."""

    PROMOTE = "promote"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a decision in addition to its records, for the event log and the metrics.

    None: the fact does not apply. Each field is described for the event log's documentation.
    """

    rule: Annotated[str | None, "the rule of [failover.md](failover.md#the-rules) that decided"] = None
    host: Annotated[str | None, "where the copy goes"] = None
    from_copy: Annotated[int | None, "the copy that was active"] = None
    to_copy: Annotated[int | None, "the copy that becomes active"] = None
    in_sync: Annotated[
        bool | None,
        "whether the copy that becomes active, or is displaced, was in sync",
    ] = None
    in_place: Annotated[bool | None, "whether a lost active is started again on its own host"] = None
    without: Annotated[
        Reason[NoStandbyReason] | None, "why no standby in sync took the place of a lost active"
    ] = None
    policy: Annotated[FailoverPolicy | None, "`promote` or `restart`"] = None
    count: Annotated[
        int | None,
        "failures of the job's code at `offset`; absent once they are overcome",
    ] = None
    offset: Annotated[int | None, "of the input, the sum of all inputs"] = None
    traceback: Annotated[str | None, "where the job's code raised, if it did"] = None


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Write all of a decision's records in one transaction that checks the controller epoch."""

    decision: str
    processor: ProcessorId
    changes: tuple[RecordWrite, ...]
    kind: DecisionKind
    reason: Reason[DecisionBasis] | Reason[HandoverMotive]
    container: str = ""
    """The container that the decision places replicas in; empty: none."""
    copy: int | None = None
    """The copy that the decision is about; None: all of them."""
    facts: Facts = Facts()


@dataclass(frozen=True, slots=True)
class WriteModel:
    """Write a job's next model over the present version of its node."""

    job: str
    model: JobModel
    reason: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write a job's status."""

    job: str
    state: str
    reasons: tuple[str, ...]
    lacks: tuple[Lack, ...] = ()
    """As `Job.lacks`."""
    failure: Reason[FailureReason] | None = None
    """Why the job failed; None: it has not."""
    traceback: str = ""
    """Where the job's code raised what caused the reasons; empty: it did not."""
    is_over: bool = False
    """The job failed, and every task of it is fenced: no leader has anything left to do for it."""
    is_unfenceable: bool = False
    """Its tasks cannot be fenced at present; this is one of the reasons."""
    is_at_risk: bool = False
    """As `Job.is_risk_logged`."""


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """Consider a container's roles lost. Changes only the view."""

    container: str
    reason: Reason[Loss]
    may_return: bool
    """YARN still lists it: its slot is kept for the grace period, and it is used again if it comes back."""


@dataclass(frozen=True, slots=True)
class DoubtSelf:
    """Give every container one more time-out: so many are silent that the fault is likely here."""

    silent: int
    of: int


@dataclass(frozen=True, slots=True)
class MissActive:
    """Note that an active was lost while there was no leader. Changes only the view."""

    processor: ProcessorId
    missed: LostActive


@dataclass(frozen=True, slots=True)
class PrepareHandover:
    """Have a standby prepare to become active as planned. Changes only the view; the assignment follows from it."""

    processor: ProcessorId
    to_copy: int
    container: str
    reason: Reason[HandoverMotive]


@dataclass(frozen=True, slots=True)
class ForgetHandover:
    """Give up a hand-over that is being prepared. Changes only the view."""

    processor: ProcessorId
    reason: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Mark processors as settled: there is nothing to do or to wait for. Changes only the view."""

    processors: tuple[ProcessorId, ...]


@dataclass(frozen=True, slots=True)
class RestRebalancing:
    """Leave a job's actives where they are for now. Changes only the view."""

    job: str
    until_ms: int | None = None
    """When their spread is checked again; None: after the next event that affects the job."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a command with its outcome."""

    number: int
    said: str
    is_refused: bool = False
    clears: tuple[SlotId, ...] = ()
    """Slots whose failures are forgotten at the same time."""
    rebalances: str = ""
    """The job whose actives are to be spread evenly from now on; empty: none."""


@dataclass(frozen=True, slots=True)
class FenceTasks:
    """Fence the writers of an undeploying job's tasks."""

    number: int
    """Of this fence; its outcome has it, too."""
    job: str
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class TakeSpare:
    """Have a spare container serve a slot as if it had been requested for it. Changes only the view."""

    container: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class WaiveFence:
    """Accept an operator's word that no process writes for an undeploying job any more."""

    job: str


@dataclass(frozen=True, slots=True)
class SendAssignment:
    """Send a container its whole assignment."""

    container: str
    incarnation: int
    number: int
    replicas: tuple[Wanted, ...]
    jobs: tuple[tuple[str, int], ...]
    """Each job that the container serves, and the revision that it runs or is to run."""
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
    """Cancel a request that YARN has not granted, or whose container never registered."""

    number: int
    skein_id: str
    outcome: Outcome
    reason: str | Setback
    """A setback of its slot if it has expired."""
    avoid: str = ""
    """Host that is not requested for a while; empty: none."""
    job: str = ""
    """The job it belongs to; empty: unknown."""


@dataclass(frozen=True, slots=True)
class ReleaseContainer:
    """Give a container back to YARN, which ends its process."""

    container: str
    skein_id: str
    outcome: Outcome
    reason: str
    job: str = ""
    """The job it served; empty: unknown."""


@dataclass(frozen=True, slots=True)
class RequestContainer:
    """Ask YARN for a container."""

    number: int
    slot: Slot
    host: str | None
    kind: RequestKind
    reason: str
    cell: int = 1
    """The cell that is asked."""
    demand: Demand = ANY
    """What is asked of a process of a pool; cells of YARN start all containers alike."""


Action = (
    WriteRecords
    | WriteModel
    | MissActive
    | PrepareHandover
    | ForgetHandover
    | Settle
    | RestRebalancing
    | Answer
    | WriteStatus
    | DeclareLost
    | DoubtSelf
    | FenceTasks
    | WaiveFence
    | TakeSpare
    | SendAssignment
    | SendExit
    | ProbePort
    | CancelRequest
    | ReleaseContainer
    | RequestContainer
)
