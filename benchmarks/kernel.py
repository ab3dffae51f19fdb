"""The state kernel as a container runs it, without YARN and ZooKeeper: the job's topics and records are given.

Everything else is production code: `standby.kernel.replicas.LocalReplicas` with its real adapters, and, to fetch
state, the peers' port with mutual TLS.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appmaster.adapters.credentials.keyring import VARIABLE, make_sure
from standby.adapters.kafka.broker import connect
from standby.adapters.peers.client import open_sources
from standby.adapters.peers.server import PeerServer
from standby.adapters.rocksdict import open_database
from standby.adapters.tls import TlsCredentials
from standby.feed.functions import step_of
from standby.feed.plain import PlainFeed
from standby.kernel.environment import Environment
from standby.kernel.ports import OpenDatabase
from standby.kernel.replicas import LocalReplicas
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.restore.fetch import Peers
from standby.kernel.restore.snapshots import Snapshots
from standby.ports import MakeFeed
from standby.shared.model import ReplicaId, ReplicaStatus, Role, TaskId, TaskRecord, Wanted
from standby.shared.naming import state_path
from standby.shared.peers import SNAPSHOTS_ROUTE, PeerAddress
from standby.shared.roles import PeerRole
from standby.shared.wire import JobDefinition

CLUSTER: Final = "benchmark"
_STAGE: Final = "main"


@dataclass(frozen=True, slots=True)
class Job:
    """One job with its topics."""

    name: str
    tasks: int
    changelog: str
    bootstrap: str
    state: Path
    settings: Mapping[str, str]
    """Its configuration in addition to the other fields."""

    @property
    def definition(self) -> JobDefinition:
        """Return the definition of the job that a container receives."""
        flat = {
            "job.name": self.name,
            "cluster.name": CLUSTER,
            "task.inputs": f"{self.name}-in",
            "task.outputs": f"{self.name}-out",
            "task.stores": "s",
            "task.step": "benchmarks.steps:count",
            "task.feed": "plain",
            "job.state.dir": str(self.state),
            "kafka.bootstrap.servers": self.bootstrap,
            "zookeeper.connect": "unused:1",
            **self.settings,
        }
        return JobDefinition(self.name, "run-1", flat, self.changelog, f"{self.name}-group", self.tasks)

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        """Return its tasks."""
        return tuple(TaskId(self.name, _STAGE, each) for each in range(self.tasks))

    def state_of(self, host: str, task: TaskId) -> Path:
        """Return where a task's state is on a host."""
        return self.state / state_path(CLUSTER, host, task, self.definition.run)


class FixedRecords:
    """Task records that never change; a `standby.ports.RecordReader`."""

    def __init__(self, active: int | None, epoch: int, placed: Mapping[int, str]) -> None:
        """``placed``: copy → its container."""
        self._active, self._epoch, self._placed = active, epoch, placed

    def read(self, task: TaskId) -> TaskRecord:
        """Return the task's record."""
        return TaskRecord(task, self._active, self._epoch, placed=self._placed, in_sync=tuple(self._placed))


class FixedPeers:
    """Knows one address; a `standby.ports.PeerDirectory`."""

    def __init__(self, container: str, port: int) -> None:
        self._address = PeerAddress(container, "127.0.0.1", port)

    def find(self, container: str) -> PeerAddress | None:
        """Return a container's address, None if it is not known."""
        return self._address if container == self._address.container else None


def keys_in(directory: Path) -> TlsCredentials:
    """Return what a cluster's containers present and trust; the credentials are first created in ``directory``."""
    os.environ[VARIABLE] = str(directory)
    return TlsCredentials(make_sure("bench").credentials(PeerRole.CONTAINER))


class Container:
    """A kernel in this process."""

    def __init__(
        self,
        job: Job,
        host: str,
        records: FixedRecords,
        *,
        make_feed: MakeFeed = PlainFeed,
        peers: Peers | None = None,
        databases: OpenDatabase = open_database,
    ) -> None:
        self._job = job
        self._changed = threading.Event()
        self._restores = RestoreCounters()
        environment = Environment(
            CLUSTER,
            host,
            records,
            make_feed,
            connect,
            databases,
            step_of,
            restores=self._restores,
            peers=peers,
        )
        self.replicas: Final = LocalReplicas(environment, self._changed.set)
        self._server: PeerServer | None = None
        self._snapshots: Snapshots | None = None

    def give(self, keys: TlsCredentials) -> int:
        """Provide copies of its states to peers; return the port."""
        self._snapshots = Snapshots(self.replicas.offer, self._restores)
        self._server = PeerServer("127.0.0.1", keys)
        self._server.start({SNAPSHOTS_ROUTE: self._snapshots.answer})
        return self._server.port

    def want(self, copy: int, role: Role, epoch: int = 1) -> None:
        """Make it hold this copy of every task, and nothing else."""
        wanted = tuple(Wanted(ReplicaId(task, copy), role, epoch) for task in self._job.task_ids)
        self.replicas.obey(wanted, {self._job.name: self._job.definition})

    def wait(self, is_so: Callable[[ReplicaStatus], bool], seconds: float) -> None:
        """Wait until every replica is in this state; raises `TimeoutError`, `RuntimeError` if the container broke."""
        give_up = time.monotonic() + seconds
        while True:
            found = self.replicas.statuses().values()
            if len(found) == self._job.tasks and all(map(is_so, found)):
                return
            if self.replicas.broken is not None:
                raise RuntimeError(self.replicas.broken)
            left = give_up - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"not within {seconds:.0f} s: {_summary(found)}")
            self._changed.wait(min(left, 0.5))
            self._changed.clear()

    def close(self) -> None:
        """End it, keeping its states."""
        if self._server is not None and self._snapshots is not None:
            self._server.close()
            self._snapshots.close()
        if not self.replicas.close(60):
            raise RuntimeError("the container does not close")


def fetching_from(keys: TlsCredentials, container: str, port: int) -> Peers:
    """Return what the container ``taker`` needs to fetch state from ``container``."""
    return Peers("taker", FixedPeers(container, port), open_sources(keys))


def _summary(statuses: Iterable[ReplicaStatus]) -> str:
    return ", ".join(f"{each.replica} {each.phase.value} {each.detail}".strip() for each in statuses)
