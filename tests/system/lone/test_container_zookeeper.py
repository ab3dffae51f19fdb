"""A container's place in a real ZooKeeper: registration, sessions that end, the leader, task records."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from kazoo.client import KazooClient, KazooState

from appmaster import records
from appmaster.adapters.zookeeper.code import ZooKeeperBundles, tombstone
from appmaster.adapters.zookeeper.session import ZooKeeper
from embedded.machine.ports import free_ports
from embedded.servers import LOOPBACK
from standby.adapters.zookeeper.access import make_client
from standby.adapters.zookeeper.membership import ZooKeeperMembership
from standby.adapters.zookeeper.reader import ZooKeeperReader
from standby.code import bundles
from standby.control.events import (
    ControlEvent,
    LeaderChanged,
    LeaderMoved,
    LeaderUnknown,
    Registered,
    SessionConnected,
    SessionLost,
    SessionSuspended,
)
from standby.errors import BadConfiguration, CorruptState, Transient
from standby.shared.model import TaskId, TaskRecord
from standby.shared.naming import (
    code_complete_path,
    code_part_path,
    code_path,
    container_path,
    controller_path,
    task_path,
)
from standby.shared.peers import PeerAddress
from standby.shared.records import ContainerRecord, ControllerRecord, decoded, encode, encode_task
from tests.fakes.zookeeper import LoneZooKeeper
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS, looks, soon
from tests.wire import Wire

RECORD = ContainerRecord(
    "container_1", "anywhere_0", 1, "127.0.0.11", 4001, 4002, 77, 1, "0.1.0", peer_port=4003
)
TASK = TaskId("flights", "main", 0)

_Kind = TypeVar("_Kind", bound=ControlEvent)
_Read = TypeVar("_Read")


class Member:
    """A membership with what it posted."""

    def __init__(self, server: LoneZooKeeper, cluster: str, record: ContainerRecord = RECORD) -> None:
        self._queue: queue.SimpleQueue[ControlEvent] = queue.SimpleQueue()
        self.client = make_client(server.connect, 15_000)
        self.membership = ZooKeeperMembership(self.client, cluster, record, self._queue.put)
        self.membership.start()

    def next(self, kind: type[_Kind]) -> _Kind:
        event = self._queue.get(timeout=PATIENCE_SECONDS)
        assert isinstance(event, kind), event
        return event

    def until(self, kind: type[_Kind]) -> _Kind:
        while True:
            event = self._queue.get(timeout=PATIENCE_SECONDS)
            if isinstance(event, kind):
                return event

    def registered(self) -> int:
        self.membership.register()
        return self.next(Registered).incarnation


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A cluster of the test's own."""
    return str(request.node.name).replace("[", "-").replace("]", "")


@pytest.fixture
def member(server: LoneZooKeeper, name: str) -> Iterator[Member]:
    member = Member(server, name)
    member.next(SessionConnected)
    yield member
    member.membership.leave(PATIENCE_SECONDS)
    member.client.close()


def end_session(server: LoneZooKeeper, member: KazooClient) -> None:
    """End another client's session, as its expiry would."""
    twin = KazooClient(server.connect, client_id=member.client_id, timeout=1.5)
    twin.start(timeout=PATIENCE_SECONDS)
    twin.stop()
    twin.close()


def test_the_registration_says_where_the_container_is_until_it_leaves(
    member: Member, client: Any, name: str
) -> None:
    incarnation = member.registered()
    data, stat = client.get(container_path(name, RECORD.container))
    assert decoded(data, "", ContainerRecord) == RECORD
    assert stat.czxid == incarnation
    assert stat.ephemeralOwner == member.client.client_id[0]
    assert member.registered() == incarnation, "registered twice it is the same one"
    member.membership.leave(PATIENCE_SECONDS)
    assert client.exists(container_path(name, RECORD.container)) is None


def test_what_a_former_session_left_is_replaced(
    server: LoneZooKeeper, member: Member, client: Any, name: str
) -> None:
    client.create(container_path(name, RECORD.container), b"old", ephemeral=True, makepath=True)
    old = client.exists(container_path(name, RECORD.container))
    assert member.registered() > old.czxid


