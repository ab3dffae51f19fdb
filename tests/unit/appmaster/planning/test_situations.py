"""The conditions of the rules, and that each rule is tried for every part of a processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules import situations
from appmaster.planning.rules.table import first
from appmaster.planning.state.actions import PrepareHandover, WriteRecords
from appmaster.planning.state.reasons import HandoverMotive, Reason
from appmaster.planning.state.view import ClusterView
from standby.shared.model import ProcessorId, TaskId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    HELD,
    PARKED,
    PROCESSOR,
    RESTART,
    SECOND,
    Change,
    of_job,
    of_records,
    of_view,
    parts,
    placed,
    seen,
    without_container,
)

LOST: Final = without_container(0)
NEW: Final = of_records(FIRST, SECOND, active=None, epoch=0)
ENDING: Final = of_job(is_wanted=False)


def ahead(task: TaskId, epoch: int) -> Change:
    return of_view(ahead={task: epoch})


HOLDING: Mapping[str, tuple[bool, Callable[[Turn, Cohort], bool], tuple[Change, ...]]] = {
    "withdrawn: no": (False, situations.is_withdrawn, ()),
    "withdrawn: the processor is parked": (True, situations.is_withdrawn, (PARKED,)),
    "withdrawn: the job is not wanted": (True, situations.is_withdrawn, (ENDING,)),
    "ending: no": (False, situations.is_ending, (PARKED,)),
    "ending: the job is not wanted": (True, situations.is_ending, (ENDING,)),
    "displaced: no": (False, situations.has_displaced, ()),
    "displaced: yes": (True, situations.has_displaced, (of_records(FIRST, SECOND, displaced=1),)),
    "behind: no": (False, situations.is_behind, ()),
    "behind: a higher epoch was seen": (True, situations.is_behind, (ahead(SECOND, 2),)),
    "behind: the same epoch was seen": (False, situations.is_behind, (ahead(SECOND, 1),)),
    "behind: one of another task was seen": (
        False,
        situations.is_behind,
        (NEW, ahead(TaskId("job", "main", 9), 2)),
    ),
    "headless: no": (False, situations.is_headless, ()),
    "headless: the active is lost": (True, situations.is_headless, (LOST,)),
    "headless: no copy was active yet": (False, situations.is_headless, (NEW,)),
    "restarts headless: no": (False, situations.restarts_headless, (RESTART,)),
    "restarts headless: yes": (True, situations.restarts_headless, (RESTART, LOST)),
    "restarts headless: a standby takes over": (False, situations.restarts_headless, (LOST,)),
    "promotes headless: no": (False, situations.promotes_headless, ()),
    "promotes headless: yes": (True, situations.promotes_headless, (LOST,)),
    "promotes headless: it starts again": (False, situations.promotes_headless, (RESTART, LOST)),
}


@pytest.mark.parametrize(("holds", "situation", "changes"), HOLDING.values(), ids=HOLDING)
def test_when_a_situation_holds(
    whole: ClusterView,
    holds: bool,
    situation: Callable[[Turn, Cohort], bool],
    changes: tuple[Change, ...],
) -> None:
    assert situation(*seen(whole, *changes)) is holds


@pytest.mark.parametrize(
    ("processor", "is_next"), [(None, False), (PROCESSOR, True), (ANOTHER.processor, False)]
)
def test_a_processor_is_next_to_move_if_the_next_hand_over_is_its_own(
    whole: ClusterView, processor: ProcessorId | None, is_next: bool
) -> None:
    turn, cohort = seen(whole)
    if processor is not None:
        turn.next_move = PrepareHandover(processor, 1, HELD[1], Reason(HandoverMotive.REBALANCE))
    assert situations.is_next_to_move(turn, cohort) is is_next


@pytest.mark.parametrize("task", [FIRST, SECOND])
def test_a_situation_of_one_part_of_a_processor_is_enough(whole: ClusterView, task: TaskId) -> None:
    decision = first(*parts(whole, placed({0: "gone"}, of=(task,))))
    assert isinstance(decision, WriteRecords)
    assert decision.facts.rule == "promote"
    assert [each.record.task for each in decision.changes] == [task]


def test_nothing_else_is_tried_for_a_withdrawn_processor(whole: ClusterView) -> None:
    withdrawn = of_records(FIRST, SECOND, active=None, placed={})
    assert first(*parts(whole, withdrawn)) is not None
    assert first(*parts(whole, withdrawn, PARKED)) is None
