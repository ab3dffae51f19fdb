"""The ways by which code comes to a candidate, put together as the configuration asks."""

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
    """Candidates fetch from each other: publishing is no more than announcing, which the code service does."""

    def __init__(self, peers: PeerCode) -> None:
        self._peers = peers

    def publish(self, bundle: str, path: Path) -> None:
        """Nothing: sources give it."""

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Fetch from one source after the other."""
        self._peers.fetch(bundle, sources, part)

    def forget(self, bundle: str) -> None:
        """Nothing: each source removes its own."""

    def interrupt(self) -> None:
        """Cut off what is under way."""
        self._peers.interrupt()


class LeftInZooKeeper:
    """Small bundles that a submit left in ZooKeeper before there was any candidate to upload them to."""

    def __init__(self, code: ZooKeeperCode) -> None:
        self._code = code

    def publish(self, bundle: str, path: Path) -> None:
        """Nothing: only submits leave bundles there."""

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Read the bundle, if it was left there."""
        try:
            data = self._code.read_code(bundle)
        except BadConfiguration as error:
            raise Transient(str(error)) from error
        try:
            part.write_bytes(data)
        except OSError as error:
            raise Unavailable(f"{part}: {error.strerror}") from error

    def forget(self, bundle: str) -> None:
        """Nothing: it goes with the bundle's node."""

    def interrupt(self) -> None:
        """Nothing: the client's own time-outs end it."""


class InTurn:
    """Several ways: published by all of them, fetched by the first that has it."""

    def __init__(self, *ways: CodeDistributor) -> None:
        self._ways = ways

    def publish(self, bundle: str, path: Path) -> None:
        """Publish by every way."""
        for each in self._ways:
            each.publish(bundle, path)

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Fetch by one way after the other until one gives what the name says; raises `Transient` with what each said.

        Damage in one place must not hide what is whole in another: the first way would be the first one each time.
        """
        said: list[str] = []
        for each in self._ways:
            try:
                each.fetch(bundle, sources, part)
                if checksum(part) == bundle:
                    return
                part.unlink()
                said.append(f"bundle {bundle}: what came by {type(each).__name__} has another checksum")
            except (Transient, CorruptState) as error:
                said.append(str(error))
            except OSError as error:
                raise Unavailable(f"{part}: {error.strerror}") from error
        raise Transient("; ".join(said))

    def forget(self, bundle: str) -> None:
        """Forget by every way."""
        for each in self._ways:
            each.forget(bundle)

    def interrupt(self) -> None:
        """Interrupt every way."""
        for each in self._ways:
            each.interrupt()


def code_ways(config: ClusterConfig, client: Any, context: Context) -> CodeDistributor:
    """Return the distributor that ``config`` asks for; raises `BadConfiguration` when there is no Hadoop for it.

    ``context`` gives what other candidates are asked with, ``client`` is a started kazoo client.
    """
    ways: list[CodeDistributor] = [
        LocalCode(PeerCode(context)),
        LeftInZooKeeper(ZooKeeperCode(client, config.name)),
    ]
    if config.code_distributor == "hdfs":
        ways.insert(0, HadoopCode(find_shell(), code_directory(config.code_hdfs_directory, config.name)))
    return InTurn(*ways)
