"""The keys that the planner decides by: `appmaster.planning.state.job.Policy` has all of them."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import key


@dataclass(frozen=True, kw_only=True)
class PlannerKeys:
    """Keys that need no other form for the planner than the one that is written."""

    locality_expiry_ms: int = key(
        "job.locality.expiry.ms",
        "For how long it is remembered that a host held a task.",
        86_400_000,
        minimum=0,
        applies="live",
        unit="ms",
    )
    spread: tuple[str, ...] = key(
        "job.locality.spread",
        "What the copies of a task should not share where that can be had, most important first: `cell`, `rack`, "
        "or the name of a host attribute.",
        ("cell", "rack"),
        applies="live",
    )
    host_affinity: bool = key(
        "job.host-affinity.enabled",
        "Whether a lost replica is asked for on its last host first, where its state lies.",
        True,
        applies="live",
    )
    samehost_timeout_ms: int = key(
        "job.hotstandby.samehost.timeout.ms",
        "Policy `restart`: how long the lost active's own host is asked for before a standby is displaced.",
        5_000,
        minimum=0,
        applies="live",
        unit="ms",
    )
    heartbeat_timeout_ms: int = key(
        "job.hotstandby.heartbeat.timeout.ms",
        "Silence after which a container is taken for lost although its host answers: its process stands still.",
        2_000,
        minimum=200,
        unit="ms",
    )
    host_timeout_ms: int = key(
        "job.hotstandby.host.timeout.ms",
        "Silence after which a container is taken for lost whose host does not answer either.",
        1_000,
        minimum=200,
        unit="ms",
    )
    lag_time_ms: int = key(
        "job.hotstandby.lag.time.ms",
        "A standby behind the changelog's end for longer is not in sync. Keep it above the heartbeat time-out: the "
        "transaction that a silent host leaves open hides the end, and its standby is not late by that.",
        10_000,
        minimum=100,
        unit="ms",
    )
    progress_timeout_ms: int = key(
        "task.progress.timeout.ms",
        "An active with waiting input and no commit for so long is a failure. For so long, and at least 15 s above "
        "job.transaction.timeout.ms, a promotion may stand still, or an active be cut off from Kafka, while another "
        "copy could take over; then that one does.",
        60_000,
        minimum=1_000,
        unit="ms",
    )
    error_attempts: int = key(
        "task.on.error.attempts",
        "Failures at one committed offset, counted across replicas, before `task.on.error` decides.",
        3,
        minimum=1,
    )
    restore_paused: tuple[str, ...] = key(
        "job.restore.paused",
        "Hosts on which copies that are not in sync replay nothing for now; `all`: everywhere. One that is to become "
        "active replays what it lacks all the same.",
        (),
        example="[host1, host2]",
        applies="live",
    )
    request_timeout_ms: int = key(
        "cluster-manager.container.request.timeout.ms",
        "How long a request for a preferred host waits before any host will do.",
        5_000,
        minimum=100,
        applies="live",
        unit="ms",
    )
    retry_count: int = key(
        "cluster-manager.container.retry.count",
        "Failures of one processor copy inside the window after which the job fails; -1: no bound. What is ended from "
        "outside (by YARN, the host's kernel or a person) is no failure.",
        8,
        minimum=-1,
        applies="live",
    )
    retry_window_ms: int = key(
        "cluster-manager.container.retry.window.ms",
        "The window in which failures are counted.",
        300_000,
        minimum=1_000,
        applies="live",
        unit="ms",
    )
