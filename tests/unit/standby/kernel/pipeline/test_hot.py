"""Hot standbys on Kafka, disks and a feed in memory: any promotion finds a query that runs, and is exact."""

from __future__ import annotations

from typing import Final

import pytest

from standby.feeding import core
from standby.kernel.replay import ends
from standby.shared.model import Phase, ReplicaId, Role, Wanted
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import JOB, MakeLab, MemoryContainer, MemoryLab, hurry_hot
from tests.patience import PATIENCE_SECONDS

HOT: Final = {"job.hotstandby.query": "hot"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry_hot(monkeypatch)
    # A query is of use for all of its tasks only, however late the last of them comes on a busy machine.
    monkeypatch.setattr(core, "_GATHER_SECONDS", 0.0)
    monkeypatch.setattr(core, "_GATHER_AHEAD_SECONDS", 60.0)


@pytest.fixture
def lab(make_lab: MakeLab, request: pytest.FixtureRequest) -> MemoryLab:
    """A lab whose standby has a hot query; its parameter: the inputs."""
    return make_lab(**HOT, **{"task.inputs": getattr(request, "param", "in")})


def await_hot(lab: MemoryLab, standby: MemoryContainer) -> MemoryFeed:
    """Wait until a batch of all tasks is held at the gate, with input that goes on until then; return the feed."""
    (feed,) = standby.feeds.made

    def is_hot() -> bool:
        lab.produce(2)
        # The first of its tasks may have been in step, and hot, before the others.
        reading = feed._prepared
        is_whole = reading is not None and reading.positions.keys() == set(lab.tasks)
        return reading is not None and is_whole and reading.has_arrived and not reading.has_ended

    standby.eventually(is_hot)
    return feed


def kill(active: MemoryContainer) -> None:
    """End a container as a crash does: nobody hands anything over."""
    active.replicas.close(PATIENCE_SECONDS)


@pytest.mark.parametrize("lab", ["in", "in,also"], indirect=True)
def test_a_promotion_that_nobody_announced_uses_the_query_that_runs(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    feed = await_hot(lab, standby)
    for _ in range(5):
        # What is at the gate is let go meanwhile.
        active.process(31)
    kill(active)
    lab.produce(40)
    standby.activate(1, 2, claimed=True).process(20)
    assert feed.starts_ahead == 1
    assert len(feed.starts) == 1
    lab.assert_exact()


def test_a_promotion_of_some_of_its_tasks_starts_a_query_of_theirs(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    feed = await_hot(lab, standby)
    active.await_processed()
    one, two = lab.tasks
    lab.records.name(one, 1, 2, claimed=True)
    jobs = {JOB: lab.definition}
    active.replicas.obey((Wanted(ReplicaId(two, 0), Role.ACTIVE, 1),), jobs)
    standby.replicas.obey(
        (Wanted(ReplicaId(one, 1), Role.ACTIVE, 2), Wanted(ReplicaId(two, 1), Role.STANDBY, 1)), jobs
    )
    lab.produce(40)
    standby.eventually(lambda: any(each.phase is Phase.ACTIVE for each in standby.statuses()))
    # And then the other one, while the first is fed.
    kill(active)
    lab.records.name(two, 1, 2, claimed=True)
    standby.want(1, Role.ACTIVE, 2).process(40)
    assert feed.starts_ahead == 0
    lab.assert_exact()


def test_a_broker_that_was_away_is_outlived(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    feed = await_hot(lab, standby)
    active.await_processed()
    with lab.kafka.lock:
        lab.kafka.is_away = True
    lab.clock.advance(ends._STALE_MS / 1000)
    standby.eventually(lambda: not any(each.end is not None for each in standby.statuses()))
    with lab.kafka.lock:
        lab.kafka.is_away = False
        lab.kafka.lock.notify_all()
    active.process(30)
    kill(active)
    standby.activate(1, 2, claimed=True).process(20)
    assert feed.starts_ahead == 1
    lab.assert_exact()


@pytest.mark.parametrize("more", [{"job.hotstandby.query": "warm"}, {"task.feed": "plain"}])
def test_where_another_job_or_the_policy_says_otherwise_nothing_runs(
    make_lab: MakeLab, more: dict[str, str]
) -> None:
    lab = make_lab(**{**HOT, **more})
    lab.clock.hold()
    _, standby = lab.pair()
    (feed,) = standby.feeds.made
    warms = feed.warms
    standby.pass_time_until(lambda: feed.warms > warms)
    assert feed.prepares == []


def test_a_standby_tells_what_a_promotion_would_wait_for(lab: MemoryLab) -> None:
    active, standby = lab.pair()
    standby.await_all(lambda each: each.start_ms == 0)
    assert all(each.start_ms is None for each in active.statuses())
