"""The port by which the leader checks that a container's process is alive: it accepts, and sends nothing.

The witness of the process (`standby.process.witness`) has the same port open, and reports on it how the process
ended, or that it stands still.
"""

from __future__ import annotations

import contextlib
import fcntl
import resource
import select
import socket
import threading
from typing import Final

from standby.errors import Unavailable

#: Linux closes a dead process's descriptors from the highest number down (since 4.3, due to the order of delayed
#: closes). The port's number must be above that of every stream: with a low one, 24 of 40 killed processes still
#: accepted when the leader checked after the broken stream; with a high one, none of 40.
_DESCRIPTOR: Final = 8_000

#: While the process is suspended, connections wait here.
_BACKLOG: Final = 128

#: Pause in accepting when the process has no descriptor for a connection, seconds.
_PAUSE_SECONDS: Final = 0.1


def family_of(host: str) -> socket.AddressFamily:
    """Return of which family the address is at which a process listens under the name or address of its host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listen(host: str) -> socket.socket:
    """Return a socket that listens on a free port of the host, and does not block. Raises `Unavailable`."""
    listening = _highest(socket.socket(family_of(host)))
    try:
        # Two processes wait for connections: one that was quicker must not leave the other one waiting.
        listening.setblocking(False)
        listening.bind((host, 0))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise Unavailable(f"NM_HOST: cannot listen on {host}: {error.strerror or error}") from error
    return listening


class LivenessPort:
    """Accepts on a free port of the host while the process is alive.

    The operating system closes it with the process and its witness. From then on connections are refused, which
    proves the death, whereas a broken stream only raises a suspicion (rule `who-is-lost`).
    """

    def __init__(self, host: str, listening: socket.socket | None = None) -> None:
        """``listening`` is the port, if open already. Raises `Unavailable` when none can be opened."""
        self._socket = listening or listen(host)
        self._closed = threading.Event()
        #: Makes room for a connection when the process has no other descriptor left.
        self._spare = _spare()
        # Python makes it non-inheritable: a JVM that outlives this process cannot keep the port open.
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="liveness", daemon=True).start()

    def close(self) -> None:
        """Close the port."""
        self._closed.set()
        # Closing alone would leave the thread in accept(), and the port with it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        come = select.poll()
        come.register(self._socket, select.POLLIN)
        while not self._closed.is_set():
            come.poll()
            try:
                connection, _ = self._socket.accept()
                connection.close()
            except BlockingIOError:
                pass  # the witness was quicker
            except OSError:
                # For example out of descriptors. If connections waited for one, the process would seem to stand still.
                self._make_room()
                continue
            self._spare = self._spare or _spare()
        self._make_room()

    def _make_room(self) -> None:
        """Free a descriptor for the next attempt; pause if there is none to free."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        elif not self._closed.wait(_PAUSE_SECONDS):
            self._spare = _spare()


def _spare() -> socket.socket | None:
    """Return a descriptor that is of no other use; None if there is none."""
    try:
        return socket.socket()
    except OSError:
        return None


def _highest(low: socket.socket) -> socket.socket:
    """Return the same socket with a descriptor number above all that the process is likely to use."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = _DESCRIPTOR if allowed == resource.RLIM_INFINITY else min(_DESCRIPTOR, allowed - 1)
    number = fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, least)
    low.close()
    return socket.socket(fileno=number)
