"""Finding and signalling processes, with real ones."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedded.machine.processes import (
    CLUSTER_MARK,
    HOST_MARK,
    Owned,
    ProcessIdentity,
    command_of,
    environment_of,
    is_alive,
    process_info,
    send_signal,
    start_detached,
    uptime_seconds,
)
from standby.errors import Unavailable

Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def spawn(*command: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[bytes]:
        # With a pipe: what it writes is the sign that it has got so far.
        process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **environment}, stdout=subprocess.PIPE
        )
        started.append(process)
        return process

    yield spawn
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = process_info(process.pid)
    assert found is not None
    return found.identity


def test_a_process_is_seen_with_command_and_environment(spawn: Spawn) -> None:
    process = spawn("sh", "-c", "echo ready; sleep 100", GREETING="hello")
    assert process.stdout is not None
    process.stdout.readline()
    assert command_of(process.pid) == ("sh", "-c", "echo ready; sleep 100")
    assert environment_of(process.pid)["GREETING"] == "hello"
    assert 0 <= uptime_seconds(identity_of(process)) < 60


def test_no_process_is_seen_where_none_is() -> None:
    assert process_info(1 << 22) is None
    assert environment_of(1 << 22) == {}
    assert command_of(1 << 22) == ()
    assert not send_signal(ProcessIdentity(1 << 22, 0), signal.SIGKILL)


def test_a_number_that_was_given_again_gets_no_signal(spawn: Spawn) -> None:
    process = spawn("sleep", "100")
    earlier = ProcessIdentity(process.pid, identity_of(process).started_ticks - 1)
    assert not is_alive(earlier)
    assert not send_signal(earlier, signal.SIGKILL)
    assert process.poll() is None


def test_a_process_that_ended_and_was_not_reaped_is_dead(spawn: Spawn) -> None:
    process = spawn("sleep", "100")
    identity = identity_of(process)
    assert send_signal(identity, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = process_info(process.pid)
    assert found is not None
    assert found.state == "Z"
    assert not found.is_alive
    assert not is_alive(identity)


def test_the_mark_the_ancestors_and_the_working_directory_all_show_whose_a_process_is(
    spawn: Spawn, tmp_path: Path
) -> None:
    hosts = {"h1": tmp_path / "h1", "h2": tmp_path / "h2"}
    work = hosts["h1"] / "local" / "work"
    work.mkdir(parents=True)
    by_mark = spawn("sleep", "100", **{CLUSTER_MARK: "c", HOST_MARK: "h1"})
    elsewhere = spawn("sleep", "100", **{CLUSTER_MARK: "c", HOST_MARK: "h2"})
    by_directory = spawn("sleep", "100", cwd=work)
    parent = spawn("sh", "-c", "env -i sleep 100 & echo $!; wait", **{CLUSTER_MARK: "c", HOST_MARK: "h1"})
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    stranger = spawn("sleep", "100", **{CLUSTER_MARK: "another"})

    owned = Owned("c", hosts)
    first = {by_mark.pid, by_directory.pid, parent.pid, child}
    assert {each.pid for each in owned.processes("h1")} == first
    assert {each.pid for each in owned.processes()} == first | {elsewhere.pid}

    assert owned.stop("h1") == 4
    assert all(each.is_stopped for each in owned.processes("h1"))
    assert owned.kill("h1") == 4
    assert owned.processes("h1") == []
    assert elsewhere.poll() is None
    assert owned.kill(first=[identity_of(elsewhere)]) == 1
    assert owned.processes() == []
    assert stranger.poll() is None


def test_a_detached_process_has_no_parent_here_and_writes_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    identity = start_detached(
        ["sh", "-c", "echo written; echo loudly >&2; exec sleep 100"],
        environment=os.environ,
        directory=tmp_path,
        log=log,
    )
    try:
        found = process_info(identity.pid)
        assert found is not None
        assert found.parent != os.getpid()
        while log.read_text(encoding="utf-8") != "written\nloudly\n":
            assert is_alive(identity)
    finally:
        send_signal(identity, signal.SIGKILL)


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="sleep cannot be started"):
        start_detached(["sleep"], environment={}, directory=tmp_path / "none", log=tmp_path / "log")
