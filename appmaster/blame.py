"""Whom an error concerns that came while a leader did something for one job, or for one cell. Pure.

A candidate leads the jobs of the whole cluster: what goes wrong with one of them is that job's trouble, whatever raised
it. Two kinds of error are not: those that say that this candidate leads no more, and those after which nothing that the
process does can be relied on.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from standby.errors import BrokenInvariant, Fenced, StandfastError, Transient
from standby.shared import errortext

#: After these the process ends, and its next life is whole. So do those that are no `Exception`: an interrupt, an exit.
BROKEN: Final = (MemoryError, BrokenInvariant)

#: Most characters of an error that a job's status has.
_MOST: Final = 600


class Blame(enum.Enum):
    """Whom an error concerns."""

    LEADERSHIP = "leadership"
    """Another leads: nothing may be written any more."""
    JOB = "job"
    """The job that something was done for. It is set aside; the others are led."""
    PROCESS = "process"
    """All of it."""


def blame(error: BaseException) -> Blame:
    """Return whom an error concerns.

    `Fenced` is what a write to ZooKeeper raises when the epoch has moved on. That a session has ended is not learned
    by an error: the session's listener and the lease tell (`appmaster.leadership.election`). An error of Kafka's or of
    Skein's, of kazoo's that is no loss of the connection, and whatever nobody foresaw, concerns the job.
    """
    if isinstance(error, Fenced):
        return Blame.LEADERSHIP
    if isinstance(error, BROKEN) or not isinstance(error, Exception):
        return Blame.PROCESS
    return Blame.JOB


def is_of_job(error: BaseException) -> bool:
    """Return whether an error concerns one job alone."""
    return blame(error) is Blame.JOB


def is_of_record(error: BaseException) -> bool:
    """Return whether an error that came while something recorded was read concerns that alone.

    Not `Transient`: then it is ZooKeeper that cannot be read.
    """
    return is_of_job(error) and not isinstance(error, Transient)


def going_on(log: Callable[..., object], thread: str) -> Callable[[BaseException], None]:
    """Return the ``failed`` of a `Worker` whose thread goes on after an error that nobody has set aside.

    ``log`` is a method of a logger. The rule is for a thread without which a leader leads all the same. An error after
    which nothing can be relied on ends the process.
    """

    def failed(error: BaseException) -> None:
        if blame(error) is Blame.PROCESS:
            raise error
        log("%s: an unexpected error", thread, exc_info=error)

    return failed


def told(error: BaseException) -> str:
    """Return what people are told of an error: in its own words where it is one of ours, else with its kind."""
    if isinstance(error, StandfastError):
        return errortext.clean(str(error), _MOST)
    return errortext.clean(f"an error that nobody foresaw: {errortext.told(error)}", _MOST)
