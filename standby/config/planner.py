"""The keys for the planner's decisions, all in `appmaster.planning.state.job.PlannerPolicy`."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import MOST_MS, MOST_RETENTION_MS, key


@dataclass(frozen=True, kw_only=True)
class PlannerKeys:
    """Keys that the planner uses in the same form as in the job file."""

    spare_count: int = key(
        "job.container.spare.count",
        "Spare containers: they hold no copy, and their pipeline is kept warm. A lost container is replaced by one of "
        "them at once; then another one is requested. Each takes the memory of a container.",
        0,
        minimum=0,
        maximum=1_000,
        applies="live",
    )
    locality_expiry_ms: int = key(
        "job.locality.expiry.ms",
        "How long it is remembered that a host held a task.",
        86_400_000,
        minimum=0,
        maximum=MOST_RETENTION_MS,
        applies="live",
        unit="ms",
    )
    spread: tuple[str, ...] = key(
        "job.locality.spread",
        "What the copies of a task should not share if possible, most important first: `cell`, `rack`, or the name of "
        "a host attribute.",
        ("cell", "rack"),
        applies="live",
    )
    rebalance: str = key(
        "job.locality.rebalance",
        "When actives are spread evenly over hosts again, by planned hand-overs, one at a time: `auto`, by itself once "
        "the job is whole; `manual`, only by `standfast rebalance`.",
        "auto",
        choices=("auto", "manual"),
        applies="live",
    )
    host_affinity: bool = key(
        "job.host-affinity.enabled",
        "Whether a lost replica is first requested on its last host, which has its state.",
        True,
        applies="live",
    )
    samehost_timeout_ms: int = key(
        "job.hotstandby.samehost.timeout.ms",
        "Policy `restart`: how long the lost active's own host is requested before a standby is displaced.",
        5_000,
        minimum=0,
        maximum=MOST_MS,
        applies="live",
        unit="ms",
    )
    heartbeat_timeout_ms: int = key(
        "job.hotstandby.heartbeat.timeout.ms",
        "Silence after which a container counts as lost although its host answers and nothing shows that its process "
        "stands still: it may be short of processor time. Twice that if its witness reports that it waits for its "
        "disk. At least twice `job.hotstandby.heartbeat.interval.ms`.",
        2_000,
        minimum=200,
        maximum=3_600_000,
        unit="ms",
    )
    host_timeout_ms: int = key(
        "job.hotstandby.host.timeout.ms",
        "Silence after which a container counts as lost if its host does not answer either, or if its process, as its "
        "witness sees it, has been standing still for three quarters of this time. At least twice "
        "`job.hotstandby.heartbeat.interval.ms`.",
        1_000,
        minimum=200,
        maximum=3_600_000,
        unit="ms",
    )
    lag_time_ms: int = key(
        "job.hotstandby.lag.time.ms",
        "A standby that has been behind the changelog's end for longer is not in sync. Keep it above the heartbeat "
        "time-out: the open transaction of a silent host hides the end, and this must not make the standby count as "
        "late.",
        10_000,
        minimum=100,
        maximum=MOST_MS,
        unit="ms",
    )
    progress_timeout_ms: int = key(
        "task.progress.timeout.ms",
        "An active with pending input and no commit for this long has failed. A promotion may make no progress, and "
        "an active may be cut off from Kafka, for this long, and for at least 15 s above job.transaction.timeout.ms, "
        "while another copy could take over; then that copy does.",
        60_000,
        minimum=1_000,
        maximum=MOST_MS,
        unit="ms",
    )
    error_attempts: int = key(
        "task.on.error.attempts",
        "Failures at one committed offset, counted across replicas, before `task.on.error` decides.",
        3,
        minimum=1,
        maximum=1_000,
    )
    restore_paused: tuple[str, ...] = key(
        "job.restore.paused",
        "Hosts on which copies that are not in sync do not replay; `all`: everywhere. A copy that is to become active "
        "still replays what it lacks.",
        (),
        example="[host1, host2]",
        applies="live",
    )
    request_timeout_ms: int = key(
        "cluster-manager.container.request.timeout.ms",
        "How long a request for a preferred host waits before any host is accepted.",
        5_000,
        minimum=100,
        maximum=MOST_MS,
        applies="live",
        unit="ms",
    )
    retry_count: int = key(
        "cluster-manager.container.retry.count",
        "Failures of one processor copy within the window after which the job fails; -1: no limit. A process that is "
        "ended from outside (by YARN, the host's kernel or a person) does not count as a failure.",
        8,
        minimum=-1,
        maximum=10_000,
        applies="live",
    )
    retry_window_ms: int = key(
        "cluster-manager.container.retry.window.ms",
        "The window in which failures are counted.",
        300_000,
        minimum=1_000,
        maximum=MOST_MS,
        applies="live",
        unit="ms",
    )
