"""What every candidate runs from its start, whoever leads: its port for peers, its code, its desk for clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.code_routes import code_route
from appmaster.adapters.code_ways import code_ways
from appmaster.adapters.kazoo_directory import KazooCodeDirectory
from appmaster.code.rules import Trouble
from appmaster.code.service import CodeService
from appmaster.code.store import BundleStore
from appmaster.desk import Desk
from appmaster.reception import Answer, Reception, shown
from standby.adapters.gate import Gate
from standby.adapters.peer_server import PeerServer
from standby.adapters.tls import client_context
from standby.cluster import ClusterConfig
from standby.naming import escape
from standby.peers import CODE_ROUTE, Holder

#: In the working directory, unless ``code.directory`` names another place.
_STORE: Final = "bundles"


class Front:
    """Put together from the cluster's settings and the credentials in ``directory``, the working directory.

    ``client`` is the candidate's own, started kazoo client; ``clock`` gives monotonic milliseconds, ``wall_ms`` Unix
    milliseconds. Called on any thread: ``fenced`` when a write was refused because another leads, ``troubled`` when
    `withheld` or `waiting` have changed.
    """

    def __init__(
        self,
        client: Any,
        config: ClusterConfig,
        candidate: str,
        host: str,
        directory: Path,
        clock: Callable[[], int],
        wall_ms: Callable[[], int],
        fenced: Callable[[str], None],
        troubled: Callable[[], None],
    ) -> None:
        self._clock, self._wall_ms = clock, wall_ms
        self._cluster = config.name
        self._candidate = candidate
        self._peers = PeerServer(host, directory)
        store = BundleStore(_store_directory(config, host, directory), is_on_host=bool(config.code_directory))
        self.code = CodeService(
            Holder(candidate, host, self._peers.port),
            store,
            KazooCodeDirectory(client, config.name),
            code_ways(config, client, client_context(directory)),
            clock,
            sync_seconds=config.code_sync_seconds,
            delete_delay_ms=config.stray_delay_ms,
            fenced=fenced,
            troubled=troubled,
        )
        self.desk = Desk(client, config.name, candidate, wall_ms, fenced, self._of_code)
        self._routes = {CODE_ROUTE: code_route(store, self.code.received)}

    @property
    def gate(self) -> Gate:
        """What bounds who connects to that port."""
        return self._peers.gate

    @property
    def peer_port(self) -> int:
        """Where it gives and takes code; belongs into the candidate's record."""
        return self._peers.port

    def reception(self, leads: Callable[[], bool], answers: Answer) -> Reception:
        """Return what answers clients' calls: ``answers`` those that only a leader can, while ``leads`` says so."""
        return Reception(self._cluster, self._candidate, self.desk, leads, answers)

    def request(self, request: str) -> Mapping[str, Any]:
        """Return a queued change as everybody may see it, as far as this candidate has heard of it."""
        return shown(request, self.desk.seen(request))

    def start(self) -> None:
        """Begin; the candidate is to be registered only then."""
        self._peers.start(self._routes)
        self.code.start()
        self.desk.start()

    def close(self) -> None:
        """End all of it."""
        self.desk.close()
        self.code.close()
        self._peers.close()

    def withheld(self) -> Mapping[str, str]:
        """Return the jobs whose code cannot be had as this candidate sees it: why, and since when."""
        return {job: self._told(each) for job, each in self.code.quarantined().items()}

    def waiting(self) -> Mapping[str, str]:
        """Return the jobs whose present revision is not active yet: what it waits for, and since when."""
        return {job: self._told(each) for job, each in self.code.waiting().items()}

    def _told(self, trouble: Trouble) -> str:
        return f"{trouble.why}, since {utc(self._wall(trouble))}"

    def _wall(self, trouble: Trouble) -> int:
        return self._wall_ms() - (self._clock() - trouble.since_ms)

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
    # The host's name as with task state; the cell's number, since two cells may have their masters on one host.
    return Path(config.code_directory) / escape(config.name) / escape(host) / str(config.cell)
