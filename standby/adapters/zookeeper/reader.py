"""Reads of a cluster's tree in ZooKeeper, with time-outs, and kazoo's errors translated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent

from standby.code import bundles
from standby.errors import BadConfiguration, Transient
from standby.shared.errortext import summary_of
from standby.shared.model import TaskId, TaskRecord
from standby.shared.naming import (
    CODE_PARTS,
    code_complete_path,
    code_part_path,
    code_path,
    container_path,
    task_path,
)
from standby.shared.peers import BundleSource, PeerAddress
from standby.shared.records import ContainerRecord, decode_source, decode_task, decoded

Record = TypeVar("Record")

#: Time-out of a request to ZooKeeper that may take longer; a suspended connection answers none.
ANSWER_SECONDS: Final = 5.0


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise `Transient` in place of any error of kazoo, and when no answer comes in time."""
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise Transient(f"{path} cannot be used in ZooKeeper now: {summary_of(error)}") from error


def read_or_watch(
    client: Any,
    path: str,
    watch: Callable[[WatchedEvent], None] | None,
    timeout_seconds: float | None = None,
) -> bytes | None:
    """Return the znode's data; None when it does not exist. In both cases ``watch`` is called at the next change.

    Each request may take ``timeout_seconds``; None: without a limit. Raises kazoo's errors.
    """
    while True:
        try:
            data, _ = client.get_async(path, watch=watch).get(timeout=timeout_seconds)
        except NoNodeError:
            if client.exists_async(path, watch=watch).get(timeout=timeout_seconds) is None:
                return None
            # It was created between the two requests.
        else:
            assert isinstance(data, bytes)
            return data


class ZooKeeperReader:
    """Reads a cluster's tree for a container: a `standby.ports.RecordReader` and `PeerDirectory`. Thread-safe."""

    def __init__(self, client: KazooClient, cluster: str, timeout_seconds: float = 2.0) -> None:
        self._client = client
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds

    def read(self, task: TaskId) -> TaskRecord | None:
        """Return the current record of a task: the server is synced with its leader first (rule `one-way`)."""
        path = task_path(self._cluster, task)
        data = self._read(path, is_synced=True)
        return None if data is None else decode_task(data, path)

    def known(self, tasks: Iterable[TaskId]) -> list[TaskRecord]:
        """Return the records of these tasks, as far as this server of ZooKeeper has them; unreadable ones are left out.

        Raises `Transient`.
        """
        return self._decoded((task_path(self._cluster, each) for each in tasks), decode_task)

    def find(self, container: str) -> PeerAddress | None:
        """Return a container's address for peers; a stale address only leads to a refused connection."""
        path = container_path(self._cluster, container)
        data = self._read(path)
        if data is None:
            return None
        record = decoded(data, path, ContainerRecord)
        return PeerAddress(record.container, record.host, record.peer_port)

    def read_code(self, digest: str) -> bytes:
        """Return a code bundle, its checksum verified. Too slow for the control thread.

        Raises `Transient` when ZooKeeper does not answer, `BadConfiguration` when the bundle is missing or
        incomplete, `CorruptState` when it does not match its checksum.
        """
        marker = code_complete_path(self._cluster, digest)
        # The server may lag behind the one that received the bundle.
        count = self._read(marker, is_synced=True)
        paths = [code_part_path(self._cluster, digest, each) for each in range(int(count or 0))]
        parts = [self._read(each) for each in paths]
        for path, found in zip((marker, *paths), (count, *parts), strict=True):
            if found is None:
                raise BadConfiguration(
                    f"the code bundle {digest} is not in ZooKeeper (there is no {path}): it was removed, or never "
                    "written completely; submit the job's code again"
                )
        data = b"".join(each or b"" for each in parts)
        bundles.check(digest, data)
        return data

    def code_sources(self, digest: str) -> list[BundleSource]:
        """Return the candidates that hold a code bundle, in no order; without records of another version."""
        above = code_path(self._cluster, digest)
        with translated(above):
            try:
                names: list[str] = self._client.get_children_async(above).get(timeout=self._timeout_seconds)
            except NoNodeError:
                return []
        return self._decoded(_sources_of(above, names), decode_source)

    def is_code_known(self, digest: str) -> bool:
        """Return whether the cluster knows a code bundle, whether or not anybody can deliver it now."""
        path = code_path(self._cluster, digest)
        with translated(path):
            return self._client.exists_async(path).get(timeout=self._timeout_seconds) is not None

    def _read(self, path: str, *, is_synced: bool = False) -> bytes | None:
        """Return a node's data, None if there is none; ``is_synced``: as it was at this call or later."""
        with translated(path):
            # Both are sent at once: a server processes a client's requests in order.
            synced: Any = self._client.sync_async(path) if is_synced else None
            got: Any = self._client.get_async(path)
            if synced is not None:
                synced.get(timeout=self._timeout_seconds)
            return self._data(got)

    def _decoded(self, paths: Iterable[str], decode: Callable[[bytes, str], Record]) -> list[Record]:
        """Return the records of the nodes that exist, without those of another version. Raises `Transient`."""
        asked = {}
        for path in paths:
            # All are sent at once.
            with translated(path):
                asked[path] = self._client.get_async(path)
        found = []
        for path, pending in asked.items():
            with translated(path):
                data = self._data(pending)
            if data is not None:
                with suppress(BadConfiguration):
                    found.append(decode(data, path))
        return found

    def _data(self, got: Any) -> bytes | None:
        """Return what a request for a node's data has got; None if there is no node. Raises kazoo's errors."""
        try:
            data: bytes = got.get(timeout=self._timeout_seconds)[0]
        except NoNodeError:
            return None
        return data


def _sources_of(above: str, names: Iterable[str]) -> Iterator[str]:
    return (f"{above}/{each}" for each in names if each != CODE_PARTS)
