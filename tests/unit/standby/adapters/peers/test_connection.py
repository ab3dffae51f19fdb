"""What fetches from peers: cut off wherever it is, and never deceived about an end. For each of its users."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from ssl import SSLContext

import psutil
import pytest

from standby.adapters.peers import code, connection
from standby.adapters.peers.client import HttpSnapshotSource
from standby.adapters.peers.code import PeerCode
from standby.adapters.peers.server import PeerServer
from standby.errors import Transient
from standby.shared.peers import (
    CODE_ROUTE,
    SNAPSHOTS_ROUTE,
    BundleSource,
    PeerAddress,
    PeerAnswer,
    PeerRequest,
)
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.fakes.peers import SilentPort
from tests.meanwhile import background
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS, soon

#: Half of it is more than one piece.
_SIZE = 2 << 20


@dataclass
class User:
    """What fetches, and from which peer."""

    role: PeerRole
    route: str
    pieces: Callable[[int], Iterator[bytes]]
    """Fetches what the peer at a port gives."""
    interrupt: Callable[[], None]
    contexts: list[SSLContext]
    """One for each connection."""
    sources: list[HttpSnapshotSource] = field(default_factory=list)

    def fetch(self, port: int) -> bytes:
        return b"".join(self.pieces(port))

    def close(self) -> None:
        for each in self.sources:
            each.close()


def snapshots() -> User:
    contexts, made = _counted()
    sources: list[HttpSnapshotSource] = []

    def pieces(port: int) -> Iterator[bytes]:
        if not sources:
            sources.append(
                HttpSnapshotSource(made, PeerAddress("provider", "127.0.0.1", port), NEVER_SECONDS)
            )
        return sources[0].read("lease", "file", 0)

    def interrupt() -> None:
        sources[0].interrupt()

    return User(PeerRole.CONTAINER, SNAPSHOTS_ROUTE, pieces, interrupt, contexts, sources)


def bundles() -> User:
    contexts, made = _counted()
    peers = PeerCode(made)

    def pieces(port: int) -> Iterator[bytes]:
        return peers._get("bundle", BundleSource("provider", "127.0.0.1", port), 0)

    return User(PeerRole.MASTER, CODE_ROUTE, pieces, peers.interrupt, contexts)


def _counted() -> tuple[list[SSLContext], Callable[[], SSLContext]]:
    contexts: list[SSLContext] = []

    def made() -> SSLContext:
        contexts.append(keys_of(PeerRole.CONTAINER).client_context())
        return contexts[-1]

    return contexts, made


@pytest.fixture(params=[snapshots, bundles])
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """A user who waits for ever: what ends all the same was cut off."""
    monkeypatch.setattr(connection, "_CONNECT_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(code, "_SILENCE_SECONDS", NEVER_SECONDS)
    with closing(request.param()) as made:
        yield made


@contextmanager
def served(user: User, answer: Callable[[PeerRequest], PeerAnswer]) -> Iterator[int]:
    """Yield the port at which this is answered."""
    with closing(PeerServer("127.0.0.1", keys_of(user.role))) as server:
        server.start({user.route: answer})
        yield server.port


class Call:
    """A fetch on a thread of its own."""

    def __init__(self, user: User, port: int) -> None:
        self.user, self.port = user, port
        self.has_begun = threading.Event()
        """Set when the first piece has come."""
        self._running = background(self._fetch)

    def _fetch(self) -> None:
        for _ in self.user.pieces(self.port):
            self.has_begun.set()

    def assert_called_off(self) -> None:
        raised = self._running.exception(PATIENCE_SECONDS)
        assert isinstance(raised, Transient), "it waits for what was called off"
        assert "cancelled" in str(raised)


def assert_called_off(call: Call) -> None:
    """Call everything off; the call must end, and whatever comes after it."""
    call.user.interrupt()
    call.assert_called_off()
    opened = len(call.user.contexts)
    Call(call.user, call.port).assert_called_off()
    assert len(call.user.contexts) == opened, "no peer is asked any more"


def test_a_connect_is_called_off(user: User) -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full,
        # The one place for a client that was not accepted yet.
        closing(socket.create_connection(full.getsockname(), PATIENCE_SECONDS)),
    ):
        port: int = full.getsockname()[1]
        call = Call(user, port)
        soon(lambda: _is_connecting(port), "it does not connect")
        assert_called_off(call)


def _is_connecting(port: int) -> bool:
    connecting = [each for each in psutil.Process().net_connections("tcp") if each.status == "SYN_SENT"]
    return port in {each.raddr.port for each in connecting}


def test_a_handshake_is_called_off(user: User) -> None:
    with closing(SilentPort()) as silent:
        call = Call(user, silent.port)
        assert silent.reached.wait(PATIENCE_SECONDS)
        assert_called_off(call)


def test_what_is_being_read_is_called_off(user: User) -> None:
    go_on = threading.Event()

    def held() -> Iterator[bytes]:
        yield bytes(_SIZE // 2)
        # Without end: a wait for it must not end by itself.
        go_on.wait()

    with served(user, lambda _: PeerAnswer(200, held(), length=_SIZE)) as port, ExitStack() as last:
        last.callback(go_on.set)
        call = Call(user, port)
        assert call.has_begun.wait(PATIENCE_SECONDS)
        assert_called_off(call)


def test_an_early_end_is_not_taken_for_the_end(user: User) -> None:
    with (
        served(user, lambda _: PeerAnswer(200, iter([b"some"]), length=8)) as port,
        pytest.raises(Transient, match="IncompleteRead"),
    ):
        user.fetch(port)


@pytest.mark.parametrize(
    ("answer", "connections"), [(PeerAnswer(200, b"all"), 1), (PeerAnswer(200, (b"all",)), 2)]
)
def test_a_container_is_asked_over_one_connection_as_long_as_it_is_open(
    answer: PeerAnswer, connections: int
) -> None:
    # Without a length, as for pieces, it ends behind the answer.
    with closing(snapshots()) as user, served(user, lambda _: answer) as port:
        assert [user.fetch(port), user.fetch(port)] == [b"all"] * 2
        assert len(user.contexts) == connections


def test_neither_end_keeps_a_small_message_until_the_one_before_is_acknowledged() -> None:
    at_once: list[bool] = []

    def answer(_: PeerRequest) -> PeerAnswer:
        at_once.extend(is_sent_at_once(each.socket) for each in server.gate._connections)
        return PeerAnswer(200, b"all")

    with closing(snapshots()) as user, closing(PeerServer("127.0.0.1", keys_of(user.role))) as server:
        server.start({user.route: answer})
        assert user.fetch(server.port) == b"all"
        ours = user.sources[0]._connection._socket
        assert ours is not None
        assert [*at_once, is_sent_at_once(ours)] == [True, True]


def is_sent_at_once(connected: socket.socket) -> bool:
    return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_nothing_is_sent_in_the_clear_when_a_connection_has_ended() -> None:
    user = bundles()
    with served(user, lambda _: PeerAnswer(200, iter([b'{"size": 1, "complete": false}']))) as port:
        client = PeerCode(keys_of(PeerRole.OPERATOR).client_context)
        with pytest.raises(Transient, match="NotConnected"):
            client.upload("bundle", b"data", BundleSource("provider", "127.0.0.1", port), lambda _: None)
