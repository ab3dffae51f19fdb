"""What is written down of a running embedded cluster, ``<clusters>/<name>/cluster.json``, and how it is at a moment."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from embedded.machine.processes import ProcessIdentity, send_signal
from standby.errors import Unavailable

FILE_NAME: Final = "cluster.json"


class ClusterState(msgspec.Struct, frozen=True):
    """All that another process needs to use, watch and end the cluster."""

    name: str
    #: The mark of its processes.
    cluster_id: str
    #: The run of the machine in which it was started.
    boot_id: str
    #: Who started it.
    owner: ProcessIdentity
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
    servers: dict[str, ProcessIdentity] = {}
    #: Every server answered once.
    is_complete: bool = False


def load(directory: Path) -> ClusterState | None:
    """Return what is written down in a cluster's directory; None when there is nothing that can be read."""
    try:
        return msgspec.json.decode((directory / FILE_NAME).read_bytes(), type=ClusterState)
    except (OSError, msgspec.DecodeError):
        # Written in one step, so what cannot be read is of another version of this program.
        return None


def save(directory: Path, state: ClusterState) -> None:
    """Write the state down in one step; raises :class:`Unavailable`."""
    fresh = directory / f"{FILE_NAME}.new"
    try:
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
        fresh.replace(directory / FILE_NAME)
    except OSError as error:
        raise Unavailable(f"{directory} cannot be written: {error.strerror}") from error


class ServerStatus(msgspec.Struct, frozen=True):
    """One server, now."""

    name: str
    #: running, stopped (by SIGSTOP) or dead.
    state: str
    pid: int | None
    ports: dict[str, int]
    memory_bytes: int
    uptime_seconds: float


class HostStatus(msgspec.Struct, frozen=True):
    """One host, now."""

    host: str
    #: running, stopped (by SIGSTOP) or dead: what is so.
    state: str
    #: RUNNING, LOST, …, UNKNOWN: what the ResourceManager believes.
    yarn_state: str
    containers: int
    container_processes: int
    container_memory_bytes: int


class ClusterStatus(msgspec.Struct, frozen=True):
    """The whole cluster, now."""

    name: str
    directory: str
    servers: tuple[ServerStatus, ...]
    hosts: tuple[HostStatus, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every server and every host runs."""
        return all(each.state == "running" for each in self.servers)


@dataclass(frozen=True, slots=True)
class ContainerProcess:
    """A process inside a YARN container."""

    identity: ProcessIdentity
    host: str
    container_id: str
    command: tuple[str, ...]
    memory_bytes: int
    is_stopped: bool

    @property
    def pid(self) -> int:
        """Its number."""
        return self.identity.pid

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; return whether it was there to get it."""
        return send_signal(self.identity, number)
