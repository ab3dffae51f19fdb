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
_STOPPED: Final = frozenset(b"Tt")
_AT_REST: Final = _STOPPED | frozenset(b"S")

#: Looks at all threads, one directly after the other. Threads that wait for a lock may wake up for a moment to try
#: again; one that has work to do is seen in each of them.
_LOOKS: Final = 3


def is_at_rest(pid: int) -> bool:
    """Return whether no thread of a process has work to do; False if that is not known."""
    return any(_are_at_rest(_states(pid)) for _ in range(_LOOKS))


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, also if one of its threads has yet to stop; False if that is not known."""
    return any(each in _STOPPED for each in _states(pid))


def state_of(stat: bytes) -> int:
    """Return the letter of a thread's state, from its ``stat``."""
    # The name, in parentheses, may contain anything.
    return stat.rpartition(b")")[2].split(maxsplit=1)[0][0]


def _are_at_rest(states: list[int]) -> bool:
    return bool(states) and _AT_REST.issuperset(states)


def _states(pid: int) -> list[int]:
    """Return the state of each thread of a process; those that end meanwhile do not count."""
    tasks, states = Path(f"/proc/{pid}/task"), []
    with contextlib.suppress(OSError):
        for each in os.listdir(tasks):
            with contextlib.suppress(OSError):
                states.append(state_of((tasks / each / "stat").read_bytes()))
    return states
