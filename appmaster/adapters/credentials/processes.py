"""A cluster's processes as a rotation sees them: through ZooKeeper, and over TLS with given credentials."""

from __future__ import annotations

import http.client
import socket
from typing import Final

from appmaster.adapters.zookeeper.credentials import ZooKeeperCredentials
from appmaster.adapters.zookeeper.registry import ZooKeeperRegistry
from appmaster.ports import ClusterProcess
from standby.adapters.tls import TlsCredentials
from standby.security.credentials import Credentials
from standby.shared.roles import PeerRole

#: A process that does not answer within this time has not followed; it is asked again.
_SECONDS: Final = 3.0


class RegisteredProcesses:
    """`appmaster.ports.Processes` for the cluster of an open session."""

    def __init__(self, registry: ZooKeeperRegistry, credentials: ZooKeeperCredentials) -> None:
        self._registry = registry
        self._credentials = credentials

    def given(self, role: PeerRole) -> Credentials | None:
        """Return the credentials that were last given out to a role."""
        return self._credentials.given(role)

    def give(self, role: PeerRole, credentials: Credentials) -> None:
        """Give credentials out to a role."""
        self._credentials.give(role, credentials)

    def running(self) -> tuple[ClusterProcess, ...]:
        """Return the registered processes."""
        candidates, containers = self._registry.candidates(), self._registry.containers()
        return (
            *(
                ClusterProcess(PeerRole.MASTER, each.candidate, each.host, each.peer_port)
                for each in candidates
            ),
            *(
                ClusterProcess(PeerRole.CONTAINER, each.container, each.host, each.peer_port)
                for each in containers
            ),
        )


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
