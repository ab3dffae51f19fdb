"""What the leader knows: one immutable value, changed only by `apply`. Pure.

Times are milliseconds of the leader's monotonic clock; `ClusterView.wall` turns them into Unix time
for logs and for comparison with what containers report.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from appmaster.planning.model import JobModel
from standby.model import Leftover, Phase, ProcessorId, ReplicaId, ReplicaStatus, SlotId, TaskId, TaskRecord


@dataclass(frozen=True, slots=True)
class Policy:
    """What a job asks of the planner; times in milliseconds."""

    heartbeat_timeout_ms: int = 2_000
    suspect_grace_ms: int = 3_000
    restore_delay_ms: int = 3_000
    """For how long at most lost copies wait for a failover under way to end."""
    reconnect_grace_ms: int = 1_000
    """How long a container whose stream broke but whose port accepts may take to come back."""
    takeover_grace_ms: int = 5_000
    """How long a new leader waits for the containers of its predecessor to come to it."""
    launch_timeout_ms: int = 90_000
    """From YARN's grant to the container's first message."""
    request_timeout_ms: int = 5_000
    host_affinity: bool = True
    retry_count: int = 8
    retry_window_ms: int = 300_000
    retry_backoff_ms: int = 500
    """First wait after a failed launch or a refused request; doubled each time."""
    retry_backoff_max_ms: int = 15_000
    avoid_host_ms: int = 10_000
    """How long a host is not asked for after it fell silent, let a request expire or failed a launch."""
    lag_time_ms: int = 2_000
    in_sync_interval_ms: int = 500
    """In-sync sets of one processor are written at most this often."""
    resend_ms: int = 1_000
    """After which unanswered orders are sent again."""
    exit_timeout_ms: int = 5_000
    """How long a container may take to leave by itself before YARN is told to end it."""


class JobState(str, enum.Enum):
    """How far a job is; written to ``/jobs/<job>/status``."""

    DEPLOYING = "deploying"
    DEPLOYED = "deployed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    UNDEPLOYING = "undeploying"
    UNDEPLOYED = "undeployed"


@dataclass(frozen=True, slots=True)
class Job:
    """A job as recorded, with its model and policy."""

    name: str
    run: str
    model: JobModel
    policy: Policy
    is_wanted: bool = True
    """Requested state: deployed (True) or undeployed."""
    purge: bool = False
    """Undeployed for good: local state is to be removed too."""
    state: JobState = JobState.DEPLOYING
    reasons: tuple[str, ...] = ()
    was_deployed: bool = False
    is_fencing: bool = False
    """While undeploying: the writers of its tasks are being fenced."""
    is_fenced: bool = False
    """While undeploying: every task's writer has been fenced."""
    failure: str = ""
    """Why the job was given up; empty while it was not."""


class Presence(str, enum.Enum):
    """How sure the leader is that a container lives."""

    EXPECTED = "expected"
    """Listed by YARN when this leader took over, not heard of yet."""
    LIVE = "live"
    BROKEN = "broken"
    """Its stream broke; its port is being asked."""
    SUSPECT = "suspect"
    """Taken for lost, but YARN still lists it: it may come back within a grace."""
    ORPHAN = "orphan"
    """It came to us, but YARN gave it to nobody we know: it is to be told to exit (design 4.10)."""
    LEAVING = "leaving"
    """Told to exit, or being released."""


#: Presences whose container may hold roles.
HOLDING = frozenset({Presence.EXPECTED, Presence.LIVE, Presence.BROKEN})


@dataclass(frozen=True, slots=True)
class Container:
    """A container that has registered (or is expected to)."""

    id: str
    skein_id: str
    presence: Presence
    since_ms: int
    """When it entered its presence."""
    host: str = ""
    incarnation: int = 0
    pid: int = 0
    http_port: int = 0
    heard_ms: int = 0
    slot: SlotId | None = None
    """What it was requested for, until it is bound; then what it is bound to."""
    is_bound: bool = False
    is_warm: bool = False
    rss_bytes: int = 0
    statuses: Mapping[ReplicaId, ReplicaStatus] = field(default_factory=dict)
    leftovers: tuple[Leftover, ...] = ()
    obeyed: int = 0
    """Number of the last orders it reported."""
    sent: int = 0
    """Number of the last orders sent in this connection; 0: none yet."""
    sent_digest: str = ""
    """What those orders said."""
    sent_ms: int = 0
    is_probing: bool = False
    """Its port is being asked at this moment."""
    probed_ms: int = 0
    """When its port was asked last."""
    reason: str = ""
    """Why it is suspected, or leaving."""


class RequestState(str, enum.Enum):
    """How far a request for a container is."""

    ASKING = "asking"
    WAITING = "waiting"
    GRANTED = "granted"


