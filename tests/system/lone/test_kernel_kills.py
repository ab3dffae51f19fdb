"""kill -9 under load at random moments, and what the readers of an output see of it."""

from __future__ import annotations

import random
import statistics
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.kernel import probes
from standby.kernel.ports import WriterLost
from standby.model import Offsets, Phase, Role
from standby.replica.store.keys import prefix
from tests.kernel_lab import CLUSTER, IS_LONG, Container, Lab
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, STRIKE_SECONDS, soon
from tests.system.lone.deaths import StartChild, process_the_rest, take_over_and_die

#: Kills; 50 with ``STANDFAST_LONG=1``.
KILLS = 50 if IS_LONG else 6


class Ends:
    """A probe that notes where the changelog of a task ends once its new owner's fence holds.

    It can also have the replay stand still until then, so that there is something to restore.
    """

    def __init__(self, lab: Lab) -> None:
        self._broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
        self.seen: dict[int, int] = {}
        self.may_replay = threading.Event()
        self.may_replay.set()

    def __call__(self, point: str) -> None:
        if point == probes.REPLAYED:
            assert self.may_replay.wait(PATIENCE_SECONDS)
        if point == probes.OFFSETS_READ:
            # The replica's own thread passes here, and is named after it.
            partition = int(threading.current_thread().name.rpartition(".")[2].partition("#")[0])
            self.seen[partition] = self._broker.changelog_ends((partition,))[partition]
            if len(self.seen) == 2:
                self.may_replay.set()

    def assert_restored(self, container: Container) -> int:
        """Compare what the actives say they had to restore with what was seen; return the most of it."""
        for each in container.statuses().values():
            assert each.drained_to == self.seen[each.replica.task.partition]
            assert each.drained_from is not None
            assert each.restored_records == each.drained_to - each.drained_from >= 0
        return max(each.restored_records or 0 for each in container.statuses().values())

    def close(self) -> None:
        self._broker.close()


