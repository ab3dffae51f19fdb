"""The commands of a cluster without YARN: the files that `init` makes, and what masters and nodes make of them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import stat
from pathlib import Path

import pytest

from appmaster.cli.clusters import standalone
from appmaster.cli.main import main
from appmaster.supervisor import RESIGNED
from standby import cluster as cluster_file
from standby import node
from standby.node import NodeSettings
from standby.security.credentials import Bootstrap
from standby.shared.model import NodeOffer
from tests.cases import case

SERVERS = ("--set", "zookeeper.connect=zk:1", "--set", "kafka.bootstrap.servers=k:1")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_CREDENTIALS", str(tmp_path / "credentials"))
    for each in ("STANDFAST_STATE_DIR", "STANDFAST_ZOOKEEPER", "STANDFAST_KAFKA"):
        monkeypatch.delenv(each, raising=False)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return the directory of a cluster."""
    directory = tmp_path / "etc"
    more = ("zookeeper.acl=open", "kafka.client.id=me", "job.state.dir=/disk1,/disk2")
    sets = [part for each in more for part in ("--set", each)]
    assert main(["init", "--cluster", "prod", "--to", str(directory), *SERVERS, *sets]) == 0
    return directory


def test_init_writes_what_processes_need_for_this_user_only(made: Path) -> None:
    config = cluster_file.load(made / cluster_file.FILE)
    assert (config.name, config.zookeeper, config.kafka_bootstrap) == ("prod", "zk:1", "k:1")
    assert (config.zookeeper_acl, dict(config.kafka), config.state_dirs) == (
        "open",
        {"client.id": "me"},
        ("/disk1", "/disk2"),
    )
    assert config.is_pool
    assert {each.name: oct(stat.S_IMODE(each.stat().st_mode)) for each in made.iterdir()} == dict.fromkeys(
        ("cluster.json", "master.json", "node.json"), "0o600"
    )
    master, node = (json.loads((made / f"{each}.json").read_text()) for each in ("master", "node"))
    assert master["owner"] == node["owner"]
    assert master["secret"] not in (made / "node.json").read_text(), "a node is not the owner"
    assert master["credentials"]["certificate"] != node["credentials"]["certificate"]


def test_init_refuses_what_a_cluster_cannot_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, said in (
        ([], "kafka.bootstrap.servers: missing"),
        ([*SERVERS, "--set", "job.name=x"], "job.name: not a key of a cluster"),
        ([*SERVERS, "--set", "yarn.queue=x"], "yarn.queue: not a key"),
        ([*SERVERS, "--set", "code.directory=/x"], "in their state directories"),
        ([*SERVERS, "--set", "code.distributor=hdfs"], "needs a Hadoop cluster"),
        ([*SERVERS, "--set", "code.hdfs.directory=/x"], "code.hdfs.directory: only for a Hadoop cluster"),
        ([*SERVERS, "--set", "kafka.sasl.password=x"], "everybody on this machine"),
    ):
        assert main(["init", "--cluster", "prod", "--to", str(tmp_path / "etc"), *more]) == 2, more
        assert said in capsys.readouterr().err
        assert not (tmp_path / "etc").exists()


