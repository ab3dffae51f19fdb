"""What a submit makes of the job's file, its topics and YARN's hosts."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.adapters.kafka import Topics
from appmaster.changes.compatibility import cluster_settings
from appmaster.changes.operations import CurrentJob
from appmaster.cli.jobs import submit
from appmaster.cli.jobs.submit import define
from appmaster.cli.launch import checks, probe, starting
from appmaster.cli.launch.checks import (
    allocation_warnings,
    check_candidates,
    check_changelog,
    check_no_namesake,
    check_topics,
    check_tree,
    check_yarn,
    missing_candidates_warning,
    missing_hosts_warning,
    unused_topic_warning,
)
from appmaster.cli.launch.starting import TargetCluster
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.hadoop_conf import HadoopConfiguration
from appmaster.cli.shared.jobfile import JobFile, load
from appmaster.config import cluster_config
from appmaster.records import CellRecord, JobRecord
from appmaster.topics.changelog import make
from standby.config import JobConfig
from standby.errors import BadConfiguration, Unavailable
from tests.cases import case
from tests.fakes.clock import held
from tests.fakes.topics import MemoryTopics
from tests.patience import PATIENCE_SECONDS

ENVIRONMENT = {"STANDFAST_KAFKA": "k:9092", "STANDFAST_ZOOKEEPER": "z:2181"}


class FakeTopics:
    """Topics by name, with their partitions."""

    def __init__(self, **partitions: int) -> None:
        self._partitions = partitions

    def partitions(self) -> Mapping[str, int]:
        return self._partitions

    def count(self, name: str) -> int:
        return self._partitions.get(name, 0)


class FakeYarn:
    """Two hosts in two racks, one queue."""

    def get_nodes(self, states: list[str]) -> list[Any]:
        resources = SimpleNamespace(memory=4_096, vcores=2)
        assert states == ["RUNNING"]
        return [
            SimpleNamespace(host=host, rack_name=rack, total_resources=resources)
            for host, rack in (("h2", "/b"), ("h1", "/a"))
        ]

    def get_all_queues(self) -> list[Any]:
        return [SimpleNamespace(name="default")]


def job(directory: Path, *settings: str, more: str = "") -> JobFile:
    path = directory / "job.yaml"
    path.write_text(f"job: {{name: j}}\ntask: {{inputs: input, step: 'code:step'}}\n{more}", encoding="utf-8")
    return load(path, settings, ENVIRONMENT)


def topics(**partitions: int) -> Topics:
    return cast("Topics", FakeTopics(**partitions))


def checked(
    asked: JobFile, cluster: TargetCluster, driver: Any, patch: pytest.MonkeyPatch
) -> tuple[Any, str]:
    """Return what a submit into a cluster has found after all its checks, and what it has said."""
    patch.setattr(starting, "inspect_cluster", lambda *_: cluster)
    code, said = asked.directory / "code", list[str]()
    code.mkdir(exist_ok=True)
    known = SimpleNamespace(
        ids=lambda names: dict.fromkeys(names, "id") if cluster.record else {}, count=lambda _: 0
    )
    servers = submit._Servers(*cast("Any", (known, None, driver, None)))
    arguments = Namespace(update=False, probe=None)
    return submit._check(arguments, asked, code, 4, servers, said.append), "".join(said)


def test_every_topic_must_be_there_and_all_inputs_have_equally_many_partitions(tmp_path: Path) -> None:
    dead = ("task.dead.letter=dead", "task.on.error=dead-letter")
    several = ("task.inputs=input,other",)
    for settings, there in (
        (dead, topics(input=3, dead=1)),
        (dead[:1], topics(input=3)),  # named, but not written to
        (several, topics(input=3, other=3)),
    ):
        assert check_topics(job(tmp_path, *settings), there) == 3, settings
    for settings, there, told in (
        (dead, topics(input=3), r"topic dead does not exist .* task\.dead\.letter"),
        (("task.outputs=out",), topics(input=3), "topic out does not exist"),
        (several, topics(input=3), "topic other does not exist"),
        (several, topics(input=3, other=4), r"task\.inputs: .*input has 3, other has 4"),
        (dead[:1], topics(input=100_001), r"task\.inputs: 100001 partitions"),
    ):
        with pytest.raises(BadConfiguration, match=told):
            check_topics(job(tmp_path, *settings), there)
    large = job(tmp_path)
    assert check_topics(large, topics(input=100_001), large.config) == 100_001, "it is as large already"


def test_a_new_cluster_is_refused_where_another_of_its_name_has_written_to_kafka(tmp_path: Path) -> None:
    config, log = job(tmp_path).config, "standfast__j__events"
    for name, first, epochs, is_refused in (
        (log, 0, (0, 3), True),
        (log, 0, (0,), False),  # of a submit that saw the end of its cluster
        (log, 7, (), True),  # a leader that has had nothing to log for a week
        ("standfast__k__events", 7, (3,), False),
    ):
        refused = pytest.raises(BadConfiguration, match=f"has {log}, .* not in ZooKeeper at z:2181")

        def read(*_: Any, **__: Any) -> Iterator[dict[str, int]]:
            return ({"epoch": each} for each in epochs)  # noqa: B023

        with refused if is_refused else nullcontext():
            there, deadline = topics(**{name: 1}), Deadline(10.0)
            check_no_namesake(config, there, deadline, lambda *_: first, read)  # noqa: B023


def test_an_event_log_that_cannot_be_read_in_time_ends_the_submit(tmp_path: Path) -> None:
    clock = held()

    def read(*_: Any, stop: Callable[[], bool], **__: Any) -> Iterator[dict[str, int]]:
        for _second in range(100):
            if stop():
                return
            clock.advance(1)
            yield {"epoch": 0}
        pytest.fail("it reads on")

    there = topics(standfast__j__events=1)
    with pytest.raises(Unavailable, match="could not be read within 10 s; give a longer --timeout"):
        check_no_namesake(job(tmp_path).config, there, Deadline(10.0, clock), lambda *_: 0, read)


def test_yarn_says_which_hosts_there_are_and_what_it_cannot_give(tmp_path: Path) -> None:
    hosts, racks = check_yarn(job(tmp_path).config, FakeYarn())
    assert hosts == ("h1", "h2")
    assert cluster_config(job(tmp_path).config, 1, racks).racks == {"h1": "/a", "h2": "/b"}
    assert check_yarn(job(tmp_path, "yarn.hosts=h2").config, FakeYarn())[0] == ("h2",)
    for setting, told in (
        ("yarn.queue=absent", "no queue absent; YARN has default"),
        ("cluster-manager.container.memory.mb=5000", "container.memory.mb: 5000 MiB, .* offers 4096"),
        ("yarn.am.container.memory.mb=5000", "yarn.am.container.memory.mb: 5000 MiB, .* offers 4096"),
        ("cluster-manager.container.cpu.cores=3", "container.cpu.cores: 3, .* offers 2"),
        ("yarn.am.container.cpu.cores=3", "yarn.am.container.cpu.cores: 3, .* offers 2"),
        ("yarn.hosts=h1,h9", "yarn.hosts: h9 not RUNNING in YARN; it has h1, h2"),
    ):
        with case(setting), pytest.raises(BadConfiguration, match=told):
            check_yarn(job(tmp_path, setting).config, FakeYarn())


def test_what_yarn_may_not_grant_by_the_client_s_configuration_is_warned_of(tmp_path: Path) -> None:
    """The ResourceManager's configuration may be another one, so this is no reason to refuse a job."""
    memory, cores = "cluster-manager.container.memory.mb", "yarn.am.container.cpu.cores"
    limit = "yarn.scheduler.maximum-allocation"
    for raw, settings, told in (
        ({}, (f"{memory}=8192", f"{cores}=4"), ()),
        (
            {},
            (f"{memory}=8193", f"{cores}=5"),
            (f"{memory}: 8193 MiB, and {limit}-mb is 8192 by default:", cores),
        ),
        ({f"{limit}-mb": "9000"}, (f"{memory}=9000",), ()),
        (
            {f"{limit}-mb": "1000"},
            (),
            (f"{memory}: 1536 MiB, and {limit}-mb is 1000 in the Hadoop configuration",),
        ),
        (
            {f"{limit}-vcores": "${unknown}"},
            (f"{cores}=5",),
            (f"{cores}: 5, and {limit}-vcores is 4 by default:",),
        ),
    ):
        said = list(allocation_warnings(job(tmp_path, *settings).config, HadoopConfiguration(raw, (), {})))
        assert len(said) == len(told)
        for each, what in zip(said, told, strict=True):
            assert each.startswith(f"warning: {what}")


