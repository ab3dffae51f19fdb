"""What is written down of a running embedded cluster: ``<clusters>/<name>/cluster.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from embedded.processes import Identity
from standby.errors import Unavailable

FILE_NAME: Final = "cluster.json"


class State(msgspec.Struct, frozen=True):
    """All that another process needs to use, watch and end the cluster."""

    name: str
    #: The mark of its processes.
    cluster_id: str
    #: The run of the machine in which it was started.
    boot_id: str
    #: Who started it.
    owner: Identity
    #: Whether the end of its owner should be its own (clusters of tests).
    is_temporary: bool
    hosts: tuple[str, ...]
    host_memory_mb: int
    host_vcores: int
    #: Of each port's name, ``<server>.<purpose>``, its number.
    ports: dict[str, int]
    #: How many Kafka brokers there are.
    brokers: int = 1
    #: Of each server's name, the process that it was last started as.
    servers: dict[str, Identity] = {}
    #: Every server answered once.
    is_complete: bool = False


def load(directory: Path) -> State | None:
    """Return what is written down in a cluster's directory; None when there is nothing that can be read."""
    try:
        return msgspec.json.decode((directory / FILE_NAME).read_bytes(), type=State)
    except (OSError, msgspec.DecodeError):
        # Written in one step, so what cannot be read is of another version of this program.
        return None


def save(directory: Path, state: State) -> None:
    """Write the state down in one step; raises :class:`Unavailable`."""
    fresh = directory / f"{FILE_NAME}.new"
    try:
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
        fresh.replace(directory / FILE_NAME)
    except OSError as error:
        raise Unavailable(f"{directory} cannot be written: {error.strerror}") from error
