"""The time of the planner for clusters of growing size: ``python -m benchmarks.planner``.

There are no servers: a simulated cluster answers every action at once with its event, so that only the planner
(``apply``, ``plan``, the invariants as in production) is timed. The cases, for 1,000 tasks on 100 containers and for
ten times as many, with a standby each: the first placement until it is settled; the loss of a container; the loss of
a host with 100 actives; a turn with nothing to do; a turn with a heartbeat of every container; a turn that checks
the spread of all actives over hosts, as happens once after each loss. For the losses the time is measured from the
event until the decisions are planned, and until everything is settled again. Writes JSON: medians of several rounds,
and how the time grows with the number of tasks.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from appmaster.planning import invariants
from appmaster.planning.fold.apply import apply
from appmaster.planning.plan import plan
from appmaster.planning.state import actions as todo
from appmaster.planning.state import events as happened
from appmaster.planning.state.job import JobState, PlannerPolicy
from appmaster.planning.state.model import JobSpec
from appmaster.planning.state.view import ClusterView, Recorded
from demo.versions import versions
from locality.hosts import HostInfo
from standby.shared.model import Phase, ReplicaStatus, Role, Wanted

#: Tasks of one container; on each host, equally many containers hold actives and standbys.
_TASKS_IN_CONTAINER: Final = 20
_CONTAINERS_ON_HOST: Final = 10
_CELLS: Final = (1, 2)
_RACKS: Final = 4

_FAILED: Final = "the planner did not come to rest"


class World:
    """Everything outside the planner, which obeys at once. ``spent`` counts only the planner's seconds."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.processors = tasks // _TASKS_IN_CONTAINER
        hosts = max(3, 2 * self.processors // _CONTAINERS_ON_HOST)
        self.hosts = tuple(f"host{each}" for each in range(hosts))
        self.view = ClusterView()
        self.spent = 0.0
        self.longest = 0.0
        self.now_ms = 1_000
        self.serial = 0
        self.waiting: list[happened.Event] = []
        self.where: dict[str, tuple[str, str]] = {}
        self.numbers: dict[str, int] = {}
        spec = JobSpec("main", tasks, self.processors, 1)
        self.tell(happened.Elected(1, self.now_ms))
        known = (HostInfo(each, rack=f"/{at % _RACKS}") for at, each in enumerate(self.hosts))
        self.tell(happened.HostsKnown(tuple(known)))
        for cell in _CELLS:
            found = happened.CellFound(cell, f"attempt{cell}", self.hosts, self.now_ms, self.hosts[cell])
            self.tell(found)
        self.tell(happened.JobLoaded("job", "run", spec, None, PlannerPolicy()))

    def tell(self, event: happened.Event) -> None:
        """Pass an event to the planner."""
        started = time.perf_counter()
        self.view = apply(self.view, event)
        self.spent += time.perf_counter() - started

    def turn(self) -> tuple[todo.Action, ...]:
        """Make one plan, as `appmaster.driver.Driver` does; return its actions."""
        started = time.perf_counter()
        self.view = apply(self.view, happened.Ticked(self.now_ms))
        actions = plan(self.view)
        invariants.check(self.view, actions, everything=False)
        for each in actions:
            self.view = apply(self.view, happened.Started(each, self.now_ms))
        taken = time.perf_counter() - started
        self.spent += taken
        self.longest = max(self.longest, taken)
        return actions

    def settle(self) -> None:
        """Continue until nothing happens any more."""
        for _ in range(500):
            actions = self.turn()
            for each in actions:
                self.obey(each)
            events, self.waiting = self.waiting, []
            for event in events:
                self.tell(event)
            if not actions and not events:
                if not self.view.unsettled and self.view.jobs["job"].state is JobState.DEPLOYED:
                    return
                self.now_ms += 500
                self.hear_everybody()
        raise RuntimeError(f"{_FAILED}: {self.view.jobs['job'].reasons}")

    def hear_everybody(self) -> None:
        """Send a heartbeat of every container."""
        for each in tuple(self.view.containers.values()):
            self.tell(happened.HeartbeatReceived(each.id, each.incarnation, self.now_ms))

    def obey(self, action: todo.Action) -> None:
        """Carry out one action; its events wait for the next `settle` or turn."""
        if isinstance(action, todo.WriteRecords):
            versions_ = (
                0 if each.expected_version is None else each.expected_version + 1 for each in action.changes
            )
            recorded = tuple(
                Recorded(each.record, version)
                for each, version in zip(action.changes, versions_, strict=True)
            )
            self.waiting.append(happened.RecordsWritten(action.decision, recorded, self.now_ms))
        elif isinstance(action, todo.WriteModel):
            written = replace(action.model, znode=action.model.znode + 1)
            self.waiting.append(happened.ModelWritten(action.job, written))
        elif isinstance(action, todo.RequestContainer):
            self._grant(action)
        elif isinstance(action, todo.SendAssignment):
            self.waiting.append(self._report(action))

    def _grant(self, action: todo.RequestContainer) -> None:
        self.serial += 1
        skein, container = f"s{self.serial}", f"c{self.serial}"
        host = action.host or self.hosts[self.serial % len(self.hosts)]
        self.where[container] = (skein, host)
        self.waiting += [
            happened.RequestPlaced(action.number, skein),
            happened.ContainerGranted(skein, self.now_ms),
            happened.ContainerRegistered(
                container,
                skein,
                self.serial,
                host,
                self.serial,
                0,
                (),
                (),
                self.now_ms,
                cell=action.cell,
                attempt=f"attempt{action.cell}",
            ),
        ]

    def _report(self, action: todo.SendAssignment) -> happened.Event:
        replicas = tuple(_status(each) for each in action.replicas)
        return happened.ReportReceived(
            action.container,
            action.incarnation,
            action.number,
            replicas,
            True,
            0,
            self.now_ms,
            dict(action.jobs),
        )

    def lose(self, containers: Sequence[str]) -> None:
        """Report that YARN has seen the end of these containers."""
        for each in containers:
            skein = self.view.containers[each].skein_id
            self.tell(happened.ContainerCompleted(skein, "exit 137", self.now_ms))

    def actives(self, host: str | None = None) -> list[str]:
        """Return the containers with actives, on one host or anywhere."""
        return [
            each.id
            for each in self.view.containers.values()
            if host in (None, each.host)
            and any(
                self.view.records[task].record.active == copy
                for task, copy in self.view.assigned.get(each.id, {}).items()
            )
        ]


def _status(wanted: Wanted) -> ReplicaStatus:
    is_active = wanted.role is Role.ACTIVE
    return ReplicaStatus(
        wanted.replica,
        wanted.role,
        Phase.ACTIVE if is_active else Phase.TAILING,
        wanted.epoch,
        applied=10,
        end=10,
        lag_ms=0,
        input_committed=10 if is_active else None,
        input_end=10 if is_active else None,
        first_commit_ms=1 if is_active else None,
        is_prepared=wanted.is_next,
    )


@contextmanager
def _timed(world: World, into: dict[str, float], name: str) -> Iterator[None]:
    # The garbage collector runs between measurements, so that no case is charged with it.
    gc.collect()
    before = world.spent
    yield
    into[name] = (world.spent - before) * 1000


def measure(tasks: int) -> dict[str, float]:
    """Return milliseconds of planner time by case, for one cluster."""
    found: dict[str, float] = {}
    world = World(tasks)
    with _timed(world, found, "first_placement"):
        world.settle()
    found["first_placement_longest_turn"] = world.longest * 1000
    with _timed(world, found, "nothing_to_do"):
        assert world.turn() == ()
    with _timed(world, found, "heartbeats_of_all"):
        world.hear_everybody()
        assert world.turn() == ()
    _lose(world, found, "container_lost", lambda: world.actives()[:1])
    _lose(world, found, "host_lost", lambda: _of_host(world))
    world.now_ms += PlannerPolicy().rebalance_pause_ms
    world.hear_everybody()
    with _timed(world, found, "spread_checked"):
        assert world.turn()
    return found


def _of_host(world: World) -> list[str]:
    host = max(world.hosts, key=lambda each: len(world.actives(each)))
    lost = [each.id for each in world.view.containers.values() if each.host == host]
    tasks = sum(len(world.view.assigned[each]) for each in world.actives(host))
    assert tasks >= 100, tasks
    return lost


def _lose(world: World, into: dict[str, float], name: str, choose: Callable[[], list[str]]) -> None:
    lost = choose()
    gc.collect()
    before = world.spent
    world.lose(lost)
    decided = False
    while not decided:
        actions = world.turn()
        assert actions, "a loss must be decided upon"
        for each in actions:
            world.obey(each)
        decided = any(isinstance(each, todo.WriteRecords) and each.kind == "failover" for each in actions)
    into[f"{name}_decided"] = (world.spent - before) * 1000
    # First the failover ends, because lost copies would wait for it; then everything becomes whole again.
    world.settle()
    into[f"{name}_settled"] = (world.spent - before) * 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; write the figures to ``--out``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/planner.json"))
    arguments = parser.parse_args(argv)
    rounds: dict[int, list[dict[str, float]]] = {each: [] for each in arguments.tasks}
    for _ in range(arguments.rounds):
        # In turn, so that a busy moment of the machine does not affect only one size.
        for tasks in arguments.tasks:
            rounds[tasks].append(measure(tasks))
    medians = {
        tasks: {name: statistics.median(each[name] for each in found) for name in found[0]}
        for tasks, found in rounds.items()
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"versions": versions(), "milliseconds": medians, "rounds": rounds}
    arguments.out.write_text(json.dumps(result, indent=1))
    _print(medians)
    return 0


def _print(medians: dict[int, dict[str, float]]) -> None:
    sizes = sorted(medians)
    head = "".join(f"{f'{each:,} tasks':>16}" for each in sizes)
    sys.stdout.write(f"{'planner time, ms (median)':32}{head}{'growth':>10}\n")
    for name in medians[sizes[0]]:
        figures = [medians[each][name] for each in sizes]
        growth = figures[-1] / figures[0] if figures[0] else float("nan")
        sys.stdout.write(f"{name:32}" + "".join(f"{each:16.2f}" for each in figures) + f"{growth:9.1f}x\n")


if __name__ == "__main__":
    sys.exit(main())
