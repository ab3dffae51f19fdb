"""What a leader writes of one job: within what servers take, or reported as that job's trouble, and never outdated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, ConnectionLoss, NoNodeError, RolledBackError
from kazoo.protocol.serialization import CheckVersion, Create, Exists, GetChildren, GetData, Sync, Transaction

from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.election import ZooKeeperElection
from appmaster.adapters.zookeeper.records import ZooKeeperLeaderRecords
from appmaster.blame import is_of_job
from appmaster.planning.state.actions import RecordWrite
from appmaster.planning.state.model import JobModel, Processor
from appmaster.records import ChangeRecord, JobRecord, StatusRecord, decode, encode
from standby.adapters.zookeeper.access import AS_IT_IS, Client
from standby.errors import BadConfiguration, StandfastError, Transient
from standby.shared import naming
from standby.shared.model import ProcessorId, TaskId, TaskRecord
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import JOB

#: ZooKeeper's `jute.maxbuffer`, where it is not set.
MOST_BYTES = 0xFFFFF

LARGE = {"spark.text": "x" * MOST_BYTES}

CONTAINERS = {each: f"container_e12_1732600000000_{each:04}_01_000012" for each in (0, 1)}


class Connection(KazooClient):  # type: ignore[misc] # kazoo has no types
    """Makes transactions as servers do, and closes the connection after a request that is too large."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.versions: dict[str, int] = {}
        self.data: dict[str, bytes] = {}
        self.requests: list[int] = []
        #: How often the connection was closed.
        self.lost = 0
        #: Called once, before the next transaction is made.
        self.meanwhile: Callable[[], object] | None = None

    def _call(self, request: Any, answer: Any) -> None:
        if isinstance(request, GetData):
            if request.path in self.versions:
                answer.set(self._read(request.path))
            else:
                answer.set_exception(NoNodeError())
            return
        if isinstance(request, (Exists, Sync)):
            answer.set(request.path if request.path in self.versions else None)
            return
        if isinstance(request, GetChildren):
            answer.set([each.rpartition("/")[2] for each in self.data if each.startswith(f"{request.path}/")])
            return
        assert isinstance(request, (Create, Transaction))
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        size = len(request.serialize())
        if size > MOST_BYTES:
            self.lost += 1
            answer.set_exception(ConnectionLoss())
            return
        self.requests.append(size)
        answer.set(self._made(request.operations))

    def _made(self, operations: Sequence[Any]) -> list[Any]:
        for at, each in enumerate(operations):
            is_there = isinstance(each, CheckVersion) or each.path in self.versions
            is_any = isinstance(each, Create) or (is_there and each.version == -1)
            if not is_any and self.versions.get(each.path) != each.version:
                return (
                    [RolledBackError()] * at
                    + [BadVersionError()]
                    + [RolledBackError()] * (len(operations) - at - 1)
                )
        for each in operations:
            if not isinstance(each, CheckVersion):
                self.versions[each.path] = 0 if isinstance(each, Create) else self.versions[each.path] + 1
                self.data[each.path] = each.data
        return [True] * len(operations)

    def put(self, path: str, data: bytes = b"") -> None:
        self.versions[path], self.data[path] = self.versions.get(path, -1) + 1, data

    def _read(self, path: str) -> tuple[bytes, Any]:
        return self.data[path], SimpleNamespace(version=self.versions[path])


class Servers(Client, Connection):
    """What ZooKeeper holds, and what a leader writes there."""

    def __init__(self) -> None:
        super().__init__(AS_IT_IS, "zk1:2181", 10.0)
        self.leader = ZooKeeperLeaderRecords(self, "cluster", ZooKeeperElection(self, "cluster"))


@pytest.fixture
def servers() -> Servers:
    return Servers()


def changes(count: int, version: int | None = None, revision: int = 1) -> list[RecordWrite]:
    blank = TaskRecord(TaskId("job", "main", 0), 0, 1, CONTAINERS, {0: "h1", 1: "h2"}, revision=revision)
    return [RecordWrite(replace(blank, task=TaskId("job", "main", each)), version) for each in range(count)]


@pytest.mark.parametrize("count", [1, 100, 5_000])
def test_records_of_a_processor_are_written_however_many_tasks_it_has(servers: Servers, count: int) -> None:
    written = servers.leader.write_tasks(changes(count))
    assert written is not None
    assert [each.version for each in written] == [0] * count
    written = servers.leader.write_tasks(changes(count, 0))
    assert written is not None
    assert [each.version for each in written] == [1] * count
    assert set(servers.versions.values()) == {1}
    if count < 1_000:
        assert len(servers.requests) == 2, "one transaction each"