def test_a_job_that_joins_is_asked_for_nothing_that_the_cluster_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the defaults of keys that it leaves out, nor that each of the cluster's hosts is there just now."""
    started = ("yarn.queue=prod", "cluster-manager.container.memory.mb=512", "yarn.hosts=h1,h9")
    settings = cluster_settings(job(tmp_path, *started).config)
    cluster = TargetCluster(("a",), None, has_others=True, settings=settings)
    monkeypatch.setattr(FakeYarn, "get_all_queues", lambda _: [SimpleNamespace(name="prod")])

    def check(*sets: str) -> tuple[Any, str]:
        return checked(job(tmp_path, *sets), cluster, FakeYarn(), monkeypatch)

    found, said = check()
    assert (found.start.topology, said) == ((("h1", "h2"), {"h1": "/a", "h2": "/b"}), "")
    with pytest.raises(BadConfiguration, match=r"yarn\.queue: other, and the cluster has prod"):
        check("yarn.queue=other")
    (tmp_path / "env.tar.gz").write_bytes(b"1")
    archive = f"job.python.archive={tmp_path / 'env.tar.gz'}"
    settings = cluster_settings(job(tmp_path, archive).config)
    cluster = replace(cluster, settings=settings, environments=frozenset({"other"}))
    assert "warning: job.python.archive" in check(archive)[1], "it was packed again"


