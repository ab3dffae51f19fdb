"""A port for everybody: each request is answered, and a flood of others costs neither threads, nor memory, nor log."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from standby.adapters.acceptor import Acceptor, Limits, RejectReason
from standby.adapters.http_port import LIMITS, HttpPages, HttpRequest, HttpResponse
from standby.adapters.peers.server import LIMITS as PEER_LIMITS
from standby.adapters.peers.server import PeerServer
from standby.shared.peers import PeerAnswer
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.fakes.clock import HandClock, held
from tests.fakes.peers import connect_peer
from tests.floods import dripping, flood, idle
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS, soon

#: A real container is given more of them (`tests/system/lone/test_container_floods.py`).
_STRANGERS = 300

#: Less than a line for each of them.
_LOGGED_BYTES = 100 * _STRANGERS

#: More than any answer's part of it that a socket takes at once.
_LARGE = bytes(16 << 20)


def answer(request: HttpRequest) -> HttpResponse:
    if request.path == "/fails":
        raise RuntimeError("of our own")
    body = _LARGE if request.path == "/large" else f"{request.path} {request.accept}".encode()
    return HttpResponse(HTTPStatus.OK, "text/plain", body)


@pytest.fixture
def clock() -> HandClock:
    return held()


@pytest.fixture
def pages(clock: HandClock) -> Iterator[HttpPages]:
    made = HttpPages("127.0.0.1", clock=clock)
    made.start(answer)
    yield made
    made.close()


def say(port: int, said: bytes, source: str = "127.0.0.1") -> bytes:
    """Return everything that is answered."""
    address = ("127.0.0.1", port)
    with socket.create_connection(address, PATIENCE_SECONDS, (source, 0)) as connection:
        connection.sendall(said)
        answered = b""
        while piece := connection.recv(1 << 20):
            answered += piece
        return answered


def get(port: int, path: str = "/page", source: str = "127.0.0.1") -> bytes:
    return say(port, f"GET {path} HTTP/1.0\r\nAccept: a/b\r\n\r\n".encode(), source)


def test_page_is_answered_without_saying_by_what(pages: HttpPages) -> None:
    head, _, body = get(pages.port, "/page?x=1").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert body == b"/page a/b"
    assert b"server" not in head.lower()


def test_clients_of_every_kind_are_understood(pages: HttpPages) -> None:
    assert say(pages.port, b"GET /a HTTP/1.1\r\nHost: x\r\naccept:  c/d\r\n\r\n").endswith(b"/a c/d")
    assert say(pages.port, b"GET /a HTTP/1.0\n\n").endswith(b"\r\n\r\n/a ")
    connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/large")
    assert connection.getresponse().read() == _LARGE
    connection.request("POST", "/page", body=b"x")
    assert connection.getresponse().status == 501
    connection.close()


def test_what_is_no_request_is_not_answered_and_a_head_without_an_end_is_cut_off(pages: HttpPages) -> None:
    said = (b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\n\n", b"GET x HTTP/1.0\r\n\r\n")
    for each in said:
        assert say(pages.port, each) == b"", each
    with pytest.raises(ConnectionError):
        say(pages.port, b"GET /" + b"a" * (1 << 20))
    assert pages.gate.refused[RejectReason.NOT_UNDERSTOOD] == len(said) + 1


def test_error_of_our_own_is_logged_once_a_minute_and_not_shown(
    pages: HttpPages, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        assert b" 500 " in get(pages.port, "/fails")
        clock.advance(6)
    assert [str(each.exc_info[1]) for each in caplog.records if each.exc_info] == ["of our own"] * 2


def test_slow_client_is_cut_off_whether_it_asks_or_reads_and_is_logged_once_a_minute(
    pages: HttpPages, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for before, said in enumerate((b"", b"GET /pa", b"GET /large HTTP/1.0\r\n\r\n")):
        with socket.create_connection(("127.0.0.1", pages.port), PATIENCE_SECONDS) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(said)
            soon(lambda: pages.gate._connections, "it is accepted")
            if said.endswith(b"\n"):
                assert connection.recv(1), "no more is read until the port has given up"
            clock.advance(LIMITS.seconds - 1)
            clock.await_looks("http")
            assert pages.gate.refused[RejectReason.TOO_SLOW] == before
            clock.advance(1)
            soon(lambda: not pages.gate._connections, "it is cut off")
            assert pages.gate.refused[RejectReason.TOO_SLOW] == before + 1
    clock.advance(60)
    soon(lambda: len(caplog.messages) == 2, "the others are logged")
    assert [each.rpartition(": ")[2] for each in caplog.messages] == ["1 too slow", "2 too slow"]


def test_idle_connections_make_way_for_requests_from_the_same_address(pages: HttpPages) -> None:
    with flood() as strangers:
        for _ in range(4):
            for _ in range(LIMITS.per_address):
                strangers._open("127.0.0.1", pages.port, b"", "127.0.0.1")
            assert get(pages.port).endswith(b"/page a/b")


def test_request_in_the_works_does_not_make_way() -> None:
    going_on, may_end = threading.Event(), threading.Event()

    def slowly(request: HttpRequest) -> HttpResponse:
        going_on.set()
        may_end.wait(PATIENCE_SECONDS)
        return answer(request)

    pages = HttpPages("127.0.0.1", limits=Limits(connections=2, per_address=1, seconds=NEVER_SECONDS))
    pages.start(slowly)
    try:
        with socket.create_connection(("127.0.0.1", pages.port), PATIENCE_SECONDS) as first:
            first.sendall(b"GET /page HTTP/1.0\r\n\r\n")
            assert going_on.wait(PATIENCE_SECONDS)
            with pytest.raises(ConnectionError):
                get(pages.port)
            may_end.set()
            assert first.recv(1000).startswith(b"HTTP/1.0 200")
    finally:
        may_end.set()
        pages.close()


# ---- floods ----


def _logged(caplog: pytest.LogCaptureFixture) -> int:
    return sum(len(each.getMessage()) + 100 for each in caplog.records)


def _settled(gate: Acceptor) -> bool:
    """Whether everything that was poured has been accepted, and what is there is within its bounds."""
    assert len(gate._connections) <= gate.limits.connections
    return sum(gate.refused.values()) + len(gate._connections) >= _STRANGERS


def test_flood_costs_no_thread_and_no_log_and_keeps_no_client_out(
    pages: HttpPages, caplog: pytest.LogCaptureFixture
) -> None:
    threads = threading.active_count()
    with caplog.at_level(logging.DEBUG), flood() as strangers:
        strangers.pour("127.0.0.1", [pages.port], _STRANGERS, [idle, dripping])
        soon(lambda: _settled(pages.gate), "all are accepted")
        assert get(pages.port, source="127.0.0.2").endswith(b"/page a/b")
        # Two make answers.
        assert threading.active_count() <= threads + 2
        assert _logged(caplog) < _LOGGED_BYTES
        strangers.pour("127.0.0.1", [pages.port], _STRANGERS)
        assert get(pages.port, source="127.0.0.2").endswith(b"/page a/b")
        assert _logged(caplog) < _LOGGED_BYTES
    assert "Traceback" not in caplog.text


def test_flood_of_the_port_for_peers_leaves_it_to_peers(caplog: pytest.LogCaptureFixture) -> None:
    server = PeerServer("127.0.0.1", keys_of(PeerRole.CONTAINER))
    server.start({"test": lambda _: PeerAnswer(200, b"yes", "text/plain")})
    threads = threading.active_count()
    try:
        with caplog.at_level(logging.DEBUG), flood() as strangers:
            for kinds in ([idle, dripping], None):
                strangers.pour("127.0.0.1", [server.port], _STRANGERS, *([kinds] if kinds else []))
                assert len(server.gate._connections) <= PEER_LIMITS.connections
                peer = connect_peer(server.port)
                peer.request("GET", "/test")
                response = peer.getresponse()
                assert response.read() == b"yes"
                assert response.headers["Server"] == "standfast"
                peer.close()
                # One for the peer that was served before, and one for this one.
                assert threading.active_count() <= threads + 2
            assert _logged(caplog) < _LOGGED_BYTES
        assert "Traceback" not in caplog.text
    finally:
        server.close()
