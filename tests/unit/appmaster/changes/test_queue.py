"""A change that cannot be made does not block the others."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from appmaster import records as bodies
from appmaster.changes.operations import NotYet
from appmaster.changes.ports import Znode
from appmaster.changes.queue import ChangeQueue
from appmaster.records import ChangeRecord
from standby.errors import BadConfiguration, BrokenInvariant, Fenced, Transient
from tests.fakes.clock import held
from tests.patience import PATIENCE_SECONDS, soon
from tests.unit.appmaster.conftest import Died


class Tree:
    """Three queued changes, of two jobs; complete from the beginning."""

    is_complete = True

    def __init__(self) -> None:
        changes = {"c1": "bad", "c2": "bad", "c3": "good"}
        self.nodes: Mapping[str, Znode] = {
            f"changes/{name}": Znode(bodies.encode(ChangeRecord("undeploy", {"job": job})), 0, at)
            for at, (name, job) in enumerate(changes.items())
        }
        #: What was queued without notice of it having come yet.
        self.unseen: dict[str, Znode] = {}
        self.is_away = False
        #: Tells that it has changed.
        self.change: Callable[[], None] = lambda: None

    def listen(self, heard: Callable[[], None]) -> None:
        self.change = heard

    def start(self) -> None: ...

    def fresh(self, timeout_seconds: float) -> Mapping[str, Znode]:
        if self.is_away:
            raise Transient("planted")
        self.nodes = {**self.nodes, **self.unseen}
        return self.nodes

    def close(self) -> None: ...


class Records:
    """Settles every change but the first, which fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.held_up: list[tuple[str, str]] = []
        self.settled: list[str] = []
        self.tried = 0
        self.has_settled = threading.Event()

    def settle(self, change: str, epoch: int) -> None:
        if change == "c1":
            self.tried += 1
            raise self.error
        self.settled.append(change)
        self.has_settled.set()

    def hold_up(self, change: str, epoch: int, why: str) -> None:
        self.held_up.append((change, why))


def led(
    records: Records, tree: object | None = None, fenced: Callable[[str], None] = lambda _: None
) -> ChangeQueue:
    """Return a queue whose candidate leads."""
    shown: Any = tree or Tree()
    settling: Any = records
    queue = ChangeQueue(shown, settling, "cluster", "me", held(), fenced)
    queue.start()
    queue.lead(1)
    return queue


@pytest.mark.parametrize("error", [ValueError("planted"), KeyError("planted"), BadConfiguration("planted")])
def test_change_that_fails_holds_up_those_of_its_job_alone(error: Exception) -> None:
    records = Records(error)
    queue = led(records)
    assert records.has_settled.wait(PATIENCE_SECONDS)
    queue.rest()
    queue.close()
    assert set(records.settled) == {"c3"}
    (change, why), *_ = records.held_up
    assert change == "c1"
    assert "planted" in why, "the reason is shown to every caller"


@pytest.mark.parametrize("error", [MemoryError("planted"), BrokenInvariant("planted")])
def test_process_that_cannot_be_relied_on_ends(error: BaseException, died: Died) -> None:
    records = Records(error)
    led(records)
    assert died.get(timeout=PATIENCE_SECONDS).exc_value is error
    assert not records.settled
    assert not records.held_up


def test_change_that_is_nested_too_deep_to_be_read_stops_no_other_and_is_refused_at_once() -> None:
    tree = Tree()
    deep = b'{"operation":"undeploy","arguments":{"job":"bad","reason":' + b"[" * 9_999 + b"]" * 9_999 + b"}}"
    tree.nodes = {**tree.nodes, "changes/c1": Znode(deep, 0, 0)}
    records = Records(ValueError("it is not tried"))
    queue = led(records, tree)
    assert records.has_settled.wait(PATIENCE_SECONDS)
    with pytest.raises(BadConfiguration, match="not a record"):
        queue.seen("c1")
    reason: list[Any] = []
    for _ in range(20):
        reason = [reason]
    with pytest.raises(BadConfiguration, match="more than 16 deep"):
        queue.queue("undeploy", {"job": "bad", "reason": reason})
    queue.rest()
    queue.close()
    assert set(records.settled) == {"c2", "c3"}


