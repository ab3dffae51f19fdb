"""A look at a container's own port: whether its host answers, its process, and how that ended if it has."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import Final

from standby.process.witness import READ
from standby.shared import wire
from standby.shared.exits import ProcessEnd

#: How long a host is waited for that does not answer at all, seconds: less than Linux waits before it sends a lost
#: packet again, for the next attempt comes sooner.
_CONNECT_SECONDS: Final = 0.25

#: How long a port is waited for that accepts, and says nothing; and a host's name for its address.
_SAY_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a container's port has shown."""

    accepts: bool = True
    """False: nobody listens there, or its witness says that the process has ended."""
    end: ProcessEnd | None = None
    """How its process ended, as the witness of that says."""
    is_answered: bool = True
    """Whether the host answered; True also where it could not be asked."""
    is_running: bool = True
    """Whether the process answered; True also where it could not be asked."""


#: Who cannot be asked is not held to be silent.
NOT_ASKED: Final = Look()

_UNANSWERED: Final = Look(is_answered=False, is_running=False)
_REFUSED: Final = Look(accepts=False, is_running=False)


async def look_at(host: str, port: int) -> Look:
    """Return what a connection to ``host:port`` shows; takes a second and a quarter at most, and raises nothing."""
    loop = asyncio.get_running_loop()
    try:
        found = await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), _SAY_SECONDS)
    except (OSError, asyncio.TimeoutError):
        return NOT_ASKED
    family, kind, protocol, _, address = found[0]
    with contextlib.ExitStack() as ours:
        connection = ours.enter_context(socket.socket(family, kind, protocol))
        connection.setblocking(False)
        connecting = asyncio.ensure_future(loop.sock_connect(connection, address))
        # It has begun when its time does. A time-out that is over before the first step would not ask at all.
        await asyncio.sleep(0)
        try:
            # Nothing but this within the time-out: a loop that was short of processor time hears of the answer and of
            # the time-out in the same moment, and what is one step away from its end then counts as answered.
            await asyncio.wait_for(connecting, _CONNECT_SECONDS)
        except ConnectionRefusedError:
            return _REFUSED
        except (OSError, asyncio.TimeoutError):
            return _UNANSWERED
        ours.pop_all()  # it is the stream's from here on
    return await _asked(connection)


async def _asked(connection: socket.socket) -> Look:
    """Return what a container's port says: nothing while its process lives, else its witness how it ended."""
    try:
        reader, writer = await asyncio.open_connection(sock=connection)
        end = await asyncio.wait_for(_end_of(reader, writer), _SAY_SECONDS)
    except (OSError, ValueError, asyncio.TimeoutError):
        return Look(is_running=False)
    return Look(accepts=end is None, end=end, is_running=end is None)


async def _end_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ProcessEnd | None:
    try:
        said = await reader.readline()
        if said:
            writer.write(READ)
            await writer.drain()
        return wire.decode_end(said)
    finally:
        writer.close()
