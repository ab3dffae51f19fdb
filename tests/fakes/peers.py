"""Containers that provide and fetch state over real HTTP on this machine, without ZooKeeper."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from appmaster.adapters.credentials.keyring import Keyring
from standby.adapters.peers.client import open_sources
from standby.adapters.peers.server import PeerServer
from standby.errors import Transient
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.restore.fetch import Peers
from standby.kernel.restore.snapshots import FindOffer, Snapshots
from standby.ports import RecordReader
from standby.shared.model import TaskId, TaskRecord
from standby.shared.peers import SNAPSHOTS_ROUTE, PeerAddress, PeerAnswer, PeerRequest
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.fakes.clock import HandClock
from tests.patience import PATIENCE_SECONDS


class PeerNet:
    """Knows every container; a `standby.ports.PeerDirectory`."""

    def __init__(self) -> None:
        self.addresses: dict[str, PeerAddress] = {}
        self.providers: list[Provider] = []
        self.is_away = False

    def find(self, container: str) -> PeerAddress | None:
        if self.is_away:
            raise Transient("the registrations cannot be read")
        return self.addresses.get(container)

    def peers_of(self, container: str) -> Peers:
        """Return what a container fetches with."""
        return Peers(container, self, open_sources(keys_of(PeerRole.CONTAINER)))

    def give(self, container: str, find: FindOffer) -> Provider:
        """Have a container give its state; its provider ends with `close`."""
        provider = Provider(find)
        self.providers.append(provider)
        self.addresses[container] = PeerAddress(container, "127.0.0.1", provider.port)
        return provider

    def joined(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Return what starts containers as ``start`` does that fetch from each other; ids are those of their hosts."""

        def one(host: str, **more: Any) -> Any:
            container = start(host, peers=self.peers_of(host), **more)
            self.give(host, container.replicas.offer)
            return container

        return one

    def provider_of(self, container: str) -> Provider:
        """Return what a container gives with at present."""
        port = self.addresses[container].port
        return next(each for each in self.providers if each.port == port)

    def close(self) -> None:
        for each in self.providers:
            each.close()


class Provider:
    """The port of one container, and what passes through it."""

    def __init__(self, find: FindOffer) -> None:
        self.restores = RestoreCounters()
        self.clock = HandClock()
        self.snapshots = Snapshots(find, self.restores, self.clock)
        self.requests: list[PeerRequest] = []
        self._held: list[threading.Event] = []
        #: Called with each piece of a file, before it is sent.
        self.on_piece: Callable[[bytes], None] = lambda _: None
        #: Makes other bytes of a piece on its way.
        self.change: Callable[[bytes], bytes] = lambda piece: piece
        self._server = PeerServer("127.0.0.1", keys_of(PeerRole.CONTAINER))
        self._server.start({SNAPSHOTS_ROUTE: self._answer})
        self.port = self._server.port

    def close(self) -> None:
        """End it as a process ends: every connection is cut off."""
        self._server.close()
        for each in self._held:
            each.set()
        self.snapshots.close()

    def cut_off(self) -> None:
        """End every connection, and go on giving."""
        for each in tuple(self._server.gate._connections):
            with suppress(OSError):
                socket.socket.shutdown(each.socket, socket.SHUT_RDWR)

    def hold_files(self) -> tuple[threading.Event, threading.Event]:
        """Stop in the midst of a file; return what says that it did, and what lets it go on."""
        reached, go_on = threading.Event(), threading.Event()
        self._held.append(go_on)

        def hold(_: bytes) -> None:
            reached.set()
            # Without end: a wait for it must not end by itself.
            go_on.wait()

        self.on_piece = hold
        return reached, go_on

    def _answer(self, request: PeerRequest) -> PeerAnswer:
        self.requests.append(request)
        answer = self.snapshots.answer(request)
        if request.method != "GET" or isinstance(answer.body, bytes):
            return answer
        pieces = answer.body

        def watched() -> Iterator[bytes]:
            for piece in pieces:
                self.on_piece(piece)
                yield self.change(piece)

        return replace(answer, body=watched())


def by_source(restores: RestoreCounters, name: str = "standfast_restores_total") -> dict[str, float]:
    """Return what a metric of restores counts, by where the state came from."""
    found = next(each for each in restores.metrics() if each.metric.name == name)
    return {labels[1]: value for labels, value in found.values}


class PlacedRecords:
    """Task records that say, too, in which containers the copies are; a `standby.ports.RecordReader`."""

    def __init__(self, records: RecordReader) -> None:
        self._records = records
        self.placed: Mapping[int, str] = {}
        self.in_sync: tuple[int, ...] = ()

    def read(self, task: TaskId) -> TaskRecord | None:
        record = self._records.read(task)
        return record and replace(record, placed=self.placed, in_sync=self.in_sync)


class SilentPort:
    """Accepts connections and never says a word, as a process that was stopped does."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        #: Set when somebody has said the first word of a handshake, and so waits for the answer.
        self.reached = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._open.append(self._server.accept()[0])
                if self._open[-1].recv(1):
                    self.reached.set()
            except OSError:
                return

    def close(self) -> None:
        for each in (self._server, *self._open):
            each.close()


def connect_peer(port: int, ring: Keyring | None = None) -> http.client.HTTPConnection:
    """Return a connection to a container's port for peers, with an operator's credentials."""
    raw = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    context = keys_of(PeerRole.OPERATOR, ring).client_context()
    connection.sock = context.wrap_socket(raw, server_hostname=PeerRole.CONTAINER.server_name)
    return connection
