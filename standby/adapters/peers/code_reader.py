"""Reads a job's code for a container: from any candidate that holds it, otherwise from ZooKeeper."""

from __future__ import annotations

import logging
import random
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from standby.adapters.peers.code import PeerCode
from standby.adapters.tls import Context
from standby.adapters.zookeeper.membership import ZooKeeperReader
from standby.code import bundles
from standby.errors import BadConfiguration, CorruptState, Transient
from standby.shared import naming
from standby.shared.peers import BundleSource
from standby.shared.records import decode_source

_log: Final = logging.getLogger(__name__)

#: Time-out of a request to ZooKeeper.
_ANSWER_SECONDS: Final = 5.0


class CodeReader:
    """Reads one bundle at a time, on any thread but the control thread, for which it is too slow."""

    def __init__(self, client: KazooClient, cluster: str, context: Context) -> None:
        self._client = client
        self._cluster = cluster
        self._left = ZooKeeperReader(client, cluster, _ANSWER_SECONDS)
        self._context = context

    def read_code(self, digest: str) -> bytes:
        """Return the bundle, its checksum verified.

        Raises `Transient` while no source delivers it, `BadConfiguration` when the cluster does not know the bundle
        (or no longer), `CorruptState` when the content in ZooKeeper does not match its checksum.
        """
        sources = self._sources(digest)
        # A thousand containers that start at the same time should not all use the same source first.
        random.shuffle(sources)
        said = []
        for source in sources:
            try:
                data = PeerCode(self._context).read(digest, source)
                bundles.check(digest, data)
                return data
            except (Transient, CorruptState) as error:
                _log.info("bundle %s: %s", digest, error)
                said.append(str(error))
        try:
            return self._left.read_code(digest)
        except BadConfiguration as error:
            if self._is_known(digest):
                # Its candidates are away, or are still fetching it; they will have it later.
                raise Transient("; ".join(said) or f"no candidate holds bundle {digest} now") from error
            raise

    def _sources(self, digest: str) -> list[BundleSource]:
        path = naming.code_path(self._cluster, digest)
        found = []
        try:
            names: list[str] = self._client.get_children_async(path).get(timeout=_ANSWER_SECONDS)
            asked: list[tuple[str, Any]] = [
                (f"{path}/{each}", self._client.get_async(f"{path}/{each}"))
                for each in names
                if each != naming.CODE_PARTS
            ]
        except NoNodeError:
            return []
        except (KazooException, KazooTimeoutError) as error:
            raise Transient(f"{path} cannot be read from ZooKeeper now: {type(error).__name__}") from error
        for at, pending in asked:
            try:
                found.append(decode_source(pending.get(timeout=_ANSWER_SECONDS)[0], at))
            except (NoNodeError, BadConfiguration):
                continue  # gone meanwhile, or of another version
            except (KazooException, KazooTimeoutError) as error:
                raise Transient(f"{at} cannot be read from ZooKeeper now: {type(error).__name__}") from error
        return found

    def _is_known(self, digest: str) -> bool:
        path = naming.code_path(self._cluster, digest)
        try:
            return self._client.exists_async(path).get(timeout=_ANSWER_SECONDS) is not None
        except (KazooException, KazooTimeoutError) as error:
            raise Transient(f"{path} cannot be read from ZooKeeper now: {type(error).__name__}") from error