def test_init_overwrites_nothing_keeps_the_credentials_and_leaves_no_file_readable_by_others(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--cluster", "prod", "--to", str(made), *SERVERS]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["init", "--cluster", "prod", "--to", str(tmp_path / "again"), *SERVERS]) == 0
    # As the error advises; the other files may have been copied for all to read.
    (made / cluster_file.FILE).unlink()
    for each in ("master.json", "node.json"):
        assert (made / each).read_bytes() == (tmp_path / "again" / each).read_bytes()
        (made / each).chmod(0o644)
    assert main(["init", "--cluster", "prod", "--to", str(made), *SERVERS]) == 0
    assert {oct(stat.S_IMODE(each.stat().st_mode)) for each in made.iterdir()} == {"0o600"}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[NodeSettings]:
    """Return the settings of the nodes that were started; each ends at once."""
    started: list[NodeSettings] = []

    def run(settings: NodeSettings) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr(node, "run", run)
    return started


def test_a_node_has_its_own_state_directory_and_no_secret_of_the_owner(
    made: Path, tmp_path: Path, nodes: list[NodeSettings]
) -> None:
    (made / "master.json").unlink()
    command = ["node", "--config", str(made), "--host", "h1"]
    assert main(command) == 0
    assert main([*command, "--state", str(tmp_path / "mine")]) == 0
    first, second = nodes
    assert first.host == "h1"
    assert first.cluster.state_dirs == ("/disk1", "/disk2")
    assert second.cluster.state_dirs == (str(tmp_path / "mine"),)
    assert isinstance(first.bootstrap, Bootstrap)


def test_state_directory_of_the_environment_is_an_absolute_path(
    tmp_path: Path, nodes: list[NodeSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of a node have directories of their own, which are removed after them."""
    directory, mine = tmp_path / "etc", str(tmp_path / "mine")
    assert main(["init", "--cluster", "prod", "--to", str(directory), *SERVERS]) == 0
    for value, status in (("mine", 2), (mine, 0)):
        monkeypatch.setenv("STANDFAST_STATE_DIR", value)
        assert main(["node", "--config", str(directory), "--host", "h1"]) == status
    assert [each.cluster.state_dirs for each in nodes] == [(mine,)]


OFFER = [
    *("--attribute", "zone=a", "--attribute", "rack=/r1", "--group", "gpu"),
    *("--memory", "4g", "--tasks", "16", "--cores", "2"),
]


def test_a_node_offers_what_it_is_started_with_also_by_its_unit(
    made: Path, nodes: list[NodeSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["node", "--config", str(made), "--host", "h1"]
    assert main([*command, *OFFER]) == main(command) == 0
    assert main([*command, *OFFER, "--systemd"]) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith("ExecStart="))
    assert main(shlex.split(line)[shlex.split(line).index("node") :]) == 0
    full = NodeOffer("gpu", 4_096, 2, 16, {"zone": "a", "rack": "/r1"})
    assert [each.offer for each in nodes] == [full, NodeOffer(), full]


def test_an_offer_that_cannot_be_is_refused(
    made: Path, nodes: list[NodeSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value, said in (
        ("--memory", "4", "'4' is not a size, as 4g or 512m"),
        ("--memory", "0g", "'0g' is not a size"),
        ("--tasks", "0", "'0' is not a whole number above 0"),
        ("--cores", "x", "'x' is not a whole number"),
        ("--attribute", "zone", "'zone' is not key=value"),
        ("--attribute", "cell=1", "the name is reserved"),
        ("--group", "a b", "'a b' is not a group"),
    ):
        with case(option, value), pytest.raises(SystemExit, match=r"^2$"):
            main(["node", "--config", str(made), option, value])
        assert said in " ".join(capsys.readouterr().err.split())
    assert not nodes


@pytest.mark.parametrize("command", ["master", "node"])
@pytest.mark.parametrize("given", ["::1", "[2001:db8::5]", "10.0.0.5:9410"])
def test_a_host_that_is_no_name_and_no_address_of_ipv4_is_refused(
    made: Path,
    nodes: list[NodeSettings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    given: str,
) -> None:
    """The process could not open its ports, and was started again and again."""
    monkeypatch.setattr(standalone, "supervise", None)
    for more in (["--systemd"], []):
        with pytest.raises(SystemExit, match=r"^2$"):
            main([command, "--config", str(made), "--host", given, *more])
        said = " ".join(capsys.readouterr().err.split())
        assert f"{given!r} is neither a name nor an address of IPv4; one of IPv6 cannot be used" in said
    assert not nodes


def test_a_node_without_its_files_says_what_is_missing(
    made: Path, nodes: list[NodeSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    own, of_cluster = made / "node.json", made / cluster_file.FILE
    of_yarn = json.dumps({**json.loads(of_cluster.read_text()), "is_pool": False})
    usual = of_cluster.read_text()
    for path, text, said in (
        (of_cluster, of_yarn, "not of a cluster that `init` has made"),
        (own, "{", "no credentials"),
        (own, None, "`standfast init` writes it"),
    ):
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        assert main(["node", "--config", str(made)]) == 2, said
        assert said in capsys.readouterr().err
        of_cluster.write_text(usual)
    # Another directory, and a file: what another user cannot read has the same way.
    for given, said in ((made.parent, "No such file or directory"), (of_cluster, "Not a directory")):
        assert main(["node", "--config", str(given)]) == 2
        assert f"cluster.json: {said}; `standfast init` writes it" in capsys.readouterr().err
    assert not nodes


def test_the_name_of_the_host_is_the_default_where_other_hosts_reach_it_by_that(
    made: Path,
    nodes: list[NodeSettings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    addresses: list[str] = []

    def resolve(name: str, port: None, family: int) -> list[object]:
        found = [each for each in addresses if (socket.AF_INET6 if ":" in each else socket.AF_INET) == family]
        if not found:
            raise socket.gaierror("unknown")
        return [(None, None, None, "", (each, 0)) for each in found]

    monkeypatch.setattr(socket, "getfqdn", lambda: "n1")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    name = "--host: n1, the name of this host,"
    for addresses, said in (
        (["127.0.1.1"], f"{name} is 127.0.1.1, where other hosts do not reach it; give"),
        (["127.0.1.1", "2001:db8::5"], f"{name} is 127.0.1.1, where"),
        (["2001:db8::5"], f"{name} has no address of IPv4: "),
        ([], f"{name} has no address of IPv4: "),
    ):
        assert main(["node", "--config", str(made)]) == 2, addresses
        assert said in capsys.readouterr().err
    assert not nodes
    assert main(["node", "--config", str(made), "--host", "localhost"]) == 0, "it was given"
    addresses = ["127.0.1.1", "10.0.0.5"]
    assert main(["node", "--config", str(made)]) == 0
    assert [each.host for each in nodes] == ["localhost", "n1"]


@pytest.mark.parametrize("status", [-signal.SIGTERM, 128 + signal.SIGTERM])
def test_a_process_that_the_signal_ended_before_it_heeds_signals_has_ended_as_asked(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(standalone, "supervise", lambda *_, **__: status)
    monkeypatch.setattr(node, "run", lambda _: status)
    for each in ("NM_HOST", "CONTAINER_ID"):
        monkeypatch.setenv(each, "")
    monkeypatch.chdir(tmp_path)
    arguments = ["--config", str(made), "--host", "h1", "--state", str(tmp_path / "state")]
    for command in ("master", "node"):
        assert main([command, *arguments]) == 0


def test_a_unit_runs_the_command_with_the_same_arguments(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Systemd expands specifiers and variables also in quotes."""
    arguments = ["--config", str(made), "--host", 'h"1', "--state", "/100%/$mine\\"]
    for command in ("node", "master"):
        assert main([command, *arguments, "--systemd"]) == 0
        unit = capsys.readouterr().out
        (line,) = (each for each in unit.splitlines() if each.startswith("ExecStart="))
        assert f" {command} --config {made} " in line
        assert r'--host "h\"1" --state "/100%%/$$mine\\"' in line
        assert "--systemd" not in line
        assert "KillMode=mixed" in unit.splitlines(), "no other process gets the signal from systemd, too"
        assert f"User={os.geteuid()}" in unit.splitlines()
        assert "StartLimitIntervalSec=0" in unit.partition("[Service]")[0], "DNS may be away at boot"


def test_a_master_is_given_its_files_in_a_directory_of_its_own_which_no_second_one_may_use(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: dict[str, object] = {}
    command = ["master", "--config", str(made), "--host", "h_1", "--state", str(tmp_path / "state")]

    def supervise(program: list[str], *, is_own_master: bool) -> int:
        seen["files"] = sorted(each.name for each in Path().iterdir())
        seen["is_own_master"] = is_own_master
        seen["host"] = os.environ["NM_HOST"]
        seen["second"] = main(command)
        return RESIGNED

    monkeypatch.setattr(standalone, "supervise", supervise)
    monkeypatch.setenv("NM_HOST", "")
    monkeypatch.setenv("CONTAINER_ID", "")
    monkeypatch.chdir(tmp_path)
    assert main(command) == 0, "resigning is how it ends when it is asked to"
    assert seen == {
        "files": ["cluster.json", "credentials.json"],
        "is_own_master": True,
        "host": "h_1",
        "second": 2,
    }
    assert "another master of cluster prod on h_1" in capsys.readouterr().err
