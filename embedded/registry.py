"""Lists and ends the embedded clusters of this machine.

A cluster has a directory and a lock next to it. A file in the directory has the id that marks all its processes.
That file is enough to end the cluster, even if the process that started it has died.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TextIO

from embedded.machine.aliases import remove_aliases
from embedded.machine.processes import Owned, boot_id, is_alive, process_info
from embedded.places import clusters_directory
from embedded.state import load
from standby.errors import BadConfiguration, StandfastError, Unavailable

ID_FILE: Final = "cluster-id"

#: How long a command waits for another command's change; only a start takes longer.
PATIENCE_SECONDS: Final = 10.0

# Short, because the paths of Unix sockets must be short.
_NAME: Final = re.compile("[a-z0-9][a-z0-9-]{0,30}")


def names(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the clusters that were started and not ended."""
    directory = clusters_directory(environment)
    found = (each.parent.name for each in directory.glob(f"*/{ID_FILE}"))
    # While a cluster is being removed, its directory has a name that no cluster can have.
    return sorted(name for name in found if _NAME.fullmatch(name))


def end(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """End the cluster of that name, even if it is incomplete; return whether anything existed."""
    directory = cluster_directory(name, environment)
    with locked(directory, PATIENCE_SECONDS):
        return remove(directory)


def end_own(name: str, environment: Mapping[str, str] = os.environ) -> None:
    """End the cluster of that name if this process has started it."""
    state, own = load(cluster_directory(name, environment)), process_info(os.getpid())
    if state is not None and own is not None and state.owner == own.identity:
        end(name, environment)


def end_abandoned(environment: Mapping[str, str] = os.environ) -> None:
    """End the temporary clusters whose starters have ended without doing so."""
    for name in names(environment):
        state = load(cluster_directory(name, environment))
        if state is not None and state.is_temporary and not is_alive(state.owner):
            # Another process may be ending it already.
            with contextlib.suppress(StandfastError):
                end(name, environment)


def cluster_directory(name: str, environment: Mapping[str, str]) -> Path:
    """Return the directory of the cluster of that name. Raises :class:`BadConfiguration` for an invalid name."""
    if not _NAME.fullmatch(name):
        raise BadConfiguration(f"{name!r} cannot be a cluster's name: up to 31 of a-z, 0-9 and - can")
    return clusters_directory(environment) / name


@contextlib.contextmanager
def locked(directory: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Prevent other commands from changing the same cluster; the lock is released when its process dies.

    Raises :class:`Unavailable` if another command holds the lock for longer than ``patience_seconds``.
    """
    deadline = time.monotonic() + patience_seconds
    while (lock := _try_lock(directory)) is None:
        if time.monotonic() >= deadline:
            raise Unavailable(f"another command is changing the embedded cluster {directory.name!r}")
        time.sleep(0.02)
    with lock:
        try:
            yield
        finally:
            if not directory.exists():
                _lock_file(directory).unlink(missing_ok=True)


def _try_lock(directory: Path) -> TextIO | None:
    path = _lock_file(directory)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise Unavailable(
            f"{path.parent} cannot be written ({error.strerror}): set STANDFAST_HOME to a writable directory"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The former holder may have removed the file with the cluster; a lock on a removed file protects nothing.
        if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    lock.close()
    return None


def _lock_file(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.lock")


def remove_leftover(directory: Path, name: str) -> None:
    """Remove what an earlier cluster left in ``directory``. Raises :class:`BadConfiguration` if it is up."""
    state = load(directory)
    if state is not None and state.is_complete and state.boot_id == boot_id():
        is_abandoned = state.is_temporary and not is_alive(state.owner)
        if not is_abandoned and any(map(is_alive, state.servers.values())):
            if state.is_temporary:
                # `local down` would take the servers away from whoever runs with them.
                raise BadConfiguration(
                    f"the embedded cluster {name!r} belongs to a command that runs (process {state.owner.pid}): give "
                    "this one another --name, or end that command first"
                )
            raise BadConfiguration(f"the embedded cluster {name!r} is up: standfast local down --name {name}")
    remove(directory)


def remove(directory: Path) -> bool:
    """Kill every process of the cluster in ``directory`` and remove it; return whether anything existed."""
    id_file = directory / ID_FILE
    if not directory.exists():
        return False
    if id_file.exists():
        state = load(directory)
        first = state.servers.values() if state is not None and state.boot_id == boot_id() else ()
        hosts = directory / "hosts"
        cluster_id = id_file.read_text(encoding="ascii").strip()
        owned = Owned(cluster_id, {each.name: each for each in hosts.iterdir()} if hosts.is_dir() else {})
        owned.kill(first=first)
        remove_aliases(cluster_id)
    # Renamed first, so that a partly removed directory is never taken for a cluster.
    gone = directory.with_name(f"{directory.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return True
