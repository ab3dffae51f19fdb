"""Planned hand-overs: what begins one, which copy it goes to, and how a prepared one ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.placement.fault_domains import Relocation
from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules.planned import best_standby, carry_on, prepare
from appmaster.planning.state.actions import ForgetHandover, WriteRecords
from appmaster.planning.state.reasons import HandoverMotive, Reason
from appmaster.planning.state.view import ClusterView, Handover, Presence
from standby.shared.model import Phase, ProcessorId, SlotId, TaskId
from tests.unit.appmaster.planning.views import (
    FIRST,
    HELD,
    PROCESSOR,
    SECOND,
    Change,
    drained,
    free,
    holder_of,
    of_container,
    of_holder,
    of_model,
    of_processor,
    of_records,
    of_status,
    of_view,
    older,
    parts,
    placed,
    policy,
    seen,
    without_container,
)

ASKED, SPREAD = HandoverMotive.ASKED, HandoverMotive.REBALANCE


def cold(*copies: int) -> tuple[Change, ...]:
    return tuple(of_holder(each, is_warm=False) for each in copies)


def actives(first: int | None, second: int | None) -> tuple[Change, ...]:
    return of_records(FIRST, active=first), of_records(SECOND, active=second)


# ---- carry on ----

#: How long a hand-over waits for the copy to be prepared.
PATIENCE_MS: Final = 1_000


def handing_over(motive: HandoverMotive, waited_ms: int) -> Change:
    """A hand-over to copy 1 has been prepared for so long; if the active moves, to where it moves."""

    def change(view: ClusterView) -> ClusterView:
        copy, to = next(iter(view.records[FIRST].record.moving.items()), (1, HELD[1]))
        handover = Handover(copy, to, view.now_ms - waited_ms, Reason(motive))
        return replace(view, handovers={PROCESSOR: handover})

    return change


def filled(view: ClusterView) -> ClusterView:
    """The active's copy is filled in c9, on h4, and is in step there."""
    replicas = ((replace(each.replica, copy=0), each) for each in holder_of(view, 1).statuses.values())
    statuses = {replica: replace(each, replica=replica) for replica, each in replicas}
    return of_container("c9", statuses=statuses, is_warm=True)(view)


MOVED: Final = (free("c9", "h4"), of_records(FIRST, SECOND, moving={0: "c9"}), filled)
READY: Final = tuple(of_status(1, each, is_prepared=True) for each in (FIRST, SECOND))
RESTORING: Final = of_status(1, SECOND, phase=Phase.RESTORING)
NEVER_WARM: Final = policy(prepare_timeout_ms=PATIENCE_MS, has_warm_standbys=False)

CARRIED_ON: Mapping[str, tuple[str, HandoverMotive, int, tuple[Change, ...]]] = {
    "prepared": ("done", ASKED, 0, READY),
    "one task is not prepared": ("waits", ASKED, PATIENCE_MS - 1, READY[:1]),
    "not prepared in time": ("done", ASKED, PATIENCE_MS, ()),
    "not prepared, to spread actives": ("waits", SPREAD, PATIENCE_MS - 1, ()),
    "not prepared in time, to spread actives": ("given up", SPREAD, PATIENCE_MS, ()),
    "prepared at last, to spread actives": ("done", SPREAD, PATIENCE_MS, READY),
    "not prepared in time, and never is": ("done", SPREAD, PATIENCE_MS, (NEVER_WARM,)),
    "behind": ("waits", ASKED, 2 * PATIENCE_MS - 1, (RESTORING,)),
    "behind for twice the time": ("given up", ASKED, 2 * PATIENCE_MS, (RESTORING,)),
    "its host is drained": ("done", ASKED, 0, (*READY, drained("h2"))),
    "its host is drained, to spread actives": ("given up", SPREAD, 0, (*READY, drained("h2"))),
    "its container may be lost": ("given up", ASKED, 0, (*READY, of_holder(1, presence=Presence.BROKEN))),
    "the active is lost": ("given up", ASKED, 0, (*READY, without_container(0))),
    "the active, not the first copy, is lost": (
        "given up",
        ASKED,
        0,
        (*READY, *actives(2, 2), without_container(2)),
    ),
    "the active moves, and is in sync there": ("done", ASKED, PATIENCE_MS, MOVED),
    "a standby is displaced": ("given up", ASKED, 0, (*READY, of_records(FIRST, SECOND, displaced=2))),
    "it is active already": ("given up", ASKED, 0, (*READY, *actives(1, 1))),
}


