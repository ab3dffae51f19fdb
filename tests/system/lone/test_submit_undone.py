"""What a submit that fails leaves in ZooKeeper, in Kafka and in YARN: what was there before, as it was.

ZooKeeper is real; the brokers and YARN are in memory, so that each step can be made to fail.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from skein.exceptions import SkeinError

from appmaster.adapters.kafka import Topics
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.changes.revisions import grown
from appmaster.cli.jobs.submit import define, make_topics
from appmaster.cli.launch import cells, starting
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.ended_applications import ApplicationWatch
from appmaster.cli.shared.jobfile import JobFile, load
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.undo import Undo
from appmaster.records import CellRecord, JobRecord, StatusRecord, encode
from standby.code.bundles import LEFT_BYTES, pack
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared import naming
from standby.shared.model import TaskId, TaskRecord
from standby.shared.records import encode_task
from standby.shared.wire import JobDefinition
from tests.fakes.certificates import user_directory
from tests.fakes.topics import MemoryTopics
from tests.fakes.zookeeper import LoneZooKeeper, record_job
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS

ENVIRONMENT = {"STANDFAST_KAFKA": "k:9092", "STANDFAST_ZOOKEEPER": "z:2181"}
JOB = "j"


class Yarn:
    """YARN as Skein's client shows it: every application runs on a host of its own until it is ended."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.submitted = 0
        self.on_submit: Callable[[int], None] = lambda _: None
        self.on_report: Callable[[], None] = lambda: None

    def submit(self, specification: Any) -> str:
        self.submitted += 1
        self.on_submit(self.submitted)
        name = f"application_{self.submitted}"
        self.states[name] = "RUNNING"
        return name

    def application_report(self, application: str) -> Any:
        self.on_report()
        if application not in self.states:
            raise ValueError(f"Unknown ApplicationId '{application}'")
        return SimpleNamespace(
            id=application,
            name="",
            state=self.states[application],
            final_status="UNDEFINED",
            diagnostics="the queue is full",
            host=f"host of {application}",
            tracking_url="",
            finish_time=None,
        )

    def get_nodes(self, states: list[str]) -> list[Any]:
        return []

    def kill_application(self, application: str) -> None:
        self.states[application] = "KILLED"

    @property
    def running(self) -> list[str]:
        return [name for name, state in self.states.items() if state == "RUNNING"]


