"""What the leader answers to the command line: reasons, commands, and what is wrong with a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from appmaster.api.leader_api import LeaderApi
from appmaster.effects import Replies
from appmaster.planning.state.events import Event
from standby.errors import BadConfiguration, Unavailable
from standby.shared.clock import REAL
from standby.threads.worker import Worker
from tests.fakes.clock import held
from tests.fakes.yarn import FakeCluster
from tests.patience import PATIENCE_SECONDS


class Leader:
    """A leader of a cluster without I/O, asked as over the wire."""

    def __init__(self, **more: Any) -> None:
        self.cluster = FakeCluster(hosts=("h1", "h2", "h3"), **more)
        self.cluster.run(8_000)
        self._replies = Replies(self._decide, REAL)
        self._answers = LeaderApi(lambda: self.cluster.view, dict, self._replies)

    def ask(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        return self._answers({"operation": operation, **arguments})

    def _decide(self, event: Event) -> None:
        answered = len(self.cluster.said)
        self.cluster.tell(event)
        self.cluster.run(500)
        for each in self.cluster.said[answered:]:
            self._replies.reply(each)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_every_copy_is_explained_its_own_host_first(leader: Leader) -> None:
    answer = leader.ask("explain", job="job", partition=1)
    assert answer["processor"] == "job/main:1"
    hosts = [each["host"] for each in answer["copies"]]
    assert [(each["copy"], each["role"]) for each in answer["copies"]] == [(0, "active"), (1, "standby")]
    for each, sibling in zip(answer["copies"], reversed(hosts), strict=True):
        assert each["why"][0].startswith(str(each["host"]))
        assert any(line.startswith(f"{sibling}: refused") for line in each["why"][1:])


def test_copies_are_explained_with_their_cells_and_with_what_the_hosts_carry() -> None:
    leader = Leader(cells=(1, 2))
    for copy in leader.ask("explain", job="job", partition=1)["copies"]:
        heads = [line.partition(": ")[0] for line in copy["why"]]
        assert len(set(heads)) == len(heads), copy["why"]
        (cell,) = {
            each.cell for each in leader.cluster.processes.values() if each.container == copy["container"]
        }
        assert heads[0] in (copy["host"], f"{copy['host']} in cell {cell}")
        assert sum("refused" in line for line in copy["why"]) == 1, copy["why"]
        carrying = [
            each.host for each in leader.cluster.processes.values() if each.container != copy["container"]
        ]
        for line in copy["why"][1:]:
            host = line.partition(":")[0].partition(" ")[0]
            assert ("carries no copies" in line) <= (host not in carrying), (line, carrying)


def test_drained_host_is_a_reason(leader: Leader) -> None:
    leader.cluster.drain("h3")
    told = [line for copy in leader.ask("explain", job="job", partition=0)["copies"] for line in copy["why"]]
    assert any(line.startswith("h3") and "drained by a test" in line for line in told), told


@pytest.mark.parametrize("asked", [{"partition": 2}, {"processor": 0, "copy": 1}])
def test_failover_of_a_task_or_a_processor_begins_and_says_where_to(
    leader: Leader, asked: Mapping[str, int]
) -> None:
    said = leader.ask("handover", job="job", **asked)["said"]
    assert said.startswith("handing over job/main:0 to copy 1 in ")
    leader.cluster.run(10_000)
    first = leader.cluster.view.job_tasks(_processor(leader))[0]
    assert leader.cluster.view.records[first].record.active == 1


def test_container_of_another_job_than_the_named_one_is_left_alone(leader: Leader) -> None:
    container = leader.cluster.active_process(0).container
    before = [each.record.epoch for each in leader.cluster.versions.values()]
    with pytest.raises(BadConfiguration, match=f"{container} serves job, not other"):
        leader.ask("handover", job="other", container=container)
    leader.cluster.run(10_000)
    assert [each.record.epoch for each in leader.cluster.versions.values()] == before
    assert leader.ask("handover", job="job", container=container)["said"].startswith("handing over job/main:")


def _processor(leader: Leader) -> Any:
    return next(iter(leader.cluster.view.jobs["job"].model.processors))


def test_command_that_was_not_decided_in_time_is_not_carried_out_later(leader: Leader) -> None:
    told: list[Event] = []
    clock = held()
    answers = LeaderApi(lambda: leader.cluster.view, dict, Replies(told.append, clock))
    question = {"operation": "handover", "job": "job", "processor": 0}
    asked = Worker("asks").start().submit(lambda: answers(question))
    clock.await_looks("asks")
    clock.advance(3)
    clock.await_looks("asks")
    assert not asked.done()
    clock.advance(1)
    with pytest.raises(Unavailable, match="has not decided within 4 s"):
        asked.result(PATIENCE_SECONDS)
    for each in told:
        leader.cluster.tell(each)
    leader.cluster.run(5_000)
    assert leader.cluster.said == []
    assert "handover_started" not in leader.cluster.kinds()


def test_rebalance_is_about_a_job_and_says_what_begins(leader: Leader) -> None:
    assert leader.ask("rebalance", job="job")["said"].startswith("actives are spread evenly: ")
    assert leader.ask("rebalance", job="other")["error"] == "there is no job other"


def test_command_that_cannot_be_obeyed_is_an_error_with_its_reason(leader: Leader) -> None:
    assert leader.ask("handover", job="job", processor=0, copy=0) == {
        "error": "job/main:0: copy 0 is active already",
        "status": 1,
    }
    assert "no container nobody" in leader.ask("handover", job="job", container="nobody")["error"]
    assert "is not parked" in leader.ask("unpark", job="job", processor=1)["error"]
    alone = Leader(standbys=0)
    assert "no standby is in sync" in alone.ask("handover", job="job", processor=0)["error"]


def test_wrong_question_is_refused_by_name(leader: Leader) -> None:
    for operation, asked, named in (
        ("explain", {"job": "other", "partition": 0}, "no job other"),
        ("explain", {"job": "job", "partition": 9}, "has no task 9; it has 0 to 3"),
        ("explain", {"job": "job"}, "partition: None is not a number"),
        ("handover", {"job": "job", "processor": 7}, "has no processor 7; it has 0, 1"),
        ("unpark", {"partition": 0}, "job: missing"),
    ):
        with pytest.raises(BadConfiguration, match=named):
            leader.ask(operation, **asked)
    assert leader.ask("dance") == {"error": "no such operation: dance", "status": 2}
