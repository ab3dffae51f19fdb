"""The errors of standfast: one small tree, split by what the caller does next.

::

    StandfastError
    ├── BadConfiguration   the user must change something; raised before any I/O has an effect
    ├── Unavailable        a server or a file cannot be used now; the user or a retry may mend it
    │   └── Transient      worth retrying with back-off, as it is
    ├── Fenced             a newer owner or epoch exists: stop writing, never retry
    ├── CorruptState       local state cannot be trusted: wipe it and restore from the changelog
    └── BrokenInvariant    an invariant of our own does not hold: show the last events and crash

Adapters translate the errors of the library they wrap into one of these with ``raise … from``.
"""

from __future__ import annotations


class StandfastError(Exception):
    """The root of every error that standfast raises on purpose."""

    #: The exit status of a command that ends with this error (documented in docs/commands.md).
    exit_status = 1


class BadConfiguration(StandfastError):
    """A key, value, file or argument is wrong; the message names it and says what to do."""

    exit_status = 2


class Unavailable(StandfastError):
    """A server, port, file system or tool that is needed cannot be used; the message names it."""

    exit_status = 3


class Transient(Unavailable):
    """A passing fault: the same call may well succeed when repeated after a back-off."""


class Fenced(StandfastError):
    """A newer owner of the same work exists: nothing more may be written, and no retry helps."""

    exit_status = 4


class CorruptState(StandfastError):
    """Local state fails a check; it must be wiped and restored, never used or repaired in place."""

    exit_status = 5


class BrokenInvariant(StandfastError):
    """An invariant of standfast itself is broken. Always a bug: the process shows its last events and ends."""

    exit_status = 70
