"""What a container reads before it does anything, and what it says of itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from standby import cluster as cluster_file
from standby.adapters.http_port import HttpPages
from standby.adapters.liveness import LivenessPort
from standby.adapters.peers.server import PeerServer
from standby.cluster import ClusterConfig
from standby.control.effects import Quit
from standby.control.state import ControlPolicy, ControlState
from standby.errors import BadConfiguration, Unavailable
from standby.kernel.marks import Marks
from standby.process import container
from standby.process.container import Health, Kernel, finish, read_place, run_loop
from standby.process.witness import IN_POOL, Witnessed
from standby.shared import exits
from standby.shared.model import NodeOffer, Offsets, TaskId
from standby.shared.records import ContainerRecord
from standby.shared.roles import PeerRole
from standby.shared.wire import PROTOCOL, JobDefinition
from tests.cases import case
from tests.fakes.certificates import keys_of, write_credentials
from tests.fakes.clock import held
from tests.fakes.replicas import FakeReplicas
from tests.floods import descriptors
from tests.patience import PATIENCE_SECONDS


def test_the_place_is_what_yarn_and_skein_say_and_what_is_missing_is_named() -> None:
    place = read_place(
        {"CONTAINER_ID": "c1", "NM_HOST": "h1", "SKEIN_CONTAINER_ID": "anywhere_3", "LOG_DIRS": "/a,/b"}
    )
    assert (place.container, place.host, place.skein_id) == ("c1", "h1", "anywhere_3")
    assert place.log_dirs == ("/a", "/b")
    assert read_place({"CONTAINER_ID": "c1", "NM_HOST": "h1"}).skein_id == ""
    offer = '{"group": "gpu", "tasks": 4, "attributes": {"zone": "a"}}'
    found = read_place({"CONTAINER_ID": "c1", "NM_HOST": "h1", "STANDFAST_OFFER": offer}).offer
    assert found == NodeOffer("gpu", tasks=4, attributes={"zone": "a"})
    for named, environment in {
        "CONTAINER_ID and NM_HOST: ": {},
        "NM_HOST: ": {"CONTAINER_ID": "c1"},
        "CONT": {"NM_HOST": "h"},
    }.items():
        with case(named), pytest.raises(BadConfiguration, match=f"^{named}"):
            read_place(environment)


def test_a_process_that_cannot_open_its_ports_does_not_wait_in_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be claimed, and so would the next one, for ever."""
    write_credentials(tmp_path)
    (tmp_path / cluster_file.FILE).write_bytes(cluster_file.dump(ClusterConfig("c", "zk:1", is_pool=True)))
    registered: list[object] = []
    monkeypatch.setattr(container, "LogFiles", lambda _: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(container, "PoolMembership", lambda *given: registered.append(given))
    # Of no host (RFC 5737).
    place = {"CONTAINER_ID": "pool_h-1", "NM_HOST": "203.0.113.1", IN_POOL: "1"}
    with pytest.raises(Unavailable, match=r"cannot listen on 203\.0\.113\.1"):
        container.run(tmp_path, place, lambda *_: pytest.fail("nothing is to be made"), Witnessed())
    assert not registered


def test_a_loop_that_does_not_turn_for_five_seconds_is_not_healthy() -> None:
    clock = held()
    state = ControlState(
        ContainerRecord("c", "anywhere_0", 1, "h", 1, 2, 3, PROTOCOL, "1"), ControlPolicy(orphan_timeout_ms=1)
    )
    loop: Any = SimpleNamespace(turns=7, state=state)
    health = Health(loop, clock)
    for turned, passed, is_well in ((0, 0, True), (0, 4, True), (0, 1, False), (1, 1, True), (0, 4, True)):
        loop.turns += turned
        clock.advance(passed)
        assert health.look()[0] is is_well, (turned, passed)


@pytest.mark.parametrize(
    ("code", "purge", "hangs", "expected", "done"),
    [
        (exits.ORDERLY, True, None, exits.ORDERLY, ["close", "purge"]),
        (exits.ORPHANED, False, None, exits.ORPHANED, ["close"]),
        (exits.ORDERLY, True, "close", exits.UNCLEAN, ["close", "purge"]),
        (exits.ORDERLY, True, "purge", exits.UNCLEAN, ["close", "purge"]),
        # What the disk did not do in time is not tried again.
        (exits.BROKEN, False, "close", exits.BROKEN, []),
        (exits.UNCLEAN, False, "close", exits.UNCLEAN, []),
    ],
)
def test_a_disk_that_hangs_does_not_keep_the_process(
    code: int, purge: bool, hangs: str | None, expected: int, done: list[str]
) -> None:
    clock, hold, seen = held(), threading.Event(), list[str]()

    def act(name: str) -> None:
        seen.append(name)
        if name == hangs:
            clock.advance(60)
            assert hold.wait(PATIENCE_SECONDS)
        else:
            clock.advance(5)

    kernel = Kernel(FakeReplicas(), tuple, lambda _: act("purge"), close=lambda: act("close"))
    job = JobDefinition("j", "r", {}, "c", "g", 1)
    ended = finish(Quit(code, "asked", purge=purge), kernel, (job,), clock)
    hold.set()
    assert (ended.code, seen) == (expected, done)
    assert ended.reason.startswith("asked")


def test_an_error_of_the_disk_does_not_keep_the_process_from_the_rest_of_its_end() -> None:
    purged: list[JobDefinition] = []

    def fail() -> None:
        raise OSError("no such device")

    kernel = Kernel(FakeReplicas(), tuple, purged.append, close=fail)
    job = JobDefinition("j", "r", {}, "c", "g", 1)
    ended = finish(Quit(exits.ORDERLY, "asked", purge=True), kernel, (job,))
    assert (ended.code, purged) == (exits.UNCLEAN, [job])
    assert "no such device" in ended.reason


def test_an_error_of_the_loop_is_of_no_task_also_if_code_goes_on() -> None:
    kept: list[object] = []
    marks = Marks(lambda *entry: kept.append(entry))
    task = TaskId("j", "main", 0)

    def fail() -> Quit:
        raise RuntimeError

    loop: Any = SimpleNamespace(run=fail)
    with marks.step(task, Offsets((1,))):
        with pytest.raises(RuntimeError):
            run_loop(loop, marks)
        with marks.step(task, Offsets((2,))):
            assert kept[1:] == [((), None)]


@pytest.mark.parametrize(
    "given",
    [
        "logging.shutdown = threading.Event().wait; container._LAST_SECONDS = 0",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
        "threading.Thread.start = None",
    ],
)
def test_neither_a_log_that_hangs_nor_want_of_descriptors_or_threads_keeps_the_process(given: str) -> None:
    ends = (
        f"import logging, threading; from standby.process import container; {given}\n"
        f"container.end_process({exits.UNCLEAN}, container.WitnessNote())"
    )
    ended = subprocess.run([sys.executable, "-c", ends], check=False, timeout=PATIENCE_SECONDS)
    assert ended.returncode == exits.UNCLEAN


def test_a_loop_that_is_stuck_in_its_log_ends_the_process_as_one_that_is_stuck() -> None:
    """Another status would count as the fault of what a job's code was running on."""
    ends = (
        "import threading, types; from standby.process import container; container._LAST_SECONDS = 0\n"
        "container._LOG.log = lambda *_: threading.Event().wait()\n"
        "container._stuck(types.SimpleNamespace(turns=7), container.WitnessNote())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", ends], capture_output=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert ended.returncode == exits.STUCK


def test_the_port_accepts_until_it_is_closed() -> None:
    port = LivenessPort("127.0.0.1")
    for _ in range(300):
        socket.create_connection(("127.0.0.1", port.port), timeout=PATIENCE_SECONDS).close()
    port.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.port), timeout=PATIENCE_SECONDS)


