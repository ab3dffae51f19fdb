"""A single real ZooKeeper server, for tests without broker and YARN that may damage it; a job in its tree."""

from __future__ import annotations

from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.records import JobRecord, encode
from embedded import probes
from embedded.machine.ports import free_ports
from embedded.servers import ZOOKEEPER
from standby.shared import naming
from tests.patience import PATIENCE_SECONDS
from tests.servers.own import OwnServer, own_blueprint

#: Longer than a process of a test stands still on a busy machine; for tests that are not about a session's end.
SESSION_MS = 30_000


class LoneZooKeeper(OwnServer):
    """One server on loopback: as the embedded cluster's, but a child of the test."""

    def __init__(self, directory: Path) -> None:
        port = free_ports(1)[0]
        self.connect = f"127.0.0.1:{port}"
        launch = own_blueprint(directory, "zookeeper", {f"{ZOOKEEPER}.client": port}).zookeeper()
        super().__init__("ZooKeeper", launch, directory / "zookeeper.log", PATIENCE_SECONDS)

    def await_service(self, patience: probes.Patience) -> None:
        probes.zookeeper(self.connect, patience)

    def client(self) -> KazooClient:
        client = KazooClient(self.connect, timeout=SESSION_MS / 1_000)
        client.start(timeout=PATIENCE_SECONDS)
        return client


def record_job(zookeeper: ZooKeeper, record: JobRecord) -> None:
    """Have a job recorded as it is to be found: of any revision, activated, not wanted."""
    path = naming.job_path(zookeeper.jobs._cluster, record.definition.name)
    try:
        zookeeper.client.create(path, encode(record), makepath=True)
    except NodeExistsError:
        zookeeper.client.set(path, encode(record))
    zookeeper.client.ensure_path(f"{path}/tasks")
