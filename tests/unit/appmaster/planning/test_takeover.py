"""What a successor makes of records and inventories, and of time that counts for no container."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from appmaster.driver import Driver
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import PlannerPolicy
from standby.shared.model import TaskId
from standby.threads.inbox import Inbox
from tests.fakes.yarn import FakeCluster, deployed

SESSION_MS = 6_000


@pytest.mark.parametrize("is_alive", [False, True], ids=["dead", "alive"])
@pytest.mark.parametrize("restarts", [False, True], ids=["promote", "restart"])
def test_copy_on_the_host_of_one_that_is_gone_is_alone_there_for_the_next_leader(
    restarts: bool, is_alive: bool
) -> None:
    """A registration outlives its process, and a process may outlive its cell: the next leader expects it again."""
    policy = PlannerPolicy(restarts=restarts)
    cluster = deployed(tasks=3, containers=5, standbys=2, is_mixed=True, cells=(1, 2), policy=policy)
    cluster.grants_nothing = True
    gone = [next(each for each in cluster.processes.values() if each.host == host) for host in ("h3", "h1")]
    for each in gone:
        cluster.kill(each.skein_id)
        cluster.run(500)
    if is_alive:
        cluster.processes.update({each.skein_id: each for each in gone})
    cluster.elect(2)
    for each in gone:
        cluster.expect(each)
    cluster.grants_nothing = False
    cluster.settle(20_000)


@pytest.mark.parametrize("is_filled", [False, True], ids=["placed", "being filled"])
@pytest.mark.parametrize("knows_hosts", [False, True])
def test_copies_that_are_recorded_on_one_host_are_parted(is_filled: bool, knows_hosts: bool) -> None:
    """They broke an invariant in the first turn of each leader, for as long as both containers lived."""
    cluster = FakeCluster(
        tasks=2, containers=4, is_mixed=True, hosts=("h1", "h2"), cells=(1,) if knows_hosts else ()
    )
    cluster.run(8_000)
    active = cluster.active_process(0)
    beside = next(each for each in cluster.processes.values() if each.host == active.host and each != active)
    task = TaskId("job", "main", 0)
    old = cluster.versions[task]
    copy = next(each for each in old.record.placed if each != old.record.active)
    if is_filled:
        record = replace(old.record, moving={copy: beside.container})
    else:
        placed = {**old.record.placed, copy: beside.container}
        record = replace(old.record, placed=placed, hosts={**old.record.hosts, copy: active.host})
    cluster.versions[task] = replace(old, record=record)
    cluster.may_share_hosts = True
    begun = len(cluster.entries)
    cluster.elect(2)
    cluster.run(20_000)
    assert cluster.shared_hosts() == []
    assert cluster.is_whole()
    assert cluster.active_process(0) == active, "it is no failure"
    decided = {each.kind.value: str(each.reason) for each in cluster.entries[begun:] if each.job == "job"}
    if not is_filled:
        assert decided["decided_drop"] == f"another copy of its tasks is on its host: {active.host}"


class Paused:
    """The real driver over a fake cluster's view, on a clock that a test moves."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.now_ms = cluster.now_ms
        self.actions: list[todo.Action] = []
        self.driver = Driver(
            Inbox[Event](),
            lambda action, _: self.actions.append(action),
            lambda entry, view: None,
            clock=lambda: self.now_ms,
        )
        self.driver.view = replace(cluster.view, now_ms=self.now_ms)

    def turn(self, events: Iterable[Event]) -> None:
        self.driver.turn(list(events))

    def turn_looking(self, events: Iterable[Event]) -> None:
        """Turn, having looked at the ports that were to be looked at: every host answers, no process does."""
        looks = [each for each in self.actions if isinstance(each, todo.ProbePort)]
        self.actions = [each for each in self.actions if each not in looks]
        seen = [
            happened.PortProbed(each.container, each.incarnation, True, self.now_ms, is_running=False)
            for each in looks
        ]
        self.turn([*events, *seen])

    def heartbeats(self) -> list[happened.HeartbeatReceived]:
        return [
            happened.HeartbeatReceived(each.container, each.incarnation, self.now_ms)
            for each in self.cluster.processes.values()
        ]

    def lost(self) -> list[str]:
        return [each.container for each in self.actions if isinstance(each, todo.DeclareLost)]

    def lose_one(self) -> bool:
        """Have a container fall silent; return whether it alone is lost then."""
        dead = next(iter(self.cluster.processes.values())).container
        for _ in range(60):
            self.now_ms += 50
            self.turn_looking([each for each in self.heartbeats() if each.container != dead])
        return self.lost() == [dead]


@pytest.fixture
def paused() -> Paused:
    cluster = deployed(policy=PlannerPolicy(heartbeat_timeout_ms=2_000))
    return Paused(cluster)


def test_leader_that_was_paused_for_two_seconds_takes_no_container_for_lost(paused: Paused) -> None:
    """Shorter than its session, as long as the containers' time-out; what they sent is still in its sockets."""
    paused.turn(paused.heartbeats())
    for pause in (2_000, 2_500, SESSION_MS - 500):
        paused.now_ms += pause
        paused.turn(())
        paused.now_ms += 50
        paused.turn(paused.heartbeats())
    assert paused.lost() == []
    assert paused.lose_one(), "a silent container is still lost although the leader listens"


def test_pause_excuses_no_silence_that_comes_after_it(paused: Paused) -> None:
    paused.turn(paused.heartbeats())
    paused.now_ms += SESSION_MS - 500
    # What had been sent to it is read as it wakes; then a host falls silent.
    paused.turn(paused.heartbeats())
    assert paused.lose_one()


def test_what_a_leader_dates_follows_the_clock_that_was_set() -> None:
    """Or a leader whose machine was suspended would date everything hours back, for as long as it leads."""
    now_ms, wall_ms = 1_000, 50_000
    driver = Driver(Inbox[Event](), lambda *_: None, lambda *_: None, lambda: now_ms, lambda: wall_ms)
    driver.turn([happened.Elected(1, now_ms)])
    assert driver.view.wall(now_ms) == wall_ms
    now_ms, wall_ms = now_ms + 50, wall_ms + 3_600_050
    driver.turn([])
    assert driver.view.wall(now_ms) == wall_ms
