"""Small views for tests of single rules: a job with one processor of two tasks, and changes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.state.actions import DecisionKind, RecordWrite, WriteRecords
from appmaster.planning.state.job import PlannerPolicy
from appmaster.planning.state.model import Processor, SharedSlotId, Slot
from appmaster.planning.state.reasons import DecisionBasis, FailureReason, HandoverMotive, Loss, Reason
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    Container,
    ContainerRequest,
    Presence,
    ReplicaProgress,
    RequestKind,
    RequestState,
    places,
)
from locality.fit import PoolProcess
from locality.hosts import HostInfo
from locality.question import Sibling
from standby.shared.model import NodeOffer, ProcessorId, ReplicaId, SlotId, TaskId, TaskRecord
from standby.shared.naming import POOL
from tests.fakes.yarn import deployed

FIRST, SECOND, THIRD = (TaskId("job", "main", each) for each in range(3))
PROCESSOR: Final = ProcessorId("job", "main", 0)
SLOT, ONE, TWO = (SlotId(PROCESSOR, copy) for copy in range(3))

#: `THIRD` is the only task of its processor, if the model has that (`with_another`).
ANOTHER: Final = SlotId(ProcessorId("job", "main", 1), 0)

#: The basis of a decision that is of no influence.
OTHERWISE: Final = Reason(DecisionBasis.OTHER)

#: The containers of the copies 0, 1 and 2 of `with_two_standbys`.
HELD: Final = ("c4", "c5", "c6")

#: Host → its container in `with_three_processors`.
ON: Final = {"h1": "c7", "h2": "c8", "h3": "c9", "h4": "c10", "h5": "c11", "h6": "c12"}

#: The processors of `with_three_processors`, and their tasks.
PROCESSORS: Final = tuple(ProcessorId("job", "main", each) for each in range(3))
TASKS: Final = tuple((TaskId("job", "main", each), TaskId("job", "main", each + 3)) for each in range(3))

#: How long ago the standbys of `with_two_standbys` came into step.
WAITED_MS: Final = 5_000

Change = Callable[[ClusterView], ClusterView]


def with_two_standbys() -> ClusterView:
    """Return a processor whose copy 0 is active on h1; copies 1 and 2, on h2 and h3, could take over for a while."""
    view = deployed(tasks=2, containers=1, standbys=2, hosts=("h1", "h2", "h3", "h4")).view
    assert view.records[FIRST].record.placed == dict(enumerate(HELD))
    for copy in (1, 2):
        progress = ReplicaProgress(True, 0, (), view.now_ms - WAITED_MS)
        standing = {ReplicaId(task, copy): progress for task in (FIRST, SECOND)}
        view = of_holder(copy, standing=standing)(view)
    return view


def with_three_processors() -> ClusterView:
    """Return processors 0, 1 and 2 of two tasks each: actives on h1, h2 and h3, standbys on h4, h5 and h6."""
    view = deployed(tasks=6, containers=3, hosts=("h1", "h2", "h3", "h4", "h5", "h6")).view
    assert {each.host: each.id for each in view.containers.values()} == ON
    return view


def changed(view: ClusterView, *changes: Change) -> ClusterView:
    """Return the view after the changes, in order."""
    for change in changes:
        view = change(view)
    return view


def turned(view: ClusterView, *changes: Change) -> Turn:
    """Return a turn over the changed view, the index of which follows its records."""
    view = changed(view, *changes)
    index: dict[str, dict[TaskId, int]] = {}
    for task, recorded in view.records.items():
        for container, copy in places(recorded.record).items():
            index.setdefault(container, {})[task] = copy
    return Turn(replace(view, assigned=index))


def parts(view: ClusterView, *changes: Change) -> tuple[Turn, tuple[Cohort, ...]]:
    """Return a turn over the changed view, and the parts of the processor in it."""
    turn = turned(view, *changes)
    return turn, turn.cohorts(turn.view.jobs["job"], PROCESSOR) or ()


def seen(view: ClusterView, *changes: Change) -> tuple[Turn, Cohort]:
    """Return a turn over the changed view, and the processor's tasks in it, which are placed alike."""
    turn, (cohort,) = parts(view, *changes)
    return turn, cohort


