"""The seams of the control loop: the ZooKeeper session, the stream to the leader, the host's disks.

Everything here returns at once; what comes of it is put into the loop's inbox as an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from standby.control.effects import OpenStream
from standby.control.events import Event
from standby.ports import Replicas
from standby.shared.model import Leftover
from standby.shared.wire import Report

#: Takes an event from any thread, and returns at once.
Post = Callable[[Event], None]

#: Usable state on the host's disks that nobody holds. May block: the loop calls it on a thread of its own, and
#: only once, before the first introduction: to look at the lock of a store that the kernel is just opening in
#: this same process would undo that lock (POSIX).
FindLeftoverState = Callable[[], tuple[Leftover, ...]]


class Membership(Protocol):
    """The container's place in ZooKeeper."""

    def register(self) -> None:
        """Make the container's znode, or find that the present session has made it already.

        Answered by `Registered` or `RegistrationFailed`.
        """
        ...

    def look_up_leader(self) -> None:
        """Read who leads, and watch it: a later change gives `LeaderMoved`.

        Answered by `LeaderChanged` or `LeaderUnknown`.
        """
        ...

    def leave(self, timeout_seconds: float) -> None:
        """Delete the znode and end the session; blocks no longer than told."""
        ...


class OpenedStream(Protocol):
    """One stream to a leader; heartbeats go out on it by themselves."""

    def send(self, report: Report) -> None:
        """Queue the report behind everything sent before."""
        ...

    def finish(self, timeout_seconds: float) -> None:
        """Send what is queued, then end; blocks no longer than told."""
        ...

    def drop(self) -> None:
        """End at once; nothing of it is posted any more but what is on its way."""
        ...


#: Connects to the leader; gives `StreamConnected`, `AssignmentReceived`, `ExitReceived` and one `StreamBroken`.
Connect = Callable[[OpenStream, Post], OpenedStream]


@dataclass(frozen=True, slots=True)
class Ports:
    """All that the control loop works on."""

    membership: Membership
    connect: Connect
    replicas: Replicas
    find_leftovers: FindLeftoverState
    rss_bytes: Callable[[], int]
    """Memory in use by the process and its children."""
