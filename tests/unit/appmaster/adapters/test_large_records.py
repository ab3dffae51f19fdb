"""What a leader writes of one job, however much it is: within what servers take, or told as that job's trouble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, ConnectionLoss, RolledBackError
from kazoo.protocol.serialization import CheckVersion, Create, SetData, Transaction

from appmaster.adapters.zookeeper.election import ZooKeeperElection
from appmaster.adapters.zookeeper.records import ZooKeeperLeaderRecords
from appmaster.blame import is_of_job
from appmaster.planning.state.actions import RecordWrite
from appmaster.planning.state.model import JobModel, Processor
from standby.errors import StandfastError, Transient
from standby.shared.model import ProcessorId, TaskId, TaskRecord

#: ZooKeeper's `jute.maxbuffer`, where nobody has set it.
MOST_BYTES = 0xFFFFF

CONTAINERS = {each: f"container_e12_1732600000000_{each:04}_01_000012" for each in (0, 1)}


class Servers(KazooClient):  # type: ignore[misc] # kazoo has no types
    """Makes transactions as servers do, and closes the connection of who sends a request that is too large."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}
        self.requests: list[int] = []

    def _call(self, request: Any, answer: Any) -> None:
        assert isinstance(request, Transaction)
        size = len(request.serialize())
        if size > MOST_BYTES:
            answer.set_exception(ConnectionLoss())
            return
        self.requests.append(size)
        answer.set(self._made(request.operations))

    def _made(self, operations: Sequence[Any]) -> list[Any]:
        for at, each in enumerate(operations):
            if isinstance(each, SetData) and self.versions.get(each.path) != each.version:
                return (
                    [RolledBackError()] * at
                    + [BadVersionError()]
                    + [RolledBackError()] * (len(operations) - at - 1)
                )
        for each in operations:
            if not isinstance(each, CheckVersion):
                self.versions[each.path] = 0 if isinstance(each, Create) else each.version + 1
        return [True] * len(operations)


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def records(servers: Servers) -> ZooKeeperLeaderRecords:
    return ZooKeeperLeaderRecords(servers, "cluster", ZooKeeperElection(servers, "cluster"))


def changes(count: int, version: int | None = None) -> list[RecordWrite]:
    return [
        RecordWrite(TaskRecord(TaskId("job", "main", each), 0, 1, CONTAINERS, {0: "h1", 1: "h2"}), version)
        for each in range(count)
    ]


@pytest.mark.parametrize("count", [1, 100, 5_000])
def test_records_of_a_processor_are_written_however_many_tasks_it_has(
    servers: Servers, records: ZooKeeperLeaderRecords, count: int
) -> None:
    written = records.write_tasks(changes(count))
    assert written is not None
    assert [each.version for each in written] == [0] * count
    written = records.write_tasks(changes(count, 0))
    assert written is not None
    assert [each.version for each in written] == [1] * count
    assert set(servers.versions.values()) == {1}
    if count < 1_000:
        assert len(servers.requests) == 2, "one transaction each"


def test_one_record_that_had_changed_is_told_of_all(
    servers: Servers, records: ZooKeeperLeaderRecords
) -> None:
    records.write_tasks(changes(5_000))
    last = max(servers.versions, key=lambda path: int(path.rpartition(".")[2]))
    servers.versions[last] = 7
    assert records.write_tasks(changes(5_000, 0)) is None


def test_model_that_servers_do_not_take_is_its_jobs_trouble(records: ZooKeeperLeaderRecords) -> None:
    tasks = {
        ProcessorId("job", "main", each): Processor((TaskId("job", "main", each),), (0, 1))
        for each in range(30_000)
    }
    with pytest.raises(StandfastError, match="bytes") as raised:
        records.write_model(JobModel("job", tasks), "main")
    assert is_of_job(raised.value)
    assert not isinstance(raised.value, Transient), (
        "it would be tried for ever, and nothing of other jobs written"
    )
