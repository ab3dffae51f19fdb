"""A node: it keeps a process running, each with a new id and directory, and its state directory to itself."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from standby import node
from standby.cluster import ClusterConfig
from standby.errors import BadConfiguration
from standby.node import NodeSettings
from standby.security.credentials import Bootstrap, Credentials
from standby.security.private_files import write_private
from standby.shared.model import NodeOffer
from standby.shared.records import encode_offer
from tests.interrupted import before_each_line
from tests.patience import PATIENCE_SECONDS

#: Writes down what it was given, and ends with that life's status of its arguments; the last one ends the node first.
LIVES = """
import json, os, pathlib, signal, sys
told = pathlib.Path(sys.argv[1])
names = ("CONTAINER_ID", "LOCAL_DIRS", "NM_HOST", "STANDFAST_POOL", "STANDFAST_OFFER")
given = {each: os.environ.get(each) for each in names}
given["files"] = sorted(each.name for each in pathlib.Path().iterdir())
given["modes"] = [oct(os.stat(each).st_mode) for each in (".", *given["files"])]
given["directory"] = os.getcwd()
with told.open("a") as lines:
    print(json.dumps(given), file=lines)
life = len(told.read_text().splitlines())
if life >= len(sys.argv) - 2:
    os.kill(int(os.environ["STANDFAST_POOL"]), signal.SIGTERM)
    signal.pause()
sys.exit(int(sys.argv[1 + life]))
"""

SHORT, GOOD = 1.0, 31.0


@pytest.fixture(autouse=True)
def who_ends_this_process() -> Iterator[None]:
    """A node keeps what it does at a signal, as its process ends with it."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def settings(state: Path, host: str = "h1", **more: Any) -> NodeSettings:
    cluster = ClusterConfig("c", "zk:1", state_dirs=(str(state),))
    return NodeSettings(cluster, Bootstrap(Credentials(1, "t", "c", "k"), "s", "o"), host, **more)


def clock(waited: list[float], lived: float) -> Any:
    def pace(seconds: float) -> float:
        waited.append(seconds)
        return 0.0

    return SimpleNamespace(monotonic=itertools.count(0, lived).__next__, pace=pace)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    return directory


def node_of(state: Path, program: str) -> subprocess.Popen[bytes]:
    """Start a node, in a process of its own, that keeps a program running."""
    runs = (
        "import sys; from pathlib import Path; from standby import node; "
        "from tests.unit.standby.test_node import settings; "
        "sys.exit(node.run(settings(Path(sys.argv[1])), [sys.executable, '-c', sys.argv[2]]))"
    )
    return subprocess.Popen([sys.executable, "-c", runs, str(state), program], stdout=subprocess.PIPE)


