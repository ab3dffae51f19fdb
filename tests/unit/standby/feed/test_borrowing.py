"""A transform that is borrowed until the own one has started: both in memory, and led by the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future

import pyarrow as pa
import pytest

from standby.errors import BadConfiguration, Transient
from standby.feed import borrowing
from standby.feed.borrowing import BorrowingTransform, decoded, encoded
from standby.ports import PeerRefused, StartCalledOff, TransformLender
from standby.shared.model import TaskId
from standby.shared.peers import ROWS_BYTES
from tests.fakes.clock import HandClock
from tests.meanwhile import background
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon

TASKS = (TaskId("job", "main", 0),)


def table(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def add_one(rows: pa.Table) -> pa.Table:
    return pa.table({"n": pa.compute.add(rows["n"], 1)})


class OwnInMemory:
    """The transform here, whose session starts when the test says so."""

    def __init__(self) -> None:
        self.transform = add_one
        self.may_start = threading.Event()
        self.starts = 0
        self.warms = 0
        self.runs: list[pa.Table] = []
        self.is_open = self.is_warm = self.is_closed = False
        self.fails: BaseException | None = None
        self.fails_to_warm: BaseException | None = None
        self.rehearsal_ends = threading.Event()
        """Cleared: a rehearsal hangs until it is cancelled like a batch."""
        self.rehearsal_ends.set()
        self.cancelled_warms = 0
        self.run_seconds: float | None = None
        self.child_pids: tuple[int, ...] = ()

    def open(self) -> None:
        if self.is_open:
            return
        self.starts += 1
        assert self.may_start.wait(PATIENCE_SECONDS)
        if self.fails is not None:
            raise self.fails
        self.is_open = True

    def warm(self, recent: Callable[[], pa.Table | None]) -> None:
        self.warms += 1
        recent()
        if self.fails_to_warm is not None:
            raise self.fails_to_warm
        assert self.rehearsal_ends.wait(PATIENCE_SECONDS)
        self.is_warm = True

    def cancel_warm(self) -> None:
        self.cancelled_warms += 1

    def run(self, rows: pa.Table) -> pa.Table:
        self.runs.append(rows)
        return self.transform(rows)

    def cancel(self) -> None:
        self.rehearsal_ends.set()

    def close(self) -> None:
        self.is_closed = True


class LenderInMemory:
    """Runs the same transform, and says that it did."""

    def __init__(self) -> None:
        self.transform = add_one
        self.batches: list[pa.Table] = []
        #: Bytes of each of them.
        self.received: list[int] = []
        self.fails: BaseException | None = None
        self.is_closed = False
        self.interrupted = threading.Event()
        #: Called by each run.
        self.on_run: Callable[[], object] = lambda: None

    def run(self, rows: bytes) -> bytes:
        self.on_run()
        if self.fails is not None:
            raise self.fails
        self.received.append(len(rows))
        self.batches.append(decoded(rows))
        return encoded(self.transform(self.batches[-1]))

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        self.is_closed = True


class Borrower:
    """A transform, with everything around it."""

    def __init__(self) -> None:
        self.own = OwnInMemory()
        self.lenders: list[LenderInMemory] = []
        self.searches = 0
        self.find_fails: BaseException | None = None
        self.clock = HandClock()
        self.clock.hold()
        self.transform = BorrowingTransform(self.own, self._find, starts_early=True, clock=self.clock)

    def lend(self) -> LenderInMemory:
        self.lenders.append(LenderInMemory())
        return self.lenders[-1]

    def prepare(self, *, may_borrow: bool = True) -> None:
        self.transform.prepare(TASKS, lambda: None, may_borrow=may_borrow)

    def expect(self) -> None:
        """Let a lender be looked for in advance, and wait until that is over."""
        self.transform.expect(TASKS)
        search = self.transform._ahead
        assert search is not None
        soon(search.found.done, "the search is over")

    def start_over(self) -> None:
        self.own.may_start.set()
        soon(lambda: self.transform._has_started, "the session has started")

    def assert_cancelled(self, running: Future[pa.Table]) -> None:
        """Cancel a run again and again, as a stop of the feed does, until it ends as cancelled."""

        def ended() -> bool:
            self.transform.cancel()
            return running.done()

        soon(ended, "the run ends")
        assert isinstance(running.exception(), Transient)

    def _find(self, tasks: Collection[TaskId]) -> TransformLender | None:
        assert tasks == TASKS
        self.searches += 1
        if self.find_fails is not None:
            raise self.find_fails
        return next((each for each in self.lenders if not each.is_closed), None)


@pytest.fixture
def borrower() -> Iterator[Borrower]:
    borrower = Borrower()
    yield borrower
    borrower.own.may_start.set()
    borrower.transform.close()


def test_batches_are_borrowed_until_the_session_is_warm(borrower: Borrower) -> None:
    lender = borrower.lend()
    borrower.prepare()
    assert borrower.transform.run(table(1, 2)) == table(2, 3)
    assert borrower.transform.run(table()) == table()
    assert (len(lender.batches), borrower.own.runs, borrower.transform.is_warm) == (1, [], False)
    borrower.start_over()
    assert borrower.transform.run(table(3)) == table(4)
    assert (len(lender.batches), borrower.own.runs) == (1, [table(3)])
    assert lender.is_closed
    borrower.lend()
    borrower.prepare()
    assert borrower.transform.run(table(5)) == table(6)
    assert (borrower.searches, len(borrower.own.runs)) == (1, 2), "nobody is looked for any more"


def test_a_lender_is_found_while_the_tasks_become_active(borrower: Borrower) -> None:
    lender = borrower.lend()
    borrower.expect()
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    assert (borrower.searches, len(lender.batches)) == (1, 1)
    borrower.lend()
    borrower.prepare()
    assert borrower.searches == 2, "a lender is used for one feed"


def test_a_lender_found_in_advance_is_not_used_once_it_may_be_gone(borrower: Borrower) -> None:
    former = borrower.lend()
    borrower.expect()
    borrower.clock.advance(borrowing._AHEAD_SECONDS)
    present = borrower.lend()
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    assert (former.is_closed, former.batches, len(present.batches)) == (True, [], 1)


def test_a_lender_found_in_advance_and_not_needed_is_given_up(borrower: Borrower) -> None:
    first = borrower.lend()
    borrower.expect()
    borrower.transform.expect(TASKS)
    assert (borrower.searches, first.is_closed) == (1, False), (
        "it serves all that begin at about the same time"
    )
    borrower.clock.advance(borrowing._AHEAD_SECONDS)
    borrower.expect()
    assert first.is_closed, "there is a newer search"
    borrower.clock.advance(borrowing._AHEAD_SECONDS)
    second = borrower.lend()
    borrower.expect()
    preparing = background(lambda: borrower.prepare(may_borrow=False))
    soon(lambda: second.is_closed, "the rows are suspected")
    third = borrower.lend()
    borrower.expect()
    borrower.start_over()
    preparing.result(PATIENCE_SECONDS)
    soon(lambda: third.is_closed, "the session has started")
    searches = borrower.searches
    borrower.transform.expect(TASKS)
    assert (borrower.transform._ahead, borrower.searches) == (None, searches)


def test_a_lender_that_was_not_found_in_advance_is_looked_for_again(borrower: Borrower) -> None:
    """It may have become warm meanwhile, or the records of the tasks could not be read."""
    borrower.expect()
    lender = borrower.lend()
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    assert (borrower.searches, len(lender.batches)) == (2, 1)


def test_what_ends_a_search_in_advance_ends_the_start_of_the_feed(borrower: Borrower) -> None:
    borrower.find_fails = MemoryError("no thread")
    borrower.transform.expect(TASKS)
    with pytest.raises(MemoryError, match="no thread"):
        borrower.prepare()


def test_rows_that_are_suspected_are_given_to_nobody(borrower: Borrower) -> None:
    lender = borrower.lend()
    preparing = background(lambda: borrower.prepare(may_borrow=False))
    borrower.start_over()
    preparing.result(PATIENCE_SECONDS)
    assert borrower.transform.run(table(1)) == table(2)
    assert (borrower.searches, lender.batches) == (0, [])


def test_without_a_lender_the_start_is_waited_for_and_no_rehearsal(borrower: Borrower) -> None:
    warming = background(lambda: borrower.transform.warm(lambda: None))
    soon(lambda: borrower.own.starts, "the session starts")
    borrower.transform.cancel_warm()
    warming.result(PATIENCE_SECONDS)
    preparing = background(borrower.prepare)
    soon(lambda: borrower.own.cancelled_warms, "the rehearsals are called off")
    assert not preparing.done()
    borrower.own.may_start.set()
    preparing.result(PATIENCE_SECONDS)
    assert borrower.transform.run(table(1)) == table(2)


def test_a_wait_for_the_start_is_called_off_once_and_the_start_goes_on(borrower: Borrower) -> None:
    preparing = background(borrower.prepare)
    soon(lambda: borrower.own.cancelled_warms, "it waits")
    borrower.transform.cancel_prepare()
    assert isinstance(preparing.exception(PATIENCE_SECONDS), StartCalledOff)
    # It may be called off just before it begins to wait.
    borrower.transform.cancel_prepare()
    with pytest.raises(StartCalledOff):
        borrower.prepare()
    borrower.own.may_start.set()
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    assert borrower.own.starts == 1


def test_a_feed_that_starts_before_anything_opens_the_session_and_nothing_more(borrower: Borrower) -> None:
    borrower.own.may_start.set()
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    assert (borrower.own.starts, borrower.own.warms) == (1, 0)
    borrower.transform.warm(lambda: None)
    assert borrower.transform.is_warm


def test_a_lender_that_refuses_for_now_is_replaced(borrower: Borrower) -> None:
    first, second = borrower.lend(), borrower.lend()
    first.fails = PeerRefused("busy", is_soon=True)
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    assert (first.is_closed, len(second.batches), borrower.own.runs) == (True, 1, [])


@pytest.mark.parametrize("error", [Transient("gone"), PeerRefused("422 ValueError: no such plane")])
def test_rows_that_may_be_at_fault_are_given_to_no_second_lender(
    borrower: Borrower, error: Transient
) -> None:
    first, second = borrower.lend(), borrower.lend()
    first.fails = error
    borrower.prepare()
    running = background(lambda: borrower.transform.run(table(1)))
    soon(lambda: first.is_closed, "the lender is given up")
    borrower.own.may_start.set()
    assert running.result(PATIENCE_SECONDS) == table(2)
    assert (second.batches, borrower.own.runs) == ([], [table(1)])


@pytest.mark.parametrize("error", [Transient("gone"), PeerRefused("422 the JVM has died")])
def test_a_lender_that_fails_without_rows_is_replaced(borrower: Borrower, error: Transient) -> None:
    """The first poll of a feed is often empty."""
    first, second = borrower.lend(), borrower.lend()
    first.fails = error
    borrower.prepare()
    running = background(lambda: [borrower.transform.run(each) for each in (table(), table(1))])
    assert running.result(PATIENCE_SECONDS) == [table(), table(2)]
    assert (first.is_closed, second.batches, borrower.own.runs) == (True, [table(), table(1)], [])


def test_rows_that_may_be_at_fault_are_given_to_nobody_by_the_next_feed_either(borrower: Borrower) -> None:
    first, second = borrower.lend(), borrower.lend()
    first.fails = Transient("gone")
    borrower.prepare()
    running = background(lambda: borrower.transform.run(table(1)))
    # If it were cancelled when the lender is just given up, the rows would not be at fault.
    soon(lambda: borrower.own.cancelled_warms, "the own session is waited for")
    assert first.is_closed
    borrower.assert_cancelled(running)
    # Another task has joined, and the feed starts again at the same offsets.
    starting = background(borrower.prepare)
    borrower.own.may_start.set()
    starting.result(PATIENCE_SECONDS)
    assert borrower.transform.run(table(1)) == table(2)
    assert (second.batches, borrower.own.runs) == ([], [table(1)])


def test_input_has_run_here_once_a_batch_was_not_borrowed(borrower: Borrower) -> None:
    """Otherwise the death of the JVM, in a rehearsal, would be blamed on input that it never had."""
    borrower.lend()
    borrower.prepare()
    borrower.transform.run(table(1))
    seen = [borrower.transform.has_run_here]
    borrower.start_over()
    seen.append(borrower.transform.has_run_here)
    borrower.transform.run(table(1))
    seen.append(borrower.transform.has_run_here)
    borrower.prepare()
    seen.append(borrower.transform.has_run_here)
    assert seen == [False, False, True, False]


def test_a_search_without_end_is_none(borrower: Borrower) -> None:
    for _ in range(5):
        borrower.lend().fails = PeerRefused("busy", is_soon=True)
    borrower.prepare()
    running = background(lambda: borrower.transform.run(table(1)))
    soon(lambda: borrower.own.cancelled_warms, "the own session is waited for")
    assert sum(each.is_closed for each in borrower.lenders) == borrower.searches == borrowing._LENDERS
    borrower.own.may_start.set()
    assert running.result(PATIENCE_SECONDS) == table(2)


def test_large_batches_are_borrowed_in_pieces(borrower: Borrower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borrowing, "_PIECE_BYTES", 16)
    done: list[str] = []

    def noted(rows: pa.Table) -> bytes:
        done.append("encoded")
        return encoded(rows)

    monkeypatch.setattr(borrowing, "encoded", noted)
    lender = borrower.lend()
    lender.on_run = lambda: done.append("sent")
    borrower.prepare()
    assert borrower.transform.run(table(1, 2, 3, 4, 5)) == table(2, 3, 4, 5, 6)
    assert lender.batches == [table(1, 2), table(3), table(4, 5)]
    assert done == ["encoded", "sent"] * 3, "all of them encoded at once take as much memory as the batch"


def sized(*sizes: int) -> pa.Table:
    """Return one row for each size in bytes."""
    return pa.table({"v": pa.array([bytes(size) for size in sizes], pa.binary())})


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([60_000] * 500 + [100] * 2_000, id="large rows first"),
        pytest.param([100] * 4_500 + [60_000] * 500, id="large rows last"),
        pytest.param([100, ROWS_BYTES - 1_000, 100], id="one large row"),
    ],
)
def test_pieces_are_as_small_as_lenders_accept_however_uneven_the_rows(
    borrower: Borrower, sizes: list[int]
) -> None:
    lender = borrower.lend()
    lender.transform = lambda rows: rows
    borrower.prepare()
    assert borrower.transform.run(sized(*sizes)) == sized(*sizes)
    assert max(lender.received) <= ROWS_BYTES
    assert sum(received > borrowing._PIECE_BYTES for received in lender.received) == sizes.count(
        ROWS_BYTES - 1_000
    )


def test_a_row_that_no_lender_accepts_waits_for_the_own_session(borrower: Borrower) -> None:
    lender = borrower.lend()
    lender.transform = borrower.own.transform = lambda rows: rows
    borrower.prepare()
    came = sized(1, ROWS_BYTES)
    running = background(lambda: borrower.transform.run(came))
    soon(lambda: running.done() or borrower.own.cancelled_warms, "the batch waits for the own session")
    assert (running.done(), lender.received) == (False, [])
    borrower.own.may_start.set()
    assert running.result(PATIENCE_SECONDS) == came


def test_a_session_that_does_not_start_is_no_error_of_the_rows(borrower: Borrower) -> None:
    lender = borrower.lend()
    borrower.own.fails = BadConfiguration("no Java")
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    borrower.start_over()
    with pytest.raises(Transient, match="Spark has not started: no Java"):
        borrower.transform.run(table(1))
    assert lender.is_closed
    # The next start of the feed reports it.
    with pytest.raises(BadConfiguration, match="no Java"):
        borrower.prepare()


def test_a_session_that_did_not_start_is_reported_and_started_again_where_that_can_be_called_off(
    borrower: Borrower,
) -> None:
    borrower.own.fails = Transient("no memory")
    borrower.own.may_start.set()
    starts: list[Callable[[], None]] = [lambda: borrower.transform.warm(lambda: None), borrower.prepare]
    for start in starts:
        with pytest.raises(Transient, match="no memory"):
            start()
    borrower.own.may_start.clear()
    preparing = background(borrower.prepare)
    borrower.transform.cancel_prepare()
    assert isinstance(preparing.exception(PATIENCE_SECONDS), StartCalledOff)


@pytest.mark.parametrize("error", [Transient("no broker"), LookupError("unexpected")])
def test_a_rehearsal_that_fails_is_repeated_by_the_next_warm_up(borrower: Borrower, error: Exception) -> None:
    borrower.own.fails_to_warm = error
    borrower.own.may_start.set()
    borrower.transform.warm(lambda: None)
    assert not borrower.transform.is_warm
    borrower.own.fails_to_warm = None
    borrower.transform.warm(lambda: None)
    assert (borrower.transform.is_warm, borrower.own.starts, borrower.own.warms) == (True, 1, 2)


def test_a_cancelled_warm_up_returns_and_the_start_goes_on(borrower: Borrower) -> None:
    warming = background(lambda: borrower.transform.warm(lambda: None))
    soon(lambda: borrower.own.starts, "the session starts")
    borrower.transform.cancel_warm()
    warming.result(PATIENCE_SECONDS)
    assert borrower.own.cancelled_warms == 0
    borrower.start_over()
    assert (borrower.transform.is_warm, borrower.own.starts) == (True, 1)
    borrower.transform.cancel_warm()
    assert borrower.own.cancelled_warms == 1


def test_a_run_is_interrupted_wherever_it_waits(borrower: Borrower) -> None:
    lender, begun = borrower.lend(), threading.Event()

    def away() -> None:
        begun.set()
        assert lender.interrupted.wait(PATIENCE_SECONDS)
        raise Transient("interrupted")

    lender.on_run = away
    borrower.prepare()
    running = background(lambda: borrower.transform.run(table(1)))
    assert begun.wait(PATIENCE_SECONDS)
    borrower.assert_cancelled(running)
    # The rows are not at fault.
    later = borrower.lend()
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    assert later.batches == [table(1)]


def test_nothing_starts_early_if_the_job_does_not_want_it() -> None:
    borrower = Borrower()
    borrower.transform = BorrowingTransform(borrower.own, borrower._find, starts_early=False)
    borrower.transform.warm(lambda: None)
    assert borrower.own.starts == 0
    borrower.lend()
    borrower.prepare()
    assert borrower.transform.run(table(1)) == table(2)
    borrower.start_over()
    assert borrower.transform.run(table(1)) == table(2)
    assert (len(borrower.own.runs), borrower.own.starts) == (1, 1)
    borrower.transform.close()
    assert borrower.own.is_closed


@pytest.mark.parametrize("ends", ["a batch", "a batch that is not lent", "close"])
def test_a_batch_that_needs_the_session_ends_a_rehearsal_that_hangs_and_so_does_the_end(
    borrower: Borrower, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borrowing, "_REHEARSAL_SECONDS", LOOK_SECONDS)
    borrower.own.rehearsal_ends.clear()
    borrower.own.may_start.set()
    background(lambda: borrower.transform.warm(lambda: None))
    soon(lambda: borrower.own.warms, "it rehearses")
    if ends == "close":
        borrower.transform.close()
    else:
        borrower.prepare(may_borrow=ends == "a batch")
        assert borrower.transform.run(table(1)) == table(2)
    assert borrower.own.rehearsal_ends.is_set()
    assert borrower.own.is_closed == (ends == "close")


def test_what_is_no_stream_of_rows_is_refused() -> None:
    for data in (b"", b"no rows", encoded(table(1))[:20], encoded(table(*range(99)))[:-400]):
        with pytest.raises(Transient, match="these are no rows"):
            decoded(data)
