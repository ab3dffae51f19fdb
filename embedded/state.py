"""The record of a running embedded cluster, ``<clusters>/<name>/cluster.json``, and its status."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from embedded.machine.processes import Owned, ProcessIdentity, command_of, environment_of, send_signal
from standby.errors import Unavailable

FILE_NAME: Final = "cluster.json"


class ClusterState(msgspec.Struct, frozen=True):
    """Everything that another process needs to use, watch and end the cluster."""

    name: str
    #: The id that marks its processes.
    cluster_id: str
    #: The machine's boot in which the cluster was started.
    boot_id: str
    #: The process that started it.
    owner: ProcessIdentity
    #: Whether the cluster should end with its owner (clusters of tests).
    is_temporary: bool
    hosts: tuple[str, ...]
    host_memory_mb: int
    host_vcores: int
    #: Port numbers by name, ``<server>.<purpose>``.
    ports: dict[str, int]
    #: Number of Kafka brokers.
    brokers: int = 1
    has_zookeeper: bool = True
    #: Where ZooKeeper and Kafka listen.
    address: str = "127.0.0.1"
    #: The most recently started process of each server, by the server's name.
    servers: dict[str, ProcessIdentity] = {}
    #: Whether every server has answered once.
    is_complete: bool = False


def load(directory: Path) -> ClusterState | None:
    """Return the record in a cluster's directory; None if there is none that can be read."""
    try:
        return msgspec.json.decode((directory / FILE_NAME).read_bytes(), type=ClusterState)
    except (OSError, msgspec.DecodeError):
        # It is written atomically, so an unreadable record is from another version of this program.
        return None


def save(directory: Path, state: ClusterState) -> None:
    """Write the record atomically. Raises :class:`Unavailable`."""
    fresh = directory / f"{FILE_NAME}.new"
    try:
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
        fresh.replace(directory / FILE_NAME)
    except OSError as error:
        raise Unavailable(f"{directory} cannot be written: {error.strerror}") from error


class ServerStatus(msgspec.Struct, frozen=True):
    """The current status of one server."""

    name: str
    #: running, stopped (by SIGSTOP) or dead.
    state: str
    pid: int | None
    ports: dict[str, int]
    memory_bytes: int
    uptime_seconds: float


class HostStatus(msgspec.Struct, frozen=True):
    """The current status of one host."""

    host: str
    #: running, stopped (by SIGSTOP) or dead; the actual state.
    state: str
    #: RUNNING, LOST, …, UNKNOWN; the state according to the ResourceManager.
    yarn_state: str
    containers: int
    container_processes: int
    container_memory_bytes: int


class ClusterStatus(msgspec.Struct, frozen=True):
    """The current status of the cluster."""

    name: str
    directory: str
    servers: tuple[ServerStatus, ...]
    hosts: tuple[HostStatus, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every server and every host is running."""
        return all(each.state == "running" for each in self.servers)


@dataclass(frozen=True, slots=True)
class ContainerProcess:
    """A process inside a container of YARN or of a pool."""

    identity: ProcessIdentity
    host: str
    container_id: str
    command: tuple[str, ...]
    memory_bytes: int
    is_stopped: bool

    @property
    def pid(self) -> int:
        """The process id."""
        return self.identity.pid

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; return whether the process still existed."""
        return send_signal(self.identity, number)


def processes_on(
    owned: Owned, hosts: Iterable[str], servers: Collection[ProcessIdentity] = ()
) -> list[ContainerProcess]:
    """Return the processes of some hosts except ``servers``, oldest first.

    A process that ends during the look-up has no command, and is omitted.
    """
    found = [
        ContainerProcess(
            identity=process.identity,
            host=host,
            container_id=environment_of(process.pid).get("CONTAINER_ID", ""),
            command=command,
            memory_bytes=process.memory_bytes,
            is_stopped=process.is_stopped,
        )
        for host in hosts
        for process in owned.processes(host)
        if process.identity not in servers and (command := command_of(process.pid))
    ]
    return sorted(found, key=lambda each: each.identity.started_ticks)
