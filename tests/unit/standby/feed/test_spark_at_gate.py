"""What a query that waits for its start holds in memory: no more bytes than a batch may have, whoever is promoted when.

The stream is one in memory: it makes micro-batches of the offsets that Spark's source would, and knows no bytes either.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from standby.feed.batches import ROWS
from standby.feed.rules.sizing import FIRST_RECORDS, LEAST_RECORDS
from standby.feed.spark import SparkFeed
from standby.ports import TaskBatch
from standby.shared.model import InputPartition, Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.fakes.jobs import job_config
from tests.patience import soon

TASK = TaskId("j", "main", 0)
AT_MOST = 2_000_000

#: Of a record's key, time, task and offset in a table, and what rounding leaves.
ROW_BYTES = 64


class Log:
    """One partition: how large the value at each offset is."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)
        self.changed = threading.Condition()

    def append(self, *sizes: int) -> None:
        with self.changed:
            self.sizes += sizes
            self.changed.notify_all()

    def check(self, _: object) -> dict[InputPartition, tuple[int, int]]:
        return {("in", 0): (0, len(self.sizes))}


class Stream:
    """A streaming query of Spark's over a `Log`, and the frame that it is made of."""

    def __init__(self, log: Log, start: int, limit: int, computed: list[int]) -> None:
        self._log, self._start, self.end, self.limit = log, start, start, limit
        self._computed = computed
        self._is_stopped = False
        self.has_source = False
        """Whether it knows what it reads, which is so from its first batch on."""
        self.writeStream = self
        self._jsq = SimpleNamespace(streamingQuery=lambda: self)

    def foreachBatch(self, on_batch: Any) -> Stream:  # noqa: N802
        self._on_batch = on_batch
        return self

    def options(self, **_: str) -> Stream:
        return self

    def option(self, *_: str) -> Stream:
        return self

    def start(self) -> Stream:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        with self._log.changed:
            self._is_stopped = True
            self._log.changed.notify_all()

    def awaitTermination(self) -> None:  # noqa: N802
        self._thread.join()

    def availableOffsets(self) -> Any:  # noqa: N802
        offset = SimpleNamespace(json=lambda: json.dumps({"in": {"0": self.end}}))
        values = SimpleNamespace(size=lambda: 1, head=lambda: offset)
        return SimpleNamespace(values=lambda: values)

    def toArrow(self) -> pa.Table:  # noqa: N802
        sizes = self._log.sizes[self._start : self.end]
        rows = pa.table(
            {
                "key": [None] * len(sizes),
                "value": [bytes(size) for size in sizes],
                "timestamp": [0] * len(sizes),
                "_task": [0] * len(sizes),
                "_offset": range(self._start, self.end),
            },
            schema=ROWS,
        )
        self._computed.append(rows.nbytes)
        return rows

    def _run(self) -> None:
        while True:
            with self._log.changed:
                self._log.changed.wait_for(lambda: self._is_stopped or self.end < len(self._log.sizes))
                if self._is_stopped:
                    return
                self.has_source = True
                self._start, self.end = self.end, min(len(self._log.sizes), self.end + self.limit)
            self._on_batch(self, 0)


