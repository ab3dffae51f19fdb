"""Deletes unusable state from a host's directories (rule `old-state`: strays are deleted after a delay)."""

from __future__ import annotations

import fcntl
import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standby.errors import CorruptState
from standby.kernel.restore.fetch import FETCHES, LOCK
from standby.kernel.restore.snapshots import LEASE, LEASE_SECONDS, SNAPSHOTS
from standby.kernel.store.directories import remove_empty
from standby.kernel.store.leftovers import is_locked
from standby.replica.store.origin import DATABASE, SIDE_FILE, Origin, decode_origin, is_too_old
from standby.shared.model import TaskId
from standby.shared.naming import escape

_log: Final = logging.getLogger(__name__)

#: Interval between two scans; what is deleted has been unused for much longer.
_INTERVAL_SECONDS: Final = 600.0


#: What a state belongs to: task, run, and the id of the changelog. Offsets of different changelogs cannot be compared.
_Of = tuple[TaskId, str, str]

#: Not the directory of any task.
_NOWHERE: Final = Path()


@dataclass(frozen=True, slots=True)
class StateInUse:
    """What a container knows about state in use."""

    held: Mapping[TaskId, Path | None]
    """Tasks that it holds → the directory of their open state; None: undecided, the state is being opened."""
    runs: Mapping[str, str]
    """Job → its current run, for the jobs that the container knows."""
    directories: tuple[Path, ...] = ()
    """State directories of the jobs that it runs, besides those of the cluster."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The location of the state of a cluster's tasks on a host."""

    directories: tuple[Path, ...]
    cluster: str
    host: str


class Strays:
    """Scans the state directories of one host periodically, on a thread of its own."""

    def __init__(
        self,
        roots: Roots,
        known: Callable[[], StateInUse],
        opening: threading.Lock,
        clock: Callable[[], int],
        delay_ms: int,
    ) -> None:
        """``opening`` is held while this process opens a database; ``clock`` returns Unix milliseconds."""
        self._directories = roots.directories
        self._of_cluster = Path(escape(roots.cluster), escape(roots.host))
        self._known = known
        self._opening = opening
        self._clock = clock
        self._delay_ms = delay_ms
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strays", daemon=True)

    def start(self) -> None:
        """Start; the first scan is delayed, because it is not known yet what is in use."""
        self._thread.start()

    def close(self) -> None:
        """Stop scanning."""
        self._is_over.set()

    def clear(self) -> list[Path]:
        """Delete every stray; return their directories."""
        gone = []
        # A job may name a directory of the cluster in another way, by a symbolic link.
        tops = dict.fromkeys(each.resolve() for each in (*self._directories, *self._known().directories))
        roots = [each / self._of_cluster for each in tops]
        for each in (*self._clear_lent(roots), *self._clear_fetches(roots), *self._clear_states(roots)):
            gone.append(each)
            top = next(top for top in tops if each.is_relative_to(top))
            remove_empty(each.parent, state_dir=top)
        return gone

    def _run(self) -> None:
        while not self._is_over.wait(_INTERVAL_SECONDS):
            try:
                self.clear()
            except Exception:  # noqa: BLE001 - this thread's outermost loop: the next scan may succeed
                _log.warning("looking for strays failed", exc_info=True)

    def _clear_states(self, roots: Iterable[Path]) -> Iterator[Path]:
        """Delete states of tasks, one by one."""
        found = [(file.parent, _origin_of(file)) for root in roots for file in _glob(root, "*/*/*")]
        freshest: dict[_Of, int] = {}
        for _, origin in found:
            if origin is not None:
                freshest[_of(origin)] = max(freshest.get(_of(origin), 0), origin.offset)
        for directory, origin in found:
            # Testing a lock that this process holds would release it when the file is closed (POSIX). So no database
            # may be opened in this process meanwhile, and the held tasks are read only now.
            with self._opening:
                known = self._known()
                places = {each.resolve() for each in known.held.values() if each is not None}
                is_opening = origin is not None and known.held.get(origin.task, _NOWHERE) is None
                if directory in places or is_opening:
                    continue
                reason = self._reason(directory, origin, known, freshest)
                if reason and not is_locked(directory / DATABASE / "LOCK") and _delete(directory, reason):
                    yield directory

    def _reason(
        self,
        directory: Path,
        origin: Origin | None,
        known: StateInUse,
        freshest: Mapping[_Of, int],
    ) -> str:
        """Return why a state is a stray; empty when it is not one, or not for long enough."""
        now_ms = self._clock()
        if now_ms - _touched_ms(directory) < self._delay_ms:
            return ""
        if origin is None:
            return "its task is unknown"
        if is_too_old(origin.caught_up_ms, origin.retention_ms, now_ms):
            return "it is older than the changelog's tombstones"
        if known.runs.get(origin.job, origin.run) != origin.run:
            return f"it belongs to run {origin.run}, but the job is at run {known.runs[origin.job]}"
        if origin.task in known.held:
            return f"the task's state is in use in {known.held[origin.task]}"
        if origin.offset < freshest[_of(origin)]:
            return "there is a fresher one on another disk"
        return ""

    def _clear_lent(self, roots: Iterable[Path]) -> Iterator[Path]:
        """Delete copies lent by a dead process: they pin disk space that the database has released."""
        for root in roots:
            for lease in _glob(root, f"*/*/{SNAPSHOTS}/*", LEASE):
                is_old = self._clock() - _touched_ms(lease.parent) > 2000 * LEASE_SECONDS
                if not is_old:
                    continue
                with _locked(lease) as is_ours:
                    if is_ours and _delete(lease.parent, "the process that lent it is dead"):
                        yield lease.parent

    def _clear_fetches(self, roots: Iterable[Path]) -> Iterator[Path]:
        """Delete partial fetches that were abandoned, and the locks of those that are over."""
        for lock in (each for root in roots for each in _glob(root, f"*/*/{FETCHES}", f"*{LOCK}")):
            scratch = lock.with_name(lock.name.removesuffix(LOCK))
            touched_ms = _touched_ms(scratch / DATABASE) or _touched_ms(lock)
            if self._clock() - touched_ms <= self._delay_ms:
                continue  # without its lock, which a fetch that begins now needs
            with _locked(lock) as is_ours:
                if not is_ours:
                    continue
                has_data = scratch.exists()
                if not has_data or _delete(scratch, "its fetch was abandoned"):
                    lock.unlink(missing_ok=True)
                    yield scratch if has_data else lock


