"""The process and its children: memory and CPU usage, killing children, and garbage collection."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import psutil

#: Scanning all processes of a host takes milliseconds: too long for the control thread, and for each report.
_INTERVAL_SECONDS: Final = 2.0

#: A batch creates tens of thousands of tuples without cycles. With Python's default of 700, the search for cycles
#: among them took a quarter of a batch's time (docs/benchmarks.md).
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Resource usage of a process and its children."""

    rss_bytes: int = 0
    """Of the process itself."""
    children_rss_bytes: int = 0
    """Of its descendants: the JVM, Spark's Python workers."""
    children: int = 0
    cpu_seconds: float = 0.0
    """User and system time, of the process itself."""
    children_cpu_seconds: float = 0.0
    """Of all children seen so far, including those that have ended; it never falls."""
    threads: int = 0
    open_files: int = 0

    @property
    def total_rss_bytes(self) -> int:
        """The resident memory of all of them."""
        return self.rss_bytes + self.children_rss_bytes


#: A process: its id, which may be reused later, and its start time.
_Child = tuple[int, float]


class ChildrenTime:
    """Sums the CPU time of children beyond their ends. Used by one thread.

    The time that a child uses between its last measurement and its end is not counted.
    """

    def __init__(self) -> None:
        self._ended = 0.0
        self._living: dict[_Child, float] = {}

    def seen(self, living: Mapping[_Child, float | None]) -> float:
        """Return the time of all children so far; ``living``: the time of each live child, None if unreadable."""
        for child, used in self._living.items():
            if child not in living:
                self._ended += used
        self._living = {
            child: used if used is not None else self._living.get(child, 0.0)
            for child, used in living.items()
        }
        return self._ended + sum(self._living.values())


def measure(children: ChildrenTime) -> ProcessFigures:
    """Return the current resource usage of this process and its children; ``children`` is kept between calls."""
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
    """Kill all descendants of this process: a JVM must not outlive its container."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def collect_garbage_rarely() -> None:
    """Make Python collect garbage about once per batch; for processes that run batches or replay."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


class ProcessMeter:
    """Measures every few seconds on a thread of its own."""

    def __init__(self) -> None:
        self._figures = ProcessFigures()
        self._children = ChildrenTime()

    @property
    def figures(self) -> ProcessFigures:
        """The last measurement."""
        return self._figures

    def start(self) -> None:
        """Measure once, then start measuring periodically."""
        self.look()
        threading.Thread(target=self._measure, name="meter", daemon=True).start()

    def look(self) -> None:
        """Measure now; the former figures stay if that fails, for example for want of descriptors."""
        with contextlib.suppress(psutil.Error, OSError):
            self._figures = measure(self._children)

    def _measure(self) -> None:
        pause = threading.Event()
        while not pause.wait(_INTERVAL_SECONDS):
            self.look()
