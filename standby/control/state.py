"""The state of a container's control loop: one frozen value. Pure, except for the message types."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from standby.shared.model import InputFailures, Leftover, Phase, ReplicaId, ReplicaStatus, Role
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.wire import PROTOCOL, Hello, JobDefinition


@dataclass(frozen=True, slots=True)
class ControlPolicy:
    """The loop's time-outs and intervals, in milliseconds."""

    orphan_timeout_ms: int
    """The container ends after this time without a leader (rule `orphan-exit`)."""
    report_interval_ms: int = 2_000
    """Maximum interval between reports, even when nothing changes."""
    connect_timeout_ms: int = 3_000
    """A stream that is not connected after this time is closed, and retried."""
    register_retry_ms: int = 500
    look_up_retry_ms: int = 500
    backoff_least_ms: int = 50
    backoff_most_ms: int = 2_000
    leave_timeout_ms: int = 0
    """How long a process that is asked to end waits until the leader has handed its actives over; 0: it does not wait,
    because YARN kills it soon after."""
    close_deadline_ms: int = 10_000
    """Time for the kernel to close everything at the end."""
    close_grace_ms: int = 1_000
    """How long after that the process ends in any case."""
    stall_ms: int = 1_000
    """A longer gap between turns means that the process was suspended: deadlines move by that gap."""


#: Maximum number of tracebacks in a message: each may have `standby.shared.errortext.TRACEBACK_CHARACTERS`.
MOST_TRACEBACKS: Final = 4


class RegistrationState(enum.Enum):
    """The status of the container's znode in the current session."""

    ABSENT = "absent"
    """It must be created as soon as there is a session."""
    ASKED = "asked"
    """Its creation was requested; the answer is pending."""
    FAILED = "failed"
    """It could not be created, and is retried."""
    DONE = "done"


#: The part of a replica's status whose changes are reported at once.
Reported = tuple[
    ReplicaId, Role, Phase, int, int, int | None, bool | None, str, bool, InputFailures | None, int
]

#: The part of a report whose changes are sent at once; compared with the last one sent on the same stream.
Signature = tuple[bool, Mapping[str, int], bool, tuple[Reported, ...]]


@dataclass(frozen=True, slots=True)
class NoStream:
    """There is no stream to a leader."""

    attempt: int = 0
    """Number of failed streams in a row."""
    retry_at_ms: int | None = None
    """When to retry; None: the next turn sets it. Before the first failure: at once."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream to a leader, connected or being connected."""

    number: int
    leader: ControllerRecord
    attempt: int
    opened_at_ms: int
    is_connected: bool = False
    applied: int = 0
    """Number of the last assignment obeyed on this stream; older ones are refused."""
    sent: Signature | None = None
    sent_number: int = 0
    sent_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Leaving:
    """The process is asked to end, and waits for the leader's order to exit, which comes once its actives are gone."""

    reason: str
    until_ms: int | None = None
    """When it ends in any case; None: the next turn sets it."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The container is closing."""

    code: int
    reason: str
    purge: bool
    """Whether the jobs are deleted, so that their state is removed from this host's disks."""
    until_ms: int | None = None
    """When the process ends in any case; None: the next turn sets it."""
    in_time: bool | None = None
    """Whether the kernel closed everything in time; None: it is still closing."""


@dataclass(frozen=True, slots=True)
class ControlState:
    """Everything that the next decision depends on."""

    identity: ContainerRecord
    policy: ControlPolicy
    now_ms: int | None = None
    """Time of the last turn; None before the first."""
    streams: int = 0
    """Number of streams opened so far; numbers the next one."""

    incarnation: int | None = None
    """The last known incarnation. It is kept after a lost session until the next registration, because the leader
    continues to serve it on a live stream (rule `who-is-lost`)."""
    is_session_up: bool = False
    registration: RegistrationState = RegistrationState.ABSENT
    register_at_ms: int | None = None
    """When to try again after `RegistrationState.FAILED`; None: the next turn sets it."""

    leader: ControllerRecord | None = None
    """As last read; kept while it cannot be read."""
    is_leader_unread: bool = False
    """Whether the last read failed, and so set no watch."""
    look_up_at_ms: int | None = None
    """When to read again after a failure; None: the next turn sets it."""
    link: NoStream | Stream = field(default_factory=NoStream)
    leaderless_since_ms: int | None = None
    """Since when there is no leader with a live connection; None: there is one."""
    epoch: int = 0
    """The highest controller epoch obeyed."""
    refused: int = 0
    """Number of refused orders."""

    leftovers: tuple[Leftover, ...] | None = None
    """None: not scanned yet."""
    jobs: Mapping[str, JobDefinition] = field(default_factory=dict)
    """The jobs of the last assignment obeyed."""
    lag_bounds_ms: Mapping[str, int] = field(default_factory=dict)
    """Job → the lag below which its standbys are in sync."""
    statuses: Mapping[ReplicaId, ReplicaStatus] = field(default_factory=dict)
    is_warm: bool = False
    revisions: Mapping[str, int] = field(default_factory=dict)
    """Job → the only revision that this process can run."""
    leaving: Leaving | None = None
    closing: Closing | None = None
    has_quit: bool = False

    @property
    def is_led(self) -> bool:
        """Whether a leader is known and its stream is connected.

        A leader whose znode disappeared without a successor may be a suspended process with an open socket, so it
        does not count.
        """
        return self.leader is not None and isinstance(self.link, Stream) and self.link.is_connected


def hello(state: ControlState, incarnation: int) -> Hello:
    """Return the container's introduction: its identity and everything it holds."""
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
        replicas=statuses_to_send(state),
        leftovers=tuple(each for each in state.leftovers or () if each.task not in held),
        revisions=state.revisions,
    )


def statuses_to_send(state: ControlState) -> tuple[ReplicaStatus, ...]:
    """Return the current statuses for a message, with a few tracebacks only, preferably of failed replicas.

    Tasks run the same code, so when many fail, their tracebacks are mostly the same.
    """
    statuses = [state.statuses[each] for each in sorted(state.statuses)]
    failing = [each for each in statuses if each.traceback]
    kept = sorted(failing, key=lambda each: each.phase is not Phase.FAILED)[:MOST_TRACEBACKS]
    shortened = {each.replica for each in failing} - {each.replica for each in kept}
    return tuple(replace(each, traceback="") if each.replica in shortened else each for each in statuses)


def signature(state: ControlState) -> Signature:
    """Return the part of the current statuses whose changes are reported at once.

    Offsets and lags change all the time and wait for the next regular report. Whether a lag is within its job's
    bound is reported at once.
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
            # Input that is left out is never to go unsaid, and the process may end before the next regular report.
            each.skipped,
        )
        for each in sorted(state.statuses.values(), key=lambda each: each.replica)
    )
    return state.is_warm, state.revisions, state.leaving is not None, reported


def is_in_sync(status: ReplicaStatus, bound_ms: int | None) -> bool | None:
    """Return whether the replica is within its job's lag bound; None while that is not known.

    An unknown lag does not count as too large: while the changelog's end is unknown, membership is frozen (rule
    `in-sync-rank`).
    """
    if bound_ms is None or status.lag_ms is None:
        return None
    return status.lag_ms < bound_ms
