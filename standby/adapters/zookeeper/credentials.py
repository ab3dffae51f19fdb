"""Adopts new credentials at run time, after a rotation (`standfast credentials rotate`)."""

from __future__ import annotations

import logging
import threading
from typing import Final

from kazoo.client import KazooClient, KazooState
from kazoo.protocol.states import EventType, WatchedEvent

from standby.adapters.tls import TlsCredentials
from standby.adapters.zookeeper.reader import ANSWER_SECONDS, read_or_watch, translated
from standby.errors import StandfastError, Transient
from standby.security.credentials import decode
from standby.shared.naming import credentials_path
from standby.shared.roles import PeerRole

_log: Final = logging.getLogger(__name__)

#: Delay between attempts to read while ZooKeeper does not answer, in seconds.
_AGAIN_SECONDS: Final = 1.0


class Renewal:
    """Keeps ``keys`` in sync with ZooKeeper; ``client`` is started and closed by the caller."""

    def __init__(self, client: KazooClient, cluster: str, role: PeerRole, keys: TlsCredentials) -> None:
        self._client = client
        self._path = credentials_path(cluster, role)
        self._keys = keys
        self._is_due = threading.Event()
        threading.Thread(target=self._run, name="credentials", daemon=True).start()
        client.add_listener(self._session_changed)
        if client.connected:
            self._is_due.set()

    def look(self) -> None:
        """Adopt the current credentials, and watch for the next; raises `StandfastError`."""
        with translated(self._path):
            data = read_or_watch(self._client, self._path, self._changed, ANSWER_SECONDS)
        if data and self._keys.renew(decode(data, self._path)):
            _log.info("using credentials %d from now on", self._keys.now.number)

    def _session_changed(self, state: str) -> None:
        # Watches are lost with the connection, so read again.
        if state == KazooState.CONNECTED:
            self._is_due.set()

    def _changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._is_due.set()

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            self._is_due.clear()
            try:
                self.look()
            except Transient as error:
                _log.info("%s", error)
                if self._client.connected:
                    threading.Timer(_AGAIN_SECONDS, self._is_due.set).start()
            except StandfastError as error:
                # The former ones stay in use; the rotation command sees that this process has not followed.
                _log.error("%s", error)
