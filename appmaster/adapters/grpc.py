"""The leader's side of the control streams, and the calls of the command line. Mutual TLS.

An asyncio loop in its own thread serves all streams; nothing is decided here. Incoming messages are posted to the
inbox, outgoing ones are passed to `send`, which returns at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from appmaster.adapters.look import NOT_ASKED, look_at
from appmaster.leadership.yarn_ids import attempt_of, grant_id
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from standby.adapters.tls import TlsCredentials
from standby.errors import StandfastError, Unavailable
from standby.shared import wire
from standby.shared.roles import Caller, PeerRole, caller_of

T = TypeVar("T")

_log = logging.getLogger(__name__)

SERVICE: Final = "standfast.Control"

#: Full method name of the command line's calls: JSON object in, JSON object out.
CALL: Final = f"/{SERVICE}/Call"

#: Calls that are answered at once. Most take no time. Those that need ZooKeeper wait while it is unavailable, and must
#: not block the others.
_CALLS: Final = 32

#: Addresses that are looked up at once: of a thousand containers, while a name server does not answer.
_LOOK_UPS: Final = 32

#: Connections at once, including those without a certificate yet: one for each container and command. The library has
#: no limit per address. Connections above the limit are closed at once; open streams are not affected.
_MOST_CONNECTIONS: Final = 4_096

#: A client that has not shown a certificate within this time is disconnected, milliseconds.
_HANDSHAKE_MS: Final = 3_000

#: Calls and streams of one connection at once, and bytes of a call's headers: far more than our clients need.
_MOST_STREAMS: Final = 64
_MOST_HEADER_BYTES: Final = 16 << 10

#: Containers without a stream whose addresses are kept. Those that were there last are the ones that may be probed.
_MOST_ADDRESSES: Final = 10_000

ControlCall = Callable[[Caller, Mapping[str, Any]], Mapping[str, Any]]


def _options() -> list[tuple[str, int]]:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The other half is for ZooKeeper, Kafka, bundles and the other ports.
    allowed = _MOST_CONNECTIONS if descriptors == resource.RLIM_INFINITY else descriptors // 2
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", 64 << 20),
        ("grpc.max_allowed_incoming_connections", min(_MOST_CONNECTIONS, allowed)),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.max_concurrent_streams", _MOST_STREAMS),
        ("grpc.max_metadata_size", _MOST_HEADER_BYTES),
        ("grpc.absolute_max_metadata_size", _MOST_HEADER_BYTES),
    ]


@dataclass
class _Stream:
    """A container's stream, with at most one message that waits for the container to read; used on the loop only."""

    hello: wire.Hello
    _waiting: bytes | None = None
    _is_exit: bool = False
    """Whether the container was sent an `Exit`: nothing replaces that."""
    _is_over: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, message: bytes, *, is_exit: bool) -> None:
        """Send a message, in place of one that still waits: each assignment contains everything again."""
        if self._is_exit and not is_exit:
            return
        self._waiting, self._is_exit = message, is_exit
        self._changed.set()

    def end(self) -> None:
        """End the stream after the message that waits."""
        self._is_over = True
        self._changed.set()

    async def take(self) -> bytes | None:
        """Return the next message, None at the end."""
        while True:
            message, self._waiting = self._waiting, None
            if message is not None or self._is_over:
                return message
            self._changed.clear()
            await self._changed.wait()


