"""The table of label values in docs/monitoring.md: what each value of a closed set means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appmaster.planning.state.counters import (
    CONTAINER_FAILURES,
    DECIDED,
    EFFECTS_FAILED,
    RELEASED,
    REQUESTS,
    WITHOUT_STANDBY,
)
from appmaster.planning.state.view import Presence

_OUTCOMES: Final = {
    "expired": "it was not granted, or its container did not register, in time",
    "surplus": "its slot is taken, or it is not needed any more",
    "same-host": "it was granted on a host that holds another copy of the same tasks",
    "drained": "it was granted on a drained host",
    "lost": "the container was lost, or cannot be used any more",
    "replaced": "as planned: another container has taken over its work, or will",
    "ended": "the job ended",
    "other": "anything else",
}


@dataclass(frozen=True, slots=True)
class LabelValues:
    """The values of one label, each with its meaning."""

    label: str
    metric: str
    known: Sequence[str]
    """The values that the code knows."""
    meanings: Mapping[str, str]


LABELS: Final = (
    LabelValues(
        "reason",
        CONTAINER_FAILURES.name,
        CONTAINER_FAILURES.labels["reason"],
        {
            "process-ended": "its witness reported that its process had ended",
            "port-refused": "its port refused connections",
            "silent": "no heartbeat for the time that [the rules](failover.md) allow",
            "no-stream": "its stream broke, its port accepts connections, and it did not connect again in time",
            "never-came": "it existed before this leader, and did not connect to it in time",
            "unregistered": "its registration in ZooKeeper has ended",
            "yarn-completed": "YARN reported its end",
            "replica-failed": "one of its replicas failed",
            "replica-fenced": "one of its replicas was fenced by a newer owner",
            "gone-before-takeover": "YARN did not list it when this leader took over",
            "other": "anything else",
        },
    ),
    LabelValues(
        "reason",
        WITHOUT_STANDBY.name,
        WITHOUT_STANDBY.labels["reason"],
        {
            "restoring": "a standby was alive, but not in sync",
            "no-other-copy-lives": "no other copy was alive",
            "standby-stayed": "policy `restart`: the host of a living standby could not be reserved",
            "other": "anything else",
        },
    ),
    LabelValues(
        "outcome",
        REQUESTS.name,
        REQUESTS.labels["outcome"],
        {
            "granted": "a container was granted",
            "refused": "the request could not be made",
            "cancelled": "it was cancelled before it was granted",
            "failed": "it was granted, but its container ended before it registered",
            **_OUTCOMES,
            "lost": "the cell that was asked is lost",
        },
    ),
    LabelValues("reason", RELEASED.name, RELEASED.labels["reason"], _OUTCOMES),
    LabelValues(
        "kind",
        DECIDED.name,
        DECIDED.labels["kind"],
        {
            "bind": "replicas are placed in a container",
            "failover": "a lost active is replaced",
            "displace": "policy `restart`: a standby is displaced, so that the active can start on its host",
            "restore": "policy `restart`: the standby's host was not available, so the standby is restored in place",
            "handover": "a planned change of the active",
            "move": "a copy is being filled elsewhere",
            "moved": "that copy took its place",
            "stay": "a move is given up",
            "drop": "a copy is given up as planned",
            "raise": "epochs rise above those that containers have seen",
            "claimed": "an active has claimed its task",
            "in_sync": "the set of copies in sync changed",
            "failures": "failures of the job's code were counted",
            "park": "a processor is withdrawn after too many failures",
            "undeploy": "the job is being undeployed",
            "other": "anything else",
        },
    ),
    LabelValues(
        "reason",
        DECIDED.name,
        DECIDED.labels["reason"],
        {
            "in-sync": "the copy that becomes active was in sync",
            "not-in-sync": "the copy that becomes active was not in sync",
            "an-empty-slot": "a slot had no container",
            "the-first-of-its-tasks-copies": "no other copy of its tasks existed",
            "no-other-copy-lives": "no other copy of its tasks was alive",
            "there-is-no-need-to-move-any-more": "the reason for a move has gone",
            "the-job-is-being-undeployed": "the job ends",
            "poison": "the job's code fails on its input",
            "stuck": "an active made no progress while another copy could",
            "another-copy-is-on-its-host": "copies of the same tasks shared a host",
            "another-copy-finds-no-place": "a copy leaves its place to one that has no other",
            "other": "anything else",
        },
    ),
    LabelValues(
        "effect",
        EFFECTS_FAILED.name,
        EFFECTS_FAILED.labels["effect"],
        {
            "write-records": "write task records",
            "write-model": "write the job's model",
            "write-status": "write the job's status",
            "send-assignment": "send a container its work",
            "send-exit": "tell a container to end",
            "probe-port": "probe the port of a container",
            "request-container": "request a container",
            "give-back": "cancel a request, or give a container back",
            "other": "anything else",
        },
    ),
    LabelValues(
        "state",
        "standfast_containers",
        tuple(each.value for each in Presence),
        {
            "expected": "known to YARN or ZooKeeper when this leader took over; not heard from yet",
            "live": "connected to the leader",
            "broken": "its stream broke; its port is being probed",
            "suspect": "counts as lost, but may come back within a grace period",
            "orphan": "connected, but not requested as far as this leader knows; told to end",
            "leaving": "told to end, or being given back",
        },
    ),
)


def table() -> Iterator[str]:
    """Yield the lines of the table; raises LookupError unless each value has a meaning, and no other has."""
    yield "| label | value | meaning |\n|---|---|---|\n"
    for each in LABELS:
        if set(each.known) != each.meanings.keys():
            wrong = sorted(set(each.known) ^ each.meanings.keys())
            raise LookupError(
                f"{each.metric}, {each.label}: values without a meaning, or meanings of none: {wrong}"
            )
        name = f"`{each.label}` of `{each.metric}`"
        for value in each.known:
            yield f"| {name} | `{value}` | {each.meanings[value]} |\n"
            name = ""
