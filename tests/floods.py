"""Thousands of connections of strangers: from many addresses, sending nothing, too little or garbage."""

from __future__ import annotations

import itertools
import random
import resource
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from tests.patience import PATIENCE_SECONDS

#: The number of connections of a flood.
STRANGERS: Final = 5_000

_ADDRESSES: Final = 50


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Allow this process the given number of open files: 0 lets it open none, however many are open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard < 0 else min(count, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def idle() -> bytes:
    """Return no bytes at all."""
    return b""


def dripping() -> bytes:
    """Return the beginning of a request, or of a handshake, that is never completed."""
    return random.choice((b"GET /met", b"GET /metrics HTTP/1.1\r\nA: b\r\n", b"\x16\x03\x01\x02"))


def garbage() -> bytes:
    """Return bytes that no protocol understands."""
    return random.randbytes(random.randint(1, 40)) + b"\n\n"


def leaving() -> bytes:
    """Return a complete request, whose answer is never read."""
    return b"GET /metrics HTTP/1.0\r\n\r\n"


def handshaking() -> bytes:
    """Return the beginning of a TLS handshake."""
    said = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


KINDS: Final[Sequence[Callable[[], bytes]]] = (idle, dripping, garbage, leaving, handshaking)


class Flood:
    """Connections to ports, each from one of many addresses, all kept open from this side."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def pour(
        self, host: str, ports: Sequence[int], count: int, kinds: Sequence[Callable[[], bytes]] = KINDS
    ) -> int:
        """Open ``count`` connections, in turn to each port and of each kind; return how many were accepted."""
        made = 0
        turns = zip(
            itertools.cycle(ports), itertools.cycle([each for each in kinds for _ in ports]), strict=False
        )
        for number, (port, kind) in zip(range(count), turns, strict=False):
            made += self._open(host, port, kind(), f"127.7.0.{1 + number % _ADDRESSES}")
        return made

    def _open(self, host: str, port: int, said: bytes, source: str) -> bool:
        made = socket.socket()
        made.settimeout(PATIENCE_SECONDS)
        self._sockets.append(made)
        # Otherwise each would need its own local port, and there are not enough.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((source, 0))
        try:
            made.connect((host, port))
            if said:
                made.sendall(said)
        except OSError:
            return False  # it was cut off at once
        return True

    @property
    def count(self) -> int:
        """The number of connections open on this side."""
        return sum(each.fileno() >= 0 for each in self._sockets)

    def are_closed(self) -> bool:
        """Wait until the other side has closed every connection; return whether it has in time."""
        end = time.monotonic() + PATIENCE_SECONDS
        with selectors.DefaultSelector() as selector:
            for each in self._sockets:
                each.setblocking(False)
                selector.register(each, selectors.EVENT_READ)
            while selector.get_map() and time.monotonic() < end:
                for key, _ in selector.select(end - time.monotonic()):
                    assert isinstance(key.fileobj, socket.socket)
                    try:
                        is_over = not key.fileobj.recv(65536)
                    except BlockingIOError:
                        continue
                    except OSError:
                        is_over = True
                    if is_over:
                        selector.unregister(key.fileobj)
            return not selector.get_map()

    def close(self) -> None:
        """Close all connections."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()


@contextmanager
def flood() -> Iterator[Flood]:
    """Yield a flood, which is closed at the end."""
    with descriptors(2 * STRANGERS + 2_000):
        made = Flood()
        try:
            yield made
        finally:
            made.close()
