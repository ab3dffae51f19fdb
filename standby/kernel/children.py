"""The processes that a container has started, and whose death is its own (rule `never-block`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import psutil


class Dead(NamedTuple):
    """A child that has ended."""

    pid: int
    status: int | None
    """Its exit code, or minus its signal; None: somebody else has asked for it already."""


class Children:
    """Remembers each child as the process that it was: its number may be given to another one."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}

    def dead(self, pids: Iterable[int]) -> Dead | None:
        """Return one that is dead, of these and of those asked for before; None when all live."""
        for pid in pids:
            if pid not in self._processes:
                try:
                    self._processes[pid] = psutil.Process(pid)
                except psutil.NoSuchProcess:
                    return Dead(pid, None)
        for pid, process in self._processes.items():
            if not process.is_running():
                return Dead(pid, None)
            if process.status() == psutil.STATUS_ZOMBIE:
                return Dead(pid, process.wait(0))
        return None
