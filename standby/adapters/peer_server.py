"""The container's port for its peers: HTTP over mutual TLS."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Generator, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from standby.adapters.tls import server_context
from standby.errors import StandfastError, Transient, Unavailable
from standby.peers import PeerAnswer, PeerRequest, Routes

_log: Final = logging.getLogger(__name__)

#: A client that says nothing, or takes nothing, for so long does not keep its thread.
_SILENCE_SECONDS: Final = 20.0

#: Requests carry names, not data.
_MOST_BODY_BYTES: Final = 1 << 20


class PeerServer:
    """Serves on a free port of the host, to whoever has the credentials in ``directory``.

    One thread for each connection; none of the container's own threads waits for any of them.
    Raises `BadConfiguration` without credentials, `Unavailable` when it cannot listen.
    """

    def __init__(self, host: str, directory: Path) -> None:
        context = server_context(directory)
        try:
            self._server = _Server((host, 0), _Requests)
        except OSError as error:
            raise Unavailable(f"NM_HOST: cannot listen on {host}: {error.strerror or error}") from error
        self._server.context = context
        self._thread: threading.Thread | None = None
        self.port: int = self._server.server_address[1]

    def start(self, routes: Routes) -> None:
        """Begin to answer."""
        self._server.routes = routes
        self._thread = threading.Thread(target=self._server.serve_forever, name="peers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and cut off who is being answered."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.cut_off()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext
    routes: Routes

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands on the connection's own thread: a slow client holds up nobody else."""
        request.settimeout(_SILENCE_SECONDS)
        try:
            secured = self.context.wrap_socket(request, server_side=True)
        except OSError as error:
            _log.debug("%s: no peer: %s", client_address, error)
            return
        with self._lock:
            self._open.add(secured)
        try:
            self.RequestHandlerClass(secured, client_address, self)  # type: ignore[arg-type] # the stubs say Self
        except OSError as error:
            _log.debug("%s: gone: %s", client_address, error)
        finally:
            with self._lock:
                self._open.discard(secured)
            secured.close()

    def cut_off(self) -> None:
        """End every connection."""
        with self._lock:
            for each in self._open:
                try:
                    # The TLS layer's own end is not waited for: its thread may be writing.
                    socket.socket.shutdown(each, socket.SHUT_RDWR)
                except OSError:
                    continue


class _Requests(BaseHTTPRequestHandler):
    server: _Server
    # A state is many files, and a handshake for each would cost more than the small ones.
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE_SECONDS

    def do_GET(self) -> None:
        """Answer by the route."""
        self._route()

    def do_POST(self) -> None:
        """Answer by the route."""
        self._route()

    def do_DELETE(self) -> None:
        """Answer by the route."""
        self._route()

    def _route(self) -> None:
        path, _, query = self.path.partition("?")
        parts = tuple(urllib.parse.unquote(each) for each in path.strip("/").split("/"))
        route = self.server.routes.get(parts[0])
        start = _start_of(self.headers.get("Range"))
        length = self.headers.get("Content-Length", "0")
        if route is None:
            answer = _problem(HTTPStatus.NOT_FOUND, "one of: " + ", ".join(sorted(self.server.routes)))
        elif start is None or not length.isdecimal() or int(length) > _MOST_BODY_BYTES:
            self.close_connection = True
            answer = _problem(HTTPStatus.BAD_REQUEST, "the only range is bytes=<start>-, a body is small")
        else:
            body = self.rfile.read(int(length))
            request = PeerRequest(
                self.command, parts, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), start, body
            )
            try:
                answer = route(request)
            except Transient as error:
                answer = _problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            except StandfastError as error:
                answer = _problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        self._answer(answer)

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
                # Or the next answer would be taken for the rest of this one.
                self.close_connection = True
        except StandfastError as error:
            # Too late for another status: that the answer is cut short says it.
            _log.warning("%s: %s", self.path, error)
            self.close_connection = True
        finally:
            if isinstance(pieces, Generator):
                # Also when the peer has gone: what it was given must not wait for the garbage collector.
                pieces.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent class has it so
        """What is asked is told by who answers."""


def _problem(status: HTTPStatus, text: str) -> PeerAnswer:
    return PeerAnswer(status, text.encode() + b"\n", "text/plain")


def _start_of(text: str | None) -> int | None:
    """Return where a Range header begins; 0 without one, None when it is of another form."""
    if text is None:
        return 0
    start = text.removeprefix("bytes=").removesuffix("-")
    return int(start) if start.isdecimal() and f"bytes={start}-" == text else None
