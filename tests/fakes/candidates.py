"""Candidates that store code and answer clients, without YARN: real ZooKeeper, real ports, real threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from kazoo.client import KazooClient

from appmaster.adapters.code.distributors import code_distributor
from appmaster.adapters.code.routes import code_route
from appmaster.adapters.grpc import ControlServer
from appmaster.adapters.http import HttpPort
from appmaster.adapters.prometheus import Metrics
from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.code import ZooKeeperCodeDirectory
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.adapters.zookeeper.watched_tree import WatchedTree
from appmaster.api.server import ApiServer, change_document
from appmaster.changes.queue import PATTERNS, ChangeQueue
from appmaster.code.ports import CodeDistributor
from appmaster.code.service import CodeService
from appmaster.code.store import BundleStore
from appmaster.planning.state.view import ClusterView
from appmaster.records import CandidateRecord
from standby.adapters.peers.server import PeerServer
from standby.cluster import ClusterConfig
from standby.shared.clock import REAL, Clock
from standby.shared.naming import cluster_path
from standby.shared.peers import CODE_ROUTE, BundleSource
from standby.shared.records import ControllerRecord
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.fakes.zookeeper import SESSION_MS
from tests.patience import PATIENCE_SECONDS

HOST = "127.0.0.1"


class Gated:
    """A distributor that fetches nothing before a gate opens."""

    def __init__(self, way: CodeDistributor, gate: threading.Event) -> None:
        self._way = way
        self._gate = gate

    def publish(self, bundle: str, path: Path) -> None:
        self._way.publish(bundle, path)

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        self._gate.wait(PATIENCE_SECONDS)
        self._way.fetch(bundle, sources, part)

    def forget(self, bundle: str, bury: Callable[[], bool]) -> None:
        self._way.forget(bundle, bury)

    def interrupt(self) -> None:
        self._way.interrupt()
        self._gate.set()


class CodeCandidate:
    """A candidate as far as code goes: a session, a port for peers, a disk, the code service."""

    def __init__(
        self,
        name: str,
        connect: str,
        cluster: str,
        disk: Path,
        sync_seconds: float = 0.5,
        gate: threading.Event | None = None,
        clock: Clock = REAL,
    ) -> None:
        self.name = name
        self.disk = disk
        self.zookeeper = ZooKeeper(connect, cluster, SESSION_MS)
        self.zookeeper.connect()
        self.client = KazooClient(connect, timeout=SESSION_MS / 1_000)
        self.client.start(timeout=PATIENCE_SECONDS)
        keys = keys_of(PeerRole.MASTER)
        self.peers = PeerServer(HOST, keys)
        self.me = BundleSource(name, HOST, self.peers.port)
        self.store = BundleStore(disk)
        self.resigned: list[str] = []
        ways = code_distributor(ClusterConfig(cluster, connect), self.client, keys.client_context, disk)
        self.service = CodeService(
            self.me,
            self.store,
            ZooKeeperCodeDirectory(self.client, cluster),
            ways if gate is None else Gated(ways, gate),
            clock,
            sync_seconds=sync_seconds,
            delete_delay_ms=1_000,
            fenced=self.resigned.append,
        )
        self.peers.start({CODE_ROUTE: code_route(self.store, self.service.received, lambda *_: None)})
        self.service.start()
        self.record = CandidateRecord(
            name, HOST, 1, 0, 1, 7, f"container-{name}", 0, "0.1", peer_port=self.peers.port
        )
        self.client.create(
            f"/standfast/{cluster}/candidates/{name}",
            msgspec.json.encode(self.record),
            ephemeral=True,
            makepath=True,
        )
        self._is_closed = False

    def stand(self) -> int | None:
        """Return the epoch under which this candidate leads, or None when it may not, or another was quicker."""
        if self.service.may_lead():
            return None
        epoch = self.zookeeper.election.lead(ControllerRecord(self.name, HOST, 1, 0))
        if epoch is not None:
            self.service.lead(epoch)
        return epoch

    def close(self) -> None:
        """End as a process ends that closes its session."""
        if self._is_closed:
            return
        self._is_closed = True
        self.service.close()
        self.peers.close()
        self.client.stop()
        self.client.close()
        self.zookeeper.close()


class DeskCandidate:
    """A candidate as far as clients go: two sessions, its ports, cluster info, the queue of changes."""

    def __init__(self, name: str, connect: str, cluster: str) -> None:
        self.name = name
        self.zookeeper = ZooKeeper(connect, cluster, SESSION_MS)
        self.zookeeper.connect()
        self.client = KazooClient(connect, timeout=SESSION_MS / 1_000)
        self.client.start(timeout=PATIENCE_SECONDS)
        self.resigned: list[str] = []
        self.epoch = 0
        self.asked: list[Mapping[str, Any]] = []
        #: Its answer to a request for its status.
        self.status: dict[str, Any] = {}
        self.changes = ChangeQueue(
            WatchedTree(self.client, cluster_path(cluster), PATTERNS),
            ZooKeeperChanges(self.client, cluster),
            cluster,
            name,
            REAL,
            self.resigned.append,
        )
        self.control = ControlServer(
            lambda _: None,
            ApiServer(cluster, name, self.changes, lambda: self.epoch > 0, self._answer),
            REAL.monotonic_ms,
            lambda: self.epoch,
            keys_of(PeerRole.MASTER),
        )
        self.port = self.control.start(HOST)
        self.http = HttpPort(
            HOST,
            Metrics(ClusterView),
            dict,
            list,
            info=self.changes.info,
            change=lambda change: change_document(change, self.changes.seen(change)),
        )
        self.changes.start()
        # It has no info to give before.
        self.changes.tree.fresh(PATIENCE_SECONDS)
        self.zookeeper.registry.register(
            CandidateRecord(
                name,
                HOST,
                self.port,
                self.http.port,
                1,
                7,
                f"container-{name}",
                REAL.now_ms() - 61_000,
                "0.1",
            )
        )
        self._is_closed = False

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def lead(self) -> int:
        """Become leader; fails the test when another is."""
        leader = self.zookeeper.election.controller()
        epoch = self.zookeeper.election.lead(ControllerRecord(self.name, HOST, self.port, 0), depose=leader)
        assert epoch is not None
        self.epoch = epoch
        self.changes.lead(epoch)
        return epoch

    def _answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(asked)
        if asked["operation"] == "status":
            return self.status
        return {"said": f"{self.name} did {asked['operation']}"}

    def close(self) -> None:
        """End as a process ends that closes its session."""
        if self._is_closed:
            return
        self._is_closed = True
        self.changes.close()
        self.http.close()
        self.control.stop()
        self.client.stop()
        self.client.close()
        self.zookeeper.close()
