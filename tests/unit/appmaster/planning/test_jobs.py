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
from standby.shared.model import TaskRecord
from tests.fakes.yarn import FakeCluster

SPEC = JobSpec("main", 2, 2, 1)


class Jobs(FakeCluster):
    """Beside the job of `FakeCluster` others, which tests load, change and end."""

    def __post_init__(self) -> None:
        self.models: dict[str, JobModel] = {}
        self.recorded: dict[str, todo.WriteStatus] = {}
        super().__post_init__()

    def ask(self, name: str, run: str = "run1", revision: int = 1, **more: object) -> None:
        """Tell the leader what is asked of another job."""
        policy = more.pop("policy", self.policy)
        assert isinstance(policy, PlannerPolicy)
        model = self.models.get(f"{name} {run}")
        self.tell(happened.JobLoaded(name, run, SPEC, model, policy, revision, **more))  # type: ignore[arg-type]

    def obey(self, action: todo.Action) -> None:
        if isinstance(action, todo.WriteStatus):
            self.recorded[action.job] = action
        if not isinstance(action, todo.WriteModel) or action.job == "job":
            super().obey(action)
            return
        of = f"{action.job} {self.view.jobs[action.job].run}"
        znode = self.models[of].znode if of in self.models else -1
        self.models[of] = replace(action.model, znode=znode + 1)
        self.tell(happened.ModelWritten(action.job, self.models[of]))

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


@pytest.mark.parametrize(("is_changed", "kind"), [(True, "topic_changed"), (False, "topic_recorded")])
def test_what_is_noted_of_topics_is_reported(kind: str, *, is_changed: bool) -> None:
    cluster = FakeCluster()
    cluster.tell(happened.TopicNoted("job", "out", "output", "it is another one", "a", "b", is_changed))
    assert cluster.kinds() == [kind]


def test_a_changelog_at_risk_is_reported_once_and_ends_nothing() -> None:
    cluster = Jobs()
    risk = "changelog c has cleanup.policy=delete"
    cluster.brings(JobState.DEPLOYED, changelog_risk=risk)
    cluster.ask("other", changelog_risk=risk, is_changelog_known=True)
    assert cluster.kinds().count("changelog_at_risk") == 1
    assert jobs_at_risk(cluster) == {"other": 1}, "the brokers have not said anything of the other job's"
    for _ in range(2):
        cluster.ask("other", is_changelog_known=True)
    assert cluster.kinds().count("changelog_safe") == 1
    assert jobs_at_risk(cluster) == {"other": 0}


def test_a_new_leader_reports_a_changelog_at_risk_only_if_the_former_one_has_not() -> None:
    """It does not know the changelog until the brokers have answered; what was reported is in the status."""
    risk = "changelog c has cleanup.policy=delete"
    cluster = two()
    cluster.ask("other", changelog_risk=risk, is_changelog_known=True)
    cluster.run(1_000)
    for epoch, at_risk in ((2, risk), (3, "")):
        cluster.elect(epoch)
        was_at_risk = cluster.recorded["other"].is_at_risk
        cluster.ask("other", was_at_risk=was_at_risk)
        assert jobs_at_risk(cluster) == {}
        cluster.run(1_000)
        assert cluster.recorded["other"].is_at_risk, "the brokers have not said that it is over"
        cluster.ask("other", was_at_risk=was_at_risk, changelog_risk=at_risk, is_changelog_known=True)
        cluster.run(1_000)
    assert not cluster.recorded["other"].is_at_risk
    told = [each for each in cluster.kinds() if each.startswith("changelog_")]
    assert told == ["changelog_at_risk", "changelog_safe"]


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