def _of(origin: Origin) -> _Of:
    return origin.task, origin.run, origin.topic_id


def _glob(root: Path, pattern: str, name: str = "") -> list[Path]:
    """Return the paths that match; for task states, those with a side file or a database."""
    try:
        if name:
            return sorted(root.glob(f"{pattern}/{name}"))
        found = {each.parent for end in (SIDE_FILE, DATABASE) for each in root.glob(f"{pattern}/{end}")}
        return sorted(each / SIDE_FILE for each in found if each.name not in (SNAPSHOTS, FETCHES))
    except OSError as error:
        _log.warning("looking for strays below %s: %s", root, error)
        return []


def _origin_of(file: Path) -> Origin | None:
    try:
        return decode_origin(file.read_bytes())
    except (CorruptState, OSError):
        return None


def _touched_ms(directory: Path) -> int:
    """Return when the directory, its side file or its database last changed."""
    times = [0]
    for each in (directory, directory / SIDE_FILE, directory / DATABASE):
        with suppress(OSError):
            times.append(each.stat().st_mtime_ns // 1_000_000)
    return max(times)


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Yield whether the file could be locked: then no other process has it during the block."""
    with ExitStack() as held:
        try:
            fcntl.flock(held.enter_context(file.open("rb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except OSError:
            is_ours = False
        yield is_ours


def _delete(directory: Path, reason: str) -> bool:
    try:
        shutil.rmtree(directory)
    except OSError as error:
        _log.warning("%s cannot be deleted (%s): %s", directory, reason, error)
        return False
    _log.info("%s is deleted: %s", directory, reason)
    return True
