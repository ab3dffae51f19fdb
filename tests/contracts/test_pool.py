"""The records of a pool: those in memory and those of a real ZooKeeper server alike."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient
from msgspec.structs import replace

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.leadership.ports import PoolMember, PoolRecords
from standby.adapters.zookeeper.access import make_client
from standby.adapters.zookeeper.pool import PoolMembership
from standby.errors import Fenced
from standby.shared.naming import member_path
from standby.shared.records import ControllerRecord, MemberRecord, encode
from tests.fakes.pool import MemoryPool, waiting
from tests.fakes.zookeeper import SESSION_MS, LoneZooKeeper
from tests.patience import PATIENCE_SECONDS, soon

CLUSTER = "contract"


class InMemory:
    """A pool in memory."""

    def __init__(self) -> None:
        self.records = self._pool = MemoryPool()

    def join(self, record: MemberRecord) -> None:
        self._pool.join(record)

    def leave(self, name: str) -> None:
        self._pool.leave(name)

    def depose(self) -> None:
        self._pool.is_deposed = True


class OnServer:
    """A pool on a server, of which this session is the leader."""

    def __init__(self, server: LoneZooKeeper, stack: ExitStack) -> None:
        self._connect = server.connect
        self._mine = stack.enter_context(ZooKeeper(server.connect, CLUSTER))
        self._other = stack.enter_context(ZooKeeper(server.connect, CLUSTER))
        self._mine.tree.prepare()
        assert self._mine.election.lead(ControllerRecord("a", "h", 1, 0)) == 1
        self.records: PoolRecords = self._mine.pool

    def join(self, record: MemberRecord) -> None:
        self._other.client.create(member_path(CLUSTER, record.container), encode(record), ephemeral=True)

    def leave(self, name: str) -> None:
        self._other.client.delete(member_path(CLUSTER, name))

    def owner(self, name: str) -> int:
        """Return the session that a member's record belongs to; 0 when there is no record."""
        stat = self._other.client.exists(member_path(CLUSTER, name))
        return 0 if stat is None else int(stat.ephemeralOwner)

    def end_session(self, client: Any) -> None:
        """End another client's session, as the servers do when they have not heard from it."""
        other = KazooClient(self._connect, client_id=client.client_id)
        other.start(timeout=PATIENCE_SECONDS)
        other.stop()
        other.close()

    def depose(self) -> None:
        present = self._mine.election.controller()
        assert self._other.election.lead(ControllerRecord("b", "h", 2, 0), present) == 2


@pytest.fixture(params=["memory", "zookeeper"])
def pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InMemory | OnServer]:
    if request.param == "memory":
        yield InMemory()
        return
    with ExitStack() as stack:
        server = stack.enter_context(LoneZooKeeper(tmp_path_factory.mktemp("zookeeper")))
        yield OnServer(server, stack)


def test_processes_are_seen_as_they_come_and_go(pool: InMemory | OnServer) -> None:
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def changed() -> None:
        changes.put(None)

    first, second = waiting("h1", "a"), waiting("h2", "b")
    assert pool.records.names(changed) == frozenset()
    pool.join(first)
    changes.get(timeout=PATIENCE_SECONDS)
    assert pool.records.names(changed) == {first.container}
    pool.join(second)
    changes.get(timeout=PATIENCE_SECONDS)
    both = [first.container, second.container]
    assert pool.records.names(changed) == set(both)
    assert pool.records.read(both) == {
        first.container: PoolMember(first, 0),
        second.container: PoolMember(second, 0),
    }
    pool.leave(first.container)
    changes.get(timeout=PATIENCE_SECONDS)
    assert pool.records.names(changed) == {second.container}
    assert pool.records.read(both).keys() == {second.container}
    assert changes.empty(), "each watch fires once"


def test_a_record_is_changed_over_its_version_only(pool: InMemory | OnServer) -> None:
    record = waiting("h1", "a")
    pool.join(record)
    claimed = replace(record, claim="1-1")
    assert pool.records.write(PoolMember(claimed, 0))
    assert not pool.records.write(PoolMember(replace(record, claim="1-2"), 0)), "it was claimed meanwhile"
    assert pool.records.read([record.container]) == {record.container: PoolMember(claimed, 1)}
    assert pool.records.write(PoolMember(replace(claimed, is_released=True), 1))
    pool.leave(record.container)
    assert not pool.records.write(PoolMember(claimed, 2))


def test_a_deposed_leader_changes_nothing(pool: InMemory | OnServer) -> None:
    record = waiting("h1", "a")
    pool.join(record)
    pool.depose()
    with pytest.raises(Fenced):
        pool.records.write(PoolMember(replace(record, claim="1-1"), 0))
    assert pool.records.read([record.container]) == {record.container: PoolMember(record, 0)}


# ---- the process's side, which has no fake ----


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneZooKeeper]:
    with LoneZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


def test_a_process_waits_for_its_claim_keeps_it_over_a_lost_session_and_learns_its_release(
    server: LoneZooKeeper,
) -> None:
    released, record = threading.Event(), waiting("h1", "a")
    client = make_client(server.connect, SESSION_MS)
    with ExitStack() as stack:
        pool = OnServer(server, stack)
        stack.callback(client.close)
        stack.callback(client.stop)
        process = PoolMembership(client, CLUSTER, record, released.set)
        client.start_async()
        process.start()
        name = record.container

        def read() -> PoolMember:
            return pool.records.read([name])[name]

        soon(lambda: pool.records.names(lambda: None) == {name}, "it registers")
        assert read() == PoolMember(record, 0)
        claimed = replace(record, claim="1-1")
        assert pool.records.write(PoolMember(claimed, 0))
        assert process.await_claim() == "1-1"
        former, _ = client.client_id
        pool.end_session(client)
        soon(lambda: pool.owner(name) not in (0, former), "it registers again")
        assert read() == PoolMember(claimed, 0)
        assert not released.is_set()
        assert pool.records.write(PoolMember(replace(claimed, is_released=True), 0))
        assert released.wait(PATIENCE_SECONDS)
        process.leave()
        soon(lambda: pool.records.names(lambda: None) == frozenset(), "it leaves")


def test_a_process_that_is_to_end_waits_no_longer(server: LoneZooKeeper) -> None:
    client = make_client(server.connect, SESSION_MS)
    process = PoolMembership(client, CLUSTER, waiting("h1", "a"), lambda: None)
    process.start()
    process.give_up()
    assert not process.await_claim()
