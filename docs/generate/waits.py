"""Every wait of the leader that no rule of `appmaster.planning.rules.table` has: its bound, and the next move.

docs/failover.md shows this table beside the rules'; a test sees to it that each bound of the policy is in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Wait:
    """What is waited for, and what follows."""

    awaited: str
    deadline: str
    """The field of `Policy`."""
    comes: str
    otherwise: str
    events: tuple[str, ...] = ()
    """Entries of the event log that tell how it ended."""


#: In the order in which an operator meets them.
WAITS: Final[tuple[Wait, ...]] = (
    Wait(
        "a word of a container, or an answer of its host, which is asked meanwhile",
        "host_timeout_ms",
        "a host that answers lives: the next line is for the container; a port that refuses means that it is dead",
        "it is lost",
        ("container_lost",),
    ),
    Wait(
        "the next heartbeat of a container whose host answers",
        "heartbeat_timeout_ms",
        "nothing: it lives",
        "it is lost; when more than half fall silent at once, on several hosts, the leader doubts itself once "
        "and waits that time again",
        ("container_lost", "leader_doubts_itself"),
    ),
    Wait(
        "a container whose stream broke and whose port still accepts",
        "reconnect_grace_ms",
        "it goes on; a port that refuses, or at which its witness answers, means it is dead, at once",
        "it is lost",
        ("container_registered", "container_lost"),
    ),
    Wait(
        "the containers that YARN listed when this leader took over",
        "takeover_grace_ms",
        "each goes on as the records say",
        "those that did not come are lost; one that has neither registered nor anything to do is being launched, "
        "and has the time for that",
        ("container_registered", "container_lost"),
    ),
    Wait(
        "those of them whose host does not answer at their ports",
        "host_timeout_ms",
        "it answers, or they come",
        "they are lost, unless most do not answer, on several hosts: then the leader may be cut off itself, and waits "
        "for the line above; where the host answers and the process does not, after "
        "`job.hotstandby.heartbeat.timeout.ms`",
        ("container_registered", "container_lost"),
    ),
    Wait(
        "a lost container that YARN still lists",
        "suspect_grace_ms",
        "it is used again, as a standby",
        "it is given back, and its slot is asked for",
        ("container_released",),
    ),
    Wait(
        "a container on a named host",
        "request_timeout_ms",
        "it is granted",
        "the request is cancelled, and the next host is asked",
        ("request_granted", "request_cancelled"),
    ),
    Wait(
        "a container on any host",
        "any_timeout_ms",
        "it is granted",
        "the request is cancelled and made anew, in turn with named ones: Skein loses one now and then, when "
        "others were cancelled at the moment of their grant",
        ("request_granted", "request_cancelled"),
    ),
    Wait(
        "a host that let a request expire, failed a launch, or fell silent",
        "avoid_host_ms",
        "it may be asked again",
        "nothing: others are asked meanwhile",
    ),
    Wait(
        "the first word of a granted container",
        "launch_timeout_ms",
        "it registers",
        "it is given back, and one of the retry budget is spent",
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
        "failures to be forgotten",
        "retry_window_ms",
        "those that are older count no more",
        "more of them within it than `cluster-manager.container.retry.count`: the job fails, or the processor is "
        "parked",
        ("job_status", "processor_parked"),
    ),
    Wait(
        "a report that the assignment was applied",
        "resend_ms",
        "nothing",
        "the same assignment is sent again",
    ),
    Wait(
        "a standby to be in step with the changelog's end",
        "lag_time_ms",
        "it is in sync",
        "it is not, and a failover to it is counted as one without a standby",
        ("decided_in_sync",),
    ),
    Wait(
        "more containers of a mixed job that has not begun",
        "quiet_ms",
        "each gets its share",
        "it begins with those that came",
    ),
    Wait(
        "a host that held a task to be asked for again",
        "locality_expiry_ms",
        "it is preferred",
        "it is forgotten",
    ),
)
