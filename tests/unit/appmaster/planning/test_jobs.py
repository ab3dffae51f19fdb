"""Several jobs in one cluster: they come, go and come again, and one's trouble is no other's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appmaster.eventlog.entries import EntryKind
from appmaster.gauges import view_gauges
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import Job, JobState, PlannerPolicy
from appmaster.planning.state.model import JobModel, JobSpec, job_of
from standby.shared.model import Fault, Phase, ReplicaStatus, Role, TaskRecord, Wanted
from tests.fakes.yarn import FakeCluster, Process
from tests.scenarios.flights import until

SPEC = JobSpec("main", 2, 2, 1)


class Jobs(FakeCluster):
    """Beside the job of `FakeCluster` others, which tests load, change and end."""

    def __post_init__(self) -> None:
        self.models: dict[str, JobModel] = {}
        #: Revisions of the job `other` that Spark refuses.
        self.refused: set[int] = set()
        super().__post_init__()

    def ask(self, name: str, run: str = "run1", revision: int = 1, **more: object) -> None:
        """Tell the leader what is asked of another job."""
        policy = more.pop("policy", self.policy)
        assert isinstance(policy, PlannerPolicy)
        model = self.models.get(f"{name} {run}")
        self.tell(happened.JobLoaded(name, run, SPEC, model, policy, revision, **more))  # type: ignore[arg-type]

    def obey(self, action: todo.Action) -> None:
        if not isinstance(action, todo.WriteModel) or action.job == "job":
            super().obey(action)
            return
        of = f"{action.job} {self.view.jobs[action.job].run}"
        znode = self.models[of].znode if of in self.models else -1
        self.models[of] = replace(action.model, znode=znode + 1)
        self.tell(happened.ModelWritten(action.job, self.models[of]))

    def _status(self, process: Process, wanted: Wanted) -> ReplicaStatus:
        status = super()._status(process, wanted)
        if wanted.role is not Role.ACTIVE or wanted.replica.task.job != "other":
            return status
        if process.revisions["other"] in self.refused:
            return replace(status, phase=Phase.FAILED, detail="Spark refuses it", fault=Fault.REFUSED)
        return replace(status, first_commit_ms=1)

    def job(self, name: str) -> Job:
        return self.view.jobs[name]

    def brings(self, state: JobState, **asked: object) -> None:
        """Ask for a job beside, which comes to a state."""
        self.ask("other", **asked)  # type: ignore[arg-type]
        self.run(8_000)
        assert self.job("other").state is state, self.job("other").reasons

    def records_of(self, name: str) -> list[TaskRecord]:
        return [each.record for task, each in sorted(self.versions.items()) if task.job == name]

    def containers_of(self, name: str) -> set[str]:
        return {each for record in self.records_of(name) for each in record.placed.values()}

    def fenced(self, name: str) -> int:
        return sum(isinstance(each, todo.FenceTasks) and each.job == name for each in self.actions)

    def requested(self, name: str) -> int:
        return sum(
            isinstance(each, todo.RequestContainer) and job_of(each.slot) == name for each in self.actions
        )

    def crash_all(self, name: str) -> None:
        """Have every process end of itself that has a copy of a job's tasks."""
        for container in self.containers_of(name):
            process = self.by_container(container)
            if process is not None:
                self.crash(process.skein_id)


def two(**more: object) -> Jobs:
    cluster = Jobs(**more)  # type: ignore[arg-type]
    cluster.ask("other")
    cluster.run(8_000)
    assert {each.state for each in cluster.view.jobs.values()} == {JobState.DEPLOYED}
    assert not cluster.containers_of("job") & cluster.containers_of("other")
    return cluster


def test_a_job_that_crashes_until_it_is_given_up_leaves_the_other_where_it_is() -> None:
    cluster = two(policy=PlannerPolicy(retry_count=2))
    before, asked = cluster.records_of("job"), cluster.requested("job")
    for _ in range(12):
        cluster.crash_all("other")
        cluster.run(4_000)
        if cluster.job("other").state is JobState.FAILED:
            break
    cluster.run(4_000)
    assert cluster.job("other").state is JobState.FAILED
    assert cluster.containers_of("other") == set()
    assert (cluster.records_of("job"), cluster.requested("job")) == (before, asked)
    assert cluster.job("job").state is JobState.DEPLOYED
    assert len(cluster.view.containers) == len(cluster.containers_of("job"))
    # What is lost while a failed job is there is made up for.
    cluster.kill(cluster.active_process(0).skein_id)
    cluster.run(12_000)
    assert cluster.job("job").state is JobState.DEPLOYED
    cluster.brings(JobState.UNDEPLOYED, is_wanted=False)


