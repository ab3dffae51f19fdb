"""A feed on Kafka in memory; a test can script each of its steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from standby.config import JobConfig
from standby.errors import BrokenInvariant
from standby.feed.batches import ROWS, rows_of, split
from standby.feed.inputs import by_partition, reached_offsets
from standby.ports import Deliver, InputAway, NotLent, UnreadableRecord
from standby.shared.model import InputPartition, Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.fakes.kafka import Link
from tests.patience import LOOK_SECONDS

#: The name of its threads.
FEED = "feed"

_BATCH = 7


class MemoryFeed:
    """A `standby.ports.Feed`; one thread per start."""

    def __init__(self, link: Link, config: JobConfig) -> None:
        self._link, self._kafka, self._inputs = link, link.kafka, config.inputs
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._ended = threading.Event()
        self._ended.set()
        self._failure: BaseException | None = None
        self.starts: list[dict[TaskId, Offsets]] = []
        """Positions of every start."""
        self.runs: list[tuple[dict[TaskId, Offsets], dict[TaskId, Offsets] | None]] = []
        """Positions and ends of every start."""
        self.batch = _BATCH
        """Most records of a partition in a batch."""
        self.is_closed = False
        #: Partitions of which it brings nothing until it is started anew.
        self.deaf: set[int] = set()
        self.pids: tuple[int, ...] = ()
        #: Whether they get the input.
        self.runs_in_child = True
        self.warms = 0
        #: The tasks of every `expect`.
        self.expected: list[frozenset[TaskId]] = []
        #: Called by each `warm`; returns early when the event is set by `cancel_warm`.
        self.on_warm: Callable[[threading.Event], None] = lambda _: None
        #: Whether a `start` that waits was called off.
        self.called_off = threading.Event()
        #: Called by each `start` before anything; may raise or wait.
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

    def expect(self, tasks: Collection[TaskId]) -> None:
        self.expected.append(frozenset(tasks))

    @property
    def start_seconds(self) -> float | None:
        return 0.0 if self.is_warm else None

    def start(
        self,
        positions: Mapping[TaskId, Offsets],
        deliver: Deliver,
        until: Mapping[TaskId, Offsets] | None = None,
    ) -> None:
        if not self._ended.is_set():
            raise BrokenInvariant("started while it runs")
        self.on_start()
        away = self._kafka.leaderless.intersection(by_partition(positions, self._inputs))
        if away:
            raise InputAway(f"no broker answers for {sorted(away)}", {number for _, number in away})
        self.starts.append(dict(positions))
        self.runs.append((dict(positions), None if until is None else dict(until)))
        self._is_stopping, self._failure = False, None
        self.deaf.clear()
        self._ended.clear()
        ends = None if until is None else by_partition(until, self._inputs)
        started = (dict(positions), ends, deliver)
        self._thread = threading.Thread(target=self._run, args=started, name=FEED, daemon=True)
        self._thread.start()

    def cancel_start(self) -> None:
        self.called_off.set()

    def wait(self, timeout_seconds: float) -> bool:
        return self._ended.wait(timeout_seconds)

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def shrink(self) -> None:
        self.batch = max(1, self.batch // 8)

    def stop(self) -> None:
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

    @property
    def has_run_in_child(self) -> bool:
        return bool(self.pids) and self.runs_in_child

    @property
    def is_lending(self) -> bool:
        return self.is_warm

    def lend(self, rows: bytes) -> bytes:
        if not self.is_warm:
            raise NotLent("not warm")
        return rows

    def _run(
        self, starts: dict[TaskId, Offsets], until: Mapping[InputPartition, int] | None, deliver: Deliver
    ) -> None:
        positions = by_partition(starts, self._inputs)
        try:
            while not self._is_stopping:
                if until is not None and all(positions[each] >= until[each] for each in until):
                    return
                self.on_look()
                found = self._next(positions, until)
                if not found:
                    continue
                rows = pa.concat_tables([self._rows(where, *span) for where, span in found.items()])
                self.transform(rows)
                positions.update({where: end for where, (_, end) in found.items()})
                spans = {
                    task: (start, reached_offsets(positions, self._inputs, task, start))
                    for task, start in starts.items()
                }
                batches = split(rows, spans, self._inputs, "the transform")
                if not self._is_stopping:
                    deliver(batches)
                    starts.update((batch.task, batch.end) for batch in batches)
        except BaseException as error:  # noqa: BLE001 - the caller gets it as `failure`
            self._failure = error
        finally:
            self._ended.set()

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
