"""A feed on Kafka in memory; a test can script each of its steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pyarrow as pa

from standby.config import JobConfig
from standby.errors import BrokenInvariant
from standby.feed.batches import ROWS, rows_of
from standby.feed.inputs import by_partition
from standby.feed.reading import QueryBuffer
from standby.ports import Deliver, InputAway, UnreadableRecord
from standby.shared.model import InputPartition, Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.fakes.kafka import Link
from tests.patience import LOOK_SECONDS

_BATCH = 7


class MemoryFeed:
    """A `standby.ports.Feed`; one thread per start."""

    def __init__(self, link: Link, config: JobConfig) -> None:
        self._link, self._kafka, self._inputs = link, link.kafka, config.inputs
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        #: The last that was started.
        self._running = QueryBuffer({}, self._inputs, "", lambda error, _: error)
        self._running.end(None)
        self._prepared: QueryBuffer | None = None
        self.prepares: list[dict[TaskId, Offsets]] = []
        """Positions of every query that was begun ahead."""
        self.starts_ahead = 0
        """How many starts used such a query."""
        #: Called by each `prepare`; may raise.
        self.on_prepare: Callable[[], None] = lambda: None
        self.starts: list[dict[TaskId, Offsets]] = []
        """Positions of every start."""
        self.runs: list[tuple[dict[TaskId, Offsets], dict[TaskId, Offsets] | None]] = []
        """Positions and ends of every start."""
        self.ahead = 0
        """A query that is begun ahead begins so many records of each partition lower, where there are some."""
        self.batch = _BATCH
        """Most records of a partition in a batch."""
        self.is_closed = False
        #: Partitions of which it brings nothing until it is started anew.
        self.deaf: set[int] = set()
        self.may_go_deaf = False
        self.pids: tuple[int, ...] = ()
        self.warms = 0
        #: Called by each `warm`; returns early when the event is set by `cancel_warm`.
        self.on_warm: Callable[[threading.Event], None] = lambda _: None
        #: Called by each `start` before anything; may raise.
        self.on_start: Callable[[], None] = lambda: None
        #: Called before each look at the input; may raise or wait.
        self.on_look: Callable[[], None] = lambda: None
        #: The job's transform: given the rows of all tasks of a batch, before any of them is delivered.
        self.transform: Callable[[pa.Table], None] = lambda _: None
        self._cancelled = threading.Event()

    def warm(self) -> None:
        self._cancelled.clear()
        self.on_warm(self._cancelled)
        self.warms += 1

    def cancel_warm(self) -> None:
        self._cancelled.set()

    @property
    def is_warm(self) -> bool:
        return self.warms > 0

    def prepare(self, positions: Mapping[TaskId, Offsets], *, is_near: bool = True) -> bool:
        if not self._running.has_ended:
            raise BrokenInvariant("prepared while it runs")
        self.on_prepare()
        prepared = self._prepared
        if prepared is not None and prepared.records_below(positions) is not None:
            prepared.pass_below(positions, is_near=is_near)
            return False
        self.stop()
        self.prepares.append(dict(positions))
        self._prepared = self._begin(self._a_little_below(positions), None)
        return True

    @property
    def is_prepared(self) -> bool:
        return self._prepared is not None and not self._prepared.has_ended

    @property
    def start_seconds(self) -> float | None:
        return 0.0 if self.is_warm else None

    def start(
        self,
        positions: Mapping[TaskId, Offsets],
        deliver: Deliver,
        until: Mapping[TaskId, Offsets] | None = None,
    ) -> None:
        if not self._running.has_ended:
            raise BrokenInvariant("started while it runs")
        self.on_start()
        away = self._kafka.leaderless.intersection(by_partition(positions, self._inputs))
        if away:
            raise InputAway(f"nobody answers for {sorted(away)}", {number for _, number in away})
        self.starts.append(dict(positions))
        self.runs.append((dict(positions), None if until is None else dict(until)))
        reading = self._prepared
        if reading is None or until is not None or reading.records_below(positions) is None:
            self.stop()
            reading = self._begin(positions, until)
        else:
            self.starts_ahead += 1
        self._prepared, self._running = None, reading
        reading.open(positions, deliver)

    def wait(self, timeout_seconds: float) -> bool:
        return self._running.wait(timeout_seconds)

    @property
    def failure(self) -> BaseException | None:
        return self._running.failure

    def shrink(self) -> None:
        self.batch = max(1, self.batch // 8)

    def stop(self) -> None:
        if self._prepared is not None:
            self._prepared.drop()
            self._prepared = None
        with self._kafka.lock:
            self._is_stopping = True
            self._kafka.lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        self.stop()
        self.is_closed = True

    @property
    def child_pids(self) -> tuple[int, ...]:
        return self.pids

    def _a_little_below(self, positions: Mapping[TaskId, Offsets]) -> dict[TaskId, Offsets]:
        return {
            task: Offsets(tuple(max(0, each - self.ahead) for each in offsets.each))
            for task, offsets in positions.items()
        }

    def _begin(
        self, positions: Mapping[TaskId, Offsets], until: Mapping[TaskId, Offsets] | None
    ) -> QueryBuffer:
        reading = QueryBuffer(positions, self._inputs, "the transform", lambda error, _: error)
        self._is_stopping = False
        self.deaf.clear()
        ends = None if until is None else by_partition(until, self._inputs)
        self._thread = threading.Thread(target=self._run, args=(reading, ends), daemon=True)
        self._thread.start()
        return reading

    def _run(self, reading: QueryBuffer, until: Mapping[InputPartition, int] | None) -> None:
        positions = by_partition(reading.positions, self._inputs)
        failure: BaseException | None = None
        try:
            while not self._is_stopping:
                if until is not None and all(positions[each] >= until[each] for each in until):
                    return
                self.on_look()
                spans = self._next(positions, until)
                if spans:
                    ends = {where: end for where, (_, end) in spans.items()}
                    if not reading.is_below(ends):
                        rows = pa.concat_tables([self._rows(where, *span) for where, span in spans.items()])
                        self.transform(rows)
                        reading.receive(rows, ends)
                    positions.update(ends)
        except BaseException as error:  # noqa: BLE001 - the caller gets it as `failure`
            failure = error
        finally:
            reading.end(failure)

    def _next(
        self, positions: Mapping[InputPartition, int], until: Mapping[InputPartition, int] | None
    ) -> dict[InputPartition, tuple[int, int]]:
        with self._kafka.lock:
            if self._link.is_away:
                self._kafka.lock.wait(LOOK_SECONDS)
                return {}
            spans = {
                where: (start, end)
                for where, start in positions.items()
                if where[1] not in self.deaf
                and (end := min(self._end(where, until), start + self.batch)) > start
            }
            if not spans:
                self._kafka.lock.wait(LOOK_SECONDS)
            return spans

    def _end(self, where: InputPartition, until: Mapping[InputPartition, int] | None) -> int:
        end = len(self._kafka.logs[where])
        return end if until is None else min(end, until[where])

    def _rows(self, where: InputPartition, start: int, end: int) -> pa.Table:
        topic, partition = where
        with self._kafka.lock:
            damage = self._kafka.damage_in(where, start, end)
            if damage is not None:
                told = f"input {topic}[{partition}], offset {damage.start}: it is damaged"
                raise UnreadableRecord(told, batch=damage.start)
            records = self._kafka.logs[where][start:end]
        columns = {
            "key": [each.key for each in records],
            "value": [each.value for each in records],
            # As if every record of a topic had come a second after the one before.
            "timestamp": pa.array(
                [each * 1_000_000 for each in range(start, end)], ROWS.field("timestamp").type
            ),
            "_task": [partition] * len(records),
            "_offset": list(range(start, end)),
        }
        if len(self._inputs) > 1:
            columns["_topic"] = [topic] * len(records)
        return pa.table(columns, schema=rows_of(self._inputs))


class MemoryFeeds:
    """Makes the feeds of a container and keeps them for the test to script; a `standby.ports.MakeFeed`."""

    def __init__(self, link: Link, script: Callable[[MemoryFeed], None] = lambda _: None) -> None:
        self._link, self._script = link, script
        self.made: list[MemoryFeed] = []

    def __call__(self, config: JobConfig, definition: JobDefinition) -> MemoryFeed:
        feed = MemoryFeed(self._link, config)
        self._script(feed)
        self.made.append(feed)
        return feed
