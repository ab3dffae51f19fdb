"""Child processes of a container; the container must end when one of them dies (rule `never-block`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import psutil


class EndedChild(NamedTuple):
    """A child that has ended."""

    pid: int
    status: int | None
    """Its exit code, or the negated signal number; None: the status has been collected elsewhere."""


class Children:
    """Remembers each child as a process object, because its pid may be reused."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}

    def forget(self, pids: Iterable[int]) -> None:
        """Ask no more about these: they are ended in order."""
        for pid in pids:
            self._processes.pop(pid, None)

    def dead(self, pids: Iterable[int]) -> EndedChild | None:
        """Return a dead child among these and those of earlier calls; None when all are alive.

        One that cannot be looked at now, for want of descriptors, is looked at again by the next call.
        """
        for pid in dict.fromkeys((*self._processes, *pids)):
            try:
                if pid not in self._processes:
                    self._processes[pid] = psutil.Process(pid)
                process = self._processes[pid]
                if not process.is_running():
                    return EndedChild(pid, None)
                if process.status() == psutil.STATUS_ZOMBIE:
                    return EndedChild(pid, process.wait(0))
            except psutil.NoSuchProcess:
                return EndedChild(pid, None)
            except OSError:
                pass
        return None
