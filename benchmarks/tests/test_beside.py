"""What a failover's report says of everything else that went on meanwhile."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import psutil

from benchmarks.beside import Used, _used, begun_beside, beside
from demo.events import Event

PROMOTED = Used("container_1_01_000002", is_jvm=True, begun=900.0, cpu_seconds=40.0, compiling_seconds=12.0)
OTHER = Used("container_1_01_000003", is_jvm=False, begun=905.0, cpu_seconds=3.0, compiling_seconds=0.0)
BROKER = Used("kafka", is_jvm=True, begun=800.0, cpu_seconds=100.0, compiling_seconds=9.0)


def test_use_is_counted_by_whose_it_was() -> None:
    before = {2: PROMOTED, 3: OTHER, 9: BROKER}
    after = {
        2: replace(PROMOTED, cpu_seconds=41.5, compiling_seconds=12.25),
        3: replace(OTHER, cpu_seconds=3.5),
        # The number of a process that has ended was given to another one.
        9: replace(BROKER, begun=1_000.5, cpu_seconds=0.5, compiling_seconds=0.25),
        4: Used(
            "pool_10.77.0.12-1eb968e845cf", is_jvm=True, begun=1_001.0, cpu_seconds=2.0, compiling_seconds=1.0
        ),
    }
    found = beside(before, after, begun_ms=1_000_000, promoted=[PROMOTED.name])
    assert found == {
        "promoted_jvm_age_seconds": [100.0],
        "started": [
            {"name": "pool_10.77.0.12-1eb968e845cf", "is_jvm": True, "cpu_seconds": 2.0},
            {"name": "kafka", "is_jvm": True, "cpu_seconds": 0.5},
        ],
        "compiling_cpu_seconds": {"promoted": 0.25, "all": 1.5},
        "cpu_seconds": {"other containers": 2.5, "promoted": 1.5, "kafka": 0.5},
    }


def test_entries_of_the_log_count_that_tell_of_a_beginning_in_that_time() -> None:
    events = [
        Event(at_ms, kind)
        for at_ms, kind in (
            (999, "container_requested"),
            (1_000, "container_requested"),
            (1_200, "container_requested"),
            (1_300, "failover_finished"),
            (1_400, "decided_move"),
            (1_501, "decided_move"),
        )
    ]
    assert begun_beside(events, 1_000, 1_500) == {"container_requested": 2, "decided_move": 1}


def test_process_is_known_by_its_use() -> None:
    running = threading.Event()
    worker = threading.Thread(target=running.wait)
    worker.start()
    found = _used(psutil.Process(os.getpid()), "own")
    running.set()
    worker.join()
    assert (found.name, found.is_jvm, found.compiling_seconds) == ("own", False, 0.0)
    assert found.cpu_seconds > 0
