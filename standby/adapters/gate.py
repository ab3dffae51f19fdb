"""A port that strangers may connect to: one thread accepts, bounds how many there are, and how long each may take.

Until a connection is let in (a request's head has come, or a handshake has shown the cluster's certificate) it costs a
descriptor and some bytes, and no thread. Those that go too far make way or are cut off, and are told of together.
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

from standby.errors import Unavailable
from standby.shared.clock import REAL, Clock
from standby.shared.metric import Kind, Metric

_log: Final = logging.getLogger(__name__)

#: Connections that wait to be accepted; the kernel drops what comes beyond them, and the client tries again.
_BACKLOG: Final = 128

#: So many are accepted before those that are there are looked at again.
_ACCEPTED_AT_ONCE: Final = 64

#: For so long nobody is accepted when the process has no descriptor left, seconds.
_WITHOUT_DESCRIPTORS_SECONDS: Final = 0.2

#: Between two lines of the log about refused connections of one port, seconds.
_TOLD_SECONDS: Final = 60.0

#: Closing says no farewell, and leaves nothing behind in the kernel.
_ABORT: Final = struct.pack("ii", 1, 0)


class Refusal(enum.Enum):
    """Why a connection came to nothing."""

    TOO_MANY = "too many"
    TOO_SLOW = "too slow"
    NOT_UNDERSTOOD = "not understood"


@dataclass(frozen=True, slots=True)
class Limits:
    """What strangers may take of one port."""

    connections: int
    """At once, those that are served included."""
    per_address: int
    """Of one address at once."""
    seconds: float
    """From accepting a connection to having let it in and, where `Gate` writes the answer, to having sent that."""


@dataclass(eq=False)
class Connection:
    """One that was accepted."""

    socket: socket.socket
    address: str
    until: float
    """Monotonic time at which it is cut off."""
    step: Callable[[], int] = field(default=lambda: 0)
    """What is to be done when its socket is ready; returns what it waits for next: `selectors.EVENT_READ` or
    `EVENT_WRITE`; 0: nothing of the socket. Raises `Refused`, or OSError when the other side is gone."""
    is_waiting: bool = True
    """Whether it has still to say who or what it is: it makes way for newer ones."""
    is_elsewhere: bool = False
    """Whether another thread serves it, and closes its socket."""


class Refused(Exception):
    """A connection said something that is not understood."""


class Gate:
    """Accepts on one port of a host, in a thread of its own, from `start` to `close`."""

    def __init__(self, host: str, port: int, limits: Limits, name: str, clock: Clock = REAL) -> None:
        """Listen on ``port``, 0: any free one; ``name`` is for the log. Raises OSError when that is not possible."""
        self.limits = limits
        self.name = name
        self._clock = clock
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for each in (self._woken, self._waker):
            each.setblocking(False)
        self._connections: dict[Connection, None] = {}
        """In the order in which they came, and in which their times end."""
        self._of_address: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._posted: list[Callable[[], None]] = []
        self._refused: Counter[Refusal] = Counter()
        self._untold: Counter[Refusal] = Counter()
        self._tell_from = 0.0
        self._accept_from = 0.0
        self._greet: Callable[[Connection], None] = lambda _: None
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, greet: Callable[[Connection], None]) -> None:
        """Begin to accept; ``greet`` gives each new connection, on the gate's thread, its `Connection.step`."""
        self._greet = greet
        self._selector.register(self._listening, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, self._take_posted)
        self._thread.start()

    def close(self) -> None:
        """Refuse from now on, and cut off who is there."""
        if self._thread.is_alive():
            self._is_closing = True
            self._wake()
            self._thread.join()
        for connection in tuple(self._connections):
            self.cut_off(connection)
        self._tell(is_last=True)
        self._selector.close()
        for each in (self._listening, self._woken, self._waker):
            each.close()

    @property
    def refused(self) -> Mapping[Refusal, int]:
        """How many connections came to nothing so far."""
        return {each: self._refused[each] for each in Refusal}

    def post(self, work: Callable[[], None]) -> None:
        """Have ``work`` done on the gate's thread; from any thread."""
        with self._lock:
            self._posted.append(work)
        self._wake()

    # ---- for whoever greets, on the gate's thread ----

    def renew(self, connection: Connection) -> None:
        """Have the socket of ``connection`` waited for as its step says next."""
        if connection not in self._connections:
            return
        try:
            wanted = connection.step()
        except Refused:
            self._refuse(connection, Refusal.NOT_UNDERSTOOD)
            return
        except OSError:
            self.cut_off(connection)
            return
        except Exception:  # noqa: BLE001 - see below
            # The outermost level of the thread: nothing that a stranger can bring about may end it.
            if not self._refused[Refusal.NOT_UNDERSTOOD]:
                _log.exception("port %d (%s): an error that nobody foresaw", self.port, self.name)
            self._refuse(connection, Refusal.NOT_UNDERSTOOD)
            return
        if connection in self._connections:
            self._await(connection, wanted)

    def let_in(self, connection: Connection, *, is_served_elsewhere: bool = False) -> None:
        """Take note that it has said what it wants: it does not make way for newer ones.

        One that is served elsewhere is not looked at any more, nor cut off for taking long; it counts until `release`.
        """
        connection.is_waiting = False
        if is_served_elsewhere:
            self._await(connection, 0)
            connection.is_elsewhere, connection.until = True, float("inf")

    def release(self, connection: Connection) -> None:
        """Forget a connection that whoever served it has closed."""
        if connection in self._connections:
            self._await(connection, 0)
            self._forget(connection)

    def cut_off(self, connection: Connection) -> None:
        """End a connection, which need not have come to its end."""
        self.release(connection)
        if not connection.is_elsewhere:
            connection.socket.close()
            return
        with suppress(OSError):
            # Whoever serves it may be waiting for it, and closes it. TLS's own end is not waited for.
            socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)

    # ---- the gate's own ----

    def _wake(self) -> None:
        # Full: it has been woken often enough.
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
            self._tell()
            if self._accept_from and self._clock.monotonic() >= self._accept_from:
                self._accept_from = 0.0
                self._selector.register(self._listening, selectors.EVENT_READ, None)

    def _until_next(self) -> float | None:
        """Return how long nothing has to be done unless a socket is ready; None: for ever."""
        times = [self._accept_from] if self._accept_from else []
        # One that is served elsewhere may stand before others; there are never many.
        times += [min((each.until for each in self._connections), default=float("inf"))]
        times += [self._tell_from] if self._untold else []
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
                continue  # it had gone before it was accepted
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
            # What is idle makes way: a request comes at once, and whoever floods loses his own.
            self._refuse(way or connection, Refusal.TOO_MANY)
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

    def _refuse(self, connection: Connection, why: Refusal) -> None:
        self._refused[why] += 1
        self._untold[why] += 1
        if why is not Refusal.NOT_UNDERSTOOD:
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
            self._refuse(connection, Refusal.TOO_SLOW)

    def _tell(self, *, is_last: bool = False) -> None:
        """Say what was refused: the first at once, all others together each minute."""
        now = self._clock.monotonic()
        if not self._untold or (now < self._tell_from and not is_last):
            return
        told = ", ".join(f"{count} {why.value}" for why, count in sorted(self._untold.items(), key=str))
        _log.warning("port %d (%s): refused connections: %s", self.port, self.name, told)
        self._untold.clear()
        self._tell_from = now + _TOLD_SECONDS


def listening(host: str, port: int, limits: Limits, name: str, clock: Clock = REAL) -> Gate:
    """Return a gate on ``port`` of ``host``, 0: any free one; raises `Unavailable`."""
    try:
        return Gate(host, port, limits, name, clock)
    except OSError as error:
        said = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
        raise Unavailable(f"NM_HOST: cannot listen on {host}: {said}") from error


#: Of the ports of a process; candidates and containers show it.
REFUSED_CONNECTIONS: Final[Metric[Iterable[Gate]]] = Metric(
    "standfast_refused_connections_total",
    "Connections that were closed because there were too many, because they took too long, or because what they "
    "said was no request, or did not show the cluster's credentials; by port.",
    ("port", "reason"),
    lambda gates: (((gate.name, why.value), count) for gate in gates for why, count in gate.refused.items()),
    Kind.COUNTER,
)
