"""The container's registration in ZooKeeper, and the reader of task records, over kazoo.

Kazoo's callbacks only post events; calls that wait for an answer run on a separate thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from standby.code import bundles
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
from standby.errors import BadConfiguration, Transient
from standby.shared.model import TaskId, TaskRecord
from standby.shared.naming import (
    code_complete_path,
    code_part_path,
    container_path,
    controller_path,
    task_path,
)
from standby.shared.peers import PeerAddress
from standby.shared.probes import REGISTERING, Probe, no_probe
from standby.shared.records import ContainerRecord, ControllerRecord, decode_task, decoded, encode
from standby.threads.worker import Worker

#: Time-out of a request to ZooKeeper; a suspended connection answers none.
_ANSWER_SECONDS: Final = 5.0

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
        """Delete the znode and close the session, which would delete it, too."""

        def leave() -> None:
            try:
                self._client.delete_async(self._path).get(timeout=timeout_seconds)
            except (KazooException, KazooTimeoutError):
                pass  # the end of the session deletes it
            finally:
                self._client.stop()

        leaving = threading.Thread(target=leave, name="leave", daemon=True)
        leaving.start()
        leaving.join(timeout_seconds)

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
            event = question.failed(_text(error))
        self._post(event)

    def _register(self) -> ControlEvent:
        self._probe(REGISTERING)
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
            ).get(timeout=_ANSWER_SECONDS)
            return int(stat.czxid)
        except NodeExistsError:
            stat = self._client.exists_async(self._path).get(timeout=_ANSWER_SECONDS)
            session = self._client.client_id
            if stat is not None and session is not None and stat.ephemeralOwner == session[0]:
                # An earlier attempt had succeeded; only its answer was lost.
                return int(stat.czxid)
            # The node belongs to a former session of this container: no other process has its id.
            if stat is not None:
                self._client.delete_async(self._path, version=stat.version).get(timeout=_ANSWER_SECONDS)
            raise

    def _look_up(self) -> ControlEvent:
        data = read_or_watch(self._client, self._controller_path, self._leader_moved)
        if data is None:
            return LeaderChanged(None)
        return LeaderChanged(decoded(data, self._controller_path, ControllerRecord))


def read_or_watch(client: KazooClient, path: str, watch: Callable[[WatchedEvent], None]) -> bytes | None:
    """Return the znode's data; None when it does not exist. In both cases ``watch`` is called at the next change."""
    while True:
        try:
            data, _ = client.get_async(path, watch=watch).get(timeout=_ANSWER_SECONDS)
        except NoNodeError:
            if client.exists_async(path, watch=watch).get(timeout=_ANSWER_SECONDS) is None:
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

    def _read(self, path: str, *, is_synced: bool = False) -> bytes | None:
        """Return a node's data, None if there is none; ``is_synced``: as it was at this call or later."""
        try:
            # Both are sent at once: a server processes a client's requests in order.
            synced: Any = self._client.sync_async(path) if is_synced else None
            got: Any = self._client.get_async(path)
            if synced is not None:
                synced.get(timeout=self._timeout_seconds)
            data: bytes = got.get(timeout=self._timeout_seconds)[0]
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise Transient(f"{path} cannot be read from ZooKeeper now: {_text(error)}") from error
        return data


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
