"""The counting job with any name and topics, and its expected output and state."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from appmaster.api.client import ClusterClient
from demo.command import CLI, ROOT
from demo.events import EventLog
from demo.standing import Status, parse
from demo.topics import Stamped, read_committed
from embedded.cluster import LocalCluster
from standby.ensemble import tls_of
from standby.errors import StandfastError
from standby.replica.store.keys import is_own, split
from standby.shared import naming
from tests.meanwhile import meanwhile
from tests.patience import PATIENCE_SECONDS, looks
from tests.system.yarn.running import STEADY, RunningJob, keyring
from tests.topics import make_topics

_CODE = Path(__file__).with_name("counting_job.py")

#: How often records are sent while input flows.
SENDS_PER_SECOND = 10

#: Key and value of an input record.
Pair = tuple[bytes, bytes]


class CountingJob(RunningJob):
    """One job with topics of its own: ``topic`` → ``topic-out``, and ``topic-dead`` for dead letters."""

    SUBMIT: ClassVar[tuple[str, ...]] = ("--no-probe",)
    """Options: each look at a host takes a container of its own; test_submit.py has one."""

    def __init__(
        self,
        cluster: LocalCluster,
        directory: Path,
        name: str,
        topic: str,
        partitions: int,
        also: Sequence[str] = (),
        kafka: str | None = None,
        **settings: Any,
    ) -> None:
        """``also``: more inputs; a key has to keep to one of them, or its records' order is not known.

        ``kafka``: where the test reaches the job's Kafka, which the job may reach by another port; None: the cluster's.
        """
        super().__init__(cluster, name, int(settings.get("appmaster.cells", 1)))
        self.cluster_name = settings.get("cluster.name", name)
        self.topic = topic
        self.inputs = (topic, *also)
        self.partitions = partitions
        self.taken: list[list[Pair]] = [[] for _ in range(partitions)]
        """What was produced and is to be counted."""
        self.kafka: str = kafka or cluster.kafka_bootstrap
        # One for all: an idempotent producer takes half a second and more until it sends.
        self._producer = Producer({"bootstrap.servers": self.kafka, "enable.idempotence": True})
        self._open = ExitStack()
        self.file = directory / "job.yaml"
        directory.mkdir()
        shutil.copy(_CODE, directory)
        config = {
            "job.name": name,
            "job.modules": [_CODE.name],
            "job.hotstandby.enabled": True,
            "task.inputs": list(self.inputs),
            "task.outputs": f"{topic}-out",
            "task.step": f"{_CODE.stem}:step",
            "task.feed": "plain",
            "cluster-manager.container.memory.mb": 256,
            "yarn.am.container.memory.mb": 256,
            # Of several the deployment takes longer; two_cells.py has what tests of them share.
            "appmaster.cells": 1,
            **STEADY,
            **settings,
        }
        self.file.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
        topics = (*self.inputs, f"{topic}-out", f"{topic}-dead")
        make_topics(self.kafka, [NewTopic(each, partitions, 1) for each in topics])
        self._log = EventLog(self.kafka, naming.event_topic(self.cluster_name))
        self._is_watched = False
        self._client: ClusterClient | None = None

    @property
    def log(self) -> EventLog:
        """The cluster's event log."""
        return self._log

    def submit(self, *more: str) -> subprocess.Popen[str]:
        """Begin to submit; returns the command, which ends when every replica is deployed."""
        self._watch()
        return subprocess.Popen(
            [*CLI, "submit", str(self.file), *self.SUBMIT, *more],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._log.start()
            self._open.callback(self._log.stop)

    def close(self) -> None:
        """Delete the job, wherever it is, and look no more."""
        try:
            self.standfast("delete", self.name, "--cluster", self.cluster_name, "--no-sweep")
        finally:
            self._open.close()

    @property
    def client(self) -> ClusterClient:
        """The client that asks the leader."""
        if self._client is None:
            ring, tls = keyring(self.cluster, self.cluster_name), tls_of(self.cluster.environment())
            client = ClusterClient(self.cluster_name, self.cluster.zookeeper_connect, ring, tls=tls)
            self._client = self._open.enter_context(client)
        return self._client

    def first(self, condition: Callable[[Status], bool], seconds: float) -> Status | None:
        """Return the first status, seen from now on, that meets the condition; None when none comes in time."""
        for _ in looks(seconds):
            try:
                status = parse(self.client.status())
            except StandfastError:
                status = Status()
            if status.jobs and condition(status):
                return status
        return None

    def produce(
        self, partition: int, pairs: Iterable[Pair], *, counts: bool = True, topic: str | None = None
    ) -> None:
        """Write records to a partition of an input, the first unless told otherwise, and wait for the broker.

        Those that do not count are to be left out.
        """
        pairs = list(pairs)
        for key, value in pairs:
            self._producer.produce(topic or self.topic, value, key, partition)
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        if counts:
            self.taken[partition] += pairs

    @contextmanager
    def flow(self) -> Iterator[None]:
        """Let records flow to every task during the block, fewer to further inputs; after it all is exact.

        A key keeps to its input and its task.
        """

        def work(done: threading.Event) -> None:
            begin = 0
            while not done.wait(1 / SENDS_PER_SECOND):
                numbers = range(begin, begin + 10)
                for task in range(self.partitions):
                    for topic in self.inputs[: None if begin % 30 == 0 else 1]:
                        pairs = [(f"{topic} {task} {n % 7}".encode(), b"value %d" % n) for n in numbers]
                        self.produce(task, pairs, topic=topic)
                begin += 10

        with meanwhile(work):
            yield
        self.assert_exact()

    def grow(self, partitions: int) -> None:
        """Add partitions to the inputs, up to so many."""
        client = AdminClient({"bootstrap.servers": self.kafka})
        wanted = [NewPartitions(each, partitions) for each in self.inputs]
        for future in client.create_partitions(wanted, operation_timeout=PATIENCE_SECONDS).values():
            future.result()
        self.taken += [[] for _ in range(partitions - self.partitions)]
        self.partitions = partitions
        # The one before knows the topics as they were.
        self._producer = Producer({"bootstrap.servers": self.kafka, "enable.idempotence": True})

    def dead_letters(self) -> list[Stamped]:
        """Return every committed record of the topic of dead letters."""
        return list(read_committed(self.kafka, f"{self.topic}-dead"))

    def assert_exact(self, partitions: Iterable[int] | None = None, run: str | None = None) -> None:
        """Fail unless, once their input is committed as processed, outputs and state of tasks are exact.

        ``run`` is the run id, where no leader can be asked for it.
        """
        tasks = set(range(self.partitions) if partitions is None else partitions)
        run = run or self.run_id
        self._wait_until_processed(tasks, run)
        counts: Counter[bytes] = Counter()
        owed: dict[bytes, list[bytes]] = {}
        for task in tasks:
            for key, value in self.taken[task]:
                counts[key] += 1
                owed.setdefault(key, []).append(b"%d %s" % (counts[key], value))
        others = {key for task in range(self.partitions) if task not in tasks for key, _ in self.taken[task]}
        seen: dict[bytes, list[bytes]] = {}
        for record in read_committed(self.kafka, f"{self.topic}-out"):
            if record.key not in others:
                seen.setdefault(record.key, []).append(record.value or b"")
        assert seen == owed
        changelog = naming.changelog_topic(self.cluster_name, self.name, "main", run)
        changes = [each for each in read_committed(self.kafka, changelog) if not is_own(each.key)]
        state = {split(each.key)[1]: each.value for each in changes}
        found = {key: value for key, value in state.items() if key not in others and value is not None}
        assert found == {key: b"%d" % count for key, count in counts.items()}

    def _wait_until_processed(self, tasks: set[int], run: str) -> None:
        group = naming.consumer_group(self.cluster_name, self.name, "main", run)
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": group})
        asked = [TopicPartition(topic, task) for topic in self.inputs for task in sorted(tasks)]
        try:
            ends = {
                (each.topic, each.partition): consumer.get_watermark_offsets(each, PATIENCE_SECONDS)[1]
                for each in asked
            }
            done: dict[tuple[str, int], int] = {}
            for _ in looks():
                found = consumer.committed(asked, timeout=PATIENCE_SECONDS)
                done = {(each.topic, each.partition): each.offset for each in found}
                if done == ends:
                    return
            raise AssertionError(f"processed up to {done} of {ends}\n{self.story()}")
        finally:
            consumer.close()


@contextmanager
def submitted(*jobs: CountingJob) -> Iterator[None]:
    """Deploy jobs side by side; delete them after the block."""
    with ExitStack() as stack:
        commands = []
        for job in jobs:
            commands.append(job.submit())
            stack.callback(job.close)
        # All are waited for before any is judged: none may be left behind.
        said = [command.communicate(timeout=3 * PATIENCE_SECONDS)[0] for command in commands]
        assert all(command.returncode == 0 for command in commands), "\n".join(said)
        for job in jobs:
            job.wait_until_settled()
        yield


def some(count: int, keys: int, begin: int = 0) -> list[Pair]:
    """Return so many records, the keys in turn."""
    return [(b"key %d" % (number % keys), b"value %d" % number) for number in range(begin, begin + count)]
