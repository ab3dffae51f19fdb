"""Which of a host's state directories a task's state is used from, and which one new state goes to."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from standby.errors import CorruptState, Transient, Unavailable
from standby.kernel.store.store import TaskStore, read_side_file

_log: Final = logging.getLogger(__name__)

#: With less room than this a disk takes no new state, and state on it is not gone on with when another disk has
#: room: one flush of what the database has in memory may need as much.
_LEAST_FREE_BYTES: Final = 128 << 20

#: Opens what is in a directory: None when there is nothing, `CorruptState` when it may not be used.
OpenExisting = Callable[[Path], "TaskStore | None"]


def free_bytes(directory: Path) -> int | None:
    """Return the room on the disk that ``directory`` is on, or will be; None when nothing can be written there.

    It asks by writing: a disk that failed is read-only for everybody, and root may write everywhere else.
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
        _log.warning("%s: nothing can be written there: %s", root, error.strerror or error)
        return None


def open_found(
    directories: Sequence[Path], open_existing: OpenExisting, least_free: int = _LEAST_FREE_BYTES
) -> TaskStore | None:
    """Return the freshest usable state of a task in any of its directories; None when there is none.

    One on a disk that is full or broken is passed over when another directory can take the state. Raises
    `Transient` while another process holds one of them, for then it is at work there.
    """
    found = sorted(_found(directories), key=lambda each: -each[1])
    if not found:
        return None
    rooms = {each: free_bytes(each) for each in directories}
    has_other = any((room or 0) >= least_free for room in rooms.values())
    for directory, _ in found:
        if has_other and (rooms[directory] or 0) < least_free:
            _log.warning("%s: not gone on with: its disk has no room, and another one has", directory)
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


def by_room(directories: Sequence[Path], least_free: int = _LEAST_FREE_BYTES) -> list[Path]:
    """Return the directories that can take new state, most room first; those with too little behind them.

    Raises `Unavailable` when nothing can be written to any.
    """
    rooms = {each: free_bytes(each) for each in directories}
    usable = [each for each, room in rooms.items() if room is not None]
    if not usable:
        raise Unavailable(f"{', '.join(map(str, directories))}: no state can be written there")
    # In steps, so that a few bytes more or less do not spread what lies well together.
    steps = {each: (rooms[each] or 0) // least_free for each in usable}
    return sorted(usable, key=lambda each: -steps[each])


def _found(directories: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Yield the directories with state, and how far that was when it was last flushed."""
    for each in directories:
        with contextlib.suppress(Unavailable):
            side = read_side_file(each)
            if side is not None:
                yield each, side.offset
