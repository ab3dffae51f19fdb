"""What any candidate answers, on a real ZooKeeper and real ports, and queued changes."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest
from kazoo.client import KazooClient

from appmaster.adapters.credentials.keyring import VARIABLE, Keyring, keyring_in
from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.code import tombstone
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.changes.operations import CurrentJob
from appmaster.cli.launch.starting import TargetCluster, inspect_cluster
from appmaster.cli.main import main
from appmaster.cli.shared.jobfile import load
from appmaster.planning.state.actions import RecordWrite
from appmaster.records import CellRecord, ChangeRecord, JobRecord, StatusRecord, decode, encode
from embedded.web import open_url
from standby.code.bundles import pack
from standby.config import parse
from standby.errors import BadConfiguration, Fenced, StandfastError, Unavailable
from standby.feed.functions import job_code
from standby.shared.model import TaskId, TaskRecord
from standby.shared.naming import change_path, code_path, container_path, job_path
from standby.shared.records import ContainerRecord, ControllerRecord
from standby.shared.records import encode as encode_container
from standby.shared.wire import JobDefinition
from tests.fakes.candidates import DeskCandidate
from tests.fakes.certificates import user_directory
from tests.fakes.zookeeper import LoneZooKeeper, record_job
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS, soon
from tests.unit.appmaster.changes.test_operations import CONFIG

DEFINITION = JobDefinition("j1", "run1", CONFIG, "changelog", "group", 4)

Make = Callable[[str], DeskCandidate]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneZooKeeper]:
    """A server of the module's own: one test stops it, and another one counts its connections."""
    with LoneZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def make(server: LoneZooKeeper, zookeeper: ZooKeeper, name: str) -> Iterator[Make]:
    made: list[DeskCandidate] = []

    def make(candidate: str) -> DeskCandidate:
        made.append(DeskCandidate(candidate, server.connect, name))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def credentials(tmp_path: Path, name: str) -> Path:
    return user_directory(tmp_path / "credentials", name)


@pytest.fixture
def ring(credentials: Path, name: str) -> Keyring:
    return keyring_in(credentials / name, name)


