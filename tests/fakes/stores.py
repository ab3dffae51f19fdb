"""A task's store as opened by a replica that finds state only in its own directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from standby.errors import CorruptState
from standby.kernel.ports import OpenDatabase
from standby.kernel.probes import Probe
from standby.kernel.store.store import TaskStore, open_empty, open_existing
from standby.replica.store.origin import Origin


def open_store(
    directory: Path,
    expected: Origin,
    bounds: tuple[int, int],
    now_ms: int,
    open_database: OpenDatabase,
    probe: Probe,
) -> TaskStore:
    """Return the state in ``directory`` when it may be used, else an empty one at the changelog's start."""
    with suppress(CorruptState):
        store = open_existing(directory, expected, bounds, now_ms, open_database, probe)
        if store is not None:
            return store
    return open_empty(directory, expected, bounds, now_ms, open_database, probe)
