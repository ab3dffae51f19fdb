"""Which embedded clusters there are on this machine, and the end of each.

A cluster has a directory, a lock next to it, and in it a file with the id that marks all its processes. With
that file alone a cluster can be ended, whatever happened to whoever started it.
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
from embedded.machine.processes import Owned, boot_id, is_alive
from embedded.places import clusters_directory
from embedded.state import load
from standby.errors import BadConfiguration, StandfastError, Unavailable

ID_FILE: Final = "cluster-id"

#: How long a command waits for another one's change; all but a start are done in less.
PATIENCE_SECONDS: Final = 10.0

# Short, because the paths of Unix sockets have to be.
_NAME: Final = re.compile("[a-z0-9][a-z0-9-]{0,30}")


def names(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the clusters that somebody started and nobody ended."""
    directory = clusters_directory(os.environ if environment is None else environment)
    found = (each.parent.name for each in directory.glob(f"*/{ID_FILE}"))
    # While one is removed, its directory has a name that no cluster can have.
    return sorted(name for name in found if _NAME.fullmatch(name))


def end(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """End the cluster of that name, whatever is left of it; return whether there was anything."""
    directory = cluster_directory(name, os.environ if environment is None else environment)
    with locked(directory, PATIENCE_SECONDS):
        return remove(directory)


def end_abandoned(environment: Mapping[str, str] | None = None) -> None:
    """End the temporary clusters whose starters have ended without doing so."""
    environment = os.environ if environment is None else environment
    for name in names(environment):
        state = load(cluster_directory(name, environment))
        if state is not None and state.is_temporary and not is_alive(state.owner):
            # Somebody else may be at it; then it is done.
            with contextlib.suppress(StandfastError):
                end(name, environment)


def cluster_directory(name: str, environment: Mapping[str, str]) -> Path:
    """Return the directory of the cluster of that name; raises :class:`BadConfiguration` for a name that cannot be."""
    if not _NAME.fullmatch(name):
        raise BadConfiguration(f"{name!r} cannot be a cluster's name: up to 31 of a-z, 0-9 and - can")
    return clusters_directory(environment) / name


@contextlib.contextmanager
def locked(directory: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Keep every other command from changing the same cluster; whoever dies lets go.

    Raises :class:`Unavailable` when another one does so for longer than ``patience_seconds``.
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
            f"{path.parent} cannot be written ({error.strerror}): let STANDFAST_HOME name a directory that can"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one who held it may have removed it with the cluster; then this is nobody's lock any more.
        if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    lock.close()
    return None


def _lock_file(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.lock")


def remove_leftover(directory: Path, name: str) -> None:
    """Remove what an earlier cluster left in ``directory``; raises :class:`BadConfiguration` when it is up."""
    state = load(directory)
    if state is not None and state.is_complete and state.boot_id == boot_id():
        is_abandoned = state.is_temporary and not is_alive(state.owner)
        if not is_abandoned and any(map(is_alive, state.servers.values())):
            raise BadConfiguration(f"the embedded cluster {name!r} is up: standfast local down --name {name}")
    remove(directory)


def remove(directory: Path) -> bool:
    """Kill every process of the cluster in ``directory`` and remove it; return whether there was anything."""
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
    # Under another name first, so that nobody takes half of it for a cluster.
    gone = directory.with_name(f"{directory.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return True
