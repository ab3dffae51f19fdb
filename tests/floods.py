"""Strangers who connect by the thousand: from many addresses, and say nothing, too little or rubbish."""

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

#: As many as the issue of strangers names.
STRANGERS: Final = 5_000

_ADDRESSES: Final = 50


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Allow this process so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard < 0 else min(count, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def idle() -> bytes:
    """Return what somebody says who says nothing."""
    return b""


def dripping() -> bytes:
    """Return the beginning of a request, or of a handshake, of which more never comes."""
    return random.choice((b"GET /met", b"GET /metrics HTTP/1.1\r\nA: b\r\n", b"\x16\x03\x01\x02"))


def garbage() -> bytes:
    """Return what nobody understands."""
    return random.randbytes(random.randint(1, 40)) + b"\n\n"


def leaving() -> bytes:
    """Return a request whose answer is not waited for."""
    return b"GET /metrics HTTP/1.0\r\n\r\n"


def handshaking() -> bytes:
    """Return the first words of TLS."""
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
        """Open so many connections, in turn to each port and of each kind; return how many were accepted."""
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
        # Or each would take a port of its own, of which there are not enough.
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
        """How many connections of this side are open."""
        return sum(each.fileno() >= 0 for each in self._sockets)

    def are_closed(self) -> bool:
        """Wait until the other side has ended every connection; return whether it has in good time."""
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
        """End all of it."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()


@contextmanager
def flood() -> Iterator[Flood]:
    """Have a flood that has run off at the end."""
    with descriptors(2 * STRANGERS + 2_000):
        made = Flood()
        try:
            yield made
        finally:
            made.close()
