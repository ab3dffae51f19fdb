"""Pages for everybody who reaches a port: HTTP/1.0, reading only, within bounds.

One thread takes requests in and sends answers out (`standby.adapters.gate`), few others make the answers: what a client
does or fails to do keeps none of them busy.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from standby.adapters.gate import Connection, Gate, Limits, Refused, listening
from standby.shared.clock import REAL, Clock

_log: Final = logging.getLogger(__name__)

#: What strangers may take: a scrape takes milliseconds, and comes from few addresses.
LIMITS: Final = Limits(connections=64, per_address=16, seconds=10.0)

#: A request's first line and headers together.
_MOST_HEAD_BYTES: Final = 16 << 10

_PIECE_BYTES: Final = 64 << 10

#: Answers that are made at once: whoever asks as fast as he can takes no more of the interpreter than two threads do.
_WORKERS: Final = 2

#: Between two tracebacks of answers that failed, seconds: whoever asks could ask for as many as he likes.
_TOLD_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for with GET."""

    path: str
    """Without what follows a question mark."""
    accept: str
    """The header of that name; empty when there is none."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    status: HTTPStatus
    content_type: str
    body: bytes


Answer = Callable[[Request], Page]


class HttpPages:
    """Answers on one port of a host. Raises `Unavailable` when it cannot be opened."""

    def __init__(
        self, host: str, port: int = 0, name: str = "http", limits: Limits = LIMITS, clock: Clock = REAL
    ) -> None:
        self.gate: Gate = listening(host, port, limits, name, clock)
        self._clock = clock
        self.port = self.gate.port
        self._answer: Answer = lambda _: Page(HTTPStatus.NOT_FOUND, "text/plain", b"")
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix=name)
        self._told = -_TOLD_SECONDS

    def start(self, answer: Answer) -> None:
        """Begin to answer; ``answer`` is called on threads of the port."""
        self._answer = answer
        self.gate.start(self._greet)

    def close(self) -> None:
        """Answer no more."""
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
                raise ConnectionAbortedError("it went before it had asked")
            # Also what a client sends behind its request is no more than this.
            head.extend(data[: _MOST_HEAD_BYTES + 1 - len(head)])
            if (end := _end_of_head(head)) >= 0:
                self._ask(connection, bytes(head[:end]))
                return 0
            if len(head) > _MOST_HEAD_BYTES:
                raise Refused("the head of the request is too long")
            return selectors.EVENT_READ

        connection.step = read

    def _ask(self, connection: Connection, head: bytes) -> None:
        request = _parse(head)
        self.gate.let_in(connection)
        if request is None:
            body = b"only GET is answered here\n"
            self._send(connection, Page(HTTPStatus.NOT_IMPLEMENTED, "text/plain", body))
            return

        def made(future: Future[Page]) -> None:
            if not future.cancelled():
                self.gate.post(lambda: self._send(connection, future.result()))

        self._pool.submit(self._make, request).add_done_callback(made)

    def _make(self, request: Request) -> Page:
        try:
            return self._answer(request)
        except Exception:  # noqa: BLE001 - the outermost level of a thread of the pool
            now = self._clock.monotonic()
            if now - self._told >= _TOLD_SECONDS:
                self._told = now
                _log.exception("%s: no answer could be made", request.path)
            return Page(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"an error that nobody foresaw\n")

    def _send(self, connection: Connection, page: Page) -> None:
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


def _parse(head: bytes) -> Request | None:
    """Return what is asked for; None for anything but GET. Raises `Refused` for what is no request."""
    first, _, rest = head.decode("latin-1").replace("\r\n", "\n").partition("\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise Refused("no request of HTTP/1")
    if parts[0] != "GET":
        return None
    accepts = (
        value
        for name, _, value in (each.partition(":") for each in rest.split("\n"))
        if name.lower() == "accept"
    )
    return Request(parts[1].partition("?")[0], next(accepts, "").strip())