def test_change_that_fails_is_tried_and_reported_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock = held(threading.current_thread().name)
    tree: Any = Tree()
    records: Any = Records(ValueError("planted"))
    queue = ChangeQueue(tree, records, "cluster", "me", clock, lambda _: None)
    at: list[float] = []

    def try_until(tries: int) -> None:
        """Have the queue's thread go round, in time that takes nothing."""
        while records.tried < tries:
            before = records.tried
            queue._turn()
            at.extend([clock.monotonic()] * (records.tried - before))

    queue._take_lead(1)
    try_until(200)
    records.error = ValueError("something else")
    try_until(201)
    waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.5)
    assert waits[-1] == pytest.approx(5)
    # At once, and after 1, 3, 7 and 15 minutes; another reason at once.
    assert [why.rpartition(": ")[2] for _, why in records.held_up] == [*["planted"] * 5, "something else"]
    lines = [each for each in caplog.records if "change c1 waits" in each.message]
    assert [each.exc_info is not None for each in lines] == [True, *[False] * 4, True], "once for each reason"


@pytest.mark.parametrize(("error", "tries"), [(NotYet("planted"), 2), (Transient("planted"), 1)])
def test_what_waits_for_an_end_is_tried_when_the_tree_changes_and_nothing_else_before_its_time(
    error: Exception, tries: int
) -> None:
    tree, records = Tree(), Records(error)
    queue = led(records, tree)
    turns = soon(lambda: len(records.settled), "a turn")
    tree.change()
    soon(lambda: len(records.settled) >= turns + 3, "it goes round")
    assert records.tried == tries
    queue.rest()
    assert records.tried == tries + 1, "resting makes what can be made"
    queue.close()


@pytest.mark.parametrize(("is_away", "settled"), [(False, {"c3", "c4"}), (True, {"c3"})])
def test_a_change_that_was_queued_a_moment_ago_is_made_before_the_queue_rests(
    is_away: bool, settled: set[str]
) -> None:
    """A leader that finds every job ended rests at once: what it has not seen would be left with no leader."""
    tree, records = Tree(), Records(NotYet("planted"))
    tree.unseen = {"changes/c4": Znode(bodies.encode(ChangeRecord("deploy", {"job": "late"})), 0, 9)}
    tree.is_away = is_away
    queue = led(records, tree)
    queue.rest()
    queue.close()
    assert set(records.settled) == settled


def test_a_change_of_the_tree_just_after_a_pause_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, records = Tree(), Records(NotYet("planted"))
    queue = led(records, tree)
    wait, pauses = queue._worker.wait, iter((True,))

    def waited(seconds: float | None) -> bool:
        is_woken = wait(seconds)
        if not is_woken and next(pauses, False):
            tree.change()
        return is_woken

    monkeypatch.setattr(queue._worker, "wait", waited)
    soon(lambda: records.tried == 2, "it is tried again, although its time has not come")
    queue.close()


def test_another_leader_ends_it() -> None:
    records = Records(Fenced("another leads"))
    fenced: list[str] = []
    queue = led(records, fenced=fenced.append)
    queue.rest()
    queue.close()
    assert fenced[0] == "another leads"
    assert records.settled == []


def test_a_picture_is_not_called_fresh_for_what_was_read_after_it() -> None:
    """The connection may come back while the info is put together: what it has is of before."""
    tree = Tree()
    tree.is_complete = False

    def read_again() -> dict[str, Any]:
        tree.is_complete = True
        return {}

    queue = led(Records(ValueError("planted")), tree)
    queue.more = read_again
    assert queue.info()["is_fresh"] is False
    assert queue.info()["is_fresh"] is True
    queue.close()