def get(candidate: DeskCandidate, path: str) -> Any:
    with open_url(f"http://127.0.0.1:{candidate.http.port}{path}", timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def leaders(info: dict[str, Any]) -> list[str]:
    return [each["candidate"] for each in info["candidates"] if each["is_leader"]]


def test_every_candidate_answers_cluster_info_and_names_exactly_one_leader(
    make: Make, zookeeper: ZooKeeper, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    """A client may ask any candidate about the cluster, its leader included."""
    a, b, c = make("a"), make("b"), make("c")
    a.lead()
    record_job(zookeeper, JobRecord(DEFINITION))
    registered = ContainerRecord("container_9", "s", 1, "127.0.0.2", 5, 6, 7, 1, "0.1", peer_port=8)
    registration = server.client()
    registration.create(container_path(name, "container_9"), encode_container(registered), ephemeral=True)
    for each in (a, b, c):
        soon(
            lambda each=each: (
                len(get(each, "/api/v1/cluster")["candidates"]) == 3  # type: ignore[misc]
                and get(each, "/api/v1/cluster")["containers"]
                and leaders(get(each, "/api/v1/cluster")) == ["a"]
            ),
            "the watches bring everything",
        )
        info = get(each, "/api/v1/cluster")
        assert (info["cluster"], info["epoch"], info["answered_by"]) == (name, 1, each.name)
        assert info["is_fresh"] is True
        mine = next(found for found in info["candidates"] if found["candidate"] == "b")
        assert (mine["host"], mine["port"], mine["http_port"]) == ("127.0.0.1", b.port, b.http.port)
        assert 61 <= mine["uptime_seconds"] < 120
        assert mine["version"] == "0.1"
        assert [(job["job"], job["is_wanted"]) for job in info["jobs"]] == [("j1", True)]
        assert [found["host"] for found in info["containers"]] == ["127.0.0.2"]
        with ClusterClient(name, server.connect, ring, [each.address]) as client:
            assert client.info()["answered_by"] == each.name
    registration.stop()
    registration.close()
    soon(lambda: not get(c, "/api/v1/cluster")["containers"], "one that goes is gone")
    a.close()
    soon(lambda: leaders(get(c, "/api/v1/cluster")) == [], "no leader")
    b.lead()
    soon(lambda: leaders(get(c, "/api/v1/cluster")) == ["b"], "another leads")
    assert get(c, "/api/v1/cluster")["leader"]["epoch"] == 2


def test_who_does_not_lead_refuses_an_immediate_act_and_names_the_leader(
    make: Make, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    """Only the leader acts; a client finds it through any candidate."""
    a, b = make("a"), make("b")
    a.lead()
    soon(lambda: (b.changes.leader() or {}).get("candidate") == "a", "it knows who leads")
    with ClusterClient(name, server.connect, ring) as direct:
        answer = direct._ask(b.address, {"operation": "handover"}, PATIENCE_SECONDS)
    assert answer["error"] == f"candidate b does not lead; a at {a.address} does"
    assert answer["is_leader"] is False
    # A client that knows only the other one is led on.
    with ClusterClient(name, server.connect, ring, [b.address]) as client:
        assert client.call("handover", job="j1")["said"] == "a did handover"
        assert not client._is_connected
        a.close()
        with pytest.raises(Unavailable):
            client.call("handover", job="j1")
        b.lead()
        assert client.call("handover", job="j1")["said"] == "b did handover"
    assert not any(each["operation"] in ("cluster", "queue") for each in a.asked)


def test_sessions_with_zookeeper_do_not_grow_with_clients(
    make: Make, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    """Clients ask candidates and not ZooKeeper; known candidates are tried one after the other when some are gone."""
    a, b, c = make("a"), make("b"), make("c")
    a.lead()
    # The first command learns the others from the leader.
    soon(lambda: len(a.changes.info()["candidates"]) == 3, "the leader knows them")
    with ClusterClient(name, server.connect, ring) as first:
        first.status()
    # What one command has learned the next one knows.
    a.close()
    b.lead()
    soon(lambda: all(leaders(each.changes.info()) == ["b"] for each in (b, c)), "another leads")
    before = connections(server)
    clients = [ClusterClient(name, server.connect, ring) for _ in range(20)]
    for each in clients:
        assert leaders(each.info()) == ["b"]
        assert each.call("explain")["said"] == "b did explain"
    # The server may still have counted one of this test's that had just ended, before or now.
    soon(lambda: connections(server) <= before, "no more connections than before")
    for each in clients:
        assert not each._is_connected
        each.close()


def test_the_status_of_ten_thousand_tasks_reaches_a_client(
    make: Make, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    a = make("a")
    a.lead()
    a.status = {"tasks": ["of two replicas".ljust(1_200)] * 10_000}
    with ClusterClient(name, server.connect, ring, [a.address]) as client:
        assert len(client.status()["tasks"]) == 10_000


def connections(server: LoneZooKeeper) -> int:
    client: KazooClient = server.client()
    said = client.command(b"srvr")
    client.stop()
    client.close()
    return next(int(line.split(":")[1]) for line in said.splitlines() if line.startswith("Connections"))


def test_an_address_that_is_another_clusters_by_now_is_passed_over(
    make: Make, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    a = make("a")
    a.lead()
    other = f"{name}other"
    with ZooKeeper(server.connect, other) as zookeeper:
        zookeeper.tree.prepare()
        stranger = DeskCandidate("x", server.connect, other)
        try:
            with ClusterClient(name, server.connect, ring, [stranger.address]) as client:
                assert client.info()["answered_by"] == "a"
                assert client.call("handover")["said"] == "a did handover"
            assert stranger.asked == []
        finally:
            stranger.close()


def test_a_queued_change_is_made_by_the_next_leader_and_awaited_through_another_candidate(
    make: Make, zookeeper: ZooKeeper, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    record_job(zookeeper, JobRecord(DEFINITION))
    a, b = make("a"), make("b")
    with (
        ClusterClient(name, server.connect, ring, [a.address]) as one,
        ClusterClient(name, server.connect, ring, [b.address]) as other,
    ):
        request = one.queue("undeploy", job="j1", purge=True)
        hosts = one.queue("drain", hosts=["h1", "h2"], reason="a test")
        wrong = one.queue("undeploy", job="absent")
        # One that does not know of a change yet waits for ZooKeeper, if not for long.
        b.changes.tree.fresh(PATIENCE_SECONDS)
        with pytest.raises(StandfastError, match="still queued after 0 s"):
            other.result(request, 0)
        assert get(b, f"/api/v1/changes/{request}")["state"] == "queued"
        b.lead()
        b.zookeeper.records.write_status("j1", StatusRecord("deployed"))
        a.close()
        assert other.result(request, PATIENCE_SECONDS)["said"] == "it is to end"
        other.result(hosts, PATIENCE_SECONDS)
        with pytest.raises(StandfastError, match="there is no job absent"):
            other.result(wrong, PATIENCE_SECONDS)
        with pytest.raises(StandfastError, match="there is no change r-9"):
            other.result("r-9", PATIENCE_SECONDS)
        with pytest.raises(StandfastError, match="cannot be queued"):
            other.queue("handover", job="j1")
    job = zookeeper.jobs.read("j1")
    assert job is not None
    assert (job.is_wanted, job.purge) == (False, True)
    assert zookeeper.changes.drained() == {"h1": "a test", "h2": "a test"}
    assert get(b, f"/api/v1/changes/{request}")["epoch"] == 1


def test_stranger_s_question_about_a_request_is_answered_without_zookeeper(
    make: Make, zookeeper: ZooKeeper, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    record_job(zookeeper, JobRecord(DEFINITION))
    a = make("a")
    with ClusterClient(name, server.connect, ring, [a.address]) as client:
        request = client.queue("undeploy", job="j1")
        # Else the answer would wait for ZooKeeper, if not for long.
        a.changes.tree.fresh(PATIENCE_SECONDS)
        with pytest.raises(StandfastError, match="still queued after 0 s"):
            client.result(request, 0)
    server.kill()
    try:
        assert get(a, f"/api/v1/changes/{request}")["state"] == "queued"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(a, "/api/v1/changes/anything")
    finally:
        server.start()


def test_the_command_line_lists_candidates_and_queues_changes(
    make: Make,
    zookeeper: ZooKeeper,
    server: LoneZooKeeper,
    name: str,
    credentials: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, str(credentials))
    where = ["--cluster", name, "--zookeeper", server.connect]
    assert main(["candidates", "j1", *where]) == 3
    record_job(zookeeper, JobRecord(DEFINITION))
    a, b = make("a"), make("b")
    soon(lambda: len(a.changes.info()["candidates"]) == 2, "they know each other")
    assert main(["undeploy", "j1", "--no-wait", *where]) == 0
    request = capsys.readouterr().out.strip()
    # Either may be asked, here and below.
    for each in (a, b):
        each.changes.tree.fresh(PATIENCE_SECONDS)
    assert main(["change", "j1", request, *where]) == 0
    assert capsys.readouterr().out.strip() == request
    a.lead()
    a.zookeeper.records.write_status("j1", StatusRecord("deployed"))
    soon(lambda: leaders(b.changes.info()) == ["a"], "somebody leads")
    soon(lambda: all(each.changes.result(request).state == "done" for each in (a, b)), "it is made")
    assert main(["change", "j1", request, *where]) == 0
    assert capsys.readouterr().out == "j1: done: it is to end\n"
    assert main(["deploy", "j1", "--timeout", "0.5", *where]) == 1
    assert "is still queued after 0.5 s" in capsys.readouterr().err
    # It had to wait for the end, which the planner tells.
    a.zookeeper.records.write_status("j1", StatusRecord("undeployed"))
    soon(lambda: zookeeper.jobs.read("j1") == JobRecord(DEFINITION), "it is made after all")
    assert main(["deploy", "j1", *where]) == 0
    assert "it runs already" in capsys.readouterr().out
    assert main(["deploy", "absent", *where]) == 1
    assert "there is no job absent" in capsys.readouterr().err
    assert main(["candidates", "j1", *where]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == ["candidate", "a", "b"]
    assert listed[1].endswith("yes, epoch 1")
    a.zookeeper.records.write_status("j1", StatusRecord("deploying", ("waiting for code",)))
    # There was another one before.
    soon(
        lambda: all(each.changes.info()["jobs"][0]["status"] == "deploying" for each in (a, b)), "both see it"
    )
    assert main(["jobs", *where]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[1].split() == ["j1", "deploying", "yes", "1", "1", "waiting", "for", "code"]


def test_a_change_is_made_once_whatever_is_repeated_and_never_by_a_deposed_leader(
    make: Make, zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    a, b = make("a"), make("b")
    arguments = {"definition": msgspec.to_builtins(DEFINITION)}
    assert a.changes.queue("submit", arguments, change="r-1") == "r-1"
    a.lead()
    soon(lambda: a.changes.result("r-1").state == "done", "it is made")
    assert zookeeper.jobs.read("j1") == JobRecord(DEFINITION)
    # The client heard nothing and asks again, elsewhere; meanwhile the job has ended.
    assert zookeeper.jobs.ask("j1", is_wanted=False)
    a.zookeeper.records.write_status("j1", StatusRecord("undeployed"))
    assert b.changes.queue("submit", arguments, change="r-1") == "r-1"
    a.changes.records.settle("r-1", 1)
    job = zookeeper.jobs.read("j1")
    assert job is not None
    assert not job.is_wanted
    # A queue that only the deposed one sees: it may write neither the change nor a result.
    b.epoch = 2
    leader = zookeeper.election.controller()
    assert leader is not None
    assert b.zookeeper.election.lead(leader, depose=leader) == 2
    requests = ZooKeeperChanges(client, name)
    requests.put("r-2", ChangeRecord("deploy", {"job": "j1"}))
    with pytest.raises(Fenced):
        requests.settle("r-2", 1)
    soon(lambda: a.resigned, "the deposed one hears of it")
    job = zookeeper.jobs.read("j1")
    assert job is not None
    assert not job.is_wanted
    b.changes.lead(2)
    assert b.changes.result("r-2", PATIENCE_SECONDS).state == "done"
    assert zookeeper.jobs.read("j1") == JobRecord(DEFINITION)


def test_a_candidate_that_is_cut_off_is_passed_over_even_if_it_led(
    make: Make, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    """It answers still, with a picture of before, in which it leads."""
    a, b = make("a"), make("b")
    b.lead()
    for each in (a, b):
        each.changes.tree.fresh(PATIENCE_SECONDS)
    soon(lambda: leaders(b.changes.info()) == ["b"], "it knows that it leads")
    b.client.stop()
    soon(lambda: not b.changes.info()["is_fresh"], "it is cut off")
    a.lead()
    soon(lambda: leaders(a.changes.info()) == ["a"], "another leads")
    with ClusterClient(name, server.connect, ring, [b.address, a.address]) as client:
        assert client.info()["answered_by"] == "a"
    with ClusterClient(name, server.connect, ring, [b.address, a.address]) as client:
        assert client.call("handover", job="j1")["said"] == "a did handover"
        assert b.asked == []
        a.close()
        assert client.info()["answered_by"] == "b", "better than nothing"
        # A client that waits for a candidate continues to wait.
        with pytest.raises(Unavailable, match="ZooKeeper did not answer"):
            client.queue("undeploy", job="j1")


def test_a_candidate_that_is_cut_off_while_it_reads_says_so_although_it_has_read_everything(
    make: Make, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = make("a")
    record_job(zookeeper, JobRecord(DEFINITION))
    a.changes.tree.fresh(PATIENCE_SECONDS)
    assert a.changes.info()["is_fresh"]
    ask = a.client.get_async

    def last_answer(*asked: Any, **how: Any) -> Any:
        pending = ask(*asked, **how)

        def get(timeout: float) -> Any:
            # Answers come in order: the others that were asked for are there then, too.
            a.client.exists("/")
            a.client.stop()
            return pending.get(timeout=timeout)

        return SimpleNamespace(get=get)

    monkeypatch.setattr(a.client, "get_async", last_answer)
    zookeeper.jobs.ask("j1", is_wanted=False)
    soon(lambda: not a.changes.info()["jobs"][0]["is_wanted"], "it has read that")
    assert not a.changes.info()["is_fresh"]


@pytest.mark.acceptance
def test_without_zookeeper_the_last_picture_is_given_at_once_and_says_that_it_is_old(
    tmp_path: Path, name: str, ring: Keyring
) -> None:
    with LoneZooKeeper(tmp_path) as own:
        with ZooKeeper(own.connect, name) as zookeeper:
            zookeeper.tree.prepare()
        a = DeskCandidate("a", own.connect, name)
        try:
            a.changes.tree.fresh(PATIENCE_SECONDS)
            own.kill()
            soon(lambda: not a.changes.info()["is_fresh"], "it notices")
            assert [each["candidate"] for each in a.changes.info()["candidates"]] == ["a"]
            with ClusterClient(name, own.connect, ring, [a.address]) as client:
                queued = {"operation": "queue", "change": "undeploy", "arguments": {"job": "j1"}}
                for number in range(12):
                    with pytest.raises(grpc.RpcError):
                        client._ask(a.address, {**queued, "id": f"r-{number}"}, A_MOMENT_SECONDS)
                assert client.info()["answered_by"] == "a", "calls that wait for ZooKeeper keep no other one"
                with pytest.raises(Unavailable, match="ZooKeeper did not answer while queueing"):
                    client.queue("undeploy", job="j1")
            own.start()
            soon(lambda: a.changes.info()["is_fresh"], "it has read it again")
        finally:
            a.close()


def test_nothing_is_queued_in_a_cluster_that_is_not_there(client: KazooClient, name: str) -> None:
    with pytest.raises(BadConfiguration, match=f"no cluster {name}"):
        ZooKeeperChanges(client, name).put("r-1", ChangeRecord("deploy", {"job": "j1"}))


def test_what_keeps_a_change_from_being_made_is_said_in_it_while_it_is_queued(
    zookeeper: ZooKeeper, name: str
) -> None:
    def said() -> tuple[str, str]:
        data, _ = zookeeper.client.get(change_path(name, "r-1"))
        record = decode(data, "r-1", ChangeRecord)
        return record.state, record.said

    zookeeper.changes.put("r-1", ChangeRecord("deploy", {"job": "absent"}))
    epoch = zookeeper.election.lead(ControllerRecord("a", "h", 1, 0))
    assert epoch is not None
    zookeeper.changes.hold_up("r-1", epoch, "why")
    assert said() == ("queued", "why")
    with pytest.raises(Fenced):
        zookeeper.changes.hold_up("r-1", epoch - 1, "another reason")
    zookeeper.changes.settle("r-1", epoch)
    zookeeper.changes.hold_up("r-1", epoch, "too late")
    assert said() == ("refused", "there is no job absent in this cluster")


def test_what_waits_for_a_jobs_end_holds_up_what_was_asked_after_it_and_no_other_job(
    make: Make, zookeeper: ZooKeeper, name: str
) -> None:
    other = msgspec.structs.replace(DEFINITION, name="j2", config={**CONFIG, "job.name": "j2"})
    record_job(zookeeper, JobRecord(DEFINITION, is_wanted=False))
    a = make("a")
    a.lead()

    def state_after_a_pass(change: str) -> str:
        """Return how a change stands after the candidate has gone through its queue with it."""
        a.changes.tree.fresh(PATIENCE_SECONDS)
        # The first may be done just before a pass, which is over before the second.
        assert all(a.changes._worker.flush(PATIENCE_SECONDS) for _ in range(2))
        return decode(zookeeper.client.get(change_path(name, change))[0], change, ChangeRecord).state

    begun_again = msgspec.structs.replace(DEFINITION, revision=2)
    a.changes.queue("submit", {"definition": msgspec.to_builtins(begun_again)}, change="r-1")
    a.changes.queue("undeploy", {"job": "j1"}, change="r-2")
    a.changes.queue("submit", {"definition": msgspec.to_builtins(other)}, change="r-3")
    assert a.changes.result("r-3", PATIENCE_SECONDS).state == "done"
    assert [a.changes.result(each).state for each in ("r-1", "r-2")] == ["queued", "queued"]
    a.zookeeper.records.write_status("j1", StatusRecord("undeployed"))
    assert (a.changes.result("r-1", PATIENCE_SECONDS).state, a.changes.result("r-1").revision) == ("done", 2)
    # A leader that sees only that it is not to run would take it for ended all the while, and tell nothing.
    assert state_after_a_pass("r-2") == "queued"
    a.zookeeper.records.write_status("j1", StatusRecord("deploying"))
    assert a.changes.result("r-2", PATIENCE_SECONDS).state == "done"
    job = zookeeper.jobs.read("j1")
    assert job is not None
    assert (job.definition.revision, job.is_wanted) == (2, False), "begun, and then ended"
    a.zookeeper.records.write_status("j2", StatusRecord("deployed"))
    # A resting candidate makes what can be made now, and no more changes; another leadership does.
    a.changes.queue("deploy", {"job": "j1"}, change="r-5")
    assert state_after_a_pass("r-5") == "queued"
    a.zookeeper.records.write_status("j1", StatusRecord("undeployed"))
    a.changes.rest()
    assert a.changes.result("r-5", PATIENCE_SECONDS).state == "done"
    a.changes.queue("undeploy", {"job": "j2"}, change="r-4")
    assert state_after_a_pass("r-4") == "queued"
    a.changes.lead(1)
    assert a.changes.result("r-4", PATIENCE_SECONDS).state == "done"


def test_a_client_reads_a_job_of_any_candidate_and_of_zookeeper_when_there_is_none(
    make: Make, zookeeper: ZooKeeper, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    record_job(zookeeper, JobRecord(DEFINITION))
    a, b = make("a"), make("b")
    a.lead()
    task = TaskRecord(TaskId("j1", "main", 0), 0, 1, revision=3)
    assert a.zookeeper.records.write_tasks((RecordWrite(task, None),)) is not None
    failed = StatusRecord("failed", ("one", "two"), run=DEFINITION.run, revision=DEFINITION.revision)
    a.zookeeper.records.write_status("j1", failed)
    found = CurrentJob(JobRecord(DEFINITION), "failed", "one; two", (3,))
    with ClusterClient(name, server.connect, ring, [b.address]) as client:
        assert client.present("j1", with_tasks=True) == found
        assert client.present("j1") == replace(found, active_revisions=())
        assert client.present("absent") is None
        assert not client._is_connected
        a.close()
        b.close()
        assert client.present("j1", with_tasks=True) == found
        assert client._is_connected


def test_a_rollback_is_judged_by_the_task_records_and_a_job_is_deleted_with_all_of_them(
    make: Make, zookeeper: ZooKeeper, server: LoneZooKeeper, name: str, ring: Keyring
) -> None:
    other = {**DEFINITION.config, "task.stores.version": "2"}
    new = msgspec.structs.replace(DEFINITION, revision=2, code="c2", config=other)
    record_job(zookeeper, JobRecord(new, former=(DEFINITION,), activated=2))
    a = make("a")
    a.lead()
    tasks = [TaskRecord(TaskId("j1", "main", each), 0, 1, revision=2) for each in range(3)]
    assert a.zookeeper.records.write_tasks([RecordWrite(each, None) for each in tasks]) is not None
    with ClusterClient(name, server.connect, ring, [a.address]) as client:
        with pytest.raises(StandfastError, match="revision 2 of j1 has been active"):
            client.change("rollback", job="j1", revision=2)
        older = [RecordWrite(replace(each, revision=1), 0) for each in tasks]
        assert a.zookeeper.records.write_tasks(older) is not None
        assert client.change("rollback", job="j1", revision=2)["revision"] == 3
        with pytest.raises(StandfastError, match="undeploy it first"):
            client.change("delete", job="j1")
        a.zookeeper.records.write_status("j1", StatusRecord("deployed"))
        client.change("undeploy", job="j1")
        a.zookeeper.records.write_status("j1", StatusRecord("undeployed"))
        client.change("delete", job="j1")
        assert client.present("j1") is None
    assert zookeeper.jobs.names() == ()


def test_a_delete_that_was_interrupted_is_completed_by_the_next(
    make: Make, zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    record_job(zookeeper, JobRecord(DEFINITION, is_wanted=False))
    client.delete(f"{job_path(name, 'j1')}/tasks")
    a = make("a")
    a.lead()
    present = a.changes.present("j1", with_tasks=True)
    assert present is not None
    assert present.active_revisions == ()
    request = a.changes.queue("delete", {"job": "j1", "unfenced": True})
    assert a.changes.result(request, PATIENCE_SECONDS).said == "it is deleted"
    assert zookeeper.jobs.names() == ()


def test_naming_a_bundle_takes_its_tombstone_away(
    make: Make, zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    a = make("a")
    a.lead()
    marked, unknown = "1" * 64, "2" * 64
    client.create(code_path(name, marked), encode(tombstone()))
    record_job(zookeeper, JobRecord(DEFINITION))
    for revision, code in enumerate((marked, unknown), start=1):
        arguments = {"job": "j1", "config": CONFIG, "code": code}
        request = a.changes.queue("update", arguments)
        assert a.changes.result(request, PATIENCE_SECONDS).revision == revision + 1
    assert client.get(code_path(name, marked))[0] == b""
    assert client.get(code_path(name, unknown))[0] == b""


def test_what_was_queued_for_a_cluster_that_has_ended_is_refused_when_it_is_started_anew(
    make: Make, zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    record_job(zookeeper, JobRecord(DEFINITION))
    make("a").changes.queue("undeploy", {"job": "j1"}, change="r-1")
    unreadable = change_path(name, "r-0")
    client.create(unreadable, b"of a later version")
    changes = ZooKeeperChanges(client, name)
    assert changes.has_queued()
    changes.refuse_left("its cluster ended")
    assert not changes.has_queued()
    assert client.get(unreadable)[0] == b"of a later version"
    b = make("b")
    b.lead()
    found = b.changes.result("r-1", PATIENCE_SECONDS)
    assert (found.state, found.said) == ("refused", "its cluster ended")
    assert zookeeper.jobs.read("j1") == JobRecord(DEFINITION)


def test_a_job_that_cannot_be_read_does_not_keep_others_out_of_its_cluster(
    zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    class Yarn:
        """Runs whatever it is asked about."""

        def application_report(self, application: str) -> Any:
            return SimpleNamespace(state="RUNNING")

    record_job(zookeeper, JobRecord(DEFINITION))
    assert zookeeper.cells.claim(1, CellRecord("application_1", settings={"yarn.queue": "q"}))
    client.set(job_path(name, "j1"), b"of a later version")
    config = parse({**CONFIG, "job.name": "j2", "cluster.name": name})
    found = inspect_cluster(config, zookeeper, Yarn())
    assert found == TargetCluster(("application_1",), None, has_others=True, settings={"yarn.queue": "q"})
    with pytest.raises(BadConfiguration, match="not a record of version"):
        inspect_cluster(parse({**CONFIG, "cluster.name": name}), zookeeper, Yarn())


@pytest.fixture
def where(server: LoneZooKeeper, name: str, credentials: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the options that lead a command to the cluster."""
    monkeypatch.setenv(VARIABLE, str(credentials))
    return ["--cluster", name, "--zookeeper", server.connect]


def test_status_is_the_leader_s_or_what_is_recorded_and_names_a_job_that_cannot_be_led(
    make: Make, zookeeper: ZooKeeper, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    record_job(zookeeper, JobRecord(DEFINITION))
    a = make("a")
    a.lead()
    why = "no live candidate holds its code c1, since 2026-11-21 10:00:00 UTC"
    leader = {"candidate": "a", "host": "h1", "epoch": 1}
    mine = {"name": "j1", "run": "run1", "revision": 1, "status": "incomplete", "reasons": [why]}
    a.status = {"leader": leader, "jobs": [mine], "tasks": [], "containers": [], "unreadable": {}}
    assert main(["status", "j1", *where]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "j1: incomplete",
        f"  {why}",
        "run run1, revision 1",
        "leader a on h1, epoch 1",
    ]
    a.status = {**a.status, "jobs": [], "unreadable": {"j1": "its grouper is missing"}}
    assert main(["status", "j1", *where]) == 1
    assert "j1: unreadable\n  the leader cannot lead it: its grouper is missing" in capsys.readouterr().out
    a.status = {**a.status, "unreadable": {}}
    assert main(["status", "j1", "--json", *where]) == 1
    assert json.loads(capsys.readouterr().out)["jobs"][0]["reasons"] == ["the leader has not loaded it yet"]
    a.zookeeper.records.write_status("j1", StatusRecord("deployed", ("as it was",)))
    a.close()
    b = make("b")
    b.changes.tree.fresh(PATIENCE_SECONDS)
    assert main(["status", "j1", *where]) == 1
    assert capsys.readouterr().out.startswith("j1: deployed when a leader last looked\n  as it was\n  ")
    b.close()
    assert main(["status", "j1", *where]) == 1
    assert capsys.readouterr().out.startswith("j1: deployed when a leader last looked\n  as it was\n  ")
    assert main(["status", "absent", *where]) == 2


def test_hosts_are_drained_and_admitted_through_any_candidate(
    make: Make, zookeeper: ZooKeeper, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = make("a"), make("b")
    assert main(["drain", "h1", "--reason", "new disks", "--no-wait", *where]) == 0
    assert "there is no leader now" in capsys.readouterr().err
    b.lead()
    soon(lambda: zookeeper.changes.drained() == {"h1": "new disks"}, "the next leader makes it")
    b.status = {"leader": {"host": "h9"}, "hosts": {"h1": {}, "h2": {}}, "containers": []}
    assert main(["drain", "h3", *where]) == 2
    assert main(["drain", "h2", "--no-wait", *where]) == 0
    assert zookeeper.changes.drained().keys() == {"h1", "h2"}
    soon(lambda: len(a.changes.info()["drained"]) == 2 == len(b.changes.info()["drained"]), "both know")
    capsys.readouterr()
    assert main(["admit", "h1", "h7", *where]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "h1 may be used again",
        "h7 was not drained",
        "still drained: h2",
    ]
    assert zookeeper.changes.drained().keys() == {"h2"}


def test_a_key_is_looked_up_without_a_session_with_zookeeper(
    make: Make,
    zookeeper: ZooKeeper,
    client: KazooClient,
    name: str,
    where: list[str],
    ring: Keyring,
    capsys: Any,
) -> None:
    record_job(
        zookeeper, JobRecord(msgspec.structs.replace(DEFINITION, config={**CONFIG, "task.stores": "counts"}))
    )
    registered = ContainerRecord("container_9", "s", 1, "127.0.0.2", 5, 6, 7, 1, "0.1", peer_port=1)
    client.create(container_path(name, "container_9"), encode_container(registered), ephemeral=True)
    a = make("a")
    a.lead()
    a.changes.tree.fresh(PATIENCE_SECONDS)
    soon(lambda: a.changes.info()["containers"], "the container is seen")
    task = {"task": {"job": "j1", "stage": "main", "partition": 0}, "epoch": 1, "active": 0}
    a.status = {"jobs": [], "tasks": [{**task, "replicas": [{"copy": 0, "container": "container_9"}]}]}
    # Nothing answers there: the candidate is remembered from an earlier command.
    with ClusterClient(name, "127.0.0.1:1", ring, [a.address]) as earlier:
        earlier.info()
    asked = ["get", "j1", "counts", "key", "--partition", "0", "--timeout", "0", *where[:-1], "127.0.0.1:1"]
    assert main(asked) == 1
    assert "task 0: container_9 at 127.0.0.2:1: ConnectionRefusedError" in capsys.readouterr().err


def test_an_update_that_changes_nothing_brings_code_that_the_candidates_lack(
    make: Make, zookeeper: ZooKeeper, name: str, where: list[str], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "counts.py").write_text("def step(rows, state, out): ...\n")
    file = tmp_path / "job.yaml"
    keys = {
        "cluster.name": name,
        "task.step": "counts:step",
        "job.modules": ["counts.py"],
        "task.feed": "plain",
    }
    keys = {**CONFIG, **keys, "zookeeper.connect": where[-1], "job.python": "/usr/bin/python3"}
    del keys["task.transform"]
    file.write_text(json.dumps(keys))
    job = load(file, [], {})
    with job_code(job.directory, job.config.modules) as code:
        digest = pack(code).digest
    definition = JobDefinition("j1", "run1", dict(job.flat), "changelog", "group", 4, code=digest)
    record = JobRecord(definition, activated=1)
    record_job(zookeeper, record)
    a = make("a")
    a.lead()
    assert main(["update", str(file)]) == 0
    assert not zookeeper.code.has(digest), "no candidate lacks it"
    a.changes.more = lambda: {"waiting": {}, "quarantined": {"j1": {"why": "gone", "since_ms": 0}}}
    assert main(["update", str(file), "--check"]) == 0
    assert not zookeeper.code.has(digest), "nothing was to be done"
    assert main(["update", str(file)]) == 0
    assert "the code of j1, which candidates lacked, was uploaded again" in capsys.readouterr().err
    assert zookeeper.code.has(digest)
    assert zookeeper.jobs.read("j1") == record
