"""`standfast run` on real servers: from the command to the first output, over a kill, to an end that leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from demo.command import CLI, ROOT
from demo.topics import read_committed
from embedded.cluster import LocalCluster
from standby.shared import naming
from tests.patience import PATIENCE_SECONDS, soon

JOB = ROOT / "examples" / "temperatures" / "temperatures.yaml"
CITIES = ("berlin", "madrid", "oslo", "lisbon")


class RunCommand:
    """The command, its lines, and its standard input, which it writes to the job's input."""

    def __init__(self, home: Path, environment: Mapping[str, str], *more: str) -> None:
        self._home = home
        self._lines: list[str] = []
        self._sent: Counter[str] = Counter()
        given = {k: v for k, v in os.environ.items() if k not in ("STANDFAST_KAFKA", "STANDFAST_ZOOKEEPER")}
        own = {"STANDFAST_HOME": str(home), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [*CLI, "run", str(JOB), "--plain", "--input", "readings=-", "--json", *more],
            cwd=ROOT,
            env={**given, **own, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line.rstrip())

    @property
    def text(self) -> str:
        """All lines so far."""
        return "\n".join(self._lines)

    def says(self, text: str) -> None:
        """Wait for a line with ``text``."""
        soon(
            lambda: text in self.text or self.process.poll() is not None,
            lambda: f"no line with {text!r}:\n{self.text}",
            3 * PATIENCE_SECONDS,
        )
        assert text in self.text, self.text

    def send(self, count: int) -> None:
        """Write ``count`` readings of each city."""
        assert self.process.stdin is not None
        for city in CITIES * count:
            self._sent[city] += 1
            self.process.stdin.write(f"{city}|20.0\n")
        self.process.stdin.flush()

    def kafka(self) -> str:
        """Return the brokers that it has named."""
        found = re.search(r"Kafka: (\S+)", self.text)
        assert found is not None, self.text
        return found[1]

    def await_exact(self) -> None:
        """Wait until each reading has its one output, with the right number."""
        owed = sorted((city, each + 1) for city, count in self._sent.items() for each in range(count))

        def found() -> list[tuple[str, int]]:
            records = read_committed(self.kafka(), "summaries")
            return sorted((each.key.decode(), json.loads(each.value or b"")["readings"]) for each in records)

        soon(lambda: len(found()) >= len(owed), lambda: f"{found()}\n{self.text}", 3 * PATIENCE_SECONDS)
        assert found() == owed, self.text

    def node(self, number: int) -> psutil.Process:
        """Return the process of a node."""
        host = f"127.0.0.{11 + number}"
        mine = psutil.Process(self.process.pid).children()
        return next(each for each in mine if {"node", host} <= set(each.cmdline()))

    def processes(self) -> list[psutil.Process]:
        """Return every process that has this run's home in its environment, whatever became of its parent."""
        found = []
        for each in psutil.process_iter():
            try:
                if each.environ().get("STANDFAST_HOME") == str(self._home):
                    found.append(each)
            except psutil.Error:
                continue
        return found

    def end(self, number: signal.Signals = signal.SIGINT) -> dict[str, object]:
        """End it by a signal; return what it prints in JSON. Nothing of it may be left."""
        self.process.send_signal(number)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.text
        assert self.process.stdout is not None
        answer: dict[str, object] = json.loads(self.process.stdout.read())
        assert self.processes() == [], self.text
        local = self._home / "local"
        assert not local.exists() or [each for each in local.iterdir() if each.is_dir()] == []
        return answer

    def close(self) -> None:
        """Kill what a failed test has left."""
        for each in self.processes():
            each.kill()
        self.process.wait(PATIENCE_SECONDS)


@contextmanager
def running(home: Path, environment: Mapping[str, str], *more: str) -> Iterator[RunCommand]:
    command = RunCommand(home, environment, *more)
    try:
        yield command
    finally:
        command.close()


def test_a_job_runs_with_all_it_needs_over_a_kill_until_ctrl_c_and_nothing_is_left(tmp_path: Path) -> None:
    with running(tmp_path, {}) as run:
        run.says("the job is submitted")
        run.send(5)
        run.says("first output: summaries: ")
        run.says("temperatures: deployed")
        node = run.node(1)
        node.kill()
        run.says("node 1 ended with signal 9 (SIGKILL); starting it again")
        run.send(5)
        run.await_exact()
        soon(lambda: run.node(1).pid != node.pid, "it is started again")
        answer = run.end()
        assert answer["job"] == "temperatures"


def test_given_servers_are_used_and_left_without_its_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    kafka = cluster.kafka_bootstrap
    name = f"run-{os.getpid()}"
    environment = {"STANDFAST_KAFKA": kafka, "STANDFAST_ZOOKEEPER": cluster.zookeeper_connect}
    admin = AdminClient({"bootstrap.servers": kafka})
    with running(tmp_path, environment, "--cluster", name, "--create-topics") as run:
        run.says("the job is submitted")
        run.send(2)
        run.says("first output: summaries: ")
        run.await_exact()
        run.end(signal.SIGTERM)
    topics = set(admin.list_topics(timeout=PATIENCE_SECONDS).topics)
    for each in admin.delete_topics(["readings", "summaries"]).values():
        each.result(PATIENCE_SECONDS)
    assert {"readings", "summaries"} <= topics, "they are the user's"
    assert naming.event_topic(name) not in topics
    assert [each for each in topics if name in each] == []
