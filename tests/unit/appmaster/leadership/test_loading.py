"""From records to events: each job for itself, whatever is wrong with another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from msgspec.structs import replace as with_fields

from appmaster.leadership.loading import JobLoading, has_new_work
from appmaster.planning.fold.apply import apply
from appmaster.planning.plan import plan
from appmaster.planning.state import events as happened
from appmaster.planning.state.actions import FenceTasks
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import JobState
from appmaster.planning.state.view import ClusterView, Recorded
from appmaster.records import EndedRecord, JobRecord, Loaded, StatusRecord
from appmaster.topics.ids import TopicObstacle
from appmaster.topics.input_growth import TopicState
from standby.errors import BadConfiguration
from standby.shared.model import TaskId, TaskRecord, TopicIdentity
from standby.shared.wire import JobDefinition
from tests.unit.appmaster.changes.test_operations import CONFIG


def record(
    name: str,
    revision: int = 1,
    keys: Mapping[str, str] = MappingProxyType({}),
    *,
    run: str = "run1",
    code: str = "",
    **more: object,
) -> JobRecord:
    config = {**CONFIG, "job.name": name, **keys}
    definition = JobDefinition(name, run, config, "changelog", "group", 4, revision=revision, code=code)
    return with_fields(JobRecord(definition), **more)


def loaded(job: JobRecord, status: StatusRecord | None = None) -> Loaded:
    return Loaded(job, status, None, ())


class Leader:
    """A view that receives what is loaded."""

    def __init__(self, racks: Mapping[str, str] = MappingProxyType({})) -> None:
        self.view = ClusterView(epoch=1)
        self.waiting: dict[str, str] = {}
        self.quarantined: dict[str, str] = {}
        self.topics = {"j1": TopicState("run1", "a note")}
        self.loading = JobLoading(
            {},
            lambda: self.view,
            racks,
            topics=lambda: self.topics,
            quarantined=lambda: self.quarantined,
            waiting=lambda: self.waiting,
        )

    def load(self, jobs: Mapping[str, Loaded | Exception], new: Iterable[str] = ()) -> list[Event]:
        events = list(self.loading.events(jobs, frozenset(new)))
        for each in events:
            self.view = apply(self.view, each)
        return events


def places(leader: Leader, *hosts: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return rack and attributes of hosts, once a cell has been found that has them."""
    leader.view = apply(leader.view, happened.CellFound(1, "a1", hosts, 7))
    return {each.name: (each.rack, dict(each.attributes)) for each in leader.view.offers}


def test_where_hosts_stand_is_known_before_a_cell_answers_that_has_them() -> None:
    leader = Leader({"h1": "/r1", "h2": "/default-rack"})
    table = {"yarn.racks": "h3=/r3", "yarn.host.attributes": "h4=zone:b"}
    leader.load({"j1": loaded(record("j1", keys=table))}, ["j1"])
    assert places(leader, "h1", "h2", "h3", "h4", "h5") == {
        "h1": ("/r1", {}),
        "h2": ("", {}),
        "h3": ("/r3", {}),
        "h4": ("", {"zone": "b"}),
        "h5": ("", {}),
    }


def test_a_job_that_cannot_be_led_is_reported_and_the_others_are_led() -> None:
    leader = Leader()
    jobs: dict[str, Loaded | Exception] = {
        "j1": loaded(record("j1")),
        "j2": loaded(record("j2", keys={"of.tomorrow": "1"})),
        "j3": loaded(record("j3", keys={"job.grouper": "no:such"})),
        "j4": BadConfiguration("not a record"),
        "j5": KeyError("planted"),
        "j6": loaded(record("j6", former=(None,))),
    }
    leader.load(jobs, jobs)
    assert set(leader.view.jobs) == {"j1"}
    assert leader.view.jobs["j1"].notes == ("a note",)
    assert set(leader.loading.records) == {"j1"}
    assert set(leader.loading.unreadable) == {"j2", "j3", "j4", "j5", "j6"}
    assert leader.view.unreadable == {"j2", "j3", "j4", "j5", "j6"}, "their containers go on"
    assert "of.tomorrow" in leader.loading.unreadable["j2"]
    assert "KeyError: 'planted'" in leader.loading.unreadable["j5"], "nor does an unexpected one stop others"
    assert "AttributeError" in leader.loading.unreadable["j6"]
    # One that was led before goes on as it was.
    leader.load({"j1": BadConfiguration("not a record any more")})
    assert set(leader.view.jobs) == {"j1"}
    assert set(leader.loading.unreadable) == {"j1"}
    assert leader.view.unreadable == set()


