"""Records beside a task's state which process has it open, for error messages of processes that find it locked.

A lock does not show who holds it. If several hosts share one state directory, through a symbolic link or a network
file system, the holder may be on another host.
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
    """The process that holds, or held, a task's state."""

    host: str
    container: str
    pid: int

    def __str__(self) -> str:
        """Return a description for messages."""
        container = f"container {self.container}" if self.container else "a container"
        return f"{container} of host {self.host} (process {self.pid})"


def note_owner(directory: Path, host: str, container: str) -> None:
    """Record that this process holds the state in ``directory``. Never raises: it only serves messages."""
    file = directory / OWNER_FILE
    scratch = file.with_suffix(".new")
    content = {"host": host, "container": container, "pid": os.getpid()}
    with suppress(OSError):
        scratch.write_text(json.dumps(content), encoding="utf-8")
        scratch.replace(file)


def read_owner(directory: Path) -> LockOwner | None:
    """Return the recorded holder of the state in ``directory``; None when there is none."""
    try:
        content = json.loads((directory / OWNER_FILE).read_text(encoding="utf-8"))
        return LockOwner(str(content["host"]), str(content["container"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def in_use_text(error: InUse, host: str) -> str:
    """Return the message about a state that another process holds, as seen from ``host``."""
    directory = error.path.parent
    owner = read_owner(directory)
    if owner is None:
        return f"{directory} is in use by another process"
    said = f"{directory} is in use by {owner}"
    if owner.host != host:
        said += f", and this is host {host}: job.state.dir must not be shared by several hosts"
    return said
