"""The process and its children: memory and CPU in use, ending them, and how Python keeps house."""

from __future__ import annotations

import contextlib
import gc
import threading
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
    """Of the children that live now."""
    threads: int = 0
    open_files: int = 0

    @property
    def total_rss_bytes(self) -> int:
        """Return the resident memory of all of them."""
        return self.rss_bytes + self.children_rss_bytes


def measure() -> ProcessFigures:
    """Return what this process and its children use now."""
    own = psutil.Process()
    with own.oneshot():
        times = own.cpu_times()
        rss, threads, files = own.memory_info().rss, own.num_threads(), own.num_fds()
    children_rss, children_cpu, count = 0, 0.0, 0
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.Error), child.oneshot():
            spent = child.cpu_times()
            children_rss += child.memory_info().rss
            children_cpu += spent.user + spent.system
            count += 1
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

    @property
    def figures(self) -> ProcessFigures:
        """Return the last measurement."""
        return self._figures

    def start(self) -> None:
        """Measure once, then begin to do so regularly."""
        self._figures = measure()
        threading.Thread(target=self._measure, name="meter", daemon=True).start()

    def _measure(self) -> None:
        pause = threading.Event()
        while not pause.wait(_INTERVAL_SECONDS):
            with contextlib.suppress(psutil.Error):
                self._figures = measure()
