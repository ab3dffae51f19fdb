"""Queued changes: what each of them does to the records, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from appmaster.api.server import MOST_WAIT_SECONDS, ApiServer
from appmaster.changes import operations, revisions
from appmaster.changes.operations import CurrentJob
from appmaster.changes.revisions import basis_of
from appmaster.records import ChangeRecord, JobRecord
from standby.errors import BadConfiguration, StandfastError
from standby.shared.roles import Caller, PeerRole
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import JOB

CONFIG = {
    **JOB,
    "job.name": "j1",
    "task.outputs": "out",
    "task.transform": "m:t",
    "job.state.dir": "/var/state",
}
DEFINITION = JobDefinition("j1", "run1", CONFIG, "changelog", "group", 4, revision=3, code="c3")
RECORD = JobRecord(DEFINITION, activated=3)


def as_json(definition: JobDefinition) -> dict[str, Any]:
    return {"definition": msgspec.json.decode(msgspec.json.encode(definition))}


def ended(record: JobRecord, state: str = "undeployed") -> CurrentJob:
    return CurrentJob(msgspec.structs.replace(record, is_wanted=False), state)


def revision(number: int, **config: str) -> JobDefinition:
    keys = {**CONFIG, **{name.replace("_", "."): value for name, value in config.items()}}
    return msgspec.structs.replace(DEFINITION, revision=number, code=f"c{number}", config=keys)


def test_a_job_is_submitted_once_and_again_only_after_its_end() -> None:
    made = operations.submit(None, as_json(revision(1)))
    assert made.record == JobRecord(revision(1))
    assert made.is_new_chance
    assert operations.submit(CurrentJob(made.record), as_json(revision(1))).record is made.record
    with pytest.raises(StandfastError, match="runs already"):
        operations.submit(CurrentJob(RECORD, "deployed"), as_json(revision(4)))
    assert operations.submit(ended(RECORD), as_json(revision(4))).record == JobRecord(revision(4))
    with pytest.raises(StandfastError, match="another run"):
        operations.submit(ended(RECORD), as_json(msgspec.structs.replace(revision(4), run="run2")))
    with pytest.raises(StandfastError, match="j1 was changed by another client"):
        operations.submit(ended(RECORD), as_json(msgspec.structs.replace(revision(3), code="other")))


def test_a_submit_goes_on_from_the_record_that_it_looked_at_whatever_that_one_waits_for() -> None:
    """Of a cluster of which nothing runs, a job may be left as wanted, or as not ended: no leader can end it."""
    gone = msgspec.structs.replace(RECORD, is_wanted=False)
    for former in (RECORD, gone):
        made = operations.submitted(former, revision(4))
        assert (made.record, made.is_new_chance) == (JobRecord(revision(4)), True)
    again = operations.submitted(RECORD, DEFINITION)
    assert (again.record, again.is_new_chance) == (RECORD, False)
    # Another one was submitted, has run and has ended since: its revision is of its configuration alone.
    updated = JobRecord(revision(4), former=(DEFINITION,))
    for number in (3, 4):
        with pytest.raises(
            StandfastError, match="j1 was changed by another client meanwhile; submit it again"
        ):
            operations.submitted(updated, revision(number, job_container_count="2"))
    with pytest.raises(StandfastError, match="another run with its own state"):
        operations.submitted(gone, msgspec.structs.replace(revision(4), run="run2"))
    # State and offsets of its run are gone.
    with pytest.raises(StandfastError, match="j1 was deleted by another client meanwhile; submit it again"):
        operations.submitted(None, revision(4))


@pytest.mark.parametrize("state", ["", "deployed", "undeploying", "failed"])
def test_what_has_not_ended_is_not_begun_anew(state: str) -> None:
    """Its tasks may be about to be fenced: the fence would hit their successors."""
    for change, arguments in (
        (operations.submit, as_json(revision(4))),
        (operations.deploy, {"job": "j1"}),
        (operations.delete, {"job": "j1"}),
    ):
        with pytest.raises(operations.NotYet):
            change(ended(RECORD, state), arguments)


def test_a_job_that_failed_is_submitted_anew_and_nothing_else_is_done_to_it() -> None:
    failed = CurrentJob(RECORD, "failed", "too many failures")
    made = operations.submit(failed, as_json(revision(4)))
    assert (made.record, made.is_new_chance) == (JobRecord(revision(4)), True)
    for change in (operations.deploy, operations.update, operations.rollback):
        with pytest.raises(StandfastError, match="it has failed \\(too many failures\\); submit it"):
            change(failed, {"job": "j1", "config": CONFIG})
    assert operations.undeploy(failed, {"job": "j1"}).record == ended(RECORD).record


def test_a_job_is_ended_and_taken_up_again() -> None:
    with pytest.raises(operations.NotYet, match="the leader has to load it first"):
        operations.undeploy(CurrentJob(RECORD), {"job": "j1"})
    gone = operations.undeploy(CurrentJob(RECORD, "deploying"), {"job": "j1", "purge": True}).record
    assert gone is not None
    assert (gone.is_wanted, gone.purge) == (False, True)
    again = operations.deploy(CurrentJob(gone, "undeployed"), {"job": "j1"})
    assert again.record == RECORD
    assert again.is_new_chance
    assert not operations.deploy(CurrentJob(RECORD), {"job": "j1"}).is_new_chance
    with pytest.raises(BadConfiguration, match="no job j1"):
        operations.undeploy(None, {"job": "j1"})
    assert operations.delete(CurrentJob(gone, "undeployed"), {"job": "j1"}).record is None
    with pytest.raises(StandfastError, match="undeploy it first"):
        operations.delete(CurrentJob(RECORD), {"job": "j1"})


def test_an_update_is_made_of_a_job_that_runs() -> None:
    runs = CurrentJob(RECORD, "deployed")
    wanted = {**CONFIG, "job.container.count": "2"}
    made = operations.update(runs, {"job": "j1", "config": wanted, "code": "c4"}).record
    assert made is not None
    assert (made.definition.code, made.definition.config, made.activated) == ("c4", wanted, 3)
    assert operations.update(runs, {"job": "j1", "config": CONFIG}).record == RECORD
    with pytest.raises(BadConfiguration, match="config"):
        operations.update(runs, {"job": "j1"})
    with pytest.raises(BadConfiguration, match="does not run"):
        operations.update(ended(RECORD), {"job": "j1", "config": CONFIG})
    large = CurrentJob(revisions.grown(RECORD, 60_000), "deployed")
    with pytest.raises(BadConfiguration, match="60000 tasks with 2 copies"):
        operations.update(large, {"job": "j1", "config": {**CONFIG, "job.hotstandby.enabled": "true"}})


def test_only_what_is_asked_for_now_is_compared_with_what_a_job_may_have() -> None:
    more = revision(3, task_on_error_limit="1000001")
    above = CurrentJob(JobRecord(more, former=(more,)), "deployed")
    assert operations.update(above, {"job": "j1", "config": CONFIG}).record != above.record
    assert operations.rollback(above, {"revision": 3}).record is not None
    # What it keeps is not asked for now, whether the definition has it or a live key was changed since.
    again = revision(4, task_on_error_limit="1000001")
    live = msgspec.structs.replace(RECORD, settings=more.config)
    for record in (above.record, live):
        assert operations.submit(ended(record), as_json(again)).record == JobRecord(again)
        kept = {**again.config, "job.container.count": "2"}
        assert (
            operations.update(CurrentJob(record, "deployed"), {"job": "j1", "config": kept}).record != record
        )
    for wanted in (more, msgspec.structs.replace(revision(3), tasks=100_001)):
        with pytest.raises(BadConfiguration, match=r"above the most|as many tasks, and a job may have"):
            operations.submit(None, as_json(wanted))
    with pytest.raises(BadConfiguration, match="above the most"):
        operations.update(CurrentJob(RECORD, "deployed"), {"job": "j1", "config": more.config})


def test_an_update_undoes_no_change_that_its_client_has_not_seen() -> None:
    runs, basis = CurrentJob(RECORD, "deployed"), basis_of(RECORD)
    live = {"job": "j1", "config": {**CONFIG, "job.container.count": "2"}, "basis": basis}
    start = {"job": "j1", "config": {**CONFIG, "task.batch.max.records": "500"}, "basis": basis}
    code = {"job": "j1", "config": CONFIG, "code": "c4", "basis": basis}
    for one in (live, start, code):
        record = operations.update(runs, one).record
        assert record is not None
        after = CurrentJob(record, "deployed")
        for other in (live, start, code):
            if other is one:
                # Made twice, or asked for by both clients.
                assert operations.update(after, other).said == "it is already as requested"
                continue
            with pytest.raises(StandfastError, match="j1 was changed by another client meanwhile"):
                operations.update(after, other)
            again = {**other, "basis": basis_of(record)}
            assert operations.update(after, again).record != record
            # A client of an earlier release.
            assert operations.update(after, {**other, "basis": None}).record != record
    # What the leader itself writes is no other client's change.
    grown = revisions.grown(msgspec.structs.replace(RECORD, activated=0), 8)
    assert operations.update(CurrentJob(grown, "deployed"), start).record != grown


def test_a_rollback_is_judged_by_what_the_tasks_have_been_through() -> None:
    record = JobRecord(revision(4, task_stores_version="2"), former=(revision(3),), activated=4)
    asked = {"job": "j1", "revision": 4}
    made = operations.rollback(CurrentJob(record, "deployed", active_revisions=(3, 3)), asked).record
    assert made is not None
    assert (made.definition.revision, made.definition.code) == (5, "c3")
    with pytest.raises(StandfastError, match="revision 4 of j1 has been active"):
        operations.rollback(CurrentJob(record, "deployed", active_revisions=(3, 4)), asked)
    with pytest.raises(StandfastError, match="it is revision 4 now, no longer 3"):
        operations.rollback(CurrentJob(record, "deployed"), {**asked, "revision": 3})


def test_hosts_are_drained_and_admitted() -> None:
    made = operations.drain({"h1": "old"}, {"hosts": ["h2", "h3"], "reason": "why"})
    assert made.hosts == {"h1": "old", "h2": "why", "h3": "why"}
    assert operations.admit(made.hosts, {"hosts": ["h1", "h2", "absent"]}).hosts == {"h3": "why"}


@pytest.mark.parametrize(
    ("change", "operation", "arguments"),
    [
        ("a/b", "deploy", {"job": "j1"}),
        ("", "deploy", {"job": "j1"}),
        ("a", "deploy", {}),
        ("a", "deploy", {"job": "../other"}),
        # ZooKeeper's client takes these for no names of nodes at all.
        ("a", "undeploy", {"job": "."}),
        ("a", "undeploy", {"job": ".."}),
        ("a", "undeploy", {"job": "j1\0"}),
        ("a", "undeploy", {"job": "j1\n"}),
        ("a", "update", {"job": "j1", "config": CONFIG, "code": "c1/../c2"}),
        ("a", "submit", as_json(msgspec.structs.replace(revision(1), name="."))),
        ("a", "submit", as_json(msgspec.structs.replace(revision(1), name="another"))),
        ("a", "submit", as_json(msgspec.structs.replace(revision(1), code="../c1"))),
        ("a", "failover", {"job": "j1"}),
        ("a", "drain", {"hosts": "h1"}),
        ("a", "drain", {"hosts": []}),
        ("a", "submit", {"definition": {"name": "j1"}}),
        ("a", "submit", as_json(revision(1, no_such_key="1"))),
        ("a", "submit", as_json(revision(1, job_grouper="absent:grouper"))),
    ],
)
def test_what_no_leader_could_make_is_refused_at_once(
    change: str, operation: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(BadConfiguration):
        operations.check(change, operation, arguments)


def test_every_operation_can_be_queued() -> None:
    for each in operations.OPERATIONS:
        arguments = {"job": "j1", "hosts": ["h1"], **as_json(DEFINITION)}
        operations.check("r-1_a", each, arguments)


class FakeQueue:
    """A queue without ZooKeeper."""

    def __init__(self) -> None:
        self.leads: dict[str, Any] | None = None
        self.waited: list[float] = []

    def info(self) -> dict[str, Any]:
        return {"cluster": "c"}

    def leader(self) -> dict[str, Any] | None:
        return self.leads

    def queue(self, operation: str, arguments: Any, submitter: str, change: str) -> str:
        operations.check(change, operation, arguments)
        return change

    def present(self, job: str, with_tasks: bool) -> CurrentJob | None:
        return CurrentJob(RECORD, "deployed", "", (3, 2) if with_tasks else ()) if job == "j1" else None

    def result(self, change: str, wait_seconds: float) -> ChangeRecord:
        self.waited.append(wait_seconds)
        return ChangeRecord("deploy", {"job": "j1"}, state="done", said="it is to run", epoch=2)


OPERATOR = Caller(PeerRole.OPERATOR, "ann")


def test_any_candidate_answers_what_it_knows_and_refuses_the_rest_by_the_leaders_name() -> None:
    queue: Any = FakeQueue()
    asked: list[Any] = []
    leads = False

    def answer(question: Any) -> dict[str, Any]:
        asked.append(question["operation"])
        return {"said": "done"}

    server = ApiServer("c", "b", queue, lambda: leads, answer)
    assert server(OPERATOR, {"operation": "cluster"}) == {"cluster": "c"}
    queued = {"operation": "queue", "change": "deploy", "arguments": {"job": "j1"}, "id": "r-1"}
    assert server(OPERATOR, queued)["id"] == "r-1"
    assert (
        server(OPERATOR, {"operation": "result", "id": "r-1", "wait_seconds": 60})["said"] == "it is to run"
    )
    assert queue.waited == [MOST_WAIT_SECONDS]
    assert server(OPERATOR, {"operation": "job", "job": "absent"}) == {"present": None}
    told = json.loads(json.dumps(server(OPERATOR, {"operation": "job", "job": "j1", "with_tasks": True})))
    assert msgspec.convert(told["present"], CurrentJob) == CurrentJob(RECORD, "deployed", "", (3, 2))
    assert "there is no leader" in server(OPERATOR, {"operation": "failover"})["error"]
    queue.leads = {"candidate": "a", "host": "h1", "port": 7, "epoch": 2}
    refused = server(OPERATOR, {"operation": "failover"})
    assert refused["error"] == "candidate b does not lead; a at h1:7 does"
    assert (refused["is_leader"], refused["status"]) == (False, 3)
    queue.leads = {**queue.leads, "candidate": "b"}
    assert server(OPERATOR, {"operation": "status"})["error"].startswith(
        "candidate b is recorded as leader, but"
    )
    assert asked == []
    leads = True
    assert server(OPERATOR, {"operation": "failover", "cluster": "c"}) == {"said": "done"}
    assert server(OPERATOR, {"operation": "failover", "cluster": "d"})["is_other"] is True
    assert asked == ["failover"]
    for wrong in (
        {"operation": "queue", "change": "deploy", "arguments": []},
        {"operation": "queue", "arguments": {}},
        {"operation": "result"},
        {"operation": "result", "id": "r-1", "wait_seconds": "long"},
    ):
        with pytest.raises(BadConfiguration):
            server(OPERATOR, wrong)


def test_job_may_be_ended_and_deleted_unfenced() -> None:
    made = operations.undeploy(CurrentJob(RECORD, "deployed"), {"job": "j1", "unfenced": True}).record
    assert made is not None
    assert made.is_fence_waived
    stuck = CurrentJob(made, "undeploying")
    with pytest.raises(operations.NotYet):
        operations.delete(stuck, {"job": "j1"})
    assert operations.delete(stuck, {"job": "j1", "unfenced": True}).record is None
    again = operations.deploy(CurrentJob(made, "undeployed"), {"job": "j1"}).record
    assert again is not None
    assert not again.is_fence_waived
