"""A leader that a test controls: the server side of the control stream, with real gRPC and TLS."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from types import TracebackType
from typing import Any, TypeVar

import grpc

from standby.adapters.tls import TlsCredentials
from standby.shared.records import ControllerRecord
from standby.shared.wire import (
    METHOD,
    Assignment,
    Down,
    Exit,
    Heartbeat,
    Hello,
    Report,
    Up,
    decode_up,
    encode,
)
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS

_HOST = "127.0.0.1"

_Message = TypeVar("_Message", Hello, Heartbeat, Report)


class Session:
    """One stream of one container, as the leader has it."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.received: list[Up] = [hello]
        """Everything that came, oldest first."""
        self.at: list[float] = [time.monotonic()]
        """When it came."""
        self.is_over = threading.Event()
        self._news = threading.Condition()
        self._outgoing: queue.SimpleQueue[Down | None] = queue.SimpleQueue()

    def send(self, message: Down) -> None:
        self._outgoing.put(message)

    def assign(
        self, number: int, *, epoch: int = 1, incarnation: int | None = None, **parts: Any
    ) -> Assignment:
        """Send an assignment, by default for the container's own incarnation; return it."""
        own = self.hello.incarnation if incarnation is None else incarnation
        message = Assignment(epoch, own, number, **{"replicas": (), "jobs": (), **parts})
        self.send(message)
        return message

    def exit(self, epoch: int = 1) -> None:
        self.send(Exit(epoch, "told by the test"))

    def end(self) -> None:
        self._outgoing.put(None)

    def wait_for(
        self,
        kind: type[_Message],
        condition: Callable[[_Message], bool] = lambda _: True,
        *,
        after: int = 0,
    ) -> _Message:
        """Return the first message of that kind, from number ``after`` on, that fulfils the condition."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._news:
            while True:
                for message in self.received[after:]:
                    if isinstance(message, kind) and condition(message):
                        return message
                left = deadline - time.monotonic()
                if left <= 0 or (self.is_over.is_set() and not self._news.wait(A_MOMENT_SECONDS)):
                    raise AssertionError(f"no such {kind.__name__}; came: {self.received[-5:]}")
                self._news.wait(left)

    def _take(self, message: Up) -> None:
        with self._news:
            self.received.append(message)
            self.at.append(time.monotonic())
            self._news.notify_all()

    def _over(self) -> None:
        self.is_over.set()
        self._outgoing.put(None)
        with self._news:
            self._news.notify_all()


class ScriptedLeader:
    """Serves on a port; each container that introduces itself becomes a `Session`."""

    def __init__(self, keys: TlsCredentials, *, port: int = 0, epoch: int = 1, candidate: str = "a") -> None:
        """``port``: 0 for any free one."""
        self._sessions: queue.SimpleQueue[Session] = queue.SimpleQueue()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
        service, _, name = METHOD.strip("/").partition("/")
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {name: handler}),)
        )
        port = self._server.add_secure_port(f"{_HOST}:{port}", keys.server_credentials())
        self.record = ControllerRecord(candidate, _HOST, port, epoch)
        """What its znode says."""
        self._server.start()

    def session(self) -> Session:
        """Return the next container's stream, in the order in which they came."""
        try:
            return self._sessions.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise AssertionError(f"no container introduced itself within {PATIENCE_SECONDS:g} s") from None

    def cut(self) -> None:
        """Break every stream and refuse connections from now on."""
        self._server.stop(None).wait(PATIENCE_SECONDS)

    def __enter__(self) -> ScriptedLeader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    def _serve(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        first = decode_up(next(requests))
        assert isinstance(first, Hello), first
        session = Session(first)
        # The call's end must reach a generator that waits for something to send.
        if not context.add_callback(session._over):
            return
        threading.Thread(target=_take_all, args=(requests, session), daemon=True).start()
        self._sessions.put(session)
        while (message := session._outgoing.get()) is not None:
            yield encode(message)


def _take_all(requests: Iterator[bytes], session: Session) -> None:
    try:
        for data in requests:
            session._take(decode_up(data))
    except Exception:  # noqa: BLE001 - gRPC raises a bare Exception where the call was cut
        pass
    finally:
        session._over()
