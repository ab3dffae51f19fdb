"""Watches a running contestant from outside: its outputs, their times, and the resources of its processes.

The contestants themselves are not queried, so all are measured with the same clock and the same counts.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from benchmarks import meter
from benchmarks.contest import Failed
from benchmarks.dataset import make_topic
from benchmarks.lags import Sample, steady
from benchmarks.rounds import quantile
from benchmarks.running import Running
from benchmarks.streams import Case, Place, commands

_LOOK_SECONDS: Final = 0.25
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

#: From the start of the processes to the first output; two JVMs may start on two busy cores.
_FIRST_SECONDS: Final = 180.0

#: The time without new output after which the backlog counts as processed.
_DONE_SECONDS: Final = 2.0

#: The time without new output after which no more is expected; a slow contestant's batch may take long.
_STOPPED_SECONDS: Final = 60.0

#: Records per partition that warm a contestant up before its latency is measured.
_WAKING: Final = 200

_STAMP: Final = struct.Struct(">q")


class Referee:
    """Measures one contestant in one case."""

    def __init__(self, name: str, case: Case, place: Place, keys: int, logs: Path) -> None:
        self._name, self._case, self._place, self._keys = name, case, place, keys
        self._logs = logs
        self._admin = AdminClient({"bootstrap.servers": place.bootstrap})

    def saturation(self, backlog: int, warm_seconds: float, seconds: float) -> dict[str, float]:
        """Return rows per second, and their CPU time, while ``backlog`` records wait; raises `Failed`."""
        with self._topics():
            with self._load(backlog, 0) as load:
                load.join(600)
            with self._running() as workers:
                samples = self._watch(workers, backlog, warm_seconds, seconds)
            window = steady(samples, warm_seconds, seconds)
            if window is None:
                raise Failed("the backlog was used up before the window began: make it larger")
            first, last = window
            rows = self._count(first.ends, last.ends)
        spent = last.cpu_seconds - first.cpu_seconds
        return {
            "rows_per_second": rows / (last.at - first.at),
            "cpu_seconds_per_million": spent / rows * 1e6,
            "rows_per_cpu_second": rows / spent,
            "cores": spent / (last.at - first.at),
            "window_seconds": last.at - first.at,
            "resident_bytes": max(each.resident_bytes for each in samples),
        }

    def latency(self, rate: float, settle_seconds: float, seconds: float) -> dict[str, float]:
        """Return the times from when a record was due until the arrival of its output, at ``rate`` records a second."""
        woken = _WAKING * self._case.partitions
        total = woken + round(rate * (settle_seconds + seconds))
        with self._topics(), self._consumer() as consumer:
            with self._load(woken, 0) as load:
                load.join(60)
            consumer.assign(
                [TopicPartition(self._place.output, each, 0) for each in range(self._case.partitions)]
            )
            with self._running() as workers:
                received = _receive(consumer, workers, woken, [], _FIRST_SECONDS)
                with self._load(total - woken, rate) as load:
                    begin = time.time_ns() + round(settle_seconds * 1e9)
                    end = begin + round(seconds * 1e9)
                    found: list[tuple[int, int]] = []
                    spent = _Spent(workers, begin, end)
                    received += _receive(consumer, workers, total - received, found, _STOPPED_SECONDS, spent)
                    load.join(60)
                # Any further output is a duplicate.
                received += _receive(consumer, workers, 1, [], 1.0)
        seen = [arrived - stamp for stamp, arrived in found if begin <= stamp < end]
        if not seen:
            raise Failed("no output in the window")
        return {
            "latency_rate": rate,
            "latency_p50_ms": quantile(seen, 0.5) / 1e6,
            "latency_p99_ms": quantile(seen, 0.99) / 1e6,
            "latency_max_ms": max(seen) / 1e6,
            "half_load_cores": spent.cores,
            "lost_records": max(0, total - received),
            "surplus_records": max(0, received - total),
        }

    # ---- means ----

    @contextmanager
    def _topics(self) -> Iterator[None]:
        place, partitions = self._place, self._case.partitions
        make_topic(place.bootstrap, place.changelog, partitions)
        for topic in (place.input, place.output):
            make_topic(place.bootstrap, topic, partitions, "delete")
        try:
            yield
        finally:
            # All topics of the run, including those that the contestants created, because the disk is finite.
            ours = [each for each in self._admin.list_topics(timeout=30).topics if place.job in each]
            for future in self._admin.delete_topics(ours).values():
                future.result(30)

    @contextmanager
    def _running(self) -> Iterator[list[Running]]:
        with ExitStack() as stack:
            self._place.state.mkdir(parents=True, exist_ok=True)
            log = self._logs / f"steady-{self._name.replace(' ', '-').replace(',', '')}.log"
            yield [
                stack.enter_context(Running(command, log))
                for command in commands(self._name, self._case, self._place)
            ]

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._place.bootstrap,
                "group.id": "referee",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 5,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _load(self, records: int, rate: float) -> Running:
        return Running(
            [
                *(sys.executable, "-m", "benchmarks.load", "--bootstrap", self._place.bootstrap),
                *("--topic", self._place.input, "--partitions", str(self._case.partitions)),
                *("--records", str(records), "--rate", str(rate), "--keys", str(self._keys)),
            ],
            self._logs / "steady-load.log",
        )

    def _watch(
        self, workers: Sequence[Running], backlog: int, warm_seconds: float, seconds: float
    ) -> list[Sample]:
        """Return all samples until the window is over or no input is left; raises `Failed`."""
        pids = [each.pid for each in workers]
        samples: list[Sample] = []
        begin = news = time.monotonic()
        while True:
            for each in workers:
                each.check()
            sample = Sample(
                time.monotonic(), self._ends(), meter.cpu_seconds(pids), meter.resident_bytes(pids)
            )
            if samples and sample.ends != samples[-1].ends:
                news = sample.at
            samples.append(sample)
            window, done = steady(samples, warm_seconds, seconds), sum(sample.ends)
            if window is not None and sample.at >= window[0].at + seconds:
                return samples
            if done >= backlog and sample.at - news > _DONE_SECONDS:
                return samples
            if done == 0 and sample.at - begin > _FIRST_SECONDS:
                raise Failed(f"no output within {_FIRST_SECONDS:.0f} s")
            if done > 0 and sample.at - news > _STOPPED_SECONDS:
                raise Failed("the output has stopped")
            time.sleep(_LOOK_SECONDS)

    def _ends(self) -> tuple[int, ...]:
        asked = {TopicPartition(self._place.output, each): _LATEST for each in range(self._case.partitions)}
        futures = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        found = {each.partition: future.result(30).offset for each, future in futures.items()}
        return tuple(found[each] for each in range(self._case.partitions))

    def _count(self, first: Sequence[int], last: Sequence[int]) -> int:
        """Return the number of committed records in between; offsets alone would include transaction markers."""
        rows = 0
        with self._consumer() as consumer:
            places = [TopicPartition(self._place.output, each, at) for each, at in enumerate(first)]
            consumer.assign(places)
            give_up = time.monotonic() + 300
            while any(
                # Before the first record the position is below 0.
                max(each.offset, first[each.partition]) < last[each.partition]
                for each in consumer.position(places)
            ):
                for message in consumer.consume(10_000, 0.2):
                    if _is_before(message, last):
                        rows += 1
                if time.monotonic() > give_up:
                    raise Failed("the output cannot be read")
        if not rows:
            raise Failed("no output in the window")
        return rows


def _is_before(message: Message, ends: Sequence[int]) -> bool:
    """Return whether it is a record, and one below the end of its partition."""
    partition, offset = message.partition(), message.offset()
    if message.error() is not None or partition is None or offset is None:
        return False
    return offset < ends[partition]


class _Spent:
    """The CPU time in a window given in Unix nanoseconds; `look` must be called often."""

    def __init__(self, workers: Sequence[Running], begin: int, end: int) -> None:
        self._pids = [each.pid for each in workers]
        self._due = [begin, end]
        self._seen: list[tuple[int, float]] = []

    def look(self, now: int) -> None:
        """Take a sample when a bound of the window is reached."""
        if self._due and now >= self._due[0]:
            self._due.pop(0)
            self._seen.append((now, meter.cpu_seconds(self._pids)))

    @property
    def cores(self) -> float:
        """Return the average number of busy cores; 0 if the window was not observed to its end."""
        if len(self._seen) < 2:
            return 0.0
        (begin, before), (end, after) = self._seen
        return (after - before) / (end - begin) * 1e9


def _receive(
    consumer: Consumer,
    workers: Sequence[Running],
    wanted: int,
    found: list[tuple[int, int]],
    quiet_seconds: float,
    spent: _Spent | None = None,
) -> int:
    """Return how many records arrived: ``wanted``, or fewer if nothing arrives for the given time.

    The times at which each was due and arrived, Unix nanoseconds, are added to ``found``.
    """
    received, news = 0, time.monotonic()
    while received < wanted:
        messages = consumer.consume(1_000, 0.01)
        now = time.time_ns()
        if spent is not None:
            spent.look(now)
        if not messages:
            for each in workers:
                each.check()
            if time.monotonic() - news > quiet_seconds:
                break
            continue
        news = time.monotonic()
        for message in messages:
            value = message.value()
            if message.error() is None and value is not None:
                received += 1
                found.append((_STAMP.unpack_from(value)[0], now))
    return received
