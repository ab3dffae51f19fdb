"""A connection to a peer, HTTP over mutual TLS, that another thread may call off at any moment."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Final

from standby.adapters.tls import Context
from standby.errors import Transient
from standby.shared.roles import PeerRole

_PIECE_BYTES: Final = 256 << 10

#: A connection to a host that is up takes milliseconds.
_CONNECT_SECONDS: Final = 3.0


class PeerConnection:
    """One connection at a time, to peers of one role. For one thread, except for `interrupt`."""

    def __init__(self, context: Context, role: PeerRole, silence_seconds: float) -> None:
        """``silence_seconds``: a peer that says nothing for so long has gone."""
        self._context = context
        self._role = role
        self._silence_seconds = silence_seconds
        self._lock = threading.Lock()
        self._is_interrupted = False
        #: What `interrupt` shuts down: in use, or being opened.
        self._socket: socket.socket | None = None
        self._http: http.client.HTTPConnection | None = None

    @contextlib.contextmanager
    def to(self, name: str, host: str, port: int) -> Iterator[http.client.HTTPConnection]:
        """Yield the open connection to this peer, or a new one; it stays open unless the block raises.

        What the block raises of the network or of HTTP becomes a `Transient` that begins with ``name``.
        """
        try:
            yield self._open_to(host, port)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            said = "cancelled" if self._is_interrupted else f"{type(error).__name__}: {error}"
            raise Transient(f"{name}: {said}") from error
        except BaseException:
            # What is left of an answer would be taken for the next one's.
            self.close()
            raise

    def interrupt(self) -> None:
        """Have everything fail from now on; from any thread, without waiting."""
        with self._lock:
            self._is_interrupted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Not TLS's own shutdown: that would wait for whoever is reading.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Drop the connection, if one is open."""
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
        # If it shook hands itself, nobody could shut down the socket that it makes of the plain one.
        secured = self._context().wrap_socket(
            plain, server_hostname=self._role.server_name, do_handshake_on_connect=False
        )
        secured.settimeout(self._silence_seconds)
        self._watch(secured)
        secured.do_handshake()
        made = http.client.HTTPConnection(host, port)
        made.sock = secured
        # It would connect again by itself, and in the clear.
        made.auto_open = 0
        self._http = made
        return made

    def _connected(self, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to the first of the host's addresses that takes it."""
        failed = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            plain = socket.socket(family, kind, protocol)
            self._watch(plain)
            try:
                plain.settimeout(min(_CONNECT_SECONDS, self._silence_seconds))
                plain.connect(address)
                return plain
            except OSError as error:
                failed = error
                self.close()
        raise failed

    def _watch(self, used: socket.socket) -> None:
        """Have `interrupt` shut this socket down; raises when everything was cancelled already."""
        with self._lock:
            self._socket = used
            if self._is_interrupted:
                raise ConnectionAbortedError("cancelled")


def pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body of an answer; raises `http.client.IncompleteRead` when it ends early."""
    while piece := response.read(_PIECE_BYTES):
        yield piece
    if response.length:
        # The library takes that for the end.
        raise http.client.IncompleteRead(b"", response.length)
