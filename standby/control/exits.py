"""How a container process ends: its exit codes, which docs/operations.md explains. Pure.

A code below 10 is `standby.errors`' own: 2 for bad configuration, 3 for something unavailable at the start,
70 for a broken invariant.
"""

from __future__ import annotations

from typing import Final

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
