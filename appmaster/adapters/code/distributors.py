"""How a candidate gets bundles of code, according to the configuration."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from appmaster.adapters.code.hadoop import hadoop_code
from appmaster.code.ports import CodeDistributor
from standby.adapters.peers.code import PeerCode
from standby.adapters.tls import Context
from standby.adapters.zookeeper.reader import ANSWER_SECONDS, ZooKeeperReader
from standby.cluster import ClusterConfig
from standby.code.bundles import checksum, shipped_name
from standby.errors import BadConfiguration, CorruptState, Transient, Unavailable
from standby.shared.peers import BundleSource


class DistributorChain:
    """A `CodeDistributor` that fetches from one place after another: a file system, other candidates, ZooKeeper.

    Only the file system is published to. For other candidates a bundle is published by its announcement, which the code
    service makes. Before there is a candidate to upload it to, a submit leaves a small bundle in ZooKeeper, where it is
    removed with the bundle's node, and has YARN ship a larger one with the application.
    """

    def __init__(
        self,
        peers: PeerCode,
        left: Callable[[str], bytes],
        file_system: CodeDistributor | None = None,
        directory: Path = Path(),
    ) -> None:
        """``left`` returns a bundle that a submit left in ZooKeeper; raises `BadConfiguration` if there is none.

        ``directory`` is the one into which YARN ships.
        """
        self._peers = peers
        self._left = left
        self._directory = directory
        self._file_system = file_system

    def publish(self, bundle: str, path: Path) -> None:
        """Publish in the file system."""
        if self._file_system is not None:
            self._file_system.publish(bundle, path)

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Fetch from one place after another until the checksum is right; raises `Transient` with all errors.

        A damaged copy or an error in one place must not hide a good copy in another, since the first place is always
        asked first.
        """
        ways = {"other candidates": self._peers.fetch, "ZooKeeper": self._fetch_left}
        if self._file_system is not None:
            ways = {"the file system": self._file_system.fetch, **ways}
        if (self._directory / shipped_name(bundle)).exists():
            ways = {"YARN": self._fetch_shipped, **ways}
        said: list[str] = []
        for place, fetch in ways.items():
            try:
                fetch(bundle, sources, part)
                if checksum(part) == bundle:
                    return
                part.unlink()
                said.append(f"bundle {bundle}: the data from {place} has another checksum")
            except (Unavailable, CorruptState) as error:
                said.append(str(error))
            except OSError as error:
                said.append(f"{error.filename or part}: {error.strerror}")
        raise Transient("; ".join(said))

    def forget(self, bundle: str, bury: Callable[[], bool]) -> None:
        """Forget in the file system: each source removes its own copy."""
        if self._file_system is not None:
            self._file_system.forget(bundle, bury)
        else:
            bury()

    def interrupt(self) -> None:
        """Cut off the fetch that is under way; a read of ZooKeeper is ended by the client's own time-outs."""
        self._peers.interrupt()
        if self._file_system is not None:
            self._file_system.interrupt()

    def _fetch_shipped(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        shutil.copyfile(self._directory / shipped_name(bundle), part)

    def _fetch_left(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        try:
            part.write_bytes(self._left(bundle))
        except BadConfiguration as error:
            raise Transient(str(error)) from error


def code_distributor(
    config: ClusterConfig, client: Any, context: Context, directory: Path
) -> CodeDistributor:
    """Return the distributor that ``config`` asks for; raises `BadConfiguration` if it needs Hadoop and there is none.

    ``context`` gives the credentials for requests to other candidates, ``client`` is a started kazoo client,
    ``directory`` the working directory.
    """
    file_system = None
    if config.code_distributor == "hdfs":
        file_system = hadoop_code(config.code_hdfs_directory, config.name)
    left = ZooKeeperReader(client, config.name, ANSWER_SECONDS).read_code
    return DistributorChain(PeerCode(context), left, file_system, directory)
