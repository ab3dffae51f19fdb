"""Restores that an operator pauses, as the planner tells them to the containers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appmaster.cli.reading.observe import tasks_table
from appmaster.planning.state import actions as todo
from appmaster.planning.state.job import EVERY_HOST
from standby.shared.model import Role
from tests.fakes.yarn import FakeCluster


def paused(cluster: FakeCluster) -> set[tuple[str, Role]]:
    """Return host and role of all that the containers were told last to hold, and not to restore."""
    return {
        (process.host, wanted.role)
        for process in cluster.processes.values()
        for wanted in process.wanted
        if wanted.is_paused
    }


def standbys(cluster: FakeCluster) -> set[tuple[str, Role]]:
    """Return the hosts that hold standbys."""
    return {
        (process.host, wanted.role)
        for process in cluster.processes.values()
        for wanted in process.wanted
        if wanted.role is Role.STANDBY
    }


@pytest.fixture
def cluster() -> FakeCluster:
    """Return two processors with a standby each, deployed."""
    cluster = FakeCluster()
    cluster.run(5_000)
    assert cluster.is_whole()
    cluster.actions.clear()
    return cluster


def pause(cluster: FakeCluster, *hosts: str) -> None:
    """Change what the running job says."""
    cluster.policy = replace(cluster.policy, restore_paused=hosts)
    cluster.load()
    cluster.run(2_000)


def test_a_pause_is_told_to_every_standby_and_nothing_else_is_done(cluster: FakeCluster) -> None:
    pause(cluster, EVERY_HOST)
    assert paused(cluster) == standbys(cluster) != set()
    assert {type(each) for each in cluster.actions} <= {todo.SendAssignment, todo.Settle, todo.WriteStatus}
    pause(cluster)
    assert paused(cluster) == set()
    assert cluster.is_whole()


def test_a_pause_is_of_the_hosts_that_are_named(cluster: FakeCluster) -> None:
    host = min(host for host, _ in standbys(cluster))
    pause(cluster, host)
    assert paused(cluster) == {(host, Role.STANDBY)}


def test_a_new_leader_keeps_the_pause(cluster: FakeCluster) -> None:
    pause(cluster, EVERY_HOST)
    cluster.elect(2)
    cluster.run(6_000)
    assert paused(cluster) == standbys(cluster) != set()


def test_a_table_of_tasks_says_below_what_there_is_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    placed = ("copy", "role", "phase", "in_sync", "changelog_lag_records", "host", "container", "warm")
    fields = (
        *placed,
        "start_ms",
        "input_committed",
        "input_lag_records",
        "input_rate",
        "failures",
        "skipped",
        "dead_lettered",
    )
    replica = {**dict.fromkeys(fields), "detail": "not replayed for now: job.restore.paused"}
    task = {"job": "j", "stage": "main", "partition": 3}
    replicas = [{**replica, "copy": 0, "detail": ""}, {**replica, "copy": 1}]
    tasks_table({"tasks": [{"task": task, "epoch": 1, "replicas": replicas}]}, "j")
    assert capsys.readouterr().out.splitlines()[3:] == [
        "j/main.3#1: not replayed for now: job.restore.paused"
    ]
