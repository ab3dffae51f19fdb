"""Transactions that fail of what is in them: records that Kafka refuses for their size, and too many for the time."""

from __future__ import annotations

from typing import Any

import pytest

from standby.kernel.pipeline import batch
from standby.shared.model import Phase
from tests.fakes import ledger_job
from tests.fakes.feed import FEED, MemoryFeed
from tests.fakes.kafka import MemoryBroker
from tests.meanwhile import Hold
from tests.memory_lab import COMMIT, JOB, MakeLab, MemoryLab, on_error
from tests.patience import NEVER_SECONDS

#: A value of which an output becomes that is too large.
LARGE = b"raise" + bytes(2_000)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a pipeline in a hurry, a feed that stands still for a moment would be deaf, at each of its records."""
    monkeypatch.setattr("standby.feeding.feeds._DEAF_SECONDS", NEVER_SECONDS)


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
    ("on_error", "where", "is_refused_when_sent", "letters"),
    [
        ("skip", "output", False, []),
        ("skip", "state", True, []),
        ("dead-letter", "output", True, [LARGE[:1_024]]),
        ("dead-letter", "state", False, [LARGE]),
    ],
)
def test_a_record_of_which_something_too_large_comes_is_given_up(
    make_lab: MakeLab, on_error: str, where: str, is_refused_when_sent: bool, letters: list[bytes]
) -> None:
    """And its dead letter is cut short where that is too large, too."""
    lab = lab_of(make_lab, on_error)
    lab.kafka.is_refused_when_sent = is_refused_when_sent
    given_up = filled(lab, where)
    lab.kafka.largest["dead"] = 1_500 if where == "output" else 3_000
    container = lab.begun(0, step=step)
    container.eventually(lambda: container.status(0).skipped == 1)
    (told,) = container.status(0).given_up
    assert (told.offset, told.error) == (given_up[1], "RecordTooLarge")
    assert "max.message.bytes is 1000" in told.message
    assert container.status(1).skipped == 0
    lab.assert_exact([given_up])
    found = [each for each in lab.kafka.logs["dead", 0] if not each.is_marker]
    assert [each.value for each in found] == letters
    truncated = [dict(each.headers).get("standfast-truncated") for each in found]
    assert truncated == [
        None if each == LARGE else b"key of 8 bytes, value of 2005 bytes, 0 headers" for each in letters
    ]


def test_records_that_are_given_up_are_counted_although_the_task_is_claimed_again_for_each(
    make_lab: MakeLab,
) -> None:
    lab = lab_of(make_lab, "dead-letter")
    given_up = [filled(lab, "output") for _ in range(3)]
    container = lab.begun(0, step=step)
    container.eventually(lambda: container.status(0).skipped == 3)
    assert container.status(0).dead_lettered == 3
    lab.assert_exact(given_up)
    container.activate(0, 2, claimed=True).await_phase(Phase.ACTIVE)
    assert container.status(0).skipped == 3
    container.stand_by(0, 3)
    assert container.status(0).skipped == 0
    container.activate(0, 4, claimed=True).process(4)
    assert container.status(0).skipped == 0, "since it became active"


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


def test_a_record_is_not_blamed_while_kafka_does_not_say_whether_the_last_commit_is_seen(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much comes of it: its transaction has not begun."""
    monkeypatch.setattr(batch, "LARGE_RECORDS", 3)
    lab = make_lab(1, **on_error("skip", 1))
    lab.clock.hold()
    container = lab.begun(3)
    hold, ask = Hold(), MemoryBroker.stable_ends

    def slow(broker: MemoryBroker, places: Any) -> Any:
        hold()
        return ask(broker, places)

    monkeypatch.setattr(MemoryBroker, "stable_ends", slow)
    container.process(1)
    hold.await_reached()
    lab.produce(1)
    lab.clock.await_looks(FEED)
    lab.clock.let_pass(COMMIT - 1, FEED)
    lab.clock.advance(1)
    container.eventually(lambda: sum(lab.kafka.epochs.values()) == 2)
    hold.let_go()
    container.await_processed()
    assert container.status(0).skipped == 0
    lab.assert_exact()
