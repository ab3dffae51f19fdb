"""What the platform kills is not a failure of a job, at every stage of a container's life (rule `fair-blame`)."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

import pytest

from appmaster.planning.state.job import JobState, PlannerPolicy
from tests.simulation.job import NAME, POLICY
from tests.simulation.process import Process
from tests.simulation.world import Shape, World
from tests.simulation.yarn import Listed

pytestmark = pytest.mark.simulation

KILLS = 100

#: Failures that a slot is allowed by default.
BUDGET = PlannerPolicy().retry_count


def in_production(kind: str) -> World:
    """Return a world whose job has the retry budget that jobs have by default."""
    default = PlannerPolicy()
    world = World(7, Shape(kind, containers=3 if kind == "mixed" else 2))
    world.job.policy = replace(
        POLICY, retry_count=default.retry_count, retry_window_ms=default.retry_window_ms
    )
    return world


@dataclass
class Killer:
    """Kills containers' processes from outside, with their witnesses and without."""

    world: World
    kills_at_launch: float
    """The probability with which a process that has just been started is killed, most before it can register."""
    kills: int = 0
    unheard: int = 0
    """How many of them no leader had heard."""

    def __post_init__(self) -> None:
        self._launch, self.world.yarn.launch = self.world.yarn.launch, self._launched

    def _launched(self, listed: Listed) -> Process:
        process = self._launch(listed)
        if self.world.clock.happens(self.kills_at_launch):
            self.world.clock.after(self.world.clock.between(0, 30), self.kill, process)
        return process

    def kill(self, process: Process) -> None:
        if not process.is_alive:
            return
        leader = self.world.leader()
        self.kills += 1
        self.unheard += leader is None or not leader.hears(process.name)
        if self.kills % 3:
            self.world.containers[process.name].end_by(signal.SIGKILL)
        else:
            process.kill()

    def kill_one(self) -> None:
        alive = [each for each in self.world.containers.values() if each.is_alive]
        if alive:
            self.kill(self.world.clock.chance.choice(alive))


@pytest.mark.parametrize(
    "kind",
    ["promote", *(pytest.param(each, marks=pytest.mark.acceptance) for each in ("restart", "mixed"))],
)
def test_a_hundred_random_kills_spend_nothing_of_the_default_budget(kind: str) -> None:
    world = in_production(kind)
    killer = Killer(world, kills_at_launch=0.5)
    while killer.kills < KILLS and world.clock.now_ms < PlannerPolicy().retry_window_ms:
        world.run(world.clock.between(50, 1_500))
        killer.kill_one()
    assert killer.kills >= KILLS, "it is led all the time, and none is forgotten yet"
    assert killer.unheard > KILLS / 4
    killer.kills_at_launch = 0
    world.settle()
    leader = world.leader()
    assert leader is not None
    assert leader.view.jobs[NAME].state is JobState.DEPLOYED
    assert [each for each in leader.view.attempts.values() if each.failures_ms] == []


def test_what_ends_of_itself_before_it_registers_spends_the_budget() -> None:
    world = in_production("promote")
    world.yarn.launches_fail_on = set(world.hosts)
    world.run(PlannerPolicy().retry_window_ms // 2)
    leader = world.leader()
    assert leader is not None
    job = leader.view.jobs[NAME]
    assert job.state is JobState.FAILED
    assert "failed 9 times" in job.reasons[0]


def test_what_is_killed_at_launch_for_ever_is_launched_ever_more_rarely() -> None:
    world = in_production("promote")
    killer = Killer(world, kills_at_launch=1)
    lasts_ms = 30_000
    world.run(lasts_ms)
    leader = world.leader()
    assert leader is not None
    slots = world.processors() * (1 + world.job.standbys)
    assert killer.kills > BUDGET * slots
    # The first waits are shorter than the longest.
    most = lasts_ms // POLICY.retry_backoff_max_ms + 5
    assert killer.kills < most * slots
    assert leader.view.jobs[NAME].state is JobState.DEPLOYING
    killer.kills_at_launch = 0
    world.settle()
