"""Brings the fake cluster into each state of the failover table, and holds up the operation until it is released."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from appmaster.planning.plan import plan
from appmaster.planning.state import events as happened
from appmaster.planning.state.view import Operation
from standby.shared.model import Phase, Role, TaskId, TaskRecord, Wanted
from tests.fakes.yarn import RESTORE_MS, FakeCluster, Process, in_time
from tests.scenarios.words import Flight

TASK: Final = TaskId("job", "main", 0)

#: Grace for a silent container, where it is to come back however long the flow of policy ``restart`` takes.
RETURNS_MS: Final = 60_000


def record(cluster: FakeCluster) -> TaskRecord:
    return cluster.versions[TASK].record


def process_of(cluster: FakeCluster, copy: int | None) -> Process:
    found = cluster.by_container(record(cluster).placed[copy])  # type: ignore[index]
    assert found is not None
    return found


def active_of(cluster: FakeCluster) -> Process:
    return process_of(cluster, record(cluster).active)


def standby_of(cluster: FakeCluster) -> Process:
    [copy] = [each for each in record(cluster).placed if each != record(cluster).active]
    return process_of(cluster, copy)


@dataclass(frozen=True)
class Cast:
    """The containers and their parts when the trigger is pulled."""

    active: Process | None
    standby: Process | None
    filled: Process | None = None
    reserved: Process | None = None
    displaced: Process | None = None
    silent: Process | None = None


def cast(cluster: FakeCluster) -> Cast:
    """Return the parts as the records give them."""
    now = record(cluster)
    by_copy = {
        copy: process
        for copy, container in now.placed.items()
        if (process := cluster.by_container(container)) is not None
    }
    idle = [each for each in cluster.processes.values() if each.container not in now.placed.values()]
    silent = next((each for each in cluster.processes.values() if not cluster.can_hear(each)), None)
    by_copy = {copy: each for copy, each in by_copy.items() if each is not silent}
    return Cast(
        active=by_copy.get(now.active) if now.active is not None else None,
        standby=next((by_copy[copy] for copy in by_copy if copy not in (now.active, now.displaced)), None),
        filled=next((cluster.by_container(each) for each in now.moving.values()), None),
        reserved=next(iter(idle), None) if now.displaced is not None else None,
        displaced=by_copy.get(now.displaced) if now.displaced is not None else None,
        silent=silent,
    )


def until(cluster: FakeCluster, is_so: Callable[[], bool]) -> None:
    for _ in range(400):
        if is_so():
            return
        cluster.run(100)
    raise AssertionError("the state did not come about")


# ---- what is in flight ----


def deployed(cluster: FakeCluster) -> None:
    until(cluster, lambda: bool(cluster.versions) and cluster.is_whole() and plan(cluster.view) == ())


def standby_restores(process: Process, wanted: Wanted) -> Phase:
    return Phase.ACTIVE if wanted.role is Role.ACTIVE else Phase.RESTORING


def new_active_drains(process: Process, wanted: Wanted) -> Phase:
    return Phase.DRAINING if wanted.role is Role.ACTIVE else Phase.TAILING


def first_deploy(cluster: FakeCluster) -> None:
    cluster.phase_of = lambda process, wanted: Phase.RESTORING
    until(cluster, lambda: TASK in cluster.versions and len(record(cluster).placed) == 2)
    cluster.run(500)


def failover_ordered(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.restore_ms = 60_000  # containers with a new assignment report nothing yet
    _lose_active(cluster)


def another_standby(cluster: FakeCluster) -> None:
    failover_ordered(cluster)
    assert len([each for each in cluster.processes.values() if cluster.can_hear(each)]) == 2


def promotion(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.phase_of = new_active_drains
    _lose_active(cluster)
    cluster.run(500)
    assert {each.phase for each in active_of(cluster).replicas.values()} == {Phase.DRAINING}


def _lose_active(cluster: FakeCluster) -> None:
    before = record(cluster).epoch
    _take_away(cluster)
    until(cluster, lambda: record(cluster).epoch > before)


def _take_away(cluster: FakeCluster) -> None:
    """Lose the active as its policy needs it; silently if it is to come back."""
    lost = active_of(cluster)
    if cluster.policy.suspect_grace_ms == RETURNS_MS:
        cluster.lose_host(lost.host, silent=True)
    elif cluster.policy.restarts:
        cluster.lose_host(lost.host, silent=False)
    else:
        cluster.kill(lost.skein_id)


def restoring(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.phase_of = standby_restores
    cluster.kill(standby_of(cluster).skein_id)
    cluster.run(300)
    until(cluster, lambda: len(record(cluster).placed) == 2 and bool(standby_of(cluster).replicas))
    cluster.run(500)
    assert record(cluster).in_sync == (record(cluster).active,)


def moving(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.drain(standby_of(cluster).host)
    there = standby_of(cluster).container
    cluster.phase_of = lambda process, wanted: (
        Phase.ACTIVE
        if wanted.role is Role.ACTIVE
        else Phase.TAILING
        if process.container == there
        else Phase.RESTORING
    )
    until(cluster, lambda: bool(record(cluster).moving))
    cluster.run(500)


def preparing(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.never_prepares.add(standby_of(cluster).container)
    cluster.command(Operation.HAND_OVER, 0)
    cluster.run(500)
    assert cluster.view.handovers


def asking(cluster: FakeCluster) -> None:
    deployed(cluster)
    _take_away(cluster)
    until(cluster, lambda: bool(cluster.view.lost_actives))
    cluster.run(300)
    assert record(cluster).displaced is None


def stopping(cluster: FakeCluster) -> None:
    deployed(cluster)
    cluster.never_stops.add(standby_of(cluster).container)
    _take_away(cluster)
    until(cluster, lambda: record(cluster).displaced is not None)
    cluster.run(1_000)
    assert len([each for each in cluster.processes.values() if cluster.can_hear(each)]) == 2


def reserving(cluster: FakeCluster) -> None:
    deployed(cluster)
    _take_away(cluster)
    until(cluster, lambda: record(cluster).displaced is not None)
    cluster.grants_nothing = True
    cluster.run(500)
    assert len([each for each in cluster.processes.values() if cluster.can_hear(each)]) == 1
    assert cluster.view.requests


def upgrading(cluster: FakeCluster) -> None:
    deployed(cluster)
    before = standby_of(cluster).container
    cluster.phase_of = standby_restores
    cluster.load(revision=2)
    until(
        cluster,
        lambda: len(record(cluster).placed) == 2 and standby_of(cluster).container != before,
    )
    cluster.run(500)


def undeploying(cluster: FakeCluster) -> Cast:
    deployed(cluster)
    found = cast(cluster)
    cluster.fences_nothing = True
    cluster.undeploy()
    cluster.run(300)
    assert record(cluster).active is None
    assert len(cluster.processes) == 2
    return found


def release(cluster: FakeCluster) -> None:
    cluster.phase_of = in_time
    cluster.restore_ms = RESTORE_MS
    cluster.never_prepares.clear()
    cluster.never_stops.clear()
    cluster.grants_nothing = False
    for process in cluster.processes.values():
        process.ready_ms = min(process.ready_ms, cluster.now_ms)
    if cluster.fences_nothing:
        cluster.fences_nothing = False
        if fence := cluster.view.jobs["job"].fence:
            cluster.tell(happened.TasksFenced(fence, "job"))


#: Brings a cluster into a state.
FLIGHTS: Final[Mapping[Flight, Callable[[FakeCluster], Cast | None]]] = {
    Flight.NOTHING: deployed,
    Flight.FIRST_DEPLOY: first_deploy,
    Flight.FAILOVER: failover_ordered,
    Flight.ANOTHER: another_standby,
    Flight.PROMOTION: promotion,
    Flight.RESTORING: restoring,
    Flight.MOVING: moving,
    Flight.PREPARING: preparing,
    Flight.ASKING: asking,
    Flight.STOPPING: stopping,
    Flight.RESERVING: reserving,
    Flight.UPGRADING: upgrading,
    Flight.UNDEPLOYING: undeploying,
}