def recorded(decision: WriteRecords | None) -> TaskRecord:
    """Return the record of the first task as it is decided."""
    assert decision is not None
    return decision.changes[0].record


def decision(
    view: ClusterView,
    kind: DecisionKind,
    reason: Reason[DecisionBasis] | Reason[HandoverMotive] = OTHERWISE,
    tasks: Sequence[TaskId] = (FIRST, SECOND),
    container: str = "",
    **changes: Any,
) -> WriteRecords:
    """Return a decision by which the records of these tasks change so."""
    writes = tuple(RecordWrite(replace(view.records[each].record, **changes), 0) for each in tasks)
    return WriteRecords("1-9", PROCESSOR, writes, kind, reason, container)


# ---- changes ----


def unchanged(view: ClusterView) -> ClusterView:
    return view


def of_view(**changes: Any) -> Change:
    return lambda view: replace(view, **changes)


def of_job(**changes: Any) -> Change:
    return lambda view: replace(view, jobs={**view.jobs, "job": replace(view.jobs["job"], **changes)})


def policy(**keys: int | bool) -> Change:
    return of_job(policy=PlannerPolicy(**keys))  # type: ignore[arg-type]


def of_model(**changes: Any) -> Change:
    return lambda view: of_job(model=replace(view.jobs["job"].model, **changes))(view)


def of_processor(**changes: Any) -> Change:
    def change(view: ClusterView) -> ClusterView:
        processors = view.jobs["job"].model.processors
        processor = replace(processors[PROCESSOR], **changes)
        return of_model(processors={**processors, PROCESSOR: processor})(view)

    return change


def with_another(view: ClusterView) -> ClusterView:
    """Have a second processor in the model, which has no record yet."""
    processors = view.jobs["job"].model.processors
    return of_model(processors={**processors, ANOTHER.processor: Processor((THIRD,), (0, 1, 2))})(view)


MIXED: Final = of_model(is_mixed=True)
UNSETTLED: Final = of_view(unsettled=frozenset({PROCESSOR}))
PARKED: Final = of_processor(parked=Reason(FailureReason.POISON))
RESTART: Final = policy(restarts=True)


def of_records(*tasks: TaskId, **changes: Any) -> Change:
    def change(view: ClusterView) -> ClusterView:
        records = dict(view.records)
        for each in tasks:
            records[each] = replace(records[each], record=replace(records[each].record, **changes))
        return replace(view, records=records)

    return change


def placed(
    more: Mapping[int, str], *, without: int | None = None, of: Sequence[TaskId] = (FIRST, SECOND)
) -> Change:
    def change(view: ClusterView) -> ClusterView:
        before = view.records[FIRST].record.placed
        now = {each: found for each, found in before.items() if each != without} | dict(more)
        return of_records(*of, placed=now)(view)

    return change


def holder_of(view: ClusterView, copy: int) -> Container:
    return view.containers[view.records[FIRST].record.placed[copy]]


def of_container(name: str, **changes: Any) -> Change:
    return lambda view: replace(
        view, containers={**view.containers, name: replace(view.containers[name], **changes)}
    )


def on(**hosts: str) -> tuple[Change, ...]:
    """Have containers be on these hosts."""
    return tuple(of_container(each, host=host) for each, host in hosts.items())


def old(*containers: str) -> tuple[Change, ...]:
    """Have these containers run an older revision than is wanted."""
    return tuple(of_container(each, revisions={"job": 0}) for each in containers)


def taking(**tasks: int) -> tuple[Change, ...]:
    """Have containers take so many tasks."""
    return tuple(of_container(each, offer=NodeOffer(tasks=most)) for each, most in tasks.items())


def of_holder(copy: int, **changes: Any) -> Change:
    return lambda view: of_container(holder_of(view, copy).id, **changes)(view)


def suspected(copy: int, loss: Loss = Loss.SILENT) -> Change:
    """Have the container of a copy be lost, although YARN still lists it."""
    return of_holder(copy, presence=Presence.SUSPECT, loss=Reason(loss))