def test_one_record_that_had_changed_is_reported_for_all(servers: Servers) -> None:
    servers.leader.write_tasks(changes(5_000))
    last = max(servers.versions, key=lambda path: int(path.rpartition(".")[2]))
    servers.versions[last] = 7
    assert servers.leader.write_tasks(changes(5_000, 0)) is None


def test_model_that_servers_do_not_take_is_its_jobs_trouble(servers: Servers) -> None:
    tasks = {
        ProcessorId("job", "main", each): Processor((TaskId("job", "main", each),), (0, 1))
        for each in range(30_000)
    }
    with pytest.raises(StandfastError, match=r"jobs/job/model: \d+ bytes") as raised:
        servers.leader.write_model(JobModel("job", tasks), "main")
    assert servers.lost == 0, "the writes of other jobs that are on their way would fail too"
    assert is_of_job(raised.value)
    assert not isinstance(raised.value, Transient), (
        "it would be tried for ever, and nothing of other jobs written"
    )


def test_change_that_servers_do_not_take_is_not_sent(servers: Servers) -> None:
    with pytest.raises(BadConfiguration, match=r"changes/change: \d+ bytes"):
        ZooKeeperChanges(servers, "cluster").put("change", ChangeRecord("update", {"config": LARGE}))
    assert servers.lost == 0


def test_change_is_refused_if_servers_do_not_take_the_jobs_record(servers: Servers) -> None:
    """The record has the former configuration, too, for a rollback."""
    half = {**JOB, "spark.text": LARGE["spark.text"][: MOST_BYTES // 2]}
    record = JobRecord(JobDefinition("job", "run", half, "changelog", "group", 1), activated=1)
    update = ChangeRecord("update", {"job": "job", "config": {**half, "task.batch.max.bytes": "1000000"}})
    settled = settled_by_leader(servers, record, update)
    assert settled.state == "refused"
    assert "jobs/job: " in settled.said
    assert servers.lost == 0


def settled_by_leader(servers: Servers, record: JobRecord, queued: ChangeRecord) -> ChangeRecord:
    job, change = naming.job_path("cluster", "job"), naming.change_path("cluster", "change")
    servers.put(naming.controller_epoch_path("cluster"), b"1")
    servers.put(job, encode(record))
    servers.put(f"{job}/status", encode(StatusRecord("deployed")))
    servers.put(change, encode(queued))
    ZooKeeperChanges(servers, "cluster").settle("change", 1)
    return decode(servers.data[change], change, ChangeRecord)


def rolled_back(servers: Servers, tasks: int) -> ChangeRecord:
    """Return a queued rollback to code with another `task.stores.version`, once a leader has settled it."""
    now = JobDefinition(
        "job", "run", {**JOB, "task.stores.version": "2"}, "changelog", "group", tasks, revision=2
    )
    former = msgspec.structs.replace(now, revision=1, config=JOB)
    record = JobRecord(now, former=(former,), activated=2)
    return settled_by_leader(servers, record, ChangeRecord("rollback", {"job": "job", "revision": 2}))


def test_a_rollback_is_made_however_many_tasks_the_job_has(servers: Servers) -> None:
    servers.put(naming.tasks_path("cluster", "job"))
    servers.leader.write_tasks(changes(25_000))
    settled = rolled_back(servers, 25_000)
    assert (settled.state, settled.revision) == ("done", 3)


def test_a_rollback_is_refused_if_an_active_is_given_the_revision_meanwhile(servers: Servers) -> None:
    """What it was judged by is no longer so: that active may write state that the former code cannot read."""
    servers.put(naming.tasks_path("cluster", "job"))
    servers.leader.write_tasks(changes(3))
    servers.meanwhile = lambda: servers.leader.write_tasks(changes(1, 0, revision=2))
    settled = rolled_back(servers, 3)
    assert settled.state == "refused"
    assert "revision 2 of job has been active" in settled.said


@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_failure_of_a_former_deployment_is_not_written_once_the_job_is_submitted_again(
    servers: Servers, *, is_meanwhile: bool
) -> None:
    first = JobDefinition("job", "run", JOB, "changelog", "group", 1)
    failed = StatusRecord("failed", ("too often",), run="run", revision=1)
    job = naming.job_path("cluster", "job")
    servers.put(naming.controller_epoch_path("cluster"), b"1")
    servers.put(job, encode(JobRecord(first)))
    servers.leader.write_status("job", failed)
    assert decode(servers.data.pop(f"{job}/status"), job, StatusRecord) == failed

    def submit_again() -> None:
        servers.put(job, encode(JobRecord(msgspec.structs.replace(first, revision=2))))
        del servers.versions[f"{job}/status"]

    if is_meanwhile:
        servers.meanwhile = submit_again
    else:
        submit_again()
    servers.leader.write_status("job", failed)
    assert f"{job}/status" not in servers.data
