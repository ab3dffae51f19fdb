"""What a feed does around a transform: over an input in memory, with a transform that the test leads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message

from standby.adapters.kafka.input import sizes_of
from standby.errors import BadConfiguration, CorruptState, Transient
from standby.feed import input_feed
from standby.feed.input_feed import _RECENT_SECONDS, InputFeed, Transforming, mark_nothing
from standby.feed.rules.sizing import LEAST_RECORDS, TARGET_SECONDS
from standby.ports import TaskBatch, UnreadableRecord
from standby.shared.model import InputPartition, Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.fakes.clock import HandClock
from tests.fakes.jobs import job_config
from tests.meanwhile import Hold, background
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon

TASK = TaskId("j", "main", 0)


def placed(partition: int, offset: int, millis: int = 0, value: bytes = b"") -> Message:
    """Return a record of Kafka's, of which only its place, time and size are of interest."""
    return Message(topic="in", partition=partition, offset=offset, value=value, timestamp=(1, millis))


class InputInMemory:
    """The bounds of an input's partitions, and its reader."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[int, int]] = {0: (0, 10)}
        self.readers: list[ReaderInMemory] = []
        #: The partitions of each request for bounds.
        self.asked: list[list[InputPartition]] = []
        #: The bound in bytes of each read.
        self.bounds: list[int] = []
        #: How many records a read returns at most, and the value of each.
        self.most, self.value = sys.maxsize, b""
        #: Whether no reader can connect or be assigned.
        self.is_away = False
        #: Whether positions are past the end.
        self.is_truncated = False
        #: Called by each read: what it returns is what can be read.
        self.on_read: Callable[[], bool] = lambda: True

    def ask(self, partitions: list[InputPartition]) -> dict[InputPartition, tuple[int, int]]:
        self.asked.append(list(partitions))
        found = {each: self.known[each[1]] for each in partitions if each[1] in self.known}
        if not found:
            raise Transient("no leader")
        return found

    def check(self, starts: Mapping[InputPartition, int]) -> None:
        if self.is_truncated:
            raise CorruptState("past the end")

    def reader(self, *_: object, **__: object) -> ReaderInMemory:
        self.readers.append(ReaderInMemory(self))
        return self.readers[-1]

    @property
    def open(self) -> list[ReaderInMemory]:
        return [each for each in self.readers if not each.is_closed]


class ReaderInMemory:
    sizes_of = staticmethod(sizes_of)

    def __init__(self, source: InputInMemory) -> None:
        self._source = source
        self._at: dict[InputPartition, int] = {}
        self.is_connected = self.is_closed = False
        self.idles = 0

    def connect(self, timeout_seconds: float) -> None:
        self._check()
        self.is_connected = True

    def idle(self) -> None:
        self.idles += 1

    def assign(
        self, starts: Mapping[InputPartition, int], ends: Mapping[InputPartition, int] | None = None
    ) -> None:
        self._check()
        self._at, self._until = dict(starts), dict(ends or {})

    def read(self, records: int, seconds: float, most_bytes: int) -> list[Message]:
        self._source.bounds.append(most_bytes)
        records, found = min(records, self._source.most), list[Message]()
        if self._source.on_read():
            for where, offset in self._at.items():
                end = self._until.get(where, self._source.known[where[1]][1])
                self._at[where] = min(end, offset + records - len(found))
                value = self._source.value
                found += [placed(where[1], each, value=value) for each in range(offset, self._at[where])]
        if not found:
            threading.Event().wait(LOOK_SECONDS)
        return found

    def positions(self) -> dict[InputPartition, int]:
        return dict(self._at)

    def close(self) -> None:
        self.is_closed = True

    def _check(self) -> None:
        if self._source.is_away:
            raise Transient("no broker answers")


class LedTransform:
    """A transform that does what the test says."""

    def __init__(self) -> None:
        self.is_warm = False
        self.is_closed = False
        self.run_seconds: float | None = None
        self.child_pids = (7,)
        self.cancelled = threading.Event()
        self.recent: list[pa.Table | None] = []
        self.on_run: Callable[[pa.Table], pa.Table] = lambda rows: rows

    def warm(self, recent: Callable[[], pa.Table | None]) -> None:
        self.recent.append(recent())
        self.is_warm, self.run_seconds = True, 0.25

    def cancel_warm(self) -> None:
        pass

    def run(self, rows: pa.Table) -> pa.Table:
        return self.on_run(rows) if rows.num_rows else rows

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.is_closed = True


class Led:
    """A feed over an input in memory."""

    def __init__(self, tasks: int = 1, transforming: Transforming = mark_nothing, **keys: str) -> None:
        self.source, self.transform, self.clock = InputInMemory(), LedTransform(), HandClock()
        self.clock.hold()
        self.delivered: list[TaskBatch] = []
        definition = JobDefinition("j", "r", {}, "changelog", "group", tasks)
        self.feed = InputFeed(job_config(**keys), definition, self.transform, transforming, self.clock)

    def start(self) -> None:
        self.feed.start({TASK: Offsets.of(0)}, self.delivered.extend)

    def run(self, end: int) -> None:
        """Run the input from its beginning up to there."""
        self.feed.start({TASK: Offsets.of(0)}, self.delivered.extend, {TASK: Offsets.of(end)})
        assert self.feed.wait(PATIENCE_SECONDS)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Led]:
    """Makes feeds whose stop interrupts a running transform at once."""
    monkeypatch.setattr(input_feed, "_FINISH_SECONDS", 0.0)
    monkeypatch.setattr(input_feed, "_CANCEL_SECONDS", LOOK_SECONDS)

    def made(*arguments: Any, **keys: Any) -> Led:
        led = Led(*arguments, **keys)
        monkeypatch.setattr(input_feed, "InputReader", led.source.reader)
        monkeypatch.setattr(input_feed, "InputBounds", lambda *_: led.source)
        return led

    return made


@pytest.mark.parametrize("fails", [True, False])
def test_a_stop_interrupts_a_transform_and_what_it_ran_on_is_neither_delivered_nor_a_failure(
    make: Callable[..., Led], *, fails: bool
) -> None:
    led, running = make(), threading.Event()

    def run(rows: pa.Table) -> pa.Table:
        running.set()
        assert led.transform.cancelled.wait(PATIENCE_SECONDS)
        if fails:
            raise Transient("cancelled")
        return rows

    led.transform.on_run = run
    led.start()
    assert running.wait(PATIENCE_SECONDS)
    led.feed.stop()
    assert led.feed.wait(0)
    assert led.feed.failure is None
    assert led.delivered == []
    assert led.source.open == []
    led.transform.on_run = lambda rows: rows
    led.run(10)
    assert [(each.start, each.end) for each in led.delivered] == [(Offsets.of(0), Offsets.of(10))]


def test_a_transform_that_cannot_run_now_or_moves_rows_to_another_task_ends_a_feed_that_is_not_stopped(
    make: Callable[..., Led],
) -> None:
    def fails(_: pa.Table) -> pa.Table:
        raise Transient("the JVM has died")

    def moves(rows: pa.Table) -> pa.Table:
        return rows.set_column(3, "_task", pa.array([7] * rows.num_rows, pa.int32()))

    for run, failure in ((fails, Transient), (moves, BadConfiguration)):
        led = make()
        led.transform.on_run = run
        led.start()
        assert led.feed.wait(PATIENCE_SECONDS)
        assert isinstance(led.feed.failure, failure)
        assert (led.delivered, led.source.open) == ([], [])


@pytest.mark.parametrize("until", [None, {TASK: Offsets.of(10)}], ids=["endless", "bounded"])
def test_a_stop_waits_for_the_batch_in_deliver_and_no_other_follows(
    make: Callable[..., Led], until: Mapping[TaskId, Offsets] | None
) -> None:
    led, order, held = make(task__batch__max__records="2"), list[str](), Hold()

    def deliver(_: tuple[TaskBatch, ...]) -> None:
        held()
        order.append("delivered")

    def stop() -> None:
        led.feed.stop()
        order.append("stopped")

    led.feed.start({TASK: Offsets.of(0)}, deliver, until)
    held.await_reached()
    stopping = background(stop)
    assert led.transform.cancelled.wait(PATIENCE_SECONDS), "it has waited, and interrupts what runs"
    held.let_go()
    stopping.result(PATIENCE_SECONDS)
    assert order == ["delivered", "stopped"]
    assert led.feed.wait(0)
    assert led.feed.failure is None


def test_filtered_records_still_advance_the_end(make: Callable[..., Led]) -> None:
    led = make()
    led.transform.on_run = lambda rows: rows.slice(0, 0)
    led.run(10)
    assert [(each.start, each.end, each.rows.num_rows) for each in led.delivered] == [
        (Offsets.of(0), Offsets.of(10), 0)
    ]


def test_reads_have_the_jobs_bounds_and_grow_and_shrink_with_the_time_of_a_batch(
    make: Callable[..., Led],
) -> None:
    least = LEAST_RECORDS
    for most_bytes, at_once, expected in (
        (2_000_000, sys.maxsize, [least, 2 * least, least, least]),
        # What the bytes have limited is slow as well.
        (least, least + 1_000, [least, least + 1_000, least, least]),
    ):
        led = make(task__batch__max__records=str(2 * least), task__batch__max__bytes=str(most_bytes))
        led.source.known[0], led.source.most = (0, sum(expected)), at_once

        def run(rows: pa.Table, led: Led = led) -> pa.Table:
            if rows.num_rows > least:
                led.clock.advance(10 * TARGET_SECONDS)
            return rows

        led.transform.on_run = run
        led.run(sum(expected))
        assert [each.rows.num_rows for each in led.delivered] == expected
        assert set(led.source.bounds) == {most_bytes}


def test_batches_that_are_not_full_begin_at_the_interval_of_the_job(make: Callable[..., Led]) -> None:
    began: list[int] = []
    for interval_ms, most, expected in (
        (100, 40_000, [0, 100, 200, 300]),
        (20, 40_000, [0, 30, 60, 90]),
        # There is more input already.
        (100, 3, [0, 30, 60, 90]),
    ):
        led = make(task__commit__interval__ms=str(interval_ms), task__batch__max__records=str(most))
        led.clock.hold("feed")
        led.source.most = 3

        def read(clock: HandClock = led.clock) -> bool:
            began.append(clock.monotonic_ms())
            return True

        def run(rows: pa.Table, clock: HandClock = led.clock) -> pa.Table:
            clock.advance(0.03)
            return rows

        led.source.on_read, led.transform.on_run = read, run
        led.start()
        soon(lambda led=led: led.delivered and led.delivered[-1].end == Offsets.of(10), "all is delivered")  # type: ignore[misc]
        led.feed.stop()
        assert [each - began[0] for each in began[:4]] == expected
        began.clear()


def test_a_stop_does_not_wait_for_the_next_batch_to_be_due(make: Callable[..., Led]) -> None:
    led = make(task__commit__interval__ms="10000")
    led.start()
    soon(lambda: led.delivered, "a batch")
    led.feed.stop()
    assert led.feed.wait(0)
    assert (led.feed.failure, len(led.delivered)) == (None, 1)


def test_a_feed_that_is_to_shrink_reads_much_less_than_its_last_batch_had(make: Callable[..., Led]) -> None:
    led = make()
    led.source.known[0] = 0, 800
    led.run(800)
    led.feed.shrink()
    led.run(800)
    assert [each.rows.num_rows for each in led.delivered] == [800, 100, 200, 400, 100]


def test_what_a_transform_runs_on_is_known_while_it_runs_and_not_while_the_feed_reads(
    make: Callable[..., Led],
) -> None:
    """What ends the process meanwhile is put down to it (rule `fair-blame`)."""
    came: list[str] = []

    @contextmanager
    def transforming(starts: Mapping[TaskId, Offsets]) -> Iterator[None]:
        came.append(f"transform {dict(starts)}")
        yield
        came.append("transformed")

    def read() -> bool:
        came.append("read")
        return True

    def enough(_: object) -> None:
        raise LookupError("enough")

    led = make(1, transforming)
    led.source.on_read = read
    led.feed.start({TASK: Offsets.of(7)}, enough)
    assert led.feed.wait(PATIENCE_SECONDS)
    assert isinstance(led.feed.failure, LookupError)
    assert came == ["read", "transform " + str({TASK: Offsets.of(7)}), "transformed"]


def test_a_time_beyond_all_timestamps_names_the_record(make: Callable[..., Led]) -> None:
    feed, latest = make().feed, (2**63 - 1) // 1000
    times = [placed(0, 3, -1), placed(0, 4, latest)]
    later = placed(0, 5, latest + 1)
    assert feed._table(times)["timestamp"].cast("int64").to_pylist() == [-1000, latest * 1000]
    with pytest.raises(
        UnreadableRecord, match=rf"input in\[0\], offset 5: the record's time, {latest + 1} ms"
    ):
        feed._table([*times, later])


def test_a_feed_is_warm_with_a_connected_reader_which_the_next_start_uses(make: Callable[..., Led]) -> None:
    led = make()
    assert (led.feed.is_warm, led.feed.start_seconds) == (False, None)
    led.source.known[0] = 0, 0
    led.feed.warm()
    led.feed.warm()
    assert (led.feed.is_warm, led.feed.start_seconds) == (True, 0.25)
    (spare,) = led.source.readers
    assert spare.is_connected
    assert spare.idles == 1, "otherwise it would keep what it logs"
    led.start()
    assert led.source.readers == [spare]
    assert led.feed.is_warm
    led.feed.stop()
    assert spare.is_closed
    assert (led.feed.is_warm, led.feed.start_seconds) == (False, None), "it has to connect again"
    led.feed.warm()
    assert led.feed.is_warm
    led.feed.close()
    assert led.source.open == []
    assert led.transform.is_closed


def test_a_feed_becomes_warm_while_some_partition_has_no_leader(make: Callable[..., Led]) -> None:
    """Partition 0 alone was asked for, so that no standby of any task became warm while it had no leader."""
    led = make(2)
    led.source.known = {1: (0, 10)}
    led.feed.warm()
    assert led.feed.is_warm
    led.source.known, led.source.asked = {0: (0, 10), 1: (0, 10)}, []
    led.feed._connect()
    assert led.source.asked == [[("in", 0)]], "it is done often, and a job may have thousands of partitions"
    led.source.known = {}
    with pytest.raises(Transient, match="no leader"):
        led.feed.warm()
    led.feed.close()


def test_a_reader_is_closed_if_it_cannot_connect_or_its_positions_are_wrong(make: Callable[..., Led]) -> None:
    """Each attempt of a standby while a broker was away left a client with its threads and connections."""
    led = make()
    led.source.is_away = True
    for attempt in (led.feed.warm, led.start):
        with pytest.raises(Transient, match="no broker answers"):
            attempt()
    led.source.is_away, led.source.is_truncated = False, True
    with pytest.raises(CorruptState, match="past the end"):
        led.start()
    assert len(led.source.readers) == 3
    assert led.source.readers[-1].positions(), "it fetches while the bounds are asked for"
    assert led.source.open == []
    led.source.is_truncated = False
    led.start()
    led.feed.close()


def test_a_warm_up_is_over_the_last_records_of_few_partitions(make: Callable[..., Led]) -> None:
    led = make(4)
    for known, expected in (
        ({0: (5, 5), 1: (0, 10_000), 2: (90, 100), 3: (0, 10_000)}, {1: (9_750, 10_000), 2: (90, 100)}),
        ({0: (0, 1), 1: (5, 5), 2: (5, 5), 3: (7, 7)}, {0: (0, 1)}),
        (dict.fromkeys(range(4), (5, 5)), None),
    ):
        led.source.known = known
        led.feed.warm()
        recent = led.transform.recent.pop()
        found = None if recent is None else sorted(zip(*_columns(recent, "_task", "_offset"), strict=True))
        assert found == (
            None
            if expected is None
            else [(each, offset) for each, span in expected.items() for offset in range(*span)]
        )
    assert len(led.source.open) == 1, "the one for the next start"


def test_a_warm_up_reads_no_more_bytes_than_a_batch(make: Callable[..., Led]) -> None:
    """It read 500 records of any size: a standby's memory is not made for that."""
    led = make(task__batch__max__bytes="1000")
    led.source.most, led.source.value = 2, bytes(300)
    led.feed.warm()
    (recent,) = led.transform.recent
    assert recent is not None
    assert recent["_offset"].to_pylist() == [0, 1, 2, 3]
    assert led.source.bounds == [1_000, 400]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_warm_up_neither_waits_for_recent_records_nor_fails_on_them(
    make: Callable[..., Led], *, is_damaged: bool
) -> None:
    """A container whose warm-up raised would end, and so would the one after it, on the same records."""
    led, reads = make(), list[None]()

    def read() -> bool:
        reads.append(None)
        assert len(reads) <= 2
        if is_damaged:
            raise UnreadableRecord("damaged")
        led.clock.advance(_RECENT_SECONDS / 2)
        return False

    led.source.on_read = read
    led.feed.warm()
    assert led.transform.recent == [None]
    assert len(led.source.open) == 1, "that of the next start"


def _columns(rows: pa.Table, *names: str) -> list[list[Any]]:
    return [rows.column(each).to_pylist() for each in names]
