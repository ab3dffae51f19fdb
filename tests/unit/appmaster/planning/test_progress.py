"""The progress of a failover as the report of the new active shows it: is it over, and when was what reached."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.state.progress import FailoverProgress, progress
from appmaster.planning.state.reasons import Loss
from appmaster.planning.state.view import ClusterView, Failover
from standby.shared.model import Phase, Role
from tests.unit.appmaster.planning.views import (
    FIRST,
    PROCESSOR,
    SECOND,
    Change,
    changed,
    of_holder,
    of_records,
    of_status,
    of_view,
    placed,
    unchanged,
)

#: Copy 0 took over from a lost container.
FAILOVER: Final = Failover(
    *(PROCESSOR, "c9", Loss.SILENT, 0, "c4", 100, (FIRST, SECOND)), recorded_ms=200, ordered_ms=300
)

#: How far both tasks have come.
DONE: Final[dict[str, Any]] = {
    "phase": Phase.ACTIVE,
    "since_ms": 7_000,
    "entered": {Phase.FENCING: 4_000, Phase.DRAINING: 5_000, Phase.CLAIMING: 6_000, Phase.ACTIVE: 7_000},
    "start_steps": {"joined": 7_100},
    "first_commit_ms": 8_000,
}

#: Nothing is committed yet, and nothing is there to commit.
IDLE: Final[dict[str, Any]] = {"first_commit_ms": None, "input_committed": 10, "input_end": 10}


def found(view: ClusterView, *changes: Change, failover: Failover = FAILOVER) -> FailoverProgress | None:
    """Return the progress after the changes of a view where both tasks are done."""
    view = changed(view, *(of_status(0, each, **DONE) for each in (FIRST, SECOND)), *changes)
    return progress(view, view.containers["c4"], failover)


# ---- whether it is over ----


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("a record is being written", of_view(writing={SECOND: "1-8"})),
        ("a record is not known", of_view(records={})),
    ],
)
def test_what_is_from_before_the_decision_is_no_progress(
    whole: ClusterView, case: str, change: Change
) -> None:
    assert found(whole, change) is None, case


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("another copy is active", of_records(SECOND, active=1)),
        ("the copy is elsewhere", placed({0: "c9"}, of=(SECOND,))),
        ("the copy is nowhere", placed({}, without=0, of=(SECOND,))),
    ],
)
def test_it_is_over_but_not_finished_once_the_records_name_another(
    whole: ClusterView, case: str, change: Change
) -> None:
    assert found(whole, change) == FailoverProgress(is_over=True, is_finished=False), case


@pytest.mark.parametrize(
    ("case", "is_done", "change"),
    [
        ("every task has committed", True, unchanged),
        ("nothing is reported", False, of_holder(0, statuses={})),
        ("it is a standby still", False, of_status(0, FIRST, role=Role.STANDBY)),
        ("it is of an earlier epoch", False, of_status(0, FIRST, epoch=0)),
        ("it is of a later epoch", False, of_status(0, FIRST, epoch=2)),
        ("it claims the task", False, of_status(0, FIRST, phase=Phase.CLAIMING)),
        ("it has nothing to commit", True, of_status(0, FIRST, **IDLE)),
        ("it has input to commit", False, of_status(0, FIRST, **{**IDLE, "input_end": 11})),
        ("how much input there is is unknown", False, of_status(0, FIRST, **{**IDLE, "input_end": None})),
        ("what is committed is unknown", False, of_status(0, FIRST, **{**IDLE, "input_committed": None})),
        ("a batch came", False, of_status(0, FIRST, **IDLE, start_steps={"delivered": 7_500})),
        ("it has committed, and goes on", True, of_status(0, FIRST, input_committed=10, input_end=11)),
    ],
)
def test_it_is_finished_once_each_task_has_committed_or_has_nothing_to_commit(
    whole: ClusterView, case: str, is_done: bool, change: Change
) -> None:
    now = found(whole, change)
    assert now is not None
    assert (now.is_over, now.is_finished) == (is_done, is_done), case


# ---- when was what reached ----


def test_the_times_of_a_task_are_those_of_the_leader_of_its_phases_and_of_its_start(
    whole: ClusterView,
) -> None:
    now = found(whole, of_view(wall_offset_ms=1_000), of_status(0, SECOND, role=Role.STANDBY))
    assert now is not None
    assert now.times == {
        "0": {
            "detected_ms": 1_100,
            "recorded_ms": 1_200,
            "ordered_ms": 1_300,
            "fenced_ms": 5_000,
            "drained_ms": 6_000,
            "active_ms": 7_000,
            "joined_ms": 7_100,
            "first_commit_ms": 8_000,
        }
    }


def test_a_task_that_is_not_served_yet_hides_no_other(whole: ClusterView) -> None:
    now = found(whole, of_status(0, FIRST, role=Role.STANDBY))
    assert now is not None
    assert list(now.times) == ["1"]


def test_a_task_with_nothing_to_drain_was_fenced_when_its_claim_began(whole: ClusterView) -> None:
    now = found(whole, of_status(0, FIRST, entered={Phase.CLAIMING: 6_000}))
    assert now is not None
    assert (now.times["0"]["fenced_ms"], now.times["0"]["drained_ms"]) == (6_000, 6_000)


def test_phases_on_the_way_to_active_are_kept_as_first_reported(whole: ClusterView) -> None:
    known = replace(FAILOVER, phases={(FIRST, Phase.FENCING): 3_900})
    now = found(
        whole,
        of_status(0, FIRST, entered={Phase.FENCING: 4_000, Phase.RESTORING: 3_000, Phase.ACTIVE: 6_900}),
        of_status(0, SECOND, phase=Phase.DRAINING, since_ms=5_000, entered={}),
        failover=known,
    )
    assert now is not None
    assert now.phases == {
        (FIRST, Phase.FENCING): 3_900,
        (FIRST, Phase.ACTIVE): 6_900,
        (SECOND, Phase.DRAINING): 5_000,
    }
