"""Planned hand-over, on Kafka, disks and a feed in memory: prepared ahead, exact, and nothing replayed twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from standby.errors import Transient
from standby.shared.model import Phase, ReplicaId, Role, TaskId, Wanted
from tests.fakes import ledger_job
from tests.fakes.kafka import MemoryBroker
from tests.meanwhile import Hold
from tests.memory_lab import JOB, MakeLab, MemoryContainer, MemoryLab, having
from tests.patience import PATIENCE_SECONDS, soon


@pytest.fixture
def lab(make_lab: MakeLab) -> MemoryLab:
    """A lab in which a start waits for the other task, however slow the machine is."""
    lab = make_lab()
    lab.clock.hold()
    return lab


def want_next(standby: MemoryContainer) -> None:
    """Tell a container that its standbys are about to be made active."""
    standby.want(1, Role.STANDBY, 1, is_next=True)


def prepare(standby: MemoryContainer) -> None:
    """Let time pass until all is prepared: with a transaction open that cannot be, and is tried again later."""
    want_next(standby)
    standby.pass_time_until(lambda: standby.is_so_of_all(lambda each: each.is_prepared))


def hand_over(lab: MemoryLab, active: MemoryContainer, standby: MemoryContainer) -> None:
    """Make copy 1 active and copy 0 its standby, as the leader does."""
    active.want(0, Role.STANDBY, 2)
    standby.activate(1, 2, claimed=True)


def test_a_standby_is_prepared_only_when_ordered_that_it_is_next(lab: MemoryLab) -> None:
    _, standby = lab.pair()
    assert not any(each.is_prepared for each in standby.statuses())
    prepare(standby)
    assert standby.feeds.made[0].starts == []
    standby.want(1, Role.STANDBY, 1)
    standby.eventually(lambda: not any(each.is_prepared for each in standby.statuses()))


def test_what_the_former_active_did_after_the_preparation_is_not_done_again(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    active.process(30)
    prepare(standby)
    active.process(20)
    hand_over(lab, active, standby)
    # Else it may process all of the rest first: then the other is done before its feed has started.
    active.await_phase(Phase.TAILING)
    standby.process(40)
    assert [len(each) for each in standby.feeds.made[0].starts] == [2]
    lab.assert_exact()


def test_a_takeover_connects_what_it_asks_for_ahead(lab: MemoryLab) -> None:
    _, standby = lab.pair()
    broker = standby.replicas._jobs[JOB].broker
    assert isinstance(broker, MemoryBroker)
    assert broker.connects == 0
    standby.activate(1, 2, claimed=True).await_phase(Phase.ACTIVE)
    assert broker.connects == len(lab.tasks)


def test_how_long_each_step_of_a_takeover_took_is_logged(
    lab: MemoryLab, caplog: pytest.LogCaptureFixture
) -> None:
    _, standby = lab.pair()
    with caplog.at_level(logging.INFO, "standby.kernel.replica.takeover"):
        standby.activate(1, 2, claimed=True).await_phase(Phase.ACTIVE)
    (said,) = {each.getMessage().partition(": ")[2] for each in caplog.records}
    points = ("record read", "writer initialised", "offsets read", "drained", "claimed")
    steps = ", ".join(f"{each} after 0" for each in points)
    assert said == f"taken over at epoch 2: 0 ms ({steps})", "no time has passed"


def test_a_feed_is_told_of_its_tasks_when_they_begin_to_become_active(lab: MemoryLab) -> None:
    """Once each, and before its start, for which they have to be fenced and drained first."""
    _, standby = lab.pair()
    (feed,) = standby.feeds.made
    assert feed.expected == []
    told: list[list[frozenset[TaskId]]] = []
    feed.on_start = lambda: told.append(list(feed.expected))
    # Else the former active may process the records before it is fenced: then no feed has started.
    standby.activate(1, 2, claimed=True).await_phase(Phase.ACTIVE).process(20)
    assert sorted(task for each in told[0] for task in each) == list(lab.tasks)
    assert feed.expected == told[0]


def test_a_feed_that_is_not_warm_is_warmed_again_and_prepared_only_then(lab: MemoryLab) -> None:
    tries: list[None] = []

    def away(_: threading.Event) -> None:
        tries.append(None)
        if len(tries) < 3:
            raise Transient("no broker")

    _, standby = lab.pair(script=having(on_warm=away))
    prepare(standby)
    assert len(tries) >= 3


def test_a_promotion_that_comes_before_everything_is_prepared_waits_for_nothing(lab: MemoryLab) -> None:
    tried = threading.Event()

    def away(_: threading.Event) -> None:
        tried.set()
        raise Transient("no broker")

    active, standby = lab.pair(script=having(on_warm=away))
    want_next(standby)
    assert tried.wait(PATIENCE_SECONDS)
    assert not any(each.is_prepared for each in standby.statuses())
    hand_over(lab, active, standby)
    standby.process(20)
    lab.assert_exact()


def test_a_job_whose_standbys_are_not_kept_warm_does_not_wait_until_they_are(make_lab: MakeLab) -> None:
    def away(_: threading.Event) -> None:
        raise Transient("no broker")

    _, standby = make_lab(**{"job.hotstandby.warm": "false"}).pair(script=having(on_warm=away))
    prepare(standby)


def test_a_demoted_active_replays_only_what_it_has_not(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    ends = {each.replica.task.partition: each.applied for each in active.statuses()}
    for each in lab.kafka.readers:
        each.added.clear()
    active.stand_by(0, 1)
    # It is read by a reader that restores, and then by the one that follows.
    added = [each for reader in lab.kafka.readers for each in reader.added]
    assert {partition: min(at for each, at in added if each == partition) for partition in ends} == ends
    hand_over(lab, active, standby)
    standby.process(30)
    lab.assert_exact()


@pytest.mark.parametrize("hangs", [False, True])
def test_an_active_that_leaves_waits_a_second_for_its_commit_and_ends(make_lab: MakeLab, hangs: bool) -> None:
    lab = make_lab(1)
    lab.clock.hold()
    container = lab.begun()
    (held,) = container.replicas.held()
    active = held.active
    assert active is not None
    lab.kafka.before_commit = hold = Hold()
    lab.produce(20)
    hold.await_reached()
    container.want(0, Role.STANDBY, 2)
    container.eventually(lambda: bool(lab.clock._due))
    lab.clock.advance(0.9)
    assert not active._is_abandoned
    if hangs:
        lab.clock.advance(0.1)
        assert active._is_abandoned
    else:
        hold.let_go()
    container.eventually(lambda: active._is_abandoned)
    assert (active.committed.total == 20) is hangs
    container.eventually(lambda: held.halting_since is None)
    hold.let_go()
    container.activate(0, 3, claimed=True).process(20)
    lab.assert_exact()


def one_leaves(container: MemoryContainer) -> None:
    """Have the second task leave while a batch is held, and wait until the feed is told to stop."""
    one, other = (ReplicaId(task, 0) for task in container.lab.tasks)
    container.obey((Wanted(one, Role.ACTIVE, 1), Wanted(other, Role.STANDBY, 2)))
    (feed,) = container.feeds.made
    soon(lambda: feed._is_stopping, "the feed is told to stop")


def await_left(container: MemoryContainer) -> None:
    (held,) = (each for each in container.replicas.held() if each.replica.role is Role.STANDBY)
    container.eventually(lambda: held.halting_since is None)


@dataclass
class Closing:
    """A step of which each row of the first task needs 20 transactions before, some of them held."""

    holds: dict[int, Hold]
    parts: list[int] = field(default_factory=list)
    others: Callable[[], object] = lambda: None
    """Called for the rows of other tasks."""

    def __call__(self, rows: Any, state: Any, out: Any) -> None:
        store = state["chains"]
        done = int(store.get(b"done") or b"0")
        if rows.num_rows and rows["_task"][0].as_py():
            self.others()
        elif rows.num_rows and done < 20:
            store.postpone(0, {b"done": b"%d" % done})
        elif not rows.num_rows:
            self.parts.append(done)
            if done in self.holds:
                self.holds[done]()
            store.put(b"done", b"%d" % (done + 1))


def test_a_task_that_leaves_waits_for_one_transaction_of_another_not_for_all_of_its_batch(
    lab: MemoryLab,
) -> None:
    """By one row so much may close that it takes minutes, and a replica that does not stop ends its container."""
    holds = {3: Hold(), 4: Hold()}
    step = Closing(holds)
    container = lab.container("a", step=step).activate().await_phase(Phase.ACTIVE)
    lab.produce(2)
    holds[3].await_reached()
    one_leaves(container)
    holds[3].let_go()
    await_left(container)
    holds[4].let_go()
    container.eventually(lambda: container.status(0).input_committed == 1)
    assert step.parts == list(range(20)), "each is committed once"


def test_a_task_that_fails_waits_for_one_transaction_of_another_not_for_all_of_its_batch(
    lab: MemoryLab,
) -> None:
    failures = iter([ValueError("for the first time")])

    def fail() -> None:
        for each in failures:
            raise each

    hold = Hold()
    step = Closing({1: hold}, others=fail)
    container = lab.container("a", step=step)
    # Both are in the first batch.
    lab.produce(2)
    container.activate()
    hold.await_reached()
    container.eventually(lambda: container.status(1).failures is not None)
    hold.let_go()
    lab.clock.hurry(f"{JOB}-pipeline")
    container.eventually(lambda: [each.input_committed for each in container.statuses()] == [1, 1])
    assert step.parts == list(range(20)), "each is committed once"


def test_a_task_that_leaves_waits_for_a_slow_step_once_not_for_each_task(lab: MemoryLab) -> None:
    hold = Hold()
    called: list[int] = []

    def step(rows: Any, state: Any, out: Any) -> None:
        called.append(rows["_task"][0].as_py())
        if len(called) == 1:
            hold()
        ledger_job.step(rows, state, out)

    container = lab.container("a", step=step)
    # Both are in the first batch.
    lab.produce(4)
    container.activate()
    hold.await_reached()
    one_leaves(container)
    hold.let_go()
    await_left(container)
    assert 1 not in called
    container.eventually(lambda: container.status(0).input_committed == 2)
    container.activate(0, 3, claimed=True).process(10)
    lab.assert_exact()