@pytest.mark.parametrize(("end", "motive", "waited_ms", "changes"), CARRIED_ON.values(), ids=CARRIED_ON)
def test_how_a_hand_over_ends(
    whole: ClusterView, end: str, motive: HandoverMotive, waited_ms: int, changes: tuple[Change, ...]
) -> None:
    turn, cohort = seen(
        whole, policy(prepare_timeout_ms=PATIENCE_MS), *changes, handing_over(motive, waited_ms)
    )
    ends = {WriteRecords: "done", ForgetHandover: "given up", type(None): "waits"}
    assert ends[type(carry_on(turn, (cohort,)))] == end


def test_a_hand_over_that_a_command_has_replaced_in_this_turn_is_not_carried_on(whole: ClusterView) -> None:
    turn, cohort = seen(whole, *READY, handing_over(SPREAD, 0))
    turn.handing_over.add(PROCESSOR)
    assert carry_on(turn, (cohort,)) is None


# ---- prepare ----

Begun = tuple[int, HandoverMotive] | None


def begun(turn: Turn, cohorts: tuple[Cohort, ...]) -> Begun:
    """Return the copy and the motive of the hand-over that is begun."""
    found = prepare(turn, cohorts)
    return (found.to_copy, found.reason.kind) if found is not None else None


TO_COPY_1: Final = (1, HandoverMotive.DRAINED)

#: The copies of the second task are not where those of the first are: in c9, which is on h1 as well.
BESIDE: Final = (free("c9", "h1"), placed({0: "c9"}, of=(SECOND,)))

#: The second task's active is in the container where copy 0 of the first belongs.
ASTRAY: Final = (
    free("c9", "h1", SlotId(PROCESSOR, 1)),
    of_records(SECOND, active=1, placed={1: HELD[0], 2: HELD[2]}),
)
NO_HOME: Final = (
    of_records(FIRST, placed={0: HELD[0], 2: HELD[2]}),
    of_records(SECOND, placed={0: HELD[1], 1: HELD[0], 2: HELD[2]}),
)


def moving(task: TaskId, copy: int) -> Change:
    return of_records(task, moving={copy: "c9"})


BEGUN: Mapping[str, tuple[Begun, tuple[Change, ...]]] = {
    "nothing calls for it": (None, ()),
    "a drained host": (TO_COPY_1, (drained("h1"),)),
    "a drained host, whatever it costs": (TO_COPY_1, (drained("h1"), *cold(1, 2))),
    "no copy in sync": (None, (drained("h1"), of_records(FIRST, SECOND, in_sync=(0,)))),
    "an active that may be lost": (None, (drained("h1"), of_holder(0, presence=Presence.BROKEN))),
    "a displaced standby": (None, (drained("h1"), of_records(FIRST, SECOND, displaced=2))),
    "another task's active is lost": (None, (drained("h1"), placed({0: "gone"}, of=(SECOND,)))),
    "another task has no active": (TO_COPY_1, (drained("h1"), of_records(FIRST, active=None))),
    "another task's active may be lost": (
        TO_COPY_1,
        (drained("h1"), free("c9", "h4", presence=Presence.BROKEN), placed({0: "c9"}, of=(FIRST,))),
    ),
    "another task's active moves": (TO_COPY_1, (drained("h1"), free("c9", "h4"), moving(FIRST, 0))),
    "the active moves, and is in sync there": ((0, HandoverMotive.MOVED), MOVED),
    "it is, but in a container that may be lost": (
        None,
        (*MOVED, of_container("c9", presence=Presence.BROKEN)),
    ),
    "it is, but in a container that is not warm yet": (None, (*MOVED, of_container("c9", is_warm=False))),
    "its home is beside it": ((1, HandoverMotive.REGROUP), BESIDE),
    "in a mixed job, where copies have no home": (None, (*BESIDE, of_model(is_mixed=True, containers=4))),
    "no home but a free container": ((2, HandoverMotive.REGROUP), (*ASTRAY, *NO_HOME)),
    "a home on another host, and a free container": (None, ASTRAY),
    "one is under way": (
        None,
        (drained("h1"), of_view(handovers={PROCESSOR: Handover(1, HELD[1], 0, Reason(ASKED))})),
    ),
    "other actives, as many": ((1, HandoverMotive.GATHER), actives(1, 2)),
    "other actives, on a drained host": ((2, HandoverMotive.DRAINED), (*actives(2, 1), drained("h2"))),
    "other actives, with other copies": (None, (*actives(1, 2), placed({}, without=0, of=(SECOND,)))),
    "other actives, and a copy that moves": (None, (*actives(1, 2), moving(SECOND, 0))),
    "other actives, and a displaced copy": (None, (*actives(1, 2), of_records(FIRST, displaced=0))),
}


@pytest.mark.parametrize(("expected", "changes"), BEGUN.values(), ids=BEGUN)
def test_what_a_hand_over_is_begun_for(
    whole: ClusterView, expected: Begun, changes: tuple[Change, ...]
) -> None:
    assert begun(*parts(whole, *changes)) == expected


