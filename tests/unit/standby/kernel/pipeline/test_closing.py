"""Windows and sessions that close in great numbers by one row: in bounded transactions, and exactly at any loss."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from standby.eventtime import (
    COUNT,
    SUM,
    Emit,
    SessionAggregation,
    TimeWindows,
    Watermark,
    WindowAggregation,
    sessions,
    windows,
)
from standby.kernel.ports import WriterLost
from standby.replica.claim import decode_commit
from standby.replica.outbox import Outbox
from standby.replica.store.keys import COMMIT, is_own
from tests.fakes.task_state import TaskState
from tests.memory_lab import MemoryLab, having

WATERMARK = Watermark(5)
STORES = ("rows", "windows", "kept", "updates", "sessions")
WINDOWS = {
    "windows": WindowAggregation(TimeWindows.tumbling(10), COUNT),
    "kept": WindowAggregation(TimeWindows.hopping(20, 10), SUM, allowed_lateness_ms=40),
    "updates": WindowAggregation(TimeWindows.tumbling(10), COUNT, Emit.ON_UPDATE),
}
SESSIONS = SessionAggregation(7, COUNT)

#: Fewer than the windows that close by one row below.
MOST = 6


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST", MOST)
    monkeypatch.setattr(sessions, "MOST", MOST)


def step(rows: Any, state: Any, out: Any) -> None:
    keys = rows["key"].to_pylist()
    times = [int(each) for each in rows["value"].to_pylist()]
    count = state["rows"].get(b"count") or b"0"
    if times:
        state["rows"].put(b"count", b"%d" % (int(count) + len(times)))
    marks = WATERMARK.advance(state["rows"], times)
    for name, spec in WINDOWS.items():
        found = spec.add(state[name], keys, times, marks, times)
        for key, start, _, total in found.results:
            out.emit(b"%s of %s" % (key, name.encode()), b"%d: %d" % (start, total))
        for row in found.late:
            out.emit(b"late of " + name.encode(), b"%s %d" % (keys[row], times[row]))
    for key, start, end, total in SESSIONS.add(state["sessions"], keys, times, marks).results:
        out.emit(b"%s of sessions" % key, b"%d to %d: %d" % (start, end, total))


def bare(rows: Any, state: Any, out: Any) -> None:
    """A step that can do nothing without rows."""
    rows["key"].to_pylist()[0]
    step(rows, state, out)


def idle(rows: Any, state: Any, out: Any) -> None:
    """A step that does nothing without rows."""
    if rows.num_rows:
        step(rows, state, out)


def busy(rows: Any, state: Any, out: Any) -> None:
    """A step that writes without rows, but closes nothing: it does not call `add`."""
    if rows.num_rows:
        step(rows, state, out)
    else:
        state["rows"].put(b"count", state["rows"].get(b"count"))


def input_of(seed: int) -> Iterator[tuple[bytes, int]]:
    chance, now = random.Random(seed), 100
    for number in range(60):
        # Now and then time leaps, and closes all there is.
        now += chance.choice([0, 1, 2]) if number % 15 else 500
        yield b"k%d" % chance.randrange(12), now - chance.randrange(9)


def filled(directory: Path, seed: int) -> MemoryLab:
    lab = MemoryLab(directory, 1, **{"task.stores": ",".join(STORES)})
    for key, time in input_of(seed):
        lab.kafka.append("in", 0, key, b"%d" % time)
    return lab


def assert_as_in_one_batch(lab: MemoryLab, seed: int) -> None:
    state, out = TaskState(*STORES), Outbox(("out",))
    rows = list(input_of(seed))
    table = pa.table({"key": [key for key, _ in rows], "value": [b"%d" % time for _, time in rows]})
    with state.batch() as batch:
        step(table, batch, out)
    expected: dict[Any, list[Any]] = {}
    for each in out.records:
        expected.setdefault(each.key, []).append(each.value)
    found: dict[Any, list[Any]] = {}
    for key, value in lab.kafka.committed_records("out", 0):
        found.setdefault(key, []).append(value)
    assert found == expected
    kept = {key: value for key, value in lab.kafka.committed_records("changelog", 0) if not is_own(key)}
    assert {key: value for key, value in kept.items() if value is not None} == state.content


def most_outputs(lab: MemoryLab) -> int:
    said = [each.value for each in lab.kafka.logs["changelog", 0] if each.key == COMMIT and each.value]
    return max(decode_commit(each).outputs for each in said)


@pytest.mark.parametrize("batch", [1, 7, 60])
@pytest.mark.parametrize("seed", range(2))
def test_what_closes_by_one_row_comes_in_bounded_transactions(tmp_path: Path, seed: int, batch: int) -> None:
    with closing(filled(tmp_path, seed)) as lab:
        lab.begun(0, step=step, script=having(batch=batch))
        assert_as_in_one_batch(lab, seed)
        # Of one row at most so many of each aggregation, and of a batch one update for each row.
        assert most_outputs(lab) <= 4 * MOST + (2 * batch if batch < 60 else 4 * 60)


@pytest.mark.parametrize(
    "whens",
    [
        ("before_commit", "after_commit"),
        pytest.param(("after_commit", "before_commit"), marks=pytest.mark.acceptance),
        pytest.param(("before_begin", "before_offsets"), marks=pytest.mark.acceptance),
    ],
    ids="-".join,
)
def test_a_loss_at_any_transaction_changes_nothing(tmp_path: Path, whens: tuple[str, str]) -> None:
    """At each one in turn, with a job of its own: at the one moment, or at the other."""
    lost, total = 0, 1
    while lost < total:
        calls = 0

        def strike(at: int = lost) -> None:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                raise WriterLost("no answer")

        with closing(filled(tmp_path / f"{lost}", 1)) as lab:
            setattr(lab.kafka, whens[lost % 2], strike)
            lab.begun(0, step=step)
            assert_as_in_one_batch(lab, 1)
        if not lost:
            total = calls
        lost += 1
    assert lost > 20


@pytest.mark.parametrize("other", [bare, idle, busy])
def test_a_step_that_closes_nothing_without_rows_has_everything_at_once(tmp_path: Path, other: Any) -> None:
    with closing(filled(tmp_path, 2)) as lab:
        container = lab.begun(0, step=other)
        assert all(each.failures is None for each in container.statuses())
        assert_as_in_one_batch(lab, 2)
