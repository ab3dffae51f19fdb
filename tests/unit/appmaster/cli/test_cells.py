"""Cells: where their masters come to, on different hosts if YARN lets them, and how one is restored."""

from __future__ import annotations

import hashlib
import itertools
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from appmaster.adapters.credentials import keyring
from appmaster.adapters.zookeeper.cells import ZooKeeperCells
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.changes.compatibility import cluster_settings
from appmaster.changes.operations import CurrentJob
from appmaster.changes.revisions import update
from appmaster.cli.clusters.cells import _line, restore
from appmaster.cli.launch.cells import Claims, Launching, master_on_other_host, share_of, submit
from appmaster.cli.main import build_parser, main
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.jobfile import load
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.undo import Undo
from appmaster.records import CellRecord, JobRecord
from standby.code.bundles import pack
from standby.errors import BadConfiguration
from standby.shared import naming
from standby.shared.wire import JobDefinition
from tests.fakes.applications import Applications as YarnApplications
from tests.fakes.clock import WaitClock
from tests.unit.appmaster.cli.test_claims import Session
from tests.unit.appmaster.cli.test_foreign import commands


class Applications:
    """Applications that come to hosts as a test says, one after the other."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = dict(zip(map(str, itertools.count(1)), hosts, strict=False))
        self.started = 1
        self.ended: list[str] = []

    def again(self) -> str:
        self.started += 1
        return str(self.started)

    def apart(self, *taken: str) -> str:
        return master_on_other_host("1", taken, self.again, self.hosts.__getitem__, self.ended.append)


def test_master_beside_another_is_ended_and_asked_for_again() -> None:
    for hosts, taken, found, ended in (
        (["h2", "h3"], ["h1"], "h2", []),
        (["h1", "h1", "h3"], ["h1"], "h3", ["1", "2"]),
        ([""], ["h1", ""], "", []),  # a host that is not known is not taken for another's
    ):
        yarn = Applications(*hosts)
        assert yarn.apart(*taken) == found
        assert (yarn.started, yarn.ended) == (len(ended) + 1, ended)


def test_full_cluster_is_not_asked_for_ever() -> None:
    yarn = Applications(*["h1"] * 20)
    assert yarn.apart("h1") == "h1"
    assert 8 < yarn.started < 20, "every third of a master on three hosts, all in a row"
    assert yarn.ended == [str(each) for each in range(1, yarn.started)]


def test_masters_that_are_requested_at_once_are_wished_on_different_hosts() -> None:
    racks = {f"h{number}": f"/r{number % 3}" for number in range(9)}
    shares = [share_of(index, 2, racks, (), "c") for index in range(2)]
    assert sorted(chain(*shares)) == sorted(racks)
    assert {len(each) for each in shares} == {4, 5}
    assert share_of(0, 2, racks, (), "d") != shares[0], "not all clusters depend on the same hosts"
    for taken, wished in (
        (("h1",), ("h2",)),  # although it is the second master
        (("h1", "h2"), ()),
    ):
        assert share_of(1, 2, {"h1": "/a", "h2": "/a"}, taken, "c") == wished
    assert share_of(0, 1, {"h1": "", "h2": "/a"}, (), "c") == (), "YARN needs the racks"
    many = dict.fromkeys(map(str, range(5_000)), "/a")
    assert len(share_of(0, 2, many, (), "c")) == 32


class Yarn:
    """One host, and applications that run, or were submitted."""

    def __init__(self, *running: str) -> None:
        self.running = set(running)
        self.submitted: list[Any] = []

    def get_nodes(self, states: list[str]) -> list[Any]:
        return [SimpleNamespace(host="h1", rack_name="/a")]

    def application_report(self, application: str) -> Any:
        return SimpleNamespace(state="RUNNING" if application in self.running else "KILLED", host="h1")

    def submit(self, spec: Any) -> str:
        self.submitted.append(spec)
        name = f"new{len(self.submitted)}"
        self.running.add(name)
        return name

    def kill_application(self, application: str) -> None:
        self.running.discard(application)


class Cluster:
    """A cluster of two cells, the first of which has ended, and the file that it was submitted with."""

    def __init__(self, directory: Path, name: str, *settings: str, named: str = "") -> None:
        self.file = directory / "job.yaml"
        text = f"job: {{name: j, modules: [code.py]}}\n{named}"
        text += "task: {inputs: in, step: 'code:step', feed: plain}\nkafka.bootstrap.servers: k:1\n"
        self.file.write_text(text, encoding="utf-8")
        (directory / "code.py").write_text("def step(rows, state, out): ...\n", encoding="utf-8")
        keyring.make_sure(name)
        given = [*settings, f"cluster.name={name}", "zookeeper.connect=z1:1,z2:1"]
        kept = cluster_settings(load(self.file, given).config)
        self.session = Session({}, 1)
        self.cells = ZooKeeperCells(self.session, name)
        for number in (1, 2):
            self.cells.claim(number, CellRecord(f"old{number}", settings=kept))
        self.yarn = Yarn("old2")
        definition = JobDefinition("j", "run", {}, "changelog", "group", 1, code="bundle")
        self.jobs = {"j": JobRecord(definition, activated=1)}

    def present(self, name: str) -> CurrentJob:
        if name not in self.jobs:
            raise BadConfiguration("an invalid record")
        return CurrentJob(self.jobs[name])

    def restore(self, *arguments: str) -> dict[int, str]:
        """Restore what ``cells`` with these arguments restores."""
        parsed = build_parser().parse_args(
            ["cells", "j", "--restore", str(self.file), "--zookeeper", "z1:1", *arguments]
        )
        jobs = SimpleNamespace(read=self.jobs.get, names=lambda: ("invalid", *self.jobs))
        zookeeper = SimpleNamespace(
            cells=self.cells,
            jobs=jobs,
            changes=SimpleNamespace(present=self.present),
            tree=SimpleNamespace(is_closed=False),
        )
        return restore(parsed, cast("ZooKeeper", zookeeper), self.yarn, Progress(is_quiet=True))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STANDFAST_CREDENTIALS", str(tmp_path / "credentials"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("STANDFAST_ZOOKEEPER", raising=False)
    (tmp_path / "yarn-site.xml").write_text("<configuration/>", encoding="utf-8")
    return tmp_path


def test_cell_of_a_cluster_that_the_file_does_not_name_comes_back_in_that_cluster(home: Path) -> None:
    cluster = Cluster(home, "shared", "cluster-manager.container.memory.mb=777")
    assert cluster.restore("--cluster", "shared") == {1: "new1"}
    (spec,) = cluster.yarn.submitted
    assert spec.name == "standfast-shared-1"
    assert {each.resources.memory for each in spec.services.values()} == {777}, "as the cluster was started"
    found = cluster.cells.read_all()
    assert found[1].application == "new1"
    assert found[1].settings == found[2].settings
    assert naming.submitting_path("shared") not in cluster.session.nodes, "others may submit now"
    again = Cluster(home, "shared")
    submitted_with = (
        "--set",
        "cluster.name=shared",
        "--set",
        "yarn.queue=default",
        "--set",
        "task.outputs=out",
    )
    assert again.restore("--cluster", "shared", *submitted_with) == {1: "new1"}


def test_cell_comes_back_with_the_packed_environment_of_the_others_or_a_warning(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = home / "env.tar.gz"
    first, second = (hashlib.sha256(each).hexdigest() for each in (b"1", b"2"))
    for content, shipped, is_warned in ((b"1", first, False), (b"2", first, True), (b"2", "", False)):
        archive.write_bytes(b"1")
        cluster = Cluster(home, "shared", "job.python.archive=env.tar.gz")
        for number, digest in ((1, second), (2, shipped)):
            cluster.cells.put(number, structs.replace(cluster.cells.read_all()[number], environment=digest))
        archive.write_bytes(content)
        assert cluster.restore("--cluster", "shared") == {1: "new1"}
        assert cluster.cells.read_all()[1].environment == (first if content == b"1" else second)
        warning = "env.tar.gz has other contents than when the cells of cluster shared were"
        assert (warning in capsys.readouterr().err) == is_warned


def test_no_cell_is_restored_whose_containers_would_lack_the_modules_of_a_job(home: Path) -> None:
    cluster = Cluster(home, "shared")
    flat = dict(load(cluster.file, ["zookeeper.connect=z1:1"]).flat)
    old = JobRecord(JobDefinition("old", "run", flat, "changelog", "group", 1), activated=1)
    # Its update has a bundle, but containers load the former revision until that is activated.
    updated = update(old, flat, "bundle").record
    for other in (old, updated):
        cluster.jobs["old"] = other
        for running, told in (({"old2"}, "^old: .* run `standfast update`"), (set(), "`standfast submit`")):
            cluster.yarn.running = set(running)
            with pytest.raises(BadConfiguration, match=told):
                cluster.restore("--cluster", "shared")
    assert not cluster.yarn.submitted
    cluster.yarn.running = {"old2"}
    # A job may run with more than is allowed to a new one.
    with cluster.file.open("a", encoding="utf-8") as file:
        file.write("cluster-manager.container.retry.count: 1000000\n")
    for other in (structs.replace(old, is_wanted=False), structs.replace(updated, activated=2)):
        cluster.jobs["old"] = other
        assert cluster.restore("--cluster", "shared")
        cluster.yarn.running = {"old2"}


@pytest.mark.parametrize("is_refused", [False, True])
def test_masters_start_and_wait_until_the_last_check_has_passed(home: Path, *, is_refused: bool) -> None:
    cluster = Cluster(home, "shared")
    cluster.session.nodes.clear()
    recorded: list[list[str]] = []

    def check() -> None:
        recorded.append([each.application for each in cluster.cells.read_all().values()])
        if is_refused:
            raise BadConfiguration("job.python cannot be used")

    config = load(cluster.file, ["cluster.name=shared", "zookeeper.connect=z1:1"]).config
    zookeeper: Any = SimpleNamespace(cells=cluster.cells, tree=SimpleNamespace(is_closed=False))
    claims, progress = Claims(zookeeper, config), Progress(is_quiet=True)
    with pytest.raises(BadConfiguration) if is_refused else nullcontext(), Undo(progress) as undo:
        claims.take((1, 2), cluster.yarn, undo)
        launch = Launching(Deadline(60.0, WaitClock()), progress, undo, check)
        submit(config, pack(home), (("h1",), {"h1": "/a"}), claims, cluster.yarn, launch)
    assert recorded[0] == ["", ""]
    assert len(cluster.yarn.submitted) == 2
    assert cluster.yarn.running == {"old2", *(() if is_refused else ("new1", "new2"))}
    assert [each.application for each in cluster.cells.read_all().values()] == (
        [] if is_refused else ["new1", "new2"]
    )


def test_cell_that_runs_or_is_being_submitted_is_not_claimed_and_the_others_are_given_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(home, "shared")
    before = cluster.cells.read_all()
    config = load(cluster.file, ["cluster.name=shared", "zookeeper.connect=z1:1"]).config
    zookeeper: Any = SimpleNamespace(cells=cluster.cells)

    def taken(*numbers: int) -> None:
        with Undo(Progress(is_quiet=True)) as undo:
            Claims(zookeeper, config).take(numbers, cluster.yarn, undo)

    with pytest.raises(BadConfiguration, match="cell 2 of the cluster runs as old2"):
        taken(1, 2)
    assert cluster.cells.read_all() == before
    monkeypatch.setattr(cluster.cells, "claim", lambda *_, **__: False)
    with pytest.raises(BadConfiguration, match="another command is submitting cell 1"):
        taken(1)


def test_file_of_another_cluster_is_refused_and_nothing_is_submitted(home: Path) -> None:
    named = Cluster(home, "shared", named="cluster: {name: shared}\n")
    for arguments, told in (
        ((), r"job\.yaml: cluster\.name is shared, and the command is about cluster j; correct --cluster"),
        (("--cluster", "shared", "--set", "cluster.name=x"), r"cluster\.name is x, .* about cluster shared"),
        (("--cluster", "shared", "--set", "job.name=k"), "there is no job k in cluster shared"),
        (
            ("--cluster", "shared", "--set", "zookeeper.connect=other:1"),
            r"zookeeper\.connect is other:1, and the command is about cluster shared on z1:1; correct --zookeeper",
        ),
        (
            ("--cluster", "shared", "--set", "zookeeper.connect=z2:1 , z1:1", "--set", "job.name=k"),
            "there is no job k in cluster shared",
        ),
        (
            ("--cluster", "shared", "--set", "appmaster.cells=3", "--set", "yarn.queue=q"),
            r"leave these keys out:\n  appmaster\.cells: 3, and the cluster has 2\n  yarn\.queue: q, and",
        ),
    ):
        before = named.cells.read_all()
        with pytest.raises(BadConfiguration, match=told):
            named.restore(*arguments)
        assert named.cells.read_all() == before
        assert not named.yarn.submitted


def test_a_cell_that_waits_in_the_queue_says_why() -> None:
    session = SimpleNamespace(
        election=SimpleNamespace(controller=lambda: None), registry=SimpleNamespace(candidates=tuple)
    )
    why = "Queue's AM resource limit\n exceeded."
    for state, waits in (
        ("ACCEPTED", "ACCEPTED: Queue's AM resource limit exceeded."),
        ("RUNNING", None),
        ("KILLED", None),
    ):
        driver = YarnApplications(diagnostics=why, application_2=state)
        line = _line(2, CellRecord("application_2"), driver, cast("ZooKeeper", session))
        assert (line["state"], line["waits"]) == (state, waits)
        assert line["is_running"] is (state != "KILLED")


def test_settings_without_a_file_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cells", "j", "--set", "a=b", "--zookeeper", "z:1"]) == 2
    assert "--set goes with --restore" in capsys.readouterr().err


def test_every_command_that_takes_a_job_file_takes_settings_and_a_cluster() -> None:
    takers = {}
    for names, parser in commands(build_parser()):
        if any(action.metavar == "JOB.YAML" for action in parser._actions):
            takers[" ".join(names)] = {each for action in parser._actions for each in action.option_strings}
    assert set(takers) == {"submit", "update", "cells", "run"}
    for name, options in takers.items():
        assert {"--set", "--cluster"} <= options, name


def test_job_is_of_the_cluster_that_the_command_line_names(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Cluster(home, "shared", named="cluster: {name: shared}\n").file
    for command in ("submit", "update"):
        assert main([command, str(file), "--cluster", "third", "--set", "zookeeper.connect=z:1"]) == 2
        said = capsys.readouterr().err
        assert "cluster.name is shared, and the command is about cluster third" in said
    plain = load(Cluster(home, "shared").file, ["zookeeper.connect=z:1"], cluster="third")
    assert plain.config.cluster == "third"
    assert plain.given["cluster.name"] == "third"
