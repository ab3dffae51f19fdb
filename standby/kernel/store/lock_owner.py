"""Says beside a task's state who has it open, for whoever finds it locked.

A lock tells only that there is somebody. Where several hosts share one state directory, by a symbolic link or a network
file system, that one may be on another host, and wait for nobody.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from standby.kernel.ports import InUse

#: Name of the file in a task's state directory.
OWNER_FILE: Final = "owner.json"


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Who holds, or held, a task's state."""

    host: str
    container: str
    pid: int

    def __str__(self) -> str:
        """Return it for a message."""
        container = f"container {self.container}" if self.container else "a container"
        return f"{container} of host {self.host} (process {self.pid})"


def note_owner(directory: Path, host: str, container: str) -> None:
    """Write down that this process holds the state in ``directory``; never raises: only a message depends on it."""
    file = directory / OWNER_FILE
    scratch = file.with_suffix(".new")
    content = {"host": host, "container": container, "pid": os.getpid()}
    with suppress(OSError):
        scratch.write_text(json.dumps(content), encoding="utf-8")
        scratch.replace(file)


def read_owner(directory: Path) -> LockOwner | None:
    """Return who wrote down that he holds the state in ``directory``; None when nobody did."""
    try:
        content = json.loads((directory / OWNER_FILE).read_text(encoding="utf-8"))
        return LockOwner(str(content["host"]), str(content["container"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def told_in_use(error: InUse, host: str) -> str:
    """Return what is said of a state that another process holds, seen from ``host``."""
    directory = error.path.parent
    owner = read_owner(directory)
    if owner is None:
        return f"{directory} is in use by another process"
    said = f"{directory} is in use by {owner}"
    if owner.host != host:
        said += f", and this is host {host}: job.state.dir must not be shared by several hosts"
    return said
