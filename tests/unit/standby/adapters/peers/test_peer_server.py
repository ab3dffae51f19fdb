"""The port for peers: which clients it accepts, and what it answers."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator

import pytest

from standby.adapters.peers.server import PeerServer
from standby.errors import Transient, Unavailable
from standby.shared.peers import PeerAnswer, PeerRequest
from standby.shared.roles import PeerRole
from tests.fakes.certificates import alert_to_an_old_client, keys_of, new_keyring
from tests.fakes.peers import connect_peer
from tests.patience import PATIENCE_SECONDS


def answer(request: PeerRequest) -> PeerAnswer:
    match request.path[1:]:
        case ("echo", text):
            said = f"{request.method} {text} {dict(request.query)} {request.start}"
            return PeerAnswer(200, said.encode() + request.body, "text/plain")
        case ("pieces",):
            return PeerAnswer(200, iter([b"one ", b"two"]))
        case ("busy",):
            raise Transient("later")
        case _:
            raise Unavailable("never")


@pytest.fixture
def server() -> Iterator[PeerServer]:
    made = PeerServer("127.0.0.1", keys_of(PeerRole.CONTAINER))
    made.start({"test": answer})
    yield made
    made.close()


def ask(
    connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes]:
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def ask_once(raw: socket.socket, context: ssl.SSLContext) -> None:
    """Ask over TLS; raises OSError when there is no answer."""
    with context.wrap_socket(raw) as secured:
        secured.sendall(b"GET /test/echo/a HTTP/1.1\r\n\r\n")
        if not secured.recv(100):
            raise ConnectionResetError


def test_a_peer_is_answered_by_its_route_over_one_connection(server: PeerServer) -> None:
    connection = connect_peer(server.port)
    assert ask(connection, "/test/echo/a%2Fb?x=1&y=", Range="bytes=7-") == (
        200,
        b"GET a/b {'x': '1', 'y': ''} 7",
    )
    assert ask(connection, "/test/echo/b", "DELETE") == (200, b"DELETE b {} 0")
    assert ask(connection, "/test/busy") == (503, b"later\n")
    assert ask(connection, "/test/other") == (500, b"never\n")
    assert ask(connection, "/elsewhere") == (404, b"one of: test\n")
    assert ask(connection, "/test/pieces") == (200, b"one two")
    connection.close()


def test_other_ranges_are_refused(server: PeerServer) -> None:
    for header in ("bytes=1-2", "bytes=-3", "bytes=0-,5-", "lines=1-"):
        connection = connect_peer(server.port)
        assert ask(connection, "/test/echo/a", Range=header)[0] == 400, header
        connection.close()


def test_without_the_clusters_credentials_no_request_is_answered(server: PeerServer) -> None:
    other = new_keyring()
    # A server that is not of the cluster is not talked to, either.
    with pytest.raises(ssl.SSLCertVerificationError):
        connect_peer(server.port, other)
    # No client without a certificate, with another one, or in the clear.
    for ring in (None, other):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if ring is not None:
            context.load_cert_chain(ring.directory / "container.crt", ring.directory / "container.key")
        raw = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
        # With TLS 1.3 the client hears of the refusal only when it reads.
        with pytest.raises(OSError):  # noqa: PT011 - refused by the one side or reset by the other
            ask_once(raw, context)
    plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(plain, "/test/echo/a")
    plain.close()


def test_nothing_before_tls_1_2_is_spoken(server: PeerServer) -> None:
    assert "ALERT_PROTOCOL_VERSION" in alert_to_an_old_client(server.port)


def test_closing_cuts_off_who_is_being_answered() -> None:
    server = PeerServer("127.0.0.1", keys_of(PeerRole.CONTAINER))
    server.start({"test": answer})
    connection = connect_peer(server.port)
    assert ask(connection, "/test/echo/a")[0] == 200
    server.close()
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(connection, "/test/echo/a")
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS)
