"""Each invariant of the planner, with a view or a decision that breaks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.invariants import check, lawful, violations
from appmaster.planning.state.actions import Action, DecisionKind, RecordWrite, SendAssignment, WriteRecords
from appmaster.planning.state.reasons import DecisionBasis, Reason
from appmaster.planning.state.view import Cell, CellState, ClusterView
from standby.errors import BrokenInvariant
from standby.shared.model import ProcessorId, ReplicaId, Role, TaskId, TaskRecord, Wanted
from tests.fakes.yarn import deployed

TASK = TaskId("job", "main", 0)
PROCESSOR = ProcessorId("job", "main", 0)


@pytest.fixture(scope="module")
def view() -> ClusterView:
    """Return a settled cluster of four tasks on two processors, whose task 0 was claimed."""
    view = deployed().view
    return with_record(view, claimed=True)


def record_of(view: ClusterView, **changes: Any) -> TaskRecord:
    return replace(view.records[TASK].record, **changes)


def with_record(view: ClusterView, **changes: Any) -> ClusterView:
    recorded = replace(view.records[TASK], record=record_of(view, **changes))
    return replace(view, records={**view.records, TASK: recorded})


def names(broken: Iterable[str]) -> list[str]:
    return [each.partition(":")[0] for each in broken]


def test_a_view_that_breaks_an_invariant(view: ClusterView) -> None:
    record = record_of(view)
    assert record.active is not None
    same = dict.fromkeys(record.placed, record.placed[record.active])
    unsynced = with_record(view, in_sync=())
    for broken, expected in (
        (view, []),
        (with_record(view, placed=same), ["one_container_one_copy", "index_matches_records"]),
        (unsynced, ["active_is_in_sync"]),
        (with_record(view, active=None, in_sync=()), []),
        (replace(view, assigned={}), ["index_matches_records"]),
        (replace(view, unsettled=frozenset({PROCESSOR})), ["whole_is_settled"]),
    ):
        assert names(violations(broken)) == expected
    with pytest.raises(BrokenInvariant, match="index_matches_records"):
        check(replace(view, assigned={}))
    # In a quiet turn, only what may have changed is checked.
    assert names(violations(unsynced, everything=False)) == []
    unsettled = replace(unsynced, unsettled=frozenset({PROCESSOR}), assigned={})
    assert names(violations(unsettled, everything=False)) == ["active_is_in_sync"]


def written(record: TaskRecord) -> Action:
    why = Reason(DecisionBasis.OTHER, "")
    return WriteRecords("d1", PROCESSOR, (RecordWrite(record, 1),), DecisionKind.BIND, why)


def test_a_decision_that_breaks_an_invariant(view: ClusterView) -> None:
    old = record_of(view)
    assert old.active is not None
    (standby,) = set(old.placed) - {old.active}
    home = view.containers[old.placed[old.active]]
    other = next(each for each in view.containers.values() if each.id not in old.placed.values())
    beside = replace(view, containers={**view.containers, other.id: replace(other, host=home.host)})
    lost = Cell(other.cell, other.attempt, (), CellState.LOST, 0)
    moved = replace(old, moving={standby: other.id})
    parted = replace(old, placed={**old.placed, standby: other.id})
    for known, new, expected in (
        (view, old, []),
        (view, replace(old, epoch=old.epoch - 1), ["epochs_never_fall"]),
        (view, replace(old, active=standby), ["new_active_new_epoch"]),
        (view, replace(old, active=standby, epoch=old.epoch + 1), []),
        (view, replace(old, active=None), []),
        (with_record(view, active=standby), replace(old, active=standby), []),
        (view, replace(old, claimed=False), ["claims_stay"]),
        (view, replace(old, task=TaskId("job", "main", 99), claimed=False), []),
        (beside, moved, ["copies_on_different_hosts"]),
        (beside, replace(parted, displaced=standby), []),
        (beside, replace(parted, placed={9: "unknown", **parted.placed}), ["copies_on_different_hosts"]),
        (replace(beside, containers={}), parted, []),
        (with_record(beside, moving=moved.moving), moved, []),
        (replace(view, cells={other.cell: lost}), old, []),
        (replace(view, cells={other.cell: lost}), parted, ["nothing_new_in_a_lost_cell"]),
    ):
        assert names(lawful(known, (written(new),))) == expected, new
        if expected:
            with pytest.raises(BrokenInvariant, match=expected[0]):
                check(known, (written(new),), everything=False)


def test_an_assignment_that_breaks_an_invariant(view: ClusterView) -> None:
    record = record_of(view)
    assert record.active is not None
    home = record.placed[record.active]
    active = Wanted(ReplicaId(TASK, record.active), Role.ACTIVE, record.epoch)
    follows = "assignments_follow_records"
    for containers, order, expected in (
        ([home], active, []),
        ([home, home], active, ["one_active"]),
        (["other"], active, [follows]),
        ([home], replace(active, epoch=record.epoch + 1), [follows]),
        (["other"], replace(active, role=Role.STANDBY), []),
    ):
        sent = tuple(SendAssignment(each, 1, 1, (order,), (), "") for each in containers)
        assert names(lawful(view, sent)) == expected, (containers, order)
