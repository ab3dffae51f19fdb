"""Who fails while what is in flight: every combination, and its story. Pure.

Literal data: docs/failover.md shows it, and one test brings a cluster into each row's state, pulls the trigger, and
compares what the leader decides, tells and counts with the row, entry by entry.
"""

from __future__ import annotations

import enum


class Trigger(str, enum.Enum):
    """What happens; the word is the page's."""

    ACTIVE_PROCESS = "the active's process dies"
    ACTIVE_HOST = "the active's host goes down, its sockets close"
    ACTIVE_SILENT = "the active's host falls silent"
    STANDBY_PROCESS = "the standby's process dies"
    STANDBY_HOST = "the standby's host goes down"
    BOTH = "both processes die at once"
    PLANNED = "the active's host is drained: its containers are told to leave"
    LEADER = "the leader is replaced"
    LEADER_AND_ACTIVE = "the leader and the active's process die together"
    FILLED = "the container that is being filled dies"
    RESERVED = "the reserved container dies"
    DISPLACED = "the process of the standby that makes way dies"


class Flight(str, enum.Enum):
    """What is under way when it happens."""

    NOTHING = "nothing"
    FIRST_DEPLOY = "first deploy"
    FAILOVER = "failover ordered"
    ANOTHER = "failover ordered, another standby left"
    PROMOTION = "promotion under way"
    RESTORING = "standby restoring"
    MOVING = "standby moving"
    PREPARING = "hand-over being prepared"
    STOPPING = "displaced standby stopping"
    RESERVING = "reservation asked"
    UPGRADING = "rolling upgrade"
    UNDEPLOYING = "undeploying"
