"""Changes of the view that several events have in common: unsettled processors, records, losses, failed attempts."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from appmaster.planning.fold.changes import (
    avoid,
    bounded_anew,
    failed_attempt,
    gone,
    lost,
    slot_of,
    unsettle,
    unsettle_all,
    unsettle_around,
    unsettle_job,
    with_inventory,
    with_known_hosts,
    with_records,
)
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.model import SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.reasons import Loss, Reason, Setback, SetbackKind
from appmaster.planning.state.view import (
    ClusterView,
    Failover,
    LostActive,
    Presence,
    Rebalancing,
    Recorded,
)
from standby.shared.exits import ProcessEnd, Ran
from standby.shared.model import InputFailures, Phase, ProcessorId, SlotId, TaskId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    HELD,
    MIXED,
    ONE,
    PROCESSOR,
    SECOND,
    SLOT,
    THIRD,
    TWO,
    Change,
    changed,
    free,
    of_container,
    of_holder,
    of_model,
    of_records,
    of_status,
    of_view,
    placed,
    policy,
    suspected,
    turned,
    unchanged,
    with_another,
)

AT_MS = 9_000
OTHER = ANOTHER.processor
UNKNOWN = ProcessorId("job", "main", 9)


# ---- unsettled processors ----


def test_a_job_with_an_unsettled_processor_is_not_whole(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[Mapping[str, Rebalancing], Rebalancing]] = {
        "its spread was not to be checked": ({}, Rebalancing()),
        "it was whole": ({"job": Rebalancing(700, moves=1)}, Rebalancing(moves=1)),
        "it was not whole": ({"job": Rebalancing(moves=1)}, Rebalancing(moves=1)),
    }
    for case, (before, after) in cases.items():
        view = unsettle(of_view(rebalancing=before)(whole), (UNKNOWN, PROCESSOR))
        assert view.unsettled == {PROCESSOR}, case
        assert view.rebalancing == {"job": after}, case


def test_a_processor_that_is_not_unsettled_by_it_leaves_its_job_whole(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[ProcessorId, Change]] = {
        "it is unsettled already": (PROCESSOR, of_view(unsettled=frozenset({PROCESSOR}))),
        "the model has no such processor": (UNKNOWN, unchanged),
        "there is no such job": (ProcessorId("gone", "main", 0), unchanged),
    }
    for case, (processor, change) in cases.items():
        view = change(whole)
        assert unsettle(view, (processor,)) is view, case


@pytest.mark.parametrize("change", [unsettle_all, lambda view: unsettle_job(view, "job")])
def test_all_processors_of_a_job_can_be_unsettled(whole: ClusterView, change: Change) -> None:
    assert changed(whole, with_another, change).unsettled == {PROCESSOR, OTHER}


def test_what_the_coming_or_going_of_a_container_unsettles(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[str, Change, set[ProcessorId]]] = {
        "those that have a copy there": ("c4", unchanged, {PROCESSOR}),
        "none if it is empty": ("c9", unchanged, set()),
        "all of a mixed job": ("c9", MIXED, {PROCESSOR, OTHER}),
        "none if it is of no known job": ("c8", MIXED, set()),
    }
    for case, (container, change, unsettled) in cases.items():
        view = changed(whole, with_another, free("c8", "h4", None), free("c9", "h4"), change)
        assert unsettle_around(view, view.containers[container]).unsettled == unsettled, case


ASKED = Rebalancing(is_asked=True)
TOLD = Rebalancing(700, 800, 0, 2, is_asked=True)

BOUNDED: Mapping[str, tuple[Mapping[str, Rebalancing], Mapping[str, Rebalancing]]] = {
    "no hand-over was counted": ({"job": ASKED}, {"job": ASKED}),
    "its spread is not to be checked": ({}, {}),
    "some are left to a request": ({"job": replace(TOLD, moves=1)}, {"job": TOLD}),
    "none is left to a request": ({"job": replace(ASKED, moves=2)}, {"job": Rebalancing()}),
    "nobody requested it": ({"job": Rebalancing(moves=1)}, {"job": Rebalancing()}),
    "its job is gone": ({"gone": Rebalancing(moves=1)}, {"gone": Rebalancing(moves=1)}),
}


def test_how_the_count_of_hand_overs_that_spread_actives_starts_again(whole: ClusterView) -> None:
    for case, (before, after) in BOUNDED.items():
        view = of_view(rebalancing=before)(whole)
        bounded = bounded_anew(view, "gone" if "gone" in before else "job")
        assert bounded.rebalancing == after, case
        assert (bounded is view) is (before == after), case


# ---- records ----


def records(view: ClusterView, *tasks: TaskId, **changes: Any) -> list[Recorded]:
    """Return new records of these tasks, as they are with these changes."""
    return [
        Recorded(replace(view.records[task].record, **changes), view.records[task].version + 1)
        for task in tasks
    ]


INDEX: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Mapping[TaskId, int]]]] = {
    "a copy is placed elsewhere": (
        {"placed": {0: "c4", 1: "c9", 2: "c6"}},
        {"c5": {SECOND: 1}, "c9": {FIRST: 1}},
    ),
    "a copy moves": ({"moving": {1: "c9"}}, {"c9": {FIRST: 1}}),
    "two copies change places": (
        {"placed": {0: "c5", 1: "c4", 2: "c6"}},
        {"c4": {FIRST: 1, SECOND: 0}, "c5": {FIRST: 0, SECOND: 1}},
    ),
    "the copies stay where they are": ({"in_sync": (0,)}, {}),
}


def test_the_index_of_the_records_follows_them(whole: ClusterView) -> None:
    for case, (record, index) in INDEX.items():
        written = records(whole, FIRST, **record)
        view = with_records(whole, written)
        assert view.records == {**whole.records, FIRST: written[0]}, case
        assert view.assigned == {**whole.assigned, **index}, case
        assert view.unsettled == {PROCESSOR}, case


def test_a_container_without_copies_is_not_in_the_index(whole: ClusterView) -> None:
    view = with_records(whole, records(whole, FIRST, SECOND, placed={0: "c4", 1: "c5"}))
    assert view.assigned.keys() == {"c4", "c5"}


def test_a_first_record_is_indexed(whole: ClusterView) -> None:
    view = of_view(records={}, assigned={})(whole)
    assert with_records(view, records(whole, FIRST)).assigned == {
        container: {FIRST: copy} for container, copy in (("c4", 0), ("c5", 1), ("c6", 2))
    }


def test_a_record_unsettles_the_processors_with_which_it_shares_a_container_that_changes(
    whole: ClusterView,
) -> None:
    """A task that the model does not have any more unsettles only those."""
    third = Recorded(replace(whole.records[FIRST].record, task=THIRD, placed={0: "c4"}), 0)
    assert with_records(whole, (third,)).unsettled == {PROCESSOR}
    view = with_records(with_another(whole), (third,))
    assert view.unsettled == {PROCESSOR, OTHER}
    settled = of_view(unsettled=frozenset[ProcessorId]())(view)
    assert with_records(settled, (third,)).unsettled == {OTHER}


def test_an_epoch_that_a_container_has_seen_is_ahead_until_a_record_has_it(whole: ClusterView) -> None:
    view = of_view(ahead={FIRST: 7, SECOND: 8, THIRD: 1})(whole)
    assert with_records(view, records(whole, FIRST, SECOND, epoch=7)).ahead == {SECOND: 8, THIRD: 1}


MISSED = LostActive("gone", Loss.SILENT, 500)

STILL_MISSED: Mapping[str, tuple[bool, ProcessorId, Change]] = {
    "each task has an active": (False, PROCESSOR, unchanged),
    "no copy is to be active": (False, PROCESSOR, of_records(SECOND, active=None)),
    "a task has no record yet": (
        False,
        PROCESSOR,
        lambda view: replace(view, records={FIRST: view.records[FIRST]}),
    ),
    "the active of another task is gone": (True, PROCESSOR, placed({0: "gone"}, of=(SECOND,))),
    "that of another task is lost": (True, PROCESSOR, of_holder(0, presence=Presence.SUSPECT)),
    "it is of a processor that was not written": (True, OTHER, unchanged),
}


def test_when_an_active_is_missed_after_records_were_written(whole: ClusterView) -> None:
    for case, (is_so, processor, change) in STILL_MISSED.items():
        view = changed(whole, change, of_view(lost_actives={processor: MISSED}))
        after = with_records(view, records(view, FIRST, in_sync=(0,)))
        assert after.lost_actives == ({processor: MISSED} if is_so else {}), case


INVENTORY: Mapping[str, tuple[Mapping[TaskId, int], Mapping[TaskId, int], int, Change]] = {
    "it is the record's": ({}, {}, 1, unchanged),
    "it is higher than the record's": ({FIRST: 2, SECOND: 2}, {}, 2, unchanged),
    "there is no record": ({FIRST: 1, SECOND: 1}, {}, 1, of_view(records={})),
    "one as high was seen": ({FIRST: 3, SECOND: 2}, {FIRST: 3}, 2, unchanged),
    "a lower one was seen": ({FIRST: 4, SECOND: 4, THIRD: 9}, {FIRST: 3, THIRD: 9}, 4, unchanged),
}


def test_which_epochs_that_a_container_has_seen_are_ahead(whole: ClusterView) -> None:
    for case, (after, before, epoch, change) in INVENTORY.items():
        replicas = [replace(each, epoch=epoch) for each in whole.containers["c4"].statuses.values()]
        view = changed(whole, change, of_view(ahead=before))
        assert with_inventory(view, replicas).ahead == after, case


NOT_HEARD = of_holder(1, host="")

HOSTS: Mapping[str, tuple[str, tuple[Change, ...]]] = {
    "its host is known": ("h2", (of_records(FIRST, SECOND, hosts={1: "h9"}),)),
    "it has a copy": ("h9", (NOT_HEARD, of_records(FIRST, SECOND, hosts={1: "h9"}))),
    "the record names no host": ("", (NOT_HEARD, of_records(FIRST, SECOND, hosts={}))),
    "a copy moves there": ("", (NOT_HEARD, placed({1: "c4"}), of_records(FIRST, SECOND, moving={1: "c5"}))),
    "a standby is displaced and this is another": ("h2", (NOT_HEARD, of_records(FIRST, SECOND, displaced=2))),
    "a standby is displaced and this was the active": (
        "",
        (NOT_HEARD, of_records(FIRST, SECOND, active=1, displaced=2)),
    ),
    "only its second task has a copy there": ("h2", (NOT_HEARD, of_records(FIRST, displaced=2, active=1))),
}


def test_on_which_host_a_container_is_taken_to_be(whole: ClusterView) -> None:
    for case, (host, changes) in HOSTS.items():
        view = turned(whole, *changes).view
        assert with_known_hosts(view, ("gone", "c4", "c5")).containers["c5"].host == host, case


def test_records_tell_the_host_of_a_container_that_was_not_heard(whole: ClusterView) -> None:
    view = changed(whole, NOT_HEARD, of_view(assigned={}, records={}))
    assert with_records(view, records(whole, FIRST)).containers["c5"].host == "h2"


# ---- losses ----

MIXED_SLOT = SharedSlotId("job", 3)

SLOTS: Mapping[str, tuple[Slot | None, str, tuple[Change, ...]]] = {
    "the one it serves": (SlotId(PROCESSOR, 1), "c5", (of_container("c5", slot=SLOT),)),
    "the one it was requested for": (ANOTHER, "c9", (free("c9", "h4", ANOTHER),)),
    "not known": (None, "c9", (free("c9", "h4", None),)),
    "of a mixed job the one it was requested for": (
        MIXED_SLOT,
        "c5",
        (MIXED, of_container("c5", slot=MIXED_SLOT)),
    ),
    "of a mixed job any one": (SharedSlotId("job", 0), "c5", (MIXED, of_container("c5", slot=None))),
}


def test_against_which_slot_a_failure_of_a_container_counts(whole: ClusterView) -> None:
    for case, (slot, container, changes) in SLOTS.items():
        view = changed(whole, *changes)
        assert slot_of(view, view.containers[container]) == slot, case


SILENT = Reason(Loss.SILENT, "no message")


@pytest.mark.parametrize(("container", "has_actives"), [("c4", True), ("c5", False)])
def test_what_the_loss_of_a_container_changes(whole: ClusterView, container: str, has_actives: bool) -> None:
    view = changed(
        whole,
        of_container(container, cell=2),
        of_view(rebalancing={"job": Rebalancing(moves=1)}, logged_lost=frozenset({"c1"})),
    )
    after = lost(view, view.containers[container], SILENT, AT_MS)
    assert after.containers[container] == replace(
        view.containers[container], presence=Presence.SUSPECT, since_ms=AT_MS, loss=SILENT
    )
    assert after.logged_lost == {"c1", container}
    assert after.unsettled == {PROCESSOR}
    assert after.rebalancing == {"job": Rebalancing()}
    missed = LostActive(container, Loss.SILENT, AT_MS, 2)
    assert after.lost_actives == ({PROCESSOR: missed} if has_actives else {})


def test_no_active_of_a_task_that_the_model_does_not_have_is_missed(whole: ClusterView) -> None:
    view = of_model(processors={})(whole)
    assert not lost(view, view.containers["c4"], SILENT, AT_MS).lost_actives


@pytest.mark.parametrize("presence", [Presence.SUSPECT, Presence.LEAVING, Presence.ORPHAN])
def test_a_container_that_holds_no_roles_is_not_lost(whole: ClusterView, presence: Presence) -> None:
    view = of_holder(0, presence=presence)(whole)
    assert lost(view, view.containers["c4"], SILENT, AT_MS) is view


FAULT = -signal.SIGSEGV


def ended(*ran: Ran, status: int = FAULT, oom_kills: int | None = None) -> Change:
    """Have the process of the actives, which have processed up to 10 and are given more, end so."""
    return lambda view: changed(
        view,
        of_status(0, FIRST, input_end=11),
        of_status(0, SECOND, input_end=11),
        of_holder(0, end=ProcessEnd(status, ran, oom_kills=oom_kills)),
    )


#: Ended by the kernel for lack of memory, whatever used it.
KILLED = ended(Ran(FIRST, 7), status=-signal.SIGKILL, oom_kills=1)


def counted(task: TaskId, offset: int, count: int, topic: str = "") -> Change:
    """Have failures of a task be recorded."""
    return of_records(task, failures=InputFailures(offset, count, topic=topic))


CRASHES: Mapping[str, tuple[Mapping[TaskId, tuple[int, int, str]], tuple[Change, ...]]] = {
    "its code ran alone": ({FIRST: (7, 1, "")}, (ended(Ran(FIRST, 7)),)),
    "no code ran": ({}, (ended(),)),
    "something else ended it": ({}, (ended(Ran(FIRST, 7), status=-signal.SIGKILL, oom_kills=0),)),
    "something else may have ended it": ({FIRST: (7, 0, "")}, (KILLED,)),
    "so it may have, but not for the first time": ({FIRST: (7, 1, "")}, (KILLED, counted(FIRST, 7, 0))),
    "the code of two ran": (
        {FIRST: (7, 0, ""), SECOND: (8, 2, "")},
        (ended(Ran(FIRST, 7), Ran(SECOND, 8)), counted(SECOND, 8, 2)),
    ),
    "one that is not active there ran, too": ({FIRST: (7, 0, "")}, (ended(Ran(THIRD, 7), Ran(FIRST, 7)),)),
    "failures there are recorded": ({FIRST: (7, 3, "a")}, (ended(Ran(FIRST, 7)), counted(FIRST, 7, 2, "a"))),
    "failures elsewhere are recorded": (
        {FIRST: (7, 1, "")},
        (ended(Ran(FIRST, 7)), counted(FIRST, 6, 2, "a")),
    ),
    "more were recorded, and another input is reported": (
        {FIRST: (7, 3, "b")},
        (
            ended(Ran(FIRST, 7)),
            counted(FIRST, 7, 2, "a"),
            of_status(0, FIRST, failures=InputFailures(7, 1, topic="b")),
        ),
    ),
    "it is not known where": ({FIRST: (10, 1, "")}, (ended(Ran(FIRST)),)),
    "nor whether there was more": (
        {FIRST: (10, 1, "")},
        (ended(Ran(FIRST)), of_status(0, FIRST, input_end=None)),
    ),
    "nor was there more": (
        {SECOND: (10, 0, "")},
        (ended(Ran(FIRST), Ran(SECOND)), of_status(0, FIRST, input_end=10)),
    ),
    "nor was anything committed": ({}, (ended(Ran(FIRST)), of_status(0, FIRST, input_committed=None))),
    "nor was it active yet": ({}, (ended(Ran(FIRST)), of_status(0, FIRST, phase=Phase.CLAIMING))),
    "nor did it report": ({}, (ended(Ran(FIRST)), of_holder(0, statuses={}))),
    "it did not report": ({FIRST: (7, 1, "")}, (ended(Ran(FIRST, 7)), of_holder(0, statuses={}))),
}


def test_the_end_of_a_process_counts_against_the_active_tasks_whose_code_it_ran(whole: ClusterView) -> None:
    for case, (crashes, changes) in CRASHES.items():
        before = {THIRD: InputFailures(1, 1)}
        view = changed(whole, of_view(crashes=before), *changes)
        container = view.containers["c4"]
        why = f"the process died: {container.end}"
        assert lost(view, container, SILENT, AT_MS).crashes == before | {
            task: InputFailures(offset, count, why, topic, is_apart=True, container="c4")
            for task, (offset, count, topic) in crashes.items()
        }, case


# ---- failed attempts ----

WINDOW_MS = 4_000
LAST = Setback(SetbackKind.REFUSED, "h1")
#: It has no container.
VACANT = SlotId(PROCESSOR, 3)

#: Earlier failures and how many were in a row, the options, and then the failures and how long the next request waits.
WAITS: Mapping[str, tuple[tuple[int, ...], int, Mapping[str, bool], tuple[int, ...], int]] = {
    "the first one": ((), 0, {}, (AT_MS,), 500),
    "a further one": ((8_000,), 2, {}, (8_000, AT_MS), 2_000),
    "the first one is followed at once": ((), 0, {"waits": False}, (AT_MS,), 0),
    "a further one is not": ((), 1, {"waits": False}, (AT_MS,), 1_000),
    "it is no failure of the job": ((8_000,), 0, {"counts": False}, (8_000,), 500),
    "one is long ago": ((AT_MS - WINDOW_MS, AT_MS - 3_999), 0, {}, (AT_MS - 3_999, AT_MS), 500),
}


def test_how_the_next_request_for_a_slot_waits_after_a_failure(whole: ClusterView) -> None:
    for case, (before, in_row, options, failures, wait_ms) in WAITS.items():
        known = {VACANT: Attempts(before, 0, in_row), ANOTHER: Attempts(in_row=5)}
        view = changed(whole, policy(retry_window_ms=WINDOW_MS), of_view(attempts=known))
        after = Attempts(failures, AT_MS + wait_ms, in_row + 1, LAST)
        assert failed_attempt(view, VACANT, AT_MS, LAST, **options).attempts == {**known, VACANT: after}, case


COUNTS: Mapping[str, tuple[bool, Slot, Change]] = {
    "the copy is in its container": (False, SLOT, unchanged),
    "its container is lost": (True, SLOT, of_holder(0, presence=Presence.SUSPECT)),
    "the copy of one task is in no container": (True, SLOT, placed({0: "gone"}, of=(SECOND,))),
    "its tasks have no records": (True, SLOT, of_view(records={})),
    "of a mixed job": (True, MIXED_SLOT, unchanged),
}


def test_a_failure_for_a_slot_that_has_its_container_spends_no_budget(whole: ClusterView) -> None:
    for case, (is_so, slot, change) in COUNTS.items():
        attempts = failed_attempt(change(whole), slot, AT_MS, LAST).attempts[slot]
        of_move = Attempts(last=LAST, move_not_before_ms=AT_MS + 500, moves_in_row=1)
        assert attempts == (Attempts((AT_MS,), AT_MS + 500, 1, LAST) if is_so else of_move), case


def test_a_move_waits_after_those_that_failed_before_it_and_no_lost_copy_does(whole: ClusterView) -> None:
    before = Attempts((8_000,), 9_000, 7, move_not_before_ms=9_500, moves_in_row=2)
    view = of_view(attempts={SLOT: before})(whole)
    after = replace(before, last=LAST, move_not_before_ms=AT_MS + 2_000, moves_in_row=3)
    assert failed_attempt(view, SLOT, AT_MS, LAST).attempts == {SLOT: after}


def test_failed_moves_are_over_when_the_copy_has_moved(whole: ClusterView) -> None:
    known = Attempts((8_000,), 9_000, 7, LAST, move_not_before_ms=9_500, moves_in_row=2)
    view = of_view(attempts={ONE: known, TWO: known})(whole)
    here, there = dict(enumerate(HELD)), {0: "c4", 1: "c9", 2: "c6"}
    cases: Mapping[str, tuple[Mapping[str, Any], bool]] = {
        "it moves": ({"placed": here, "moving": {1: "c9"}}, False),
        "it has moved": ({"placed": there}, True),
    }
    for case, (record, is_over) in cases.items():
        after = with_records(view, records(whole, FIRST, **record)).attempts
        moved = replace(known, move_not_before_ms=0, moves_in_row=0)
        assert after == {ONE: moved if is_over else known, TWO: known}, case


def test_a_host_is_avoided_for_a_while(whole: ClusterView) -> None:
    view = changed(whole, policy(avoid_host_ms=700), of_view(avoided={"h9": (1, "x")}))
    after = avoid(view, "h1", AT_MS, SLOT, "it fell silent")
    assert after.avoided == {"h9": (1, "x"), "h1": (AT_MS + 700, "it fell silent")}


def test_a_failure_of_a_slot_of_a_job_that_is_gone_changes_nothing(whole: ClusterView) -> None:
    slot = SharedSlotId("gone", 0)
    assert failed_attempt(whole, slot, AT_MS, LAST) is whole
    assert avoid(whole, "h1", AT_MS, slot, "it fell silent") is whole


# ---- the end of a container ----

SPARE = SpareSlotId("job", 0)
LOST = Setback(SetbackKind.LOST, "h2", detail="lost")


def once(last: Setback, *failures: int) -> Attempts:
    return Attempts(failures, AT_MS, 1, last)


#: The container, and the failed attempts afterwards.
GONE: Mapping[str, tuple[str, Mapping[Slot, Attempts], tuple[Change, ...]]] = {
    "it served": ("c5", {ONE: once(LOST)}, ()),
    "it was lost": ("c5", {ONE: once(replace(LOST, detail="silent"))}, (suspected(1),)),
    "its own code failed": ("c5", {ONE: once(LOST, AT_MS)}, (of_container("c5", has_ended=True),)),
    "it was told to exit": ("c5", {}, (of_container("c5", presence=Presence.LEAVING),)),
    "no leader had requested it": ("c5", {}, (of_container("c5", presence=Presence.ORPHAN),)),
    "it was empty": ("c9", {}, (free("c9", "h4"),)),
    "it was a spare one": ("c9", {SPARE: once(replace(LOST, host="h4"))}, (free("c9", "h4", SPARE),)),
    "nothing is known of its job": ("c5", {}, (of_view(assigned={"c5": {}}), of_container("c5", slot=None))),
    "its tasks are in no model": ("c5", {}, (of_model(processors={}), of_container("c5", slot=None))),
}


def test_when_the_end_of_a_container_is_a_failure_of_its_slot(whole: ClusterView) -> None:
    for case, (container, attempts, changes) in GONE.items():
        after = gone(changed(whole, *changes), container, AT_MS)
        assert container not in after.containers, case
        assert after.attempts == attempts, case


def test_what_the_end_of_an_empty_container_unsettles(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[tuple[Change, ...], set[ProcessorId], Mapping[str, int]]] = {
        "it was empty": ((free("c9", "h4"),), set(), {"job": AT_MS}),
        "it was being given tasks": (
            (free("c9", "h4"), of_container("c9", binding="1-9")),
            {PROCESSOR, OTHER},
            {"job": AT_MS},
        ),
        "of no known job": ((free("c9", "h4", None),), set(), {}),
    }
    for case, (changes, unsettled, arrived) in cases.items():
        after = gone(changed(whole, with_another, of_view(arrived_ms={}), *changes), "c9", AT_MS)
        assert after.unsettled == unsettled, case
        assert after.arrived_ms == arrived, case


def test_the_end_of_a_container_unsettles_what_has_a_copy_there(whole: ClusterView) -> None:
    assert gone(with_another(whole), "c5", AT_MS).unsettled == {PROCESSOR}


def test_a_failover_ends_with_its_container_only_if_its_processor_has_left_the_model(
    whole: ClusterView,
) -> None:
    begun = {
        processor: Failover(processor, "gone", Loss.SILENT, 1, to, 500)
        for processor, to in ((UNKNOWN, "c5"), (PROCESSOR, "c5"), (ProcessorId("job", "main", 8), "c6"))
    }
    after = gone(of_view(failovers=begun)(whole), "c5", AT_MS)
    assert after.failovers == {processor: each for processor, each in begun.items() if processor != UNKNOWN}
