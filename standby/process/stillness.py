"""Whether a process stands still by itself, as the process beside it sees it.

A process that gets no processor time is silent, too, and comes back. One that accepts no connection although *none of
its threads has work to do* is stopped, or hangs: for example, a thread holds the interpreter's lock and sleeps.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

#: Threads in these states of ``/proc`` have nothing to do: they sleep, or are stopped by a signal or by a debugger.
#: The others run or are ready to, wait for a disk or for memory that is on one, or end.
_AT_REST: Final = frozenset(b"STt")

#: Looks at all threads, one directly after the other. Threads that wait for a lock may wake up for a moment to try
#: again; one that has work to do is seen in each of them.
_LOOKS: Final = 3


def is_at_rest(pid: int) -> bool:
    """Return whether no thread of a process has work to do; False if that is not known."""
    return any(_is_at_rest(pid) for _ in range(_LOOKS))


def _is_at_rest(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task")
    try:
        threads = os.listdir(tasks)
    except OSError:
        return False
    for each in threads:
        # Threads that end meanwhile do not count.
        with contextlib.suppress(OSError):
            # The name, in parentheses, may contain anything.
            _, _, fields = (tasks / each / "stat").read_bytes().rpartition(b")")
            if fields.split(maxsplit=1)[0][0] not in _AT_REST:
                return False
    return bool(threads)
