"""Every wait of the leader that belongs to no rule of `appmaster.planning.rules.table`: its limit, and what follows.

docs/failover.md shows this table after that of the rules. A test checks that each limit of the policy is in one of
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Wait:
    """What is waited for, and what follows."""

    awaited: str
    deadline: str
    """The field of `PlannerPolicy`."""
    comes: str
    otherwise: str
    events: tuple[str, ...] = ()
    """Entries of the event log that show how the wait ended."""


#: In the order in which an operator meets them.
WAITS: Final[tuple[Wait, ...]] = (
    Wait(
        "a message of a container, or an answer of its host, which is probed meanwhile",
        "host_timeout_ms",
        "if its host answers, the host lives, and the next line applies to the container, unless its witness has seen "
        "the process standing still for three quarters of this time; a port that refuses connections means that the "
        "container is dead",
        "it is lost",
        ("container_lost",),
    ),
    Wait(
        "the next heartbeat of a container whose host answers",
        "heartbeat_timeout_ms",
        "it lives",
        "it is lost, after twice that time if its witness reports that it waits for its disk; if more than half of the "
        "containers (at least three, on several hosts) become silent at once, the leader suspects that it is cut off "
        "itself, and waits once more",
        ("container_lost", "leader_doubts_itself"),
    ),
    Wait(
        "a container whose stream broke and whose port still accepts connections",
        "reconnect_grace_ms",
        "it goes on; a port that refuses connections, or at which its witness answers, means that it is dead, at once",
        "it is lost",
        ("container_registered", "container_lost"),
    ),
    Wait(
        "the containers that YARN listed when this leader was elected",
        "takeover_grace_ms",
        "each goes on as recorded",
        "those that did not connect are lost; one that has neither registered nor been assigned anything is being "
        "launched, and has the time for a launch",
        ("container_registered", "container_lost"),
    ),
    Wait(
        "those of them whose host does not answer at their ports",
        "host_timeout_ms",
        "the host answers, or they connect",
        "they are lost, unless most do not answer, on several hosts: the leader may be cut off itself, and the line "
        "above applies; if the host answers and the process does not, the line for a container whose host answers "
        "applies, unless its witness has seen it standing still",
        ("container_registered", "container_lost"),
    ),
    Wait(
        "a lost container that YARN still lists",
        "suspect_grace_ms",
        "it is used again, as a standby",
        "it is released, and a container is requested for its slot",
        ("container_released",),
    ),
    Wait(
        "a container on a named host",
        "request_timeout_ms",
        "it is granted",
        "the request is cancelled, and the next host is requested",
        ("request_granted", "request_cancelled"),
    ),
    Wait(
        "a container on any host",
        "any_timeout_ms",
        "it is granted",
        "the request is cancelled and made again, in alternation with named hosts: Skein loses a request now and then "
        "if others are cancelled at the moment of their grant",
        ("request_granted", "request_cancelled"),
    ),
    Wait(
        "a host that let a request expire, failed a launch, or became silent",
        "avoid_host_ms",
        "it may be requested again",
        "nothing: other hosts are requested meanwhile",
    ),
    Wait(
        "the first message of a granted container",
        "launch_timeout_ms",
        "it registers",
        "it is released, and one failure is counted against the retry budget",
        ("container_registered", "request_cancelled", "launch_failed"),
    ),
    Wait(
        "the next request after a failed one, doubled each time",
        "retry_backoff_ms",
        "it is made",
        "nothing: the wait is the bound",
        ("container_requested",),
    ),
    Wait(
        "the same, at most",
        "retry_backoff_max_ms",
        "it is made",
        "nothing: the wait is the bound",
        ("container_requested",),
    ),
    Wait(
        "the end of the retry window of a failure",
        "retry_window_ms",
        "older failures no longer count",
        "with more failures in the window than `cluster-manager.container.retry.count`, the job fails, or the "
        "processor is parked",
        ("job_status", "processor_parked"),
    ),
    Wait(
        "a report that the assignment was applied",
        "resend_ms",
        "nothing",
        "the same assignment is sent again",
    ),
    Wait(
        "a standby to reach the end of the changelog",
        "lag_time_ms",
        "it is in sync",
        "it is not in sync, and a failover to it is counted as one without a standby",
        ("decided_in_sync",),
    ),
    Wait(
        "more containers of a job with mixed containers that has not started",
        "quiet_ms",
        "each gets its share",
        "the job starts with those that are there",
    ),
    Wait(
        "a job that has just become whole, before a hand-over spreads its actives (rule *rebalance*); after each one "
        "that is given up twice as long, up to 32 times",
        "rebalance_pause_ms",
        "the next hand-over is prepared",
        "the job is not whole any more: the wait begins anew once it is",
        ("handover_started",),
    ),
    Wait(
        "a host that held a task, to be requested again",
        "locality_expiry_ms",
        "it is preferred",
        "it is forgotten",
    ),
)
