"""Whose batch runs in the session, without Spark: batches are blocks, and the test ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from standby.errors import Transient
from standby.feed import turns
from standby.feed.spark import SparkTransform
from standby.feed.turns import LentBatch, Turns
from standby.ports import NotLent
from tests.fakes.clock import held
from tests.meanwhile import background
from tests.patience import LOOK_SECONDS, NEVER_SECONDS, PATIENCE_SECONDS, soon
from tests.unit.standby.feed.spark_runs import NO_CODE, configuration, rows


class Session:
    """Batches that hang until they are cancelled or the test ends them."""

    def __init__(self) -> None:
        self.clock = held()
        self.turns = Turns("group", self.cancel, self.clock)
        self.ended: dict[str, threading.Event] = {}
        self.cancelled: list[str] = []
        self.on_cancel: Callable[[], object] = lambda: None

    def cancel(self, group: str) -> None:
        self.on_cancel()
        self.cancelled.append(group)
        if group in self.ended:
            self.ended[group].set()

    def hang(self, batch: LentBatch) -> None:
        ended = self.ended[batch.group] = threading.Event()
        assert ended.wait(PATIENCE_SECONDS)
        if batch.group in self.cancelled:
            raise Transient("the job was cancelled")


class Batch:
    """A batch that runs, or waits for its turn, on a thread of its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.batch: LentBatch | None = None
        self._run = background(self._hang)

    def _hang(self) -> None:
        with self._session.turns.lent() as self.batch:
            self._session.hang(self.batch)

    @property
    def runs(self) -> bool:
        return self.batch is not None and self.batch.group in self._session.ended

    @property
    def has_given_way(self) -> bool:
        assert self.batch is not None
        return self.batch.has_given_way

    def let_end(self) -> None:
        """Have it end by itself."""
        assert self.batch is not None
        self._session.ended[self.batch.group].set()

    def error(self) -> BaseException | None:
        """Return what it raised."""
        return self._run.exception(PATIENCE_SECONDS)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    # However slow the machine is, nothing is ended or refused but by a test that says so.
    for bound in ("LENT_WAIT_SECONDS", "LENT_SECONDS", "GIVE_WAY_SECONDS", "OVERDUE_SECONDS"):
        monkeypatch.setattr(turns, bound, NEVER_SECONDS)
    return Session()


@pytest.fixture
def gives_way_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", LOOK_SECONDS)


def lend(session: Session) -> Batch:
    """Return a lent batch that runs."""
    batch = Batch(session)
    soon(lambda: batch.runs, "the lent batch runs")
    return batch


def raising(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_turn_that_cannot_begin_leaves_the_session_to_the_next(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can be started for its limit, or for what ends a lent one."""
    with monkeypatch.context() as patch:
        patch.setattr(session.clock, "later", raising)
        with pytest.raises(RuntimeError), session.turns.lent():
            pytest.fail("it began")
    lent = lend(session)
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", 0.0)
    session.on_cancel = raising
    with pytest.raises(RuntimeError), session.turns.own():
        pytest.fail("it began")
    lent.let_end()
    lent.error()
    with session.turns.lent():
        pass


@pytest.mark.usefixtures("gives_way_at_once")
def test_a_lent_batch_gives_way_to_an_own_one_and_no_other_begins_meanwhile(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One began while the call that ended the first one took its time."""
    first = lend(session)
    seen: list[BaseException | None] = []

    def take_long() -> None:
        first.let_end()
        first.error()
        monkeypatch.setattr(turns, "LENT_WAIT_SECONDS", LOOK_SECONDS)
        seen.append(Batch(session).error())

    session.on_cancel = take_long
    with session.turns.own():
        assert [type(each) for each in seen] == [NotLent]
    assert first.has_given_way


def test_the_end_of_one_batch_is_no_end_of_the_next(session: Session) -> None:
    """All lent batches could be ended by what was meant for one of them, and its rows were blamed."""
    first = lend(session)
    first.let_end()
    assert first.error() is None
    second = lend(session)
    assert first.batch is not None
    session.cancel(first.batch.group)
    second.let_end()
    assert (second.error(), second.has_given_way) == (None, False)


def test_a_lent_batch_has_limited_time(session: Session) -> None:
    for _ in range(2):
        lent = lend(session)
        session.clock.advance(turns.LENT_SECONDS)
        assert isinstance(lent.error(), Transient)
        assert not lent.has_given_way


def test_a_rehearsal_waits_for_a_lent_batch_and_ends_none_but_one_that_is_overdue(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", 0.0)
    lent = lend(session)
    changed = session.turns._changed
    wait_for = changed.wait_for

    def waits(is_so: Callable[[], bool], seconds: float) -> bool:
        if seconds:
            lent.let_end()
        return wait_for(is_so, seconds)

    with monkeypatch.context() as patch:
        patch.setattr(changed, "wait_for", waits)
        with session.turns.own(is_rehearsal=True):
            pass
    assert (lent.error(), session.cancelled) == (None, [])
    monkeypatch.setattr(turns, "OVERDUE_SECONDS", LOOK_SECONDS)
    overdue = lend(session)
    with session.turns.own(is_rehearsal=True):
        assert isinstance(overdue.error(), Transient)


def test_nothing_is_lent_while_another_batch_runs(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LENT_WAIT_SECONDS", LOOK_SECONDS)
    with session.turns.own():
        assert isinstance(Batch(session).error(), NotLent)
    lent = lend(session)
    assert isinstance(Batch(session).error(), NotLent)
    lent.let_end()
    assert lent.error() is None


class Lending(SparkTransform):
    """A transform that is warm and has no JVM: a batch hangs until it is cancelled."""

    def __init__(self) -> None:
        super().__init__(configuration(None), NO_CODE)
        self.is_alive = True
        self.ends_jvm = False
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    @property
    def is_warm(self) -> bool:
        return self.is_alive

    def _run_alone(self, rows: pa.Table, group: str, *, is_divided: bool = False) -> pa.Table:
        if "lent" in group:
            self.begun.set()
            assert self.cancelled.wait(PATIENCE_SECONDS)
            self.is_alive = not self.ends_jvm
            raise Transient("the job was cancelled, or the JVM has died")
        return rows

    def _cancel(self, group: str) -> None:
        self.cancelled.set()


@pytest.mark.usefixtures("gives_way_at_once")
@pytest.mark.parametrize("ends_jvm", [False, True])
def test_the_rows_of_a_batch_that_gives_way_are_suspected_only_if_spark_has_died(*, ends_jvm: bool) -> None:
    transform = Lending()
    transform.ends_jvm = ends_jvm
    lending = background(lambda: transform.lend(rows([b"theirs"])))
    assert transform.begun.wait(PATIENCE_SECONDS)
    assert transform.run(rows([b"ours"])) == rows([b"ours"])
    assert type(lending.exception(PATIENCE_SECONDS)) is (Transient if ends_jvm else NotLent)
