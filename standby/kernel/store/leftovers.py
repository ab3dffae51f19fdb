"""Finds state that earlier containers left on a host (rule `old-state`)."""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from standby.errors import CorruptState
from standby.kernel.store.directories import remove_empty
from standby.replica.store.origin import DATABASE, SIDE_FILE, decode_origin, is_too_old
from standby.shared.model import Leftover, TaskId
from standby.shared.naming import escape, run_path

_log: Final = logging.getLogger(__name__)


def find_leftovers(
    state_dirs: Collection[Path], cluster: str, host: str, now_ms: int
) -> tuple[Leftover, ...]:
    """Return the state on this host that looks usable and is not open, as of ``now_ms`` (Unix ms).

    Must be called before this process opens any state: testing a lock that the process itself holds would release it
    (POSIX). Cheap: it reads side files and opens no database. So the real position may be higher, and the checks at
    opening may still refuse the state. Unreadable directories are skipped.
    """
    found: dict[tuple[TaskId, str], Leftover] = {}
    for directory in state_dirs:
        for leftover in _below(directory / escape(cluster) / escape(host), now_ms):
            key = leftover.task, leftover.run
            # If several disks have state, the freshest counts: it is the one that will be opened.
            if key not in found or found[key].position < leftover.position:
                found[key] = leftover
    return tuple(found[key] for key in sorted(found))


def purge_run(state_dirs: Collection[Path], cluster: str, host: str, job: str, run: str) -> bool:
    """Remove the state of a job's run from this host's disks, and directories that become empty.

    Returns whether nothing is left, except for state that another process has open: that process removes it when it
    ends. A disk that fails keeps its state. Must be called after this process has closed everything, because testing a
    lock that the process itself holds would release it (POSIX).
    """
    is_gone = True
    for directory in state_dirs:
        root = directory / run_path(cluster, host, job, run)
        try:
            found = sorted(root.iterdir()) if root.is_dir() else []
        except OSError as error:
            _log.warning("cannot remove the state of a deleted job in %s: %s", root, error)
            is_gone = False
            continue
        tasks = [each for each in found if not is_locked(each / DATABASE / "LOCK")]
        for task in tasks:
            # First of all, so that what is left if the process ends meanwhile is recognised as nobody's state.
            with suppress(OSError):
                (task / SIDE_FILE).unlink()
        for task in tasks:
            if (failure := _error_of_removal(task)) is not None:
                _log.warning("cannot remove the state of a deleted job in %s: %s", task, failure)
                is_gone = False
        remove_empty(root, state_dir=directory)
    return is_gone


def _error_of_removal(directory: Path) -> BaseException | None:
    """Remove all of a directory that can be removed; return the first error, if there is one.

    Other containers of the job on this host, which end at the same time, may be removing it, too.
    """
    errors: list[BaseException] = []

    def failed(_call: object, _path: str, raised: tuple[Any, BaseException, Any]) -> None:
        if not isinstance(raised[1], FileNotFoundError):
            errors.append(raised[1])

    shutil.rmtree(directory, onerror=failed)
    return next(iter(errors), None)


def _below(root: Path, now_ms: int) -> Iterator[Leftover]:
    try:
        files = sorted(root.glob(f"*/*/*/{SIDE_FILE}"))
    except OSError as error:
        _log.warning("looking for left-over state below %s: %s", root, error)
        return
    for file in files:
        try:
            origin = decode_origin(file.read_bytes())
        except (CorruptState, OSError) as error:
            _log.info("left-over state in %s is not usable: %s", file.parent, error)
            continue
        if is_too_old(origin.caught_up_ms, origin.retention_ms, now_ms):
            continue
        if not is_locked(file.parent / DATABASE / "LOCK"):
            yield Leftover(origin.task, origin.run, origin.offset, now_ms)


def is_locked(lock: Path) -> bool:
    """Return whether another process has the database open that ``lock`` belongs to.

    Must not be called for a database that this process has open or may be opening: that would release its lock.
    """
    try:
        with lock.open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True
