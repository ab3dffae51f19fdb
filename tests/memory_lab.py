"""A job on Kafka and disks in memory, with any number of containers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from standby.config import parse
from standby.kernel.environment import Environment
from standby.kernel.loaded_code import LoadCode, load_nothing
from standby.kernel.ports import OpenDatabase, StepFunction
from standby.kernel.probes import Probe, no_probe
from standby.kernel.replicas import LocalReplicas
from standby.kernel.restore.counters import RestoreCounters
from standby.kernel.restore.fetch import Peers
from standby.replica.outbox import Headers
from standby.replica.store.keys import is_own, split
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, TaskId, Wanted
from standby.shared.wire import JobDefinition
from tests.fakes import ledger_job
from tests.fakes.clock import HandClock
from tests.fakes.database import MemoryDisk
from tests.fakes.feed import MemoryFeed, MemoryFeeds
from tests.fakes.kafka import Entry, Link, MemoryKafka, Partition
from tests.fakes.peers import PeerNet, PlacedRecords
from tests.fakes.records import MemoryRecords
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS

JOB = "ledger"

#: How many seconds pass in a real one, while a lab's clock is not held: the product's pauses take most of a test's
#: time. The time-outs of a lab's job are longer by as much.
RATE = 4.0

#: What a commit may take: the transaction's time-out, and 5 s.
COMMIT = 25.0

#: The threads that commit or prepare commits: while a clock is held, their waits for hanging transactions
#: take no time.
WAYS = ("commit-", "replica-")


def having(**attributes: Any) -> Callable[[MemoryFeed], None]:
    """Return a script that gives each feed these attributes."""
    return lambda feed: vars(feed).update(attributes)


def on_error(kind: str, attempts: int = 3) -> dict[str, str]:
    """Return the keys of a job that does so with a record on which its code fails so often."""
    keys = {"task.on.error": kind, "task.on.error.attempts": str(attempts)}
    return {**keys, "task.dead.letter": "dead"} if kind == "dead-letter" else keys


class MemoryLab:
    """The job, its input and the check of its results."""

    def __init__(self, directory: Path, tasks: int = 2, **config: str) -> None:
        self.kafka = MemoryKafka()
        self.records = MemoryRecords()
        self.placed = PlacedRecords(self.records)
        self.disk = MemoryDisk()
        self.tasks = tuple(TaskId(JOB, "main", each) for each in range(tasks))
        flat = {
            "job.name": JOB,
            "task.inputs": "in",
            "task.outputs": "out",
            "task.stores": ",".join(ledger_job.STORES),
            "task.step": "tests.fakes.ledger_job:step",
            "job.state.dir": str(directory),
            "kafka.bootstrap.servers": "unused:1",
            "zookeeper.connect": "unused:1",
            "job.transaction.timeout.ms": "20000",
            "job.hotstandby.lag.time.ms": "1600",
            **config,
        }
        self.config = parse(flat)
        self.definition = JobDefinition(JOB, "run", flat, "changelog", "group", tasks)
        self.clock = HandClock(rate=RATE)
        self.net: PeerNet | None = None
        """Where it is set, containers fetch state from each other; their ids are those of their hosts."""
        self.made: list[MemoryContainer] = []
        self._number = 0

    def pass_time(self, seconds: float) -> None:
        """Let time pass for all checks of stuck work, while Kafka keeps answering."""
        self.clock.let_pass(seconds, f"{JOB}-ends", "conductor")

    @property
    def now_ms(self) -> int:
        """The start of the wall clock; changing it sets this clock, and no other."""
        return self.clock.began_ms

    @now_ms.setter
    def now_ms(self, began_ms: int) -> None:
        self.clock.began_ms = began_ms

    def name(self, copy: int, epoch: int, *, claimed: bool = False) -> None:
        for task in self.tasks:
            self.records.name(task, copy, epoch, claimed=claimed)

    def produce(self, count: int, keys: int = 5) -> None:
        for _ in range(count):
            self._number += 1
            partition = self._number % len(self.tasks)
            # The first of several inputs gets most records. A key stays in one input: how two are merged
            # depends on timing, and the model knows only the order within one.
            number = self._number % 3 // 2 % len(self.config.inputs)
            key = f"{partition}/{'also ' * number}{self._number * 7 % keys}".encode()
            value = ledger_job.END if self._number % 11 == 0 else f"value {self._number}".encode()
            self.kafka.append(self.config.inputs[number], partition, key, value)

    def container(
        self,
        host: str,
        probe: Probe = no_probe,
        script: Callable[[MemoryFeed], None] = lambda _: None,
        step: StepFunction = ledger_job.step,
        load_code: LoadCode = load_nothing,
        peers: Peers | None = None,
        databases: OpenDatabase | None = None,
        find_step: Callable[[], StepFunction] | None = None,
    ) -> MemoryContainer:
        find = find_step or (lambda: step)
        if self.net is not None:
            peers = self.net.peers_of(host)
        made = MemoryContainer(self, host, probe, script, find, load_code, peers, databases)
        self.made.append(made)
        if self.net is not None:
            self.net.give(host, made.replicas.offer)
        return made

    def begun(self, records: int = 20, *, keys: int = 5, **more: Any) -> MemoryContainer:
        """Return copy 0 on host a, active at epoch 1, after it has processed the given input."""
        return self.container("a", **more).activate().process(records, keys)

    def pair(self, **more: Any) -> tuple[MemoryContainer, MemoryContainer]:
        """Return an active on host a that has processed some input, and its standby in sync, on host b."""
        active, standby = self.container("a").activate(), self.container("b", **more)
        standby.want(1, Role.STANDBY, 1)
        active.process(60)
        ends = {each.replica.task: each.applied or 0 for each in active.statuses()}
        standby.await_all(
            lambda each: each.phase is Phase.TAILING and (each.applied or 0) >= ends[each.replica.task]
        )
        return active, standby

    def close(self) -> None:
        """Close all containers, whatever state they are in."""
        for each in self.made:
            each.replicas.close(PATIENCE_SECONDS)

    def poison(self, partition: int, *, topic: str = "in", headers: Headers = ()) -> tuple[int, int]:
        """Write a record for which the step fails; return its partition and offset."""
        key = f"{partition}/poison".encode()
        return partition, self.kafka.append(topic, partition, key, b"raise", headers)

    def ends(self) -> dict[int, int]:
        """Return the position of each task that has processed all of its input."""
        return {
            task.partition: sum(len(self.kafka.logs[each, task.partition]) for each in self.config.inputs)
            for task in self.tasks
        }

    def changelog_content(self, partition: int = 0) -> dict[bytes, bytes]:
        """Return the last value of every key of a changelog that has one."""
        content: dict[bytes, bytes] = {}
        for key, value in self.kafka.committed_records("changelog", partition):
            if value is None:
                content.pop(key, None)
            else:
                content[key] = value
        return content

    def assert_exact(
        self,
        given_up: Collection[tuple[int, int]] = (),
        also: Collection[tuple[int, int]] = (),
        former: Mapping[Partition, Sequence[Entry]] = {},
        lost: Collection[TaskId] = (),
    ) -> None:
        """Compare all output and the changelog's final state with the model of the whole input.

        Tasks that have reported something as ``lost`` may lack outputs, but have no duplicates.

        ``given_up`` has partition and offset of the records of the first input that must have been skipped;
        ``also`` those of the second. ``former`` is what an input had before it was created again.
        """
        left_out = dict(zip(self.config.inputs, (given_up, also), strict=False))
        outputs: dict[bytes, list[bytes]] = {}
        for topic, number in tuple(self.kafka.logs):
            if topic == "out":
                for key, value in self.kafka.committed_records(topic, number):
                    outputs.setdefault(key, []).append(value or b"")
        there, missing = ledger_job.Model(), ledger_job.Model()
        state: dict[tuple[str, bytes], bytes] = {}
        for task in self.tasks:
            model = missing if task in lost else there
            for topic in self.config.inputs:
                where = (topic, task.partition)
                model.take(_records(former.get(where, ())))
                model.take(
                    (offset, key, value)
                    for offset, key, value in _records(self.kafka.logs[where])
                    if (task.partition, offset) not in left_out[topic]
                )
            if task not in lost:
                content = self.changelog_content(task.partition)
                state.update({split(key): value for key, value in content.items() if not is_own(key)})
        for key, values in missing.outputs.items():
            rest = iter(values)
            assert all(each in rest for each in outputs.pop(key, ())), (key, values)
        assert outputs == there.outputs
        assert state == there.state


def _records(log: Iterable[Entry]) -> Iterator[tuple[int, bytes, bytes]]:
    return ((offset, each.key or b"", each.value or b"") for offset, each in enumerate(log))


class MemoryContainer:
    """One container of the lab."""

    def __init__(
        self,
        lab: MemoryLab,
        host: str,
        probe: Probe,
        script: Callable[[MemoryFeed], None],
        find_step: Callable[[], StepFunction],
        load_code: LoadCode,
        peers: Peers | None,
        databases: OpenDatabase | None,
    ) -> None:
        self.lab = lab
        self.host = host
        self.link = Link(lab.kafka)
        self.restores = RestoreCounters()
        self.feeds = MemoryFeeds(self.link, script)
        self.changed = threading.Event()
        environment = Environment(
            "cluster",
            host,
            lab.placed,
            self.feeds,
            self.link.connect,
            databases or lab.disk.open,
            lambda _: find_step(),
            clock=lab.clock,
            probe=probe,
            load_code=load_code,
            restores=self.restores,
            peers=peers,
        )
        self.replicas = LocalReplicas(environment, self.changed.set)

    def want(
        self, copy: int, role: Role, epoch: int, *, is_next: bool = False, is_paused: bool = False
    ) -> MemoryContainer:
        self.obey(Wanted(ReplicaId(task, copy), role, epoch, is_next, is_paused) for task in self.lab.tasks)
        return self

    def activate(self, copy: int = 0, epoch: int = 1, *, claimed: bool = False) -> MemoryContainer:
        """Name the copy of every task as the active, as the leader does, and order it to be active."""
        self.lab.name(copy, epoch, claimed=claimed)
        return self.want(copy, Role.ACTIVE, epoch)

    def stand_by(self, copy: int = 1, epoch: int = 1) -> MemoryContainer:
        """Order the copy of every task to stand by, and wait until it is in step."""
        return self.want(copy, Role.STANDBY, epoch).await_phase(Phase.TAILING)

    def process(self, records: int, keys: int = 5) -> MemoryContainer:
        """Produce input, and wait until all is processed."""
        self.lab.produce(records, keys)
        return self.await_processed()

    def obey(self, wanted: Iterable[Wanted]) -> None:
        self.replicas.obey(tuple(wanted), {JOB: self.lab.definition})

    def statuses(self) -> list[ReplicaStatus]:
        statuses = tuple(self.replicas.statuses().values())
        # As a container's report to the leader would.
        self.replicas.note_reported(statuses)
        return list(statuses)

    def status(self, partition: int = 0) -> ReplicaStatus:
        """Return the status of the one task's replica."""
        return next(each for each in self.statuses() if each.replica.task.partition == partition)

    @property
    def details(self) -> list[str]:
        return [each.detail for each in self.statuses()]

    @property
    def phases(self) -> list[Phase]:
        return [each.phase for each in self.statuses()]

    def eventually(self, is_so: Callable[[], bool]) -> None:
        """Wait until the condition holds; checked at each change, and from time to time for silent changes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, (self.statuses(), self.replicas.broken)
            self.changed.wait(LOOK_SECONDS)
            self.changed.clear()

    def is_so_of_all(self, is_so: Callable[[ReplicaStatus], bool]) -> bool:
        """Return whether it holds for all replicas, of which there is at least one."""
        statuses = self.statuses()
        return bool(statuses) and all(map(is_so, statuses))

    def await_all(self, is_so: Callable[[ReplicaStatus], bool]) -> None:
        """Wait until it holds for all replicas, of which there must be at least one."""
        self.eventually(lambda: self.is_so_of_all(is_so))

    def await_phase(self, *phases: Phase) -> MemoryContainer:
        self.eventually(lambda: self.are(*phases))
        return self

    def pass_time_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the condition holds, advancing the clock until then, so that no delay takes real time."""
        self.lab.clock.hold()

        def look() -> bool:
            if not is_so():
                self.lab.pass_time(1)
            return is_so()

        self.eventually(look)

    def are(self, *phases: Phase) -> bool:
        """Return whether all replicas are in one of these phases, and there is at least one."""
        return self.is_so_of_all(lambda each: each.phase in phases)

    def is_processed(self) -> bool:
        """Return whether all are active and have committed all input."""
        ends = self.lab.ends()
        return self.are(Phase.ACTIVE) and all(
            each.input_committed == ends[each.replica.task.partition] for each in self.statuses()
        )

    def await_processed(self) -> MemoryContainer:
        self.eventually(self.is_processed)
        return self

    def crash(self, lost: int = 0) -> None:
        """End it like the end of its process: nothing it does takes effect any more.

        Of its writes to the disk since the last flush, ``lost`` are gone.
        """
        self.link.cut()
        self.lab.disk.crash(self.host, lost)
        self.close()

    def close(self) -> None:
        assert self.replicas.close(PATIENCE_SECONDS), (self.statuses(), self.replicas.broken)
        assert all(each.is_closed for each in self.feeds.made)


class MakeLab(Protocol):
    """Makes a job of so many tasks with these keys."""

    def __call__(self, tasks: int = 2, /, **config: str) -> MemoryLab: ...
