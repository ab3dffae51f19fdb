"""A Kafka broker that some reach by a wire which can be cut: nobody is told, and what was sent comes late.

As with a network that drops packets, connections stay open on both sides, new ones are made and say nothing, and what
was on its way arrives when the wire is whole again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from embedded.broker import OwnBroker
from embedded.ports import free_ports
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
        self._ends = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._listens = threading.Event()

    def cut(self) -> None:
        """Let nothing through from now on."""
        self._loop.call_soon_threadsafe(self._is_whole.clear)

    def mend(self) -> None:
        """Let through what waits, and what comes."""
        self._loop.call_soon_threadsafe(self._is_whole.set)

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

    async def _serve(self) -> None:
        connections = set[asyncio.Task[None]]()

        def begin(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.ensure_future(work)
            connections.add(task)
            task.add_done_callback(connections.discard)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            begin(self._connect(reader, writer))

        server = await asyncio.start_server(accept, LOOPBACK, self._port)
        self._listens.set()
        await self._ends.wait()
        server.close()
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await self._is_whole.wait()
            to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._to)
            try:
                await asyncio.gather(self._carry(reader, to_writer), self._carry(to_reader, writer))
            finally:
                to_writer.close()
        writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._is_whole.wait()
            writer.write(chunk)
            await writer.drain()
        # Who hears that the other side has gone is to hear it here too, though only once the wire is whole.
        await self._is_whole.wait()
        writer.close()


class FarBroker(OwnBroker):
    """One broker; who comes to ``far`` comes by ``wire``."""

    def __init__(self, directory: Path) -> None:
        inner, outer = free_ports(2)
        self.far = f"{LOOPBACK}:{outer}"
        self.wire = Wire(outer, inner)
        super().__init__(directory, {"FAR": ("PLAINTEXT", f"{LOOPBACK}:{inner}", self.far)})

    def __enter__(self) -> Self:
        self.wire.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self.wire.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.wire.__exit__(kind, error, trace)
