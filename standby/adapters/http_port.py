"""A public HTTP/1.0 port: read-only, with limits.

One thread receives requests and sends answers (`standby.adapters.acceptor`), and a few others compute the answers. A
slow or faulty client cannot block any of them.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from standby.adapters.acceptor import Acceptor, Connection, Limits, MalformedRequest
from standby.shared.clock import REAL, Clock

_log: Final = logging.getLogger(__name__)

#: Limits for strangers: a scrape takes milliseconds, and comes from few addresses.
LIMITS: Final = Limits(connections=64, per_address=16, seconds=10.0)

#: Maximum size of a request's first line and headers together.
_MOST_HEAD_BYTES: Final = 16 << 10

_PIECE_BYTES: Final = 64 << 10

#: Number of answers computed concurrently: clients that flood the port use at most two threads.
_WORKERS: Final = 2

#: Minimum interval between logged tracebacks of failed answers, in seconds: clients could cause any number of them.
_LOG_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A GET request."""

    path: str
    """Without the query."""
    accept: str
    """The Accept header; empty when there is none."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer."""

    status: HTTPStatus
    content_type: str
    body: bytes


Respond = Callable[[HttpRequest], HttpResponse]


class HttpPages:
    """Serves pages on one port of a host. Raises `Unavailable` when it cannot be opened."""

    def __init__(self, host: str, port: int = 0, limits: Limits = LIMITS, clock: Clock = REAL) -> None:
        self.gate = Acceptor(host, port, limits, "http", clock)
        self._clock = clock
        self.port = self.gate.port
        self._answer: Respond = lambda _: HttpResponse(HTTPStatus.NOT_FOUND, "text/plain", b"")
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="http")
        self._logged_at = -_LOG_SECONDS

    def start(self, answer: Respond) -> None:
        """Start serving; ``answer`` is called on threads of the port."""
        self._answer = answer
        self.gate.start(self._greet)

    def close(self) -> None:
        """Stop serving."""
        self.gate.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _greet(self, connection: Connection) -> None:
        head = bytearray()

        def read() -> int:
            try:
                data = connection.socket.recv(_PIECE_BYTES)
            except BlockingIOError:
                return selectors.EVENT_READ
            if not data:
                raise ConnectionAbortedError("closed before its request was complete")
            # This also limits what a client sends after its request.
            head.extend(data[: _MOST_HEAD_BYTES + 1 - len(head)])
            if (end := _end_of_head(head)) >= 0:
                self._ask(connection, bytes(head[:end]))
                return 0
            if len(head) > _MOST_HEAD_BYTES:
                raise MalformedRequest("the head of the request is too long")
            return selectors.EVENT_READ

        connection.step = read

    def _ask(self, connection: Connection, head: bytes) -> None:
        request = _parse(head)
        self.gate.let_in(connection)
        if request is None:
            body = b"only GET is supported\n"
            self._send(connection, HttpResponse(HTTPStatus.NOT_IMPLEMENTED, "text/plain", body))
            return

        def made(future: Future[HttpResponse]) -> None:
            if not future.cancelled():
                self.gate.post(lambda: self._send(connection, future.result()))

        self._pool.submit(self._make, request).add_done_callback(made)

    def _make(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._answer(request)
        except Exception:  # noqa: BLE001 - the outermost level of a thread of the pool
            now = self._clock.monotonic()
            if now - self._logged_at >= _LOG_SECONDS:
                self._logged_at = now
                _log.exception("%s: answering failed", request.path)
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"unexpected error\n")

    def _send(self, connection: Connection, page: HttpResponse) -> None:
        head = (
            f"HTTP/1.0 {page.status.value} {page.status.phrase}\r\n"
            f"Content-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\n"
            "Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n"
        )
        left = memoryview(head.encode() + page.body)

        def write() -> int:
            nonlocal left
            try:
                while left:
                    left = left[connection.socket.send(left[:_PIECE_BYTES]) :]
            except BlockingIOError:
                return selectors.EVENT_WRITE
            self.gate.cut_off(connection)
            return 0

        connection.step = write
        self.gate.renew(connection)


def _end_of_head(head: bytearray) -> int:
    ends = [end for mark in (b"\r\n\r\n", b"\n\n") if (end := head.find(mark)) >= 0]
    return min(ends, default=-1)


def _parse(head: bytes) -> HttpRequest | None:
    """Return the request; None for methods other than GET. Raises `MalformedRequest` for an invalid request."""
    first, _, rest = head.decode("latin-1").replace("\r\n", "\n").partition("\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise MalformedRequest("not an HTTP/1 request")
    if parts[0] != "GET":
        return None
    accepts = (
        value
        for name, _, value in (each.partition(":") for each in rest.split("\n"))
        if name.lower() == "accept"
    )
    return HttpRequest(parts[1].partition("?")[0], next(accepts, "").strip())
