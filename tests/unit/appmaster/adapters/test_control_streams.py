"""What the leader's control port makes of a reported port, and of a container that has seen a later leader."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from appmaster.adapters import grpc, look
from appmaster.adapters.grpc import _CALLS, CALL, ControlServer
from appmaster.planning.state import events as happened
from standby.adapters.channels import open_channel
from standby.adapters.liveness import LivenessPort
from standby.adapters.tls import channel_options
from standby.process.witness import answer_connections
from standby.shared import wire
from standby.shared.exits import ProcessEnd
from standby.shared.model import ReplicaId, Role, TaskId, Wanted
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS

HELLO = wire.Hello(wire.PROTOCOL, "a1_01_2", "s_0", 1, 40, "h1", 1, 2, 3, controller_epoch=4)


class Leader:
    """The control server of a leader of epoch 4."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.outdated: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.epoch = 4
        self.asked: queue.SimpleQueue[object] = queue.SimpleQueue()
        #: Calls are answered once it is set.
        self.answers = threading.Event()
        self.server = ControlServer(
            self.events.put,
            self._answer,
            lambda: 7,
            lambda: self.epoch,
            keys_of(PeerRole.MASTER),
            self.outdated.put,
        )
        self.port = self.server.start("127.0.0.1")

    def _answer(self, caller: object, asked: object) -> Mapping[str, Any]:
        self.asked.put(asked)
        self.answers.wait(PATIENCE_SECONDS)
        return {}

    def greet(self, hello: wire.Hello) -> list[bytes]:
        """Return what the leader says to a container that says hello, and nothing more."""
        options = channel_options(PeerRole.MASTER)
        credentials = keys_of(PeerRole.CONTAINER).channel_credentials()
        with open_channel(f"127.0.0.1:{self.port}", credentials, options) as channel:
            stream = channel.stream_stream(wire.METHOD, None, None)
            return list(stream(iter([wire.encode(hello)]), timeout=PATIENCE_SECONDS))

    @contextlib.contextmanager
    def connected(self, hello: wire.Hello) -> Iterator[None]:
        """Have a container connected during the block, from when it is registered on."""
        is_over = threading.Event()

        def say() -> Iterator[bytes]:
            yield wire.encode(hello)
            is_over.wait(PATIENCE_SECONDS)

        credentials = keys_of(PeerRole.CONTAINER).channel_credentials()
        with open_channel(f"127.0.0.1:{self.port}", credentials, channel_options(PeerRole.MASTER)) as channel:
            stream: Any = channel.stream_stream(wire.METHOD, None, None)(say(), timeout=PATIENCE_SECONDS)
            assert isinstance(self.events.get(timeout=PATIENCE_SECONDS), happened.ContainerRegistered)
            yield
            is_over.set()
            assert not list(stream)

    def probed_anew(self, container: str) -> happened.PortProbed:
        """Return what the leader hears of a container's port, after all that it heard before."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.events.get_nowait()
        return self.probed(container)

    def probed(self, container: str, *address: Any) -> happened.PortProbed:
        """Return what the leader hears of a container that registered at this host and port, or at none."""
        if address:
            self.server.learn(container, *address)
        self.server.probe(container, 40)
        told = self.events.get(timeout=PATIENCE_SECONDS)
        assert isinstance(told, happened.PortProbed)
        return told


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leader]:
    # However slow the machine is: an address is found, and who says something is heard.
    monkeypatch.setattr(look, "_SAY_SECONDS", PATIENCE_SECONDS)
    made = Leader()
    yield made
    made.server.stop()


def test_only_a_container_that_has_seen_no_later_leader_is_taken_in(leader: Leader) -> None:
    leader.epoch = 0
    assert leader.greet(HELLO) == [], "a candidate that does not know yet that it leads is not outdated"
    leader.epoch = 4
    assert leader.outdated.empty()
    assert leader.greet(replace(HELLO, controller_epoch=9)) == []
    assert leader.outdated.get(timeout=PATIENCE_SECONDS) == 9
    assert leader.events.empty()
    leader.greet(HELLO)
    event = leader.events.get(timeout=PATIENCE_SECONDS)
    assert isinstance(event, happened.ContainerRegistered)
    assert (event.container, event.skein_id) == ("a1_01_2", "a1_01/s_0")
    assert leader.outdated.empty()


def test_a_server_that_was_stopped_leaves_nothing_open_and_drops_what_is_sent(leader: Leader) -> None:
    leader.server.stop()
    assert leader.server._loop.is_closed()
    leader.server.learn("a1_01_2", "127.0.0.1", 1)
    leader.server.probe("a1_01_2", 40)
    leader.server.send("a1_01_2", 40, wire.Exit(4, "surplus"))


@pytest.mark.parametrize("exits", [False, True])
def test_container_that_does_not_read_is_kept_the_latest_message_only(leader: Leader, exits: bool) -> None:
    """The leader's memory grew by each assignment that was sent again."""
    task = TaskId("job", "main", 0)
    many = tuple(Wanted(ReplicaId(task, copy), Role.STANDBY, 1) for copy in range(10_000))
    last: wire.Down = wire.Exit(4, "surplus") if exits else wire.Assignment(4, 40, 100, many, ())
    goes_on = threading.Event()

    def say() -> Iterator[bytes]:
        yield wire.encode(HELLO)
        goes_on.wait(PATIENCE_SECONDS)

    credentials = keys_of(PeerRole.CONTAINER).channel_credentials()
    options = channel_options(PeerRole.MASTER)
    with open_channel(f"127.0.0.1:{leader.port}", credentials, options) as channel:
        stream: Any = channel.stream_stream(wire.METHOD, None, None)(say(), timeout=PATIENCE_SECONDS)
        leader.events.get(timeout=PATIENCE_SECONDS)
        for number in range(100):
            leader.server.send("a1_01_2", 40, wire.Assignment(4, 40, number, many, ()))
        leader.server.send("a1_01_2", 40, last)
        if exits:
            leader.server.send("a1_01_2", 40, wire.Assignment(4, 40, 101, (), ()))
        # Answered after all that was sent.
        leader.server.probe("unknown", 1)
        leader.events.get(timeout=PATIENCE_SECONDS)
        read: list[wire.Down] = []
        while not read or read[-1] != last:
            read.append(wire.decode_down(next(stream)))
        goes_on.set()
        rest = list(stream)
    # The others are those that gRPC had taken before, of its window's size each.
    assert len(read) < 10
    assert rest == []


