"""What a successor makes of records and inventories, and of time that counts for no container."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import pytest

from appmaster.driver import Driver
from appmaster.planning.fold.apply import apply
from appmaster.planning.placement.eligibility import is_clear
from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules.failover import missed
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.events import Event
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.reasons import Loss
from appmaster.planning.state.view import (
    ClusterView,
    Container,
    ContainerRequest,
    EndingContainer,
    LostActive,
    Presence,
    RequestKind,
    RequestState,
)
from standby.shared.model import ProcessorId, SlotId, TaskId
from standby.threads.inbox import Inbox
from tests.fakes.yarn import FakeCluster, deployed
from tests.scenarios.flights import FLIGHTS, cast
from tests.scenarios.plays import cluster_for
from tests.scenarios.words import Flight, Under

SESSION_MS = 6_000


def test_copy_that_is_filled_in_a_container_that_does_not_come_waits_until_that_is_given_back() -> None:
    """It has the copy open, on a host that no record tells the new leader."""
    cluster = cluster_for(Flight.MOVING, Under.PROMOTE)
    FLIGHTS[Flight.MOVING](cluster)
    filled = cast(cluster).filled
    assert filled is not None
    filled.is_frozen = True
    cluster.elect(2)
    cluster.entries.clear()
    cluster.run(20_000)
    kinds = cluster.kinds()
    assert kinds.index("container_lost") < kinds.index("container_released") < kinds.index("decided_stay")


def cohorts_of(cluster: FakeCluster) -> tuple[Cohort, ...]:
    """Return the cohorts of the first processor."""
    return Turn(cluster.view).cohorts(cluster.view.jobs["job"], ProcessorId("job", "main", 0)) or ()


def test_host_with_a_container_that_was_not_heard_yet_is_not_clear() -> None:
    """Where it listens is registered, so it is known by its incarnation; what it has open is not."""
    cluster = deployed(cells=(1,))
    silent = cluster.active_process(0)
    cluster.frozen = {silent.host}
    cluster.elect(2)
    cohort = cohorts_of(cluster)
    other = Container("c9", "s_9", Presence.LIVE, cluster.now_ms, host=silent.host, incarnation=99, pid=9)
    assert cluster.view.containers[silent.container].incarnation
    assert not is_clear(Turn(cluster.view), cohort[0], other)


def test_host_with_a_container_that_has_not_heeded_its_orders_is_not_clear() -> None:
    """It may be about to open what it was ordered to, although it reports nothing of it yet."""
    cluster = deployed()
    told = cluster.view.containers[cluster.active_process(0).container]
    cohort = cohorts_of(cluster)
    other = Container("c9", "s_9", Presence.LIVE, cluster.now_ms, host=told.host, incarnation=99, pid=9)
    for sent, is_open in ((told.applied, True), (told.applied + 1, False)):
        changed = replace(told, statuses={}, sent=sent)
        containers = {other.id: other, **cluster.view.containers, told.id: changed}
        view = replace(cluster.view, containers=containers)
        assert is_clear(Turn(view), cohort[0], other) is is_open


@pytest.mark.parametrize("is_alive", [False, True], ids=["dead", "alive"])
@pytest.mark.parametrize("restarts", [False, True], ids=["promote", "restart"])
@pytest.mark.parametrize(("standbys", "lost"), [(1, ("h1", "h2")), (1, ("h2", "h1")), (2, ("h3", "h1"))])
def test_copy_on_the_host_of_one_that_is_gone_is_alone_there_for_the_next_leader(
    standbys: int, lost: tuple[str, str], restarts: bool, is_alive: bool
) -> None:
    """A registration outlives its process, and a process may outlive its cell: the next leader expects it again."""
    cluster = deployed(
        tasks=3,
        containers=1 + 2 * standbys,
        standbys=standbys,
        is_mixed=True,
        hosts=("h1", "h2", "h3")[: 1 + standbys],
        cells=(1, 2),
        policy=PlannerPolicy(restarts=restarts),
    )
    cluster.grants_nothing = True
    gone = [next(each for each in cluster.processes.values() if each.host == host) for host in lost]
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


@pytest.mark.parametrize("restarts", [False, True], ids=["promote", "restart"])
def test_lost_active_that_is_placed_nowhere_is_missed_unless_it_was_stopped(restarts: bool) -> None:
    """Another copy was placed on its host; or an only copy is about to be started again."""
    for standbys, losses in ((2, {Loss.GONE_BEFORE_TAKEOVER}), (0, set[Loss]())):
        cluster = FakeCluster(
            tasks=1, containers=1, standbys=standbys, policy=PlannerPolicy(restarts=restarts)
        )
        cluster.run(8_000)
        cluster.kill(cluster.active_process(0).skein_id)
        for task, each in cluster.versions.items():
            placed = {copy: name for copy, name in each.record.placed.items() if copy != each.record.active}
            cluster.versions[task] = replace(each, record=replace(each.record, placed=placed))
        cluster.elect(2)
        cluster.turn()
        assert {each.loss for each in cluster.view.lost_actives.values()} == losses
        cluster.settle(30_000)
        assert not cluster.view.lost_actives


def test_each_processor_whose_active_is_gone_is_missed_once() -> None:
    """One that is known as lost, or a part of it that is not lost, ends the search for no other."""
    view = deployed(tasks=8, containers=4, hosts=("h1", "h2", "h3", "h4")).view
    job = view.jobs["job"]
    known, half, whole, held = job.model.processors
    records = dict(view.records)
    gone = {known: ("c91", "c91"), half: ("", "c92"), whole: ("c93", "c94")}
    for processor, containers in gone.items():
        for task, container in zip(job.model.processors[processor].tasks, containers, strict=True):
            record = records[task].record
            placed = {**record.placed, 0: container or record.placed[0]}
            records[task] = replace(records[task], record=replace(record, placed=placed))
    view = replace(
        view,
        records=records,
        unsettled=frozenset((known, half, whole, held)),
        lost_actives={known: LostActive("c91", Loss.SILENT, 0)},
    )
    assert list(missed(Turn(view))) == [
        todo.MissActive(each, LostActive(container, Loss.GONE_BEFORE_TAKEOVER, view.now_ms))
        for each, container in ((half, "c92"), (whole, "c93"))
    ]


def test_no_copy_goes_to_a_host_where_another_may_be_of_which_only_the_container_is_known() -> None:
    """No record names the host of a copy that is being filled."""
    cluster = deployed(tasks=1, containers=1)
    cohort = cohorts_of(cluster)
    other = Container("c9", "s_9", Presence.LIVE, cluster.now_ms, host="h3", incarnation=99, pid=9)
    recorded = cohort[0].recorded[0]
    moving = replace(recorded, record=replace(recorded.record, moving={1: "c8"}))
    for presence, host, is_free in (
        (Presence.EXPECTED, "", False),
        (Presence.SUSPECT, "", False),
        (Presence.ORPHAN, "", True),
        (Presence.EXPECTED, "h4", True),
    ):
        filled = Container("c8", "s_8", presence, cluster.now_ms, host=host)
        view = replace(cluster.view, containers={**cluster.view.containers, filled.id: filled})
        assert is_clear(Turn(view), replace(cohort[0], recorded=(moving,)), other) is is_free


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


def test_what_was_given_back_is_not_taken_for_dead_because_the_leader_stood_still() -> None:
    """An active must not start beside it; the order to end it stood still with the leader."""
    slot = SlotId(ProcessorId("job", "main", 0), 0)
    waiting = ContainerRequest(1, slot, "h1", RequestKind.NAMED, RequestState.WAITING, 900)
    view = replace(
        ClusterView(), epoch=1, ending={"c1": EndingContainer(40, 1_000, 11_000)}, requests={1: waiting}
    )
    view = apply(view, happened.Ticked(12_000, stalled_ms=8_000))
    assert view.ending["c1"].until_ms == 19_000
    assert view.requests[1].since_ms == 8_900
    assert "c1" in apply(view, happened.Ticked(18_999)).ending
    assert "c1" not in apply(view, happened.Ticked(19_000)).ending


def looked_at(
    answers: Callable[[str], tuple[bool, bool]],
    *,
    hosts: Sequence[str],
    lasts_ms: int,
    still: Collection[str] = (),
) -> dict[str, tuple[int, str]]:
    """Return which container of each host is lost to a new leader, after how long and why, if none connects to it.

    ``answers`` tells of a host whether it answers at the container's port, and whether the process does. On the hosts
    ``still`` its witness sees it standing still. A container without a host is being launched: it is listed, and has
    not registered.
    """
    now_ms = begun = 3_600_000
    lost: dict[str, tuple[int, str]] = {}
    probed: list[todo.ProbePort] = []

    def carry_out(action: todo.Action, view: ClusterView) -> None:
        if isinstance(action, todo.DeclareLost):
            lost.setdefault(action.container, (now_ms - begun, str(action.reason)))
        elif isinstance(action, todo.ProbePort):
            probed.append(action)

    driver = Driver(Inbox[Event](), carry_out, lambda entry, view: None, clock=lambda: now_ms)
    driver.turn(
        [
            happened.Elected(2, now_ms),
            happened.CellFound(1, "a1", tuple(filter(None, hosts)), now_ms),
            *(
                happened.ContainerExpected(
                    f"a1_{each}", f"a1/s_{each}", now_ms, 1, "a1", each, 40 if each else 0
                )
                for each in hosts
            ),
        ]
    )
    while now_ms < begun + lasts_ms:
        now_ms += 50
        asked, probed[:] = list(probed), []
        events: list[Event] = []
        for each in asked:
            host = each.container.removeprefix("a1_")
            seen = (*answers(host), host in still)
            events.append(happened.PortProbed(each.container, 40, True, now_ms, None, *seen))
        driver.turn(events)
    return lost


def test_new_leader_waits_for_no_container_for_as_long_as_it_was_a_follower() -> None:
    """A process answers at its port, and its session may live: it does not come all the same. Another is launched."""
    policy = PlannerPolicy()
    lost = looked_at(lambda host: (True, True), hosts=("h1", ""), lasts_ms=policy.launch_timeout_ms + 500)
    waited = [lost[each][0] for each in ("a1_h1", "a1_")]
    for patience, after in zip((policy.takeover_grace_ms, policy.launch_timeout_ms), waited, strict=True):
        assert patience < after <= patience + 500


def test_new_leader_waits_for_a_silent_host_no_longer_than_a_leader_of_long_standing() -> None:
    policy = PlannerPolicy()
    lost = looked_at(
        lambda host: (host != "h1", host == "h3"),
        hosts=("h1", "h2", "h3", "h4"),
        lasts_ms=policy.takeover_grace_ms + 500,
        still=("h4",),
    )
    waited = {container: after for container, (after, _) in lost.items()}
    assert policy.host_timeout_ms < waited["a1_h1"] <= policy.host_timeout_ms + 500
    assert lost["a1_h1"][1] == "silent: since the new leader took over, its host does not answer"
    assert policy.heartbeat_timeout_ms < waited["a1_h2"] <= policy.heartbeat_timeout_ms + 500
    assert lost["a1_h2"][1] == "silent: since the new leader took over, its host answers"
    assert waited["a1_h3"] > policy.takeover_grace_ms, "its process runs, and has yet to come"
    assert policy.host_timeout_ms < waited["a1_h4"] <= policy.host_timeout_ms + 500
    assert lost["a1_h4"][1] == "silent: since the new leader took over, its process stands still"


def test_new_leader_that_reaches_hardly_any_container_waits_for_the_whole_grace() -> None:
    policy = PlannerPolicy()
    lost = looked_at(
        lambda host: (host == "h4", host == "h4"),
        hosts=("h1", "h2", "h3", "h4"),
        lasts_ms=policy.takeover_grace_ms + 500,
    )
    assert len(lost) == 4
    assert all(after > policy.takeover_grace_ms for after, _ in lost.values())
