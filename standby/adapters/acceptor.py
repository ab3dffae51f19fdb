"""A port that is open to strangers: one thread accepts, and limits the number of connections and their time.

Until a connection is admitted (a request's head has arrived, or a handshake has shown the cluster's certificate), it
costs a descriptor and some bytes, but no thread. Connections over the limits are evicted or closed, and are logged
together.
"""

from __future__ import annotations

import enum
import errno
import logging
import os
import selectors
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from standby.adapters.liveness import family_of
from standby.errors import Unavailable
from standby.shared.clock import REAL, Clock
from standby.shared.metric import Metric, MetricKind

_log: Final = logging.getLogger(__name__)

#: Maximum number of connections waiting to be accepted; the kernel drops further ones, and the client retries.
_BACKLOG: Final = 128

#: How many connections are accepted before the existing ones are served again.
_ACCEPTED_AT_ONCE: Final = 64

#: Pause in accepting when the process has run out of descriptors, in seconds.
_WITHOUT_DESCRIPTORS_SECONDS: Final = 0.2

#: Minimum interval between log lines about refused connections of one port, in seconds.
_LOG_SECONDS: Final = 60.0

#: Close with a reset, which leaves no state in the kernel.
_ABORT: Final = struct.pack("ii", 1, 0)


class RejectReason(enum.Enum):
    """Why a connection was refused."""

    TOO_MANY = "too many"
    TOO_SLOW = "too slow"
    NOT_UNDERSTOOD = "not understood"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one port."""

    connections: int
    """Maximum number of connections, including those being served."""
    per_address: int
    """Maximum number of connections per address."""
    seconds: float
    """Time limit from accepting a connection to admitting it and, where `Acceptor` writes the answer, to sending it."""


@dataclass(eq=False)
class Connection:
    """An accepted connection."""

    socket: socket.socket
    address: str
    until: float
    """Monotonic time at which it is closed."""
    step: Callable[[], int] = field(default=lambda: 0)
    """Called when its socket is ready; returns what to wait for next: `selectors.EVENT_READ` or `EVENT_WRITE`; 0:
    nothing. Raises `MalformedRequest`, or OSError when the other side is gone."""
    is_waiting: bool = True
    """Whether it has not been admitted yet, so that it may be evicted for newer ones."""
    is_elsewhere: bool = False
    """Whether another thread serves it, and closes its socket."""


class MalformedRequest(Exception):
    """A connection sent something invalid."""


class Acceptor:
    """Accepts connections on one port of a host, on a thread of its own, from `start` to `close`."""

    def __init__(self, host: str, port: int, limits: Limits, name: str, clock: Clock = REAL) -> None:
        """Listen on ``port``, 0: any free one; ``name`` is for the log. Raises `Unavailable` when this fails."""
        self.limits = limits
        self.name = name
        self._clock = clock
        try:
            self._listening = socket.create_server((host, port), family=family_of(host), backlog=_BACKLOG)
        except OSError as error:
            said = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
            raise Unavailable(f"NM_HOST: cannot listen on {host}: {said}") from error
        self._listening.setblocking(False)
        # Connections inherit it. The head and the body of an answer are sent separately, and the body would wait until
        # the client has acknowledged the head, which it does after 40 ms.
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for each in (self._woken, self._waker):
            each.setblocking(False)
        self._connections: dict[Connection, None] = {}
        """In the order of arrival, which is also the order of their deadlines."""
        self._of_address: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._posted: list[Callable[[], None]] = []
        self._refused: Counter[RejectReason] = Counter()
        self._unlogged: Counter[RejectReason] = Counter()
        self._log_from = 0.0
        self._accept_from = 0.0
        self._greet: Callable[[Connection], None] = lambda _: None
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, greet: Callable[[Connection], None]) -> None:
        """Start accepting; ``greet`` sets the `Connection.step` of each new connection, on the gate's thread."""
        self._greet = greet
        self._selector.register(self._listening, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, self._take_posted)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting, and close all connections."""
        if self._thread.is_alive():
            self._is_closing = True
            self._wake()
            self._thread.join()
        for connection in tuple(self._connections):
            self.cut_off(connection)
        self._log_refused(is_last=True)
        self._selector.close()
        for each in (self._listening, self._woken, self._waker):
            each.close()

    @property
    def refused(self) -> Mapping[RejectReason, int]:
        """Number of refused connections so far."""
        return {each: self._refused[each] for each in RejectReason}

    def post(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the gate's thread. Thread-safe."""
        with self._lock:
            self._posted.append(work)
        self._wake()

    # ---- for the functions that serve connections, on the gate's thread ----

    def renew(self, connection: Connection) -> None:
        """Run the step of ``connection``, and wait for its socket as the step requires."""
        if connection not in self._connections:
            return
        try:
            wanted = connection.step()
        except MalformedRequest:
            self._refuse(connection, RejectReason.NOT_UNDERSTOOD)
            return
        except OSError:
            self.cut_off(connection)
            return
        except Exception:  # noqa: BLE001 - see below
            # The outermost level of the thread: no stranger may be able to end it.
            if not self._refused[RejectReason.NOT_UNDERSTOOD]:
                _log.exception("port %d (%s): unexpected error", self.port, self.name)
            self._refuse(connection, RejectReason.NOT_UNDERSTOOD)
            return
        if connection in self._connections:
            self._await(connection, wanted)

    def let_in(self, connection: Connection, *, is_served_elsewhere: bool = False) -> None:
        """Admit the connection: it is not evicted for newer ones.

        One that is served elsewhere is no longer watched or timed out; it counts until `release`.
        """
        connection.is_waiting = False
        if is_served_elsewhere:
            self._await(connection, 0)
            connection.is_elsewhere, connection.until = True, float("inf")

    def release(self, connection: Connection) -> None:
        """Forget a connection that its server has closed."""
        if connection in self._connections:
            self._await(connection, 0)
            self._forget(connection)

    def cut_off(self, connection: Connection) -> None:
        """Close a connection, even if it is in use."""
        self.release(connection)
        if not connection.is_elsewhere:
            connection.socket.close()
            return
        with suppress(OSError):
            # The thread that serves it may be waiting on the socket, and closes it. There is no wait for a TLS
            # shutdown.
            socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)

    # ---- internal ----

    def _wake(self) -> None:
        # If the pipe is full, a wake-up is pending anyway.
        with suppress(OSError):
            self._waker.send(b"+")

    def _take_posted(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            pass
        with self._lock:
            posted, self._posted = self._posted, []
        for work in posted:
            work()

    def _run(self) -> None:
        while not self._is_closing:
            for key, _ in self._selector.select(self._until_next()):
                if key.data is None:
                    self._accept()
                elif isinstance(key.data, Connection):
                    self.renew(key.data)
                else:
                    key.data()
            self._end_overdue()
            self._log_refused()
            if self._accept_from and self._clock.monotonic() >= self._accept_from:
                self._accept_from = 0.0
                self._selector.register(self._listening, selectors.EVENT_READ, None)

    def _until_next(self) -> float | None:
        """Return how long to wait for sockets until something is due; None: for ever."""
        times = [self._accept_from] if self._accept_from else []
        # The order does not help here, because those served elsewhere have no deadline; there are never many.
        times += [min((each.until for each in self._connections), default=float("inf"))]
        times += [self._log_from] if self._unlogged else []
        nearest = min(times)
        if nearest == float("inf"):
            return None
        return self._clock.pace(max(0.0, nearest - self._clock.monotonic()))

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._selector.unregister(self._listening)
                    self._accept_from = self._clock.monotonic() + _WITHOUT_DESCRIPTORS_SECONDS
                    return
                continue  # it was gone before it was accepted
            self._take(accepted, str(peer[0]))

    def _take(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        connection = Connection(accepted, address, self._clock.monotonic() + self.limits.seconds)
        if self._of_address[address] >= self.limits.per_address:
            way = self._oldest_waiting(each for each in self._connections if each.address == address)
        elif len(self._connections) >= self.limits.connections:
            way = self._oldest_waiting(self._connections)
        else:
            way = connection
        if way is not connection:
            # Evict an idle one: genuine requests arrive at once, and a flooding client loses its own connections.
            self._refuse(way or connection, RejectReason.TOO_MANY)
            if way is None:
                return
        self._connections[connection] = None
        self._of_address[address] += 1

        def begin() -> int:
            self._greet(connection)
            return connection.step()

        connection.step = begin
        self.renew(connection)

    @staticmethod
    def _oldest_waiting(among: Iterable[Connection]) -> Connection | None:
        return next((each for each in among if each.is_waiting), None)

    def _refuse(self, connection: Connection, why: RejectReason) -> None:
        self._refused[why] += 1
        self._unlogged[why] += 1
        if why is not RejectReason.NOT_UNDERSTOOD:
            with suppress(OSError):
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.cut_off(connection)

    def _await(self, connection: Connection, wanted: int) -> None:
        known = self._selector.get_map().get(connection.socket) if connection.socket.fileno() >= 0 else None
        if known is None:
            if wanted:
                self._selector.register(connection.socket, wanted, connection)
        elif not wanted:
            self._selector.unregister(connection.socket)
        elif known.events != wanted:
            self._selector.modify(connection.socket, wanted, connection)

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection]
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def _end_overdue(self) -> None:
        now = self._clock.monotonic()
        for connection in [each for each in self._connections if each.until <= now]:
            self._refuse(connection, RejectReason.TOO_SLOW)

    def _log_refused(self, *, is_last: bool = False) -> None:
        """Log refused connections: the first at once, later ones together once a minute."""
        now = self._clock.monotonic()
        if not self._unlogged or (now < self._log_from and not is_last):
            return
        counts = ", ".join(f"{count} {why.value}" for why, count in sorted(self._unlogged.items(), key=str))
        _log.warning("port %d (%s): refused connections: %s", self.port, self.name, counts)
        self._unlogged.clear()
        self._log_from = now + _LOG_SECONDS


#: The refused connections of a process's ports; exported by candidates and containers.
REFUSED_CONNECTIONS: Final[Metric[Iterable[Acceptor]]] = Metric(
    "standfast_refused_connections_total",
    "Connections that were closed because there were too many, because they took too long, or because they sent "
    "no valid request or did not show the cluster's credentials; by port.",
    ("port", "reason"),
    lambda gates: (((gate.name, why.value), count) for gate in gates for why, count in gate.refused.items()),
    MetricKind.COUNTER,
)