def test_an_ended_session_is_reported_and_the_next_registration_is_a_new_incarnation(
    server: LoneZooKeeper, member: Member
) -> None:
    first = member.registered()
    end_session(server, member.client)
    member.until(SessionLost)
    member.until(SessionConnected)
    assert member.registered() > first


def test_the_leader_is_followed_through_every_change(member: Member, client: Any, name: str) -> None:
    path = controller_path(name)

    def look_up() -> ControllerRecord | None:
        member.membership.look_up_leader()
        return member.next(LeaderChanged).leader

    assert look_up() is None
    for epoch in range(1, 4):
        client.create(path, encode(ControllerRecord("a", "h", 5, epoch)), ephemeral=True, makepath=True)
        member.next(LeaderMoved)
        assert look_up() == ControllerRecord("a", "h", 5, epoch)
        client.set(path, encode(ControllerRecord("b", "h", 6, epoch)))
        member.next(LeaderMoved)
        assert look_up() == ControllerRecord("b", "h", 6, epoch)
        client.delete(path)
        member.next(LeaderMoved)
        assert look_up() is None


def test_a_leader_record_of_another_program_is_reported_as_unknown(
    member: Member, client: Any, name: str
) -> None:
    client.create(controller_path(name), b"{}", makepath=True)
    member.membership.look_up_leader()
    assert "controller" in member.next(LeaderUnknown).reason


def test_a_task_record_is_read_as_it_is_now(server: LoneZooKeeper, client: Any, name: str) -> None:
    own = make_client(server.connect, 5_000)
    own.start(timeout=PATIENCE_SECONDS)
    records = ZooKeeperReader(own, name)
    assert records.read(TASK) is None
    record = TaskRecord(TASK, 0, 3, {0: "container_1", 1: "container_2"}, {0: "h1"}, (0, 1), True, "d1")
    client.create(task_path(name, TASK), encode_task(record), makepath=True)
    assert records.read(TASK) == record
    later = TaskRecord(TASK, 1, 4, {1: "container_2"}, {}, (1,), True, "d2")
    client.set(task_path(name, TASK), encode_task(later))
    assert records.read(TASK) == later
    assert records.known([replace(TASK, partition=7), TASK]) == [later]
    client.set(task_path(name, TASK), b"{}")
    with pytest.raises(BadConfiguration):
        records.read(TASK)
    assert records.known([TASK]) == []
    own.stop()
    own.close()


def test_a_registered_container_is_found_by_its_peers(
    server: LoneZooKeeper, member: Member, name: str
) -> None:
    own = make_client(server.connect, 5_000)
    own.start(timeout=PATIENCE_SECONDS)
    peers = ZooKeeperReader(own, name)
    assert peers.find(RECORD.container) is None
    member.registered()
    assert peers.find(RECORD.container) == PeerAddress(RECORD.container, "127.0.0.11", 4003)
    own.stop()
    with pytest.raises(Transient):
        peers.find(RECORD.container)
    own.close()


@pytest.fixture
def master(server: LoneZooKeeper, name: str) -> Iterator[ZooKeeper]:
    with ZooKeeper(server.connect, name) as master:
        yield master


def delete(client: Any, cluster: str, digest: str) -> None:
    """Put a tombstone on a bundle."""
    client.set(code_path(cluster, digest), records.encode(tombstone()))