def nowhere() -> tuple[str, int]:
    """Return the host and a port at which nobody listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        host, port = gone.getsockname()
    return host, port


def test_port_of_a_container_without_a_stream_is_asked_where_it_registered(leader: Leader) -> None:
    assert leader.probed("c1") == happened.PortProbed("c1", 40, True, 7), "unknown, and not taken for dead"
    running = LivenessPort("127.0.0.1")
    assert leader.probed("c1", "127.0.0.1", running.port) == happened.PortProbed("c1", 40, True, 7)
    running.close()
    assert leader.probed("c1") == happened.PortProbed("c1", 40, False, 7, is_running=False)


def test_addresses_are_kept_of_the_containers_that_left_last(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader kept the address of every container that had ever been there."""
    monkeypatch.setattr(grpc, "_MOST_ADDRESSES", 2)
    host, port = nowhere()
    leader.greet(replace(HELLO, host=host, port=port))
    leader.server.learn("c1", host, port)
    leader.server.learn("c2", host, port)
    assert leader.probed_anew("c2").accepts is False
    assert leader.probed_anew("c1").accepts is False
    assert leader.probed_anew(HELLO.container).accepts, "its address is no longer known"
    leader.greet(replace(HELLO, host=host, port=port))
    assert leader.probed_anew(HELLO.container).accepts is False
    assert leader.probed_anew("c1").accepts, "its address is no longer known"


