"""A connection to a peer, HTTP over mutual TLS, that another thread may interrupt at any time."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Final

from standby.adapters.tls import Context
from standby.errors import Transient
from standby.ports import PeerRefused
from standby.shared.peers import PeerAddress
from standby.shared.roles import PeerRole

_PIECE_BYTES: Final = 256 << 10

#: Bytes of a refusal that are shown.
REFUSAL_BYTES: Final = 4096

#: A connection to a host that is up takes milliseconds.
_CONNECT_SECONDS: Final = 3.0


class PeerConnection:
    """One connection at a time, to peers of one role. For one thread, except for `interrupt`."""

    def __init__(self, context: Context, role: PeerRole, silence_seconds: float) -> None:
        """``silence_seconds``: a peer that sends nothing for this long is considered lost."""
        self._context = context
        self._role = role
        self._silence_seconds = silence_seconds
        self._lock = threading.Lock()
        self._is_interrupted = False
        #: The socket that `interrupt` shuts down: in use, or being opened.
        self._socket: socket.socket | None = None
        self._http: http.client.HTTPConnection | None = None

    @contextlib.contextmanager
    def to(self, name: str, host: str, port: int) -> Iterator[http.client.HTTPConnection]:
        """Yield the open connection to this peer, or a new one; it stays open unless the block raises.

        Network and HTTP errors in the block become a `Transient` that begins with ``name``.
        """
        try:
            yield self._open_to(host, port)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            said = "cancelled" if self._is_interrupted else f"{type(error).__name__}: {error}"
            raise Transient(f"{name}: {said}") from error
        except BaseException:
            # The rest of an answer would be mistaken for the next one.
            self.close()
            raise

    def interrupt(self) -> None:
        """Make the current and all later calls fail. Thread-safe; does not wait."""
        with self._lock:
            self._is_interrupted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Not the TLS shutdown, which would wait for the reading thread.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, if one is open."""
        with self._lock:
            used, self._socket = self._socket, None
        made, self._http = self._http, None
        for each in (made, used):
            if each is not None:
                each.close()

    def _open_to(self, host: str, port: int) -> http.client.HTTPConnection:
        made = self._http
        if made is not None and made.sock is not None and (made.host, made.port) == (host, port):
            self._watch(made.sock)
            return made
        self.close()
        plain = self._connected(host, port)
        # The handshake is done later: during it, `interrupt` must have the wrapped socket.
        secured = self._context().wrap_socket(
            plain, server_hostname=self._role.server_name, do_handshake_on_connect=False
        )
        secured.settimeout(self._silence_seconds)
        self._watch(secured)
        secured.do_handshake()
        made = http.client.HTTPConnection(host, port)
        made.sock = secured
        # Otherwise it would reconnect automatically, without TLS.
        made.auto_open = 0
        self._http = made
        return made

    def _connected(self, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to the first reachable address of the host."""
        failed = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            plain = socket.socket(family, kind, protocol)
            self._watch(plain)
            try:
                # The head and the body of a request are sent separately: see `Acceptor`.
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.settimeout(min(_CONNECT_SECONDS, self._silence_seconds))
                plain.connect(address)
                return plain
            except OSError as error:
                failed = error
                self.close()
        raise failed

    def _watch(self, used: socket.socket) -> None:
        """Let `interrupt` shut this socket down. Raises when it was interrupted already."""
        with self._lock:
            self._socket = used
            if self._is_interrupted:
                raise ConnectionAbortedError("cancelled")


class PeerClient:
    """Asks one container, over one connection, which is re-established when lost."""

    def __init__(self, context: Context, address: PeerAddress, silence_seconds: float) -> None:
        self._address = address
        self._connection = PeerConnection(context, PeerRole.CONTAINER, silence_seconds)

    def interrupt(self) -> None:
        """Make the current and all later calls fail. Thread-safe; does not wait."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __str__(self) -> str:
        return f"{self._address.container} at {self._address.host}:{self._address.port}"

    def _connected(self) -> AbstractContextManager[http.client.HTTPConnection]:
        """Return the connection; errors of the block are translated as `PeerConnection.to` says."""
        return self._connection.to(str(self), self._address.host, self._address.port)

    def _refused(self, status: int, body: bytes) -> PeerRefused:
        """Return the error for the container's refusal."""
        text = body.decode(errors="replace").strip()
        return PeerRefused(f"{self}: {status} {text}", is_soon=status == HTTPStatus.SERVICE_UNAVAILABLE)


def pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body of an answer. Raises `http.client.IncompleteRead` when it ends early."""
    while piece := response.read(_PIECE_BYTES):
        yield piece
    if response.length:
        # The library treats this as the end.
        raise http.client.IncompleteRead(b"", response.length)
