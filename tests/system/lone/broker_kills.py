"""Kafka brokers, and sometimes containers, that are killed at any moment while a job of the kernel's lab runs.

The caller acts as the leader: two containers, each a separate process, have the active and the standby of every task.
If the active's container dies or fails, the other one takes over. The check compares the input with the outputs.
"""

from __future__ import annotations

import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from embedded.cluster import LocalCluster
from standby.config import CHANGELOG_RECORD_BYTES
from standby.errors import Unavailable
from standby.shared.model import Phase, ReplicaStatus, Role
from tests.fakes.ledger_job import END, Model
from tests.kernel_lab import Child, Lab
from tests.meanwhile import meanwhile
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, STRIKE_SECONDS, TRY_SECONDS

#: How long all tasks may take to commit again after a broker serves again: far beyond every time-out of theirs.
_AGAIN_SECONDS: Final = 2 * PATIENCE_SECONDS

#: What Kafka's coordinator says when it leaves markers out (docs/decisions/0016).
_LEFT_OUT: Final = "can be skipped"

#: How often a broker is started that does not come.
_STARTS: Final = 3

_Records = list[tuple[int, bytes, bytes]]


class Fire(Lab):
    """A job whose input is written while brokers die: what is in it, its topic tells in the end."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        # On a machine too busy for three brokers one commit may take minutes, and there is no other copy to go to.
        patient = {"task.progress.timeout.ms": str(round(_AGAIN_SECONDS * 1000))}
        super().__init__(*arguments, **{**patient, **more})
        self._source = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.max.bytes": CHANGELOG_RECORD_BYTES,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._sent = 0

    @contextmanager
    def under_load(self, rate: float, keys: int = 40) -> Iterator[None]:
        """Write ``rate`` records a second in the block, evenly over the partitions."""

        def work(done: threading.Event) -> None:
            begin, begun_at = time.monotonic(), self._sent
            while not done.wait(LOOK_SECONDS):
                due = begun_at + int((time.monotonic() - begin) * rate)
                while self._sent < due:
                    self._sent += 1
                    partition = self._sent % self.tasks
                    key = f"{partition}/{self._sent * 7 % keys}".encode()
                    value = END if self._sent % 11 == 0 else f"value {self._sent}".encode()
                    with suppress(BufferError):
                        self._source.produce(self.inputs[0], value, key, partition)
                self._source.poll(0)

        with meanwhile(work):
            yield
        assert self._source.flush(PATIENCE_SECONDS) == 0, "the input could not be written"

    def input_ends(self) -> dict[int, int]:
        """Return where each partition of the input ends."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "judge"})
        found = self._partition_ends(consumer, self.inputs[0])
        consumer.close()
        return found

    def _partition_ends(self, consumer: Consumer, topic: str) -> dict[int, int]:
        """Return where each partition of a topic ends for a consumer. A broker may still be on its way, or a leader."""
        found: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < self.tasks:
            place = TopicPartition(topic, len(found))
            try:
                found[place.partition] = consumer.get_watermark_offsets(place, TRY_SECONDS)[1]
            except KafkaException:
                assert time.monotonic() < deadline, f"the end of {place} cannot be read"
        return found

    def read(self, topic: str) -> dict[int, _Records]:
        """Return every committed record of a topic by partition: (offset, key, value); up to what can be read."""
        consumer = self.judge()
        found: dict[int, _Records] = {each: [] for each in range(self.tasks)}
        partitions = [TopicPartition(topic, each, 0) for each in found]
        consumer.assign(partitions)
        # Of a consumer that reads committed: the last stable offsets.
        ends = self._partition_ends(consumer, topic)
        # Nothing more can be read if for so long nothing was.
        quiet_at = time.monotonic() + PATIENCE_SECONDS
        while any(
            each.offset < ends[each.partition]
            for each in consumer.position(partitions)
            if ends[each.partition]
        ):
            messages = consumer.consume(5_000, LOOK_SECONDS)
            if messages:
                quiet_at = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > quiet_at:
                break
            for each in messages:
                if each.error() is None:
                    where = found[each.partition() or 0]
                    where.append((each.offset() or 0, each.key() or b"", each.value() or b""))
        consumer.close()
        return found


class FireOnThree(Fire):
    """The same with every partition on three brokers."""

    REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found in the outputs, in records."""

    records: int
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    disordered: int = 0
    example: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether nothing is wrong with them."""
        return not (self.lost or self.doubled or self.wrong or self.disordered)


