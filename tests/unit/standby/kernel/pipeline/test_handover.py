"""Planned hand-over, on Kafka, disks and a feed in memory: prepared ahead, exact, and nothing replayed twice."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from standby.errors import Transient
from standby.shared.model import Offsets, Phase, ReplicaId, Role, Wanted
from standby.shared.wire import JobDefinition
from tests.meanwhile import Hold
from tests.memory_lab import JOB, MakeLab, MemoryContainer, MemoryLab, having
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def lab(make_lab: MakeLab, request: pytest.FixtureRequest) -> MemoryLab:
    """A lab in which a start waits for the other task, however slow the machine is; its parameter: the inputs."""
    lab = make_lab(**{"task.inputs": getattr(request, "param", "in")})
    lab.clock.hold()
    return lab


def want_next(container: MemoryContainer, copy: int, epoch: int) -> None:
    """Tell a container that its standbys are about to be made active."""
    container.want(copy, Role.STANDBY, epoch, is_next=True)


def await_prepared(container: MemoryContainer) -> None:
    """Let time pass until all is prepared: with a transaction open that cannot be, and is tried again later."""
    container.pass_time_until(lambda: container.is_so_of_all(lambda each: each.is_prepared))


def has_started_ahead(container: MemoryContainer, times: int) -> bool:
    return sum(feed.starts_ahead for feed in container.feeds.made) == times


def hand_over(lab: MemoryLab, active: MemoryContainer, standby: MemoryContainer) -> None:
    """Make copy 1 active and copy 0 its standby, as the leader does."""
    active.want(0, Role.STANDBY, 2)
    standby.activate(1, 2, claimed=True)


def test_a_standby_is_prepared_only_when_it_is_told_that_it_is_next(lab: MemoryLab) -> None:
    _, standby = lab.pair()
    assert not any(each.is_prepared for each in standby.statuses())
    assert standby.feeds.made[0].prepares == []
    want_next(standby, 1, 1)
    await_prepared(standby)
    (feed,) = standby.feeds.made
    assert feed.prepares == [dict.fromkeys(lab.tasks, Offsets.of(30))]
    assert feed.starts == []


@pytest.mark.parametrize("lab", ["in", "in,also"], indirect=True)
def test_the_prepared_query_is_used_and_what_the_former_active_did_meanwhile_is_dropped(
    lab: MemoryLab,
) -> None:
    active, standby = lab.pair()
    active.process(30)
    want_next(standby, 1, 1)
    await_prepared(standby)
    # It goes on for a while: one batch of the prepared query is wholly below what it commits, one partly.
    active.process(20)
    hand_over(lab, active, standby)
    lab.produce(40)
    # The former active may have processed all that there is.
    standby.eventually(partial(has_started_ahead, standby, 1))
    standby.await_processed()
    (feed,) = standby.feeds.made
    assert [len(each) for each in feed.starts] == [2]
    assert all(offsets.total > feed.prepares[0][task].total for task, offsets in feed.starts[0].items())
    lab.assert_exact()


def test_a_preparation_that_is_called_off_leaves_nothing_running(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    want_next(standby, 1, 1)
    await_prepared(standby)
    standby.want(1, Role.STANDBY, 1)
    (feed,) = standby.feeds.made
    standby.eventually(lambda: feed._prepared is None)
    standby.eventually(lambda: not any(each.is_prepared for each in standby.statuses()))
    # And it can still be promoted, the usual way.
    active.want(0, Role.STANDBY, 2)
    standby.activate(1, 2, claimed=True).process(20)
    assert feed.starts_ahead == 0
    lab.assert_exact()


def test_a_promotion_that_comes_before_everything_is_prepared_waits_for_nothing(lab: MemoryLab) -> None:
    prepared = threading.Event()

    def away() -> None:
        prepared.set()
        raise Transient("no broker")

    active, standby = lab.pair(script=having(on_prepare=away))
    want_next(standby, 1, 1)
    assert prepared.wait(PATIENCE_SECONDS)
    assert not any(each.is_prepared for each in standby.statuses())
    hand_over(lab, active, standby)
    standby.process(20)
    assert standby.feeds.made[0].starts_ahead == 0
    lab.assert_exact()


def test_what_cannot_be_prepared_is_tried_again(lab: MemoryLab) -> None:
    tries: list[None] = []

    def away() -> None:
        tries.append(None)
        if len(tries) < 3:
            raise Transient("no broker")

    _, standby = lab.pair(script=having(on_prepare=away))
    want_next(standby, 1, 1)
    await_prepared(standby)
    # And on it goes: what is prepared follows the active.
    assert len(tries) >= 3


def test_a_job_that_never_ran_has_nothing_to_prepare_and_is_deployed_all_the_same(lab: MemoryLab) -> None:
    standby = lab.container("b").stand_by(1, 0)
    want_next(standby, 1, 0)
    standby.eventually(
        lambda: standby.replicas._jobs[JOB].pipeline._state.preparation.prepared != frozenset()
    )
    assert standby.feeds.made[0].prepares == []
    standby.activate(1, 1).process(20)
    lab.assert_exact()


def test_hand_overs_there_and_back_are_exact(lab: MemoryLab) -> None:
    one, two = lab.begun(), lab.container("b").want(1, Role.STANDBY, 1)
    for epoch in range(2, 8):
        to_two = epoch % 2 == 0
        active, standby = (one, two) if to_two else (two, one)
        old, new = (0, 1) if to_two else (1, 0)
        standby.await_phase(Phase.TAILING)
        want_next(standby, new, epoch - 1)
        lab.produce(17)
        await_prepared(standby)
        lab.name(new, epoch, claimed=True)
        active.want(old, Role.STANDBY, epoch)
        standby.want(new, Role.ACTIVE, epoch)
        lab.produce(17)
        standby.eventually(partial(has_started_ahead, standby, epoch // 2))
        standby.await_processed()
    lab.assert_exact()


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


def test_a_batch_under_way_is_committed_or_given_up_and_comes_exactly_once(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    want_next(standby, 1, 1)
    await_prepared(standby)
    lab.kafka.before_commit = hold = Hold()
    lab.produce(20)
    hold.await_reached()
    hand_over(lab, active, standby)
    hold.let_go()
    standby.await_processed()
    active.await_phase(Phase.TAILING)
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


def test_another_jobs_tasks_are_not_prepared(lab: MemoryLab) -> None:
    _, standby = lab.pair()
    other = JobDefinition("other", "run", {**lab.definition.config, "job.name": "other"}, "c2", "g2", 2)
    wanted = tuple(Wanted(ReplicaId(task, 1), Role.STANDBY, 1, is_next=True) for task in lab.tasks)
    standby.replicas.obey(wanted, {JOB: lab.definition, "other": other})
    await_prepared(standby)
    standby.eventually(lambda: len(standby.feeds.made) == 2)
    assert [len(each.prepares) for each in standby.feeds.made] == [1, 0]
