"""The words of the failover scenarios: who fails, what is in flight, what is told and counted.

The files in tests/scenarios/failover say in these words what happens in every combination.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class Trigger(str, enum.Enum):
    """What happens; the text is that of the files and of docs/failover-scenarios.md."""

    ACTIVE_PROCESS = "the active's process dies"
    ACTIVE_HOST = "the active's host goes down, its sockets close"
    ACTIVE_SILENT = "the active's host falls silent"
    STANDBY_PROCESS = "the standby's process dies"
    STANDBY_HOST = "the standby's host goes down"
    BOTH = "both processes die at once"
    PLANNED = "the active's host is drained: its containers are told to leave"
    LEADER = "the leader is replaced"
    LEADER_AND_ACTIVE = "the leader is replaced, and the active's process died meanwhile"
    RETURN = "the active that was taken for lost comes back"
    FILLED = "the container that is being filled dies"
    RESERVED = "the reserved container dies"
    DISPLACED = "the process of the displaced standby dies"
    STUCK = "the displaced standby does not stop"


class Flight(str, enum.Enum):
    """What is under way when it happens."""

    NOTHING = "Nothing"
    FIRST_DEPLOY = "First deploy: placed, and still restoring"
    FAILOVER = "Failover ordered: recorded, and not obeyed yet"
    ANOTHER = "Failover ordered, another standby left"
    PROMOTION = "Promotion under way: the new active replays the changelog's last records"
    RESTORING = "The standby is still restoring"
    MOVING = "The standby is being moved off a drained host"
    PREPARING = "A planned hand-over is being prepared"
    ASKING = "The active is lost, its own host is asked for"
    STOPPING = "The displaced standby is stopping, its host is reserved"
    RESERVING = "The displaced standby has stopped, its host is asked for"
    UPGRADING = "Rolling upgrade: the standby restores with the new code"
    UNDEPLOYING = "Undeploying: the records are withdrawn, the fence is under way"


class Counted(str, enum.Enum):
    """What a story adds to the metrics; whatever is not named is not added to."""

    ACTIVE = "active failure"
    STANDBY = "standby failure"
    IDLE = "failure of a container without a role"
    FAILOVER = "failover"
    RESTORING = "without standby: restoring"
    NOBODY = "without standby: no other copy lives"
    STAYED = "without standby: its host could not be reserved"
    HANDOVER = "hand-over"


class Under(str, enum.Enum):
    """The policy of the job."""

    EITHER = "both"
    PROMOTE = "promote"
    RESTART = "restart"
    MIXED = "promote, mixed"


#: The words of a story → the entries of the event log. Those that only accompany others are left out.
STEPS: Final[Mapping[str, str]] = {
    "lost": "container_lost",
    "failover": "decided_failover",
    "begun": "failover_started",
    "without": "failover_without_standby",
    "done": "failover_finished",
    "displace": "decided_displace",
    "stopped": "standby_stopped",
    "restore": "decided_restore",
    "ask": "container_requested",
    "cancel": "request_cancelled",
    "refused": "same_host_refused",
    "bind": "decided_bind",
    "drop": "decided_drop",
    "release": "container_released",
    "prepare": "handover_started",
    "give-up": "handover_given_up",
    "hand-over": "decided_handover",
    "handed": "handover_finished",
    "move": "decided_move",
    "moved": "decided_moved",
    "stay": "decided_stay",
    "withdraw": "decided_undeploy",
    "fence": "fencing_tasks",
    "fenced": "tasks_fenced",
    "exit": "container_dismissed",
}


@dataclass(frozen=True, slots=True)
class Story:
    """What comes of a trigger."""

    steps: tuple[str, ...]
    """Words of `STEPS`, in the order in which they are told."""
    counted: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table."""

    flight: Flight
    trigger: Trigger
    under: Under
    story: Story


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Combinations that cannot be."""

    flights: tuple[Flight, ...]
    triggers: tuple[Trigger, ...]
    why: str
    under: tuple[Under, ...] = (Under.PROMOTE, Under.RESTART)
