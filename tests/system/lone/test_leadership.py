"""Leadership on a real ZooKeeper: one leader, rising epochs, and a deposed one that can write nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appmaster import records as bodies
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.effects import as_recorded
from appmaster.planning.state.actions import RecordWrite
from appmaster.records import CellRecord, ChangeRecord, DrainedRecord, JobRecord, StatusRecord
from appmaster.supervisor import MADE_WAY
from embedded.cluster import LocalCluster
from standby.cluster import ClusterConfig
from standby.errors import Fenced, Transient, Unavailable
from standby.shared import naming, records
from standby.shared.model import TaskId, TaskRecord
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.wire import JobDefinition
from tests.fakes.candidate_process import CandidateProcess
from tests.fakes.zookeeper import record_job
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS, soon

TASK = TaskId("job", "main", 0)
RECORD = TaskRecord(TASK, active=0, epoch=1, placed={0: "c1"}, hosts={0: "h1"}, in_sync=(0,), decision="1-1")


@pytest.fixture
def sessions(cluster: LocalCluster, name: str) -> Iterator[tuple[ZooKeeper, ZooKeeper]]:
    """Return two sessions with the tree of one cluster."""
    with (
        ZooKeeper(cluster.zookeeper_connect, name) as first,
        ZooKeeper(cluster.zookeeper_connect, name) as second,
    ):
        first.tree.prepare()
        definition = JobDefinition("job", "run1", {}, "changelog", "group", 1)
        record_job(first, JobRecord(definition))
        yield first, second


def candidate(name: str) -> ControllerRecord:
    return ControllerRecord(name, "127.0.0.1", 1, 0)


def test_only_one_leads_and_the_next_one_has_a_higher_epoch(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    assert first.election.lead(candidate("a")) == 1
    assert second.election.lead(candidate("b")) is None
    leader = second.election.controller()
    assert leader is not None
    assert (leader.candidate, leader.epoch) == ("a", 1)
    assert second.election.lead(candidate("b"), depose=leader) == 2
    assert first.election.lead(candidate("c"), depose=leader) is None, "somebody has deposed it meanwhile"


def test_deposed_leader_can_write_nothing(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    assert first.election.lead(candidate("a")) == 1
    written = first.records.write_tasks([RecordWrite(RECORD, None)])
    assert written is not None
    leader = first.election.controller()
    assert second.election.lead(candidate("b"), depose=leader) == 2
    newer = replace(RECORD, epoch=2, decision="1-2")
    with pytest.raises(Fenced):
        first.records.write_tasks([RecordWrite(newer, written[0].version)])
    with pytest.raises(Fenced):
        first.records.write_status("job", StatusRecord("deployed"))
    assert [each.record for each in second.records.read_tasks([RecordWrite(RECORD, None)])] == [RECORD]
    assert second.jobs.status("job") is None


def test_each_confirmation_of_a_leader_is_a_beat_that_others_see(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, second = sessions
    assert second.election.beat() is None
    assert first.election.lead(candidate("a")) == 1
    beats = [second.election.beat()]
    for _ in range(3):
        first.election.confirm_lead()
        beats.append(second.election.beat())
    assert len(set(beats)) == 4
    assert all(each is not None and each.epoch == 1 for each in beats)
    leader = second.election.controller()
    assert second.election.lead(candidate("b"), leader, beats[-2]) is None, "it has left another one since"
    first.election.confirm_lead()
    assert second.election.lead(candidate("b"), leader, second.election.beat()) == 2
    second.election.confirm_lead()
    with pytest.raises(Fenced):
        first.election.confirm_lead()
    last = first.election.beat()
    assert last is not None
    assert last.epoch == 2, "a deposed leader leaves none"


def seized_at_once(rivals: tuple[ZooKeeper, ...], dead: ControllerRecord) -> list[int]:
    """Return the epochs won by all of ``rivals``, which seize from one leader at the same moment; 0 for none."""
    both = threading.Barrier(len(rivals))
    won: list[int] = []

    def seize(rival: ZooKeeper) -> None:
        both.wait(PATIENCE_SECONDS)
        won.append(rival.election.lead(candidate("rival"), depose=dead) or 0)

    threads = [threading.Thread(target=seize, args=(each,)) for each in rivals]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_SECONDS)
    return sorted(won)


def test_two_that_seize_at_once_do_not_both_lead(
    cluster: LocalCluster, sessions: tuple[ZooKeeper, ZooKeeper], name: str
) -> None:
    first, second = sessions
    with ZooKeeper(cluster.zookeeper_connect, name) as third:
        for expected in range(2, 12):
            dead = first.election.controller()
            if dead is None:
                assert first.election.lead(candidate("a")) == 1
                dead = first.election.controller()
            assert dead is not None
            assert seized_at_once((second, third), dead) == [0, expected]
            leader = first.election.controller()
            assert leader is not None
            assert leader.epoch == expected


def test_record_that_went_by_itself_cannot_be_seized(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    first.election.lead(candidate("a"))
    stale = second.election.controller()
    first.election.resign_lead()
    assert second.election.lead(candidate("b"), depose=stale) is None, "it looks again"
    assert second.election.lead(candidate("b"), depose=second.election.controller()) == 2


def test_leader_of_a_tree_that_was_removed_leads_no_more(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    first.election.lead(candidate("a"))
    second.jobs.delete("job")
    second.tree.drop()
    with pytest.raises(Fenced):
        first.election.confirm_lead()
    with pytest.raises(Fenced):
        first.records.write_tasks([RecordWrite(RECORD, None)])
    with pytest.raises(Transient):
        second.election.lead(candidate("b"))


def test_leader_whose_tree_is_removed_while_it_makes_a_change_makes_none(
    sessions: tuple[ZooKeeper, ZooKeeper], name: str
) -> None:
    first, second = sessions
    epoch = first.election.lead(candidate("a"))
    assert epoch is not None
    first.changes.put("r1", ChangeRecord("undeploy", {"job": "job"}))
    # Nodes go one by one: between the request and the epoch anything may be missing.
    second.client.delete(naming.controller_epoch_path(name))
    with pytest.raises(Fenced):
        first.changes.settle("r1", epoch)


def test_many_records_are_read_with_few_requests(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    first.election.lead(candidate("a"))
    many = [RecordWrite(replace(RECORD, task=TaskId("job", "main", each)), None) for each in range(1_203)]
    for begin in range(0, len(many), 300):
        assert first.records.write_tasks(many[begin : begin + 300]) is not None
    loaded = second.jobs.load("job")
    assert loaded is not None
    assert sorted(each.record.task.partition for each in loaded.tasks) == list(range(1_203))
    assert {each.version for each in loaded.tasks} == {0}
    absent = [RecordWrite(replace(RECORD, task=TaskId("job", "other", each)), None) for each in range(3)]
    found = second.records.read_tasks([*absent, many[7], *absent, many[8]])
    assert [each.record.task.partition for each in found] == [7, 8]
    assert second.jobs.load("job", has_tasks=False) is not None


def test_registered_containers_are_known_by_their_incarnation_until_their_session_ends(
    cluster: LocalCluster, sessions: tuple[ZooKeeper, ZooKeeper], name: str
) -> None:
    first, second = sessions
    record = ContainerRecord("c_1", "s_0", 1, "h1", 7, 8, 9, 1, "0")
    path = naming.container_path(name, "c_1")
    second.client.create(path, records.encode(record), ephemeral=True)
    second.client.create(naming.container_path(name, "c_0"), b"of a later version", ephemeral=True)
    second.client.create(f"{naming.cluster_path(name)}/candidates/a", b"of a later version", ephemeral=True)
    assert first.registry.candidates() == (), "nor does that keep anybody from leading"
    [found] = first.registry.registrations()
    assert found.record == record
    assert found.incarnation == second.client.get(path)[1].czxid
    gone = threading.Event()
    assert first.registry.container_names(gone.set) == {"c_0", "c_1"}
    second.close()
    assert gone.wait(PATIENCE_SECONDS)
    assert first.registry.container_names() == frozenset()


def test_write_with_a_wrong_version_changes_none_of_its_records(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, _ = sessions
    first.election.lead(candidate("a"))
    other = replace(RECORD, task=TaskId("job", "main", 1))
    assert first.records.write_tasks([RecordWrite(RECORD, None), RecordWrite(other, None)]) is not None
    changed = replace(RECORD, epoch=2)
    assert (
        first.records.write_tasks([RecordWrite(changed, 0), RecordWrite(replace(other, epoch=2), 7)]) is None
    )
    present = first.records.read_tasks([RecordWrite(RECORD, None), RecordWrite(other, None)])
    assert [each.record.epoch for each in present] == [1, 1]


def test_records_survive_the_journey_and_missing_ones_are_blank(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, second = sessions
    first.election.lead(candidate("a"))
    first.records.write_tasks([RecordWrite(RECORD, None)])
    loaded = second.jobs.load("job")
    assert loaded is not None
    assert [(each.record, each.version) for each in loaded.tasks] == [(RECORD, 0)]
    absent = replace(RECORD, task=TaskId("job", "main", 9))
    blank = as_recorded([RecordWrite(absent, None)], second.records.read_tasks([RecordWrite(absent, None)]))
    assert (blank[0].record.active, blank[0].record.epoch, blank[0].version) == (None, 0, -1)


def test_change_of_the_requested_state_wakes_the_watcher(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    woken = threading.Event()
    assert first.jobs.read("job", woken.set) is not None
    assert second.jobs.ask("job", is_wanted=False, purge=True)
    assert woken.wait(PATIENCE_SECONDS)
    job = first.jobs.read("job")
    assert job is not None
    assert (job.is_wanted, job.purge) == (False, True)
    assert not second.jobs.ask("absent", is_wanted=False)


def test_two_submits_never_make_one_cell_twice(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    mine = CellRecord("", "me")
    assert first.cells.claim(1, mine)
    assert not second.cells.claim(1, CellRecord("", "you"))
    first.cells.put(1, CellRecord("application_1_0001", "me"))
    ended = second.cells.read(1)
    assert ended is not None
    assert second.cells.claim(1, CellRecord("", "you"), replaces=ended)
    assert not first.cells.claim(1, mine, replaces=ended), "it has been replaced already"
    first.cells.drop(1, claim="another")
    assert first.cells.read(1) is not None
    first.cells.drop(1, claim="")
    assert first.cells.read(1) is None
    assert first.cells.begin_submit("me") == first.cells.begin_submit("me") == ""
    assert second.cells.begin_submit("you") == "me"
    second.cells.end_submit()
    assert second.cells.begin_submit("you") == "me"
    first.cells.end_submit()
    assert second.cells.begin_submit("you") == ""


def test_leader_that_resigns_leaves_its_place_at_once_and_a_deposed_one_takes_none(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, second = sessions
    first.election.lead(candidate("a"))
    changed = threading.Event()
    assert second.election.controller(changed.set) is not None
    first.election.resign_lead()
    assert changed.wait(PATIENCE_SECONDS)
    assert second.election.lead(candidate("b")) == 2
    first.election.resign_lead()
    leader = second.election.controller()
    assert leader is not None
    assert leader.candidate == "b"
    second.election.resign_lead()
    assert second.election.controller() is None


def test_leader_of_a_root_younger_than_its_containers_makes_way_for_one_above_them(
    sessions: tuple[ZooKeeper, ZooKeeper],
) -> None:
    first, second = sessions
    first.election.lead(candidate("a"))
    first.election.raise_epoch(8)
    assert second.election.controller() is None
    assert second.election.lead(candidate("b")) == 9


def test_a_candidate_that_does_not_lead_raises_no_epoch(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    first.election.lead(candidate("a"))
    with pytest.raises(Fenced):
        second.election.raise_epoch(8)
    first.election.confirm_lead()
    second.election.lead(candidate("b"), depose=second.election.controller())
    with pytest.raises(Fenced):
        first.election.raise_epoch(8)
    second.election.confirm_lead()


def test_change_of_any_cell_wakes_who_watches_all_of_them(sessions: tuple[ZooKeeper, ZooKeeper]) -> None:
    first, second = sessions
    for number in (1, 2):
        assert first.cells.claim(number, CellRecord(f"application_{number}", "me"))
    for change in (
        lambda: first.cells.put(2, CellRecord("application_2", "me", "attempt_2", "h2:1")),
        lambda: first.cells.drop(1),
        lambda: first.cells.claim(3, CellRecord("application_3", "me")),
    ):
        woken = threading.Event()
        second.cells.read_each(woken.set)
        change()
        assert woken.wait(PATIENCE_SECONDS)
    found = second.cells.read_all()
    assert {number: each.address for number, each in found.items()} == {2: "h2:1", 3: ""}
    assert not first.cells.change(9, lambda present: present)
    assert not first.cells.change(2, lambda present: None)


def test_deleted_job_leaves_no_tree_behind(
    cluster: LocalCluster, sessions: tuple[ZooKeeper, ZooKeeper], name: str
) -> None:
    first, second = sessions
    # As after a drain and an admit.
    first.client.create(naming.drained_path(name), bodies.encode(DrainedRecord({})))
    leader = ZooKeeper(cluster.zookeeper_connect, name)
    leader.connect()
    try:
        assert leader.election.lead(candidate("a")) == 1
        first.jobs.delete("job")
        deleting = threading.Thread(target=first.tree.drop, args=(PATIENCE_SECONDS,), daemon=True)
        deleting.start()
        soon(lambda: not second.tree.exists(), "the tree is removed but for what the leader holds")
    finally:
        leader.close()
    deleting.join(PATIENCE_SECONDS)
    assert not deleting.is_alive()
    assert second.client.exists(naming.cluster_path(name)) is None


def test_server_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        ZooKeeper("127.0.0.1:1", "x").connect(timeout_seconds=3 * A_MOMENT_SECONDS)


def test_new_attempt_that_shares_another_master_s_host_makes_way_until_attempts_are_few(
    cluster: LocalCluster, sessions: tuple[ZooKeeper, ZooKeeper], name: str, tmp_path: Path
) -> None:
    zookeeper, other = sessions
    config = ClusterConfig(
        name, cluster.zookeeper_connect, cell=2, attempts=4, kafka_bootstrap=cluster.kafka_bootstrap
    )
    # A container on a second host, and on the first one a listening Skein AM of cell 1.
    record = ContainerRecord("c_1", "s_0", 1, "127.0.0.2", 7, 8, 9, 1, "0")
    other.client.create(naming.container_path(name, "c_1"), records.encode(record), ephemeral=True)
    with socket.create_server(("127.0.0.1", 0)) as am:
        address = f"127.0.0.1:{am.getsockname()[1]}"
        assert zookeeper.cells.claim(
            1, CellRecord("application_1", attempt="container_1_01", address=address)
        )
        second = CandidateProcess(tmp_path / "second", config, attempt=2)
        second.record(zookeeper)
        second.start()
        try:
            assert second.wait(PATIENCE_SECONDS) == MADE_WAY, second.text
        finally:
            second.kill()
        assert "cell 1 has its master on this host, too" in second.text
        assert zookeeper.cells.read_all()[2].attempt == "", "the leader is to ask nothing of that attempt"

        third = CandidateProcess(tmp_path / "third", config, attempt=3)
        third.start()
        try:
            soon(lambda: zookeeper.cells.read_all()[2].attempt.endswith("_03"), "the third one stays")
        finally:
            third.kill()


def test_leader_whose_host_is_silent_is_deposed_while_its_session_lasts(
    cluster: LocalCluster, sessions: tuple[ZooKeeper, ZooKeeper], name: str, tmp_path: Path
) -> None:
    zookeeper, _ = sessions
    masters = {
        cell: CandidateProcess(
            tmp_path / str(cell),
            # The longest session that the servers grant.
            ClusterConfig(
                name,
                cluster.zookeeper_connect,
                cell=cell,
                kafka_bootstrap=cluster.kafka_bootstrap,
                zookeeper_session_ms=60_000,
            ),
            host=f"127.0.0.{30 + cell}",
        )
        for cell in (1, 2)
    }
    try:
        for each in masters.values():
            each.record(zookeeper)
            each.start()
        soon(lambda: len(zookeeper.registry.candidates()) == 2, "both candidates register")
        soon(lambda: zookeeper.election.controller() is not None, "one leads")
        leader = zookeeper.election.controller()
        assert leader is not None
        lost = next(each for each in zookeeper.registry.candidates() if each.candidate == leader.candidate)
        masters[lost.cell].fall_silent()
        soon(lambda: zookeeper.election.controller() not in (None, leader), "the other one leads")
        assert lost in zookeeper.registry.candidates(), "its session lives"
    finally:
        for each in masters.values():
            each.kill()