FAILED = StatusRecord("failed", ("poison",), failure="poison", run="run1", revision=2)
ENDED = StatusRecord("undeployed", run="run1", revision=2)
OF_RUN = EndedRecord("run1", 2)


@pytest.mark.parametrize(
    ("is_over", "is_wanted", "status"),
    [
        pytest.param(True, False, ENDED, id="it has ended"),
        pytest.param(False, False, with_fields(ENDED, state="undeploying"), id="it is ending"),
        pytest.param(False, False, with_fields(ENDED, run="run0"), id="an earlier run of it has"),
        pytest.param(False, False, None, id="nothing is known of its end"),
        pytest.param(False, True, ENDED, id="it is wanted again"),
        pytest.param(True, True, with_fields(FAILED, ended=OF_RUN), id="it has failed, and is fenced"),
        pytest.param(False, True, FAILED, id="it has failed, and is to be fenced"),
        pytest.param(
            False,
            True,
            with_fields(FAILED, ended=EndedRecord("run1", 1)),
            id="an earlier revision has failed",
        ),
    ],
)
def test_a_new_leader_fences_no_job_that_is_over(
    is_over: bool, is_wanted: bool, status: StatusRecord | None
) -> None:
    leader = Leader()
    leader.load({"j1": loaded(record("j1", 2, is_wanted=is_wanted), status)}, ["j1"])
    job = leader.view.jobs["j1"]
    assert job.is_fenced is is_over
    if is_wanted is False:
        assert (job.state is JobState.UNDEPLOYED) is is_over
        fences = [each for each in plan(leader.view) if isinstance(each, FenceTasks)]
        assert bool(fences) is not is_over


def test_a_job_is_not_over_while_a_task_of_it_has_an_active() -> None:
    task = Recorded(TaskRecord(TaskId("j1", "main", 0), 0, 3), 7)
    leader = Leader()
    leader.load({"j1": Loaded(record("j1", 2, is_wanted=False), ENDED, None, (task,))}, ["j1"])
    assert not leader.view.jobs["j1"].is_fenced


def test_whether_a_changelog_loses_records_is_known_once_the_brokers_have_said_it() -> None:
    leader = Leader()
    for state in (TopicState("run1"), TopicState("run1", risk="it does", is_risk_known=True)):
        leader.topics = {"j1": state}
        leader.load({"j1": loaded(record("j1"))}, ["j1"])
        job = leader.view.jobs["j1"]
        assert (job.changelog_risk, job.is_changelog_known) == (state.risk, state.is_risk_known)


def test_a_risk_that_was_reported_is_of_the_run_that_the_status_is_about() -> None:
    for run, was_at_risk in (("run1", True), ("run0", False)):
        leader = Leader()
        status = StatusRecord("deployed", run=run, revision=2, is_at_risk=True)
        leader.load({"j1": loaded(record("j1"), status)}, ["j1"])
        assert leader.view.jobs["j1"].is_risk_logged == was_at_risk


def test_a_job_that_an_earlier_release_recorded_with_more_than_is_allowed_now_is_led() -> None:
    keys = {
        "cluster-manager.container.retry.count": "100000",
        "cluster-manager.container.retry.window.ms": "2592000000",
        "job.transaction.timeout.ms": "2147483647",
        "task.batch.max.bytes": "2147483648",
        "job.container.count": "10001",
    }
    large = record("j1", keys=keys)
    large = with_fields(large, definition=with_fields(large.definition, tasks=100_001))
    leader = Leader()
    leader.load({"j1": loaded(large)}, ["j1"])
    assert leader.loading.unreadable == {}
    job = leader.view.jobs["j1"]
    assert (job.spec.tasks, job.policy.retry_window_ms, job.notes) == (100_001, 2_592_000_000, ("a note",))


def test_a_wrong_entry_about_a_host_is_a_note_and_the_others_count() -> None:
    leader = Leader()
    table = {"yarn.racks": "h1=/r1,h1=/r2", "yarn.host.attributes": "h2=zoneA,h3=zone:b"}
    leader.load({"j1": loaded(record("j1", keys=table))}, ["j1"])
    assert leader.loading.unreadable == {}
    assert leader.view.jobs["j1"].notes == (
        "a note",
        "yarn.racks: 'h1=/r2': h1 is in /r1 already",
        "yarn.host.attributes: 'h2=zoneA' is not host=key:value",
    )
    found = places(leader, "h1", "h2", "h3")
    assert found == {"h1": ("/r1", {}), "h2": ("", {}), "h3": ("", {"zone": "b"})}


