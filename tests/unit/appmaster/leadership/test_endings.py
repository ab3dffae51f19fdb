"""When a further attempt of an application has nothing to lead, and says so instead of being elected."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from appmaster.leadership.endings import given_up
from appmaster.planning.state import actions as todo
from appmaster.planning.state.events import TasksFenced
from appmaster.planning.state.job import PlannerPolicy
from appmaster.records import EndedRecord, JobRecord, StatusRecord
from standby.errors import BadConfiguration
from standby.shared.wire import JobDefinition
from tests.fakes.yarn import FakeCluster
from tests.unit.appmaster.planning.test_changes import fail_of_poison

FAILED = StatusRecord("failed", ("poison: no number",), ended=EndedRecord("run1", 3))


def job(*, run: str = "run1", revision: int = 3, is_wanted: bool = True) -> JobRecord:
    return JobRecord(JobDefinition("j", run, {}, "c", "g", 1, revision), is_wanted=is_wanted)


@dataclass
class Recorded:
    """What ZooKeeper would say."""

    found: dict[str, tuple[JobRecord, StatusRecord | None]]
    is_queued: bool = False
    unreadable: set[str] = field(default_factory=set)

    def names(self) -> tuple[str, ...]:
        return tuple(self.found)

    def read(self, name: str) -> JobRecord | None:
        if name in self.unreadable:
            raise BadConfiguration(f"{name}: no record")
        return self.found[name][0]

    def status(self, job: str) -> StatusRecord | None:
        return self.found[job][1]

    def has_queued(self) -> bool:
        return self.is_queued


def test_a_cluster_whose_jobs_were_given_up_needs_no_leader() -> None:
    ended = (job(is_wanted=False), StatusRecord("undeployed"))
    records = Recorded({"j": (job(), FAILED), "k": ended})
    assert given_up(records, records) == "j: poison: no number"


@pytest.mark.parametrize(
    "records",
    [
        Recorded({}),
        Recorded({"j": (job(is_wanted=False), StatusRecord("undeployed"))}),
        Recorded({"j": (job(), FAILED)}, is_queued=True),
        Recorded({"j": (job(), FAILED)}, unreadable={"j"}),
        Recorded({"j": (job(), FAILED), "k": (job(), StatusRecord("deployed"))}),
        Recorded({"j": (job(), FAILED), "k": (job(), None)}),
        Recorded({"j": (job(is_wanted=False), StatusRecord("undeploying"))}),
        Recorded({"j": (job(), StatusRecord("failed", ("not fenced yet",)))}),
        Recorded({"j": (job(revision=4), FAILED)}),
        Recorded({"j": (job(run="run2"), FAILED)}),
    ],
)
def test_a_leader_is_needed_as_long_as_there_is_anything_to_do(records: Recorded) -> None:
    assert given_up(records, records) == ""


def test_a_job_that_was_given_up_is_over_once_its_tasks_are_fenced_and_no_sooner() -> None:
    cluster = FakeCluster(tasks=2, containers=2, policy=PlannerPolicy(fails_on_error=True))
    cluster.run(15_000)
    cluster.fences_nothing = True
    fail_of_poison(cluster.active_process(0))
    cluster.run(5_000)

    def written() -> list[bool]:
        return [each.is_over for each in cluster.did(todo.WriteStatus) if each.state == "failed"]

    assert written() == [False]
    cluster.tell(TasksFenced(1, "job"))
    cluster.run(1_000)
    assert written() == [False, True]
    told = [each for each in cluster.news("job_status") if each.data["status"] == "failed"]
    assert len(told) == 1