class Submit:
    """A submit of the job on its way into a cluster that does not run."""

    def __init__(self, zookeeper: ZooKeeper, directory: Path) -> None:
        self.zookeeper, self.yarn, self.topics = zookeeper, Yarn(), MemoryTopics()
        self.code = directory / "code"
        self.code.mkdir()
        (self.code / "steps.py").write_text("def step(rows, state, out): pass\n", encoding="utf-8")
        file = directory / "job.yaml"
        file.write_text(
            "job: {name: j, python: /opt/python}\n"
            "task: {feed: plain, inputs: input, step: 'steps:step', inputs.may.grow: true}\n",
            encoding="utf-8",
        )
        self.job: JobFile = load(file, (), ENVIRONMENT)
        self.meanwhile: Callable[[], None] = lambda: None
        self.told: list[dict[str, Any]] = []

    def end_all(self) -> None:
        """Have YARN end every application."""
        for each in self.yarn.running:
            self.yarn.states[each] = "FAILED"

    def start(
        self,
        tasks: int = 2,
        then: BaseException | None = None,
        seconds: float = PATIENCE_SECONDS,
        looked_at: JobRecord | None = None,
    ) -> tuple[str, ...]:
        """Submit it, checked with the record as it is now, or as it was ``looked_at``; raise ``then`` afterwards."""
        present = looked_at or self.zookeeper.jobs.read(JOB)
        bundle = pack(self.code)
        definition = define(self.job, tasks, present, bundle.digest)
        start = starting.JobStart(
            self.job.config, definition, bundle, (("h1", "h2"), {"h1": "/a", "h2": "/b"})
        )
        progress = Progress(is_quiet=True)
        with Undo(progress) as undo:
            launch = cells.Launching(Deadline(seconds), progress, undo)

            def make() -> JobDefinition:
                make_topics(self.job, cast("Topics", self.topics), definition, present, undo)
                self.zookeeper.jobs.update(JOB, lambda record: grown(record, tasks))
                return definition

            started = starting.start(start, make, self.zookeeper, self.yarn, launch)
            if then is not None:
                raise then
        return started

    def wait(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Submit it, and wait for its deployment; ``told`` is what the event log got meanwhile."""
        before = starting.state_before(JOB, self.zookeeper)
        started = self.start()
        definition = cast("JobRecord", self.zookeeper.jobs.read(JOB)).definition
        ends = ApplicationWatch(JOB, lambda _: None, lambda entry: self.told.append(dict(entry)))
        self.meanwhile()
        progress = Progress(is_quiet=True)
        launch = cells.Launching(Deadline(seconds), progress, Undo(progress))
        awaited = starting.SubmittedJob(definition, started, before, is_warm=False, ends=ends)
        starting.wait_deployed(awaited, cast("ClusterClient", self), self.yarn, launch)

    def status(self) -> dict[str, Any]:
        """Answer as a client of a cluster without a leader does."""
        raise Unavailable("no leader")

    def tree(self) -> dict[str, bytes]:
        """Return every node of the cluster with its data."""
        found: dict[str, bytes] = {}
        waiting = [naming.cluster_path(JOB)]
        while waiting:
            path = waiting.pop()
            if self.zookeeper.client.exists(path) is not None:
                found[path] = self.zookeeper.client.get(path)[0]
                waiting += [f"{path}/{each}" for each in self.zookeeper.client.get_children(path)]
        return found


@pytest.fixture
def submit(server: LoneZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submit]:
    (tmp_path / "yarn-site.xml").write_text("<configuration/>", encoding="utf-8")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("STANDFAST_CREDENTIALS", str(user_directory(tmp_path / "credentials", JOB)))
    with ZooKeeper(server.connect, JOB) as zookeeper:
        yield Submit(zookeeper, tmp_path)
        zookeeper.client.delete(naming.cluster_path(JOB), recursive=True)


def refuse(number: int) -> Callable[[int], None]:
    """Return a YARN's word on submissions: it refuses this one."""

    def on_submit(submitted: int) -> None:
        if submitted == number:
            raise SkeinError("the queue is full")

    return on_submit


def interrupted_once() -> Callable[[], None]:
    """Return a YARN's word on reports: the command is interrupted while it asks for the first one."""
    reports = itertools.count()

    def on_report() -> None:
        if next(reports) == 0:
            raise KeyboardInterrupt

    return on_report


@pytest.mark.parametrize("number", [1, 2])
def test_application_that_yarn_refuses_leaves_nothing(submit: Submit, number: int) -> None:
    submit.yarn.on_submit = refuse(number)
    with pytest.raises(SkeinError, match="the queue is full"):
        submit.start()
    assert submit.tree() == {}
    assert submit.topics.topics == {}
    assert submit.yarn.running == []


def test_interruption_before_everything_is_submitted_leaves_nothing(submit: Submit) -> None:
    submit.yarn.on_report = interrupted_once()
    with pytest.raises(KeyboardInterrupt):
        submit.start()
    assert submit.yarn.submitted == 2, "while the hosts of the masters were asked for"
    assert submit.tree() == {}
    assert submit.topics.topics == {}
    assert submit.yarn.running == []


def test_what_was_submitted_stays_unless_it_never_ran(submit: Submit) -> None:
    with pytest.raises(StandfastError, match="not deployed in time"):
        submit.start(then=StandfastError("not deployed in time"))
    assert submit.yarn.running == ["application_1", "application_2"]
    assert {each.application for each in submit.zookeeper.cells.read_all().values()} == set(
        submit.yarn.running
    )
    assert submit.zookeeper.jobs.names() == (JOB,)
    assert len(submit.topics.topics) == 2


def test_modules_that_are_too_large_for_zookeeper_are_named_by_the_record_and_not_stored_there(
    submit: Submit,
) -> None:
    (submit.code / "model.bin").write_bytes(b"x" * LEFT_BYTES)
    submit.start()
    record = submit.zookeeper.jobs.read(JOB)
    assert record is not None
    assert record.definition.code == pack(submit.code).digest
    assert not submit.zookeeper.code.has(record.definition.code)


def test_job_of_which_every_application_ended_before_it_ran_leaves_nothing(submit: Submit) -> None:
    with pytest.raises(starting.NeverRan):
        submit.start(then=starting.NeverRan("all have ended"))
    assert submit.tree() == {}
    assert submit.topics.topics == {}
    assert submit.yarn.running == []


def test_killed_run_and_other_jobs_stay_as_they_were(submit: Submit) -> None:
    submit.start()
    for each in submit.yarn.running:
        submit.yarn.kill_application(each)
    submit.zookeeper.jobs.ask(JOB, is_wanted=False)
    status = encode(StatusRecord("undeployed", ("killed",)))
    submit.zookeeper.client.create(f"{naming.job_path(JOB, JOB)}/status", status)
    record_job(submit.zookeeper, JobRecord(replace(define(submit.job, 2, None, ""), name="other")))
    # Of a submit that asked for more cells.
    assert submit.zookeeper.cells.claim(3, CellRecord("application_0"))
    before, topics = submit.tree(), dict(submit.topics.topics)
    submit.yarn.on_submit = refuse(4)
    with pytest.raises(SkeinError):
        submit.start()
    assert submit.tree() == before
    assert submit.topics.topics == topics
    assert submit.yarn.running == []


def killed(submit: Submit) -> None:
    """Have what was submitted be killed by its user."""
    for each in submit.yarn.running:
        submit.yarn.kill_application(each)
    submit.zookeeper.jobs.ask(JOB, is_wanted=False)


def test_a_job_of_which_a_delete_has_left_its_record_alone_is_submitted_as_any_other(submit: Submit) -> None:
    submit.start()
    killed(submit)
    tasks = f"{naming.job_path(JOB, JOB)}/tasks"
    submit.zookeeper.client.delete(tasks)
    submit.start()
    assert submit.zookeeper.client.exists(tasks) is not None


def test_one_revision_is_never_two_configurations(submit: Submit) -> None:
    """Of two submits the second was checked before the first one ran and ended; both are to be revision 2."""
    submit.start()
    killed(submit)
    looked_at = submit.zookeeper.jobs.read(JOB)
    submit.start()
    killed(submit)
    before, topics = submit.tree(), dict(submit.topics.topics)
    assert looked_at is not None
    with pytest.raises(StandfastError, match="j was changed by another client meanwhile; submit it again"):
        submit.start(looked_at=looked_at)
    assert submit.tree() == before
    assert submit.topics.topics == topics
    assert submit.yarn.running == []


def test_what_the_last_leader_made_of_it_just_before_its_end_is_submitted_already(submit: Submit) -> None:
    """It was queued for a cluster that ran, which ended when its leader had made it."""
    submit.start()
    record, before = submit.zookeeper.jobs.read(JOB), submit.tree()
    assert record is not None
    changes = submit.zookeeper.changes
    first = changes.first_submit(record.definition)
    changes.submit(first)
    assert submit.tree() == before
    changes.take_back(first)
    assert submit.tree() == before


def test_deleted_run_is_not_begun_again(submit: Submit) -> None:
    submit.start()
    killed(submit)
    looked_at = submit.zookeeper.jobs.read(JOB)
    submit.zookeeper.jobs.delete(JOB)
    assert looked_at is not None
    with pytest.raises(StandfastError, match="j was deleted by another client meanwhile; submit it again"):
        submit.start(looked_at=looked_at)
    assert submit.zookeeper.jobs.names() == ()
    assert submit.yarn.running == []


def test_a_change_or_another_leader_meanwhile_refuses_the_submit_and_keeps_its_own(
    submit: Submit,
) -> None:
    submit.start()
    killed(submit)
    record = submit.zookeeper.jobs.read(JOB)
    assert record is not None
    again = replace(record.definition, revision=2)
    changes = submit.zookeeper.changes
    first = changes.first_submit(again)
    submit.zookeeper.jobs.ask(JOB, is_wanted=False, purge=True)
    before = submit.tree()
    with pytest.raises(StandfastError, match="j was changed by another client meanwhile"):
        changes.submit(first)
    changes.take_back(first)
    assert submit.tree() == before
    first = changes.first_submit(again)
    submit.zookeeper.client.set(naming.controller_epoch_path(JOB), b"1")
    before = submit.tree()
    with pytest.raises(StandfastError, match="j was changed by another client meanwhile"):
        changes.submit(first)
    changes.take_back(first)
    assert submit.tree() == before


def test_partitions_that_were_adopted_stay_tasks(submit: Submit) -> None:
    submit.start()
    for each in submit.yarn.running:
        submit.yarn.kill_application(each)
    submit.yarn.on_submit = refuse(3)
    with pytest.raises(SkeinError):
        submit.start(tasks=4)
    record = submit.zookeeper.jobs.read(JOB)
    assert record is not None
    assert (record.definition.tasks, record.definition.revision) == (4, 1)
    assert submit.topics.topics[record.definition.changelog].partitions == 4
    submit.yarn.on_submit = lambda _: None
    assert len(submit.start(tasks=4)) == 2, "the next one takes it up"


def test_cluster_that_somebody_else_is_submitting_is_left_to_them(submit: Submit) -> None:
    assert submit.zookeeper.cells.claim(2, CellRecord("", submitter="else"))
    submit.yarn.states["application_9"] = "RUNNING"
    submit.zookeeper.cells.change(2, lambda _: CellRecord("application_9"))
    before = {path for path in submit.tree() if "/cells" not in path}
    with pytest.raises(BadConfiguration, match="cell 2 of the cluster runs as application_9"):
        submit.start()
    assert {path for path in submit.tree() if "/cells" not in path} == before
    assert set(submit.zookeeper.cells.read_all()) == {2}
    assert submit.topics.topics == {}


def test_what_a_submit_created_stays_for_another_one_that_has_its_cells_now(submit: Submit) -> None:
    def take_over(_: int) -> None:
        submit.zookeeper.cells.put(1, CellRecord("", "else", claim="another"))
        raise SkeinError("the queue is full")

    submit.yarn.on_submit = take_over
    with pytest.raises(SkeinError):
        submit.start()
    assert submit.zookeeper.jobs.names() == (JOB,)
    assert len(submit.topics.topics) == 2
    assert submit.zookeeper.cells.read(1) == CellRecord("", "else", claim="another")
    submit.zookeeper.cells.end_submit()


def test_hosts_of_the_masters_are_not_waited_for_once_the_time_is_over(submit: Submit) -> None:
    reports: list[None] = []
    submit.yarn.on_report = lambda: reports.append(None)
    assert len(submit.start(seconds=0)) == 2
    assert len(reports) == 2, "YARN is asked once about each"


def test_applications_that_ended_are_reported_with_yarn_s_words_once_each(submit: Submit) -> None:
    submit.meanwhile = submit.end_all
    with pytest.raises(starting.NeverRan) as raised:
        submit.wait()
    for each in ("application_1", "application_2"):
        assert f"{each} ended on host of {each} as FAILED: the queue is full" in str(raised.value)
    assert [each["data"]["application"] for each in submit.told] == ["application_1", "application_2"]
    assert {(each["kind"], each["job"], each["host"][:4]) for each in submit.told} == {
        ("application_ended", JOB, "host")
    }


def test_job_that_has_run_is_not_undone_when_its_applications_end(submit: Submit) -> None:
    def run_and_end() -> None:
        task = TaskId(JOB, "main", 0)
        path = naming.task_path(JOB, task)
        submit.zookeeper.client.create(path, encode_task(TaskRecord(task, active=0, epoch=1)), makepath=True)
        submit.end_all()

    submit.meanwhile = run_and_end
    with pytest.raises(StandfastError, match="every application of j has ended") as raised:
        submit.wait()
    assert not isinstance(raised.value, starting.NeverRan)


def test_cluster_into_which_another_job_came_meanwhile_is_not_undone(submit: Submit) -> None:
    def join_and_end() -> None:
        record_job(submit.zookeeper, JobRecord(replace(define(submit.job, 2, None, ""), name="other")))
        submit.end_all()

    submit.meanwhile = join_and_end
    with pytest.raises(StandfastError, match="every application of j has ended") as raised:
        submit.wait()
    assert not isinstance(raised.value, starting.NeverRan)


def test_what_yarn_says_meanwhile_is_reported_when_the_time_is_over(submit: Submit) -> None:
    submit.meanwhile = lambda: submit.yarn.states.update(application_1="ACCEPTED")
    with pytest.raises(StandfastError, match="application_1 is ACCEPTED: the queue is full, and no leader"):
        submit.wait(seconds=2 * A_MOMENT_SECONDS)
    assert submit.yarn.states["application_1"] == "ACCEPTED", "it goes on being deployed"
