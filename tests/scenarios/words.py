"""The vocabulary of the failover scenarios: the failure, the operation in progress, the entries and the counters.

The files in tests/scenarios/failover describe every combination in these words.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class Trigger(str, enum.Enum):
    """The failure; the text is that of the files and of docs/failover-scenarios.md."""

    ACTIVE_PROCESS = "the active's process dies"
    ACTIVE_HOST = "the active's host goes down, its sockets close"
    ACTIVE_SILENT = "the active's host becomes silent"
    STANDBY_PROCESS = "the standby's process dies"
    STANDBY_HOST = "the standby's host goes down"
    BOTH = "both processes die at once"
    STATE = "the active finds its database damaged"
    PLANNED = "the active's host is drained"
    LEADER = "the leader is replaced"
    LEADER_AND_ACTIVE = "the leader is replaced, and the active's process has died in the meantime"
    RETURN = "the active that was considered lost comes back"
    FILLED = "the container that is being filled dies"
    RESERVED = "the reserved container dies"
    DISPLACED = "the process of the displaced standby dies"
    STUCK = "the displaced standby does not stop"


class Flight(str, enum.Enum):
    """The operation in progress when it happens."""

    NOTHING = "Nothing"
    FIRST_DEPLOY = "First deploy: placed, and still restoring"
    FAILOVER = "Failover ordered: recorded, not carried out yet"
    ANOTHER = "Failover ordered, another standby left"
    PROMOTION = "Promotion in progress: the new active replays the changelog's last records"
    RESTORING = "The standby is still restoring"
    MOVING = "The standby is being moved off a drained host"
    PREPARING = "A planned hand-over is being prepared"
    ASKING = "The active is lost, its own host is requested"
    STOPPING = "The displaced standby is stopping, its host is reserved"
    RESERVING = "The displaced standby has stopped, its host is requested"
    UPGRADING = "Rolling upgrade: the standby restores with the new code"
    UNDEPLOYING = "Undeploying: the records are withdrawn, fencing is in progress"


class Counted(str, enum.Enum):
    """What a story adds to the metrics; it adds to no other."""

    ACTIVE = "active failure"
    STANDBY = "standby failure"
    BOTH = "mixed failure"
    IDLE = "failure of a container without a role"
    FAILOVER = "failover"
    RESTORING = "without standby: restoring"
    NO_COPY = "without standby: no other copy lives"
    STAYED = "without standby: its host could not be reserved"
    HANDOVER = "hand-over"


class Under(str, enum.Enum):
    """The policy of the job."""

    EITHER = "both"
    PROMOTE = "promote"
    RESTART = "restart"
    MIXED = "promote, mixed"


#: The words of a story → the entries of the event log. Entries that only accompany others are omitted.
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
    """The consequences of a trigger."""

    steps: tuple[str, ...]
    """Words of `STEPS`, in the order of the entries."""
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
    """Combinations that cannot occur."""

    flights: tuple[Flight, ...]
    triggers: tuple[Trigger, ...]
    why: str
    under: tuple[Under, ...] = (Under.PROMOTE, Under.RESTART)
