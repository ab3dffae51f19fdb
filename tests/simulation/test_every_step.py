"""The leader is struck at every step of a failover, a deployment and a planned change, one after the other.

By enumeration, not by luck: each story is run once to count its steps, then once for each step with a blow there.
Every invariant holds on the way, and a successor brings the story to the end that it had. The gate has one blow for
every other step, acceptance one for those between, and a soak each blow for each step.
"""

from __future__ import annotations

from functools import partial

import pytest

from standby.shared.model import TaskId
from tests.simulation.branches import Strikes, branches
from tests.simulation.job import POLICY
from tests.simulation.leader import LEADER_TIMEOUT_MS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.plots import PLOTS, SEED, act, tell
from tests.simulation.run import told
from tests.simulation.steps import Blow, Strike
from tests.simulation.world import World
from tests.simulation.zookeeper import SESSION_MS

pytestmark = pytest.mark.simulation


def test_the_plots_have_every_kind_of_step() -> None:
    taken = {step.partition(":")[0] for plot in PLOTS.values() for step in tell(plot).steps.taken}
    assert taken == {"epoch", "model", "records", "assign", "exit", "request", "release"}


@pytest.mark.parametrize("name", ["leader lost", "leader lost, restart", "leader lost, mixed"])
def test_a_successor_has_nothing_to_do_where_all_is_well(name: str) -> None:
    world = tell(PLOTS[name])
    assert set(world.steps.taken) == {"epoch", "assign"}
    assert len(world.steps.taken) == 1 + sum(each.is_alive for each in world.containers.values())


@pytest.mark.parametrize("name", ["AM silent at a take-over", "AM silent at a take-over, for long"])
def test_a_cell_that_does_not_answer_a_new_leader_costs_no_failover(name: str) -> None:
    world = tell(PLOTS[name])
    assert world.zookeeper.epoch > 1, "another leads"
    assert [each.reason for each in world.invariants.losses] == []
    handed_over = {epoch for _, epoch in world.invariants.activated_ms if epoch > 1}
    assert bool(handed_over) == name.endswith("for long"), "only a cell that is lost is left, and as planned"


def test_a_leader_s_host_that_is_lost_silently_is_noticed_before_its_session_ends() -> None:
    for seed in range(SEED, SEED + 20):
        world = tell(PLOTS["leader's host lost"], seed=seed)
        noticed_ms = world.zookeeper.elected_ms - world.steps.begun_ms
        assert world.zookeeper.epoch == 2
        assert noticed_ms < 2 * LEADER_TIMEOUT_MS < SESSION_MS, seed


def test_a_new_leader_does_not_wait_for_whom_the_leader_before_took_along() -> None:
    world = tell(PLOTS["leader and process lost"])
    [lost] = world.invariants.losses
    assert str(lost.reason) == "port-refused"
    begun = world.steps.begun_ms
    taken: dict[TaskId, int] = {}
    for (task, _), at_ms in sorted(world.invariants.activated_ms.items()):
        if at_ms > begun:
            taken.setdefault(task, at_ms)  # later ones only spread actives
    assert taken
    assert max(taken.values()) - world.zookeeper.elected_ms < POLICY.takeover_grace_ms / 2


def test_a_new_leader_finds_at_the_ports_that_a_silent_host_is_gone() -> None:
    world = tell(PLOTS["leader and host lost"])
    reasons = {str(each.reason).partition(":")[0] for each in world.invariants.losses}
    assert reasons == {"silent"}


def test_a_root_of_an_earlier_day_rises_above_what_its_containers_have_seen() -> None:
    world = tell(PLOTS["ZooKeeper of an earlier day"])
    # A container that ended since may have seen the epoch that is held against it.
    elected_ms = world.zookeeper.elected_ms
    ended = [each for each in world.containers.values() if not each.is_alive]
    seen = max(each.state.epoch for each in ended if each.running_since_ms < elected_ms)
    assert world.zookeeper.epoch > seen
    assert "records: raise" in world.steps.taken
    for task, log in world.logs.items():
        assert world.zookeeper.records[task].record.epoch >= log.claimed_epoch > 1 or log.claimed_epoch == 1


