"""Whose batch runs in the session, without Spark: batches are blocks, and the test ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pyarrow as pa
import pytest

from standby.errors import Transient
from standby.feed import turns
from standby.feed.spark import SparkTransform
from standby.feed.turns import LentBatch, Turns
from standby.ports import NotLent
from tests.fakes.clock import held
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


def test_a_turn_that_cannot_begin_leaves_the_session_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread can be started for its limit, or for what ends a lent one."""
    session = Session()
    with monkeypatch.context() as patch:
        patch.setattr(session.clock, "later", raising)
        with pytest.raises(RuntimeError), session.turns.lent():
            pytest.fail("it began")
    lent = Batch(session.turns.lent, session)
    soon(lambda: lent.batch is not None and lent.batch.group in session.ended, "a lent batch runs")
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", 0.0)
    session.on_cancel = raising
    with pytest.raises(RuntimeError), session.turns.own():
        pytest.fail("it began")
    assert lent.batch is not None
    session.ended[lent.batch.group].set()
    lent.end()
    with session.turns.lent():
        pass


def raising(*_: object) -> None:
    raise RuntimeError("can't start new thread")


class Batch:
    """A batch on a thread of its own."""

    def __init__(
        self, turn: Callable[[], AbstractContextManager[LentBatch | None]], session: Session
    ) -> None:
        self._turn, self._session = turn, session
        self.batch: LentBatch | None = None
        self.raised: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._turn() as self.batch:
                if self.batch is not None:
                    self._session.hang(self.batch)
        except (Transient, AssertionError) as error:
            self.raised = error

    def end(self) -> Exception | None:
        """Return what it raised."""
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        return self.raised


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    # However slow the machine is, nothing is ended or refused but by a test that says so.
    for bound in ("LENT_WAIT_SECONDS", "GIVE_WAY_SECONDS", "OVERDUE_SECONDS"):
        monkeypatch.setattr(turns, bound, NEVER_SECONDS)
    return Session()


@pytest.fixture
def gives_way_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", LOOK_SECONDS)


def lend(session: Session) -> Batch:
    """Return a lent batch that runs."""
    batch = Batch(session.turns.lent, session)
    soon(lambda: batch.batch is not None and batch.batch.group in session.ended, "the lent batch runs")
    return batch


@pytest.mark.usefixtures("gives_way_at_once")
def test_a_lent_batch_gives_way_to_an_own_one(session: Session) -> None:
    lent = lend(session)
    with session.turns.own():
        pass
    assert isinstance(lent.end(), Transient)
    assert lent.batch is not None
    assert lent.batch.has_given_way


@pytest.mark.usefixtures("gives_way_at_once")
def test_no_lent_batch_begins_while_an_own_one_ends_another(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One began while the call that ended the first one took its time."""
    first = lend(session)
    seen: list[Exception | None] = []

    def take_long() -> None:
        assert first.batch is not None
        session.ended[first.batch.group].set()
        first.end()
        monkeypatch.setattr(turns, "LENT_WAIT_SECONDS", LOOK_SECONDS)
        seen.append(Batch(session.turns.lent, session).end())

    session.on_cancel = take_long
    with session.turns.own():
        assert [type(each) for each in seen] == [NotLent]


def test_the_end_of_one_batch_is_no_end_of_the_next(session: Session) -> None:
    """All lent batches could be ended by what was meant for one of them, and its rows were blamed."""
    first = lend(session)
    assert first.batch is not None
    session.ended[first.batch.group].set()
    assert first.end() is None
    second = lend(session)
    session.cancel(first.batch.group)
    assert second.batch is not None
    session.ended[second.batch.group].set()
    assert (second.end(), second.batch.has_given_way) == (None, False)


def test_a_lent_batch_has_limited_time(session: Session) -> None:
    for _ in range(2):
        lent = lend(session)
        session.clock.advance(turns.LENT_SECONDS)
        assert isinstance(lent.end(), Transient)
        assert lent.batch is not None
        assert not lent.batch.has_given_way


def test_a_rehearsal_waits_for_a_lent_batch_and_ends_none(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", 0.0)
    lent = lend(session)
    changed = session.turns._changed
    wait_for = changed.wait_for

    def waits(is_so: Callable[[], bool], seconds: float) -> bool:
        if seconds:
            assert lent.batch is not None
            session.ended[lent.batch.group].set()
        return wait_for(is_so, seconds)

    monkeypatch.setattr(changed, "wait_for", waits)
    with session.turns.own(is_rehearsal=True):
        pass
    assert (lent.end(), session.cancelled) == (None, [])


def test_a_rehearsal_ends_a_lent_batch_that_is_overdue(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "OVERDUE_SECONDS", LOOK_SECONDS)
    lent = lend(session)
    with session.turns.own(is_rehearsal=True):
        assert isinstance(lent.end(), Transient)


def test_nothing_is_lent_while_an_own_batch_runs(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LENT_WAIT_SECONDS", LOOK_SECONDS)
    with session.turns.own():
        assert isinstance(Batch(session.turns.lent, session).end(), NotLent)
    lent = lend(session)
    assert isinstance(Batch(session.turns.lent, session).end(), NotLent)
    assert lent.batch is not None
    session.ended[lent.batch.group].set()
    assert lent.end() is None


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
    raised: list[Transient] = []

    def lend() -> None:
        try:
            transform.lend(rows([b"theirs"]))
        except Transient as error:
            raised.append(error)

    lending = threading.Thread(target=lend, daemon=True)
    lending.start()
    assert transform.begun.wait(PATIENCE_SECONDS)
    assert transform.run(rows([b"ours"])) == rows([b"ours"])
    lending.join(PATIENCE_SECONDS)
    assert [type(each) for each in raised] == [Transient if ends_jvm else NotLent]
