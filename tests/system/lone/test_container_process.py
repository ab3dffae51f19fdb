"""The container's process as YARN would start it: real ZooKeeper, real TLS stream, a leader that the test controls.

The kernel is a fake here, so that what is seen is the process around it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kazoo.exceptions import NoNodeError

from appmaster.adapters.look import Look, look_at
from embedded.web import open_url
from standby.cluster import ClusterConfig, dump
from standby.process.witness import READ
from standby.security.credentials import FILE as CREDENTIALS
from standby.shared import exits
from standby.shared.exits import ProcessEnd
from standby.shared.model import Phase, ReplicaId, Role, TaskId, Wanted
from standby.shared.naming import container_path, controller_path
from standby.shared.records import ContainerRecord, decoded, encode
from standby.shared.roles import PeerRole
from standby.shared.wire import Heartbeat, Hello, JobDefinition, Report, decode_end
from tests.fakes.certificates import keys_of, write_credentials
from tests.fakes.jobs import JOB
from tests.fakes.leader import ScriptedLeader, Session
from tests.fakes.replicas import BREAKS, SPINS
from tests.fakes.zookeeper import SESSION_MS, LoneZooKeeper
from tests.patience import PATIENCE_SECONDS, soon
from tests.servers.ensemble import Ensemble

ROOT = Path(__file__).parents[3]
HEARTBEAT_MS = 100
CONTAINER = "container_1700000000000_0001_01_000002"
FLIGHTS = JobDefinition("flights", "r1", {**JOB, "job.name": "flights"}, "changelog", "group", 1)


def wanted(partition: int = 0, role: Role = Role.ACTIVE, epoch: int = 1) -> Wanted:
    return Wanted(ReplicaId(TaskId("flights", "main", partition), 0), role, epoch)


def assign(session: Session, replica: Wanted, *, epoch: int = 1, number: int = 1) -> Report:
    """Assign a replica to a container; return its report of that."""
    session.assign(number, epoch=epoch, replicas=(replica,), jobs=(FLIGHTS,))
    return session.wait_for(Report, lambda each: each.number == number)


class Process:
    """A container's process and what it leaves behind."""

    def __init__(
        self,
        directory: Path,
        config: ClusterConfig,
        environment: Mapping[str, str],
        module: str = "tests.fakes.container",
    ) -> None:
        (directory / "cluster.json").write_bytes(dump(config))
        self.config = config
        self.log = directory / "container.log"
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=directory,
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(ROOT),
                    "GRPC_VERBOSITY": "ERROR",
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """The process itself: what was started is its witness."""
        (own,) = psutil.Process(self.popen.pid).children()
        return own.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ends(self) -> int:
        """Return its exit code."""
        return self.popen.wait(PATIENCE_SECONDS)

    def text(self) -> str:
        return self.log.read_text()

    def kill(self) -> None:
        """End what still runs of it."""
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()


class Stage:
    """ZooKeeper, and a directory for one container."""

    def __init__(self, zookeeper: LoneZooKeeper | Ensemble, directory: Path, name: str) -> None:
        self.zookeeper = zookeeper
        self.directory = directory
        self.name = name
        self.client: Any = zookeeper.client()
        self.processes: list[Process] = []

    def container(self, **settings: Any) -> Process:
        """Start the container, with credentials."""
        write_credentials(self.directory)
        return self.bare_container(
            {"CONTAINER_ID": CONTAINER, "NM_HOST": "127.0.0.11", "SKEIN_CONTAINER_ID": "anywhere_0"},
            **settings,
        )

    def bare_container(self, environment: Mapping[str, str], **settings: Any) -> Process:
        """Start the container without writing any file but its settings."""
        config = ClusterConfig(
            self.name,
            self.zookeeper.connect,
            zookeeper_session_ms=settings.pop("session_ms", 10_000),
            zookeeper_acl="open",
            heartbeat_interval_ms=HEARTBEAT_MS,
            orphan_timeout_ms=settings.pop("orphan_ms", 30_000),
        )
        assert not settings
        process = Process(self.directory, config, environment)
        self.processes.append(process)
        return process

    @contextmanager
    def leader(self, epoch: int = 1) -> Iterator[ScriptedLeader]:
        """Have a leader whose znode says where it is; the znode goes when the block ends."""
        with ScriptedLeader(keys_of(PeerRole.MASTER), epoch=epoch, candidate=f"c{epoch}") as leader:
            self.announce(leader)
            yield leader
        self.withdraw()

    def announce(self, leader: ScriptedLeader) -> None:
        path = controller_path(self.name)
        self.withdraw()
        self.client.create(path, encode(leader.record), makepath=True)

    def withdraw(self) -> None:
        if self.client.exists(controller_path(self.name)):
            self.client.delete(controller_path(self.name))

    def czxid(self) -> int | None:
        stat = self.client.retry(self.client.exists, container_path(self.name, CONTAINER))
        return None if stat is None else int(stat.czxid)

    def record(self) -> ContainerRecord:
        """Return what the container has registered."""
        return decoded(self.client.get(container_path(self.name, CONTAINER))[0], "", ContainerRecord)

    def close(self) -> None:
        for each in self.processes:
            each.kill()
        self.client.stop()
        self.client.close()


