"""The cost of the event-time helpers per row: ``python -m benchmarks.eventtime``.

The same stream goes through each helper, batch after batch: on a store that is a plain dictionary, and on the
kernel's own overlay and RocksDB, with each batch written like a commit, but without Kafka. For comparison, a plain
Python loop over dictionaries computes the same without any store: nothing that keeps state can be faster. Each row
has a random key, and rows are out of order by up to a second. Writes JSON: rows per CPU second (of the whole process,
RocksDB's threads included), medians of several rounds, the contestants in turn.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from demo.versions import versions
from standby.adapters.rocksdict import open_database
from standby.api import Store
from standby.eventtime import (
    COUNT,
    SUM,
    Deduplication,
    Emit,
    SessionAggregation,
    TimeWindows,
    Watermark,
    WindowAggregation,
)
from standby.kernel.ports import Profile
from standby.replica.store.overlay import BatchState

_DELAY_MS: Final = 2_000
_MINUTE_MS: Final = 60_000
_GAP_MS: Final = 30_000


@dataclass(frozen=True)
class Batch:
    """Rows as lists, as a step has them."""

    keys: list[bytes]
    times: list[int]
    ids: list[bytes]
    values: list[int]


def stream(rows: int, size: int, keys: int, rows_per_second: int) -> list[Batch]:
    """Return batches of ``size`` rows; one row in ten is sent twice."""
    draw = random.Random(1)
    batches = []
    for first in range(0, rows, size):
        places = range(first, first + size)
        ids = [place if draw.random() > 0.1 else max(0, place - draw.randrange(1_000)) for place in places]
        batches.append(
            Batch(
                [b"key-%010d" % draw.randrange(keys) for _ in places],
                [place * 1_000 // rows_per_second - draw.randrange(1_000) for place in places],
                [b"id-%012d" % each for each in ids],
                [each % 100 for each in places],
            )
        )
    return batches


class DictStore(Store):
    """A store in memory; new keys are sorted in at a scan."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._order: list[bytes] = []
        self._new: list[bytes] = []
        self._known: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        return self._data.get(key)

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return those of ``keys`` that exist, with their values."""
        data = self._data
        return {key: data[key] for key in keys if key in data}

    def __contains__(self, key: bytes) -> bool:
        return key in self._data

    def range(
        self, start: bytes = b"", stop: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys of [start, stop) with their values."""
        order, data = self._order, self._data
        if self._new:
            order += self._new
            order.sort()
            self._new = []
        if len(order) > 2 * len(data) + 1_000:
            self._order = order = [key for key in order if key in data]
            self._known = set(order)
        end = len(order) if stop is None else bisect_left(order, stop)
        found = [(key, data[key]) for key in order[bisect_left(order, start) : end] if key in data]
        return iter(found[::-1] if reverse else found)

    def prefix(self, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys that begin with ``prefix`` with their values."""
        return (each for each in self.range(prefix, None, reverse) if each[0].startswith(prefix))

    def put(self, key: bytes, value: bytes) -> None:
        """Set ``key`` to ``value``."""
        if key not in self._known:
            self._known.add(key)
            self._new.append(key)
        self._data[key] = value

    def put_many(self, pairs: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Set each key to its value."""
        for key, value in pairs.items() if isinstance(pairs, Mapping) else pairs:
            self.put(key, value)

    def delete(self, key: bytes) -> None:
        """Remove ``key``, whether it exists or not."""
        self._data.pop(key, None)

    def delete_many(self, keys: Iterable[bytes]) -> None:
        """Remove each key, whether it exists or not."""
        for key in keys:
            self.delete(key)


class Case:
    """One helper, and the plain loop that does the same; both return how many results and late rows there were."""

    def __init__(
        self, name: str, run: Callable[[Store, Batch], int], plain: Callable[[], Callable[[Batch], int]]
    ):
        self.name, self.run, self.plain = name, run, plain


_CLOCK: Final = Watermark(_DELAY_MS)


def _windows(spec: WindowAggregation[Any, Any], *, values: bool) -> Callable[[Store, Batch], int]:
    def run(store: Store, batch: Batch) -> int:
        marks = _CLOCK.advance(store, batch.times)
        found = spec.add(store, batch.keys, batch.times, marks, batch.values if values else None)
        return len(found.results)

    return run


def _plain_windows(size: int, advance: int, *, updates: bool) -> Callable[[], Callable[[Batch], int]]:
    def new() -> Callable[[Batch], int]:
        windows: dict[int, dict[bytes, int]] = {}
        highest = -(10**15)
        results: list[tuple[bytes, int, int]] = []

        def run(batch: Batch) -> int:
            nonlocal highest
            results.clear()
            for key, at, value in zip(batch.keys, batch.times, batch.values, strict=True):
                if at > highest:
                    highest = at
                    while windows and (first := min(windows)) + size + _DELAY_MS <= highest:
                        results.extend(
                            (each, first, total) for each, total in sorted(windows.pop(first).items())
                        )
                start = at - at % advance
                while start > at - size:
                    window = windows.setdefault(start, {})
                    window[key] = window.get(key, 0) + value
                    if updates:
                        results.append((key, start, window[key]))
                    start -= advance
            return len(results)

        return run

    return new


def _sessions(store: Store, batch: Batch) -> int:
    marks = _CLOCK.advance(store, batch.times)
    return len(_SESSIONS.add(store, batch.keys, batch.times, marks).results)


_SESSIONS: Final = SessionAggregation(_GAP_MS, COUNT)


def _plain_sessions() -> Callable[[Batch], int]:
    """Return a loop over dictionaries; it assumes one open session per key, which is true here."""
    sessions: dict[bytes, list[int]] = {}
    highest, swept = -(10**15), -(10**15)

    def run(batch: Batch) -> int:
        nonlocal highest, swept
        results = []
        for key, at in zip(batch.keys, batch.times, strict=True):
            highest = max(highest, at)
            session = sessions.get(key)
            if session is not None and session[0] - _GAP_MS <= at <= session[1] + _GAP_MS:
                session[0], session[1] = min(session[0], at), max(session[1], at)
                session[2] += 1
            else:
                if session is not None:
                    results.append((key, *session))
                sessions[key] = [at, at, 1]
        closed = highest - _DELAY_MS - _GAP_MS
        if closed - swept > _GAP_MS:
            swept = closed
            ended = [key for key, session in sessions.items() if session[1] < closed]
            results += [(key, *sessions.pop(key)) for key in ended]
        return len(results)

    return run


def _deduplicate(spec: Deduplication) -> Callable[[Store, Batch], int]:
    def run(store: Store, batch: Batch) -> int:
        found = spec.apply(store, batch.ids, batch.times, _CLOCK.advance(store, batch.times))
        return len(found.kept)

    return run


def _plain_deduplicate() -> Callable[[Batch], int]:
    seen: dict[bytes, int] = {}
    highest, swept = -(10**15), -(10**15)

    def run(batch: Batch) -> int:
        nonlocal highest, swept
        kept = 0
        for each, at in zip(batch.ids, batch.times, strict=True):
            highest = max(highest, at)
            if each not in seen:
                seen[each] = at
                kept += 1
        if highest - swept > _MINUTE_MS:
            swept = highest
            for each in [each for each, at in seen.items() if at + _MINUTE_MS < highest - _DELAY_MS]:
                del seen[each]
        return kept

    return run


_TUMBLING: Final = TimeWindows.tumbling(10_000)
_HOPPING: Final = TimeWindows.hopping(40_000, 10_000)

CASES: Final = (
    Case(
        "tumbling sum, on close",
        _windows(WindowAggregation(_TUMBLING, SUM), values=True),
        _plain_windows(10_000, 10_000, updates=False),
    ),
    Case(
        "tumbling sum, on update",
        _windows(WindowAggregation(_TUMBLING, SUM, Emit.ON_UPDATE), values=True),
        _plain_windows(10_000, 10_000, updates=True),
    ),
    Case(
        "hopping sum, 4 windows a row",
        _windows(WindowAggregation(_HOPPING, SUM), values=True),
        _plain_windows(40_000, 10_000, updates=False),
    ),
    Case("sessions, count", _sessions, _plain_sessions),
    Case(
        "duplicates within a minute",
        _deduplicate(Deduplication.within_watermark(_MINUTE_MS)),
        _plain_deduplicate,
    ),
)


def _seconds(run: Callable[[Batch], int], batches: Sequence[Batch]) -> float:
    # The first batches fill the state. CPU time, because it is valid on a busy machine, too.
    warm = len(batches) // 4
    for each in batches[:warm]:
        run(each)
    gc.collect()
    started = time.process_time()
    for each in batches[warm:]:
        run(each)
    return (time.process_time() - started) * len(batches) / (len(batches) - warm)


def _in_memory(case: Case, batches: Sequence[Batch]) -> float:
    store = DictStore()
    return _seconds(lambda batch: case.run(store, batch), batches)


def _in_rocksdb(case: Case, batches: Sequence[Batch]) -> float:
    with tempfile.TemporaryDirectory(prefix="standfast-benchmark-") as directory:
        database = open_database(Path(directory) / "state", Profile.SERVING)
        try:

            def run(batch: Batch) -> int:
                state = BatchState(("s",), database)
                found = case.run(state["s"], batch)
                state.end()
                database.write(state.changes.items())
                return found

            return _seconds(run, batches)
        finally:
            database.close()


def measure(case: Case, batches: Sequence[Batch], turn: int) -> dict[str, float]:
    """Return rows per CPU second by contestant; ``turn`` determines which one is first."""
    rows = sum(len(each.keys) for each in batches)
    contestants: list[tuple[str, Callable[[], float]]] = [
        ("plain loop", lambda: _seconds(case.plain(), batches)),
        ("in memory", lambda: _in_memory(case, batches)),
        ("RocksDB", lambda: _in_rocksdb(case, batches)),
    ]
    first = turn % len(contestants)
    return {name: rows / run() for name, run in (*contestants[first:], *contestants[:first])}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; write the figures to ``--out``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rows-per-second", type=int, default=5_000, help="of event time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/eventtime.json"))
    arguments = parser.parse_args(argv)
    batches = stream(arguments.rows, arguments.batch, arguments.keys, arguments.rows_per_second)
    rounds: dict[str, list[dict[str, float]]] = {case.name: [] for case in CASES}
    for turn in range(arguments.rounds):
        for case in CASES:
            rounds[case.name].append(measure(case, batches, turn))
    medians = {
        case: {
            name: statistics.median(each[name] for each in found)
            for name in ("plain loop", "in memory", "RocksDB")
        }
        for case, found in rounds.items()
    }
    result = {
        "versions": versions(),
        "stream": {key: str(value) for key, value in vars(arguments).items() if key != "out"},
        "rows_per_cpu_second": medians,
        "rounds": rounds,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1))
    _print(medians)
    return 0


def _print(medians: Mapping[str, Mapping[str, float]]) -> None:
    sys.stdout.write(
        f"{'rows per CPU second, median':32}{'plain loop':>14}{'in memory':>14}{'RocksDB':>14}\n"
    )
    for case, found in medians.items():
        sys.stdout.write(f"{case:32}" + "".join(f"{each:14,.0f}" for each in found.values()) + "\n")


if __name__ == "__main__":
    sys.exit(main())
