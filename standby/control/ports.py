"""Ports of the control loop: the ZooKeeper session, the stream to the leader, the host's disks.

Every call returns at once; its outcome is posted to the loop's inbox as an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from standby.control.effects import OpenStream
from standby.control.events import ControlEvent
from standby.ports import Replicas
from standby.shared.model import Leftover
from standby.shared.wire import Report

#: Posts an event. Thread-safe; returns at once.
PostEvent = Callable[[ControlEvent], None]

#: Returns usable state on the host's disks that no process holds. May block: the loop calls it on a separate thread.
#: It is called only once, before the first introduction: testing the lock of a store that the kernel of this process
#: is opening would release that lock (POSIX).
FindLeftoverState = Callable[[], tuple[Leftover, ...]]


class Membership(Protocol):
    """The container's registration in ZooKeeper."""

    def register(self) -> None:
        """Create the container's znode, unless the current session has created it already.

        Answered by `Registered` or `RegistrationFailed`.
        """
        ...

    def look_up_leader(self) -> None:
        """Read the leader, and watch it: a later change posts `LeaderMoved`.

        Answered by `LeaderChanged` or `LeaderUnknown`.
        """
        ...

    def leave(self, timeout_seconds: float) -> None:
        """Delete the znode and end the session; blocks at most for the time-out."""
        ...


class OpenedStream(Protocol):
    """A stream to a leader; it sends heartbeats by itself."""

    def send(self, report: Report, is_sent: Callable[[], None]) -> None:
        """Queue the report after everything sent before; ``is_sent`` is called, from any thread, once it has left."""
        ...

    def finish(self, timeout_seconds: float) -> None:
        """Send the queued reports, then end; blocks at most for the time-out."""
        ...

    def drop(self) -> None:
        """End at once; only events that are already on their way are still posted."""
        ...


#: Connects to the leader; posts `StreamConnected`, `AssignmentReceived`, `ExitReceived` and one `StreamBroken`.
ConnectStream = Callable[[OpenStream, PostEvent], OpenedStream]


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that the control loop uses."""

    membership: Membership
    connect: ConnectStream
    replicas: Replicas
    find_leftovers: FindLeftoverState
    rss_bytes: Callable[[], int]
    """Memory in use by the process and its children."""
