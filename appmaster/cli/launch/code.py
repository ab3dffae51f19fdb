"""Transfers a job's modules to the candidates."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from appmaster.adapters.code.hadoop import hadoop_code
from appmaster.adapters.credentials.keyring import require
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from standby.adapters.peers.code import PeerCode
from standby.code.bundles import LEFT_BYTES, Bundle
from standby.config import JobConfig
from standby.errors import BadConfiguration, Transient, Unavailable
from standby.shared.peers import BundleSource


def is_shipped(bundle: Bundle, config: JobConfig) -> bool:
    """Return whether a bundle comes to the first candidates of a cluster with their applications.

    It does if it is too large for ZooKeeper, and there is no file system from which they fetch it.
    """
    return config.code_distributor != "hdfs" and len(bundle.data) > LEFT_BYTES


def deliver(
    bundle: Bundle, config: JobConfig, client: ClusterClient, progress: Callable[[str], None]
) -> None:
    """Store a bundle where the candidates find it; returns when one of them, or the file system, has it.

    With ``code.distributor=hdfs`` it is stored in the cluster's file system; otherwise it is uploaded to the leader or,
    without a leader, to another candidate. A small bundle is also left in ZooKeeper, where it survives the loss of all
    candidates at once. ZooKeeper is closed to operators with issued credentials: for them, a candidate has to take it.
    Raises `BadConfiguration` for a larger one if no candidate takes it, and `Unavailable`.
    """
    if config.code_distributor == "hdfs" and (zookeeper := _opened(client)) is not None:
        leave(bundle, config, zookeeper)
        return

    def report(size: int) -> None:
        progress(f"uploading the code: {size >> 10} of {len(bundle.data) >> 10} KiB")

    context = require(client.cluster).keys.client_context
    for source in _sources(client):
        try:
            PeerCode(context).upload(bundle.digest, bundle.data, source, report)
        except Transient as error:
            progress(str(error))
            continue
        if len(bundle.data) > LEFT_BYTES or _opened(client) is None:
            return
        break
    leave(bundle, config, client.zookeeper)


def _opened(client: ClusterClient) -> ZooKeeper | None:
    """Return the client's session with ZooKeeper; None if the cluster's tree is closed to its credentials."""
    try:
        return client.zookeeper
    except BadConfiguration:
        return None


def leave(bundle: Bundle, config: JobConfig, zookeeper: ZooKeeper) -> None:
    """Store a bundle where the first candidate of a new cluster finds it: in the file system, or in ZooKeeper.

    Raises `BadConfiguration` if it is too large for ZooKeeper.
    """
    if config.code_distributor == "hdfs":
        # This comes first: because of an old tombstone the file might be removed again.
        zookeeper.code.revive(bundle.digest)
        _publish(bundle, config)
    else:
        zookeeper.code.put(bundle.digest, bundle.data)


def withdraw(bundle: Bundle, config: JobConfig, zookeeper: ZooKeeper) -> None:
    """Remove a bundle that `leave` stored, unless a job names it; nothing of the cluster may run."""

    def bury() -> bool:
        return zookeeper.code.withdraw(bundle.digest)

    if config.code_distributor == "hdfs":
        hadoop_code(config.code_hdfs_directory, config.cluster).forget(bundle.digest, bury)
    else:
        bury()


def _publish(bundle: Bundle, config: JobConfig) -> None:
    file_system = hadoop_code(config.code_hdfs_directory, config.cluster)
    with tempfile.NamedTemporaryFile(prefix="standfast-", suffix=".zip") as file:
        file.write(bundle.data)
        file.flush()
        file_system.publish(bundle.digest, Path(file.name))


def _sources(client: ClusterClient) -> list[BundleSource]:
    """Return the candidates that accept uploads, the leader first."""
    try:
        candidates = client.info()["candidates"]
    except Unavailable:
        return []
    return [
        BundleSource(each["candidate"], each["host"], each["peer_port"])
        for each in sorted(candidates, key=lambda each: not each["is_leader"])
    ]
