"""Credentials that a cluster's processes adopt while they run, given out through ZooKeeper."""

from __future__ import annotations

from typing import Any

from appmaster.adapters.zookeeper.calls import read, translated
from standby.security.credentials import Credentials, decode, encode
from standby.shared import naming
from standby.shared.roles import PeerRole


class ZooKeeperCredentials:
    """One node for each role, in the tree of ``cluster``. Every call may raise `Transient`."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def give(self, role: PeerRole, credentials: Credentials) -> None:
        """Give processes of a role other credentials; they adopt them if they are newer than their own."""
        path = naming.credentials_path(self._cluster, role)
        with translated("giving out credentials"):
            self._client.ensure_path(path)
            self._client.set(path, encode(credentials))

    def given(self, role: PeerRole) -> Credentials | None:
        """Return the credentials last given out to processes of a role; None: none since the submit."""
        path = naming.credentials_path(self._cluster, role)
        with translated("reading credentials"):
            found = read(self._client, path)
        return decode(found[0], path) if found is not None and found[0] else None