def test_a_job_of_a_pool_is_submitted_again_with_as_many_containers_as_it_was_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are more than a new job may have, and were changed while it ran."""
    asked = job(tmp_path, "job.hotstandby.enabled=true")
    first = define(asked.on_pool(5, {}), 4, None, "")
    record = JobRecord(first, settings={**first.config, "job.container.count": "4000"}, is_wanted=False)
    cluster = TargetCluster((), CurrentJob(record, "undeployed"), has_others=False, settings={})
    monkeypatch.setattr(checks, "check_pool", lambda *_: checks.PoolAnswer(("h1",), 3, ""))
    monkeypatch.setattr(checks, "check_changelog", lambda *_: None)
    found, _ = checked(asked, cluster, None, monkeypatch)
    assert found.job.config.container_count == 4_000


@pytest.mark.parametrize(("is_pool", "is_known"), [(True, True), (False, True), (True, False)])
def test_skein_s_driver_is_not_started_for_a_cluster_that_is_known_to_be_on_a_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_pool: bool, is_known: bool
) -> None:
    """Hadoop may be configured on the machine; the driver would take a JVM some seconds for nothing."""
    cells = SimpleNamespace(read_each=lambda: {1: CellRecord("", is_pool=is_pool)})
    ring = SimpleNamespace(is_whole=True, access=lambda tls: None)
    monkeypatch.setattr(submit, "find", lambda cluster: ring if is_known else None)
    monkeypatch.setattr(submit, "ZooKeeper", lambda *_, **__: nullcontext(SimpleNamespace(cells=cells)))
    monkeypatch.setattr(yarn, "skein_client", lambda deadline: nullcontext("driver"))
    with ExitStack() as opened:
        driver = submit._start_driver(job(tmp_path).config, opened, Deadline(10.0))
    assert driver == (None if is_pool and is_known else "driver")


@pytest.mark.parametrize("is_check", [True, False])
def test_the_result_of_a_submit_that_waits_for_nothing_is_json_whatever_the_job_s_code_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_check: bool
) -> None:
    functions = "def step(rows, state, out): ...\ndef transform(rows): print('called'); return rows\n"
    (tmp_path / "printing.py").write_text(f"print('imported')\n{functions}", encoding="utf-8")
    more = "job.modules: [printing.py]\ntask.transform: printing:transform\ntask.feed: plain\n"
    asked = job(tmp_path, "task.step=printing:step", more=more)
    ring = SimpleNamespace(expiry_warning=lambda: "", secret="")
    for where, name, what in (
        (submit, "load", asked),
        (submit, "make_sure", ring),
        (submit, "ZooKeeper", nullcontext()),
        (submit, "ClusterClient", nullcontext()),
        (submit, "_check", SimpleNamespace(cluster=None)),
        (submit, "_launch", (("application_1",), None)),
        *((submit, each, None) for each in ("_check_hadoop", "_start_driver", "_look_further", "Topics")),
        *((submit, each, None) for each in ("check_clients", "owner_access")),
        (checks, "check_topics", 1),
        (yarn, "is_pool", True),
        (probe, "probe_time", probe.ProbeTime.NEVER),
    ):
        monkeypatch.setattr(where, name, lambda *_, what=what, **__: what)
    arguments = {
        "job": asked.path,
        "settings": (),
        "cluster": None,
        "probe": None,
        "wait": "none",
        "json": True,
    }
    assert submit._submit(Namespace(check=is_check, timeout=PATIENCE_SECONDS, **arguments)) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["applications"] == ([] if is_check else ["application_1"])
    assert "imported" in printed.err
    assert "called" in printed.err


def test_more_copies_than_hosts_are_warned_of_with_the_counts(tmp_path: Path) -> None:
    for count, hosts, said in (
        (0, 1, ""),
        (2, 3, ""),
        (1, 1, "1 standby and its active need 2 hosts, one each, and there is 1 host:"),
        (5, 3, "5 standbys and their active need 6 hosts, one each, and there are 3 hosts:"),
    ):
        settings = ("job.hotstandby.enabled=true", f"job.hotstandby.replicationcount={count}")
        warned = missing_hosts_warning(job(tmp_path, *settings).config, hosts)
        assert (bool(warned), said in warned) == (bool(said), True), warned
    assert not missing_hosts_warning(job(tmp_path).config, 1), "without standbys one host will do"


def test_code_that_more_candidates_are_to_hold_than_there_are_cells_is_no_endless_wait(
    tmp_path: Path,
) -> None:
    def asked(wait_seconds: int) -> JobConfig:
        wait = f"code.max.replication.wait.seconds={wait_seconds}"
        return job(tmp_path, "code.min.replication.count=3", wait).config

    for wait_seconds, number, warned in ((60, 3, False), (60, None, False), (0, 2, False), (60, 2, True)):
        said = missing_candidates_warning(asked(wait_seconds), number, is_new=True)
        assert bool(said) == warned, (wait_seconds, number)
        check_candidates(asked(wait_seconds), number, is_new=True)
    said = missing_candidates_warning(asked(60), 2, is_new=True)
    assert said.startswith("warning: code.min.replication.count is 3, and the cluster has 2 candidates, ")
    assert "only after 60 s" in said
    check_candidates(asked(-1), None, is_new=True)
    for is_new, remedy in ((True, r"raise appmaster\.cells,"), (False, "fixed while a cluster runs")):
        assert ("raise appmaster.cells" in missing_candidates_warning(asked(60), 1, is_new=is_new)) == is_new
        told = rf"^code\.min\.replication\.count: 3, .* has 1 candidate,.* {remedy}"
        with pytest.raises(BadConfiguration, match=told):
            check_candidates(asked(-1), 1, is_new=is_new)


def test_a_topic_for_dead_letters_that_gets_none_is_warned_of(tmp_path: Path) -> None:
    named = "task.dead.letter=dead"
    for on_error in ("fail", "skip"):
        warned = unused_topic_warning(job(tmp_path, named, f"task.on.error={on_error}").config)
        assert f"task.dead.letter has no effect, because task.on.error is {on_error}" in warned
    assert unused_topic_warning(job(tmp_path, named, "task.on.error=dead-letter").config) == ""
    assert unused_topic_warning(job(tmp_path, "task.on.error=skip").config) == ""


def test_first_definition_names_its_bundle_and_a_later_one_goes_on_counting(tmp_path: Path) -> None:
    first = define(job(tmp_path), 3, None, "aa")
    assert (first.revision, first.code, first.tasks) == (1, "aa", 3)
    again = define(job(tmp_path), 3, JobRecord(first), "bb")
    assert (again.revision, again.code, again.run) == (2, "bb", first.run)
    assert define(job(tmp_path), 3, None, "aa").run != first.run, (
        "nothing of a deleted job's run holds for the next"
    )


def test_input_that_grew_is_adopted_only_if_it_may_and_another_or_a_smaller_one_never(tmp_path: Path) -> None:
    present = JobRecord(define(job(tmp_path), 3, None, ""))
    assert define(job(tmp_path, "task.inputs.may.grow=true"), 4, present, "").tasks == 4
    for tasks, setting, told in (
        (4, "task.inputs.may.grow=false", r"set task\.inputs\.may\.grow"),
        (2, "task.inputs.may.grow=true", "restore the topic"),
        (3, "task.inputs=other", r"task\.inputs: input → other"),
    ):
        with pytest.raises(BadConfiguration, match=told):
            define(job(tmp_path, setting), tasks, present, "")


def test_changelog_that_does_not_do_is_reported_before_anything_is_stopped(tmp_path: Path) -> None:
    brokers, asked = MemoryTopics(), job(tmp_path, "task.inputs.may.grow=true")
    there = cast("Topics", brokers)
    first = define(asked, 4, None, "")
    check_changelog(asked, there, first, None)
    make(brokers, first.changelog, 4, asked.config)
    check_changelog(asked, there, first, JobRecord(first))
    grown = define(asked, 8, JobRecord(first), "")
    check_changelog(asked, there, grown, JobRecord(first))
    brokers.alter(first.changelog, {"cleanup.policy": "delete"})
    with pytest.raises(BadConfiguration, match=r"cleanup\.policy=delete"):
        check_changelog(asked, there, grown, JobRecord(first))


def test_default_interpreter_stays_what_the_running_job_has(tmp_path: Path) -> None:
    assumed = job(tmp_path)
    running = {**assumed.flat, "job.python": "/opt/python"}
    assert assumed.keeping(running).config.python == "/opt/python"
    named = job(tmp_path, "job.python=/usr/bin/python3")
    assert named.keeping(running).config.python == "/usr/bin/python3"
    shipped = {**assumed.flat, "job.python.archive": "env.tar.gz"}
    del shipped["job.python"]
    assert assumed.keeping(shipped).config.python == ""


def test_an_open_tree_is_taken_only_by_who_wants_it(tmp_path: Path) -> None:
    silent, open_one = job(tmp_path), job(tmp_path, "zookeeper.acl=open")
    assert check_tree(silent, is_open=False, is_new=True) == ""
    with pytest.raises(BadConfiguration, match="Close it with `standfast protect j`"):
        check_tree(silent, is_open=True, is_new=True)
    assert "can run code as you" in check_tree(silent, is_open=True, is_new=False), (
        "the others run there already"
    )
    for is_open in (False, True):
        assert "can run code as you" in check_tree(open_one, is_open=is_open, is_new=True)


@pytest.mark.parametrize("name", ["kafka.sasl.password", "spark.hadoop.fs.s3a.secret.key"])
def test_a_secret_is_refused_where_everybody_could_read_it(tmp_path: Path, name: str) -> None:
    secret, by_file = f"{name}: tell nobody\n", f"{name}.file: {tmp_path}/secret\n"
    (tmp_path / "secret").write_text("tell nobody", encoding="utf-8")
    (tmp_path / "secret").chmod(0o600)
    assert check_tree(job(tmp_path, more=secret), is_open=False, is_new=True) == ""
    for settings, is_open in ((["zookeeper.acl=open"], False), ([], True)):
        with pytest.raises(BadConfiguration, match=f"^{name}: everybody who .* could read it") as told:
            check_tree(job(tmp_path, *settings, more=secret), is_open=is_open, is_new=not is_open)
        assert f"{name}.file" in str(told.value)
        assert "tell nobody" not in str(told.value)
        warned = check_tree(job(tmp_path, *settings, more=by_file), is_open=is_open, is_new=not is_open)
        assert "can run code as you" in warned
