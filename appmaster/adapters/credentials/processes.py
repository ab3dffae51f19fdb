"""A cluster's processes as a rotation sees them: through ZooKeeper, and over TLS with given credentials."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass
from typing import Final

from appmaster.adapters.zookeeper.registry import ZooKeeperRegistry
from standby.adapters.tls import TlsCredentials
from standby.security.credentials import Credentials
from standby.shared.roles import PeerRole

#: A process that does not answer within this time has not followed; it is asked again.
_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True, order=True)
class ClusterProcess:
    """A candidate or a container, and the address at which it answers its peers."""

    role: PeerRole
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name} on {self.host}"


def running_processes(registry: ZooKeeperRegistry) -> list[ClusterProcess]:
    """Return every registered process of the cluster."""
    masters = (
        ClusterProcess(PeerRole.MASTER, each.candidate, each.host, each.peer_port)
        for each in registry.candidates()
    )
    containers = (
        ClusterProcess(PeerRole.CONTAINER, each.container, each.host, each.peer_port)
        for each in registry.containers()
    )
    return [*masters, *containers]


def handshake_failure(process: ClusterProcess, shown: Credentials) -> str:
    """Return why a process does not accept a client with these credentials, or is not trusted by it; empty: neither."""
    connection = http.client.HTTPConnection(process.host, process.port)
    try:
        plain = socket.create_connection((process.host, process.port), _SECONDS)
        connection.sock = plain
        connection.sock = (
            TlsCredentials(shown)
            .client_context()
            .wrap_socket(plain, server_hostname=process.role.server_name)
        )
        # Whether the shown certificate is trusted shows in the first answer; there is no such page.
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return ""
