"""A thread with an inbox: the order of its commands, what is raised in them, and what becomes of them at its end."""

from __future__ import annotations

import ast
import gc
import logging
import queue
import re
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import standby
from standby.errors import Unavailable
from standby.threads.inbox import Inbox
from standby.threads.worker import Worker, fatal
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS


class Broken(BaseException):
    """No `Exception`: what a job's code may raise, such as SystemExit."""


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker("tested")
    yield one
    one.close()
    one.join(PATIENCE_SECONDS)


def test_commands_run_in_order_on_the_workers_thread(worker: Worker) -> None:
    ran: list[tuple[int, str]] = []
    for each in range(100):
        worker.put(lambda each=each: ran.append((each, threading.current_thread().name)))  # type: ignore[misc]
    assert not ran
    worker.start()
    assert worker.flush(PATIENCE_SECONDS)
    assert ran == [(each, "tested") for each in range(100)]


def test_a_future_has_what_its_work_returned_or_raised_and_one_given_up_hinders_nothing(
    worker: Worker,
) -> None:
    def break_off() -> None:
        raise Broken

    assert worker.submit(lambda: 6).cancel()
    worker.start()
    assert worker.submit(lambda: 7).result(PATIENCE_SECONDS) == 7
    with pytest.raises(Broken):
        worker.submit(break_off).result(PATIENCE_SECONDS)
    assert worker.submit(lambda: 8).result(PATIENCE_SECONDS) == 8


def test_a_command_that_fails_is_logged_and_the_next_one_runs(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    def break_off() -> None:
        raise Broken("of this")

    with caplog.at_level(logging.ERROR):
        worker.put(break_off)
        assert worker.start().flush(PATIENCE_SECONDS)
    assert [each.getMessage() for each in caplog.records] == ["tested: an unexpected error"]
    assert "of this" in caplog.text


def test_what_was_put_before_the_end_runs_and_what_comes_after_is_refused(worker: Worker) -> None:
    ran: list[str] = []
    worker.put(lambda: ran.append("before"))
    worker.close()
    worker.put(lambda: ran.append("after"))
    waiting = worker.submit(lambda: ran.append("after"))
    worker.start().join(PATIENCE_SECONDS)
    late = worker.submit(lambda: ran.append("late"))
    for each in (waiting, late):
        with pytest.raises(Unavailable, match="tested has ended"):
            each.result(PATIENCE_SECONDS)
    assert ran == ["before"]
    assert not worker.flush(NEVER_SECONDS), "there is nothing to wait for"


def test_whenever_it_is_closed_no_future_is_left_open() -> None:
    for _ in range(50):
        worker = Worker("closing").start()
        closer = threading.Thread(target=worker.close)
        closer.start()
        futures = [worker.submit(lambda: None) for _ in range(50)]
        for each in futures:
            assert isinstance(each.exception(PATIENCE_SECONDS), Unavailable | None)
        closer.join()
        worker.join(PATIENCE_SECONDS)


def test_work_that_is_done_keeps_nothing_alive(worker: Worker) -> None:
    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    worker.start()
    worker.submit(lambda held=held: None).result(PATIENCE_SECONDS)  # type: ignore[misc]
    del held
    assert worker.flush(PATIENCE_SECONDS)
    gc.collect()
    assert gone() is None


class Counting:
    """An owner with a turn: it counts turns, and takes commands out in between."""

    def __init__(self, patience: float | None) -> None:
        self.turns = 0
        self.waited: list[bool] = []
        self.raised: list[BaseException] = []
        self.ended = threading.Event()
        self.patience = patience
        self.worker = Worker("counting", self._turn, failed=self.raised.append, ended=self.ended.set)

    def _turn(self) -> None:
        self.turns += 1
        self.waited.append(self.worker.wait(self.patience))
        self.worker.catch_up()


def test_a_turn_waits_for_one_command_and_catches_up_with_the_others() -> None:
    owner = Counting(None)
    for _ in range(10):
        owner.worker.wake()
    owner.worker.close()
    owner.worker.start().join(PATIENCE_SECONDS)
    assert (owner.turns, owner.waited) == (1, [True])
    assert owner.ended.is_set()
    assert owner.worker.is_closed


def test_a_turn_goes_on_when_nothing_comes_in_time() -> None:
    owner = Counting(0.001)
    ten = threading.Event()

    def turn() -> None:
        owner._turn()
        if owner.turns == 10:
            ten.set()

    owner.worker = Worker("counting", turn).start()
    assert ten.wait(PATIENCE_SECONDS)
    owner.worker.close()
    owner.worker.join(PATIENCE_SECONDS)
    assert not any(owner.waited[:10])


def test_what_a_turn_raises_is_its_owners_and_the_next_turn_follows() -> None:
    owner = Counting(None)
    error = Broken()

    def break_off() -> None:
        raise error

    owner.worker.put(break_off)
    owner.worker.start()
    assert owner.worker.flush(PATIENCE_SECONDS)
    assert owner.raised == [error]
    owner.worker.close()
    assert owner.ended.wait(PATIENCE_SECONDS)


def test_an_owner_may_end_it_for_what_was_raised() -> None:
    def turn() -> None:
        raise Broken

    raised: list[BaseException] = []

    def failed(error: BaseException) -> None:
        raised.append(error)
        ended.end()

    ended = Worker("ended", turn, failed=failed)
    ended.start().join(PATIENCE_SECONDS)
    assert len(raised) == 1


def test_one_for_which_errors_are_fatal_dies_of_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    died: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", died.put)
    error = Broken()

    def break_off() -> None:
        raise error

    dying = Worker("dying", failed=fatal)
    dying.put(break_off)
    waiting = dying.submit(lambda: None)
    dying.start()
    assert died.get(timeout=PATIENCE_SECONDS).exc_value is error
    with pytest.raises(Unavailable, match="dying has ended"):
        waiting.result(PATIENCE_SECONDS)


def test_one_that_was_never_started_is_not_waited_for() -> None:
    worker = Worker("unused")
    worker.close()
    worker.join()


def dropped() -> Iterator[str]:
    """Yield where a future of a worker's `submit` is not so much as kept, in the module that makes the worker."""
    root = Path(standby.__file__).parents[1]
    for file in (each for package in ("appmaster", "standby") for each in (root / package).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        workers = re.findall(r"(\w+) = Worker\(", text)
        for node in ast.walk(ast.parse(text)) if workers else ():
            match node:
                case ast.Expr(ast.Call(ast.Attribute(owner, "submit"))):
                    if ast.unparse(owner).rpartition(".")[2] in workers:
                        yield f"{file.relative_to(root)}:{node.lineno}"


def test_work_without_a_reader_of_its_future_is_put() -> None:
    """An error in it would never be logged, and end nothing."""
    assert not list(dropped()), "use `put`: what it raises is the worker's `failed` then"


def test_all_that_waits_is_taken_in_order() -> None:
    inbox: Inbox[int] = Inbox()
    for each in range(3):
        inbox.post(each)
    assert inbox.take() == 0
    assert inbox.drain(60) == [1, 2]
    assert inbox.is_empty()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.01])
def test_nothing_is_waited_for_so_long_and_no_longer(seconds: float) -> None:
    inbox: Inbox[int] = Inbox()
    assert inbox.drain(seconds) == []
    with pytest.raises(queue.Empty):
        inbox.take(seconds)


def test_the_first_item_ends_the_wait() -> None:
    inbox: Inbox[str] = Inbox()
    writer = threading.Thread(target=inbox.post, args=("here",))
    writer.start()
    assert inbox.drain(60) == ["here"]
    writer.join()