def test_exact_however_often_the_active_is_killed(
    kafka_bootstrap: str,
    tmp_path: Path,
    start_child: StartChild,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = Lab(kafka_bootstrap, tmp_path)
    ends, moments = Ends(lab), random.Random(7)
    gaps, restored = list[float](), list[int]()
    lab.name(1, 1)
    with lab.local("host-b", ends) as keeper, lab.load(10, per_second=200):
        keeper.want(1, Role.ACTIVE, 1)
        # From now on the records say that the tasks were claimed.
        keeper.await_phase(Phase.ACTIVE)
        for epoch in range(2, 2 + 2 * KILLS, 2):
            is_behind = epoch % 4 == 0

            def wait_for_the_moment(is_behind: bool = is_behind) -> None:
                ends.seen.clear()
                if is_behind:
                    ends.may_replay.clear()
                    keeper.await_all(lambda each: bool(each.lag_records))
                time.sleep(moments.uniform(0, STRIKE_SECONDS))

            gaps.append(take_over_and_die(lab, start_child, keeper, epoch, wait_for_the_moment))
            restored.append(ends.assert_restored(keeper))
            assert restored[-1] > 0 or not is_behind
    ends.close()
    process_the_rest(lab, epoch + 2)
    with capsys.disabled():
        print(
            f"\n  {KILLS} kills under load, {sum(len(each) for each in lab.input)} records, exact; kill to first "
            f"commit {statistics.median(gaps):.0f}/{max(gaps):.0f} ms (median/max), restored {restored}"
        )


def test_a_transaction_that_takes_longer_than_its_time_out_says_so(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    """The broker aborts it, and calls that a fence: without the reason nobody would look at the right key."""
    lab = Lab(kafka_bootstrap, tmp_path, 1, **{"job.transaction.timeout.ms": "1000"})
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    writer = broker.open_writer(0)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    writer.begin(b"record")
    writer.prepare([], {prefix("counts") + b"k": b"1"}, Offsets.of(1), "m")
    soon(lambda: broker.changelog_ends((0,), is_stable=True)[0] >= 2, "the broker aborts it")
    with pytest.raises(WriterLost, match=r"has taken \d+\.\d s \(job.transaction.timeout.ms is 1000\)"):
        writer.commit()
    writer.close()
    broker.close()
    assert lab.committed_records(lab.definition.changelog) == []


class Reader(threading.Thread):
    """Reads all of an output, read committed, and notes the longest silence."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self._stop_it = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": lab.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        topic = lab.definition.config["task.outputs"]
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(lab.tasks)])
        self._lock = threading.Lock()
        self._last: dict[int, float] = {}
        self.silences: dict[int, float] = {}

    def run(self) -> None:
        while not self._stop_it.is_set():
            for message in self._consumer.consume(1000, LOOK_SECONDS):
                partition, now = message.partition() or 0, time.monotonic()
                with self._lock:
                    silence = now - self._last.get(partition, now)
                    self.silences[partition] = max(self.silences.get(partition, 0), silence)
                    self._last[partition] = now
        self._consumer.close()

    def begin(self) -> None:
        """Count silences from now on."""
        with self._lock:
            self.silences = {}

    def longest_since(self, moment: float) -> float | None:
        """Return the longest silence, once every partition has been heard of after ``moment``."""
        with self._lock:
            has_all = self._last and all(each > moment for each in self._last.values())
            return max(self.silences.values()) if has_all else None

    def end(self) -> None:
        self._stop_it.set()
        self.join()


@pytest.mark.soak
@pytest.mark.parametrize("is_replaced", [True, False], ids=["failover", "nobody takes over"])
def test_how_long_a_dead_actives_transaction_holds_up_the_readers_of_another_tasks_output(
    kafka_bootstrap: str,
    tmp_path: Path,
    start_child: StartChild,
    capsys: pytest.CaptureFixture[str],
    is_replaced: bool,
) -> None:
    """Both tasks write to both partitions of the output; the dead one's open transaction lies in both."""
    # Who is replaced would be waited for longer than by this test, without its successor's fence.
    more = {"job.transaction.timeout.ms": "600000" if is_replaced else "5000" if IS_LONG else "2000"}
    lab = Lab(kafka_bootstrap, tmp_path, 2, **more)
    timeout = parse(lab.definition.config).transaction_timeout_ms / 1000
    lab.name(0, 1)
    doomed = start_child(lab, "host-a", kill_at=probes.BEFORE_COMMIT, hit=30, delay_ms=100)
    reader = Reader(lab)
    with lab.local("host-b") as other, lab.local("host-c") as successor:
        other.want(0, Role.ACTIVE, 1, tasks=[1])
        successor.want(1, Role.STANDBY, 1, tasks=[0])
        successor.await_phase(Phase.TAILING)
        reader.start()
        with lab.load(20, per_second=100):
            other.await_all(lambda each: each.first_commit_ms is not None)
            doomed.want(0, Role.ACTIVE, 1, tasks=[0])
            doomed.await_all(lambda each: (each.input_committed or 0) > 0)
            reader.begin()
            doomed.await_death()
            died = time.monotonic()
            if is_replaced:
                lab.name(1, 2, claimed=True)
                successor.want(1, Role.ACTIVE, 2, tasks=[0])
            # What was read right then may have been on its way.
            heard = died + 3 * LOOK_SECONDS
            soon(lambda: reader.longest_since(heard) is not None, "the readers go on")
            silence = reader.longest_since(heard) or 0.0
        if not is_replaced:
            # The broker aborted it, for there was nobody else.
            lab.name(1, 2, claimed=True)
            successor.want(1, Role.ACTIVE, 2, tasks=[0])
        ends = [records[-1][0] + 1 for records in lab.input]
        for each in (other, successor):
            each.await_all(lambda one: one.input_committed == ends[one.replica.task.partition])
    reader.end()
    lab.assert_exact()
    with capsys.disabled():
        print(
            f"\n  readers of another task's output stood still for {silence * 1000:.0f} ms "
            f"({'failover' if is_replaced else 'nobody takes over'}; transaction time-out {timeout:g} s)"
        )
