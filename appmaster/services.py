"""What every candidate runs from its start, leading or not: its port for peers, its code, the queue of changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.code.distributors import code_distributor
from appmaster.adapters.code.routes import code_route
from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.code import ZooKeeperCodeDirectory
from appmaster.adapters.zookeeper.watched_tree import WatchedTree
from appmaster.api.server import ApiCall, ApiServer, Audit, change_document
from appmaster.changes.queue import PATTERNS, ChangeQueue
from appmaster.code.rules import CodeTrouble
from appmaster.code.service import SYNC_SECONDS, CodeService
from appmaster.code.store import BundleStore
from standby.adapters.acceptor import Acceptor
from standby.adapters.peers.server import PeerServer
from standby.adapters.tls import TlsCredentials
from standby.cluster import ClusterConfig
from standby.shared.clock import Clock
from standby.shared.naming import cluster_path, escape
from standby.shared.peers import CODE_ROUTE, BundleSource
from standby.shared.roles import Caller

#: In the working directory, unless ``code.directory`` names another place.
_STORE: Final = "bundles"


class CandidateServices:
    """Composed from the cluster's settings and the candidate's ``keys``; ``directory`` is the working directory.

    ``client`` is the candidate's own, started kazoo client. Called on any thread are: ``fenced`` when a write was
    refused because another candidate leads, ``troubled`` when `quarantined` or `waiting` have changed, and ``audit``
    for each call that asks for a change.
    """

    def __init__(
        self,
        client: Any,
        config: ClusterConfig,
        candidate: str,
        host: str,
        directory: Path,
        keys: TlsCredentials,
        clock: Clock,
        fenced: Callable[[str], None],
        troubled: Callable[[], None],
        audit: Audit = lambda caller, operation, about, said: None,
    ) -> None:
        self._audit = audit
        self._clock = clock
        self._cluster = config.name
        self._candidate = candidate
        self._peers = PeerServer(host, keys)
        store = BundleStore(_store_directory(config, host, directory), is_on_host=bool(config.code_directory))
        self.code = CodeService(
            BundleSource(candidate, host, self._peers.port),
            store,
            ZooKeeperCodeDirectory(client, config.name),
            code_distributor(config, client, keys.client_context, directory),
            clock,
            sync_seconds=SYNC_SECONDS,
            delete_delay_ms=config.stray_delay_ms,
            fenced=fenced,
            troubled=troubled,
        )
        self.changes = ChangeQueue(
            WatchedTree(client, cluster_path(config.name), PATTERNS),
            ZooKeeperChanges(client, config.name),
            config.name,
            candidate,
            clock,
            fenced,
            self._of_code,
        )
        self._routes = {CODE_ROUTE: code_route(store, self.code.received, self._uploaded)}

    @property
    def gate(self) -> Acceptor:
        """What limits the connections to that port."""
        return self._peers.gate

    @property
    def peer_port(self) -> int:
        """The port at which it transfers code; part of the candidate's record."""
        return self._peers.port

    def api(self, leads: Callable[[], bool], leader_api: ApiCall) -> ApiServer:
        """Return the server of clients' calls; ``leader_api`` serves the leader's while ``leads`` returns True."""
        return ApiServer(self._cluster, self._candidate, self.changes, leads, leader_api, self._audit)

    def _uploaded(self, caller: Caller, bundle: str, is_refused: bool) -> None:
        said = "refused: its role may not" if is_refused else "done"
        self._audit(caller, "upload", {"bundle": bundle}, said)

    def change(self, change: str) -> Mapping[str, Any]:
        """Return a queued change as everyone may see it, as last seen by this candidate."""
        return change_document(change, self.changes.seen(change))

    def start(self) -> None:
        """Start; the candidate may be registered only after this."""
        self._peers.start(self._routes)
        self.code.start()
        self.changes.start()

    def close(self) -> None:
        """Stop everything."""
        self.changes.close()
        self.code.close()
        self._peers.close()

    def quarantined(self) -> Mapping[str, str]:
        """Return the jobs whose code is unavailable to this candidate: why, and since when."""
        return {job: self._describe(each) for job, each in self.code.quarantined().items()}

    def waiting(self) -> Mapping[str, str]:
        """Return the jobs whose present revision is not active yet: what it waits for, and since when."""
        return {job: self._describe(each) for job, each in self.code.waiting().items()}

    def _describe(self, trouble: CodeTrouble) -> str:
        return f"{trouble.why}, since {utc(self._wall(trouble))}"

    def _wall(self, trouble: CodeTrouble) -> int:
        return self._clock.now_ms() - (self._clock.monotonic_ms() - trouble.since_ms)

    def _of_code(self) -> Mapping[str, Any]:
        return {
            name: {
                job: {"why": each.why, "since_ms": self._wall(each)} for job, each in sorted(found.items())
            }
            for name, found in (("waiting", self.code.waiting()), ("quarantined", self.code.quarantined()))
        }


def utc(at_ms: int) -> str:
    """Return a Unix time in milliseconds for people, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms // 1000))


def _store_directory(config: ClusterConfig, host: str, directory: Path) -> Path:
    if not config.code_directory:
        return directory / _STORE
    # The host's name is part of it, as for task state, and the cell's number, because two masters may share a host.
    return Path(config.code_directory) / escape(config.name) / escape(host) / str(config.cell)
