"""What else a machine did during a failover: what was started, compiled and moved, and which processes used the CPU.

The data comes from ``/proc`` and from the event log; the measured processes are not queried.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import psutil

from demo.events import Event
from demo.hosts import Hosts
from standby.shared.naming import POOL

#: What ids of containers begin with, on YARN and on a pool.
_CONTAINERS: Final = ("container_", f"{POOL}_")

#: Names of a JVM's threads that compile, as Linux cuts them to fifteen characters.
_COMPILERS: Final = ("C1 CompilerThre", "C2 CompilerThre")

#: Entries of the event log for something that was begun during a failover.
_BEGUN: Final = frozenset(
    {
        *("container_requested", "request_granted", "container_registered", "container_released"),
        *("decided_bind", "decided_move", "decided_drop", "handover_started"),
    }
)


@dataclass(frozen=True, slots=True)
class Used:
    """One process: its identity, its start, and what it has used since then."""

    name: str
    """The container it belongs to, or the server."""
    is_jvm: bool
    begun: float
    """Unix seconds."""
    cpu_seconds: float
    compiling_seconds: float
    """CPU time of its compiler threads; only of a JVM."""


#: Process → what it has used, at one moment.
Moment = Mapping[int, Used]


def look(cluster: Hosts) -> Moment:
    """Return what every process of the cluster has used so far."""
    names = {each.pid: each.container_id or f"other on {each.host}" for each in cluster.container_processes()}
    names |= {each.pid: each.name for each in cluster.status().servers if each.pid is not None}
    found = {}
    for pid, name in names.items():
        with suppress(psutil.Error, OSError):
            found[pid] = _used(psutil.Process(pid), name)
    return found


def _used(process: psutil.Process, name: str) -> Used:
    with process.oneshot():
        times = process.cpu_times()
        is_jvm = process.name() == "java"
        compiling = 0.0
        if is_jvm:
            for each in process.threads():
                with suppress(OSError):
                    if _thread_name(process.pid, each.id).startswith(_COMPILERS):
                        compiling += each.user_time + each.system_time
        return Used(name, is_jvm, process.create_time(), times.user + times.system, compiling)


def _thread_name(pid: int, thread: int) -> str:
    with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:  # noqa: PTH123 (as short as it gets)
        return file.read().strip()


def beside(before: Moment, after: Moment, begun_ms: int, promoted: Iterable[str]) -> dict[str, Any]:
    """Return what was used between two moments, with a failure at ``begun_ms`` (Unix milliseconds) after the first.

    ``promoted`` are the containers that took over. Seconds are CPU time; processes that ended between the two moments
    are not included.
    """
    names = set(promoted)
    cpu: defaultdict[str, float] = defaultdict(float)
    compiling = compiling_promoted = 0.0
    started = []
    ages = []
    for pid, now in after.items():
        then = before.get(pid)
        if then is None or then.begun != now.begun:
            # A new process with the same id, which has used nothing before.
            then = Used(now.name, now.is_jvm, now.begun, 0.0, 0.0)
            is_started = True
        else:
            is_started = False
        used = now.cpu_seconds - then.cpu_seconds
        compiled = now.compiling_seconds - then.compiling_seconds
        cpu[
            "promoted"
            if now.name in names
            else "other containers"
            if now.name.startswith(_CONTAINERS)
            else now.name
        ] += used
        compiling += compiled
        if now.name in names:
            compiling_promoted += compiled
            if now.is_jvm:
                ages.append(begun_ms / 1_000 - now.begun)
        if is_started:
            started.append({"name": now.name, "is_jvm": now.is_jvm, "cpu_seconds": round(used, 2)})
    return {
        "promoted_jvm_age_seconds": [round(each, 1) for each in sorted(ages)],
        "started": sorted(started, key=lambda each: -float(each["cpu_seconds"])),
        "compiling_cpu_seconds": {"promoted": round(compiling_promoted, 2), "all": round(compiling, 2)},
        "cpu_seconds": {
            name: round(seconds, 2)
            for name, seconds in sorted(cpu.items(), key=lambda each: -each[1])
            if seconds >= 0.01
        },
    }


def begun_beside(events: Iterable[Event], since_ms: int, until_ms: int) -> dict[str, int]:
    """Return the number of entries of each kind between two times, Unix milliseconds, from the event log."""
    found = Counter(
        each.kind for each in events if since_ms <= each.at_ms <= until_ms and each.kind in _BEGUN
    )
    return dict(found.most_common())
