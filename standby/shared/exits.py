"""How a container's process ends: its exit codes, and the verdict on who ended it (rule `fair-blame`). Pure.

docs/troubles.md explains the codes. The verdict is made from numbers alone: exit codes, signals, and the kernel's own
count of processes that it killed for want of memory. They come from the witness, the small process around the
container's (`standby.process.witness`).
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
# A code below 10 is `standby.errors`' own: 2 for bad configuration, 3 for something unavailable at the start,
# 70 for a broken invariant.

#: The leader no longer wants the container, or SIGTERM asked for the end; everything was closed in order.
ORDERLY: Final = 0

#: No leader was found for `job.hotstandby.orphan.timeout.ms` (rule `orphan-exit`); everything was closed in order.
ORPHANED: Final = 10

#: The kernel gave the whole container up: a dead JVM, a revoke that hangs (rule `never-block`).
BROKEN: Final = 11

#: Something did not close within its deadline; the process ended all the same.
UNCLEAN: Final = 12

#: The control loop itself stood still while the rest of the process ran.
STUCK: Final = 13

#: Ends in which the job's code may have had a part. Of the others nobody needs to know more.
PERHAPS_OF_CODE: Final = frozenset({BROKEN, STUCK})

#: Every code with what it means.
MEANINGS: Final = {
    ORDERLY: "ended as asked, everything closed in order",
    ORPHANED: "found no leader for too long",
    BROKEN: "the kernel gave the container up",
    UNCLEAN: "something did not close within its deadline",
    STUCK: "the control loop stood still",
}

# ---- who ended it ----

#: What a process does to itself: nobody sends these to another one, as a rule.
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


class Cause(enum.Enum):
    """Who ended a process."""

    ITSELF = "itself"
    """What it ran: a fault, or an exit that is none of ours."""
    UNCERTAIN = "uncertain"
    """What it ran, or the lack of something that others used up, or what runs beside the transform in a JVM."""
    OUTSIDE = "outside"
    """YARN, the host's kernel, or a person: nobody's failure."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A task that the process ran the job's code on at its end."""

    task: TaskId
    position: int | None = None
    """The committed input position from which it ran (`standby.shared.model.Offsets.total`); None: that is
    not known, since it was the feed's child that ran it."""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a container's process."""

    status: int
    """Its exit code, or minus the number of the signal that ended it."""
    ran: tuple[Ran, ...] = ()
    """Every task whose step or transform was running; none: the process ran no code of a job on any input."""
    child: int | None = None
    """The same as `status` of the child whose death was the reason (the JVM); None: there was no such child."""
    oom_kills: int | None = None
    """How many processes the host's kernel killed for want of memory within the last seconds; None: not known."""

    @property
    def cause(self) -> Cause:
        """Return who ended it, as far as that can be told."""
        status = self.status if self.child is None else self.child
        if -status in _FAULTS:
            # A JVM has many threads and libraries beside the job's transform.
            return Cause.ITSELF if self.child is None else Cause.UNCERTAIN
        if status == -signal.SIGKILL:
            return Cause.OUTSIDE if self.oom_kills == 0 else Cause.UNCERTAIN
        if status < 0:
            return Cause.OUTSIDE
        # A JVM gives up when its heap is exhausted, by whatever; a loop that stands still may be held up by anything.
        is_ours = self.child is not None or status in PERHAPS_OF_CODE
        return Cause.UNCERTAIN if is_ours else Cause.ITSELF

    @property
    def is_from_outside(self) -> bool:
        """Whether nothing that it ran can be the reason."""
        return self.cause is Cause.OUTSIDE

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