@pytest.mark.parametrize(
    ("changes", "motive"), [(older(0), HandoverMotive.UPGRADE), ((), HandoverMotive.SURPLUS)]
)
def test_a_container_that_is_replaced_next_is_outdated_or_surplus(
    whole: ClusterView, changes: tuple[Change, ...], motive: HandoverMotive
) -> None:
    turn, cohorts = parts(whole, *changes)
    turn.restarting["job"] = HELD[0]
    assert begun(turn, cohorts) == (1, motive)


@pytest.mark.parametrize(
    ("copy", "changes", "expected"),
    [
        pytest.param(0, (), (1, HandoverMotive.EXPOSED), id="the active"),
        pytest.param(0, cold(1, 2), None, id="the active, but no standby is warm"),
        pytest.param(1, (), None, id="a standby"),
    ],
)
def test_an_active_that_is_to_move_away_from_the_other_copies_waits_for_a_warm_standby(
    whole: ClusterView, copy: int, changes: tuple[Change, ...], expected: Begun
) -> None:
    turn, cohorts = parts(whole, *changes)
    turn.relocations = {PROCESSOR: Relocation(copy, frozenset(), "")}
    assert begun(turn, cohorts) == expected


@pytest.mark.parametrize(
    ("job", "many", "is_begun"), [("job", 3, True), ("job", 4, False), ("other", 4, True)]
)
def test_four_hand_overs_are_prepared_at_once_and_one_of_each_job_beyond_that(
    whole: ClusterView, job: str, many: int, is_begun: bool
) -> None:
    others = {ProcessorId(job, "main", 1 + each): Handover(0, "c9", 0, Reason(ASKED)) for each in range(many)}
    assert bool(begun(*parts(whole, drained("h1"), of_view(handovers=others)))) is is_begun


def test_none_is_begun_beside_one_that_a_command_has_asked_for_in_this_turn(whole: ClusterView) -> None:
    turn, cohorts = parts(whole, drained("h1"))
    turn.handing_over.add(PROCESSOR)
    assert begun(turn, cohorts) is None


def test_a_hand_over_counts_as_prepared_and_as_active_where_it_goes(whole: ClusterView) -> None:
    turn, cohorts = parts(whole, drained("h1"))
    assert prepare(turn, cohorts)
    assert (turn.preparing["job"], turn.loads.of(HELD[1])) == (1, (2, 2))


# ---- which standby ----

SHARED: Final = of_model(is_mixed=True)


def is_given_actives(copy: int) -> Change:
    """Have the container of a copy be about to get actives."""
    return of_view(handovers={PROCESSOR: Handover(copy, HELD[copy], 0, Reason(ASKED))})


STANDBYS: Mapping[str, tuple[int | None, HandoverMotive | None, int | None, tuple[Change, ...]]] = {
    "of equal ones the first": (1, None, None, ()),
    "none on a drained host": (2, None, None, (drained("h2"),)),
    "none without a slot in the model": (2, None, None, (of_processor(copies=(0, 2)),)),
    "on a drained host if it was named": (1, None, 1, (drained("h2"),)),
    "without a slot if it was named": (1, None, 1, (of_processor(copies=(0, 2)),)),
    "a warm one first": (2, None, None, cold(1)),
    "in a mixed job the one with the fewest actives": (2, None, None, (SHARED, is_given_actives(1))),
    "there a warm one, though it has more": (2, None, None, (SHARED, is_given_actives(2), *cold(1))),
    "one of the present revision first": (2, None, None, older(0, 1)),
    "one of an older revision": (1, HandoverMotive.DRAINED, None, older(0, 1, 2)),
    "one that is where it belongs": (
        2,
        HandoverMotive.REGROUP,
        None,
        (of_records(SECOND, active=None, placed={0: HELD[1]}),),
    ),
    "no older one for an upgrade": (None, HandoverMotive.UPGRADE, None, older(0, 1, 2)),
    "unless other actives are there": (1, HandoverMotive.UPGRADE, None, (*older(0, 1, 2), *actives(0, 1))),
    "or the job is mixed": (1, HandoverMotive.UPGRADE, None, (*older(0, 1, 2), of_model(is_mixed=True))),
}


@pytest.mark.parametrize(("expected", "motive", "copy", "changes"), STANDBYS.values(), ids=STANDBYS)
def test_which_standby_takes_over_as_planned(
    whole: ClusterView,
    expected: int | None,
    motive: HandoverMotive | None,
    copy: int | None,
    changes: tuple[Change, ...],
) -> None:
    turn, cohorts = parts(whole, *changes)
    found = best_standby(turn, cohorts[0], motive, copy)
    assert (found and found[0]) == expected
