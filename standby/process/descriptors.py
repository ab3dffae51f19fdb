"""How many files a process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress


def allow_most() -> None:
    """Allow this process, and those that it starts, as many open files as its hard limit says.

    The soft limit is 1,024 for a service of systemd, by default, because of programs that use select(). A JVM raises it
    in the same way.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