def each_blow(number: int) -> list[tuple[Strike, ...]]:
    return [(Strike(number, blow),) for blow in Blow]


def blow_in_turn(number: int) -> tuple[Strike, ...]:
    """Return one blow for a step; each kind is as often the one, at even steps and at odd ones."""
    return (Strike(number, list(Blow)[number // 2 % len(Blow)]),)


def at_even_steps(number: int) -> list[tuple[Strike, ...]]:
    return [] if number % 2 else [blow_in_turn(number)]


def at_odd_steps(number: int) -> list[tuple[Strike, ...]]:
    return [blow_in_turn(number)] if number % 2 else []


def late(number: int) -> list[tuple[Strike, ...]]:
    """Return the blow that finds a leader's write that nothing fences."""
    return [(Strike(number, Blow.LATE),)]


def twice(number: int) -> list[tuple[Strike, ...]]:
    """Return blows for the leader and for its successor."""
    return [(Strike(number, Blow.AFTER), Strike(number + later, Blow.AFTER)) for later in (1, 2, 4)]


def twice_in_turn(number: int) -> list[tuple[Strike, ...]]:
    return [twice(number)[number % 3]]


def test_blows_find_a_bug_that_the_story_alone_does_not() -> None:
    *struck, alone = branches("cell lost, its containers run on", late, "no-fence")
    assert alone.failure is None
    broken = {each.failure.invariant.partition(":")[0] for each in struck if each.failure is not None}
    assert broken == {"no_older_epoch_after_a_newer_claim"}


def test_a_branch_is_the_story_that_is_told_with_its_strikes() -> None:
    name = "cell lost, its containers run on"
    plot = PLOTS[name]
    found = branches(name, late, "no-fence")
    broken = next(each for each in found if each.failure is not None)
    with MUTATIONS["no-fence"].plant():
        world = World(SEED, plot.shape)
        assert told(world, partial(act, world, plot, *broken.strikes)) == broken.failure
    steps = tell(plot).steps.taken
    assert [each.strikes for each in found] == [
        *(strikes for number in range(len(steps)) for strikes in late(number)),
        (),
    ]


def check_branches(name: str, strikes: Strikes, *, at_least: int) -> None:
    found = branches(name, strikes)
    assert len(found) > at_least
    assert [str(each) for each in found if each.failure is not None] == []


@pytest.mark.parametrize("name", sorted(PLOTS))
def test_a_leader_struck_at_every_other_step_is_succeeded(name: str) -> None:
    check_branches(name, at_even_steps, at_least=1)


@pytest.mark.acceptance
@pytest.mark.parametrize("name", sorted(PLOTS))
def test_a_leader_struck_at_the_steps_between_is_succeeded(name: str) -> None:
    check_branches(name, at_odd_steps, at_least=1)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(PLOTS))
def test_a_leader_struck_at_any_step_by_any_blow_is_succeeded(name: str) -> None:
    check_branches(name, each_blow, at_least=len(Blow))


#: Plots in which a successor is struck, too.
STRUCK_TWICE = ("deployment", "process lost", "host lost, restart", "cell lost", "hand-over")


@pytest.mark.parametrize(
    ("strikes", "name"),
    [
        *(pytest.param(twice_in_turn, each, marks=pytest.mark.acceptance) for each in STRUCK_TWICE),
        *(pytest.param(twice, each, marks=pytest.mark.soak) for each in STRUCK_TWICE),
    ],
)
def test_a_successor_struck_in_its_first_steps_is_succeeded_too(strikes: Strikes, name: str) -> None:
    check_branches(name, strikes, at_least=3)