def of_status(copy: int, task: TaskId, **changes: Any) -> Change:
    def change(view: ClusterView) -> ClusterView:
        statuses = dict(holder_of(view, copy).statuses)
        (replica,) = (each for each in statuses if each.task == task)
        statuses[replica] = replace(statuses[replica], **changes)
        return of_holder(copy, statuses=statuses)(view)

    return change


def gone(*names: str) -> Change:
    """Have containers be gone."""
    return lambda view: replace(
        view, containers={each: found for each, found in view.containers.items() if each not in names}
    )


def without_container(copy: int) -> Change:
    """Have the container of a copy be gone."""
    return lambda view: gone(holder_of(view, copy).id)(view)


def without_host(host: str) -> Change:
    """Have the containers on a host be gone."""
    return lambda view: gone(*(each.id for each in view.containers.values() if each.host == host))(view)


def requested(slot: Slot, host: str | None, state: RequestState = RequestState.WAITING) -> Change:
    request = ContainerRequest(1, slot, host, RequestKind.NAMED, state, 0)
    return of_view(requests={1: request})


def asked_for(
    number: int,
    slot: Slot,
    host: str | None = "h5",
    *,
    cell: int = 1,
    state: RequestState = RequestState.WAITING,
) -> Change:
    """Have a container be requested in addition to others."""

    def change(view: ClusterView) -> ClusterView:
        request = ContainerRequest(number, slot, host, RequestKind.NAMED, state, 0, cell=cell)
        return replace(view, requests={**view.requests, number: request})

    return change


def beside(*hosts: str) -> dict[str, Any]:
    """Return what a need says of other copies on these hosts."""
    return {"siblings": tuple(Sibling(f"job/main:0#{each}", HostInfo(each)) for each in hosts)}


def a_pool(*processes: PoolProcess) -> Change:
    """Have one cell, which is a pool of these processes."""
    cell = Cell(1, POOL, (), CellState.UP, 0, processes=processes)

    def change(view: ClusterView) -> ClusterView:
        containers = {name: replace(each, attempt=POOL) for name, each in view.containers.items()}
        return replace(view, cells={1: cell}, containers=containers)

    return change


def drained(*hosts: str) -> Change:
    return of_view(drained=dict.fromkeys(hosts, "by hand"))


def offered(*offers: HostInfo) -> Change:
    """Have these be the hosts that can be requested."""
    return of_view(offers=offers, hosts={each.name: each for each in offers})


def in_racks(**racks: str) -> Change:
    return offered(*(HostInfo(host, 1, rack) for host, rack in racks.items()))


def older(*copies: int) -> tuple[Change, ...]:
    """Have revision 2 be wanted, and the containers of these copies run revision 1."""
    return of_job(revision=2), *(
        of_holder(each, revisions={"job": 1 if each in copies else 2}) for each in range(3)
    )


def free(
    name: str,
    host: str,
    slot: Slot | None = SLOT,
    cell: int = 1,
    presence: Presence = Presence.LIVE,
) -> Change:
    """Add an empty container."""

    def change(view: ClusterView) -> ClusterView:
        attempt = view.cells[cell].attempt if cell in view.cells else ""
        each = Container(
            name, f"s_{name}", presence, view.now_ms, cell, attempt, host, incarnation=9, pid=9, slot=slot
        )
        return replace(view, containers={**view.containers, name: each})

    return change


#: An empty container of a mixed job.
MORE: Final = free("c9", "h4", SharedSlotId("job", 3))

# ---- tasks that are placed apart ----


def parted(view: ClusterView) -> ClusterView:
    """Have copy 1 of the second task on h4, and that of the first one still on h2."""
    return placed({1: "c9"}, of=(SECOND,))(free("c9", "h4", ONE)(view))


def crowded(view: ClusterView) -> ClusterView:
    """Have copy 0 of the first task and copy 1 of the second one on one host, which can be the home of one copy."""
    view = of_records(FIRST, placed={0: "c4"})(free("c9", "h1", ONE)(view))
    return of_records(SECOND, placed={1: "c9"}, active=1)(view)
