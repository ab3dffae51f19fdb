"""Fixed stories, the same each time, in which leaders are hit at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from standby.errors import BrokenInvariant
from standby.shared.model import ReplicaId
from tests.simulation.container import Container
from tests.simulation.steps import Strike
from tests.simulation.world import Shape, World

#: Of every plot; another one tells the same story with other delays.
SEED: Final = 7

#: A host is silent for so long before YARN begins to count.
YARN_MS: Final = 5_000

#: Input flows for so long before what happens happens.
FLOW_MS: Final = 1_000


@dataclass(frozen=True)
class Plot:
    """A cluster, and the one thing that happens in it once it is whole."""

    shape: Shape
    happens: Callable[[World], None] | None
    """None: its first deployment is the story."""


def tell(plot: Plot, *strikes: Strike, seed: int = SEED) -> World:
    """Return the world at the end of a plot in which leaders were struck; raises `BrokenInvariant` as any story."""
    world = World(seed, plot.shape)
    act(world, plot, *strikes)
    return world


def act(world: World, plot: Plot, *strikes: Strike) -> None:
    """Have a plot happen in a new world; raises `BrokenInvariant` when the first strike finds no step."""
    if plot.happens is not None:
        world.settle()
        world.flow()
        world.run(FLOW_MS)
    world.steps.count(strikes)
    if plot.happens is not None:
        world.clock.tell("FAULT: the plot")
        plot.happens(world)
    world.run(FLOW_MS)
    world.settle()
    if strikes and world.steps.strikes == strikes:
        raise BrokenInvariant(f"a_story_is_told_the_same_way: it has no step {strikes[0].number}")


def _active(world: World) -> Container:
    """Return the container with the first task's active."""
    record = world.zookeeper.records[world.job.task_ids()[0]].record
    assert record.active is not None
    container = world.containers[record.placed[record.active]]
    assert container.replica(ReplicaId(record.task, record.active)) is not None
    return container


def _cell_of_leader(world: World) -> int:
    leader = world.leader()
    assert leader is not None
    return leader.cell


def _lose_process(world: World) -> None:
    _active(world).kill()


def _lose_host(world: World) -> None:
    """Lose a host for good and without a word: no socket closes, and YARN notices when all has been decided."""
    host = _active(world).host
    host.is_up = False
    for each in list(world.containers.values()):
        if each.host is host:
            each.kill()
    world.clock.after(YARN_MS, world.yarn.node_lost, host)


def _lose_cell(world: World) -> None:
    world.lose_cell(3 - _cell_of_leader(world), runs_on=False)


def _lose_leader_s_cell(world: World) -> None:
    world.lose_cell(_cell_of_leader(world), runs_on=False)


def _lose_am(world: World) -> None:
    """Lose a cell's AM alone: its containers run on until YARN starts the next attempt."""
    world.lose_cell(3 - _cell_of_leader(world), runs_on=True)


def _silence_am(world: World) -> None:
    """Kill the leader while the AM of its cell stands still, for less than that is judged."""
    _stop_am(world, 1_500)


def _silence_am_for_long(world: World) -> None:
    """The same, for so long that the cell is lost meanwhile."""
    _stop_am(world, 6_000)


def _stop_am(world: World, for_ms: int) -> None:
    leader = world.leader()
    assert leader is not None
    cell = leader.cell
    world.yarn.silent.add(cell)
    leader.kill()

    def end() -> None:
        world.yarn.silent.discard(cell)
        world.list_changed()

    world.clock.after(for_ms, end)


def _lose_leader_s_host(world: World) -> None:
    """Lose the host of the leader and of its cell's AM without a word; its containers run on until YARN notices."""
    cell = _cell_of_leader(world)
    host = world.master_hosts[cell - 1]
    host.is_up = False
    world.lose_cell(cell, runs_on=True)
    world.clock.after(6_000, lambda: setattr(host, "is_up", True))


def _lose_leader(world: World) -> None:
    leader = world.leader()
    assert leader is not None
    leader.kill()


def _lose_leader_and_process(world: World) -> None:
    _lose_leader(world)
    _lose_process(world)


def _lose_leader_and_host(world: World) -> None:
    _lose_leader(world)
    _lose_host(world)


def _go_back(world: World) -> None:
    """Have ZooKeeper come back with the state that it had before two leaders and a failover."""
    zookeeper = world.zookeeper
    epoch, records = zookeeper.epoch, dict(zookeeper.records)
    for lose in (_lose_leader, _lose_process):
        lose(world)
        world.settle()
        world.flow()
    zookeeper.restore(epoch - 1, records)


def _hand_over(world: World) -> None:
    leader = world.leader()
    assert leader is not None
    world.job.fail_over(leader, world.clock)


def _drain(world: World) -> None:
    world.job.drained[_active(world).host.name] = "drained"
    world.job_changed()


def _upgrade(world: World) -> None:
    world.job.revision += 1
    world.job_changed()


def _resize(world: World) -> None:
    world.job.containers, world.job.standbys = 3, 2
    world.job_changed()


_PROMOTE: Final = Shape("promote")
_RESTART: Final = Shape("restart")
_MIXED: Final = Shape("mixed", containers=3)

#: Every plot by its name.
PLOTS: Final[dict[str, Plot]] = {
    "deployment": Plot(_PROMOTE, None),
    "deployment, mixed": Plot(_MIXED, None),
    "deployment, one cell": Plot(Shape("promote", cells=1), None),
    "process lost": Plot(_PROMOTE, _lose_process),
    "process lost, restart": Plot(_RESTART, _lose_process),
    "process lost, mixed": Plot(_MIXED, _lose_process),
    "host lost": Plot(Shape("promote", hosts=4), _lose_host),
    "host lost, restart": Plot(Shape("restart", hosts=4), _lose_host),
    "host lost, mixed": Plot(Shape("mixed", containers=3, hosts=4), _lose_host),
    "cell lost": Plot(_PROMOTE, _lose_cell),
    "cell lost, with the leader": Plot(_PROMOTE, _lose_leader_s_cell),
    "cell lost, its containers run on": Plot(_PROMOTE, _lose_am),
    "AM silent at a take-over": Plot(_PROMOTE, _silence_am),
    "AM silent at a take-over, for long": Plot(_PROMOTE, _silence_am_for_long),
    "leader's host lost": Plot(_PROMOTE, _lose_leader_s_host),
    "leader lost": Plot(_PROMOTE, _lose_leader),
    "leader lost, restart": Plot(_RESTART, _lose_leader),
    "leader lost, mixed": Plot(_MIXED, _lose_leader),
    "leader and process lost": Plot(_PROMOTE, _lose_leader_and_process),
    "leader and host lost": Plot(Shape("promote", hosts=4), _lose_leader_and_host),
    "ZooKeeper of an earlier day": Plot(_PROMOTE, _go_back),
    "hand-over": Plot(_PROMOTE, _hand_over),
    "hand-over, mixed": Plot(_MIXED, _hand_over),
    "drain": Plot(_PROMOTE, _drain),
    "drain, restart": Plot(_RESTART, _drain),
    "upgrade": Plot(_PROMOTE, _upgrade),
    "upgrade, mixed": Plot(_MIXED, _upgrade),
    "new model": Plot(Shape("promote", hosts=4), _resize),
}