def judge(lab: Fire, *, is_whole: bool) -> Verdict:
    """Compare all outputs with the model of all input; unless it is whole, the outputs may end early."""
    model = Model()
    for records in lab.read(lab.inputs[0]).values():
        model.take(records)
    found: dict[bytes, list[bytes]] = {}
    for records in lab.read(lab.definition.config["task.outputs"]).values():
        for _, key, value in records:
            found.setdefault(key, []).append(value)
    lost = doubled = wrong = disordered = 0
    example = ""
    for key in sorted({*model.outputs, *found}):
        expected, got = model.outputs.get(key, []), found.get(key, [])
        if not is_whole:
            expected = expected[: len(got)]
        if got == expected:
            continue
        missing, more = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
        lost += missing.total()
        doubled += sum(number for value, number in more.items() if value in set(expected))
        wrong += sum(number for value, number in more.items() if value not in set(expected))
        disordered += not (missing or more)
        same = next(
            (at for at, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]),
            min(len(expected), len(got)),
        )
        example = example or (
            f"{key!r} from {same} on: {got[same : same + 4]} instead of {expected[same : same + 4]}"
        )
    total = sum(map(len, found.values()))
    return Verdict(total, lost, doubled, wrong, disordered, example)


@dataclass
class Tally:
    """What the kills came to."""

    kills: int = 0
    container_kills: int = 0
    take_overs: int = 0
    broken: int = 0
    """Containers that ended by themselves."""
    named_failures: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    """Why a job did not go on although nothing of it failed."""
    verdicts: list[Verdict] = field(default_factory=list)
    again_seconds: list[float] = field(default_factory=list)
    """From when the broker serves until every task has committed again, for each kill."""
    markers_left_out: int = 0
    """How often the brokers said so."""
    said: Counter[str] = field(default_factory=Counter)
    """How often the kernel said something of what hangs."""


#: What the kernel says of what hangs, by name.
_SAID: Final = {
    "hanging tail": re.compile(r"commits \[.*\] have no end$", re.MULTILINE),
    "unstable offsets": re.compile(r"a transaction is open among them"),
    "tail and offsets hang": re.compile(
        r"commits \[.*\] have no end in changelog and offsets$", re.MULTILINE
    ),
    "no marker of a sweep": re.compile(r"no marker of the transaction that aborts"),
}


