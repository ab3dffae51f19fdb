"""A probe of a container's own port: whether its host and its process answer, and how the process ended if it did."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import Any, Final

from standby.adapters.liveness import family_of
from standby.process.witness import AT_DISK, READ, STILL
from standby.shared import wire
from standby.shared.exits import ProcessEnd

#: How long to wait for a host that does not answer at all, seconds: less than Linux waits before it repeats a lost
#: packet, since the next attempt comes sooner.
_CONNECT_SECONDS: Final = 0.25

#: How long to wait for data from a port that accepts, and for the address of a host's name.
_SAY_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a probe of a container's port."""

    accepts: bool = True
    """False: the port refuses, or the container's witness reports that the process has ended."""
    end: ProcessEnd | None = None
    """How its process ended, as the witness reports it."""
    is_answered: bool = True
    """Whether the host answered; True also if it could not be asked."""
    is_running: bool = True
    """Whether the process answered; True also if it could not be asked."""
    is_still: bool = False
    """Whether the process stands still, as its witness reports."""
    waits_for_disk: bool = False
    """Whether the process waits for its disk, as its witness reports."""
    waited_ms: int = 0
    """How long ago the host answered, if neither the process nor its witness has said anything since."""


#: A container that cannot be asked does not count as silent.
NOT_ASKED: Final = Look()

_UNANSWERED: Final = Look(is_answered=False, is_running=False)
_REFUSED: Final = Look(accepts=False, is_running=False)


async def look_at(host: str, port: int) -> Look:
    """Return what a connection to ``host:port`` shows.

    Takes 1.25 s at most, and 0.25 s more for each further address of the host.
    """
    loop = asyncio.get_running_loop()
    try:
        # Only those at which it may listen: a name may have an address of IPv6, too, and that one refuses.
        asking = loop.getaddrinfo(host, port, family=family_of(host), type=socket.SOCK_STREAM)
        found = await asyncio.wait_for(asking, _SAY_SECONDS)
    except (OSError, asyncio.TimeoutError):
        return NOT_ASKED
    is_refused = True
    # It listens at one of them, not always the first one that is found here.
    for family, kind, protocol, _, address in found:
        # Outside: without a descriptor for it, nothing is known about the host.
        connection = socket.socket(family, kind, protocol)
        try:
            await _connect(connection, address)
        except ConnectionRefusedError:
            continue
        except (OSError, asyncio.TimeoutError):
            is_refused = False
            continue
        return await _asked(connection)
    return _REFUSED if is_refused else _UNANSWERED


async def _connect(connection: socket.socket, address: Any) -> None:
    """Connect; closes the connection if that fails."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as ours:
        ours.enter_context(connection)
        connection.setblocking(False)
        connecting = asyncio.ensure_future(loop.sock_connect(connection, address))
        # The connection attempt must have begun before the time-out does: one that expires first would not ask at all.
        await asyncio.sleep(0)
        # Only this is within the time-out: a loop short of processor time sees the answer and the time-out at the same
        # moment, and what is one step away from completion then counts as answered.
        await asyncio.wait_for(connecting, _CONNECT_SECONDS)
        ours.pop_all()  # from here on it belongs to the stream


async def _asked(connection: socket.socket) -> Look:
    """Return what a container's port says: nothing while its process runs, else what its witness reports."""
    loop = asyncio.get_running_loop()
    asked = loop.time()
    try:
        reader, writer = await asyncio.open_connection(sock=connection)
        return await asyncio.wait_for(_said(reader, writer), _SAY_SECONDS)
    except asyncio.TimeoutError:
        return Look(is_running=False, waited_ms=round(1000 * (loop.time() - asked)))
    except (OSError, ValueError):
        return Look(is_running=False)


async def _said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Look:
    try:
        said = await reader.readline()
        if said.rstrip() == STILL:
            return Look(is_running=False, is_still=True)
        if said.rstrip() == AT_DISK:
            return Look(is_running=False, waits_for_disk=True)
        if said:
            writer.write(READ)
            await writer.drain()
        end = wire.decode_end(said)
        return Look(accepts=end is None, end=end, is_running=end is None)
    finally:
        writer.close()
