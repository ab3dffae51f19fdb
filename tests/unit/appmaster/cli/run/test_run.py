"""`standfast run` as far as no server is needed: what it refuses, its processes, its signals, its lines."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from rich.console import Console

from appmaster.adapters.kafka_records import TopicRecord, key_and_value
from appmaster.cli.main import main
from appmaster.cli.run import command, processes, records, servers
from appmaster.cli.run.command import forget, watch
from appmaster.cli.run.processes import RunProcess, RunProcesses, environment_of, in_time
from appmaster.cli.run.records import check_input, write_input
from appmaster.cli.run.servers import RunPlace, read_job
from appmaster.cli.run.signals import EndSignals
from appmaster.cli.run.view import RunView
from embedded.cluster import LocalCluster
from standby.adapters.kafka import clients
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared import naming
from standby.threads.latch import Latch
from tests.fakes.clock import HandClock
from tests.fakes.topics import MemoryTopics
from tests.interrupted import before_each_line
from tests.patience import PATIENCE_SECONDS, soon
from tests.unit.embedded.test_cluster import myself, written


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a job file in order that names no servers; nothing of the user's is used."""
    for each in ("STANDFAST_KAFKA", "STANDFAST_ZOOKEEPER", "STANDFAST_CREDENTIALS"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("STANDFAST_HOME", str(tmp_path / "home"))
    (tmp_path / "stepping.py").write_text("def step(rows, state, out): ...\n", encoding="utf-8")
    file = tmp_path / "job.yaml"
    file.write_text(
        'job: {name: stepping, modules: [stepping.py]}\ntask: {inputs: [in], step: "stepping:step"}\n',
        encoding="utf-8",
    )
    return file


KAFKA = ["--set", "kafka.bootstrap.servers=k:1"]
ZOOKEEPER = ["--set", "zookeeper.connect=zk:1"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--nodes", "0"], "--nodes 0: it can be 1 to 100"),
        (["--partitions", "0"], "--partitions 0"),
        (["--input", "in"], "not of the form TOPIC=FILE"),
        (["--input", "out=x"], "one of the job's inputs, in"),
        (["--input", "in=/nowhere"], "/nowhere: No such file"),
        (["--input", "in=/"], "--input: /: Is a directory"),
        (["--set", "task.step=stepping:other"], "has no function 'other'"),
        (["--set", "job.hotstandby.enable=true"], "did you mean"),
        (["--set", "code.distributor=hdfs"], "needs a Hadoop cluster"),
        (["--keep", "state", *KAFKA], "--keep: ZooKeeper would be an embedded server"),
        (["--name", "No"], "'No' cannot be a cluster's name"),
        (["--name", "up"], "the embedded cluster 'up' is up"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    written(tmp_path / "home", "up", myself())
    assert main(["run", str(job), "--plain", *more]) == 2
    assert said in capsys.readouterr().err
    assert [each.name for each in (tmp_path / "home" / "local").iterdir() if each.is_dir()] == ["up"]


def test_without_java_the_remedy_is_named(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["run", str(job)]) == 3
    assert "install a JDK of release 17 or newer" in capsys.readouterr().err


def test_servers_that_nothing_names_are_missing(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, zookeeper = "STANDFAST_KAFKA", "STANDFAST_ZOOKEEPER"
    for environment, settings, missing in (
        ({}, [], {kafka, zookeeper}),
        ({kafka: "k:1"}, [], {zookeeper}),
        ({kafka: ""}, ZOOKEEPER[1:], {kafka}),
        ({zookeeper: "zk:1"}, KAFKA[1:], set()),
    ):
        with monkeypatch.context() as named:
            for name, value in environment.items():
                named.setenv(name, value)
            assert read_job(job, settings, None)[1] == missing


def test_a_server_that_the_environment_names_is_said_to_be_from_there(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STANDFAST_KAFKA", "k:1")
    found, missing = read_job(job, ZOOKEEPER[1:], None)
    with servers.place_of(found, missing, "run", None, RunView("stepping")):
        said = capsys.readouterr().err
    assert "Kafka: k:1 (from $STANDFAST_KAFKA)\n" in said
    assert "ZooKeeper: zk:1\n" in said


@pytest.mark.parametrize(
    ("named", "stays"), [([], False), (KAFKA, True), (ZOOKEEPER, True), ([*KAFKA, *ZOOKEEPER], True)]
)
def test_what_is_left_on_a_server_that_is_not_embedded_would_stay(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str], stays: bool
) -> None:
    embedded = SimpleNamespace(
        directory=tmp_path,
        mark={"MARK": "m"},
        additional_environment=lambda: dict.fromkeys(("STANDFAST_KAFKA", "STANDFAST_ZOOKEEPER"), "e:1"),
    )
    monkeypatch.setattr(LocalCluster, "start", lambda *_, **__: embedded)
    found, missing = read_job(job, named[1::2], None)
    with servers.place_of(found, missing, "run", None, RunView("stepping")) as place:
        assert place.is_foreign == stays


def test_a_job_that_has_not_ended_in_order_is_removed_with_its_cluster() -> None:
    zookeeper, topics = ClusterLeft("stepping"), MemoryTopics()
    for each in ("out", "changelog-of-stepping", naming.event_topic("c")):
        topics.create(each, 1, 1, {})
    forget("c", zookeeper, topics, 0.0)  # type: ignore[arg-type]
    assert not zookeeper.exists
    assert list(topics.topics) == ["out"]


class ClusterLeft:
    """What a cluster of which no process runs has left in ZooKeeper."""

    def __init__(self, job: str) -> None:
        definition = SimpleNamespace(name=job, changelog=f"changelog-of-{job}")
        self._records = {job: SimpleNamespace(definition=definition)}
        self.exists = True
        self.jobs = SimpleNamespace(
            names=lambda: tuple(self._records), read=self._records.get, delete=self._records.pop
        )
        self.tree = SimpleNamespace(drop=self._drop)

    def _drop(self, patience_seconds: float) -> None:
        """Remove the tree, unless it has a job."""
        self.exists = bool(self._records)


class Leader:
    """A leader, or a ZooKeeper, that answers once it is let."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.asked, self.let = threading.Event(), threading.Event()
        self._answer = answer

    def status(self) -> dict[str, Any]:
        self.asked.set()
        self.let.wait(PATIENCE_SECONDS)
        return self._answer


def watched(leader: Leader, signals: EndSignals, look: Callable[[], object]) -> None:
    watch("stepping", leader.status, SimpleNamespace(look=look), signals, RunView("stepping"))  # type: ignore[arg-type]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no pause between two looks, and do not wait for threads."""
    monkeypatch.setattr(command, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(records, "_END_SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
def test_ctrl_c_ends_a_run_though_nothing_answers() -> None:
    leader = Leader({})
    with EndSignals() as signals:
        signals.begun()
        watched(
            leader, signals, lambda: signal.raise_signal(signal.SIGINT) if leader.asked.is_set() else None
        )
        assert not leader.let.is_set()
        signals.hurried.set()
        with pytest.raises(Unavailable, match="ZooKeeper has not answered"):
            in_time(leader.status, "ZooKeeper", PATIENCE_SECONDS, signals.hurried)
    leader.let.set()
    assert in_time(leader.status, "ZooKeeper", PATIENCE_SECONDS) == {}


@pytest.mark.usefixtures("quick")
def test_a_job_that_has_failed_ends_the_run() -> None:
    leader = Leader(status("failed", "too often"))
    leader.let.set()
    with EndSignals() as signals, pytest.raises(StandfastError, match="stepping failed: too often"):
        watched(leader, signals, lambda: None)


# ---- its processes ----


class Processes:
    """Processes that run a text of Python in place of the command line, on a clock that the test moves."""

    def __init__(self, directory: Path) -> None:
        self.clock = HandClock()
        self.clock.hold()
        self.said: list[str] = []
        self._directory = directory

    def started(self, text: str, name: str = "node 1") -> RunProcess:
        log = self._directory / f"{name}.log"
        found = RunProcess(name, ["-c", text], log, os.environ, self.said.append, self.clock)
        found.start()
        return found

    def look_at_its_end(self, process: RunProcess) -> None:
        soon(process.has_ended, "it has ended")
        process.look()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    monkeypatch.setattr(processes, "COMMAND", (sys.executable,))
    return Processes(tmp_path)


SLEEPS = "import time; time.sleep(36000)"


def killed(process: RunProcess) -> None:
    """Kill a process that runs; never this one's group, which is 0."""
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)


def test_a_process_that_is_killed_is_started_again(started: Processes) -> None:
    node = started.started(SLEEPS)
    lives = [node.pid]
    killed(node)
    started.look_at_its_end(node)
    assert "node 1 ended with signal 9 (SIGKILL); starting it again" in started.said[0]
    for seconds in (0.0, 1.0):
        started.clock.advance(seconds)
        node.look()
        lives.append(node.pid)
    assert lives[1] is None, "not at once"
    assert lives[2] not in (None, lives[0])
    node.kill()


def test_a_process_that_cannot_begin_ends_the_run_with_its_log(started: Processes, tmp_path: Path) -> None:
    node = started.started("import sys; print('the port is in use'); sys.exit(2)")
    with pytest.raises(BadConfiguration) as refused:
        started.look_at_its_end(node)
    for part in ("node 1 ended with status 2", "the port is in use", str(tmp_path / "node 1.log")):
        assert part in str(refused.value)


def test_a_process_that_ends_again_and_again_ends_the_run(started: Processes) -> None:
    node = started.started("import sys; print('no memory'); sys.exit(3)")
    for _ in range(2):
        started.look_at_its_end(node)
        started.clock.advance(10.0)
        node.look()
    with pytest.raises(StandfastError, match=r"(?s)status 3, 3 times in a row.*no memory"):
        started.look_at_its_end(node)


def test_a_process_whose_log_is_gone_cannot_be_started(tmp_path: Path) -> None:
    node = RunProcess("node 1", [], tmp_path / "removed" / "node-1.log", {}, print)
    with pytest.raises(Unavailable, match="node 1 cannot be started"):
        node.start()


def test_long_lives_are_not_counted(started: Processes) -> None:
    node = started.started(SLEEPS)
    for _ in range(4):
        started.clock.advance(60.0)
        killed(node)
        started.look_at_its_end(node)
        started.clock.advance(10.0)
        node.look()
    node.kill()


def test_a_hurried_end_kills_what_does_not_heed(started: Processes) -> None:
    deaf = started.started(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(36000)"
    )
    master = started.started(SLEEPS, "master")
    soon(lambda: deaf.log.read_text() == "deaf\n", "it ignores the signal")
    hurried = Latch()
    hurried.set()
    RunProcesses([master, deaf], started.said.append).end(hurried)
    assert deaf.has_ended()
    assert master.has_ended()
    assert started.said[:2] == ["ending the nodes", "killing node 1"]


def test_what_is_started_knows_no_yarn(tmp_path: Path) -> None:
    place = RunPlace({"STANDFAST_KAFKA": "k:1"}, tmp_path, {"MARK": "m"})
    found = environment_of(place, {"HADOOP_CONF_DIR": "/etc/hadoop", "PATH": "/bin", "STANDFAST_KAFKA": ""})
    assert found == {"PATH": "/bin", "STANDFAST_KAFKA": "k:1", "MARK": "m", "PYTHONUNBUFFERED": "1"}


# ---- its signals ----


@contextmanager
def on_hang_up(handler: signal.Handlers) -> Iterator[None]:
    """Set what SIGHUP does before a run; the tests themselves may be run with ``nohup``."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_the_start_and_the_second_one_hurries_the_end(first: int) -> None:
    clock = HandClock()
    clock.hold()
    with on_hang_up(signal.SIG_DFL), EndSignals(clock) as signals:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        signal.raise_signal(first)  # `timeout` sends it twice
        assert not signals.hurried.is_set()
        clock.advance(0.5)
        signal.raise_signal(signal.SIGINT)
        assert signals.hurried.is_set()
        with pytest.raises(KeyboardInterrupt):
            signals.begun()


def test_no_signal_interrupts_the_end_of_a_start_that_has_failed() -> None:
    with EndSignals() as signals:
        with pytest.raises(BadConfiguration), signals.until_end():
            raise BadConfiguration("no such topic")
        signal.raise_signal(signal.SIGINT)
        assert signals.asked.is_set()


def test_nohup_is_heeded() -> None:
    with on_hang_up(signal.SIG_IGN), EndSignals() as signals:
        signal.raise_signal(signal.SIGHUP)
        assert not signals.asked.is_set()


def test_a_run_that_has_begun_is_asked_and_not_interrupted() -> None:
    with EndSignals() as signals:
        signals.begun()
        signal.raise_signal(signal.SIGINT)
        assert signals.asked.wait(PATIENCE_SECONDS)


def test_a_run_is_asked_to_end_at_any_moment_of_a_wait() -> None:
    """Its handler waited for a lock that the interrupted wait held, and Ctrl-C did nothing any more."""
    clock = HandClock()
    clock.hold()
    with EndSignals(clock) as signals:
        signals.begun()
        for latch in (signals.asked, signals.hurried):
            with before_each_line(lambda _: signal.raise_signal(signal.SIGINT)):
                assert latch.wait(PATIENCE_SECONDS)
            clock.advance(0.5)


# ---- its lines ----


def status(state: str, *reasons: str) -> dict[str, Any]:
    replica = {"input_rate": 1.5, "input_lag_records": 1234, "container": "c"}
    replicas = [
        {**replica, "role": "active", "host": "127.0.0.12", "phase": "active", "in_sync": True},
        {**replica, "role": "standby", "host": None, "phase": None, "in_sync": False},
    ]
    task = {"job": "stepping", "stage": "main", "partition": 0}
    return {
        "jobs": [{"name": "stepping", "status": state, "reasons": list(reasons)}],
        "tasks": [{"task": task, "epoch": 3, "replicas": replicas}],
    }


def test_without_a_terminal_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    record = TopicRecord("out", b"key", b"value")
    with RunView("stepping", Console(file=io.StringIO())) as view:
        for each in (None, status("incomplete", "a copy is missing"), status("deployed"), status("deployed")):
            view.show(each)
        view.output([record, record])
        view.output([record])
        view.event({"kind": "container_lost", "at_ms": 0, "job": None, "reason": "it was killed", **NOTHING})
        view.event({"kind": "request_granted", "at_ms": 0, "job": "stepping", "reason": "", **NOTHING})
    lines = [each.partition(" s  ")[2] for each in capsys.readouterr().err.splitlines()]
    assert lines[:4] == [
        "stepping: waiting for the master",
        "stepping: incomplete: a copy is missing",
        "stepping: deployed",
        "first output: out: key: value",
    ]
    assert len(lines) == 5
    assert lines[4].endswith("container lost: it was killed")
    assert (view.outputs, view.state) == (3, "deployed")


#: The other fields of an entry of the event log.
NOTHING = dict.fromkeys(("task", "copy", "container", "host", "task_epoch", "data"))


def test_the_view_has_tasks_outputs_and_what_happened() -> None:
    shown = Console(file=io.StringIO(), width=120)
    view = RunView("stepping", Console(file=io.StringIO()))
    view.show(status("deployed"))
    view.output([TopicRecord("out", b"key", None)])
    view.output([TopicRecord("out", b"\x1b[2J", b"{\n" + b"x" * 10_000)])
    view.event({"kind": "failover_finished", "at_ms": 0, "job": "stepping", "reason": "", **NOTHING})
    shown.print(view.render())
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert len(text.splitlines()) < 20, "a long record does not push the rest out of the view"
    for part in (
        "stepping · deployed",
        "127.0.0.12 active",
        "nowhere waiting",
        "1,234",
        "outputs, 2 records",
        "out: key: -",
        r"out: \x1b[2J: {\nxxx",
        "failover finished",
    ):
        assert part in text, part


def test_a_terminal_may_be_closed() -> None:
    class Terminal(io.StringIO):
        is_closed = False

        def write(self, text: str) -> int:
            if self.is_closed:
                raise OSError(errno.EIO, "Input/output error")
            return len(text)

    terminal = Terminal()
    with RunView("stepping", Console(file=terminal, force_terminal=True)):
        terminal.is_closed = True


def test_a_line_of_input_is_a_key_and_a_value() -> None:
    def lines() -> Iterator[bytes]:
        yield from (b"k|v\n", b"\n", b"no key\r\n", b"k|a|b", b"|v", b"k|")

    assert list(key_and_value(lines())) == [
        (b"k", b"v"),
        (None, b"no key"),
        (b"k", b"a|b"),
        (b"", b"v"),
        (b"k", b""),
    ]


def test_what_kafka_has_refused_of_an_input_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SimpleNamespace(make=lambda *_, **__: RefusingProducer())
    monkeypatch.setattr(clients, "INPUTS_WRITER", kind)
    file = tmp_path / "in.txt"
    file.write_bytes(b"k|good\nk|bad\nk|good\nk|bad")
    said: list[str] = []
    write_input({}, "in", str(file), said.append)(threading.Event())
    assert said == [
        f"2 records of {file} are written to in",
        f"warning: 2 records of {file} are not in in: no right to write",
    ]


def test_input_from_a_closed_standard_input_is_refused(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # What Python has after `<&-`.
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["run", str(job), "--plain", "--input", "in=-"]) == 2
    assert "--input: -: standard input is closed" in capsys.readouterr().err


def test_job_file_that_is_a_pipe_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["run", str(tmp_path / "pipe"), "--plain"]) == 2
    assert "a pipe, which can be read only once; give a file" in capsys.readouterr().err


def test_the_check_of_an_input_that_is_a_pipe_does_not_end_its_writer(tmp_path: Path) -> None:
    """A check that opens it waits for the writer, whose next write then finds no reader."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    checked = threading.Thread(target=check_input, args=(str(pipe),), daemon=True)
    checked.start()
    checked.join(PATIENCE_SECONDS)
    assert not checked.is_alive()


def test_a_pipe_is_an_input_until_its_writer_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "INPUTS_WRITER", SimpleNamespace(make=lambda *_, **__: RefusingProducer()))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    said: list[str] = []
    with records.in_background(write_input({}, "in", str(pipe), said.append), "input", said.append):
        with pipe.open("wb") as writer:
            writer.write(b"k|a\nk|")
            writer.flush()
            writer.write(b"b\n")
        soon(lambda: said, "its writer has ended")
    assert said == [f"2 records of {pipe} are written to in"]


def test_a_run_ends_although_the_writer_of_its_input_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "INPUTS_WRITER", SimpleNamespace(make=lambda *_, **__: RefusingProducer()))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    over, said = threading.Event(), list[str]()
    work = threading.Thread(target=write_input({}, "in", str(pipe), said.append), args=(over,), daemon=True)
    work.start()
    with pipe.open("wb"):
        over.set()
        work.join(PATIENCE_SECONDS)
    assert said == [f"0 records of {pipe} are written to in"]


def test_input_that_cannot_be_read_any_more_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `0>file`, or on a terminal that is gone."""
    monkeypatch.setattr(clients, "INPUTS_WRITER", SimpleNamespace(make=lambda *_, **__: RefusingProducer()))
    said: list[str] = []
    with Path(os.devnull).open("wb") as write_only:
        monkeypatch.setattr(sys, "stdin", write_only)
        with records.in_background(write_input({}, "in", "-", said.append), "input", said.append):
            soon(lambda: len(said) == 2, "it is over")
    assert said[1] == "warning: --input: -: Bad file descriptor"


class RefusingProducer:
    """Of a broker that does not take records with the value `bad`."""

    def __init__(self) -> None:
        self._sent: list[tuple[bytes, Callable[[KafkaError | None, object], None]]] = []

    def produce(self, _topic: str, value: bytes, _key: bytes, on_delivery: Any = lambda *_: None) -> None:
        self._sent.append((value, on_delivery))

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right to write")
        while self._sent:
            value, tell = self._sent.pop()
            tell(refusal if value == b"bad" else None, None)
        return 0
