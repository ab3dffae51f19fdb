"""A job on a real broker for tests of the kernel, and containers that hold its replicas.

`Lab` owns the job's topics, produces input, and compares output, changelog and local state with the model.
`local` creates a kernel in this process; `Child` one in a separate process, which can be killed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from standby.adapters.kafka.broker import connect
from standby.adapters.rocksdict import open_database
from standby.config import CHANGELOG_RECORD_BYTES
from standby.feed.functions import step_of
from standby.feed.plain import PlainFeed
from standby.kernel.environment import Environment
from standby.kernel.ports import Profile, StepFunction
from standby.kernel.probes import Probe, no_probe
from standby.kernel.replicas import LocalReplicas
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.restore.fetch import Peers
from standby.ports import MakeFeed, RecordReader
from standby.replica.outbox import Headers
from standby.replica.store.keys import is_own, prefix, split
from standby.replica.store.origin import DATABASE
from standby.shared.model import InputFailures, Phase, ReplicaId, ReplicaStatus, Role, TaskId, Wanted
from standby.shared.naming import state_path
from standby.shared.wire import JobDefinition
from tests.fakes.clock import WallClock
from tests.fakes.ledger_job import END, STORES, Model
from tests.fakes.records import FileRecords
from tests.meanwhile import meanwhile
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS
from tests.topics import make_topics

ROOT = Path(__file__).parents[1]
CLUSTER = "lab"

#: Records of transactions, and whether each was committed; otherwise it was aborted.
Transactions = Iterable[tuple[Sequence[tuple[bytes, "bytes | None"]], bool]]


def difference(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    """Return the differences of the first few keys, for the message of a failure."""
    keys = sorted(each for each in {*found, *expected} if found.get(each) != expected.get(each))
    lines = [f"{len(keys)} of {len(expected)} keys differ"]
    for key in keys[:5]:
        one, other = found.get(key), expected.get(key)
        if isinstance(one, list) and isinstance(other, list):
            same = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
            )
            lines.append(f"{key!r}: {len(one)} found, {len(other)} expected, the first {same} are the same")
            one, other = one[same : same + 4], other[same : same + 4]
        lines.append(f"{key!r}: found {one!r}, expected {other!r}")
    return "\n".join(lines)


class Lab:
    """One job with fresh topics."""

    INPUTS: ClassVar[tuple[str, ...]] = ("in",)
    BROKERS: ClassVar[tuple[int, ...]] = ()
    """The brokers of inputs and changelog, one for each task; the first has the outputs; (): any broker."""
    REPLICAS: ClassVar[int] = 1
    """How many brokers have each partition."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        tasks: int = 2,
        changelog_policy: str = "compact",
        **config: str,
    ) -> None:
        self.bootstrap, self.directory, self.tasks = bootstrap, directory, tasks
        name = f"ledger-{uuid.uuid4().hex[:10]}"
        self.inputs = tuple(f"{name}-{each}" for each in self.INPUTS)
        flat = {
            "job.name": name,
            "cluster.name": CLUSTER,
            "task.inputs": ",".join(self.inputs),
            "task.outputs": f"{name}-out",
            "task.stores": ",".join(STORES),
            "task.step": "tests.fakes.ledger_job:step",
            "task.feed": "plain",
            "task.batch.max.records": "100",
            "job.state.dir": str(directory / "state"),
            "kafka.bootstrap.servers": bootstrap,
            "zookeeper.connect": "unused:1",
            **config,
        }
        self.definition = JobDefinition(name, "run-1", flat, f"{name}-changelog", f"{name}-group", tasks)
        self.records = FileRecords(directory / "records.json")
        self._named: dict[int, tuple[int, int, bool]] = {}
        self.input: list[list[tuple[int, bytes, bytes]]] = [[] for _ in range(tasks)]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "enable.idempotence": True,
                "message.max.bytes": CHANGELOG_RECORD_BYTES,
            }
        )
        self._number = 0
        self._ends: dict[tuple[str, int], int] = {}
        large = {"max.message.bytes": str(CHANGELOG_RECORD_BYTES)}
        placed: dict[str, Any] = {"replication_factor": self.REPLICAS}
        shown = placed
        if self.BROKERS:
            placed = {"replica_assignment": [[each] for each in self.BROKERS]}
            # Each task writes to all of its partitions.
            shown = {"replica_assignment": [[self.BROKERS[0]]] * tasks}
        topics = [
            *(NewTopic(each, tasks, config=large, **placed) for each in self.inputs),
            NewTopic(f"{name}-out", tasks, **shown),
            NewTopic(
                f"{name}-changelog", tasks, config={"cleanup.policy": changelog_policy, **large}, **placed
            ),
        ]
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        make_topics(bootstrap, topics)

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        return tuple(TaskId(self.definition.name, "main", each) for each in range(self.tasks))

    def name(
        self,
        copy: int,
        epoch: int,
        *,
        claimed: bool = False,
        failures: Mapping[int, InputFailures] | None = None,
    ) -> None:
        """Write, as the leader does, that ``copy`` is the active of every task at ``epoch``."""
        self._named = dict.fromkeys(range(self.tasks), (copy, epoch, claimed))
        self.records.write(self._named, failures)

    def wanted(self, copy: int, role: Role, epoch: int) -> tuple[Wanted, ...]:
        """Return the assignment of this copy of every task."""
        return tuple(Wanted(ReplicaId(task, copy), role, epoch) for task in self.task_ids)

    @property
    def jobs(self) -> Mapping[str, JobDefinition]:
        return {self.definition.name: self.definition}

    def promote(self, container: Holder, copy: int, epoch: int) -> None:
        """Make the copies in ``container`` the actives at ``epoch``, which is 1 for the first ones of a run."""
        self.name(copy, epoch, claimed=epoch > 1)
        container.want(copy, Role.ACTIVE, epoch)

    def settle(self, active: Holder, standby: Holder) -> None:
        """Wait until ``active``, with copies 0 at epoch 1, has processed some input, and copies 1 tail it."""
        self.promote(active, 0, 1)
        standby.want(1, Role.STANDBY, 1)
        self.produce(100)
        active.await_processed()
        standby.await_phase(Phase.TAILING)

    def produce(self, count: int, keys: int = 20, padding: bytes = b"") -> None:
        """Write records to all partitions, and remember them; ``padding`` is appended to most values."""
        lock, delivered = threading.Lock(), []

        def note(error: Any, message: Any) -> None:
            assert error is None, error
            assert message.offset() is not None, "where it is the broker did not say"
            assert message.offset() >= 0, "where it is the broker did not say"
            with lock:
                where = (message.topic(), message.partition())
                delivered.append((where, message.offset(), message.key(), message.value()))

        for _ in range(count):
            self._number += 1
            partition = self._number % self.tasks
            # A key stays in one of the inputs, because the model knows only the order within one.
            number = int(len(self.inputs) > 1 and self._number // self.tasks % 4 == 3)
            topic = self.inputs[number]
            key = f"{partition}/{'also ' * number}{self._number * 7 % keys}".encode()
            value = END if self._number % 11 == 0 else f"value {self._number}".encode() + padding
            self._producer.produce(topic, value, key, partition, on_delivery=note)
            self._producer.poll(0)
        # A record delivered after this would be missing in the model.
        assert self._producer.flush(3 * PATIENCE_SECONDS) == 0
        for (topic, partition), offset, key, value in sorted(delivered):
            self.input[partition].append((offset, key, value))
            self._ends[topic, partition] = offset + 1

    def position(self, partition: int) -> int:
        """Return the position of a task that has committed all that was produced."""
        return sum(self._ends.get((topic, partition), 0) for topic in self.inputs)

    @contextmanager
    def load(self, count: int = 20, per_second: int = 100, keys: int = 20) -> Iterator[threading.Event]:
        """Produce ``count`` records at the given rate during the block, or until the yielded event is set.

        The time that producing takes reduces the rate.
        """

        def work(done: threading.Event) -> None:
            while not done.is_set():
                self.produce(count, keys)
                done.wait(1 / per_second)

        with meanwhile(work) as done:
            yield done

    def write(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Write records to partition 0 that the ledger's model does not know, as fast as possible."""
        topic = self.inputs[0]
        for key, value in records:
            while True:
                try:
                    self._producer.produce(topic, value, key, 0)
                    break
                except BufferError:
                    self._producer.poll(LOOK_SECONDS)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def poison(self, value: bytes, key: bytes = b"0/poison", headers: Headers = ()) -> None:
        """Write a record to partition 0 that must be skipped; the model does not know it."""
        topic = self.inputs[0]
        self._producer.produce(topic, value, key, 0, headers=list(headers))
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def committed_records(self, topic: str) -> list[tuple[bytes, bytes | None]]:
        """Return every committed record of a topic with as many partitions as there are tasks."""
        return [(each.key() or b"", each.value()) for each in self.messages(topic)]

    def committed_offsets(self) -> list[int]:
        """Return the committed input offset of each task, 0 if there is none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.definition.group})
        topic = self.inputs[0]
        found = consumer.committed(
            [TopicPartition(topic, each) for each in range(self.tasks)], PATIENCE_SECONDS
        )
        consumer.close()
        return [max(0, each.offset) for each in found]

    def raw_changelog(self, transactions: Transactions, partition: int) -> None:
        """Write transactions to a partition of the changelog."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"raw-{self.definition.name}-{partition}",
            }
        )
        producer.init_transactions(PATIENCE_SECONDS)
        for records, is_committed in transactions:
            producer.begin_transaction()
            for key, value in records:
                producer.produce(self.definition.changelog, value, key, partition)
            producer.flush(PATIENCE_SECONDS)
            if is_committed:
                producer.commit_transaction(PATIENCE_SECONDS)
            else:
                producer.abort_transaction(PATIENCE_SECONDS)

    # ---- the judge ----

    def assert_exact(self) -> None:
        """Compare all output and the changelog's final state with the model of the whole input."""
        model = Model()
        for partition in self.input:
            model.take(partition)
        outputs: dict[bytes, list[bytes]] = {}
        for key, value in self.committed_records(self.definition.config["task.outputs"]):
            outputs.setdefault(key, []).append(value or b"")
        assert outputs == model.outputs, difference(outputs, model.outputs)
        state: dict[tuple[str, bytes], bytes] = {}
        for key, value in self.committed_records(self.definition.changelog):
            if is_own(key):
                continue
            if value is None:
                state.pop(split(key), None)
            else:
                state[split(key)] = value
        assert state == model.state, difference(state, model.state)

    def assert_local_state(self, host: str) -> None:
        """Compare the databases of ``host``, which must be closed, with the model of the whole input."""
        for task, records in zip(self.task_ids, self.input, strict=True):
            model = Model()
            model.take(records)
            path = self.state_of(host, task) / DATABASE
            database = open_database(path, Profile.SERVING)
            try:
                found = {
                    split(key): value for store in STORES for key, value in database.items(prefix(store))
                }
            finally:
                database.close()
            assert found == model.state, f"{task} on {host}"

    def state_of(self, host: str, task: TaskId) -> Path:
        """Where a task's state is."""
        return self.directory / "state" / state_path(CLUSTER, host, task, self.definition.run)

    def judge(self) -> Consumer:
        """Return a consumer of committed records that commits nothing itself."""
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )

    def messages(self, topic: str) -> Iterator[Message]:
        """Yield every committed record of a topic, in order within each partition."""
        consumer = self.judge()
        partitions = [TopicPartition(topic, each, 0) for each in range(self.tasks)]
        consumer.assign(partitions)
        ends = {
            each.partition: consumer.get_watermark_offsets(each, PATIENCE_SECONDS)[1] for each in partitions
        }
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(
            each.offset < ends[each.partition]
            for each in consumer.position(partitions)
            if ends[each.partition]
        ):
            assert time.monotonic() < deadline, "the end of the topic cannot be read: an open transaction?"
            for message in consumer.consume(1000, LOOK_SECONDS):
                assert message.error() is None, message.error()
                yield message
        consumer.close()

    # ---- containers ----

    def local(
        self,
        host: str,
        probe: Probe = no_probe,
        records: RecordReader | None = None,
        clock: Callable[[], int] | None = None,
        make_feed: MakeFeed = PlainFeed,
        step: StepFunction | None = None,
        peers: Peers | None = None,
    ) -> Container:
        """Return a container in this process; ``step`` replaces the job's own."""
        restores = RestoreCounters()
        more: dict[str, Any] = {} if clock is None else {"clock": WallClock(clock)}
        environment = Environment(
            CLUSTER,
            host,
            records or self.records,
            make_feed,
            connect,
            open_database,
            step_of if step is None else lambda _: step,
            probe=probe,
            peers=peers,
            restores=restores,
            **more,
        )
        replicas = LocalReplicas(environment, lambda: None)
        return Container(self, replicas, host, restores)


