"""Which slots need a container, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from appmaster.planning.placement.fault_domains import Relocation
from appmaster.planning.requests.needs import Need, counted_containers, needs
from appmaster.planning.state.model import SharedSlotId, Slot
from appmaster.planning.state.reasons import Loss
from appmaster.planning.state.view import ClusterView, LostActive, Presence, RequestState
from locality.hosts import HostInfo
from locality.question import Sibling
from standby.shared.model import InputFailures, ProcessorId, SlotId
from tests.unit.appmaster.planning.views import (
    FIRST,
    ON,
    ONE,
    PARKED,
    PROCESSOR,
    PROCESSORS,
    RESTART,
    SECOND,
    SLOT,
    TASKS,
    UNSETTLED,
    Change,
    asked_for,
    changed,
    crowded,
    drained,
    free,
    gone,
    of_container,
    of_holder,
    of_job,
    of_model,
    of_processor,
    of_records,
    of_view,
    parted,
    placed,
    policy,
    requested,
    turned,
    unchanged,
    without_container,
)


def needed(view: ClusterView, *changes: Change) -> dict[Slot, Need]:
    """Return the needs after the changes; the processor is looked at."""
    return needs(turned(view, UNSETTLED, *changes))


def copies(view: ClusterView, *changes: Change) -> list[int]:
    """Return the copies that need a container."""
    return [each.copy for each in needed(view, *changes) if isinstance(each, SlotId)]


LOST_1: Final = without_container(1)
POISON: Final = of_records(SECOND, failures=InputFailures(7, 3))
MISSED: Final = of_view(lost_actives={PROCESSOR: LostActive("c4", Loss.SILENT, 0)})
APART: Final = of_records(SECOND, placed={0: "c4", 2: "c6"})

LACKING: Mapping[str, tuple[list[int], tuple[Change, ...]]] = {
    "none": ([], ()),
    "one is lost": ([1], (LOST_1,)),
    "it was never placed": ([1], (placed({}, without=1),)),
    "it may come back": ([], (of_holder(1, presence=Presence.SUSPECT),)),
    "its job is over soon": ([], (LOST_1, of_job(is_wanted=False))),
    "its code is not there": ([], (LOST_1, of_job(quarantined="gone"))),
    "its processor is parked": ([], (LOST_1, PARKED)),
    "its processor is settled": ([], (LOST_1, of_view(unsettled=frozenset()))),
    "a record is being written": ([], (LOST_1, of_view(writing={SECOND: "1-9"}))),
    "the model has no such copy": ([], (LOST_1, of_processor(copies=(0, 2)))),
    "all are lost": ([0, 1, 2], (without_container(0), LOST_1, without_container(2))),
    # ---- poison ----
    "an active that would fail again": ([], (POISON, without_container(0))),
    "a standby of tasks that fail": ([1], (POISON, LOST_1)),
    "a standby that would become active": (
        [],
        (POISON, without_container(0), LOST_1, without_container(2)),
    ),
    # ---- tasks that are placed apart ----
    "one task has it where the others are to come": ([], (APART,)),
    "one task has none, nor has another": ([1], (APART, LOST_1)),
    # ---- moves ----
    "its host is drained": ([1], (drained("h2"),)),
    "it is being filled elsewhere": (
        [],
        (drained("h2"), free("c9", "h4"), of_records(FIRST, SECOND, moving={1: "c9"})),
    ),
    "it is to go where the others are": ([], (parted,)),
    "it is to go home, and its home to go elsewhere": ([1], (parted, drained("h2", "h4"))),
    "it has no host of its own": ([1], (crowded, of_processor(copies=(0, 1)))),
    # ---- displaced standbys ----
    "a standby is displaced for the active": ([0], (of_records(FIRST, SECOND, displaced=1),)),
    "though the active may come back": (
        [0],
        (of_records(FIRST, SECOND, displaced=1), of_holder(0, presence=Presence.SUSPECT)),
    ),
}


@pytest.mark.parametrize(("found", "changes"), LACKING.values(), ids=LACKING)
def test_which_copies_need_a_container(
    whole: ClusterView, found: list[int], changes: tuple[Change, ...]
) -> None:
    assert copies(whole, *changes) == found


def test_a_processor_for_which_something_was_decided_waits(whole: ClusterView) -> None:
    turn = turned(whole, UNSETTLED, LOST_1)
    turn.touched.add(PROCESSOR)
    assert needs(turn) == {}


def test_actives_come_first_and_one_processor_hides_no_other(three: ClusterView) -> None:
    turn = turned(
        three,
        *(gone(ON["h3"], ON["h4"], ON["h6"]), of_view(unsettled=frozenset(PROCESSORS))),
        of_records(*TASKS[2], active=0),
    )
    assert [(each.slot, each.is_active) for each in needs(turn).values()] == [
        (SlotId(PROCESSORS[2], 0), True),
        (SlotId(PROCESSORS[0], 1), False),
        (SlotId(PROCESSORS[2], 1), False),
    ]


@pytest.mark.parametrize("change", [PARKED, of_view(writing={TASKS[0][0]: "1-9"})])
def test_a_processor_that_has_to_wait_hides_no_other(three: ClusterView, change: Change) -> None:
    lost = (gone(ON["h4"], ON["h5"]), of_view(unsettled=frozenset(PROCESSORS)))
    assert [*needs(turned(three, *lost, change))] == [SlotId(PROCESSORS[1], 1)]


def test_a_mixed_job_hides_no_other(whole: ClusterView) -> None:
    job = whole.jobs["job"]
    (processor,) = job.model.processors.values()
    of_first = ProcessorId("first", "main", 0)
    model = replace(job.model, is_mixed=True, processors={of_first: processor})
    jobs = {"first": replace(job, name="first", model=model), "job": job}
    both = of_view(jobs=jobs, unsettled=frozenset({of_first, PROCESSOR}))
    assert copies(whole, both, LOST_1) == [1]


# ---- what is asked of the container ----


def one(view: ClusterView, slot: SlotId, *changes: Change) -> Need:
    return needed(view, *changes)[slot]


@pytest.mark.parametrize(
    ("slot", "is_active", "changes"),
    [
        pytest.param(SLOT, True, (without_container(0),), id="that of the active"),
        pytest.param(ONE, False, (LOST_1,), id="that of a standby"),
        pytest.param(
            ONE,
            True,
            (LOST_1, without_container(0), of_records(FIRST, SECOND, active=1)),
            id="another active's",
        ),
        pytest.param(
            SLOT, True, (without_container(0), of_records(FIRST, SECOND, active=None)), id="the first one"
        ),
        pytest.param(ONE, False, (LOST_1, of_records(FIRST, SECOND, active=None)), id="not the first one"),
        pytest.param(ONE, False, (drained("h2"),), id="one that moves"),
    ],
)
def test_which_need_is_an_actives(
    whole: ClusterView, slot: SlotId, is_active: bool, changes: tuple[Change, ...]
) -> None:
    assert one(whole, slot, *changes).is_active is is_active


@pytest.mark.parametrize("change", [LOST_1, drained("h2")], ids=["it is lost", "it moves"])
def test_a_standby_may_have_any_host(whole: ClusterView, change: Change) -> None:
    found = one(whole, ONE, change)
    assert (found.only_host, found.is_reservation, found.is_met) == (False, False, False)


RESTARTED: Final = (RESTART, MISSED, without_container(0))


@pytest.mark.parametrize(
    ("is_so", "slot", "changes"),
    [
        pytest.param(True, SLOT, RESTARTED, id="the active is missed"),
        pytest.param(False, ONE, (*RESTARTED, LOST_1), id="not for a standby"),
        pytest.param(False, SLOT, (*RESTARTED, of_view(lost_actives={})), id="it is not missed"),
        pytest.param(False, SLOT, (*RESTARTED, policy(restarts=False)), id="a standby takes over"),
        pytest.param(False, SLOT, (*RESTARTED, LOST_1, without_container(2)), id="no other copy lives"),
        pytest.param(
            False, SLOT, (*RESTARTED, of_view(now_ms=9, no_displacing={PROCESSOR: 10})), id="in vain, lately"
        ),
        pytest.param(
            True, SLOT, (*RESTARTED, of_view(now_ms=9, no_displacing={PROCESSOR: 9})), id="in vain, once"
        ),
    ],
)
def test_when_only_its_own_host_will_do(
    whole: ClusterView, is_so: bool, slot: SlotId, changes: tuple[Change, ...]
) -> None:
    assert one(whole, slot, *changes).only_host is is_so


@pytest.mark.parametrize(
    ("host", "change"),
    [
        pytest.param("h2", LOST_1, id="its last one"),
        pytest.param(None, lambda view: changed(view, LOST_1, policy(host_affinity=False)), id="any"),
        pytest.param(None, drained("h2"), id="not the one that it leaves"),
    ],
)
def test_which_host_is_preferred(whole: ClusterView, host: str | None, change: Change) -> None:
    assert one(whole, ONE, change).preferred == host


@pytest.mark.parametrize(
    ("is_met", "change"),
    [(False, unchanged), (False, free("c9", "h4")), (True, free("c9", "h2"))],
)
def test_the_host_of_a_displaced_standby_is_reserved(
    whole: ClusterView, is_met: bool, change: Change
) -> None:
    displaced = of_records(FIRST, SECOND, displaced=1, hosts={0: "h2", 1: "h2", 2: "h3"})
    job = changed(whole, RESTART).jobs["job"]
    reserved = Need(SLOT, job, is_active=True, is_reservation=True, is_met=is_met, preferred="h2")
    assert one(whole, SLOT, RESTART, displaced, without_container(0), change) == reserved


def beside(view: ClusterView, slot: SlotId, *changes: Change) -> set[str]:
    return {each.host.name for each in one(view, slot, *changes).siblings}


@pytest.mark.parametrize(
    ("hosts", "changes"),
    [
        pytest.param({"h1", "h3"}, (LOST_1,), id="of one that is lost"),
        pytest.param({"h1", "h2", "h3"}, (drained("h2"),), id="of one that moves: its own as well"),
        pytest.param({"h1", "h3"}, (drained("h2", "h4"),), id="not if there is no other"),
        pytest.param(
            {"h1", "h3"},
            (
                free("c9", "h1", ONE),
                of_records(FIRST, placed={1: "c9"}),
                of_records(SECOND, placed={0: "c4", 2: "c6"}),
            ),
            id="of one without a host of its own: those of all tasks",
        ),
    ],
)
def test_which_hosts_it_cannot_have(whole: ClusterView, hosts: set[str], changes: tuple[Change, ...]) -> None:
    assert beside(whole, ONE, *changes) == hosts


def test_a_copy_that_could_stay_goes_only_where_its_move_is_of_use(whole: ClusterView) -> None:
    turn = turned(whole, UNSETTLED)
    locations = frozenset({("h2", 2)})
    turn.relocations = {PROCESSOR: Relocation(1, locations, "shares its rack")}
    found = needs(turn)[ONE]
    assert found.locations == locations
    assert {each.host.name for each in found.siblings} == {"h1", "h3"}, (
        "its own host, in another cell, may do"
    )
    assert one(whole, ONE, drained("h2")).locations is None


def test_where_its_state_is_known_to_be_counts(whole: ClusterView) -> None:
    assert {*one(whole, ONE, LOST_1).histories} == {FIRST, SECOND}


# ---- mixed jobs ----


def of_c9(**changes: object) -> Change:
    """Add a container of the mixed job, on h3."""
    return lambda view: of_container("c9", **changes)(free("c9", "h3", SharedSlotId("job", 2))(view))


@pytest.mark.parametrize(
    ("counts", "changes"),
    [
        pytest.param(True, (of_c9(),), id="an empty one"),
        pytest.param(False, (of_c9(presence=Presence.LEAVING),), id="told to exit"),
        pytest.param(False, (of_c9(presence=Presence.ORPHAN),), id="it is not one of ours"),
        pytest.param(True, (of_c9(presence=Presence.SUSPECT),), id="it may come back"),
        pytest.param(False, (of_c9(), drained("h3")), id="its host is drained"),
        pytest.param(
            True, (of_c9(presence=Presence.BROKEN), drained("h3")), id="it is cut off, on a drained host"
        ),
        pytest.param(False, (of_c9(revisions={"job": 0}),), id="empty, of another revision"),
        pytest.param(
            True,
            (of_c9(revisions={"job": 0}), of_records(FIRST, placed={0: "c3", 1: "c9"})),
            id="of another revision, it serves",
        ),
        pytest.param(
            True, (of_c9(revisions={"job": 0}, presence=Presence.BROKEN),), id="of another revision, cut off"
        ),
    ],
)
def test_which_containers_count_for_a_mixed_job(
    mixed_pair: ClusterView, counts: bool, changes: tuple[Change, ...]
) -> None:
    turn = turned(mixed_pair, *changes)
    found = [each.id for each in counted_containers(turn, turn.view.jobs["job"])]
    assert ("c9" in found) is counts


def slots(view: ClusterView, *changes: Change) -> list[int]:
    """Return the numbers of the containers that a mixed job needs."""
    return [each.number for each in needs(turned(view, *changes)) if isinstance(each, SharedSlotId)]


FOUR: Final = of_model(containers=4)

MISSING: Mapping[str, tuple[list[int], tuple[Change, ...]]] = {
    "none": ([], ()),
    "one is lost": ([1], (gone("c4"),)),
    "the first one is": ([0], (gone("c3"),)),
    "all are": ([0, 1], (gone("c3", "c4"),)),
    "it is to have more": ([2, 3], (FOUR,)),
    "it is to have more, and others are numbered so": ([0, 3], (FOUR, of_c9(), gone("c3"))),
    "one is requested": ([1], (gone("c4"), requested(SharedSlotId("job", 1), "h2"))),
    "one of several is requested": ([3, 2], (FOUR, requested(SharedSlotId("job", 3), "h2"))),
    "one more is requested": ([], (requested(SharedSlotId("job", 7), "h2"),)),
    "one is lost, and two are requested": (
        [8],
        (
            gone("c4"),
            requested(SharedSlotId("job", 7), "h2"),
            asked_for(2, SharedSlotId("job", 8), "h2", state=RequestState.GRANTED),
        ),
    ),
    "it is to have fewer": ([], (of_model(containers=1),)),
    "its job is over soon": ([], (FOUR, of_job(is_wanted=False))),
    "its code is not there": ([], (FOUR, of_job(quarantined="gone"))),
    "one more is needed while all are on one host": ([2], (of_container("c4", host="h1"),)),
}


@pytest.mark.parametrize(("numbers", "changes"), MISSING.values(), ids=MISSING)
def test_which_containers_a_mixed_job_needs(
    mixed_pair: ClusterView, numbers: list[int], changes: tuple[Change, ...]
) -> None:
    assert slots(mixed_pair, *changes) == numbers
    assert copies(mixed_pair, *changes) == []


def of_mixed(view: ClusterView, *changes: Change) -> list[Need]:
    return [*needs(turned(view, *changes)).values()]


@pytest.mark.parametrize(
    ("is_active", "change"),
    [
        pytest.param(False, gone("c4"), id="others serve"),
        pytest.param(True, gone("c3", "c4"), id="none is there"),
        pytest.param(True, lambda view: changed(view, of_c9(), gone("c3", "c4")), id="none serves"),
    ],
)
def test_a_mixed_jobs_containers_are_urgent_until_it_has_begun(
    mixed_pair: ClusterView, is_active: bool, change: Change
) -> None:
    (found, *_) = of_mixed(mixed_pair, FOUR, requested(SharedSlotId("job", 8), "h2"), change)
    assert found.slot == SharedSlotId("job", 8)
    assert {each.is_active for each in of_mixed(mixed_pair, FOUR, change)} == {is_active}
    assert found.is_active is is_active


def test_a_mixed_jobs_containers_go_to_different_hosts_until_there_are_as_many_as_copies(
    mixed_pair: ClusterView,
) -> None:
    there = (Sibling("a container of job", HostInfo("h1")),)
    scarce = of_mixed(mixed_pair, gone("c4"), FOUR, requested(SharedSlotId("job", 8), "h2"))
    assert [each.siblings for each in scarce] == [there] * 3
    assert [each.siblings for each in of_mixed(mixed_pair, FOUR)] == [()] * 2


ALL: Final = of_view(unsettled=frozenset(PROCESSORS))


@pytest.mark.parametrize(
    ("hosts", "changes"),
    [
        pytest.param(["h2", None, None], (gone("c4"), ALL), id="where copies were"),
        pytest.param(["h1", "h2", None, None], (gone("c3", "c4"), ALL), id="one for each host"),
        pytest.param([None, None], (ALL,), id="where none is lacking"),
        pytest.param(
            [None, None, None],
            (gone("c4"), ALL, of_records(*(TASKS[0][0], TASKS[1][0]), hosts={})),
            id="not known",
        ),
        pytest.param([None, None, None], (gone("c4"), ALL, policy(host_affinity=False)), id="any will do"),
        pytest.param([None, None, None], (gone("c4"),), id="its processors are settled"),
    ],
)
def test_a_mixed_jobs_containers_go_first_where_copies_were(
    mixed_pair: ClusterView, hosts: list[str | None], changes: tuple[Change, ...]
) -> None:
    assert [each.preferred for each in of_mixed(mixed_pair, FOUR, *changes)] == hosts
