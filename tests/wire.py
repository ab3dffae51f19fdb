"""A way over loopback to a server, which can be cut: nobody is told, and what was sent comes late.

As with a network that drops packets, connections stay open on both sides, new ones are made and say nothing, and what
was on its way arrives when the wire is whole again. A server that hangs looks like that, too, to whoever is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from embedded.servers import LOOPBACK
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from typing_extensions import Self

_CHUNK_BYTES: Final = 64 * 1024


class Wire:
    """Carries TCP connections from one port of loopback to another, both ways, unless it is cut."""

    def __init__(self, port: int, to: int) -> None:
        self._port, self._to = port, to
        self._loop = asyncio.new_event_loop()
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._connections = set[asyncio.Task[None]]()
        self._delay_seconds = 0.0
        self._ends = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._listens = threading.Event()
        self.unanswered = 0
        """How many connections, of those to come, are still to hear nothing."""
        self.taken = 0
        """How many connections there were."""

    def cut(self) -> None:
        """Let nothing through from now on."""
        self._loop.call_soon_threadsafe(self._is_whole.clear)

    def mend(self) -> None:
        """Let through what waits, and what comes."""
        self._loop.call_soon_threadsafe(self._is_whole.set)

    def hush(self) -> None:
        """Let nothing through for ever over the connections that there are; they stay open, and others are made."""
        self._loop.call_soon_threadsafe(self._hush)

    def break_off(self, unanswered: int) -> None:
        """Break all connections; of those that come next, so many are taken and hear nothing."""
        self._loop.call_soon_threadsafe(self._break_off, unanswered)

    def hold_back(self, seconds: float) -> None:
        """Let each connection from now on reach the server so much later."""
        self._delay_seconds = seconds

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(PATIENCE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()
        self._loop.close()

    def _hush(self) -> None:
        self._is_whole.clear()
        self._is_whole = asyncio.Event()
        self._is_whole.set()

    def _break_off(self, unanswered: int) -> None:
        self.unanswered = unanswered
        for each in self._connections:
            each.cancel()

    async def _serve(self) -> None:
        def begin(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.ensure_future(work)
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            begin(self._connect(reader, writer))

        server = await asyncio.start_server(accept, LOOPBACK, self._port)
        self._listens.set()
        await self._ends.wait()
        server.close()
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_whole = self._is_whole
        self.taken += 1
        try:
            if self.unanswered:
                self.unanswered -= 1
                await self._ends.wait()
            await asyncio.sleep(self._delay_seconds)
            with contextlib.suppress(OSError):
                await is_whole.wait()
                to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._to)
                try:
                    await asyncio.gather(
                        self._carry(reader, to_writer, is_whole), self._carry(to_reader, writer, is_whole)
                    )
                finally:
                    to_writer.close()
        finally:
            writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_whole: asyncio.Event
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await is_whole.wait()
            writer.write(chunk)
            await writer.drain()
        # Who hears that the other side has gone is to hear it here too, though only once the wire is whole.
        await is_whole.wait()
        writer.close()
