"""The directory of code in ZooKeeper: what a leader writes there of a job that has changed since it was read."""

from __future__ import annotations

import pytest

from appmaster.adapters.zookeeper.code import ZooKeeperCodeDirectory
from appmaster.records import JobRecord, decode, encode
from standby.shared import naming
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import JOB
from tests.unit.appmaster.adapters.test_large_records import Servers

PATH = naming.job_path("cluster", "job")


@pytest.fixture
def servers() -> Servers:
    servers = Servers()
    servers.put(naming.controller_epoch_path("cluster"), b"1")
    return servers


def record(servers: Servers, run: str, revision: int) -> None:
    definition = JobDefinition("job", run, JOB, "changelog", "group", 1, revision=revision, code="c" * 64)
    servers.put(PATH, encode(JobRecord(definition)))


def activated(servers: Servers) -> int:
    return decode(servers.data[PATH], PATH, JobRecord).activated


def test_job_that_was_created_again_is_not_activated_for_the_code_of_the_deleted_one(
    servers: Servers,
) -> None:
    """Its containers would find no code, and its next revisions would start before any candidate has theirs."""
    record(servers, "run-2", 1)
    ZooKeeperCodeDirectory(servers, "cluster").activate("job", "run-1", 4, 1)
    assert activated(servers) == 0
    ZooKeeperCodeDirectory(servers, "cluster").activate("job", "run-2", 1, 1)
    assert activated(servers) == 1
