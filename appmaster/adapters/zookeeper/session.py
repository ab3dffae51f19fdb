"""A session with ZooKeeper, and one object for each use of it.

The composition roots pass on the objects that are needed; the session itself is only opened and closed.
"""

from __future__ import annotations

from collections.abc import Callable

from kazoo.client import KazooState
from kazoo.handlers.threading import KazooTimeoutError

from appmaster.adapters.zookeeper.cells import ZooKeeperCells
from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.code import ZooKeeperBundles
from appmaster.adapters.zookeeper.credentials import ZooKeeperCredentials
from appmaster.adapters.zookeeper.election import ZooKeeperElection
from appmaster.adapters.zookeeper.jobs import ZooKeeperJobs
from appmaster.adapters.zookeeper.records import ZooKeeperLeaderRecords
from appmaster.adapters.zookeeper.registry import ZooKeeperPool, ZooKeeperRegistry
from appmaster.adapters.zookeeper.tree import ZooKeeperTree
from standby.adapters.zookeeper.access import AS_IT_IS, Access, make_client
from standby.errors import StandfastError, Unavailable


class ZooKeeper:
    """A session with the ensemble, for one cluster's tree. Thread-safe, as kazoo is."""

    def __init__(self, hosts: str, cluster: str, session_ms: int = 6_000, access: Access = AS_IT_IS) -> None:
        self._hosts = hosts
        #: The kazoo client of this session, for other adapters; it is opened and closed here.
        self.client = make_client(hosts, session_ms, access)
        self.tree = ZooKeeperTree(self.client, cluster, access)
        self.election = ZooKeeperElection(self.client, cluster)
        self.records = ZooKeeperLeaderRecords(self.client, cluster, self.election)
        self.registry = ZooKeeperRegistry(self.client, cluster)
        self.pool = ZooKeeperPool(self.client, cluster, self.election)
        self.cells = ZooKeeperCells(self.client, cluster)
        self.jobs = ZooKeeperJobs(self.client, cluster)
        self.changes = ZooKeeperChanges(self.client, cluster)
        self.code = ZooKeeperBundles(self.client, cluster)
        self.credentials = ZooKeeperCredentials(self.client, cluster)

    def connect(self, timeout_seconds: float = 10.0) -> None:
        """Open the session; raises `Unavailable` naming the servers if none answers in time.

        Raises `BadConfiguration` if the cluster's tree is closed to this session, or closed though it should be open.
        """
        try:
            self.client.start(timeout=timeout_seconds)
        except KazooTimeoutError as error:
            self.client.close()
            raise Unavailable(
                f"no ZooKeeper server answers at {self._hosts} within {timeout_seconds:g} s; "
                "check zookeeper.connect and that the servers run"
                + (f"; {self.client.refusal}" if self.client.refusal else "")
            ) from error
        try:
            self.tree.enter()
        except StandfastError:
            self.close()
            raise

    def close(self) -> None:
        """End the session; its ephemeral nodes are removed at once."""
        self.client.stop()
        self.client.close()

    def __enter__(self) -> ZooKeeper:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def on_session(self, lost: Callable[[], None]) -> None:
        """Call ``lost`` (on kazoo's thread) when the session has expired: leadership is lost."""

        def listen(state: str) -> None:
            if state == KazooState.LOST:
                lost()

        self.client.add_listener(listen)
