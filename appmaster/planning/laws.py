"""What must always hold of the leader's decisions and records (design 4.12). Pure.

Checked after every event in tests and every turn in production; a violation is a bug and crashes the
leader. What reality does (an orphan, a suspect that still runs) is an event, never a law.
"""

from __future__ import annotations

from collections.abc import Iterator

from appmaster.planning.actions import Action, Change, SendAssign, WriteRecords
from appmaster.planning.view import HOLDING, ClusterView
from standby.errors import BrokenLaw
from standby.model import Role, TaskId, Wanted


def violations(view: ClusterView) -> Iterator[str]:
    """Yield each law that ``view`` breaks, by name and with what breaks it."""
    yield from one_slot_one_container(view)
    yield from copies_on_different_hosts(view)
    yield from active_is_in_sync(view)


def one_slot_one_container(view: ClusterView) -> Iterator[str]:
    """No two containers that may hold roles are bound to one slot."""
    seen: dict[object, str] = {}
    for each in view.containers.values():
        if each.is_bound and each.slot is not None and each.presence in HOLDING:
            if each.slot in seen:
                yield f"one_slot_one_container: {each.slot} is held by {seen[each.slot]} and {each.id}"
            seen[each.slot] = each.id


def copies_on_different_hosts(view: ClusterView) -> Iterator[str]:
    """No two copies of a processor are recorded on one host with a container that may hold roles there."""
    hosts: dict[tuple[object, str], str] = {}
    for each in view.containers.values():
        if each.is_bound and each.slot is not None and each.presence in HOLDING and each.host:
            key = (each.slot.processor, each.host)
            if key in hosts:
                yield f"copies_on_different_hosts: {each.slot} and {hosts[key]} are both on {each.host}"
            hosts[key] = str(each.slot)


def active_is_in_sync(view: ClusterView) -> Iterator[str]:
    """The active is always a member of its task's in-sync set."""
    for task, recorded in view.records.items():
        record = recorded.record
        if record.active is not None and record.active not in record.in_sync:
            yield f"active_is_in_sync: {task} has active {record.active}, in sync {record.in_sync}"


def lawful(view: ClusterView, actions: tuple[Action, ...]) -> Iterator[str]:
    """Yield each law that carrying out ``actions`` would break."""
    told: dict[TaskId, str] = {}
    for action in actions:
        if isinstance(action, WriteRecords):
            for change in action.changes:
                yield from _lawful_change(view, change)
        elif isinstance(action, SendAssign):
            for each in action.replicas:
                if each.role is Role.ACTIVE:
                    yield from _lawful_order(view, action.container, each, told)


def _lawful_change(view: ClusterView, change: Change) -> Iterator[str]:
    """Yield what writing ``change`` would break: epochs never fall, a new active has a new epoch, claims stay."""
    recorded = view.records.get(change.record.task)
    if recorded is None:
        return
    old, new = recorded.record, change.record
    if new.epoch < old.epoch:
        yield f"epochs_never_fall: {new.task} from {old.epoch} to {new.epoch}"
    if new.active not in (None, old.active) and new.epoch == old.epoch:
        yield f"new_active_new_epoch: {new.task} at epoch {old.epoch}"
    if old.claimed and not new.claimed:
        yield f"claims_stay: {new.task}"


def _lawful_order(view: ClusterView, container: str, order: Wanted, told: dict[TaskId, str]) -> Iterator[str]:
    """Yield what making ``container`` active would break: one active a task, orders follow records."""
    task = order.replica.task
    if task in told:
        yield f"one_active: {task} to {told[task]} and {container}"
    told[task] = container
    record = view.records[task].record
    if record.placed.get(order.replica.copy) != container or order.epoch != record.epoch:
        yield f"orders_follow_records: {order.replica} to {container}"


def check(view: ClusterView, actions: tuple[Action, ...] = ()) -> None:
    """Raise `BrokenLaw` naming every law that the view, or the actions on top of it, break."""
    broken = [*violations(view), *lawful(view, actions)]
    if broken:
        raise BrokenLaw("; ".join(broken))
