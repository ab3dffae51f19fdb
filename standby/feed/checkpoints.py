"""Temporary checkpoint directories of streaming queries: in memory if the machine supports it."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Final

_PREFIX: Final = "standfast-checkpoint-"

#: Writing a checkpoint to a disk costs as much as a small micro-batch itself.
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (only directories with names of our own are made in it)


def new_checkpoint() -> Path:
    """Return a path for a new checkpoint; its name contains the id of this process."""
    return _place() / f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex}"


def sweep_checkpoints() -> None:
    """Remove the checkpoints of processes that were killed."""
    for path in _place().glob(f"{_PREFIX}*"):
        owner = path.name[len(_PREFIX) :].split("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(path, ignore_errors=True)


def _place() -> Path:
    return _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