def test_the_port_is_the_first_thing_that_closes_when_the_process_dies() -> None:
    port = LivenessPort("127.0.0.1")
    try:
        with socket.socket() as later:
            assert port._socket.fileno() > later.fileno(), "Linux closes from the highest number down"
    finally:
        port.close()


def test_a_low_limit_of_descriptors_is_no_obstacle() -> None:
    with descriptors(1024):
        port = LivenessPort("127.0.0.1")
        socket.create_connection(("127.0.0.1", port.port), timeout=PATIENCE_SECONDS).close()
        port.close()


@pytest.mark.parametrize(
    "begin",
    [
        "from standby.process import container; container.main = show; import standby.__main__ as it; it.start()",
        "import appmaster.__main__ as it; it._run = show; it.main()",
    ],
)
def test_a_program_may_open_as_many_files_as_its_hard_limit_says(begin: str) -> None:
    """Under systemd the soft one is 1,024, which a container with some dozens of replicas exceeds."""
    program = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (300, 900))\n"
        "def show(*_): print(r.getrlimit(r.RLIMIT_NOFILE))\n" + begin
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[4])}
    shown = subprocess.check_output(
        [sys.executable, "-c", program], env=environment, timeout=PATIENCE_SECONDS
    )
    assert shown == b"(900, 900)\n"


def test_a_host_that_is_not_this_one_is_named_by_each_port() -> None:
    ports: tuple[Callable[[str], object], ...] = (
        LivenessPort,
        HttpPages,
        lambda host: PeerServer(host, keys_of(PeerRole.CONTAINER)),
    )
    for each in ports:
        with case(each), pytest.raises(Unavailable, match=r"NM_HOST: .*192\.0\.2\.1"):
            each("192.0.2.1")