@pytest.mark.parametrize("size", [0, 1, bundles.CHUNK_BYTES, bundles.LEFT_BYTES])
def test_a_bundle_of_code_comes_back_as_it_was_written(
    master: ZooKeeper, client: Any, name: str, size: int
) -> None:
    data = bytes(index % 251 for index in range(size))
    digest = bundles.digest_of(data)
    assert not master.code.has(digest)
    master.code.put(digest, data)
    assert master.code.has(digest)
    assert master.code.names() == (digest,)
    assert ZooKeeperReader(client, name).read_code(digest) == data
    sizes = [
        len(client.get(code_part_path(name, digest, each))[0]) for each in range(-(-size // (512 << 10)))
    ]
    assert sum(sizes) == size
    assert all(0 < each <= 512 << 10 for each in sizes)
    master.code.put(digest, data)
    delete(client, name, digest)
    assert master.code.names() == ()
    # Deleted is not gone at once: a process that is just starting with it still gets it.
    assert ZooKeeperReader(client, name).read_code(digest) == data
    version = client.get(code_path(name, digest))[1].version
    master.code.put(digest, data)
    assert master.code.names() == (digest,)
    assert not ZooKeeperBundles(client, name).bury(digest, version), "somebody wrote it again meanwhile"
    delete(client, name, digest)
    assert ZooKeeperBundles(client, name).bury(digest, client.get(code_path(name, digest))[1].version)
    with pytest.raises(BadConfiguration, match=f"{digest} is not in ZooKeeper"):
        ZooKeeperReader(client, name).read_code(digest)


def test_a_bundle_that_was_half_written_is_none_and_is_completed_by_the_next_writer(
    master: ZooKeeper, client: Any, name: str
) -> None:
    data = b"x" * (bundles.CHUNK_BYTES + 7)
    digest = bundles.digest_of(data)
    client.create(code_part_path(name, digest, 0), b"half of a pa", makepath=True)
    assert not master.code.has(digest)
    with pytest.raises(BadConfiguration, match="submit the job's code again"):
        ZooKeeperReader(client, name).read_code(digest)
    master.code.put(digest, data)
    assert ZooKeeperReader(client, name).read_code(digest) == data


def test_a_bundle_that_is_not_what_its_name_says_is_neither_written_nor_read(
    master: ZooKeeper, client: Any, name: str
) -> None:
    digest = bundles.digest_of(b"right")
    with pytest.raises(CorruptState, match=digest):
        master.code.put(digest, b"wrong")
    large = bytes(bundles.LEFT_BYTES + 1)
    with pytest.raises(BadConfiguration, match=r"code\.distributor=hdfs"):
        master.code.put(bundles.digest_of(large), large)
    assert master.code.names() == ()
    client.create(code_part_path(name, digest, 0), b"wrong", makepath=True)
    client.create(code_complete_path(name, digest), b"1")
    with pytest.raises(CorruptState, match=digest):
        ZooKeeperReader(client, name).read_code(digest)


def retried(read: Callable[[], _Read]) -> _Read:
    """Return what is read as soon as it needs no retry."""
    for _ in looks():
        try:
            return read()
        except Transient:
            continue
    raise AssertionError("the reader did not come back")


def test_what_cannot_be_read_now_is_worth_a_retry(tmp_path: Path) -> None:
    with LoneZooKeeper(tmp_path) as server:
        client = make_client(server.connect, 2_000)
        client.start(timeout=PATIENCE_SECONDS)
        reader = ZooKeeperReader(client, "c", timeout_seconds=A_MOMENT_SECONDS)
        asked: tuple[Callable[[], object], ...] = (
            lambda: reader.read(TASK),
            lambda: reader.known([TASK]),
            lambda: reader.read_code("0" * 64),
        )
        # A busy server may take longer than the reader waits.
        assert retried(lambda: reader.read(TASK)) is None
        server.kill()
        for ask in asked:
            with pytest.raises(Transient):
                ask()
        server.start()
        assert retried(lambda: reader.read(TASK)) is None
        with pytest.raises(BadConfiguration):
            retried(lambda: reader.read_code("0" * 64))
        client.stop()
        client.close()


def test_a_server_that_restarts_costs_neither_session_nor_registration(tmp_path: Path) -> None:
    with LoneZooKeeper(tmp_path) as server:
        # On a busy machine the first handshake with a server that has just started takes a second and more.
        member = Member(server, "c", msgspec.structs.replace(RECORD, container="container_2"))
        member.next(SessionConnected)
        first = member.registered()
        member.membership.look_up_leader()
        member.next(LeaderChanged)
        server.kill()
        member.next(SessionSuspended)
        server.start()
        member.next(SessionConnected)
        assert member.registered() == first, "suspended is not lost"
        # The watch went with the connection; asking again on SessionConnected brings it back.
        member.membership.look_up_leader()
        member.next(LeaderChanged)
        client = server.client()
        client.create(controller_path("c"), b"{}", makepath=True)
        member.next(LeaderMoved)
        client.stop()
        client.close()
        member.membership.leave(PATIENCE_SECONDS)
        member.client.close()


@contextmanager
def wired(
    server: LoneZooKeeper, session_ms: int, ways: int = 1
) -> Iterator[tuple[tuple[Wire, ...], KazooClient]]:
    """Have a client, not started yet, that reaches the server by wires, and takes them for as many servers."""
    ports = free_ports(ways)
    client = make_client(",".join(f"{LOOPBACK}:{port}" for port in ports), session_ms)
    to = int(server.connect.rpartition(":")[2])
    with ExitStack() as open_wires:
        wires = tuple(open_wires.enter_context(Wire(port, to)) for port in ports)
        try:
            yield wires, client
        finally:
            client.stop()
            client.close()


class SessionEnded(Exception):
    """A session was lost with the connection."""


def in_some_attempt(attempt: Callable[[], None]) -> None:
    """Have an attempt succeed in which the session does not end.

    It has little time left to be taken elsewhere, and the servers do not wait for a machine that stands still.
    """

    def is_done() -> bool:
        try:
            attempt()
        except SessionEnded:
            return False
        return True

    soon(is_done, "the session lives on")


@contextmanager
def outlived(client: KazooClient) -> Iterator[queue.SimpleQueue[str]]:
    """Fail unless the connection is lost with the block, and raise `SessionEnded` if the session is, too.

    What becomes of it is in the queue.
    """
    client.start(timeout=PATIENCE_SECONDS)
    states: queue.SimpleQueue[str] = queue.SimpleQueue()
    client.add_listener(states.put)
    session = client.client_id
    yield states
    assert states.get(timeout=PATIENCE_SECONDS) == KazooState.SUSPENDED
    if states.get(timeout=PATIENCE_SECONDS) == KazooState.LOST:
        raise SessionEnded
    assert client.client_id == session


def test_a_server_that_takes_connections_and_does_not_answer_costs_no_session(
    server: LoneZooKeeper,
) -> None:
    """A server that starts loses what was sent to it too early; one that hangs takes connections all the same."""

    def attempt() -> None:
        with wired(server, 6_000) as ((wire,), client):
            with outlived(client):
                wire.break_off(unanswered=2)
            assert wire.unanswered == 0

    in_some_attempt(attempt)


def test_a_server_that_falls_silent_is_left_in_time_however_much_it_is_asked(
    server: LoneZooKeeper,
) -> None:
    """What is sent counts as a sign of life of ours, and not of the server's."""

    def attempt() -> None:
        with wired(server, 3_000) as ((wire,), client), outlived(client) as states:
            wire.hush()

            def has_left() -> bool:
                client.exists_async("/")
                return not states.empty()

            soon(has_left, "it leaves the server")

    in_some_attempt(attempt)


def test_a_server_that_fell_silent_is_tried_last(
    server: LoneZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever chance says: of the session there may be no more left than to connect once."""

    def attempt() -> None:
        with monkeypatch.context() as patch, wired(server, 3_000, ways=2) as (wires, client):
            order = [port for _, port in client.hosts]
            patch.setattr(random, "shuffle", lambda hosts: hosts.sort(key=lambda each: order.index(each[-1])))
            other, silent = wires
            other.cut()
            with outlived(client):
                other.mend()
                order.reverse()
                taken = silent.taken
                silent.cut()
            assert silent.taken == taken

    in_some_attempt(attempt)


def test_a_server_that_is_slow_to_answer_everybody_is_given_the_time_in_the_end(
    server: LoneZooKeeper,
) -> None:
    """A client that gave up too early returns with a longer time-out."""
    with wired(server, 1_000) as ((wire,), client):
        wire.hold_back(0.5)
        client.start(timeout=PATIENCE_SECONDS)
