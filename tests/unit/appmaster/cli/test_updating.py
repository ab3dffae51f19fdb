"""What `standfast update` refuses or warns of before the cluster has the new definition."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appmaster.adapters import kafka_release
from appmaster.api.client import DECIDED_SECONDS
from appmaster.changes.operations import CurrentJob
from appmaster.changes.revisions import basis_of, update
from appmaster.cli.jobs import change, rollout
from appmaster.cli.launch.checks import check_secrets
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.jobfile import load
from appmaster.cli.shared.output import Progress
from appmaster.records import CellRecord, JobRecord
from appmaster.topics.brokers import Brokers
from appmaster.topics.ports import TopicShape
from standby.errors import BadConfiguration, Unavailable
from standby.shared.wire import JobDefinition
from tests.cases import case
from tests.fakes.clock import held
from tests.patience import PATIENCE_SECONDS

FILE = """
job: {name: j, modules: [mod.py]}
task: {inputs: in, step: 'mod:step'}
kafka.bootstrap.servers: 'k:1'
zookeeper.connect: 'z:1'
"""


class Client:
    """A running cluster with one job, as the command sees it."""

    #: The most that the command may wait for the leader's decision, seconds.
    most_seconds = DECIDED_SECONDS

    def __init__(self, record: JobRecord, *, is_open: bool | None, environment: str = "") -> None:
        self.record = record
        self._is_open = is_open
        cells = {1: BadConfiguration("an invalid record"), 2: CellRecord("a", environment=environment)}
        # A restored cell.
        cells[3] = CellRecord("b", environment=environment and "another")
        self._cells = SimpleNamespace(read_each=lambda: cells)

    @property
    def zookeeper(self) -> Any:
        if self._is_open is None:
            raise BadConfiguration("the tree is closed to these credentials")
        return SimpleNamespace(tree=SimpleNamespace(is_open=self._is_open), cells=self._cells)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def present(self, name: str, *, with_tasks: bool = False) -> CurrentJob:
        return CurrentJob(self.record, "deployed")

    def info(self) -> dict[str, Any]:
        return {"cells": [{"is_pool": False}]}

    def status(self) -> dict[str, Any]:
        raise Unavailable("no leader")

    def change(
        self,
        what: str,
        seconds: float = DECIDED_SECONDS,
        *,
        job: str,
        config: dict[str, str],
        code: str,
        basis: str,
    ) -> dict[str, str]:
        assert (what, job, basis) == ("update", "j", basis_of(self.record))
        assert seconds <= self.most_seconds
        made = update(self.record, config, code)
        self.record = made.record
        return {"said": "; ".join(made.described())}


#: Runs the command with ``more`` in the file of a job that began with ``before``; returns the job's record afterwards.
Updated = Callable[..., JobRecord]


@pytest.fixture
def updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Updated:
    path = tmp_path / "job.yaml"
    (tmp_path / "mod.py").write_text("def step(rows, state, out): ...\n", encoding="utf-8")

    def run(
        more: str,
        *,
        before: str = "",
        is_open: bool = False,
        wait: str = "none",
        environment: str = "",
        tasks: int = 1,
    ) -> JobRecord:
        path.write_text(f"{FILE}{before}\n", encoding="utf-8")
        flat = dict(load(path, (), {}).flat)
        record = JobRecord(JobDefinition("j", "run", flat, "changelog", "group", tasks))
        client = Client(record, is_open=is_open, environment=environment)
        monkeypatch.setattr(change, "ClusterClient", lambda *_, **__: client)
        # Of a change of the code, which these tests do not make.
        monkeypatch.setattr(change, "pack", lambda code: SimpleNamespace(digest=""))
        path.write_text(f"{FILE}{more}\n", encoding="utf-8")
        arguments = {"settings": (), "cluster": None, "check": False, "wait": wait, "json": False}
        assert change._update(Namespace(timeout=PATIENCE_SECONDS, job=path, **arguments)) == 0
        return client.record

    return run


def test_what_a_submit_would_refuse_is_refused(updated: Updated) -> None:
    """Each by a check that both commands make; the rules of the checks are in test_submitting and test_refusing."""
    endless = "code.min.replication.count: 2\ncode.max.replication.wait.seconds: -1"
    for more, tasks, told in (
        ("yarn.racks: ['h1=/r1', 'h1=/r2']", 1, r"^yarn\.racks: 'h1=/r2': h1 is in /r1 already$"),
        ("job.hotstandby.enabled: true", 60_000, "60000 tasks with 2 copies"),
        (endless, 1, "wait for more without end"),
    ):
        with case(more), pytest.raises(BadConfiguration, match=told):
            updated(more, tasks=tasks)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("job.transaction.timeout.ms: 900001", r"^job\.transaction\.timeout\.ms: 900001, .* allow 900000 "),
        ("job.changelog.min.insync.replicas: 2", r"^job\.changelog\.min\.insync\.replicas: 2, .* 1 replica;"),
    ],
)
def test_what_the_brokers_would_refuse_of_a_new_revision_is_refused(
    updated: Updated, monkeypatch: pytest.MonkeyPatch, setting: str, told: str
) -> None:
    found = Brokers({}, {"changelog": TopicShape(1, 1, {})}, most_transaction_ms=900_000)
    monkeypatch.setattr(kafka_release, "inspect_brokers", lambda *_: found)
    for name in ("check_clients", "check_topics", "Topics"):
        monkeypatch.setattr(change, name, lambda *_: None)
    with pytest.raises(BadConfiguration, match=told):
        updated(setting)


def test_a_password_is_not_written_into_an_open_tree(updated: Updated, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"^kafka\.sasl\.password: everybody who .* could read it"):
        updated("kafka.sasl.password: tell nobody", is_open=True)
    assert updated("job.container.count: 2", is_open=True).settings["job.container.count"] == "2"
    # It is closed to these credentials, which do for the leader.
    record = JobRecord(JobDefinition("j", "run", {}, "changelog", "group", 1))
    assert not change._is_open(Client(record, is_open=None))  # type: ignore[arg-type]
    # Nobody is asked about the tree if the answer does not matter.
    path = tmp_path / "job.yaml"
    path.write_text(FILE, encoding="utf-8")
    check_secrets(load(path, (), {}), pytest.fail)
    path.write_text(f"{FILE}kafka.sasl.password: a\nzookeeper.acl: open\n", encoding="utf-8")
    with pytest.raises(BadConfiguration, match="everybody"):
        check_secrets(load(path, (), {}), pytest.fail)


def test_a_packed_environment_that_was_made_again_is_warned_of(
    updated: Updated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, named = tmp_path / "env.tar.gz", "job.python.archive: env.tar.gz"
    archive.write_bytes(b"1")
    shipped = hashlib.sha256(b"1").hexdigest()
    for known in (shipped, ""):
        updated(named, before=named, environment=known)
    assert "warning: job.python.archive" not in capsys.readouterr().err
    archive.write_bytes(b"2")
    record = updated(f"{named}\njob.container.count: 2", before=named, environment=shipped)
    assert record.settings["job.container.count"] == "2"
    assert "env.tar.gz has other contents than when the cells of cluster j were" in capsys.readouterr().err
    archive.unlink()
    # It cannot be compared on this machine.
    updated(named, before=named, environment=shipped)
    assert "warning: job.python.archive" not in capsys.readouterr().err
    # The tree is closed to the credentials.
    assert not change._shipped(Client(record, is_open=None))  # type: ignore[arg-type]


def test_what_a_submit_would_warn_of_is_warned_of(
    updated: Updated, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = "task.dead.letter: dead"
    for more, before, told in (
        (
            f"{dead}\njob.container.count: 2",
            dead,
            "task.dead.letter has no effect, because task.on.error is fail",
        ),
        (
            "code.min.replication.count: 2",
            "",
            "code.min.replication.count is 2, and the cluster has 1 candidate",
        ),
    ):
        updated(more, before=before)
        assert f"warning: {told}" in capsys.readouterr().err


def test_the_time_limit_of_an_update_is_one_for_its_checks_and_the_roll_out(
    updated: Updated, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, left = held(), list[float]()
    monkeypatch.setattr(change, "Deadline", partial(Deadline, clock=clock))
    monkeypatch.setattr(change, "check_secrets", lambda *_: clock.advance(PATIENCE_SECONDS - 1))
    monkeypatch.setattr(Client, "most_seconds", 1.0)

    def wait(client: Client, goal: rollout.Goal, deadline: Deadline, progress: Progress) -> dict[str, Any]:
        left.append(deadline.left_seconds)
        return {}

    monkeypatch.setattr(rollout, "wait", wait)
    updated("job.container.count: 2", wait="deployed")
    assert left == [1.0]
