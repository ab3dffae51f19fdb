"""Exit codes of a container's process, and the cause of its end (rule `fair-blame`). Pure.

docs/troubles.md explains the codes. The cause is determined from exit codes, signals, and the host kernel's count of
OOM kills. They are reported by the witness, the parent of the container's process (`standby.process.witness`).
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from standby.shared.model import TaskId

# ---- exit codes ----
#
# Codes below 10 are those of `standby.errors`: 2 for bad configuration, 3 for something unavailable at the start,
# 70 for a broken invariant.

#: The leader no longer needs the container, or it received SIGTERM; everything was closed orderly.
ORDERLY: Final = 0

#: No leader was found for `job.hotstandby.orphan.timeout.ms` (rule `orphan-exit`); everything was closed orderly.
ORPHANED: Final = 10

#: The kernel abandoned the whole container: a dead JVM, a hanging revoke (rule `never-block`).
BROKEN: Final = 11

#: Something did not close within its deadline; the process ended nevertheless.
UNCLEAN: Final = 12

#: The control loop was stuck while the rest of the process was running.
STUCK: Final = 13

#: Exit codes that may be caused by the job's code. The others need no further information.
PERHAPS_OF_CODE: Final = frozenset({BROKEN, STUCK})

#: The meaning of each code.
MEANINGS: Final = {
    ORDERLY: "ended as asked, everything closed in order",
    ORPHANED: "found no leader for too long",
    BROKEN: "the kernel gave the container up",
    UNCLEAN: "something did not close within its deadline",
    STUCK: "the control loop stood still",
}

# ---- who ended it ----

#: Signals of a fault in the process itself, which are usually not sent by others.
_FAULTS: Final[Collection[int]] = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGABRT,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)


class ExitCause(enum.Enum):
    """Who ended a process."""

    ITSELF = "itself"
    """The code that it ran: a fault, or an exit that is not standfast's."""
    UNCERTAIN = "uncertain"
    """The code that it ran, or a resource used up by others, or other code in the JVM."""
    OUTSIDE = "outside"
    """YARN, the host's kernel, or a person: not a failure."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A task on which the process was running the job's code when it ended."""

    task: TaskId
    position: int | None = None
    """The committed input position from which it ran (`standby.shared.model.Offsets.total`); None: not known,
    because the feed's child ran it."""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a container's process."""

    status: int
    """Its exit code, or the negated number of the signal that ended it."""
    ran: tuple[Ran, ...] = ()
    """Every task whose step or transform was running; empty: no code of a job was running on input."""
    child: int | None = None
    """The status of the child (the JVM) whose death was the reason; None: there was no such child."""
    oom_kills: int | None = None
    """Number of OOM kills on the host within the last seconds; None: not known."""

    @property
    def cause(self) -> ExitCause:
        """The cause of the end, as far as it is known."""
        status = self.status if self.child is None else self.child
        if -status in _FAULTS:
            # A JVM has many threads and libraries besides the job's transform.
            return ExitCause.ITSELF if self.child is None else ExitCause.UNCERTAIN
        if status == -signal.SIGKILL:
            return ExitCause.OUTSIDE if self.oom_kills == 0 else ExitCause.UNCERTAIN
        if status < 0:
            return ExitCause.OUTSIDE
        # A JVM ends when its heap is exhausted, for any reason; a stuck loop may have any cause.
        is_ours = self.child is not None or status in PERHAPS_OF_CODE
        return ExitCause.UNCERTAIN if is_ours else ExitCause.ITSELF

    @property
    def is_from_outside(self) -> bool:
        """Whether the code that it ran cannot be the reason."""
        return self.cause is ExitCause.OUTSIDE

    def __str__(self) -> str:
        what, status = ("it", self.status) if self.child is None else ("its JVM", self.child)
        if status < 0:
            return f"{what} was ended by {_signal(-status)}"
        return f"{what} ended with exit code {status}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
