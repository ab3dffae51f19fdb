"""What a submit ends with: how its job is then, not how it was when the waiting ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.api.client import ClusterClient
from appmaster.api.snapshot import snapshot
from appmaster.cli.launch.starting import at_the_end
from appmaster.planning.state.job import Policy
from appmaster.records import StatusRecord
from standby.errors import StandfastError, Unavailable
from tests.fakes.yarn import FakeCluster


class Client:
    """A client of a cluster whose leader answers ``status``; None: nobody leads, and ``recorded`` is left."""

    def __init__(self, status: dict[str, Any] | None, recorded: StatusRecord | None = None) -> None:
        self._status = status
        self.zookeeper = SimpleNamespace(jobs=SimpleNamespace(status=lambda job: recorded))

    def status(self) -> dict[str, Any]:
        if self._status is None:
            raise Unavailable("cluster c has no leader now")
        return self._status


def status(cluster: FakeCluster) -> dict[str, Any]:
    return snapshot(cluster.view, "c", {"host": "h1"})


def end(client: Client, before: dict[str, Any]) -> tuple[dict[str, Any], str]:
    return at_the_end("job", before, cast("ClusterClient", client))


def deployed(**more: Any) -> FakeCluster:
    cluster = FakeCluster(**more)
    cluster.run(8_000)
    return cluster


def test_job_that_is_deployed_still_is_told_so_with_its_newest_status() -> None:
    cluster = deployed()
    before = status(cluster)
    cluster.run(1_000)
    assert end(Client(status(cluster)), before) == (status(cluster), "job is deployed")


def test_job_that_has_failed_since_is_told_as_failed_with_the_reason() -> None:
    cluster = deployed(policy=Policy(retry_count=0))
    before = status(cluster)
    cluster.crash(cluster.active_process(0).skein_id)
    cluster.run(5_000)
    for client, told in (
        (Client(status(cluster)), r"has failed since: .* are allowed"),
        (Client(None, StatusRecord("failed", ("its code raised",))), "has failed since: its code raised"),
        (Client(None, StatusRecord("undeployed", ("killed",))), "is undeployed now: killed"),
        (Client({**before, "jobs": []}), "is gone now"),
    ):
        with pytest.raises(StandfastError, match=f"job was deployed, and {told}"):
            end(client, before)


def test_job_that_has_lost_a_container_since_is_told_to_be_incomplete() -> None:
    cluster = deployed()
    before = status(cluster)
    cluster.crash(cluster.active_process(0).skein_id)
    cluster.run(100)
    now = status(cluster)
    assert now["jobs"][0]["status"] == "incomplete"
    found, said = end(Client(now), before)
    assert found == now
    assert said.startswith("job was deployed, and is incomplete now\n  ")
    assert now["jobs"][0]["reasons"][0] in said


def test_what_is_wrong_with_a_deployed_job_is_told_below() -> None:
    before = status(deployed())
    mine = {**before["jobs"][0], "reasons": ["task 0: the job's code fails at offset 7"]}
    _, said = end(Client({**before, "jobs": [mine]}), before)
    assert said == "job is deployed\n  task 0: the job's code fails at offset 7"


def test_without_a_leader_the_status_of_a_moment_ago_is_told_as_such() -> None:
    before = status(deployed())
    for recorded in (StatusRecord("deployed"), None):
        found, said = end(Client(None, recorded), before)
        assert found == before
        assert said == "job was deployed when a leader last looked: cluster c has no leader now"