def test_each_process_has_an_id_and_a_directory_of_its_own(state: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    mine = settings(state, host="a_host", offer=NodeOffer("gpu", tasks=4))
    program = [sys.executable, "-c", LIVES, str(told), "0", "11", "0"]
    assert node.run(mine, program, clock([], SHORT)) == -signal.SIGTERM
    lives = [json.loads(each) for each in told.read_text().splitlines()]
    assert {each["STANDFAST_OFFER"] for each in lives} == {encode_offer(NodeOffer("gpu", tasks=4))}
    assert len({each["CONTAINER_ID"] for each in lives}) == len({each["directory"] for each in lives}) == 3
    assert all(each["CONTAINER_ID"].startswith("pool_a-host-") for each in lives)
    assert {(each["NM_HOST"], each["STANDFAST_POOL"]) for each in lives} == {("a_host", str(os.getpid()))}
    # Spark takes the id for YARN's, and does not start without YARN's disks.
    assert all(each["LOCAL_DIRS"] == each["directory"] for each in lives)
    assert {tuple(each["files"]) for each in lives} == {("cluster.json", "credentials.json")}
    assert {tuple(each["modes"]) for each in lives} == {("0o40700", "0o100600", "0o100600")}, (
        "for this user only"
    )
    assert mine.work.parent == state / "c"
    assert not any(Path(each["directory"]).exists() for each in lives), "nothing of a process is left"


@pytest.mark.parametrize(
    ("lived", "statuses", "waits"),
    [
        pytest.param(SHORT, ["0", "0", "0"], [0.0, 0.0], id="given back"),
        pytest.param(SHORT, ["70"] * 8 + ["0"], [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0], id="crashes"),
        pytest.param(GOOD, ["70", "70", "0"], [0.0, 0.0], id="crashes after a while"),
        pytest.param(SHORT, ["70", "2", "0"], [0.2, 0.4], id="bad configuration later"),
        pytest.param(
            SHORT, ["0", "2", "0"], [0.0, 0.2], id="bad configuration after one that was given back"
        ),
    ],
)
def test_the_pause_before_the_next_process_depends_on_how_the_last_ones_ended(
    state: Path, tmp_path: Path, lived: float, statuses: list[str], waits: list[float]
) -> None:
    waited: list[float] = []
    program = [sys.executable, "-c", LIVES, str(tmp_path / "told"), *statuses]
    node.run(settings(state), program, clock(waited, lived))
    assert waited == waits


def test_bad_configuration_at_once_ends_the_node(state: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", LIVES, str(tmp_path / "told"), "2", "0"]
    assert node.run(settings(state), program, clock([], SHORT)) == BadConfiguration.exit_status


def test_a_disk_that_is_full_for_a_while_ends_no_node_that_runs(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, full = tmp_path / "told", iter((False, False, True, False, False))

    def write(path: Path, content: bytes) -> None:
        if next(full):
            raise OSError(errno.ENOSPC, "No space left on device")
        write_private(path, content)

    monkeypatch.setattr(node, "write_private", write)
    waited: list[float] = []
    program = [sys.executable, "-c", LIVES, str(told), "0", "0"]
    assert node.run(settings(state), program, clock(waited, SHORT)) == -signal.SIGTERM
    assert (len(told.read_text().splitlines()), waited) == (2, [0.0, 0.2])


def test_a_node_that_is_ended_between_two_processes_has_ended_as_asked(state: Path) -> None:
    def pace(seconds: float) -> float:
        signal.raise_signal(signal.SIGTERM)
        return seconds

    meanwhile: Any = SimpleNamespace(monotonic=itertools.count(0, SHORT).__next__, pace=pace)
    assert node.run(settings(state), [sys.executable, "-c", "raise SystemExit(70)"], meanwhile) == 0


def test_a_node_that_is_ended_at_any_moment_of_a_pause_ends(state: Path) -> None:
    """Its handler waited for a lock that the interrupted wait held, and nothing ended it but SIGKILL."""
    with ExitStack() as pausing:

        def pace(seconds: float) -> float:
            pausing.enter_context(before_each_line(lambda _: signal.raise_signal(signal.SIGTERM)))
            return seconds

        meanwhile: Any = SimpleNamespace(monotonic=itertools.count(0, SHORT).__next__, pace=pace)
        assert node.run(settings(state), [sys.executable, "-c", "raise SystemExit(70)"], meanwhile) == 0


def test_a_second_node_with_the_same_state_directory_is_refused(state: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", LIVES, str(tmp_path / "told"), "0"]
    holds = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    with node_of(state, holds) as first:
        assert first.stdout is not None
        process = int(first.stdout.readline())
        with pytest.raises(BadConfiguration, match="another node of cluster c on h1 uses") as refused:
            node.run(settings(state), program)
        assert str(state) in str(refused.value)
        assert node.run(settings(state, host="h2"), program, clock([], SHORT)) == -signal.SIGTERM
        first.kill()
        first.wait()
        with pytest.raises(BadConfiguration):  # its process may still write there
            node.run(settings(state), program)
        os.kill(process, signal.SIGKILL)
        assert not first.stdout.read(), "both are gone"
    (tmp_path / "told").unlink()
    assert node.run(settings(state), program, clock([], SHORT)) == -signal.SIGTERM


def test_nothing_in_a_state_directory_that_is_used_counts_as_left_over(state: Path) -> None:
    """Where systemd-tmpfiles removes old files, it skips what is below a directory that it cannot lock."""
    place = state / "c"
    with node.locked((place,), "h1.lock", "node"), node.locked((place,), "h1.master.lock", "master"):
        directory = os.open(place, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(directory)


def test_termination_is_passed_on_and_waited_for(state: Path) -> None:
    waits = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
        "print(1, flush=True); signal.pause()"
    )
    with node_of(state, waits) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.terminate()
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