class ControlServer:
    """Serves containers and the command line on one port."""

    def __init__(
        self,
        post: Callable[[Event], None],
        answer: ControlCall,
        now_ms: Callable[[], int],
        epoch: Callable[[], int],
        keys: TlsCredentials,
        outdated: Callable[[int], None] = lambda seen: None,
        refused: Callable[[Caller, str], None] = lambda caller, what: None,
    ) -> None:
        """``outdated`` is called for a container that obeyed a higher epoch, ``refused`` for a caller that was refused.

        Neither may block.
        """
        self._refused = refused
        self._post = post
        self._outdated = outdated
        self._answer = answer
        self._now_ms = now_ms
        self._epoch = epoch
        self._credentials = keys.server_credentials()
        self._streams: dict[str, _Stream] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        """Of containers without a stream, those that were there last at the end; used on the loop only."""
        self._loop = asyncio.new_event_loop()
        # The loop's own threads look up addresses of containers. While calls kept all of them, no port could be probed.
        self._loop.set_default_executor(ThreadPoolExecutor(_LOOK_UPS, thread_name_prefix="addresses"))
        self._callers = ThreadPoolExecutor(_CALLS, thread_name_prefix="calls")
        self._server: grpc.aio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="control", daemon=True)

    def start(self, host: str) -> int:
        """Start serving on a free port of ``host``; return the port."""
        self._thread.start()
        return self._wait(self._start(host))

    def stop(self) -> None:
        """Close every stream and stop; what is sent or asked afterwards is dropped."""
        if self._thread.is_alive():
            self._wait(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)
        if not self._thread.is_alive():
            # Its sockets and the executors' threads are there from the beginning, whether it ran or not.
            self._loop.close()
        self._callers.shutdown(wait=False)

    def send(self, container: str, incarnation: int, message: wire.Down) -> None:
        """Send a message to a container's stream; it is dropped if that stream is gone.

        Assignments are level-triggered: the next one contains everything again. So it replaces one that the container
        has not read yet, and a container that does not read costs no more memory than that.
        """
        data, is_exit = wire.encode(message), isinstance(message, wire.Exit)

        def put() -> None:
            stream = self._streams.get(container)
            if stream is not None and stream.hello.incarnation == incarnation:
                stream.put(data, is_exit=is_exit)

        self._soon(put)

    def learn(self, container: str, host: str, port: int) -> None:
        """Store the address of a container that has no stream yet."""

        def keep() -> None:
            if container not in self._streams:
                self._keep_address(container, host, port)

        self._soon(keep)

    def probe(self, container: str, incarnation: int) -> None:
        """Probe the container's own port; the answer arrives as `PortProbed`."""
        self._soon(lambda: asyncio.run_coroutine_threadsafe(self._probe(container, incarnation), self._loop))

    def _soon(self, call: Callable[[], object]) -> None:
        # A closed loop refuses calls: the server was stopped.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _start(self, host: str) -> int:
        server = grpc.aio.server(options=_options())
        handlers = {
            "Stream": grpc.stream_stream_rpc_method_handler(self._stream),
            "Call": grpc.unary_unary_rpc_method_handler(self._call),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_secure_port(f"{host}:0", self._credentials)
        if not port:
            raise Unavailable(f"no port of {host} can be opened for the control streams")
        await server.start()
        self._server = server
        return port

    async def _stop(self) -> None:
        for stream in self._streams.values():
            stream.end()
        if self._server is not None:
            await self._server.stop(grace=0.5)

    def _keep_address(self, container: str, host: str, port: int) -> None:
        self._addresses.pop(container, None)
        self._addresses[container] = (host, port)
        while len(self._addresses) > _MOST_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]

    async def _probe(self, container: str, incarnation: int) -> None:
        stream = self._streams.get(container)
        if stream is not None:
            address: tuple[str, int] | None = (stream.hello.host, stream.hello.port)
        else:
            address = self._addresses.get(container)
        try:
            seen = NOT_ASKED if address is None else await look_at(*address)
        except Exception:  # noqa: BLE001 - without an answer the leader would wait for the probe for ever
            _log.exception("looking at the port of %s", container)
            seen = NOT_ASKED
        self._post(
            happened.PortProbed(
                container,
                incarnation,
                seen.accepts,
                self._now_ms(),
                seen.end,
                seen.is_answered,
                seen.is_running,
                seen.is_still,
                seen.waits_for_disk,
                seen.waited_ms,
            )
        )

    # ---- a container's stream ----

    async def _stream(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        await self._checked(context, PeerRole.CONTAINER, "stream")
        try:
            hello = wire.decode_up(await requests.__anext__())
        except (StopAsyncIteration, StandfastError) as error:
            _log.warning("rejected a peer that does not speak our protocol: %s", error)
            return
        if not isinstance(hello, wire.Hello):
            _log.warning("rejected a peer that did not say hello first: %s", type(hello).__name__)
            return
        if hello.protocol != wire.PROTOCOL:
            reason = f"protocol {hello.protocol}; this leader speaks {wire.PROTOCOL}"
            yield wire.encode(wire.Exit(self._epoch(), reason))
            return
        if not self._epoch():
            # The record may name this candidate before it knows of its election: the answer is on its way, or was lost.
            # A container's epoch says nothing about a leadership that has not begun.
            return
        if hello.controller_epoch > self._epoch():
            # It has obeyed a newer leader than this one, so it would not obey anything sent from here.
            _log.warning("%s has obeyed epoch %d, newer than ours", hello.container, hello.controller_epoch)
            self._outdated(hello.controller_epoch)
            return
        stream = _Stream(hello)
        former = self._streams.get(hello.container)
        self._streams[hello.container] = stream
        self._addresses.pop(hello.container, None)
        if former is not None:
            former.end()
        attempt = attempt_of(hello.container)
        self._post(
            happened.ContainerRegistered(
                hello.container,
                grant_id(attempt, hello.skein_id),
                hello.incarnation,
                hello.host,
                hello.pid,
                hello.http_port,
                hello.replicas,
                hello.leftovers,
                self._now_ms(),
                hello.revisions,
                hello.cell,
                attempt,
            )
        )
        reader = asyncio.ensure_future(self._read(stream, requests))
        try:
            while True:
                data = await stream.take()
                if data is None:
                    return
                yield data
        finally:
            reader.cancel()
            if self._streams.get(hello.container) is stream:
                del self._streams[hello.container]
                self._keep_address(hello.container, hello.host, hello.port)
                self._post(happened.ContainerStreamBroken(hello.container, hello.incarnation, self._now_ms()))

    async def _read(self, stream: _Stream, requests: AsyncIterator[bytes]) -> None:
        hello = stream.hello
        try:
            async for data in requests:
                message = wire.decode_up(data)
                now = self._now_ms()
                if isinstance(message, wire.Heartbeat):
                    self._post(happened.HeartbeatReceived(hello.container, hello.incarnation, now))
                elif isinstance(message, wire.Report):
                    self._post(
                        happened.ReportReceived(
                            hello.container,
                            hello.incarnation,
                            message.number,
                            message.replicas,
                            message.warm,
                            message.rss_bytes,
                            now,
                            message.revisions,
                            message.is_leaving,
                        )
                    )
        except StandfastError as error:
            _log.warning("%s sent something other than a report: %s", hello.container, error)
        except grpc.RpcError as error:
            _log.info("stream of %s: %s", hello.container, error)
        finally:
            # When the container's side of the stream ends, for whatever reason, the stream ends.
            stream.end()

    async def _checked(
        self, context: grpc.aio.ServicerContext[bytes, bytes], role: PeerRole, what: str
    ) -> Caller:
        """Return the caller; aborts the call if it has another role."""
        caller = _caller(context)
        if caller is not None and caller.role is role:
            return caller
        if caller is not None:
            self._refused(caller, what)
        said = f"a {what} is for {role.value}s only, and the certificate is of {caller or 'no role'}"
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, said)
        raise AssertionError("aborted")

    # ---- calls of the command line ----

    async def _call(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        caller = await self._checked(context, PeerRole.OPERATOR, "call")
        try:
            question = json.loads(request)
            answer = await asyncio.get_running_loop().run_in_executor(
                self._callers, self._answer, caller, question
            )
            return json.dumps(answer).encode()
        except StandfastError as error:
            return json.dumps({"error": str(error), "status": error.exit_status}).encode()
        except (ValueError, RecursionError) as error:
            return json.dumps({"error": f"not a call: {error}", "status": 2}).encode()


def _caller(context: grpc.aio.ServicerContext[bytes, bytes]) -> Caller | None:
    """Return the caller according to its verified certificate; None: it has no role."""
    shown = context.auth_context()
    names = [each.decode(errors="replace") for each in shown.get("x509_subject_alternative_name", ())]
    common = b"".join(shown.get("x509_common_name", ())).decode(errors="replace")
    return caller_of(names, common)
