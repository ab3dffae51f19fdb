"""The code distributors of a candidate, combined according to the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appmaster.adapters.code.hadoop import HadoopCode, code_directory, find_shell
from appmaster.code.ports import CodeDistributor
from appmaster.code.store import checksum
from standby.adapters.peers.code import PeerCode
from standby.adapters.tls import Context
from standby.adapters.zookeeper.membership import ZooKeeperCode
from standby.cluster import ClusterConfig
from standby.errors import BadConfiguration, CorruptState, Transient, Unavailable
from standby.shared.peers import BundleSource


class LocalCode:
    """Candidates fetch from each other; a bundle is published by its announcement, which the code service makes."""

    def __init__(self, peers: PeerCode) -> None:
        self._peers = peers

    def publish(self, bundle: str, path: Path) -> None:
        """Do nothing: sources serve the bundle."""

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Fetch from the sources, one after another."""
        self._peers.fetch(bundle, sources, part)

    def forget(self, bundle: str) -> None:
        """Do nothing: each source removes its own copy."""

    def interrupt(self) -> None:
        """Cut off the fetch that is under way."""
        self._peers.interrupt()


class LeftInZooKeeper:
    """Small bundles that a submit left in ZooKeeper before there was a candidate to upload them to."""

    def __init__(self, code: ZooKeeperCode) -> None:
        self._code = code

    def publish(self, bundle: str, path: Path) -> None:
        """Do nothing: only submits leave bundles there."""

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Read the bundle, if a submit left it there."""
        try:
            data = self._code.read_code(bundle)
        except BadConfiguration as error:
            raise Transient(str(error)) from error
        try:
            part.write_bytes(data)
        except OSError as error:
            raise Unavailable(f"{part}: {error.strerror}") from error

    def forget(self, bundle: str) -> None:
        """Do nothing: it is removed with the bundle's node."""

    def interrupt(self) -> None:
        """Do nothing: the client's own time-outs end a read."""


class DistributorChain:
    """Several distributors: all of them publish, and the first that has a bundle serves the fetch."""

    def __init__(self, *ways: CodeDistributor) -> None:
        self._ways = ways

    def publish(self, bundle: str, path: Path) -> None:
        """Publish with every distributor."""
        for each in self._ways:
            each.publish(bundle, path)

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Fetch with one distributor after another until the checksum is right; raises `Transient` with all errors.

        A damaged copy in one place must not hide a good one in another, since the first place is always asked first.
        """
        said: list[str] = []
        for each in self._ways:
            try:
                each.fetch(bundle, sources, part)
                if checksum(part) == bundle:
                    return
                part.unlink()
                said.append(f"bundle {bundle}: the data from {type(each).__name__} has another checksum")
            except (Transient, CorruptState) as error:
                said.append(str(error))
            except OSError as error:
                raise Unavailable(f"{part}: {error.strerror}") from error
        raise Transient("; ".join(said))

    def forget(self, bundle: str) -> None:
        """Forget with every distributor."""
        for each in self._ways:
            each.forget(bundle)

    def interrupt(self) -> None:
        """Interrupt every distributor."""
        for each in self._ways:
            each.interrupt()


def code_distributor(config: ClusterConfig, client: Any, context: Context) -> CodeDistributor:
    """Return the distributor that ``config`` asks for; raises `BadConfiguration` if it needs Hadoop and there is none.

    ``context`` gives the credentials for requests to other candidates, ``client`` is a started kazoo client.
    """
    ways: list[CodeDistributor] = [
        LocalCode(PeerCode(context)),
        LeftInZooKeeper(ZooKeeperCode(client, config.name)),
    ]
    if config.code_distributor == "hdfs":
        ways.insert(0, HadoopCode(find_shell(), code_directory(config.code_hdfs_directory, config.name)))
    return DistributorChain(*ways)