class LabOfTwo(Lab):
    """A job with two inputs; the second one gets a quarter of the records."""

    INPUTS = ("in", "also")


class Holder(ABC):
    """A kernel that holds the lab's replicas, seen from outside."""

    lab: Lab

    @abstractmethod
    def want(self, copy: int, role: Role, epoch: int) -> None:
        """Order this copy of every task."""

    @abstractmethod
    def statuses(self) -> Mapping[ReplicaId, ReplicaStatus]:
        """Return what the replicas last reported."""

    @abstractmethod
    def assert_alive(self) -> None:
        """Fail if nothing will be reported any more."""

    def await_all(self, is_so: Callable[[ReplicaStatus], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until every replica meets the condition, which is polled from outside."""
        deadline = time.monotonic() + seconds
        while True:
            statuses = self.statuses()
            if statuses and all(is_so(each) for each in statuses.values()):
                return
            self.assert_alive()
            assert time.monotonic() < deadline, f"not within {seconds} s: {list(statuses.values())}"
            # Even after a long wait: the caller acts at this very moment, or counts what it sees.
            time.sleep(LOOK_SECONDS)

    def await_phase(self, phase: Phase, seconds: float = PATIENCE_SECONDS) -> None:
        self.await_all(lambda each: each.phase is phase, seconds)

    def await_processed(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until every task has committed all of its input."""
        ends = [self.lab.position(each) for each in range(self.lab.tasks)]
        self.await_all(
            lambda each: (
                each.phase is Phase.ACTIVE and each.input_committed == ends[each.replica.task.partition]
            ),
            seconds,
        )


@dataclass
class Container(Holder):
    """A kernel in this process."""

    lab: Lab
    replicas: LocalReplicas
    host: str
    restores: RestoreCounters

    def want(self, copy: int, role: Role, epoch: int) -> None:
        self.replicas.obey(self.lab.wanted(copy, role, epoch), self.lab.jobs)

    def statuses(self) -> Mapping[ReplicaId, ReplicaStatus]:
        statuses = self.replicas.statuses()
        # As a container's report to the leader would.
        self.replicas.note_reported(tuple(statuses.values()))
        return statuses

    def assert_alive(self) -> None:
        """Do nothing: it is alive as long as this process is."""

    def close(self) -> None:
        assert self.replicas.close(PATIENCE_SECONDS), (self.statuses(), self.replicas.broken)

    def __enter__(self) -> Container:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # A failing test must show its own failure.
        if kind is None:
            self.close()
        else:
            self.replicas.close(PATIENCE_SECONDS)


class Child(Holder):
    """A kernel in a separate process, on the lab's records file."""

    def __init__(
        self,
        lab: Lab,
        host: str,
        kill_at: str = "",
        hit: int = 1,
        log: Path | None = None,
        **more: object,
    ) -> None:
        """``kill_at``, ``hit`` and ``more`` are those of `tests.fakes.kernel_child.Spec`; ``log``: of what it says."""
        spec = {
            "definition": msgspec.to_builtins(lab.definition),
            "host": host,
            "records": str(lab.directory / "records.json"),
            "kill_at": kill_at,
            "hit": hit,
            **more,
        }
        self.lab, self.host = lab, host
        with contextlib.nullcontext() if log is None else log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.kernel_child", json.dumps(spec)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self._statuses: dict[ReplicaId, ReplicaStatus] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def want(self, copy: int, role: Role, epoch: int) -> None:
        assert self.process.stdin is not None
        wanted = self.lab.wanted(copy, role, epoch)
        self.process.stdin.write(msgspec.json.encode(wanted).decode() + "\n")

    def statuses(self) -> Mapping[ReplicaId, ReplicaStatus]:
        return self._statuses

    def assert_alive(self) -> None:
        """Fail if the process is dead: its last report will never change to the awaited one."""
        code = self.process.poll()
        assert code is None, (
            f"{self.host} died with {code}, and last reported {list(self._statuses.values())}"
        )

    def await_death(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def await_told(self) -> None:
        """Wait until all reports of the dead process are read."""
        self._listener.join(PATIENCE_SECONDS)
        assert not self._listener.is_alive()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        """Let it close its databases and end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_SECONDS) == 0

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                found = msgspec.json.decode(line, type=list[ReplicaStatus])
                self._statuses = {each.replica: each for each in found}
