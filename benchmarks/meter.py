"""The resources that processes and their children have used, from the kernel's accounting."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.rounds import MARK

#: A process that uses less than this share of a core between two samples is idle.
_IDLE_SHARE: Final = 0.15
_LOOK_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 120.0


def cpu_seconds(pids: Collection[int] = ()) -> float:
    """Return user and system seconds of ``pids`` (default: this process) with their children, dead or alive.

    A process that has ended and whose parent has not waited for it is not included.
    """
    total = 0.0
    for each in _with_children(pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def resident_bytes(pids: Collection[int]) -> int:
    """Return the current memory of ``pids`` and their children; shared pages count for each of them."""
    total = 0
    for each in _with_children(pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += each.memory_info().rss
    return total


def peak_bytes(pids: Collection[int] = ()) -> int:
    """Return the highest resident memory of this process, or the sum of those of ``pids``."""
    total = 0
    for pid in pids or (psutil.Process().pid,):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                total += int(line.split()[1]) << 10
    return total


def settled_cpu_seconds() -> float:
    """Return `cpu_seconds` when background work (compaction) has ended, or after two minutes.

    Data that was written unsorted has to be sorted at some time, and this CPU time is part of the cost.
    """
    before, give_up = cpu_seconds(), time.monotonic() + _MOST_SECONDS
    quiet = 0
    while quiet < 2 and time.monotonic() < give_up:
        time.sleep(_LOOK_SECONDS)
        now = cpu_seconds()
        quiet = quiet + 1 if now - before < _IDLE_SHARE * _LOOK_SECONDS else 0
        before = now
    return before


def answer(content: dict[str, Any]) -> None:
    """Write the contestant's one line."""
    sys.stdout.write(json.dumps({MARK: 1, **content}) + "\n")
    sys.stdout.flush()


def _with_children(pids: Collection[int]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for pid in pids or (psutil.Process().pid,):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                found[each.pid] = each
    return list(found.values())