def test_each_end_of_a_job_fences_its_tasks_and_the_other_job_goes_on() -> None:
    cluster = two()
    before = cluster.records_of("job")
    for times in (1, 2):
        cluster.brings(JobState.UNDEPLOYED, is_wanted=False)
        assert cluster.fenced("other") == times
        assert cluster.containers_of("other") == set()
        assert len(cluster.view.containers) == len(cluster.containers_of("job"))
        cluster.brings(JobState.DEPLOYED)
    assert {each.epoch for each in cluster.records_of("other")} == {5}, "one for each active and each end"
    assert cluster.records_of("job") == before
    # The fence of an end that is long over tells nothing of the present deployment.
    cluster.tell(happened.TasksFenced(1, "other"))
    assert not cluster.job("other").is_fenced


def test_a_fence_that_ends_after_the_next_one_has_begun_is_not_the_end_of_that_one() -> None:
    cluster = two()
    cluster.fences_nothing = True
    cluster.brings(JobState.UNDEPLOYING, is_wanted=False)
    cluster.brings(JobState.DEPLOYED)
    cluster.brings(JobState.UNDEPLOYING, is_wanted=False)
    first, second = (each.number for each in cluster.did(todo.FenceTasks))
    cluster.tell(happened.FencingFailed(first, "other", "no broker"))
    cluster.tell(happened.TasksFenced(first, "other"))
    cluster.run(2_000)
    assert cluster.job("other").state is JobState.UNDEPLOYING
    assert cluster.fenced("other") == 2, "and it is not begun again beside the one that is under way"
    cluster.tell(happened.TasksFenced(second, "other"))
    cluster.run(2_000)
    assert cluster.job("other").state is JobState.UNDEPLOYED


def test_a_deleted_job_is_forgotten_and_one_of_its_name_begins_from_nothing() -> None:
    cluster = two()
    cluster.ask("other", is_wanted=False, purge=True)
    cluster.run(4_000)
    cluster.versions = {task: each for task, each in cluster.versions.items() if task.job != "other"}
    cluster.tell(happened.JobForgotten("other"))
    assert "other" not in cluster.view.jobs
    assert not any(task.job == "other" for task in cluster.view.records)
    cluster.tell(happened.TasksFenced(1, "other"))
    cluster.tell(happened.JobForgotten("other"))
    cluster.run(2_000)
    cluster.brings(JobState.DEPLOYED, run="run2")
    assert {each.epoch for each in cluster.records_of("other")} == {1}
    assert cluster.job("job").state is JobState.DEPLOYED


def test_containers_with_the_code_of_a_deleted_run_are_replaced_by_a_leader_that_does_not_know_it() -> None:
    """Deleted unfenced and submitted again, the job has the same revision in its new run."""
    cluster = two()
    former = {each: cluster.by_container(each) for each in cluster.containers_of("other")}
    cluster.versions = {task: each for task, each in cluster.versions.items() if task.job != "other"}
    cluster.models["other run2"] = cluster.models["other run1"]
    cluster.elect(2)
    cluster.ask("other", run="run2")
    for _ in range(60):
        cluster.run(500)
        for process in former.values():
            if process is None or process.skein_id not in cluster.processes or not process.wanted:
                continue
            if process.revisions["other"]:
                # It opens nothing, and says that what it has loaded is not what it is to run.
                process.revisions["other"], process.wanted = 0, ()
            else:
                # No assignment can describe what it runs: it is sent an exit order (`appmaster.effects`).
                cluster.kill(process.skein_id)
    assert cluster.job("other").state is JobState.DEPLOYED
    assert not cluster.containers_of("other") & former.keys()


def test_nothing_is_asked_for_while_a_jobs_code_cannot_be_had_and_what_runs_goes_on() -> None:
    cluster = two()
    asked, why = cluster.requested("other"), "no live candidate holds its code b1, since a moment ago"
    cluster.ask("other", quarantined=why)
    cluster.run(1_000)
    assert (cluster.job("other").state, cluster.job("other").reasons) == (JobState.DEPLOYED, (why,))
    record = cluster.records_of("other")[0]
    assert record.active is not None
    process = cluster.process(record.placed[record.active])
    cluster.kill(process.skein_id)
    cluster.run(20_000)
    after = cluster.records_of("other")[0]
    assert after.epoch == record.epoch + 1, "its standby has taken over"
    assert cluster.requested("other") == asked
    state, reasons = cluster.job("other").state, cluster.job("other").reasons
    assert state is JobState.INCOMPLETE
    assert reasons[-1] == why
    assert "not requested while its code is unavailable" in reasons[0]
    assert cluster.job("job").reasons == ()
    cluster.brings(JobState.DEPLOYED)
    assert cluster.requested("other") > asked


