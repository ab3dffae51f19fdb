"""The process and its children: memory and CPU in use, ending them, and how Python keeps house."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import psutil

#: Looking through all processes of a host takes milliseconds: not on the control thread, not at each report.
_INTERVAL_SECONDS: Final = 2.0

#: A batch makes tens of thousands of tuples that reference nothing. After each 700 of them, Python's default, it
#: would look for cycles among them: a quarter of a batch's time (docs/benchmarks.md).
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What a process and its children use."""

    rss_bytes: int = 0
    """Of the process itself."""
    children_rss_bytes: int = 0
    """Of its children and theirs: the JVM, Spark's Python workers."""
    children: int = 0
    cpu_seconds: float = 0.0
    """User and system time, of the process itself."""
    children_cpu_seconds: float = 0.0
    """Of all children that were seen, those included that have ended; it never falls."""
    threads: int = 0
    open_files: int = 0

    @property
    def total_rss_bytes(self) -> int:
        """Return the resident memory of all of them."""
        return self.rss_bytes + self.children_rss_bytes


#: A process: its id, which another one may have later, and when it began.
_Child = tuple[int, float]


class ChildrenTime:
    """Adds up the CPU time of children over their ends; one thread asks.

    What a child uses between the last look at it and its end is not counted.
    """

    def __init__(self) -> None:
        self._ended = 0.0
        self._living: dict[_Child, float] = {}

    def seen(self, living: Mapping[_Child, float | None]) -> float:
        """Return the time of all children until now; ``living`` have used so much, None: it could not be read."""
        for child, used in self._living.items():
            if child not in living:
                self._ended += used
        self._living = {
            child: used if used is not None else self._living.get(child, 0.0)
            for child, used in living.items()
        }
        return self._ended + sum(self._living.values())


def measure(children: ChildrenTime) -> ProcessFigures:
    """Return what this process and its children use now; ``children`` is kept from one time to the next."""
    own = psutil.Process()
    with own.oneshot():
        times = own.cpu_times()
        rss, threads, files = own.memory_info().rss, own.num_threads(), own.num_fds()
    children_rss, count = 0, 0
    used: dict[_Child, float | None] = {}
    for child in own.children(recursive=True):
        key = (child.pid, child.create_time())
        used[key] = None
        with contextlib.suppress(psutil.Error), child.oneshot():
            spent = child.cpu_times()
            used[key] = spent.user + spent.system
            children_rss += child.memory_info().rss
            count += 1
    children_cpu = children.seen(used)
    return ProcessFigures(rss, children_rss, count, times.user + times.system, children_cpu, threads, files)


def end_children() -> None:
    """Kill every child of this process and theirs: a JVM must not go on without its container."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def collect_garbage_rarely() -> None:
    """Have Python look for reference cycles once in a batch or two; for processes that run batches or replay."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


class ProcessMeter:
    """Measures every few seconds on a thread of its own."""

    def __init__(self) -> None:
        self._figures = ProcessFigures()
        self._children = ChildrenTime()

    @property
    def figures(self) -> ProcessFigures:
        """Return the last measurement."""
        return self._figures

    def start(self) -> None:
        """Measure once, then begin to do so regularly."""
        self._figures = measure(self._children)
        threading.Thread(target=self._measure, name="meter", daemon=True).start()

    def _measure(self) -> None:
        pause = threading.Event()
        while not pause.wait(_INTERVAL_SECONDS):
            with contextlib.suppress(psutil.Error):
                self._figures = measure(self._children)