@pytest.fixture
def stage(server: LoneZooKeeper, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(server, tmp_path, str(request.node.name))
    yield stage
    stage.close()
    for each in stage.processes:
        print(each.text())


def get(hello: Hello, path: str) -> tuple[int, str]:
    """Return status and body of the container's HTTP port."""
    try:
        with open_url(f"http://{hello.host}:{hello.http_port}{path}", timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def accepts(hello: Hello) -> bool:
    """Return whether the container's port accepts, as the leader probes it."""
    try:
        with socket.create_connection((hello.host, hello.port), timeout=PATIENCE_SECONDS):
            return True
    except ConnectionRefusedError:
        return False


def told_end(hello: Hello) -> ProcessEnd | None:
    """Return what the process's witness says at its port."""
    with socket.create_connection((hello.host, hello.port), timeout=PATIENCE_SECONDS) as asking:
        said = asking.makefile("rb").readline()
        asking.sendall(READ)
    return decode_end(said)


def metric(hello: Hello, name: str) -> float:
    for line in get(hello, "/metrics")[1].splitlines():
        if line.startswith(name):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"no {name}")


# ---- the start ----


def test_it_introduces_itself_and_is_what_it_says(stage: Stage) -> None:
    with stage.leader() as leader:
        process = stage.container()
        session = leader.session()
        hello = session.hello
        assert (hello.container, hello.skein_id, hello.host) == (CONTAINER, "anywhere_0", "127.0.0.11")
        assert (hello.pid, hello.incarnation) == (process.pid, stage.czxid())
        assert (hello.replicas, hello.leftovers, hello.controller_epoch) == ((), (), 0)
        data, _ = stage.client.get(container_path(stage.name, CONTAINER))
        record = decoded(data, "", ContainerRecord)
        assert (record.port, record.http_port, record.pid) == (hello.port, hello.http_port, hello.pid)
        assert all(accepts(hello) for _ in range(300)), "more connections than any backlog holds"
        session.wait_for(Heartbeat, lambda each: each.sequence == 5)
        report = session.wait_for(Report)
        assert report.rss_bytes > 10_000_000
        status, body = get(hello, "/healthz")
        assert (status, json.loads(body)["led"]) == (200, True)
        assert metric(hello, "standfast_is_led") == 1
        assert metric(hello, 'standfast_process_rss_bytes{of="self"}') > 10_000_000
        assert get(hello, "/")[0] == 404


def test_what_keeps_it_from_starting_is_reported(stage: Stage) -> None:
    for host, credentials, status in (("127.0.0.11", False, 2), ("192.0.2.1", True, 3)):
        if credentials:
            write_credentials(stage.directory)
        process = stage.bare_container({"CONTAINER_ID": CONTAINER, "NM_HOST": host})
        assert process.ends() == status
        assert (host if credentials else CREDENTIALS) in process.text()
        assert "Traceback" not in process.text()


def test_heartbeats_come_while_user_code_keeps_the_interpreter_busy(stage: Stage) -> None:
    """It does so for as long as the process lives."""
    with stage.leader() as leader:
        stage.container()
        session = leader.session()
        assign(session, wanted(SPINS))
        session.wait_for(Heartbeat, after=len(session.received) + 30)


# ---- leaders come and go ----


def test_a_cut_stream_is_opened_again_to_the_successor_with_everything_held(stage: Stage) -> None:
    stage.container()
    with stage.leader(epoch=1) as first:
        session = first.session()
        assign(session, wanted(), number=4)
    with ScriptedLeader(keys_of(PeerRole.MASTER), epoch=2, candidate="b") as second:
        stage.announce(second)
        again = second.session()
        assert again.hello.controller_epoch == 1
        assert again.hello.incarnation == session.hello.incarnation
        assert [each.phase for each in again.hello.replicas] == [Phase.ACTIVE]
        assert again.wait_for(Report).number == 0, "numbers are the new leader's"


# ---- the end ----


@pytest.mark.parametrize("how", ["SIGTERM", "exit"])
def test_it_closes_in_order_says_so_and_leaves_nothing(stage: Stage, how: str) -> None:
    with stage.leader() as leader:
        process = stage.container(session_ms=20_000)
        session = leader.session()
        assign(session, wanted())
        if how == "exit":
            session.exit()
        else:
            process.send(signal.SIGTERM)
        assert process.ends() == exits.ORDERLY
        assert stage.czxid() is None, "the session would have lived for 20 s"
        session.wait_for(Report, lambda each: [one.phase for one in each.replicas] == [Phase.CLOSED])
        assert session.is_over.wait(PATIENCE_SECONDS)
        assert not accepts(session.hello)


def test_a_broken_kernel_ends_it_at_once(stage: Stage) -> None:
    with stage.leader() as leader:
        process = stage.container()
        session = leader.session()
        session.assign(1, replicas=(wanted(BREAKS),), jobs=(FLIGHTS,))
        end = told_end(session.hello) if session.is_over.wait(PATIENCE_SECONDS) else None
        assert end is not None
        assert (end.status, end.ran) == (exits.BROKEN, ())
        assert process.ends() == exits.BROKEN
        assert "the JVM is gone" in process.text()
        assert session.is_over.wait(PATIENCE_SECONDS)


def test_a_killed_process_has_a_witness_or_refuses_before_its_stream_ends(stage: Stage) -> None:
    """What the leader sees as a broken stream must be provable as a death at once, on a busy machine, too."""
    with stage.leader() as leader:
        for number in range(10):
            process = stage.container(session_ms=SESSION_MS)
            session = leader.session()
            is_alone = number % 2 == 0
            if is_alone:
                process.send(signal.SIGKILL)
            else:
                process.popen.kill()
            assert session.is_over.wait(PATIENCE_SECONDS)
            if is_alone:
                end = told_end(session.hello)
                assert end is not None
                assert (end.status, end.ran) == (-signal.SIGKILL, ())
                assert process.ends() == 128 + signal.SIGKILL
            else:
                assert not accepts(session.hello)
                process.ends()
            # The next one of this name would wait for its session's end.
            with suppress(NoNodeError):
                stage.client.delete(container_path(stage.name, CONTAINER))


# ---- standing still ----


def test_a_process_that_stood_still_past_its_session_comes_back_by_itself(stage: Stage) -> None:
    process = stage.container(session_ms=1_500)
    with ScriptedLeader(keys_of(PeerRole.MASTER), epoch=1) as first:
        stage.announce(first)
        session = first.session()
        assign(session, wanted())
        process.send(signal.SIGSTOP)
        soon(lambda: stage.czxid() is None, "its session ends")
        assert accepts(session.hello), "stopped is not dead"
    with stage.leader(epoch=2) as second:
        process.send(signal.SIGCONT)
        while (again := second.session()).hello.incarnation == session.hello.incarnation:
            assert again.is_over.wait(PATIENCE_SECONDS), "the former incarnation's stream is left"
        assert again.hello.incarnation == stage.czxid()
        assert again.hello.controller_epoch == 1
        assert [each.phase for each in again.hello.replicas] == [Phase.ACTIVE], (
            "its inventory, for the leader to judge"
        )
        report = assign(again, wanted(role=Role.STANDBY, epoch=2), epoch=2)
        assert [each.phase for each in report.replicas] == [Phase.TAILING]
    assert process.popen.poll() is None


def test_the_witness_of_a_stopped_process_says_so_in_its_place(stage: Stage) -> None:
    with stage.leader() as leader:
        process = stage.container()
        hello = leader.session().hello

        def seen() -> Look:
            return asyncio.run(look_at(hello.host, hello.port))

        for _ in range(3):
            soon(lambda: seen() == Look(), "it takes connections itself")
            process.send(signal.SIGSTOP)
            soon(lambda: seen() == Look(is_running=False, is_still=True), "its witness answers")
            process.send(signal.SIGCONT)


def test_a_short_stop_costs_no_stream(stage: Stage) -> None:
    with stage.leader() as leader:
        process = stage.container(session_ms=10_000)
        session = leader.session()
        session.wait_for(Heartbeat, lambda each: each.sequence == 2)
        process.send(signal.SIGSTOP)
        time.sleep(1.5)
        seen = len(session.received)
        process.send(signal.SIGCONT)
        session.wait_for(Heartbeat, after=seen + 10)
        assert not session.is_over.is_set()
