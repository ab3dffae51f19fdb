"""Fetches copies of state from another container: HTTP over mutual TLS, cut off at once when need be."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Final

from standby.adapters.tls import Context, Keys
from standby.errors import Transient
from standby.kernel.ports import OpenSource, Refused
from standby.shared.model import TaskId
from standby.shared.peers import SNAPSHOTS_ROUTE, PeerAddress
from standby.shared.roles import PeerRole

_PIECE_BYTES: Final = 256 << 10

#: A connection to a host that is up takes milliseconds.
_CONNECT_SECONDS: Final = 3.0

_MOST_MANIFEST_BYTES: Final = 64 << 20


class HttpSnapshotSource:
    """A `standby.kernel.ports.SnapshotSource`. One connection, made anew when it was lost."""

    def __init__(self, context: Context, address: PeerAddress, silence_seconds: float) -> None:
        """``silence_seconds``: a peer that says nothing for so long has gone."""
        self._context = context
        self._address = address
        self._silence_seconds = silence_seconds
        self._lock = threading.Lock()
        self._is_interrupted = False
        self._socket: socket.socket | None = None
        self._connection: http.client.HTTPConnection | None = None

    def take(self, task: TaskId, run: str, patience_seconds: float = 0.0) -> bytes:
        """Return the manifest of a copy made now, or when the peer's turn has come within the seconds."""
        query = urllib.parse.urlencode(
            {
                "job": task.job,
                "stage": task.stage,
                "partition": task.partition,
                "run": run,
                "patience_ms": round(patience_seconds * 1000),
            }
        )
        manifest = bytearray()
        for piece in self._ask("POST", f"/{SNAPSHOTS_ROUTE}?{query}", 0):
            manifest += piece
            if len(manifest) > _MOST_MANIFEST_BYTES:
                self.close()
                raise Transient(f"{self}: the manifest has no end")
        return bytes(manifest)

    def read(self, lease: str, file: str, start: int) -> Iterator[bytes]:
        """Yield a file of the copy from byte ``start`` on."""
        return self._ask("GET", f"/{SNAPSHOTS_ROUTE}/{lease}/{urllib.parse.quote(file, safe='')}", start)

    def release(self, lease: str) -> None:
        """Give the copy back, if that is possible."""
        with contextlib.suppress(Transient):
            for _ in self._ask("DELETE", f"/{SNAPSHOTS_ROUTE}/{lease}", 0):
                pass

    def interrupt(self) -> None:
        """Have everything fail from now on."""
        with self._lock:
            self._is_interrupted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Not TLS's own shutdown: that would wait for whoever is reading.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Drop the connection."""
        with self._lock:
            connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.close()

    def __str__(self) -> str:
        return f"{self._address.container} at {self._address.host}:{self._address.port}"

    def _ask(self, method: str, path: str, start: int) -> Iterator[bytes]:
        """Yield the answer's body in pieces; raises `Refused` and `Transient`."""
        try:
            connection = self._connected()
            connection.request(method, path, headers={"Range": f"bytes={start}-"} if start else {})
            response = connection.getresponse()
            status = response.status
            if status >= HTTPStatus.BAD_REQUEST:
                text = response.read(4096).decode(errors="replace").strip()
                is_soon = status == HTTPStatus.SERVICE_UNAVAILABLE
                raise Refused(f"{self}: {status} {text}", is_soon=is_soon)
            if start and status != HTTPStatus.PARTIAL_CONTENT:
                self.close()
                raise Transient(f"{self}: gives the whole file instead of the rest of it")
            while piece := response.read(_PIECE_BYTES):
                yield piece
            if response.length:
                # The library takes an early end for the end.
                raise http.client.IncompleteRead(b"", response.length)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Transient(f"{self}: {type(error).__name__}: {error}") from error
        except GeneratorExit:
            # What is left of the answer would be taken for the next one's.
            self.close()
            raise

    def _connected(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._is_interrupted:
                raise ConnectionAbortedError("called off")
            if self._connection is not None and self._connection.sock is not None:
                return self._connection
        host, port = self._address.host, self._address.port
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(min(_CONNECT_SECONDS, self._silence_seconds))
            self._watch(plain)
            plain.connect(target)
            secured = self._context().wrap_socket(
                plain, server_hostname=PeerRole.CONTAINER.server_name, do_handshake_on_connect=False
            )
        except BaseException:
            plain.close()
            raise
        try:
            secured.settimeout(self._silence_seconds)
            self._watch(secured)
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        connection = http.client.HTTPConnection(host, port)
        connection.sock = secured
        # It would connect again by itself, and in the clear.
        connection.auto_open = 0
        with self._lock:
            self._connection = connection
        return connection

    def _watch(self, made: socket.socket) -> None:
        """Have this socket shut down when it is all called off; raises when it was already."""
        with self._lock:
            self._socket = made
            if self._is_interrupted:
                raise ConnectionAbortedError("called off")


def open_sources(keys: Keys) -> OpenSource:
    """Return what opens sources with ``keys``."""
    return partial(HttpSnapshotSource, keys.client_context)
