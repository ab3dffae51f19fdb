"""The embedded cluster as far as no server is needed: what it refuses, and that its end needs no more than its mark."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from appmaster.cli.main import main
from embedded.cluster import LocalCluster
from embedded.machine.processes import ProcessIdentity, boot_id, is_alive, process_info
from embedded.registry import ID_FILE
from embedded.state import ClusterState, save
from standby.errors import BadConfiguration
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for the clusters of one test."""
    monkeypatch.setenv("STANDFAST_HOME", str(tmp_path))
    return tmp_path


def written(
    home: Path, name: str, kafka: ProcessIdentity, mark: str = "mark", starter: ProcessIdentity | None = None
) -> None:
    """Write down a cluster of two hosts, of whose servers one was started; temporary if its ``starter`` is given."""
    directory = home / "local" / name
    directory.mkdir(parents=True)
    (directory / ID_FILE).write_text(mark, encoding="ascii")
    save(
        directory,
        ClusterState(
            name=name,
            cluster_id=mark,
            boot_id=boot_id(),
            owner=starter or ProcessIdentity(1, 1),
            is_temporary=starter is not None,
            hosts=("127.0.0.11", "127.0.0.12"),
            host_memory_mb=1,
            host_vcores=1,
            ports={},
            servers={"kafka": kafka},
            is_complete=True,
        ),
    )


def myself() -> ProcessIdentity:
    found = process_info(os.getpid())
    assert found is not None
    return found.identity


def test_what_is_not_there_or_cannot_be_is_refused_by_name(home: Path) -> None:
    written(home, "up", myself())
    written(home, "run", myself(), starter=myself())
    up = LocalCluster.attach("up")
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: LocalCluster.start("up"), "the embedded cluster 'up' is up: standfast local down --name up"),
        (
            lambda: LocalCluster.start("run"),
            f"the embedded cluster 'run' belongs to a command that runs (process {os.getpid()}): give this one another",
        ),
        (lambda: LocalCluster.start("new", nodes=-1), "nodes is -1"),
        (
            lambda: LocalCluster.start("new", brokers=2),
            "brokers is 2; it can be 1, 3, 4, 5: with two, neither may fail",
        ),
        (lambda: LocalCluster.attach("none"), "there is no embedded cluster 'none': "),
        (lambda: LocalCluster.attach("none"), "`standfast run --name none` has one for as long as it runs"),
        (lambda: up.kill_host("127.0.0.1"), "no host '127.0.0.1'; there are 127.0.0.11, 127.0.0.12"),
        (lambda: up.stop_server("hdfs"), "no server 'hdfs'; there are zookeeper, kafka, "),
        (lambda: up.start_server("nodemanager-127.0.0.11"), "is started with its host"),
        *(
            (lambda name=name: LocalCluster.attach(name), f"{name!r} cannot be a cluster's name")
            for name in ("", "Big", "a/b", "..", "x" * 32)
        ),
    ]
    for ask, why in refusals:
        with pytest.raises(BadConfiguration) as refused:
            ask()
        assert why in str(refused.value)
    assert main(["local", "status", "--name", "none"]) == 2


def test_down_needs_nothing_but_the_mark_and_kills_no_stranger(home: Path) -> None:
    mark = str(uuid.uuid4())
    with (
        subprocess.Popen(["sleep", "1000"]) as stranger,
        subprocess.Popen(["sleep", "1000"], env={**os.environ, "STANDFAST_LOCAL_CLUSTER": mark}) as own,
    ):
        born = process_info(stranger.pid)
        assert born is not None
        # What is written down says that the stranger's number was a server's, which has ended since.
        former = ProcessIdentity(stranger.pid, born.identity.started_ticks - 1)
        written(home, "crash", former, mark)
        try:
            assert main(["local", "down", "--name", "crash"]) == 0
            assert own.wait(PATIENCE_SECONDS) == -signal.SIGKILL
            assert is_alive(born.identity)
            assert not is_alive(former)
        finally:
            stranger.kill()
            own.kill()
    assert main(["local", "down", "--name", "crash"]) == 0, "there is nothing any more"