class Spark:
    """This process's Spark, of which every query reads the same log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.process = SimpleNamespace(is_alive=True, pid=0)
        self.has_async_progress = False
        self.streams: list[Stream] = []
        self.computed: list[int] = []
        """The bytes of each batch whose rows were asked for."""

    def kafka_rows(
        self, options: Mapping[str, str], _: object, positions: Mapping[InputPartition, int]
    ) -> Stream:
        limit = int(options["maxOffsetsPerTrigger"])
        self.streams.append(Stream(self._log, positions["in", 0], limit, self.computed))
        return self.streams[-1]

    def limit_batches(self, stream: Stream, records: int) -> None:
        if not stream.has_source:
            raise Py4JError("head of empty map")
        stream.limit = records

    @contextlib.contextmanager
    def asking(self, *_: object) -> Iterator[None]:
        yield

    deadline = asking

    def count_query(self) -> None:
        pass

    def forget_query(self, _: object) -> None:
        pass

    def discard(self, _: Path) -> None:
        pass

    def remove_discarded(self) -> None:
        pass

    def release(self) -> None:
        pass


class Ahead:
    """What looks at records to come; it finds those that are there."""

    def __init__(self, log: Log) -> None:
        self._log, self._found = log, 0

    def look(self, positions: Mapping[InputPartition, int], records: int) -> None:
        begin = positions["in", 0]
        self._found = max(self._log.sizes[begin : begin + records], default=0)

    def largest(self) -> int:
        return self._found

    def close(self) -> None:
        pass


class Held:
    """A feed over a log, begun ahead by `prepare`."""

    def __init__(self, *sizes: int) -> None:
        config = job_config(task__batch__max__bytes=str(AT_MOST))
        definition = JobDefinition(name="j", run="r", config={}, changelog="c", group="g", tasks=1)
        self.log = Log(*sizes)
        self.spark = Spark(self.log)
        self.feed = SparkFeed(config, definition, (), Path("no-code"))
        parts = cast("Any", self.feed)
        parts._spark, parts._bounds, parts._ahead = self.spark, self.log, Ahead(self.log)

    def await_batch(self, least: int) -> None:
        """Wait until the rows of so many batches were asked for."""
        soon(lambda: len(self.spark.computed) >= least and self.feed.is_prepared, "no batch at the gate")

    def prepare(self, position: int, *, is_near: bool = True) -> None:
        """Begin the query ahead, or let what is below ``position`` go and wait until the query has come so far."""
        if not self.feed.prepare({TASK: Offsets.of(position)}, is_near=is_near):
            soon(lambda: self.spark.streams[-1].end >= position, "the query does not follow")

    def start(self, position: int) -> list[int]:
        """Begin where ``position`` is committed, and return the offset after each batch, in order."""
        ends: list[int] = []

        def deliver(batches: tuple[TaskBatch, ...]) -> None:
            ends.append(batches[0].end.total)

        self.feed.start({TASK: Offsets.of(position)}, deliver)
        return ends


@pytest.fixture
def held() -> Iterator[Callable[..., Held]]:
    with contextlib.ExitStack() as ends:

        def make(*sizes: int) -> Held:
            made = Held(*sizes)
            ends.callback(made.feed.close)
            return made

        yield make


def test_first_batch_at_the_gate_has_as_few_records_as_any_first_batch(held: Callable[..., Held]) -> None:
    query = held(*[20_000] * 1_000)
    query.prepare(0)
    query.await_batch(1)
    assert query.spark.computed[0] <= FIRST_RECORDS * (20_000 + ROW_BYTES)


def test_query_begun_ahead_again_has_no_more_bytes_at_its_gate_than_a_batch(
    held: Callable[..., Held],
) -> None:
    query = held(*[20_000] * 4_000)
    query.prepare(500)
    query.await_batch(1)
    query.feed.stop()
    query.prepare(1_500)
    query.await_batch(2)
    assert query.spark.computed[-1] <= AT_MOST + 20_000


def test_records_that_become_larger_while_a_batch_is_held_are_few_in_the_next(
    held: Callable[..., Held],
) -> None:
    small, large = [50] * 10_000, [20_000] * 2_000
    query = held(*small)
    query.prepare(len(small), is_near=False)
    query.await_batch(1)
    query.log.append(*large)
    # The active goes on, and the query follows it; of a batch that it lets go it does not learn what is in it.
    query.prepare(len(small) + 1, is_near=False)
    ends = query.start(len(small) + 1)
    soon(lambda: ends and ends[-1] == len(small) + len(large), "not everything came")
    assert max(query.spark.computed) <= 1.2 * AT_MOST


def test_query_that_is_begun_anew_looks_at_what_it_begins_with(held: Callable[..., Held]) -> None:
    small, large = [50] * 10_000, [20_000] * 2_000
    query = held(*small, *large)
    query.prepare(500, is_near=False)
    query.await_batch(1)
    query.feed.stop()
    query.prepare(len(small) + 1_000, is_near=False)
    query.await_batch(2)
    assert query.spark.computed[-1] <= 1.2 * AT_MOST


def test_query_that_is_started_before_its_first_batch_reads_larger_ones_later(
    held: Callable[..., Held],
) -> None:
    query = held(*[10] * (4 * LEAST_RECORDS))
    with query.log.changed:
        query.prepare(500)
        ends = query.start(500)
    soon(lambda: ends and ends[-1] == 4 * LEAST_RECORDS, "not everything came")
    assert max(end - before for before, end in itertools.pairwise(ends)) > FIRST_RECORDS


def test_query_at_its_gate_follows_in_larger_batches_than_it_begins_to_count_with(
    held: Callable[..., Held],
) -> None:
    query = held(*[10] * (20 * LEAST_RECORDS))
    query.prepare(500)
    query.await_batch(1)
    query.feed.stop()
    query.prepare(500)
    query.await_batch(2)
    assert query.spark.computed[-1] > 3 * LEAST_RECORDS * 10
