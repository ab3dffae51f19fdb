"""The container's registration in ZooKeeper, over kazoo.

Kazoo's callbacks only post events; calls that wait for an answer run on a separate thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NodeExistsError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from standby.adapters.zookeeper.leaving import leave
from standby.adapters.zookeeper.reader import ANSWER_SECONDS, read_or_watch, translated
from standby.control.events import (
    ControlEvent,
    LeaderChanged,
    LeaderMoved,
    LeaderUnknown,
    Registered,
    RegistrationFailed,
    SessionConnected,
    SessionLost,
    SessionSuspended,
)
from standby.control.ports import PostEvent
from standby.shared.errortext import summary_of
from standby.shared.naming import container_path, controller_path
from standby.shared.probes import REGISTERING, Probe, no_probe
from standby.shared.records import ContainerRecord, ControllerRecord, decoded, encode
from standby.threads.worker import Worker

_STATES: Final[Mapping[str, ControlEvent]] = {
    KazooState.CONNECTED: SessionConnected(),
    KazooState.SUSPENDED: SessionSuspended(),
    KazooState.LOST: SessionLost(),
}


@dataclass(frozen=True, slots=True)
class _Question:
    """A request, and the event for its failure."""

    ask: Callable[[], ControlEvent]
    failed: Callable[[str], ControlEvent]


class ZooKeeperMembership:
    """Registers the container, and looks up the leader; see `standby.control.ports.Membership`.

    Its thread processes requests sequentially; a request that is already waiting is not queued twice.
    """

    def __init__(
        self,
        client: KazooClient,
        cluster: str,
        record: ContainerRecord,
        post: PostEvent,
        probe: Probe = no_probe,
    ) -> None:
        self._client = client
        self._probe = probe
        self._path = container_path(cluster, record.container)
        self._controller_path = controller_path(cluster)
        self._data = encode(record)
        self._post = post
        self._worker = Worker("membership")
        self._waiting: set[_Question] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start connecting, unless the client is started; `SessionConnected` follows when ZooKeeper answers."""
        self._client.add_listener(self._session_changed)
        self._worker.start()
        if self._client.client_state == KeeperState.CLOSED:
            self._client.start_async()
        elif self._client.connected:
            self._post(SessionConnected())

    def register(self) -> None:
        """Request the registration."""
        self._ask(_Question(self._register, RegistrationFailed))

    def look_up_leader(self) -> None:
        """Request the leader."""
        self._ask(_Question(self._look_up, LeaderUnknown))

    def leave(self, timeout_seconds: float) -> None:
        """Withdraw the registration; see `standby.adapters.zookeeper.leaving.leave`."""
        leave(self._client, self._path, timeout_seconds)

    def _session_changed(self, state: str) -> None:
        self._post(_STATES[state])

    def _leader_moved(self, event: WatchedEvent) -> None:
        # NONE means that the watch was lost with the connection: after reconnecting, the leader is read again.
        if event.type != EventType.NONE:
            self._post(LeaderMoved())

    def _ask(self, question: _Question) -> None:
        with self._lock:
            if question in self._waiting:
                return
            self._waiting.add(question)
        self._worker.put(lambda: self._answer(question))

    def _answer(self, question: _Question) -> None:
        with self._lock:
            # From here on, the same request may be queued again: things may change while it is processed.
            self._waiting.discard(question)
        try:
            event = question.ask()
        except Exception as error:  # noqa: BLE001 - every request must be answered
            event = question.failed(summary_of(error))
        self._post(event)

    def _register(self) -> ControlEvent:
        self._probe(REGISTERING)
        with translated(self._path):
            try:
                return Registered(self._create())
            except NodeExistsError:
                # The node of a former session of this container was deleted; retry.
                return Registered(self._create())

    def _create(self) -> int:
        """Return the czxid of the container's znode in the current session."""
        try:
            _, stat = self._client.create_async(
                self._path, self._data, ephemeral=True, makepath=True, include_data=True
            ).get(timeout=ANSWER_SECONDS)
            return int(stat.czxid)
        except NodeExistsError:
            stat = self._client.exists_async(self._path).get(timeout=ANSWER_SECONDS)
            session = self._client.client_id
            if stat is not None and session is not None and stat.ephemeralOwner == session[0]:
                # An earlier attempt had succeeded; only its answer was lost.
                return int(stat.czxid)
            # The node belongs to a former session of this container: no other process has its id.
            if stat is not None:
                self._client.delete_async(self._path, version=stat.version).get(timeout=ANSWER_SECONDS)
            raise

    def _look_up(self) -> ControlEvent:
        with translated(self._controller_path):
            data = read_or_watch(self._client, self._controller_path, self._leader_moved, ANSWER_SECONDS)
        if data is None:
            return LeaderChanged(None)
        return LeaderChanged(decoded(data, self._controller_path, ControllerRecord))
