"""Invariants of the leader's decisions and records (rule `crash-on-bug`). Pure.

Tests check them after every event, production code at every turn. A violation is a bug and crashes the leader.
What happens in the cluster (an orphan, a suspect that still runs) is an event, never an invariant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from appmaster.planning.state.actions import Action, RecordWrite, SendAssignment, WriteRecords
from appmaster.planning.state.view import ClusterView, places
from standby.errors import BrokenInvariant
from standby.shared.model import Role, TaskId, TaskRecord, Wanted


def violations(view: ClusterView, *, everything: bool = True) -> Iterator[str]:
    """Yield each invariant that ``view`` breaks, by name and with what breaks it.

    Without ``everything``, only tasks of unsettled processors are checked: nothing has changed in the others since
    their last check.
    """
    yield from _of_tasks(view, _tasks(view, everything=everything))
    if everything:
        yield from index_matches_records(view)
        yield from whole_is_settled(view)


def _tasks(view: ClusterView, *, everything: bool) -> Iterator[TaskId]:
    if everything:
        yield from view.records
        return
    for processor in view.unsettled:
        yield from view.job_tasks(processor)


def _of_tasks(view: ClusterView, tasks: Iterable[TaskId]) -> Iterator[str]:
    for task in tasks:
        recorded = view.records.get(task)
        if recorded is not None:
            yield from one_container_one_copy(recorded.record)
            yield from active_is_in_sync(recorded.record)


def one_container_one_copy(record: TaskRecord) -> Iterator[str]:
    """No container holds two copies of a task."""
    containers = [*record.placed.values(), *record.moving.values()]
    if len(set(containers)) != len(containers):
        yield f"one_container_one_copy: {record.task} is placed {dict(record.placed)}, moving {dict(record.moving)}"


def copies_on_different_hosts(
    view: ClusterView, record: TaskRecord, former: TaskRecord | None = None
) -> Iterator[str]:
    """No decision places two copies of a task on one host in containers that may hold roles (Invariant 1).

    Two that a ``former`` record has there already break nothing: it may have been written while a host was unknown. The
    planner parts them. Policy ``restart``: the stopped container of a displaced copy may stay there until it is given
    back.
    """
    known = _shared_hosts(view, former) if former is not None else {}
    for containers, shared in _shared_hosts(view, record).items():
        if containers not in known:
            yield f"copies_on_different_hosts: {record.task} has {shared}"


def _shared_hosts(view: ClusterView, record: TaskRecord) -> dict[frozenset[str], str]:
    """Return each pair of containers on one host that have copies of the task, and in words what is where."""
    found: dict[frozenset[str], str] = {}
    hosts: dict[str, tuple[int, str]] = {}
    for copy, container in (*record.placed.items(), *record.moving.items()):
        known = view.holder(container)
        if known is None or not known.host or copy == record.displaced:
            continue
        first, there = hosts.setdefault(known.host, (copy, container))
        if first != copy:
            found[frozenset((there, container))] = f"{copy} and {first} on {known.host}"
    return found


def active_is_in_sync(record: TaskRecord) -> Iterator[str]:
    """The active is always a member of its task's in-sync set."""
    if record.active is not None and record.active not in record.in_sync:
        yield f"active_is_in_sync: {record.task} has active {record.active}, in sync {record.in_sync}"


def index_matches_records(view: ClusterView) -> Iterator[str]:
    """The index of placements agrees with the records."""
    index: dict[str, dict[TaskId, int]] = {}
    for task, recorded in view.records.items():
        for container, copy in places(recorded.record).items():
            index.setdefault(container, {})[task] = copy
    if index != {each: dict(held) for each, held in view.assigned.items()}:
        yield f"index_matches_records: {index} is not {dict(view.assigned)}"


def whole_is_settled(view: ClusterView) -> Iterator[str]:
    """A job on the list for rebalancing is recorded as not whole exactly while a processor of it is unsettled."""
    busy = {each.job for each in view.unsettled}
    for name in view.jobs:
        known = view.rebalancing.get(name)
        is_whole = known is None or known.whole_ms is not None
        if is_whole == (name in busy):
            yield f"whole_is_settled: {name} is whole: {is_whole}, and unsettled: {name in busy}"


def lawful(view: ClusterView, actions: tuple[Action, ...]) -> Iterator[str]:
    """Yield each invariant that carrying out ``actions`` would break."""
    actives: dict[TaskId, str] = {}
    for action in actions:
        if isinstance(action, WriteRecords):
            for change in action.changes:
                yield from _lawful_change(view, change)
        elif isinstance(action, SendAssignment):
            for each in action.replicas:
                if each.role is Role.ACTIVE:
                    yield from _lawful_assignment(view, action.container, each, actives)


def _lawful_change(view: ClusterView, change: RecordWrite) -> Iterator[str]:
    """Yield what writing ``change`` would break: epochs never fall, a new active has a new epoch, claims stay."""
    recorded = view.records.get(change.record.task)
    if recorded is None:
        return
    old, new = recorded.record, change.record
    if new.epoch < old.epoch:
        yield f"epochs_never_fall: {new.task} from {old.epoch} to {new.epoch}"
    holder = new.placed.get(new.active) if new.active is not None else None
    is_same = holder is None or (new.active, holder) == (old.active, old.placed.get(new.active or 0))
    if not is_same and new.epoch == old.epoch:
        yield f"new_active_new_epoch: {new.task} at epoch {old.epoch}"
    if old.claimed and not new.claimed:
        yield f"claims_stay: {new.task}"
    yield from copies_on_different_hosts(view, new, old)
    yield from _nothing_new_in_a_lost_cell(view, old, new)


def _nothing_new_in_a_lost_cell(view: ClusterView, old: TaskRecord, new: TaskRecord) -> Iterator[str]:
    """Nothing is placed in a container whose cell's AM is gone (rule `lost-cell`); what is there may stay or leave."""
    for container in places(new).keys() - places(old).keys():
        known = view.containers.get(container)
        if known is not None and view.is_orphaned(known):
            yield f"nothing_new_in_a_lost_cell: {new.task} goes to {container} in cell {known.cell}"


def _lawful_assignment(
    view: ClusterView, container: str, order: Wanted, actives: dict[TaskId, str]
) -> Iterator[str]:
    """Yield what making ``container`` active would break: one active per task, assignments follow records."""
    task = order.replica.task
    if task in actives:
        yield f"one_active: {task} to {actives[task]} and {container}"
    actives[task] = container
    record = view.records[task].record
    if record.placed.get(order.replica.copy) != container or order.epoch != record.epoch:
        yield f"assignments_follow_records: {order.replica} to {container}"


def check(view: ClusterView, actions: tuple[Action, ...] = (), *, everything: bool = True) -> None:
    """Raise `BrokenInvariant` naming every invariant that the view, or the actions on top of it, break."""
    broken = [*violations(view, everything=everything), *lawful(view, actions)]
    if broken:
        raise BrokenInvariant("; ".join(broken))
