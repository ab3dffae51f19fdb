"""What an error affects that occurred while a leader did something for one job or one cell. Pure.

A candidate leads all jobs of the cluster: an error with one of them concerns only that job, whatever raised it. There
are two exceptions: errors that say that this candidate no longer leads, and errors that make further actions of the
process unreliable.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from standby.errors import BrokenInvariant, Fenced, StandfastError, Transient
from standby.shared import errortext

#: After these errors the process ends, and is started again; likewise after those that are no `Exception` (an exit).
BROKEN: Final = (MemoryError, BrokenInvariant)

#: Most characters of an error in a job's status.
_MOST: Final = 600


class Blame(enum.Enum):
    """What an error affects."""

    LEADERSHIP = "leadership"
    """Another candidate leads: nothing may be written any more."""
    JOB = "job"
    """The job that something was done for: it is set aside, and the others are led."""
    PROCESS = "process"
    """The whole process."""


def blame(error: BaseException) -> Blame:
    """Return what an error affects.

    `Fenced` is raised by a write to ZooKeeper if the epoch has moved on. The end of a session is not noticed by an
    error but by the session's listener and the lease (`appmaster.leadership.election`). An error of Kafka or Skein, one
    of kazoo that is not a connection loss, and any unexpected error affects the job.
    """
    if isinstance(error, Fenced):
        return Blame.LEADERSHIP
    if isinstance(error, BROKEN) or not isinstance(error, Exception):
        return Blame.PROCESS
    return Blame.JOB


def is_of_job(error: BaseException) -> bool:
    """Return whether an error affects one job only."""
    return blame(error) is Blame.JOB


def is_of_record(error: BaseException) -> bool:
    """Return whether an error that occurred while a record was read affects only that record.

    Not so for `Transient`: then ZooKeeper itself cannot be read.
    """
    return is_of_job(error) and not isinstance(error, Transient)


def going_on(log: Callable[..., object], thread: str) -> Callable[[BaseException], None]:
    """Return the ``failed`` of a `Worker` whose thread continues after an unexpected error.

    ``log`` is a method of a logger. For threads that a leader does not depend on. An error after
    which the process is unreliable ends the process.
    """

    def failed(error: BaseException) -> None:
        if blame(error) is Blame.PROCESS:
            raise error
        log("%s: an unexpected error", thread, exc_info=error)

    return failed


def describe_error(error: BaseException) -> str:
    """Return the text for an error: its own text if it is one of standfast's, else with its type."""
    if isinstance(error, StandfastError):
        return errortext.clean(str(error), _MOST)
    return errortext.clean(f"unexpected error: {errortext.summary_of(error)}", _MOST)


def traceback_of(error: BaseException, *expected: type[BaseException]) -> BaseException | None:
    """Return the ``exc_info`` of a log message about an error: None if its text says what is wrong.

    That is so for standfast's own errors, and for the ``expected`` ones of a library.
    """
    return None if isinstance(error, (StandfastError, *expected)) else error
