"""A job's modules on their way to the candidates."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from appmaster.adapters.code.hadoop import HadoopCode, code_directory, find_shell
from appmaster.adapters.credentials.keyring import require
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from standby.adapters.peers.code import PeerCode
from standby.code.bundles import LEFT_BYTES, MOST_BYTES, Bundle, pack
from standby.config import JobConfig
from standby.errors import Transient, Unavailable
from standby.shared.peers import BundleSource


def bundle_of(code: Path, distributor: str = "local") -> Bundle | None:
    """Return the job's modules as they travel; None when they are too large before there is any candidate.

    Containers then run what YARN ships with the application, and the code of the running job cannot change. A file
    system of the cluster takes them all the same.
    """
    most = MOST_BYTES if distributor == "hdfs" else LEFT_BYTES
    if sum(each.stat().st_size for each in code.rglob("*") if each.is_file()) > most:
        return None
    # Packed they are somewhat larger.
    bundle = pack(code)
    return bundle if len(bundle.data) <= most else None


def deliver(
    bundle: Bundle, config: JobConfig, client: ClusterClient, progress: Callable[[str], None]
) -> None:
    """Bring a bundle to where the candidates find it; returns when one of them, or the file system, has it.

    With ``code.distributor=hdfs`` into the cluster's file system; else by an upload to the leader or, when nobody
    leads, to another candidate. A small one is left in ZooKeeper besides: it outlives the loss of all candidates at
    once. Raises `BadConfiguration` for a larger one when no candidate takes it, `Unavailable`.
    """
    if config.code_distributor == "hdfs":
        leave(bundle, config, client.zookeeper)
        return

    def told(size: int) -> None:
        progress(f"uploading the code: {size >> 10} of {len(bundle.data) >> 10} KiB")

    context = require(client.cluster).keys.client_context
    for source in _sources(client):
        try:
            PeerCode(context).upload(bundle.digest, bundle.data, source, told)
            if len(bundle.data) > LEFT_BYTES:
                return
            break
        except Transient as error:
            progress(str(error))
    leave(bundle, config, client.zookeeper)


def leave(bundle: Bundle, config: JobConfig, zookeeper: ZooKeeper) -> None:
    """Bring a bundle to where the first candidate of a new cluster finds it: the file system, or ZooKeeper.

    Raises `BadConfiguration` when it is too large for ZooKeeper.
    """
    if config.code_distributor == "hdfs":
        # First: with a tombstone from an earlier time the file might be removed again.
        zookeeper.code.revive(bundle.digest)
        _publish(bundle, config)
    else:
        zookeeper.code.put(bundle.digest, bundle.data)


def withdraw(bundle: Bundle, config: JobConfig, zookeeper: ZooKeeper) -> None:
    """Remove a bundle that `leave` brought, unless a job names it; nothing of the cluster may run."""
    if zookeeper.code.withdraw(bundle.digest) and config.code_distributor == "hdfs":
        directory = code_directory(config.code_hdfs_directory, config.cluster)
        HadoopCode(find_shell(), directory).forget(bundle.digest)


def _publish(bundle: Bundle, config: JobConfig) -> None:
    directory = code_directory(config.code_hdfs_directory, config.cluster)
    with tempfile.NamedTemporaryFile(prefix="standfast-", suffix=".zip") as file:
        file.write(bundle.data)
        file.flush()
        HadoopCode(find_shell(), directory).publish(bundle.digest, Path(file.name))


def _sources(client: ClusterClient) -> list[BundleSource]:
    """Return the candidates that take uploads, the leader first."""
    try:
        candidates = client.info()["candidates"]
    except Unavailable:
        return []
    return [
        BundleSource(each["candidate"], each["host"], each["peer_port"])
        for each in sorted(candidates, key=lambda each: not each["is_leader"])
        if each["peer_port"]
    ]
