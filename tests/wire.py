"""A connection over loopback to a server, which can be cut without notice; data that was sent arrives late.

As in a network that drops packets, connections stay open on both sides, new ones are accepted and stay silent, and data
in transit arrives when the wire is restored. For its clients, a server that hangs looks the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import psutil

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
        self._is_cut = False
        #: The processes that are cut off.
        self._cut_off = set[int]()
        #: By the client's port; cleared while the connection is cut.
        self._gates: dict[int, asyncio.Event] = {}
        self._connections = set[asyncio.Task[None]]()
        self._delay_seconds = 0.0
        self._ends = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._listens = threading.Event()
        self.unanswered = 0
        """How many of the next connections are to stay silent."""
        self.taken = 0
        """How many connections there were."""

    def cut(self) -> None:
        """Let nothing through from now on."""
        self._loop.call_soon_threadsafe(self._cut)

    def cut_off(self, pid: int) -> None:
        """Let nothing of one process through from now on."""
        self._loop.call_soon_threadsafe(self._cut_off_now, pid)

    def mend(self) -> None:
        """Let waiting and new data through."""
        self._loop.call_soon_threadsafe(self._mend)

    def hush(self) -> None:
        """Cut the existing connections permanently; they stay open, and new ones work."""
        self._loop.call_soon_threadsafe(self._hush)

    def break_off(self, unanswered: int) -> None:
        """Break all connections; the given number of next ones is accepted and stays silent."""
        self._loop.call_soon_threadsafe(self._break_off, unanswered)

    def hold_back(self, seconds: float) -> None:
        """Delay each new connection to the server by the given time."""
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

    def _cut(self) -> None:
        self._is_cut = True
        for each in self._gates.values():
            each.clear()

    def _cut_off_now(self, pid: int) -> None:
        self._cut_off.add(pid)
        for port in self._ports_of(pid) & self._gates.keys():
            self._gates[port].clear()

    def _mend(self) -> None:
        self._is_cut = False
        self._cut_off.clear()
        for each in self._gates.values():
            each.set()

    def _hush(self) -> None:
        for each in self._gates.values():
            each.clear()
        self._gates.clear()

    def _ports_of(self, pid: int) -> set[int]:
        """Return the ports from which a process is connected."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(pid).net_connections("tcp4")
            established = (each for each in found if each.status == psutil.CONN_ESTABLISHED)
            return {each.laddr.port for each in established if each.raddr.port == self._port}
        return set()

    def _is_let_through(self, port: int) -> bool:
        return not self._is_cut and not any(port in self._ports_of(each) for each in self._cut_off)

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
        port = writer.get_extra_info("peername")[1]
        is_whole = self._gates[port] = asyncio.Event()
        if self._is_let_through(port):
            is_whole.set()
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
            if self._gates.get(port) is is_whole:
                del self._gates[port]
            writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_whole: asyncio.Event
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await is_whole.wait()
            writer.write(chunk)
            await writer.drain()
        # The end of the other side is passed on as well, but only when the wire is restored.
        await is_whole.wait()
        writer.close()