class Course:
    """One job under fire, until it is judged."""

    def __init__(
        self, cluster: LocalCluster, directory: Path, seed: int, tasks: int = 4, rate: float = 400
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._cluster, self._directory, self._rate = cluster, directory, rate
        self._random = random.Random(seed)
        fire = Fire if len(cluster.brokers) == 1 else FireOnThree
        self.lab = fire(cluster.kafka_bootstrap, directory, tasks)
        self._children: list[Child] = []
        self._active, self._epoch = 0, 1
        self._failures = 0
        self.tally = Tally()

    def run(self, kills: int) -> Tally:
        """Kill a broker so often, or until the job cannot go on; return what it came to."""
        lab = self.lab
        skipped = self._count_left_out()
        lab.name(0, 1)
        self._children = [self._start(0), self._start(1)]
        self._order()
        is_whole = True
        try:
            with lab.under_load(self._rate):
                self._await_progress({})
                # From now on the records say that the tasks were claimed.
                for _ in range(kills):
                    if not self._strike():
                        is_whole = False
                        break
            if is_whole:
                is_whole = self._finish()
        finally:
            for each in self._children:
                each.end()
        self.tally.markers_left_out = self._count_left_out() - skipped
        text = "".join(each.read_text("utf-8", "replace") for each in self._directory.glob("host-*.log"))
        self.tally.said = Counter({name: len(words.findall(text)) for name, words in _SAID.items()})
        self.tally.verdicts.append(judge(lab, is_whole=is_whole))
        return self.tally

    # ---- the leader's part ----

    def _start(self, copy: int) -> Child:
        return Child(self.lab, f"host-{copy}", log=self._directory / f"host-{copy}.log")

    def _order(self) -> None:
        """Tell both containers what they are to hold."""
        for copy, child in enumerate(self._children):
            role = Role.ACTIVE if copy == self._active else Role.STANDBY
            # One that has just died gets no order.
            with suppress(BrokenPipeError):
                child.want(copy, role, self._epoch)

    def _take_over(self) -> None:
        """Have the other container take every task over."""
        self.tally.take_overs += 1
        self._active, self._epoch = 1 - self._active, self._epoch + 1
        self.lab.name(self._active, self._epoch, claimed=True)
        self._order()

    def _replace(self, copy: int) -> None:
        self._children[copy].end()
        self._children[copy] = self._start(copy)
        if copy == self._active:
            self._take_over()
        else:
            self._order()

    def _look(self) -> str:
        """Do what the leader does about containers that ended and replicas that failed; return why none can go on."""
        for copy, child in enumerate(self._children):
            if child.process.poll() is not None:
                self.tally.broken += 1
                self._replace(copy)
        for each in self._children[self._active].statuses().values():
            if each.epoch == self._epoch and each.phase in (Phase.FAILED, Phase.FENCED):
                self._failures += 1
                if self._failures > 2:
                    return each.detail
                self._take_over()
                return ""
        return ""

    def _await_progress(self, before: Mapping[int, int]) -> bool:
        """Return whether every task's active commits beyond ``before``; takes note of why not."""
        deadline = time.monotonic() + _AGAIN_SECONDS
        self._failures = 0
        while True:
            if reason := self._look():
                self.tally.named_failures.append(reason)
                return False
            now = self._committed()
            if len(now) == self.lab.tasks and all(now[each] > before.get(each, 0) for each in now):
                return True
            if time.monotonic() > deadline:
                self.tally.stuck.append(f"before {dict(before)}: {self._told()}")
                return False
            time.sleep(LOOK_SECONDS)

    def _committed(self) -> dict[int, int]:
        """Return partition → how far the present active has committed; left out where there is none."""
        found: dict[int, int] = {}
        for each in self._children[self._active].statuses().values():
            if each.phase is Phase.ACTIVE and each.epoch == self._epoch and each.input_committed is not None:
                found[each.replica.task.partition] = each.input_committed
        return found

    def _told(self) -> Sequence[ReplicaStatus]:
        return [status for child in self._children for status in child.statuses().values()]

    # ---- the fire ----

    def _strike(self) -> bool:
        """Kill brokers at a moment of chance, perhaps a container beside them; return whether the job goes on."""
        by_chance, count = self._random, len(self._cluster.brokers)
        numbers = [by_chance.randint(1, count)]
        if count > 1 and by_chance.random() < 0.25:
            numbers.append(by_chance.choice([each for each in range(1, count + 1) if each != numbers[0]]))
        victim = by_chance.choice(("none", "none", "active", "active", "standby"))
        # A broker takes some seconds to start.
        lead = by_chance.uniform(-2 * STRIKE_SECONDS, 13 * STRIKE_SECONDS)
        time.sleep(by_chance.uniform(0, 2 * STRIKE_SECONDS))
        before = self._committed()
        if victim != "none" and lead < 0:
            self._kill_container(victim)
            time.sleep(-lead)
        for number in numbers:
            self._cluster.stop_server(self._cluster.brokers[number - 1])
            self.tally.kills += 1
            time.sleep(by_chance.uniform(0, STRIKE_SECONDS))
        # Side by side: of three, one alone is no quorum.
        with ThreadPoolExecutor(len(numbers)) as pool:
            starts = [pool.submit(self._restart, each) for each in numbers]
            if victim != "none" and lead >= 0:
                time.sleep(lead)
                self._kill_container(victim)
            while not all(each.done() for each in starts):
                time.sleep(LOOK_SECONDS)
                if reason := self._look():
                    self.tally.named_failures.append(reason)
                    return False
            for each in starts:
                each.result()
        began = time.monotonic()
        # An active that took over while the broker was away counts from where that one was.
        goes_on = self._await_progress(before)
        self.tally.again_seconds.append(time.monotonic() - began)
        return goes_on

    def _restart(self, number: int) -> None:
        """Start a broker again, as what supervises it would: on a busy machine one may end for want of a quorum."""
        for _ in range(_STARTS):
            try:
                self._cluster.start_server(self._cluster.brokers[number - 1])
            except Unavailable as error:
                print(f"kafka-{number} again: {error}".partition("\n")[0], file=sys.stderr)
                self._cluster.stop_server(self._cluster.brokers[number - 1])
            else:
                return
        raise Unavailable(f"kafka-{number} did not start in {_STARTS} tries")

    def _kill_container(self, victim: str) -> None:
        copy = self._active if victim == "active" else 1 - self._active
        self._children[copy].send(signal.SIGKILL)
        self._children[copy].await_death()
        self.tally.container_kills += 1
        self._replace(copy)

    def _finish(self) -> bool:
        """Return whether all input was processed in the end."""
        deadline, ends = time.monotonic() + _AGAIN_SECONDS, self.lab.input_ends()
        while self._committed() != ends:
            if reason := self._look():
                self.tally.named_failures.append(reason)
                return False
            if time.monotonic() > deadline:
                self.tally.stuck.append(f"towards {ends}: {self._told()}")
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def _count_left_out(self) -> int:
        return sum(
            self._cluster.log(each).read_text("utf-8", "replace").count(_LEFT_OUT)
            for each in self._cluster.brokers
        )