def test_a_job_that_waits_for_code_is_known_and_an_update_that_waits_is_a_note() -> None:
    leader = Leader()
    leader.waiting = {"j1": "waiting for a second source", "j2": "waiting for a source"}
    old = record("j2", code="c1")
    updated = with_fields(
        old,
        definition=with_fields(old.definition, revision=2, code="c2"),
        former=(old.definition,),
        activated=1,
    )
    leader.load({"j1": loaded(record("j1", code="c1")), "j2": loaded(updated)})
    assert leader.view.jobs["j1"].quarantined == "waiting for a second source"
    assert (leader.view.jobs["j2"].revision, leader.view.jobs["j2"].quarantined) == (1, "")
    assert leader.view.jobs["j2"].notes == ("revision 2: waiting for a source",)
    leader.load({"j1": loaded(record("j1", code="c1", activated=1)), "j2": loaded(updated)})
    assert leader.view.jobs["j1"].quarantined == ""
    leader.quarantined = {"j2": "no candidate holds it"}
    leader.load({"j1": loaded(record("j1", code="c1", activated=1)), "j2": loaded(updated)})
    assert leader.view.jobs["j2"].quarantined == "no candidate holds it"


def test_a_job_that_is_gone_is_forgotten_and_so_is_the_old_run_of_one_of_its_name() -> None:
    leader = Leader()
    leader.load({"j1": loaded(record("j1", 7)), "j2": loaded(record("j2"))}, ("j1", "j2"))
    assert happened.JobForgotten("j2") in leader.load({"j1": loaded(record("j1", 7))})
    assert set(leader.view.jobs) == {"j1"}
    events = leader.load({"j1": loaded(record("j1", 1, run="run2"))})
    assert happened.JobForgotten("j1") in events
    assert leader.view.jobs["j1"].run == "run2"
    assert leader.view.jobs["j1"].notes == (), "what was found out about the topics is of the old run"
    assert {each.run for each in leader.loading.definitions["j1"].values()} == {"run2"}
    assert not any(
        isinstance(each, happened.JobForgotten)
        for each in leader.load({"j1": loaded(record("j1", 1, run="run2"))})
    )


def test_what_a_leader_before_gave_up_stays_given_up_until_it_is_submitted_again() -> None:
    leader = Leader()
    leader.load({"j1": loaded(record("j1"), StatusRecord("failed", ("too often",)))})
    assert str(leader.view.jobs["j1"].failure) == "too often"
    leader.view = replace(leader.view)
    leader.load({"j1": loaded(record("j1", 2))})
    assert leader.view.jobs["j1"].failure is None


def test_a_job_that_was_submitted_when_the_last_one_had_just_ended_keeps_the_cluster_alive() -> None:
    leader = Leader()
    ended, failed = record("j1", is_wanted=False), record("j2", 3)
    leader.load({"j1": loaded(ended), "j2": loaded(failed, StatusRecord("failed", ("too often",)))})
    assert not has_new_work({"j1": ended, "j2": failed}, leader.view)
    assert has_new_work({"j1": record("j1")}, leader.view), "deployed again"
    assert has_new_work({"j2": record("j2", 4)}, leader.view), "submitted again after it had failed"
    assert has_new_work({"j1": ended, "j3": record("j3")}, leader.view), "a new one"
    assert has_new_work({"j2": record("j2", 3, run="run2")}, leader.view), "another run"


def test_a_topic_that_was_made_again_stops_the_job_until_it_is_accepted() -> None:
    leader = Leader()
    job = record("j1")
    made_again = TopicObstacle("run1", {}, "input in was deleted and created again")
    leader.topics["j1"] = TopicState("run1", obstacle=made_again)
    leader.load({"j1": loaded(job)}, ["j1"])
    assert leader.view.jobs["j1"].obstacle == "input in was deleted and created again"
    accepted = with_fields(job.definition, topics={"in": TopicIdentity("new", 1, "latest")}, revision=2)
    leader.load({"j1": loaded(with_fields(job, definition=accepted))})
    assert leader.view.jobs["j1"].obstacle == "", "what was found before holds for the former topics"
    assert leader.loading.definitions["j1"][2].topics["in"].start == "latest"


def test_nothing_is_kept_of_a_deleted_job() -> None:
    """On a pool that gets jobs of ever new names, a leader's memory grew with every one of them."""
    leader = Leader()
    leader.load({"j1": loaded(record("j1")), "j2": loaded(record("j2"))}, ["j1", "j2"])
    leader.load({"j1": BadConfiguration("not a record any more"), "j2": loaded(record("j2"))})
    assert set(leader.loading.definitions) == {"j1", "j2"}, "its containers may need it"
    leader.load({"j2": loaded(record("j2"))})
    assert set(leader.loading.definitions) == {"j2"}
