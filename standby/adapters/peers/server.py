"""The container's port for its peers: HTTP over mutual TLS."""

from __future__ import annotations

import logging
import selectors
import ssl
import urllib.parse
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final

from standby.adapters.acceptor import Acceptor, Connection, Limits, MalformedRequest
from standby.adapters.tls import TlsCredentials
from standby.errors import StandfastError, Transient
from standby.shared.peers import (
    BODY_BYTES,
    ROWS_BYTES,
    TRANSFORMS_ROUTE,
    PeerAnswer,
    PeerRequest,
    Routes,
    refusal,
)
from standby.shared.roles import Caller, caller_of_peer

_log: Final = logging.getLogger(__name__)

#: Limits for all connections together, and for handshakes. Containers of one host share an address.
LIMITS: Final = Limits(connections=256, per_address=64, seconds=5.0)

#: Number of peers that are served at once; others wait.
_ANSWERED: Final = 64

#: A client that sends or receives nothing for this long loses its thread.
_SILENCE_SECONDS: Final = 20.0


class PeerServer:
    """Serves on a free port of the host, to clients with credentials that ``keys`` trust.

    One thread per authenticated connection; none of the container's own threads waits for these. Raises
    `Unavailable` when it cannot listen.
    """

    def __init__(self, host: str, keys: TlsCredentials) -> None:
        self._keys = keys
        self.gate = Acceptor(host, 0, LIMITS, "peers")
        self.port: int = self.gate.port
        self._pool = ThreadPoolExecutor(_ANSWERED, thread_name_prefix="peer")
        self._routes: Routes = {}

    def start(self, routes: Routes) -> None:
        """Start serving."""
        self._routes = routes
        self.gate.start(self._greet)

    def close(self) -> None:
        """Stop serving, and close all connections."""
        self.gate.close()
        # Connections that are still waiting for a thread get one, which closes them.
        self._pool.shutdown(wait=False)

    def _greet(self, connection: Connection) -> None:
        """Do the handshake without blocking: slow clients delay no others, and unauthenticated ones get no thread."""
        secured = self._keys.server_context().wrap_socket(
            connection.socket, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )
        connection.socket = secured

        def shake_hands() -> int:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                return selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                return selectors.EVENT_WRITE
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
                raise ConnectionAbortedError("closed during the handshake") from error
            except ssl.SSLError as error:
                raise MalformedRequest(str(error)) from error
            caller = caller_of_peer(secured.getpeercert())
            if caller is None:
                raise MalformedRequest("a certificate without a role")
            self.gate.let_in(connection, is_served_elsewhere=True)
            self._pool.submit(self._serve, connection, secured, caller)
            return 0

        connection.step = shake_hands

    def _serve(self, connection: Connection, secured: ssl.SSLSocket, caller: Caller) -> None:
        try:
            secured.settimeout(_SILENCE_SECONDS)
            # The handler needs only these attributes of a server.
            _Requests(secured, (connection.address, 0), _Served(self._routes, caller))  # type: ignore[arg-type]
        except OSError as error:
            _log.debug("%s: gone: %s", connection.address, error)
        except Exception:  # noqa: BLE001 - the outermost level of a thread of the pool
            _log.exception("%s: unexpected error", connection.address)
        finally:
            secured.close()
            self.gate.post(lambda: self.gate.release(connection))


@dataclass(frozen=True, slots=True)
class _Served:
    routes: Routes
    caller: Caller


class _Requests(BaseHTTPRequestHandler):
    server: _Served  # type: ignore[assignment] # only the routes are needed
    # A state has many files, and a handshake per file would cost more than the small ones.
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE_SECONDS

    def version_string(self) -> str:
        """Return the Server header, without versions, which would only help attackers."""
        return "standfast"

    def _route(self) -> None:
        path, _, query = self.path.partition("?")
        parts = tuple(urllib.parse.unquote(each) for each in path.strip("/").split("/"))
        route = self.server.routes.get(parts[0])
        start = _start_of(self.headers.get("Range"))
        length = self.headers.get("Content-Length", "0")
        most = ROWS_BYTES if parts[0] == TRANSFORMS_ROUTE else BODY_BYTES
        if route is None:
            answer = refusal(HTTPStatus.NOT_FOUND, "one of: " + ", ".join(sorted(self.server.routes)))
        elif start is None or not length.isdecimal() or int(length) > most:
            self.close_connection = True
            answer = refusal(
                HTTPStatus.BAD_REQUEST, "the only supported range is bytes=<start>-, and bodies must be small"
            )
        else:
            body = self.rfile.read(int(length))
            asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
            request = PeerRequest(self.server.caller, self.command, parts, asked, start, body)
            try:
                answer = route(request)
            except Transient as error:
                answer = refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            except StandfastError as error:
                answer = refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        self._answer(answer)

    do_GET = do_POST = do_DELETE = _route  # noqa: N815 - the parent class has it so

    def _answer(self, answer: PeerAnswer) -> None:
        body = answer.body
        pieces: Iterable[bytes] = (body,) if isinstance(body, bytes) else body
        length = len(body) if isinstance(body, bytes) else answer.length
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        try:
            sent = 0
            for piece in pieces:
                self.wfile.write(piece)
                sent += len(piece)
            if length is not None and sent != length:
                # Otherwise the next answer would be mistaken for the rest of this one.
                self.close_connection = True
        except StandfastError as error:
            # It is too late for another status: the truncated answer shows the failure.
            _log.warning("%s: %s", self.path, error)
            self.close_connection = True
        finally:
            if isinstance(pieces, Generator):
                # Also when the peer is gone: resources of the answer must not wait for the garbage collector.
                pieces.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent class has it so
        """Log nothing: requests are logged by the routes."""


def _start_of(text: str | None) -> int | None:
    """Return the start of a Range header; 0 without one, None when it has another form."""
    if text is None:
        return 0
    start = text.removeprefix("bytes=").removesuffix("-")
    return int(start) if start.isdecimal() and f"bytes={start}-" == text else None
