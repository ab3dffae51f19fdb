"""A job's status while its cluster has no leader: what the last leader recorded, and what can still hold. Pure."""

from __future__ import annotations

import enum
from typing import Final

from appmaster.planning.state.job import JobState

#: No leader, and nothing of the job's cluster runs that could lead: not one of the leader's own states.
ENDED: Final = "ended"

#: Recorded, but not yet seen by a leader.
SUBMITTED: Final = "submitted"

#: States that remain true without a leader.
_FINAL: Final = frozenset({JobState.FAILED.value, JobState.UNDEPLOYED.value, ENDED, SUBMITTED, "unreadable"})


class Running(enum.Enum):
    """Whether applications of the job's cluster run."""

    YES = enum.auto()
    NO = enum.auto()
    UNKNOWN = enum.auto()
    """YARN cannot be asked."""


def state(recorded: str, running: Running) -> str:
    """Return a job's status, for programs; ``recorded`` is the last leader's, empty if there was none."""
    if not recorded:
        return SUBMITTED
    return ENDED if running is Running.NO and recorded not in _FINAL else recorded


def status_text(status: str, *, is_led: bool) -> str:
    """Return a job's status in words, which say so if it may be out of date."""
    return status if is_led or status in _FINAL else f"{status} when a leader last looked"
