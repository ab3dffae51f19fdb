"""The single steps of a failover: what each of them waits for, and what it records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.placement.turn import Cohort, Turn
from appmaster.planning.rules.failover import (
    displace,
    has_stopped,
    is_lost,
    is_stuck,
    missed,
    poison,
    promote,
    promote_another,
    reservation,
    restore_displaced,
    start_reserved,
)
from appmaster.planning.rules.moving import end_move
from appmaster.planning.state.actions import DecisionKind, MissActive, WriteRecords
from appmaster.planning.state.reasons import Loss, NoStandbyReason
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    EndingContainer,
    LostActive,
    Presence,
    ReplicaProgress,
    RequestState,
)
from standby.shared.model import InputFailures, Phase, ReplicaId
from tests.fakes.yarn import deployed
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    HELD,
    ONE,
    PROCESSOR,
    RESTART,
    SECOND,
    SLOT,
    UNSETTLED,
    WAITED_MS,
    Change,
    drained,
    free,
    of_holder,
    of_job,
    of_processor,
    of_records,
    of_status,
    of_view,
    placed,
    policy,
    recorded,
    requested,
    seen,
    turned,
    unchanged,
    without_container,
)

# ---- actives that were lost without this leader ----

NOWHERE: Final = placed({}, without=0)
IS_LOST: Final = without_container(0)

MISSED: Mapping[str, tuple[str | None, tuple[Change, ...]]] = {
    "it lives": (None, ()),
    "its container is gone": (HELD[0], (IS_LOST,)),
    "it is known as lost": (
        None,
        (IS_LOST, of_view(lost_actives={PROCESSOR: LostActive("c4", Loss.SILENT, 0)})),
    ),
    "no copy is to be active": (None, (IS_LOST, of_records(FIRST, SECOND, active=None))),
    "its job ends": (None, (IS_LOST, of_job(is_wanted=False))),
    "it is in no container, and others live": ("", (NOWHERE,)),
    "it is in no container, nor is another": (None, (NOWHERE, of_view(containers={}))),
    "nor is another, but one was displaced for it": (
        "",
        (NOWHERE, of_view(containers={}), of_records(FIRST, SECOND, displaced=1)),
    ),
}


def test_when_an_active_is_missed_whose_loss_this_leader_did_not_see(whole: ClusterView) -> None:
    """An only copy that is in no container was stopped, and is about to be started again."""
    for case, (container, changes) in MISSED.items():
        turn = turned(whole, UNSETTLED, *changes)
        expected = [
            MissActive(PROCESSOR, LostActive(each, Loss.GONE_BEFORE_TAKEOVER, turn.view.now_ms))
            for each in [container]
            if each is not None
        ]
        assert list(missed(turn)) == expected, case


def test_each_processor_whose_active_is_gone_is_missed_once() -> None:
    """One that is known as lost, or a part of it that is not lost, ends the search for no other."""
    view = deployed(tasks=8, containers=4, hosts=("h1", "h2", "h3", "h4")).view
    job = view.jobs["job"]
    known, half, whole, held = job.model.processors
    records = dict(view.records)
    gone = {known: ("c91", "c91"), half: ("", "c92"), whole: ("c93", "c94")}
    for processor, containers in gone.items():
        for task, container in zip(job.model.processors[processor].tasks, containers, strict=True):
            record = records[task].record
            placed = {**record.placed, 0: container or record.placed[0]}
            records[task] = replace(records[task], record=replace(record, placed=placed))
    view = replace(
        view,
        records=records,
        unsettled=frozenset((known, half, whole, held)),
        lost_actives={known: LostActive("c91", Loss.SILENT, 0)},
    )
    assert list(missed(Turn(view))) == [
        MissActive(each, LostActive(container, Loss.GONE_BEFORE_TAKEOVER, view.now_ms))
        for each, container in ((half, "c92"), (whole, "c93"))
    ]


# ---- promotion ----


def test_tasks_are_poison_once_one_of_them_has_failed_too_often_at_one_offset(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[int | None, int | None, bool, bool]] = {
        "it may be tried again": (2, None, True, False),
        "it failed as often as it may": (3, None, True, True),
        "or more often": (4, None, True, True),
        "its process ended as often": (None, 3, True, True),
        "what is not recorded yet is newer": (3, 1, True, False),
        "the job does not fail on errors": (4, None, False, False),
    }
    for case, (counted, crashed, fails_on_error, is_poison) in cases.items():
        turn, cohort = seen(
            whole,
            policy(error_attempts=3, fails_on_error=fails_on_error),
            of_records(SECOND, failures=InputFailures(7, counted) if counted else None),
            of_view(crashes={SECOND: InputFailures(9, crashed)} if crashed else {}),
        )
        assert bool(poison(cohort, turn)) is is_poison, case


def test_when_a_lost_active_is_to_be_replaced(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
        "it lives": (False, ()),
        "it is gone": (True, (IS_LOST,)),
        "there is none": (False, (IS_LOST, of_records(FIRST, SECOND, active=None))),
        "it would fail again": (False, (IS_LOST, of_records(SECOND, failures=InputFailures(7, 3)))),
    }
    for case, (is_so, changes) in cases.items():
        assert is_lost(*seen(whole, *changes)) is is_so, case


def test_a_promotion_tells_whether_the_copy_was_in_sync(whole: ClusterView) -> None:
    behind = "copy 1 is not in sync, but the least behind of those that live"
    cases: Mapping[str, tuple[tuple[int, ...], NoStandbyReason | None]] = {
        "copy 1 is in sync": ((0, 1, 2), None),
        behind: ((0,), NoStandbyReason.RESTORING),
    }
    for why, (in_sync, without) in cases.items():
        promotion = promote(*seen(whole, of_records(FIRST, SECOND, in_sync=in_sync)))
        assert promotion is not None, why
        assert promotion.reason.detail == f"copy 0 is lost; {why}"
        assert (promotion.facts.without and promotion.facts.without.kind) is without, why


def test_a_copy_that_is_promoted_while_it_moves_is_placed_where_it_moves_under_one_new_epoch(
    whole: ClusterView,
) -> None:
    """It is placed and made active by one decision, and each change of active raises the epoch once."""
    turn, cohort = seen(
        whole,
        free("c9", "h4"),
        of_records(FIRST, SECOND, moving={1: "c9"}),
        lambda view: replace(view, containers={"c9": view.containers["c9"]}),
    )
    record = recorded(promote(turn, cohort))
    assert (record.active, record.epoch, record.placed[1], record.hosts[1]) == (1, 2, "c9", "h4")
    assert not record.moving


@pytest.mark.parametrize("decide", [promote, promote_another])
def test_no_copy_is_promoted_if_none_lives_or_a_standby_is_displaced(
    whole: ClusterView, decide: Callable[[Turn, Cohort], WriteRecords | None]
) -> None:
    soon = policy(progress_timeout_ms=WAITED_MS - 1)
    assert decide(*seen(whole, soon, of_view(containers={}))) is None
    assert decide(*seen(whole, soon, of_records(FIRST, SECOND, displaced=1))) is None


@pytest.mark.parametrize("decide", [promote, promote_another])
def test_a_copy_with_withdrawn_code_is_not_promoted(
    whole: ClusterView, decide: Callable[[Turn, Cohort], WriteRecords | None]
) -> None:
    """It runs revision 2 of 3, which was never active."""
    revisions = (of_holder(each, revisions={"job": 2 if each == 1 else 3}) for each in range(3))
    withdrawn = (of_job(revision=3), *revisions, policy(progress_timeout_ms=WAITED_MS - 1))
    assert recorded(decide(*seen(whole, *withdrawn))).active == 2


@pytest.mark.parametrize("decide", [promote, promote_another])
def test_a_promoted_copy_counts_as_active_and_as_no_other_copy(
    whole: ClusterView, decide: Callable[[Turn, Cohort], WriteRecords | None]
) -> None:
    """Or the failovers of one turn would all choose the container that had the fewest actives before them."""
    turn, cohort = seen(whole, policy(progress_timeout_ms=WAITED_MS - 1))
    promoted = recorded(decide(turn, cohort))
    assert turn.loads.of(promoted.placed[1]) == (2, 2)


def stands(
    for_ms: int, *, epoch: int = 1, can_take_over: bool = False, has_lost_state: bool = False
) -> Change:
    """Have the active of the second task stand still for so long, as its container has reported."""

    def change(view: ClusterView) -> ClusterView:
        progress = ReplicaProgress(can_take_over, epoch, (), view.now_ms - for_ms, has_lost_state)
        return of_holder(0, standing={ReplicaId(SECOND, 0): progress})(view)

    return change


STUCK = stands(WAITED_MS + 1)

STANDING: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "longer than it may": (True, (STUCK,)),
    "as long as it may": (False, (stands(WAITED_MS),)),
    "under another epoch": (False, (stands(WAITED_MS + 1, epoch=0),)),
    "under its own epoch, which is not that of the first task": (
        True,
        (of_records(SECOND, epoch=5), stands(WAITED_MS + 1, epoch=5)),
    ),
    "in step": (False, (stands(WAITED_MS + 1, can_take_over=True),)),
    "for a moment, without its state": (True, (stands(0, has_lost_state=True),)),
    "without its state, under another epoch": (False, (stands(0, epoch=0, has_lost_state=True),)),
    "in a suspected container": (False, (STUCK, of_holder(0, presence=Presence.SUSPECT))),
    "in a container that is gone": (False, (STUCK, placed({0: "gone"}))),
    "no copy is active": (False, (STUCK, of_records(FIRST, SECOND, active=None))),
}


def test_an_active_is_stuck_if_a_task_of_it_stands_still(whole: ClusterView) -> None:
    for case, (is_so, changes) in STANDING.items():
        assert is_stuck(*seen(whole, policy(progress_timeout_ms=WAITED_MS), *changes)) is is_so, case


@pytest.mark.parametrize(("timeout_ms", "is_due"), [(WAITED_MS, False), (WAITED_MS - 1, True)])
def test_a_copy_replaces_a_stuck_active_once_it_could_take_over_for_longer_than_the_timeout(
    whole: ClusterView, timeout_ms: int, is_due: bool
) -> None:
    decision = promote_another(*seen(whole, policy(progress_timeout_ms=timeout_ms)))
    assert (decision is not None and decision.facts.in_sync is True) is is_due


@pytest.mark.parametrize(
    ("is_due", "changes"),
    [
        (True, ()),
        (False, (of_records(SECOND, in_sync=(0,)),)),
        (False, tuple(of_status(each, SECOND, phase=Phase.RESTORING) for each in (1, 2))),
    ],
    ids=["in sync", "not in sync", "not in step"],
)
def test_a_copy_in_sync_replaces_an_active_that_has_lost_its_state_at_once(
    whole: ClusterView, is_due: bool, changes: tuple[Change, ...]
) -> None:
    """However long it has been in step."""
    wiped = stands(0, has_lost_state=True)
    decision = promote_another(*seen(whole, policy(progress_timeout_ms=WAITED_MS), wiped, *changes))
    assert (decision is not None) is is_due
    if decision is not None:
        assert decision.reason.detail == "copy 0 has lost its state and restores it; copy 1 is in sync"


# ---- policy restart ----


def no_displacing(for_ms: int) -> Change:
    """A standby was displaced in vain; no other is displaced for a while."""
    return lambda view: replace(view, no_displacing={PROCESSOR: view.now_ms + for_ms})


def lost(view: ClusterView) -> ClusterView:
    """The active was lost as long ago as its own host may take."""
    missed = LostActive(view.records[FIRST].record.placed[0], Loss.SILENT, view.now_ms - WAITED_MS)
    return policy(restarts=True, samehost_timeout_ms=WAITED_MS)(
        replace(view, lost_actives={PROCESSOR: missed})
    )


DISPLACED: Final = of_records(FIRST, SECOND, displaced=1, hosts={0: "h2", 2: "h3"})

DISPLACING: Mapping[str, tuple[bool, Change]] = {
    "its own host was not available in time": (True, unchanged),
    "a standby was displaced in vain a while ago": (True, no_displacing(0)),
    "a standby was displaced in vain just now": (False, no_displacing(1)),
    "its own host is granted": (False, requested(SLOT, "h1", RequestState.GRANTED)),
    "its own host is not granted": (True, requested(SLOT, "h1", RequestState.WAITING)),
    "a host is granted to another": (True, requested(ANOTHER, "h1", RequestState.GRANTED)),
    "a container has come for it": (False, free("c9", "h1")),
    "a container has come for another": (True, free("c9", "h1", ANOTHER)),
    "its host would not be requested: the code is gone": (False, of_job(quarantined="its code is gone")),
    "another one is displaced": (False, of_records(FIRST, SECOND, displaced=2)),
}


@pytest.mark.parametrize(("is_due", "change"), DISPLACING.values(), ids=DISPLACING)
def test_when_a_standby_is_displaced(whole: ClusterView, is_due: bool, change: Change) -> None:
    assert bool(displace(*seen(whole, lost, change))) is is_due


def test_the_active_gets_the_host_of_the_displaced_standby_and_no_other_copy_loses_its_own(
    whole: ClusterView,
) -> None:
    record = recorded(displace(*seen(whole, lost)))
    assert (record.displaced, record.hosts) == (1, {0: "h2", 2: "h3"})


ALONE: Final = (IS_LOST, without_container(2))

HELD_UP: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "no other can be displaced": (True, ALONE),
    "another is displaced": (False, (IS_LOST,)),
    "it is lost where it was": (False, (*ALONE, without_container(1))),
    "nothing can be reserved where it was": (False, (*ALONE, drained("h2"))),
    "it is not time for that": (False, (*ALONE, no_displacing(1))),
    "the active lives": (False, (without_container(2),)),
    "it takes over where it is": (False, (*ALONE, policy(samehost_timeout_ms=WAITED_MS))),
}


def test_the_move_of_a_standby_that_is_to_be_displaced_is_given_up(whole: ClusterView) -> None:
    """Its tasks would not be processed until it is restored where it moves to, which may take hours."""
    moving = (lost, free("c9", "h4", ONE), of_records(FIRST, SECOND, moving={1: "c9"}))
    for case, (is_so, changes) in HELD_UP.items():
        given_up = end_move(*seen(whole, *moving, *changes))
        assert (given_up and given_up.kind) == (DecisionKind.STAY if is_so else None), case
    assert displace(*seen(whole, *moving, *ALONE)) is None
    stays = of_records(FIRST, SECOND, moving=recorded(end_move(*seen(whole, *moving, *ALONE))).moving)
    assert recorded(displace(*seen(whole, *moving, *ALONE, stays))).displaced == 1


def test_a_start_on_a_reserved_host_tells_whether_the_displaced_standby_was_in_sync(
    whole: ClusterView,
) -> None:
    cases: Mapping[str, tuple[tuple[int, ...], NoStandbyReason | None]] = {
        "in sync": ((0, 1, 2), None),
        "behind": ((0, 2), NoStandbyReason.RESTORING),
    }
    for case, (in_sync, without) in cases.items():
        behind = of_records(FIRST, SECOND, in_sync=in_sync)
        start = start_reserved(*seen(whole, lost, DISPLACED, behind, placed({1: "gone"}), free("c9", "h2")))
        assert start is not None, case
        assert recorded(start).epoch == 2, case
        assert (start.facts.without and start.facts.without.kind) is without, case


def test_a_displaced_standby_is_restored_on_its_host_and_that_of_the_active_is_known_if_it_is_back(
    whole: ClusterView,
) -> None:
    cases: Mapping[str, tuple[Mapping[int, str], tuple[Change, ...]]] = {
        "it has come back": ({0: "h1", 1: "h2", 2: "h3"}, ()),
        "it could not start there": ({1: "h2", 2: "h3"}, (placed({0: "gone"}), no_displacing(1))),
        "no host is requested for it: it has no slot": (
            {1: "h2", 2: "h3"},
            (placed({0: "gone"}), of_processor(copies=(1, 2))),
        ),
    }
    for case, (hosts, changes) in cases.items():
        record = recorded(restore_displaced(*seen(whole, lost, DISPLACED, *changes)))
        assert (record.displaced, record.hosts) == (None, hosts), case


def test_a_displaced_standby_is_neither_replaced_nor_restored_before_it_is_time(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[Callable[[Turn, Cohort], WriteRecords | None], Change]] = {
        "the standby has not stopped": (start_reserved, free("c9", "h2")),
        "its host is not reserved": (start_reserved, without_container(1)),
        "its host may still be reserved": (restore_displaced, no_displacing(0)),
    }
    for case, (decide, change) in cases.items():
        assert decide(*seen(whole, lost, DISPLACED, placed({0: "gone"}), change)) is None, case


@pytest.mark.parametrize("decide", [start_reserved, restore_displaced])
def test_nothing_is_started_or_restored_while_no_standby_is_displaced(
    whole: ClusterView, decide: Callable[[Turn, Cohort], WriteRecords | None]
) -> None:
    assert decide(*seen(whole, RESTART, free("c9", "h1"))) is None


def test_an_empty_container_reserves_its_host(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[list[Change], str | None]] = {
        "on the host": ([free("c8", "h4")], "c8"),
        "on another host": ([free("c8", "h1")], None),
        "of a lost cell": ([free("c8", "h4", cell=2)], None),
        "requested for it, before all": ([free("c8", "h4", ANOTHER), free("c9", "h4")], "c9"),
        "by name": ([free("c9", "h4"), free("c8", "h4")], "c8"),
    }
    for case, (containers, chosen) in cases.items():
        gone = Cell(2, "", (), CellState.LOST, 0)
        turn, cohort = seen(whole, *containers, of_view(cells={2: gone}))
        found = reservation(turn, cohort.job, SLOT, "h4")
        assert (found and found.id) == chosen, case


@pytest.mark.parametrize("ending", [{}, {"gone": EndingContainer(9, 0, 1_000_000)}], ids=["dead", "ending"])
def test_a_standby_whose_container_was_given_back_has_stopped_once_that_is_dead(
    whole: ClusterView, ending: dict[str, EndingContainer]
) -> None:
    turn, cohort = seen(whole, placed({1: "gone"}), of_view(ending=ending))
    assert has_stopped(turn, cohort, 1) is not bool(ending)
