"""Copies that move to another container: which do, when they begin, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from appmaster.planning.placement.fault_domains import Relocation
from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules.moving import (
    begin_move,
    end_move,
    hand_over,
    is_warming,
    kept_apart,
    move_reason,
    relocation_of,
)
from appmaster.planning.state.actions import DecisionKind
from appmaster.planning.state.model import SharedSlotId
from appmaster.planning.state.reasons import DecisionBasis, HandoverMotive, Reason
from appmaster.planning.state.view import Cell, CellState, ClusterView, Presence
from standby.shared.model import NodeOffer, TaskId
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    ONE,
    PROCESSOR,
    SECOND,
    TWO,
    Change,
    crowded,
    drained,
    free,
    holder_of,
    of_container,
    of_holder,
    of_job,
    of_processor,
    of_records,
    of_view,
    older,
    parted,
    parts,
    placed,
    recorded,
    seen,
    unchanged,
    without_container,
)


def of_last(view: ClusterView, *changes: Change) -> tuple[Turn, tuple[Cohort, ...], Cohort]:
    """Return a turn over the changed view, the parts of the processor, and the last of them."""
    turn, cohorts = parts(view, *changes)
    return turn, cohorts, cohorts[-1]


def of_mixed(host: str, number: int) -> Change:
    """Add an empty container of a mixed job."""
    return free("c9", host, SharedSlotId("job", number))


ENDING: Mapping[str, tuple[tuple[int, DecisionBasis] | None, Mapping[int, str], tuple[Change, ...]]] = {
    "it is filled there": (None, {1: "c9"}, (free("c9", "h4"),)),
    "its container is gone": ((1, DecisionBasis.OTHER), {1: "c9"}, ()),
    "its container is to leave": ((1, DecisionBasis.NO_NEED), {1: "c9"}, (free("c9", "h4"), drained("h4"))),
    "another copy is on its host": ((1, DecisionBasis.NO_NEED), {1: "c9"}, (free("c9", "h3"),)),
    "the model has no such copy": ((3, DecisionBasis.NO_NEED), {3: "c9"}, (free("c9", "h4"),)),
    "its container is suspected, and another is gone": (
        (2, DecisionBasis.OTHER),
        {1: "c9", 2: "gone"},
        (free("c9", "h4"), of_container("c9", presence=Presence.SUSPECT)),
    ),
}


def test_when_a_move_is_given_up(whole: ClusterView) -> None:
    for case, (then, moving, changes) in ENDING.items():
        given_up = end_move(*seen(whole, *changes, of_records(FIRST, SECOND, moving=moving)))
        assert (given_up and (given_up.copy, given_up.reason.kind)) == then, case


def test_when_a_move_is_completed(whole: ClusterView) -> None:
    """An active arrives by a planned hand-over."""
    cases: Mapping[str, tuple[bool, int, tuple[Change, ...]]] = {
        "it is in sync": (True, 1, ()),
        "it is not there yet": (False, 1, (of_container("c9", statuses={}),)),
        "it is not warm, and the old one is": (False, 1, (of_container("c9", is_warm=False),)),
        "it is the active": (False, 0, ()),
    }
    for case, (is_so, copy, changes) in cases.items():
        filled = of_container("c9", statuses=holder_of(whole, copy).statuses, is_warm=True)
        moving = of_records(FIRST, SECOND, moving={copy: "c9"})
        decision = end_move(*seen(whole, free("c9", "h4"), filled, moving, *changes))
        assert (decision and decision.kind) == (DecisionKind.MOVED if is_so else None), case


WARMING: Mapping[str, tuple[bool, Change]] = {
    "it is warm": (True, unchanged),
    "it is cold as well": (False, of_holder(1, is_warm=False)),
    "it is gone": (False, placed({1: "gone"})),
    "its stream broke": (False, of_holder(1, presence=Presence.BROKEN)),
    "a replica there has ended": (False, of_holder(1, has_ended=True)),
    "its process is asked to end": (False, of_holder(1, is_leaving=True)),
    "it ends with its cell": (False, of_view(cells={1: Cell(1, "", (), CellState.LOST, 0)})),
}


def test_when_the_old_copy_is_kept_until_the_new_one_is_warm(whole: ClusterView) -> None:
    for case, (is_so, change) in WARMING.items():
        turn, cohort = seen(whole, free("c9", "h4"), change)
        assert is_warming(turn, cohort, 1, turn.view.containers["c9"]) is is_so, case


def test_a_copy_that_may_be_open_on_the_other_host_holds_up_no_other(whole: ClusterView) -> None:
    """Another container there has not told yet what it has open."""
    turn, cohorts, cohort = of_last(
        whole,
        drained("h2", "h3"),
        *(free("c7", "h4", ANOTHER), of_container("c7", pid=0)),
        free("c8", "h4", ONE),
        free("c9", "h5", TWO),
    )
    decision = begin_move(turn, cohorts, cohort)
    assert decision is not None
    assert (decision.kind, decision.copy, decision.container) == (DecisionKind.MOVE, 2, "c9")
    assert turn.loads.of("c9") == (0, 2)


def test_a_copy_without_a_container_holds_up_no_other(whole: ClusterView) -> None:
    decision = begin_move(*of_last(whole, without_container(1), drained("h3"), free("c9", "h5", TWO)))
    assert decision is not None
    assert (decision.kind, decision.copy, decision.container) == (DecisionKind.MOVE, 2, "c9")


# ---- tasks that are placed apart ----


MOVING: Mapping[str, tuple[bool, int, tuple[Change, ...]]] = {
    "it is beside the first task's": (False, 0, (parted,)),
    "it is not where the first task's is": (True, 1, (parted,)),
    "it is where no home can be": (True, 1, (crowded,)),
    "all are together, in a container that takes only one": (
        False,
        1,
        (of_holder(1, offer=NodeOffer(tasks=1)),),
    ),
    "the host of a standby is drained": (True, 1, (drained("h2"),)),
    "that of the active is: a standby takes over first": (False, 0, (drained("h1"),)),
    "its container runs an older revision: it is replaced where it is": (False, 1, older(1)),
    "the host of the only copy is drained": (True, 0, (of_processor(copies=(0,)), drained("h1"))),
    "the only copy runs an older revision": (True, 0, (of_processor(copies=(0,)), *older(0))),
    "the only copy runs this revision": (False, 0, (of_processor(copies=(0,)), *older(1))),
}


def test_when_a_copy_is_to_move(whole: ClusterView) -> None:
    for case, (is_so, copy, changes) in MOVING.items():
        turn, cohorts, cohort = of_last(whole, *changes)
        holder = turn.holder(cohort, copy)
        assert holder is not None, case
        assert bool(move_reason(turn, cohorts, cohort, copy, holder)) is is_so, case


HOME: Mapping[str, tuple[bool, Change, set[str]]] = {
    "it is ready": (True, unchanged, set()),
    "its stream broke": (False, of_container("c5", presence=Presence.BROKEN), set()),
    "it is to leave": (False, of_container("c5", is_leaving=True), set()),
    "it is being given tasks": (False, of_container("c5", binding="1-9"), set()),
    "it was given tasks in this turn": (False, unchanged, {"c5"}),
    "another copy moves": (False, of_records(SECOND, moving={2: "c8"}), set()),
    "another copy is displaced": (False, of_records(SECOND, displaced=2), set()),
}


@pytest.mark.parametrize(("is_so", "change", "taken"), HOME.values(), ids=HOME)
def test_when_a_copy_moves_home(whole: ClusterView, is_so: bool, change: Change, taken: set[str]) -> None:
    turn, cohorts, cohort = of_last(whole, parted, change)
    turn.taken |= taken
    decision = begin_move(turn, cohorts, cohort)
    assert (decision and decision.container) == ("c5" if is_so else None)


OF_SECOND: Mapping[str, tuple[tuple[DecisionKind, int] | None, Mapping[int, str], tuple[Change, ...]]] = {
    "a standby gives up its place": ((DecisionKind.DROP, 2), {0: "c4", 1: "c9", 2: "c7"}, ()),
    "the active moves first": ((DecisionKind.MOVE, 0), {0: "c7", 1: "c9", 2: "c6"}, ()),
    "so it does, once it can": (
        None,
        {0: "c7", 1: "c9", 2: "c6"},
        (of_container("c4", presence=Presence.BROKEN),),
    ),
    "and others move meanwhile": (
        (DecisionKind.MOVE, 2),
        {0: "c7", 1: "c9", 2: "c8"},
        (of_container("c4", presence=Presence.BROKEN), free("c8", "h5", TWO)),
    ),
}


def test_what_becomes_of_another_copy_on_the_host_of_the_home(whole: ClusterView) -> None:
    """Copy 1 of the second task is on h4, and the home of its slot on h2."""
    for case, (expected, places, changes) in OF_SECOND.items():
        there = (free("c9", "h4", ONE), free("c7", "h2"), of_records(SECOND, placed=places))
        decision = begin_move(*of_last(whole, *there, *changes))
        assert (decision and (decision.kind, decision.copy)) == expected, case


def test_what_becomes_of_a_copy_that_belongs_in_another_container_of_its_host(whole: ClusterView) -> None:
    """A copy of the second task is in c9, on the host of the home of its slot: both would use one directory."""
    cases: Mapping[str, tuple[tuple[DecisionKind, int], Mapping[int, str], str]] = {
        "a standby is closed first": ((DecisionKind.DROP, 1), {0: "c4", 1: "c9", 2: "c6"}, "h2"),
        "an active waits until a standby takes over, and others move": (
            (DecisionKind.MOVE, 1),
            {0: "c9", 1: "c8", 2: "c6"},
            "h1",
        ),
    }
    for case, (expected, places, host) in cases.items():
        there = (free("c8", "h4"), free("c9", host), of_records(SECOND, placed=places))
        decision = begin_move(*of_last(whole, *there))
        assert decision is not None, case
        assert (decision.kind, decision.copy) == expected, case


@pytest.mark.parametrize(("change", "are_all"), [(crowded, True), (parted, False)])
def test_only_a_copy_without_a_home_avoids_the_copies_of_all_tasks(
    whole: ClusterView, change: Change, are_all: bool
) -> None:
    turn, cohorts, cohort = of_last(whole, change)
    kept = kept_apart(turn, cohorts, cohort, ONE, turn.view.containers["c9"])
    assert kept == (cohorts if are_all else (cohort,))


@pytest.mark.parametrize(("of", "copy", "is_so"), [(1, 1, True), (1, 2, False), (0, 0, False)])
def test_a_relocation_is_of_one_standby(whole: ClusterView, of: int, copy: int, is_so: bool) -> None:
    turn, cohort = seen(whole)
    turn.relocations = {PROCESSOR: Relocation(of, frozenset(), "shares its host")}
    assert bool(relocation_of(turn, cohort, copy)) is is_so


#: The copies that the model asks for, those of the second task, and where copy 1 of the first one is.
RENUMBERED: Mapping[str, tuple[int | None, tuple[int, ...], Mapping[int, str], str, tuple[Change, ...]]] = {
    "it is the only one": (0, (1,), {}, "c4", ()),
    "the other one is lost": (0, (1,), {2: "gone"}, "c4", ()),
    "others that are not wanted stop before it": (2, (1,), {2: "c5", 3: "c6"}, "c4", ()),
    "another can take over": (None, (1,), {1: "c5"}, "c4", (of_container("c9", offer=NodeOffer(tasks=1)),)),
    "another will be able to": (None, (1, 3), {2: "c5"}, "c4", ()),
    "the home is elsewhere": (None, (1,), {}, "c6", ()),
    "the home is cut off": (None, (1,), {}, "c4", (of_container("c4", presence=Presence.BROKEN),)),
    "there is no home": (None, (1,), {}, "gone", ()),
}


def test_when_an_active_without_a_slot_stops_for_its_home_on_the_same_host(whole: ClusterView) -> None:
    for case, (stops, copies, others, home, changes) in RENUMBERED.items():
        decision = begin_move(
            *of_last(
                whole,
                of_processor(copies=copies),
                free("c9", "h1"),
                of_records(FIRST, placed={1: home}, active=1),
                of_records(SECOND, placed={0: "c9", **others}),
                *changes,
            )
        )
        assert (decision and (decision.kind, decision.copy)) == (
            None if stops is None else (DecisionKind.DROP, stops)
        ), case


# ---- mixed jobs ----


def test_an_only_copy_starts_again_on_its_host_if_no_other_has_a_container() -> None:
    view = deployed(tasks=1, containers=1, standbys=0, is_mixed=True, hosts=("h1",)).view
    decision = begin_move(*of_last(view, of_job(revision=2), of_mixed("h1", 1)))
    assert decision is not None
    assert (decision.kind, decision.copy) == (DecisionKind.DROP, 0)
    assert recorded(decision).in_sync == (0,), "no other copy has its state"


def test_when_a_copy_moves_to_a_container_with_fewer() -> None:
    cases: Mapping[str, tuple[tuple[str, ...], bool, bool]] = {
        "no copy lacks a place": ((), False, True),
        "one does": ((), True, False),
        "its host is drained": (("h2",), True, True),
    }
    for case, (hosts, lacks, moves) in cases.items():
        view = deployed(tasks=4, containers=3, is_mixed=True, hosts=("h1", "h2", "h3", "h4")).view
        model = replace(view.jobs["job"].model, containers=4)
        turn, cohorts, cohort = of_last(view, of_job(model=model), of_mixed("h4", 3), drained(*hosts))
        turn.lacking["job"] = lacks
        decision = begin_move(turn, cohorts, cohort)
        assert (decision and decision.container) == ("c9" if moves else None), case


def test_a_copy_leaves_a_full_container_although_the_empty_one_is_on_its_own_host() -> None:
    """That is not where it can be filled. The others have two copies each, and the full one has four."""
    view = deployed(tasks=4, containers=4, is_mixed=True, hosts=("h1", "h2", "h3", "h4")).view
    full, empty, one, other = view.containers
    placings = ((other, full), (full, one), (full, one), (full, other))
    decision = begin_move(
        *of_last(
            view,
            of_container(empty, host=view.containers[full].host),
            *(
                of_records(TaskId("job", "main", task), placed=dict(enumerate(each)), active=0)
                for task, each in enumerate(placings)
            ),
        )
    )
    assert decision is not None
    assert (decision.kind, decision.copy, decision.container) == (DecisionKind.MOVE, 1, one)


@pytest.mark.parametrize(("motive", "is_so"), [(HandoverMotive.ASKED, True), (HandoverMotive.UPGRADE, False)])
def test_only_an_operator_chooses_an_active(whole: ClusterView, motive: HandoverMotive, is_so: bool) -> None:
    turn, cohort = seen(whole)
    decision = hand_over(turn, cohort, 1, turn.view.containers["c5"], Reason(motive))
    assert recorded(decision).is_chosen is is_so


def test_a_hand_over_to_where_a_copy_was_filled_places_it_there(whole: ClusterView) -> None:
    turn, cohort = seen(whole, free("c9", "h4"), of_records(FIRST, SECOND, moving={1: "c9"}))
    record = recorded(hand_over(turn, cohort, 1, turn.view.containers["c9"], Reason(HandoverMotive.ASKED)))
    assert (record.active, record.epoch, record.placed[1]) == (1, 2, "c9")