@dataclass(frozen=True, slots=True)
class Request:
    """A container asked for, until it registers."""

    number: int
    """Our own number for it."""
    slot: SlotId
    host: str | None
    """The only host that will do, or None for any."""
    state: RequestState
    since_ms: int
    skein_id: str = ""


@dataclass(frozen=True, slots=True)
class Attempts:
    """What went wrong with a slot lately."""

    failures_ms: tuple[int, ...] = ()
    """When its container failed, within the retry window."""
    not_before_ms: int = 0
    """No request before then."""
    in_row: int = 0
    """Failures and refusals since it last held a container that worked."""
    last: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A task record together with its ZooKeeper version."""

    record: TaskRecord
    version: int


@dataclass(frozen=True, slots=True)
class Failover:
    """A failover under way: kept to tell its story with times; decides nothing. Leader's clock."""

    processor: ProcessorId
    lost: str
    """The container that was lost."""
    reason: str
    from_copy: int
    to_copy: int
    to: str
    detected_ms: int
    recorded_ms: int = 0
    ordered_ms: int = 0
    phases: Mapping[tuple[TaskId, Phase], int] = field(default_factory=dict)
    """Unix milliseconds at which each task entered a phase, by the container's clock."""


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened or was decided, for the event log and the metrics."""

    kind: str
    job: str | None = None
    task: TaskId | None = None
    copy: int | None = None
    container: str | None = None
    host: str | None = None
    task_epoch: int | None = None
    reason: str | None = None
    decision: str | None = None
    at_ms: int | None = None
    """Leader's clock; None: now."""
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The whole of what the leader knows."""

    epoch: int = 0
    """Controller epoch; 0: not leading."""
    now_ms: int = 0
    wall_offset_ms: int = 0
    jobs: Mapping[str, Job] = field(default_factory=dict)
    records: Mapping[TaskId, Recorded] = field(default_factory=dict)
    writing: Mapping[TaskId, str] = field(default_factory=dict)
    """Tasks whose record is being written, with the decision; nothing else touches them meanwhile."""
    containers: Mapping[str, Container] = field(default_factory=dict)
    requests: Mapping[int, Request] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Hosts that can be asked for by name."""
    avoided: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Host → until when it is not asked for, and why."""
    attempts: Mapping[SlotId, Attempts] = field(default_factory=dict)
    failovers: Mapping[ProcessorId, Failover] = field(default_factory=dict)
    lost_actives: Mapping[ProcessorId, tuple[str, str, int]] = field(default_factory=dict)
    """Processor → container, reason and time of the loss of its active, until it has a new one."""
    in_sync_ms: Mapping[ProcessorId, int] = field(default_factory=dict)
    """When the in-sync set of a processor was last written."""
    decisions: int = 0
    """How many decisions this leader took: gives ids."""
    sends: int = 0
    """How many orders this leader sent: gives numbers."""
    self_doubt_until_ms: int = 0
    """Silence is not judged before then: so many fell silent at once that the leader suspects itself."""
    news: tuple[News, ...] = ()
    """What is to be logged; emptied by the driver."""

    def wall(self, at_ms: int) -> int:
        """Return the leader's clock reading as Unix milliseconds."""
        return at_ms + self.wall_offset_ms

    def job_tasks(self, processor: ProcessorId) -> tuple[TaskId, ...]:
        """Return the tasks of a processor, in order."""
        return self.jobs[processor.job].model.processors[processor]

    def bound(self) -> dict[SlotId, Container]:
        """Return every slot that is bound to a container which may hold roles."""
        return {
            each.slot: each
            for each in self.containers.values()
            if each.is_bound and each.slot is not None and each.presence in HOLDING
        }

    def placements(self) -> dict[SlotId, str]:
        """Return the host of every slot that is bound, kept for a suspect, or asked for by name.

        This is what the same-host check looks at: a sibling that is about to be somewhere counts.
        """
        places = {each.slot: each.host for each in self.requests.values() if each.host is not None}
        for each in self.containers.values():
            if each.slot is not None and each.is_bound:
                places[each.slot] = each.host
        return places

    def settled(self, processor: ProcessorId) -> tuple[Recorded, ...] | None:
        """Return the processor's records, or None while one is missing or being written."""
        found: list[Recorded] = []
        for task in self.job_tasks(processor):
            recorded = self.records.get(task)
            if recorded is None or task in self.writing:
                return None
            found.append(recorded)
        return tuple(found)

    def active_slot(self, processor: ProcessorId) -> SlotId | None:
        """Return the slot whose replicas are recorded active; None before the first one."""
        recorded = self.records.get(self.job_tasks(processor)[0])
        if recorded is None or recorded.record.active is None:
            return None
        return SlotId(processor, recorded.record.active)

    def processors(self) -> Iterator[tuple[Job, ProcessorId]]:
        """Yield every processor of every job."""
        for job in self.jobs.values():
            for processor in job.model.processors:
                yield job, processor