def test_the_address_of_a_container_is_known_while_it_has_a_stream(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc, "_MOST_ADDRESSES", 0)
    host, port = nowhere()
    with leader.connected(replace(HELLO, host=host, port=port)):
        assert leader.probed_anew(HELLO.container).accepts is False


def test_dead_process_is_noticed_however_many_calls_wait(leader: Leader) -> None:
    """Addresses were looked up by the calls' threads: while all of them waited, no port was asked."""
    credentials = keys_of(PeerRole.OPERATOR).channel_credentials()
    options = channel_options(PeerRole.MASTER)
    with open_channel(f"127.0.0.1:{leader.port}", credentials, options) as channel:
        ask = channel.unary_unary(CALL, None, None)
        calls = [ask.future(b"{}", timeout=PATIENCE_SECONDS) for _ in range(_CALLS)]
        for _ in calls:
            leader.asked.get(timeout=PATIENCE_SECONDS)
        told = leader.probed("c1", *nowhere())
        leader.answers.set()
        assert [each.result() for each in calls] == [b"{}"] * _CALLS
    assert not told.accepts


def say_once(listening: socket.socket, said: bytes) -> None:
    """Speak as a witness does in the place of a process that lives: it waits for nothing."""
    connection, _ = listening.accept()
    with connection:
        connection.sendall(said)


#: What listens at a container's port says, and how → what the leader makes of it.
ANSWERS: Mapping[str, tuple[Callable[[socket.socket, bytes], None], bytes, happened.PortProbed]] = {
    "it has ended": (
        answer_connections,
        b'{"status":-9,"oom_kills":0,"ran":[],"child":null}\n',
        happened.PortProbed("c1", 40, False, 7, ProcessEnd(-9, oom_kills=0), is_running=False),
    ),
    "it stands still": (
        say_once,
        b'{"stands_still":true}\n',
        happened.PortProbed("c1", 40, True, 7, is_running=False, is_still=True),
    ),
    "it waits for its disk": (
        say_once,
        b'{"waits_for_disk":true}\n',
        happened.PortProbed("c1", 40, True, 7, is_running=False, waits_for_disk=True),
    ),
    # It is no witness, so that nothing has ended.
    "a stranger": (
        answer_connections,
        b"220 mail at your service\n",
        happened.PortProbed("c1", 40, True, 7),
    ),
}


@pytest.mark.parametrize(("speak", "said", "event"), ANSWERS.values(), ids=ANSWERS)
def test_witness_of_a_container_tells_how_its_process_is_and_is_let_go(
    leader: Leader,
    speak: Callable[[socket.socket, bytes], None],
    said: bytes,
    event: happened.PortProbed,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        witness = threading.Thread(target=speak, args=(listening, said))
        witness.start()
        assert leader.probed("c1", *listening.getsockname()) == event
        witness.join(PATIENCE_SECONDS)
        assert not witness.is_alive()


def test_a_process_that_stands_still_is_not_taken_for_a_host_that_does_not_answer(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*address: Any, **kinds: Any) -> list[Any]:
        return socket.getaddrinfo(*address, **kinds)

    # An address is waited for no longer than a process.
    monkeypatch.setattr(leader.server._loop, "getaddrinfo", resolve)
    monkeypatch.setattr(look, "_SAY_SECONDS", A_MOMENT_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        told = leader.probed("c1", *stopped.getsockname())
        assert told == happened.PortProbed("c1", 40, True, 7, is_running=False, waited_ms=told.waited_ms), (
            "its kernel accepted for it"
        )
        assert told.waited_ms > 0, "that was long ago"
    # A listener whose queue is full drops what comes: as from a host that is gone, nothing is heard.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as open_ones:
        for _ in range(3):
            each = open_ones.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        told = leader.probed("c2", *full.getsockname())
        assert told == happened.PortProbed("c2", 40, True, 7, None, is_answered=False, is_running=False)
