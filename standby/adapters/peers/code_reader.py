"""Reads a job's code for a container: from any candidate that holds it, otherwise from ZooKeeper."""

from __future__ import annotations

import logging
import random
from typing import Final

from standby.adapters.peers.code import PeerCode
from standby.adapters.tls import Context
from standby.adapters.zookeeper.reader import ZooKeeperReader
from standby.code import bundles
from standby.errors import BadConfiguration, CorruptState, Transient

_log: Final = logging.getLogger(__name__)


class CodeReader:
    """Reads one bundle at a time, on any thread but the control thread, for which it is too slow."""

    def __init__(self, cluster: ZooKeeperReader, context: Context) -> None:
        self._cluster = cluster
        self._context = context

    def read_code(self, digest: str) -> bytes:
        """Return the bundle, its checksum verified.

        Raises `Transient` while no source delivers it, `BadConfiguration` when the cluster does not know the bundle
        (or no longer), `CorruptState` when the content in ZooKeeper does not match its checksum.
        """
        sources = self._cluster.code_sources(digest)
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
            return self._cluster.read_code(digest)
        except BadConfiguration as error:
            if self._cluster.is_code_known(digest):
                # Its candidates are away, or are still fetching it; they will have it later.
                raise Transient("; ".join(said) or f"no candidate holds bundle {digest} now") from error
            raise
