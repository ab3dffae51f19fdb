"""What a container's control loop knows: one frozen value. Pure but for the messages' own types."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from standby.control.events import Leader
from standby.shared.model import InputFailures, Leftover, Phase, ReplicaId, ReplicaStatus, Role
from standby.shared.wire import PROTOCOL, Hello, JobDefinition


@dataclass(frozen=True, slots=True)
class Identity:
    """What does not change while the process lives; see the fields of `standby.shared.wire.Hello`."""

    container: str
    skein_id: str
    cell: int
    host: str
    port: int
    http_port: int
    pid: int


@dataclass(frozen=True, slots=True)
class Policy:
    """The loop's times, milliseconds."""

    orphan_timeout_ms: int
    """Without a leader for so long, the container ends (rule `orphan-exit`)."""
    report_interval_ms: int = 2_000
    """A report is at most so old even when nothing changes."""
    connect_timeout_ms: int = 3_000
    """A stream whose connection does not stand after so long is given up and tried again."""
    register_retry_ms: int = 500
    look_up_retry_ms: int = 500
    backoff_least_ms: int = 50
    backoff_most_ms: int = 2_000
    close_deadline_ms: int = 10_000
    """For the kernel to close everything at the end."""
    close_grace_ms: int = 1_000
    """How much later than that the process ends in any case."""
    stall_ms: int = 1_000
    """Turns further apart than this mean that the process itself stood still: deadlines move by that much."""


#: More tracebacks than this are not in one message: each may have
#: `standby.shared.errortext.TRACEBACK_CHARACTERS`.
MOST_TRACEBACKS: Final = 4


class Registration(enum.Enum):
    """How the container's znode stands in the present session."""

    ABSENT = "absent"
    """It is to be made as soon as there is a session."""
    ASKED = "asked"
    """Its making was asked for; the answer will come."""
    FAILED = "failed"
    """It could not be made and is tried again."""
    DONE = "done"


#: The part of a replica's status that must be told at once.
Reported = tuple[ReplicaId, Role, Phase, int, int, int | None, bool | None, str, bool, InputFailures | None]

#: What a report tells that must be told at once; compared with the last one told on the same stream.
Signature = tuple[bool, Mapping[str, int], tuple[Reported, ...]]


@dataclass(frozen=True, slots=True)
class NoStream:
    """There is no stream to a leader."""

    attempt: int = 0
    """How many streams in a row came to nothing."""
    retry_at_ms: int | None = None
    """When to try again; None: the next turn sets it. Before the first failure: at once."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream to a leader, or one that is about to be."""

    number: int
    leader: Leader
    attempt: int
    opened_at_ms: int
    is_connected: bool = False
    applied: int = 0
    """Number of the last assignment obeyed on this stream: an older one cannot rightly come after it."""
    told: Signature | None = None
    told_number: int = 0
    told_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Closing:
    """The container is about to end."""

    code: int
    reason: str
    until_ms: int | None = None
    """When the process ends in any case; None: the next turn sets it."""
    in_time: bool | None = None
    """Whether the kernel closed everything; None: it is still at it."""
    purge: bool = False
    """The jobs are deleted: their state goes from this host's disks."""


@dataclass(frozen=True, slots=True)
class ControlState:
    """All that the next decision depends on."""

    identity: Identity
    policy: Policy
    now_ms: int | None = None
    """Time of the last turn; None before the first."""
    streams: int = 0
    """How many streams were ever opened: numbers the next."""

    incarnation: int | None = None
    """The last known one; it stays after a lost session until the next registration, because the leader
    goes on to serve it on a live stream (rule `who-is-lost`)."""
    is_session_up: bool = False
    registration: Registration = Registration.ABSENT
    register_at_ms: int | None = None
    """When to try again after `Registration.FAILED`; None: the next turn sets it."""

    leader: Leader | None = None
    """As last read; while it cannot be read, what was known stays."""
    is_leader_unread: bool = False
    """The last reading failed, and left no watch."""
    look_up_at_ms: int | None = None
    """When to read again after such a failure; None: the next turn sets it."""
    link: NoStream | Stream = field(default_factory=NoStream)
    leaderless_since_ms: int | None = None
    """Since when there was no leader on a standing connection; None: there is one."""
    epoch: int = 0
    """The highest controller epoch obeyed."""
    refused: int = 0
    """How many orders were refused."""

    leftovers: tuple[Leftover, ...] | None = None
    """None: not looked for yet."""
    jobs: Mapping[str, JobDefinition] = field(default_factory=dict)
    """Of the last assignment obeyed."""
    lag_bounds_ms: Mapping[str, int] = field(default_factory=dict)
    """Job → the lag below which its standbys are in sync."""
    statuses: Mapping[ReplicaId, ReplicaStatus] = field(default_factory=dict)
    is_warm: bool = False
    revisions: Mapping[str, int] = field(default_factory=dict)
    """Job → revision of it that this process runs, and the only one that it can."""
    closing: Closing | None = None
    has_quit: bool = False

    @property
    def is_led(self) -> bool:
        """Return whether a leader is known and its stream stands.

        A leader whose znode went away without a successor may be a stopped process on an open socket: it
        does not count.
        """
        return self.leader is not None and isinstance(self.link, Stream) and self.link.is_connected


def hello(state: ControlState, incarnation: int) -> Hello:
    """Return the container's introduction: who it is and everything it holds."""
    identity = state.identity
    held = {each.task for each in state.statuses if state.statuses[each].phase is not Phase.CLOSED}
    return Hello(
        protocol=PROTOCOL,
        container=identity.container,
        skein_id=identity.skein_id,
        cell=identity.cell,
        incarnation=incarnation,
        host=identity.host,
        port=identity.port,
        http_port=identity.http_port,
        pid=identity.pid,
        controller_epoch=state.epoch,
        replicas=statuses_told(state),
        leftovers=tuple(each for each in state.leftovers or () if each.task not in held),
        revisions=state.revisions,
    )


def statuses_told(state: ControlState) -> tuple[ReplicaStatus, ...]:
    """Return the present statuses as a message tells them: with a few tracebacks, those of failed replicas first.

    Tasks run the same code; when many fail, what one says of it is what the others would.
    """
    statuses = [state.statuses[each] for each in sorted(state.statuses)]
    failing = [each for each in statuses if each.traceback]
    told = sorted(failing, key=lambda each: each.phase is not Phase.FAILED)[:MOST_TRACEBACKS]
    untold = {each.replica for each in failing} - {each.replica for each in told}
    return tuple(replace(each, traceback="") if each.replica in untold else each for each in statuses)


def signature(state: ControlState) -> Signature:
    """Return what of the present statuses must be told as soon as it changes.

    Offsets and lags change all the time and wait for the next regular report; whether a lag is within
    its job's bound does not.
    """
    reported = tuple(
        (
            each.replica,
            each.role,
            each.phase,
            each.epoch,
            each.since_ms,
            each.first_commit_ms,
            is_in_sync(each, state.lag_bounds_ms.get(each.replica.task.job)),
            each.detail,
            each.is_prepared,
            each.failures,
        )
        for each in sorted(state.statuses.values(), key=lambda each: each.replica)
    )
    return state.is_warm, state.revisions, reported


def is_in_sync(status: ReplicaStatus, bound_ms: int | None) -> bool | None:
    """Return whether the replica is within its job's lag; None while that cannot be known.

    An unknown lag is not a bad one: while the changelog's end is unknown, membership is frozen (rule `in-sync-rank`).
    """
    if bound_ms is None or status.lag_ms is None:
        return None
    return status.lag_ms < bound_ms
