"""Transactions that fail of what is in them: records that Kafka refuses for their size, and too many for the time."""

from __future__ import annotations

from typing import Any

import pytest

from standby.kernel.pipeline import batch
from tests.fakes import ledger_job
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import JOB, MakeLab, MemoryLab, on_error

#: A value of which an output becomes that is too large.
LARGE = b"raise" + bytes(2_000)


def lab_of(make_lab: MakeLab, kind: str, tasks: int = 2, attempts: int = 3) -> MemoryLab:
    lab = make_lab(tasks, **on_error(kind, attempts))
    # What was given up is named for some time only, which does not pass; the pauses before another try do.
    lab.clock.hold()
    lab.clock.hurry(f"{JOB}-pipeline")
    return lab


def step(rows: Any, state: Any, out: Any) -> None:
    """As the ledger's; a large value goes to the output, too, or to a store, by the record's key."""
    ledger_job.step(rows, state, out)
    for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        if value == LARGE and key.endswith(b"state"):
            state["chains"].put(key, value)
        elif value == LARGE:
            out.emit(key, value)


def filled(lab: MemoryLab, where: str) -> tuple[int, int]:
    """Fill the input, one record of it too large; return that one's partition and offset."""
    lab.kafka.largest = {"out": 1_000, "changelog": 1_000}
    lab.produce(21)
    offset = lab.kafka.append("in", 0, b"0/" + where.encode(), LARGE)
    lab.produce(21)
    return 0, offset


@pytest.mark.parametrize(
    ("on_error", "where", "is_refused_when_sent"),
    [
        ("skip", "output", False),
        ("skip", "state", True),
        ("dead-letter", "output", True),
        ("dead-letter", "state", False),
    ],
)
def test_a_record_of_which_something_too_large_comes_is_given_up(
    make_lab: MakeLab, on_error: str, where: str, is_refused_when_sent: bool
) -> None:
    lab = lab_of(make_lab, on_error)
    lab.kafka.is_refused_when_sent = is_refused_when_sent
    given_up = filled(lab, where)
    container = lab.begun(0, step=step)
    container.eventually(lambda: container.status(0).skipped == 1)
    (told,) = container.status(0).given_up
    assert (told.offset, told.error) == (given_up[1], "RecordTooLarge")
    assert "max.message.bytes is 1000" in told.message
    assert container.status(1).skipped == 0
    lab.assert_exact([given_up])
    letters = [each for each in lab.kafka.logs["dead", 0] if not each.is_marker]
    assert [each.value for each in letters] == ([LARGE] if on_error == "dead-letter" else [])


def test_a_dead_letter_that_is_too_large_is_cut_short(make_lab: MakeLab) -> None:
    lab = lab_of(make_lab, "dead-letter")
    lab.kafka.largest = {"dead": 1_500}
    lab.produce(11)
    offset = lab.kafka.append("in", 0, b"0/k", b"raise" + bytes(5_000), (("trace", b"1"),))
    lab.produce(11)

    def fails(rows: Any, state: Any, out: Any) -> None:
        if any(each.startswith(b"raise") for each in rows["value"].to_pylist()):
            raise ValueError("wrong")
        ledger_job.step(rows, state, out)

    container = lab.begun(0, step=fails)
    container.eventually(lambda: container.status(0).dead_lettered == 1)
    lab.assert_exact([(0, offset)])
    (letter,) = (each for each in lab.kafka.logs["dead", 0] if not each.is_marker)
    assert (letter.key, letter.value) == (b"0/k", (b"raise" + bytes(5_000))[:1_024])
    headers = dict(letter.headers)
    assert headers["standfast-offset"] == b"%d" % offset
    assert headers["standfast-truncated"] == b"key of 3 bytes, value of 5005 bytes, 1 headers"
    assert headers["standfast-error-type"] == b"ValueError"


@pytest.mark.parametrize(("on_error", "most"), [("fail", 6), ("skip", 4)])
def test_a_transaction_that_runs_out_of_time_is_tried_with_less_and_less_is_read_afterwards(
    make_lab: MakeLab, on_error: str, most: int
) -> None:
    """Each record comes to two or three records, beside the commit's own."""
    feeds: list[MemoryFeed] = []
    lab = lab_of(make_lab, on_error)
    lab.kafka.most_in_time = most
    lab.produce(60)
    container = lab.begun(0, script=feeds.append)
    assert all(each.skipped == 0 and each.failures is None for each in container.statuses())
    assert [each.batch for each in feeds] == [1]
    lab.assert_exact()


def test_a_single_record_that_takes_too_long_is_given_up(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LARGE_RECORDS", 500)

    def wide(rows: Any, state: Any, out: Any) -> None:
        ledger_job.step(rows, state, out)
        for number in range(500 if b"wide" in rows["value"].to_pylist() else 0):
            out.emit(b"wide", b"%d" % number)

    lab = lab_of(make_lab, "skip", tasks=1)
    lab.kafka.most_in_time = 100
    lab.produce(10)
    offset = lab.kafka.append("in", 0, b"0/k", b"wide")
    lab.produce(10)
    container = lab.begun(0, step=wide)
    container.eventually(lambda: container.status(0).skipped == 1)
    (told,) = container.status(0).given_up
    assert (told.offset, told.error) == (offset, "TransactionTooLong")
    assert "501 outputs" in told.message
    assert told.message.endswith("; raise job.transaction.timeout.ms, or have less come of a record")
    lab.assert_exact([(0, offset)])


def test_no_record_is_blamed_for_a_kafka_that_is_slow(
    make_lab: MakeLab, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing goes for as long as it takes to come down to single records, and some tries more."""
    lab = lab_of(make_lab, "skip", tasks=1, attempts=1)
    lab.produce(20)
    lates = 0

    def slow() -> None:
        nonlocal lates
        where = lab.kafka.logs["changelog", 0]
        # Claims go: all that has nothing in it.
        if lates < 4 and lab.kafka.logs["out", 0] and where:
            lates += 1
            lab.kafka.most_in_time = 1
        else:
            lab.kafka.most_in_time = 1 << 30

    lab.kafka.before_commit = slow
    container = lab.begun(0)
    assert container.status(0).skipped == 0
    assert lates == 4
    assert "that is little: a broker is away, or brokers or this host are overloaded" in caplog.text
    lab.assert_exact()
