"""How a job is while nobody leads its cluster: what the last leader recorded, and what of it can still be so. Pure."""

from __future__ import annotations

import enum
from typing import Final

from appmaster.planning.state.job import JobState

#: Nobody leads, and nothing of the job runs that could: the leader's own states do not know that.
ENDED: Final = "ended"

#: Recorded, and no leader has seen it yet.
SUBMITTED: Final = "submitted"

#: What stays so without a leader.
_FINAL: Final = frozenset({JobState.FAILED.value, JobState.UNDEPLOYED.value, ENDED, SUBMITTED, "unreadable"})


class Running(enum.Enum):
    """Whether applications of the job's cluster run."""

    YES = enum.auto()
    NO = enum.auto()
    UNKNOWN = enum.auto()
    """YARN cannot be asked."""


def state(recorded: str, running: Running) -> str:
    """Return a job's status, for programs; ``recorded`` is the last leader's word, empty where there was none."""
    if not recorded:
        return SUBMITTED
    return ENDED if running is Running.NO and recorded not in _FINAL else recorded


def told(status: str, *, is_led: bool) -> str:
    """Return a job's status in words, which say when it is no present one."""
    return status if is_led or status in _FINAL else f"{status} when a leader last looked"
