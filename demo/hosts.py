"""What a run needs of servers and hosts: of those with YARN (`embedded.cluster`), or with a pool (`demo.pool`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from embedded.state import ClusterStatus, ContainerProcess

#: What hosts belong to.
YARN: Final = "yarn"
POOL: Final = "pool"


class Hosts(Protocol):
    """ZooKeeper, Kafka, and hosts that can be lost."""

    name: str
    directory: Path
    hosts: tuple[str, ...]

    @property
    def kafka_bootstrap(self) -> str:
        """The ``host:port`` of every Kafka broker."""
        ...

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's ``host:port``."""
        ...

    def environment(self) -> dict[str, str]:
        """Return the whole environment of a client process."""
        ...

    def host_directory(self, host: str) -> Path:
        """Return the directory that is a host's disk."""
        ...

    def container_processes(self, host: str | None = None) -> Sequence[ContainerProcess]:
        """Return the processes of one host or of all, oldest first."""
        ...

    def status(self) -> ClusterStatus:
        """Return the state of every server."""
        ...

    def kill_host(self, host: str, *, silent: bool = False) -> int:
        """Lose a host; silently: as when its cable is pulled. Return the number of its processes."""
        ...

    def finish_silent(self, host: str) -> int:
        """Handle a silent host that nothing waits for any more; return the number of its processes."""
        ...

    def start_host(self, host: str) -> None:
        """Bring a lost host back."""
        ...
