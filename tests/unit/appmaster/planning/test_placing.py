"""Which copy is dropped, which empty slot is filled or started, and what such a decision tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules.placing import drop, fill, start
from appmaster.planning.state.actions import FailoverPolicy, WriteRecords
from appmaster.planning.state.reasons import DecisionBasis, NoStandbyReason
from appmaster.planning.state.view import ClusterView, Presence
from standby.shared.model import InputFailures, SlotId
from tests.unit.appmaster.planning.views import (
    FIRST,
    HELD,
    PROCESSOR,
    RESTART,
    SECOND,
    Change,
    drained,
    free,
    of_holder,
    of_job,
    of_processor,
    of_records,
    of_view,
    older,
    parts,
    placed,
    seen,
    taking,
    without_container,
)

Decide = Callable[[Turn, tuple[Cohort, ...], Cohort], WriteRecords | None]


def free_for(copy: int, name: str = "c9", host: str = "h4") -> Change:
    """A container was requested for a copy, and is empty."""
    return free(name, host, SlotId(PROCESSOR, copy))


# ---- drop ----

#: The standby of copy 1 has revision 2 of 3, which was never active; no container is replaced at present.
WITHDRAWN: Final = (
    of_job(revision=3, refused=9),
    *(of_holder(each, revisions={"job": 2 if each == 1 else 3}) for each in range(3)),
)

DROPPED: Mapping[str, tuple[int | None, tuple[Change, ...]]] = {
    "nothing is wrong": (None, ()),
    "it is beside the active": (1, (of_holder(1, host="h1"),)),
    "the model has no slot for it": (2, (of_processor(copies=(0, 1)),)),
    "nor for the active: it may have to take over, unlike another": (
        2,
        (of_processor(copies=(2,)), drained("h3", "h4")),
    ),
    "its host is drained": (None, (drained("h3"),)),
    "its host is drained, and no other will do": (2, (drained("h3", "h4"),)),
    "so is its host, and another standby is lost": (2, (drained("h2", "h3", "h4"), without_container(1))),
    "its code was withdrawn": (None, WITHDRAWN),
    "its code was withdrawn, and the active is lost": (1, (*WITHDRAWN, without_container(0))),
    "so it was, but the active starts again": (None, (RESTART, *WITHDRAWN, without_container(0))),
    "the active is lost": (None, (without_container(0),)),
}


@pytest.mark.parametrize(("copy", "changes"), DROPPED.values(), ids=DROPPED)
def test_which_standby_is_dropped(whole: ClusterView, copy: int | None, changes: tuple[Change, ...]) -> None:
    decision = drop(*seen(whole, *changes))
    assert (decision and decision.copy) == copy


@pytest.mark.parametrize(
    ("changes", "why"), [(older(1), "replaced by one with revision 2"), ((), "is surplus")]
)
def test_a_container_that_is_replaced_next_is_outdated_or_surplus(
    whole: ClusterView, changes: tuple[Change, ...], why: str
) -> None:
    turn, cohort = seen(whole, *changes)
    turn.restarting["job"] = HELD[1]
    decision = drop(turn, cohort)
    assert decision is not None
    assert why in str(decision.reason)


# ---- start and fill ----

LOST: Final = without_container(0)
ALL_LOST: Final = of_view(containers={})
NEW: Final = (ALL_LOST, of_records(FIRST, SECOND, active=None, placed={}, hosts={}, in_sync=()))

FAILED: Final = of_records(SECOND, failures=InputFailures(7, 99))

BOUND: Mapping[str, tuple[int | None, Decide, tuple[Change, ...]]] = {
    "a standby": (1, fill, (without_container(1), free_for(1))),
    "not in one that takes fewer tasks": (
        None,
        fill,
        (without_container(1), free_for(1), *taking(c9=1)),
    ),
    "a standby while the active is lost": (2, fill, (LOST, without_container(2), free_for(2))),
    "a standby while another waits": (2, fill, (without_container(1), without_container(2), free_for(2))),
    "no displaced standby": (
        2,
        fill,
        (
            *(without_container(1), without_container(2)),
            of_records(FIRST, SECOND, displaced=1),
            *(free_for(2), free_for(1, "c8", "h2")),
        ),
    ),
    "the first copy of all": (0, start, (*NEW, free_for(0))),
    "no second copy before the first": (None, start, (*NEW, free_for(1))),
    "the second copy while the first may come back": (
        1,
        start,
        (
            *(*NEW, free_for(1), free("c8", "h1", presence=Presence.SUSPECT)),
            of_records(FIRST, SECOND, placed={0: "c8"}),
        ),
    ),
    "no active while another copy can take over": (None, start, (LOST, free_for(0))),
    "an active that is to start again": (0, start, (LOST, free_for(0), RESTART)),
    "none that is to start where a standby is displaced": (
        None,
        start,
        (LOST, free_for(0), RESTART, of_records(FIRST, SECOND, displaced=1)),
    ),
    "an active when no copy lives": (0, start, (ALL_LOST, free_for(0))),
    "none that would fail again": (None, start, (ALL_LOST, free_for(0), FAILED)),
    "no other copy in its place": (None, start, (ALL_LOST, free_for(0), free_for(1, "c8", "h2"), FAILED)),
}


@pytest.mark.parametrize(("copy", "decide", "changes"), BOUND.values(), ids=BOUND)
def test_which_slot_gets_an_empty_container(
    whole: ClusterView, copy: int | None, decide: Decide, changes: tuple[Change, ...]
) -> None:
    turn, cohort = seen(whole, *changes)
    decision = decide(turn, (cohort,), cohort)
    assert (decision and decision.copy) == copy


EMPTY: Final = DecisionBasis.EMPTY_SLOT
OTHER: Final = DecisionBasis.OTHER
ALONE: Final = DecisionBasis.NO_OTHER_COPY
NO_OTHER: Final = NoStandbyReason.NO_OTHER_COPY
STAYED: Final = NoStandbyReason.STANDBY_STAYED

Told = tuple[DecisionBasis, NoStandbyReason | None, bool]

TOLD: Mapping[str, tuple[Told, Decide, tuple[Change, ...]]] = {
    "a standby": ((EMPTY, None, False), fill, (without_container(1), free_for(1))),
    "a standby on its last host": (
        (EMPTY, None, False),
        fill,
        (without_container(1), free_for(1, host="h2"), RESTART),
    ),
    "the first copy": ((DecisionBasis.FIRST_COPY, None, False), start, (*NEW, free_for(0))),
    "again on its host": ((OTHER, None, True), start, (LOST, free_for(0, host="h1"), RESTART)),
    "elsewhere, beside standbys": ((OTHER, STAYED, False), start, (LOST, free_for(0), RESTART)),
    "elsewhere, alone": ((ALONE, NO_OTHER, False), start, (ALL_LOST, free_for(0), RESTART)),
    "again on its host, alone": ((ALONE, NO_OTHER, False), start, (ALL_LOST, free_for(0, host="h1"))),
}


@pytest.mark.parametrize(("told", "decide", "changes"), TOLD.values(), ids=TOLD)
def test_what_a_placement_tells_and_what_it_adds_to_the_load(
    whole: ClusterView, told: Told, decide: Decide, changes: tuple[Change, ...]
) -> None:
    turn, cohort = seen(whole, *changes)
    decision = decide(turn, (cohort,), cohort)
    assert decision is not None
    facts = decision.facts
    assert (decision.reason.kind, facts.without and facts.without.kind, facts.in_place) == told
    assert facts.policy is (FailoverPolicy.RESTART if RESTART in changes else FailoverPolicy.PROMOTE)
    assert turn.loads.of("c9") == (2 if decide is start else 0, 2)


HOME: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "it is live": (True, ()),
    "it may be lost": (False, (of_holder(1, presence=Presence.BROKEN),)),
    "it is about to be replaced": (False, older(1)),
    "it is outdated, but stays for now": (True, (*older(1), of_job(refused=9))),
    "it is being given to others": (False, (of_holder(1, binding="1-9"),)),
    "another copy is on its host": (False, (free("c9", "h2"), placed({2: "c9"}, without=1, of=(SECOND,)))),
}


@pytest.mark.parametrize(("is_open", "changes"), HOME.values(), ids=HOME)
def test_a_copy_goes_to_the_container_of_the_other_tasks(
    whole: ClusterView, is_open: bool, changes: tuple[Change, ...]
) -> None:
    turn, cohorts = parts(whole, placed({}, without=1, of=(SECOND,)), *changes)
    decision = fill(turn, cohorts, cohorts[1])
    assert (decision and decision.container) == (HELD[1] if is_open else None)
