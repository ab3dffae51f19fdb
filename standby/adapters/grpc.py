"""The container's end of the control stream, over grpcio: mutual TLS, bytes in and out.

Failure detection relies on the heartbeats and on the stream's end, not on gRPC's keep-alive: a server that is not
configured for its pings closes the connection.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from standby.adapters.channels import open_channel
from standby.adapters.tls import TlsCredentials, channel_options
from standby.control.effects import OpenStream
from standby.control.events import AssignmentReceived, ExitReceived, StreamBroken, StreamConnected
from standby.control.ports import PostEvent
from standby.errors import BadConfiguration
from standby.shared.clock import REAL
from standby.shared.roles import PeerRole
from standby.shared.wire import METHOD, Assignment, Heartbeat, Report, decode_down, encode

#: A leader that leaves this many reports unread is not reading; its stream is cancelled.
_MOST_WAITING: Final = 256

#: An assignment for a container with many tasks and several jobs stays far below.
_MOST_BYTES: Final = 64 << 20

_OPTIONS: Final = (
    *channel_options(PeerRole.MASTER),
    # Each stream tries by itself: the library would share the back-off of an earlier one with it, and a
    # leader that has just come back would wait for that.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_send_message_length", _MOST_BYTES),
    # Do not look up a service configuration in DNS.
    ("grpc.service_config_disable_resolution", 1),
)


class ControlStream:
    """One stream, with two threads: gRPC's thread takes outgoing messages, and our own reads incoming ones.

    Heartbeats are created where the outgoing messages are handed to gRPC, so only the connection itself can delay
    them, and they do not accumulate when the connection is blocked.
    """

    def __init__(
        self,
        keys: TlsCredentials,
        heartbeat_interval_ms: int,
        order: OpenStream,
        post: PostEvent,
        clock: Callable[[], float] = REAL.monotonic,
    ) -> None:
        """Start connecting; see `standby.control.ports.ConnectStream`. ``clock`` (seconds) times the heartbeats."""
        self._number = order.stream
        address = f"{order.leader.host}:{order.leader.port}"
        self._channel = open_channel(address, keys.channel_credentials(), _OPTIONS)
        self._interval_seconds = heartbeat_interval_ms / 1000
        self._post = post
        self._clock = clock
        self._outgoing: queue.SimpleQueue[tuple[bytes, Callable[[], None]] | None] = queue.SimpleQueue()
        self._is_dropped = threading.Event()
        self._ended = threading.Event()
        self._channel.subscribe(self._connectivity)
        call = self._channel.stream_stream(METHOD, request_serializer=None, response_deserializer=None)
        # The library's own stubs leave a call's methods untyped.
        self._call: Any = call(self._messages(encode(order.hello)))
        threading.Thread(target=self._read, name=f"stream-{self._number}", daemon=True).start()

    def send(self, report: Report, is_sent: Callable[[], None]) -> None:
        """Queue the report. If the leader no longer takes messages, the stream is cancelled."""
        if self._outgoing.qsize() >= _MOST_WAITING:
            self._call.cancel()
            return
        self._outgoing.put((encode(report), is_sent))

    def finish(self, timeout_seconds: float) -> None:
        """Send the queued messages, end our side, and wait for the leader to end its side."""
        self._outgoing.put(None)
        self._ended.wait(timeout_seconds)
        self.drop()

    def drop(self) -> None:
        """Cancel the call and close the connection."""
        self._is_dropped.set()
        self._outgoing.put(None)
        self._call.cancel()
        # Closing waits for the channel's threads, which end after the call has ended.
        threading.Thread(target=self._channel.close, name=f"close-{self._number}", daemon=True).start()

    def _connectivity(self, state: grpc.ChannelConnectivity) -> None:
        if state is grpc.ChannelConnectivity.READY:
            self._post(StreamConnected(self._number))
            # The subscription costs a thread that wakes up five times a second.
            self._channel.unsubscribe(self._connectivity)

    def _messages(self, hello: bytes) -> Iterator[bytes]:
        """Yield the introduction, then every queued message, and a heartbeat each interval between them."""
        yield hello
        sequence = 0
        due = self._clock()
        while not self._is_dropped.is_set():
            now = self._clock()
            if now >= due:
                sequence += 1
                # After a suspension of the process, missed heartbeats are not sent later.
                due = max(due, now - self._interval_seconds) + self._interval_seconds
                yield encode(Heartbeat(sequence))
                continue
            try:
                message = self._outgoing.get(timeout=due - now)
            except queue.Empty:
                continue
            if message is None:
                return
            data, is_sent = message
            yield data
            # gRPC asks for the next message once the connection has taken this one.
            is_sent()

    def _read(self) -> None:
        reason = "ended by the leader"
        try:
            for data in self._call:
                message = decode_down(data)
                if isinstance(message, Assignment):
                    self._post(AssignmentReceived(self._number, message))
                else:
                    self._post(ExitReceived(self._number, message))
        except grpc.RpcError:
            reason = f"{self._call.code().name}: {self._call.details()}"
        except BadConfiguration as error:
            reason = str(error)
            self._call.cancel()
        finally:
            self._ended.set()
            if not self._is_dropped.is_set():
                self._post(StreamBroken(self._number, reason))
