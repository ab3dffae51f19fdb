"""Leadership on a real ZooKeeper: one leader, rising epochs, and a deposed one that can write nothing."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from appmaster.adapters.kazoo import ZooKeeper, as_recorded
from appmaster.planning.actions import Change
from appmaster.records import CellRecord, JobRecord, StatusRecord
from embedded.cluster import LocalCluster
from standby.errors import Fenced, Unavailable
from standby.model import TaskId, TaskRecord
from standby.records import ControllerRecord
from standby.wire import JobDefinition

TASK = TaskId("job", "main", 0)
RECORD = TaskRecord(TASK, active=0, epoch=1, placed={0: "c1"}, hosts={0: "h1"}, in_sync=(0,), decision="1-1")


@pytest.fixture
def name() -> str:
    """Return the name of a cluster that nobody else uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def sessions(cluster: LocalCluster, name: str) -> Iterator[tuple[ZooKeeper, ZooKeeper]]:
    """Return two sessions with the tree of one cluster."""
    with (
        ZooKeeper(cluster.zookeeper_connect, name) as first,
        ZooKeeper(cluster.zookeeper_connect, name) as second,
    ):
        first.prepare()
        definition = JobDefinition("job", "run1", {}, "changelog", "group", 1)
        first.put_job(JobRecord(definition))
        yield first, second


def candidate(name: str) -> ControllerRecord:
    return ControllerRecord(name, "127.0.0.1", 1, 0)


def test_only_one_leads_and_the_next_one_has_a_higher_epoch(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    assert first.lead(candidate("a")) == 1
    assert second.lead(candidate("b")) is None
    leader = second.controller()
    assert leader is not None
    assert (leader.candidate, leader.epoch) == ("a", 1)
    assert second.lead(candidate("b"), depose=leader) == 2


def test_deposed_leader_can_write_nothing(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    assert first.lead(candidate("a")) == 1
    written = first.write_tasks([Change(RECORD, None)])
    assert written is not None
    leader = first.controller()
    assert second.lead(candidate("b"), depose=leader) == 2
    newer = replace(RECORD, epoch=2, decision="1-2")
    with pytest.raises(Fenced):
        first.write_tasks([Change(newer, written[0].version)])
    with pytest.raises(Fenced):
        first.write_status("job", StatusRecord("deployed"))
    assert [each.record for each in second.read_tasks([Change(RECORD, None)])] == [RECORD]
    assert second.status("job") is None


def test_leader_that_somebody_deposed_meanwhile_is_not_deposed_twice(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, second = sessions
    first.lead(candidate("a"))
    stale = first.controller()
    second.lead(candidate("b"), depose=stale)
    assert first.lead(candidate("c"), depose=stale) is None


def test_write_with_a_wrong_version_changes_none_of_its_records(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, _ = sessions
    first.lead(candidate("a"))
    other = replace(RECORD, task=TaskId("job", "main", 1))
    assert first.write_tasks([Change(RECORD, None), Change(other, None)]) is not None
    changed = replace(RECORD, epoch=2)
    assert first.write_tasks([Change(changed, 0), Change(replace(other, epoch=2), 7)]) is None
    present = first.read_tasks([Change(RECORD, None), Change(other, None)])
    assert [each.record.epoch for each in present] == [1, 1]


def test_records_survive_the_journey_and_missing_ones_are_blank(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, second = sessions
    first.lead(candidate("a"))
    first.write_tasks([Change(RECORD, None)])
    loaded = second.load("job")
    assert loaded is not None
    assert [(each.record, each.version) for each in loaded.tasks] == [(RECORD, 0)]
    absent = replace(RECORD, task=TaskId("job", "main", 9))
    blank = as_recorded([Change(absent, None)], second.read_tasks([Change(absent, None)]))
    assert (blank[0].record.active, blank[0].record.epoch, blank[0].version) == (None, 0, -1)


def test_change_of_the_requested_state_wakes_the_watcher(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    woken = threading.Event()
    assert first.job("job", woken.set) is not None
    assert second.request("job", is_wanted=False, purge=True)
    assert woken.wait(5)
    job = first.job("job")
    assert job is not None
    assert (job.is_wanted, job.purge) == (False, True)
    assert not second.request("absent", is_wanted=False)


def test_two_submits_never_make_one_cell_twice(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    mine = CellRecord("", 1, "me")
    assert first.claim_cell(1, mine)
    assert not second.claim_cell(1, CellRecord("", 2, "you"))
    first.put_cell(1, CellRecord("application_1_0001", 1, "me"))
    ended = second.cell(1)
    assert ended is not None
    assert second.claim_cell(1, CellRecord("", 3, "you"), replaces=ended)
    assert not first.claim_cell(1, mine, replaces=ended), "it has been replaced already"


def test_deleted_job_leaves_no_tree_behind(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    first.delete_job("job")
    assert not second.exists()


def test_server_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        ZooKeeper("127.0.0.1:1", "x").connect(timeout_seconds=1)