def test_nothing_is_left_when_both_jobs_end_under_a_leader_that_does_not_know_whose_a_container_is() -> None:
    """Another leader died before it gave anything to a container that it had asked for."""
    cluster = two()
    like = cluster.active_process(0)
    cluster.processes["s_stray"] = Process("s_stray", "c_stray", like.host, 999, 999)
    cluster.is_wanted = False
    cluster.elect(epoch=2)
    cluster.ask("other", is_wanted=False)
    cluster.run(15_000)
    assert {each.state for each in cluster.view.jobs.values()} == {JobState.UNDEPLOYED}
    assert not cluster.view.containers
    assert not cluster.processes


def test_a_job_whose_code_is_refused_wherever_it_is_active_is_given_up_until_it_is_mended() -> None:
    """Failing over to a copy that must fail in the same way is of no use, whatever the retry budget."""
    cluster = two(policy=PlannerPolicy(retry_count=-1))
    cluster.refused = {1}
    cluster.run(10_000)
    reason = "its code or configuration was refused in 2 containers in a row; the last time: Spark refuses it"
    assert (cluster.job("other").state, cluster.job("other").reasons) == (JobState.FAILED, (reason,))
    assert cluster.containers_of("other") == set()
    assert cluster.job("job").state is JobState.DEPLOYED
    # What was reported of the former revision is over.
    cluster.brings(JobState.DEPLOYED, revision=2)


def test_an_update_that_is_refused_stops_where_it_is_until_the_next_one() -> None:
    cluster = two(policy=PlannerPolicy(retry_count=-1))
    cluster.refused = {2}
    cluster.ask("other", revision=2)
    cluster.run(60_000)
    assert cluster.job("other").state is JobState.DEPLOYED
    assert cluster.kinds().count("failover_started") == 2
    assert any("revision 2" in each for each in cluster.job("other").reasons)
    entries = len(cluster.entries)
    cluster.run(60_000)
    assert [each.kind for each in cluster.entries[entries:]] == [], "it does not go on"
    cluster.brings(JobState.DEPLOYED, revision=3)
    until(
        cluster,
        lambda: {cluster.process(each).revisions["other"] for each in cluster.containers_of("other")} == {3},
    )


@pytest.mark.parametrize(("is_changed", "kind"), [(True, "topic_changed"), (False, "topic_recorded")])
def test_what_is_noted_of_topics_is_reported(kind: str, *, is_changed: bool) -> None:
    cluster = FakeCluster()
    cluster.tell(happened.TopicNoted("job", "out", "output", "it is another one", "a", "b", is_changed))
    assert cluster.kinds() == [kind]


def test_a_changelog_at_risk_is_reported_once_and_ends_nothing() -> None:
    cluster = Jobs()
    risk = "changelog c has cleanup.policy=delete"
    cluster.brings(JobState.DEPLOYED, changelog_risk=risk)
    cluster.ask("other", changelog_risk=risk)
    assert cluster.kinds().count("changelog_at_risk") == 1
    assert jobs_at_risk(cluster) == {"job": 0, "other": 1}
    for _ in range(2):
        cluster.ask("other")
    assert cluster.kinds().count("changelog_safe") == 1
    assert jobs_at_risk(cluster) == {"job": 0, "other": 0}


def jobs_at_risk(cluster: Jobs) -> dict[str, float]:
    (found,) = (
        each for each in view_gauges(cluster.view) if each.metric.name == "standfast_changelog_at_risk"
    )
    return {job: value for (job,), value in found.values}


def test_job_whose_fence_is_waived_ends_without_one() -> None:
    cluster = two()
    cluster.fences_nothing = True
    cluster.ask("other", is_wanted=False)
    cluster.run(10_000)
    assert cluster.job("other").state is JobState.UNDEPLOYING
    cluster.brings(JobState.UNDEPLOYED, is_wanted=False, is_fence_waived=True)
    assert EntryKind.FENCE_WAIVED in {each.kind for each in cluster.entries}
    assert cluster.containers_of("other") == set()
