"""A process's place in its cluster's pool: it registers, waits until the leader claims it, and learns its release."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NodeExistsError
from kazoo.protocol.states import EventType, WatchedEvent

from standby.adapters.zookeeper.leaving import leave
from standby.adapters.zookeeper.reader import ANSWER_SECONDS, read_or_watch, translated
from standby.errors import StandfastError, Transient
from standby.shared.naming import member_path
from standby.shared.records import MemberRecord, decoded, encode
from standby.threads.worker import Worker

_log: Final = logging.getLogger(__name__)

#: Delay between attempts while ZooKeeper does not answer, seconds.
_AGAIN_SECONDS: Final = 0.5


class PoolMembership:
    """Registers a process in the pool for as long as it lives; ``client`` is started by the caller.

    The node is ephemeral. When its session has ended, it is created again, with the claim: the process still serves. A
    process that waits without a claim ends then, and another one waits in its place: it cannot know whether it was
    claimed just before.
    """

    def __init__(
        self, client: KazooClient, cluster: str, record: MemberRecord, released: Callable[[], None]
    ) -> None:
        """``released`` is called once, on another thread, when the leader no longer needs the claimed process."""
        self._client = client
        self._path = member_path(cluster, record.container)
        self._record = record
        # Unlike an event, it may be used by a signal handler that interrupts the thread that waits for it.
        self._decided: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._released = released
        self._has_registered = False
        self._said = ""
        """The last error, as it was logged; empty: there was none since."""
        self._worker = Worker("pool")

    def start(self) -> None:
        """Register as soon as ZooKeeper answers."""
        self._worker.start()
        self._client.add_listener(self._session_changed)
        if self._client.connected:
            self._look_soon()

    def await_claim(self) -> str:
        """Return the claim once there is one; empty if the process is to end instead."""
        return self._decided.get()

    def give_up(self) -> None:
        """Have `await_claim` return at once, without a claim unless there is one (also in a signal handler)."""
        self._decided.put("")

    def leave(self, timeout_seconds: float = ANSWER_SECONDS) -> None:
        """Withdraw the registration; see `standby.adapters.zookeeper.leaving.leave`."""
        self._worker.end()
        leave(self._client, self._path, timeout_seconds)

    def _session_changed(self, state: str) -> None:
        # Watches are lost with a session, and a node with it.
        if state == KazooState.CONNECTED:
            self._look_soon()

    def _changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._look_soon()

    def _look_soon(self) -> None:
        self._worker.put(self._look)

    def _look(self) -> None:
        """Read the process's own node; if it is missing, create it, or give up."""
        if self._worker.is_closed:
            return  # the watch on the node that `leave` has removed
        try:
            data = self._read()
            if data is None and self._has_registered and not self._record.claim:
                _log.info("its session has ended while it waited: another process is to wait")
                self.give_up()
                return
            if data is None:
                self._create()
                data = self._read()
            if data is not None:
                self._seen(decoded(data, self._path, MemberRecord))
                self._said = ""
        except Transient as error:
            # Before the cluster's first master there is no tree.
            if (said := str(error)) != self._said:
                _log.info("%s", said)
            self._said = said
            if self._client.connected:
                threading.Timer(_AGAIN_SECONDS, self._look_soon).start()
        except StandfastError as error:
            _log.error("%s", error)

    def _read(self) -> bytes | None:
        with translated(self._path):
            return read_or_watch(self._client, self._path, self._changed, ANSWER_SECONDS)

    def _create(self) -> None:
        with translated(self._path):
            try:
                self._client.create_async(self._path, encode(self._record), ephemeral=True).get(
                    timeout=ANSWER_SECONDS
                )
            except NodeExistsError:
                # An earlier attempt had succeeded; only its answer was lost. No other process has this id.
                pass
            else:
                _log.info("registered in the pool as %s", self._record.container)
        self._has_registered = True

    def _seen(self, found: MemberRecord) -> None:
        before, self._record = self._record, found
        if found.is_released and not before.is_released:
            _log.info("the leader no longer needs this process")
            self._released()
        if found.claim and not before.claim:
            _log.info("claimed for request %s", found.claim)
            self._decided.put(found.claim)
