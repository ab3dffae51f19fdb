"""Chooses the state directory of a host from which a task's state is used, or where new state is placed."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from standby.errors import CorruptState, Transient, Unavailable
from standby.kernel.store.directories import content_bytes
from standby.kernel.store.store import TaskStore, read_side_file
from standby.replica.store.origin import DATABASE

_log: Final = logging.getLogger(__name__)

#: With less free space than this, a disk takes no new state, and state on it is not used if another disk has room for
#: it: one flush of the database's memory may need as much.
_LEAST_FREE_BYTES: Final = 128 << 20

#: Opens the state in a directory; None when there is none, raises `CorruptState` when it must not be used.
OpenExisting = Callable[[Path], "TaskStore | None"]


def free_bytes(directory: Path) -> int | None:
    """Return the free bytes on the disk of ``directory``, which need not exist; None when it is not writable.

    Tests by writing: permissions do not show that a failed disk is read-only, and root may write everywhere.
    """
    root = directory
    while not root.exists() and root != root.parent:
        root = root.parent
    try:
        with tempfile.TemporaryFile(dir=root) as probe:
            probe.write(b"\0" * 4096)
            probe.flush()
        return shutil.disk_usage(root).free
    except OSError as error:
        _log.warning("%s: not writable: %s", root, error.strerror or error)
        return None


def open_found(
    directories: Sequence[Path], open_existing: OpenExisting, least_free: int = _LEAST_FREE_BYTES
) -> TaskStore | None:
    """Return the freshest usable state of a task in any of its directories; None when there is none.

    State on a full or broken disk is skipped when another directory has room for all of it. Raises `Transient` while
    another process holds one of them, because that process is using it.
    """
    found = sorted(_found(directories), key=lambda each: -each[1])
    if not found:
        return None
    rooms = {each: free_bytes(each) for each in directories}
    most = max(room or 0 for room in rooms.values())
    for directory, _ in found:
        is_full = (rooms[directory] or 0) < least_free
        if is_full and most >= least_free + content_bytes(directory / DATABASE):
            _log.warning("%s: this state is skipped: its disk has no room, and another disk has", directory)
            continue
        try:
            store = open_existing(directory)
        except CorruptState as error:
            _log.warning("the state in %s is not used: %s", directory, error)
            continue
        except Transient:
            raise
        except Unavailable as error:
            if len(directories) == 1:
                raise
            _log.warning("the state in %s cannot be used: %s", directory, error)
            continue
        if store is not None:
            return store
    return None


def by_free_space(directories: Sequence[Path], least_free: int = _LEAST_FREE_BYTES) -> list[Path]:
    """Return the directories that can take new state, most free space first, those with too little last.

    Raises `Unavailable` when none is writable.
    """
    rooms = {each: free_bytes(each) for each in directories}
    usable = [each for each, room in rooms.items() if room is not None]
    if not usable:
        raise Unavailable(f"{', '.join(map(str, directories))}: no state can be written there")
    # Compared in steps, so that small differences do not scatter state over the disks.
    steps = {each: (rooms[each] or 0) // least_free for each in usable}
    return sorted(usable, key=lambda each: -steps[each])


def _found(directories: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Yield the directories with state, and the position of the state at its last flush."""
    for each in directories:
        with contextlib.suppress(Unavailable):
            side = read_side_file(each)
            if side is not None:
                yield each, side.offset
