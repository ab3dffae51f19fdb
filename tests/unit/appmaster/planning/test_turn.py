"""What the passes of a turn share: parts, homes, hosts of copies, containers, loads, and changes of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.placement.fault_domains import Relocation
from appmaster.planning.placement.turn import Cohort, Turn, activated, may_become_warm
from appmaster.planning.state.actions import DecisionKind, WriteRecords
from appmaster.planning.state.model import Slot, SpareSlotId
from appmaster.planning.state.reasons import DecisionBasis, HandoverMotive, Reason
from appmaster.planning.state.view import ClusterView, Container, Handover, Presence, Recorded, RequestState
from locality.hosts import HostInfo
from standby.shared.model import (
    Held,
    InputFailures,
    NodeOffer,
    Phase,
    ProcessorId,
    Role,
    SlotId,
    TaskId,
    TaskRecord,
)
from tests.unit.appmaster.planning.views import (
    FIRST,
    PROCESSOR,
    RESTART,
    SECOND,
    SLOT,
    Change,
    free,
    of_container,
    of_holder,
    of_job,
    of_processor,
    of_records,
    of_status,
    of_view,
    parts,
    placed,
    policy,
    requested,
    seen,
    turned,
    without_container,
)

#: Of the job that `with_another_job` adds.
OF_OTHER: Final = SlotId(ProcessorId("other", "main", 0), 0)


def with_another_job(view: ClusterView) -> ClusterView:
    return replace(view, jobs={**view.jobs, "other": replace(view.jobs["job"], name="other")})


def names(containers: Iterable[Container]) -> list[str]:
    return [each.id for each in containers]


# ---- parts of a processor ----


def test_a_part_has_the_record_of_its_first_task(whole: ClusterView) -> None:
    _, cohort = seen(whole, of_records(SECOND, epoch=9))
    assert cohort.record.task == FIRST
    assert cohort.tasks == (FIRST, SECOND)


PARTED: Mapping[str, tuple[bool, dict[str, Any]]] = {
    "their active": (True, {"active": 1}),
    "where they are": (True, {"placed": {0: "c4"}}),
    "where they move": (True, {"moving": {1: "c9"}}),
    "what is displaced": (True, {"displaced": 1}),
    "nothing else": (False, {"epoch": 9, "in_sync": (0,), "hosts": {}}),
}


@pytest.mark.parametrize(("is_so", "changes"), PARTED.values(), ids=PARTED)
def test_by_what_tasks_of_a_processor_are_parted(
    whole: ClusterView, is_so: bool, changes: dict[str, Any]
) -> None:
    turn, cohorts = parts(whole, of_records(SECOND, **changes))
    assert len(cohorts) == (2 if is_so else 1)
    assert turn.only_cohort(turn.view.jobs["job"], PROCESSOR) is (None if is_so else cohorts[0])


def test_a_task_without_a_record_is_nowhere(whole: ClusterView) -> None:
    _, cohort = seen(whole, of_view(records={}))
    assert cohort.record == TaskRecord(FIRST, None, 0)


RESTARTED: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "the policy says so": (True, (RESTART,)),
    "it does not": (False, ()),
    "none was active": (True, (RESTART, of_records(FIRST, SECOND, active=None))),
    "the model has no slot for it": (False, (RESTART, of_processor(copies=(1, 2)))),
}


@pytest.mark.parametrize(("is_so", "changes"), RESTARTED.values(), ids=RESTARTED)
def test_when_a_lost_active_is_started_again(
    whole: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    _, cohort = seen(whole, *changes)
    assert cohort.restarts is is_so


def test_a_processor_that_makes_room_for_another_is_not_settled(whole: ClusterView) -> None:
    turn = turned(whole)
    assert [*turn.unsettled()] == []
    turn.make_room({PROCESSOR: Relocation(1, frozenset(), "")})
    assert [processor for _, processor in turn.unsettled()] == [PROCESSOR]


# ---- what is known of a container ----


@pytest.mark.parametrize(
    ("is_so", "has_warm_standbys", "is_warm", "age_ms"),
    [
        pytest.param(True, True, False, 119_999, id="it is cold"),
        pytest.param(False, True, False, 120_000, id="it is cold for too long"),
        pytest.param(False, True, True, 0, id="it is warm"),
        pytest.param(False, False, False, 0, id="none becomes warm"),
    ],
)
def test_when_something_may_wait_for_a_container_to_become_warm(
    whole: ClusterView, is_so: bool, has_warm_standbys: bool, is_warm: bool, age_ms: int
) -> None:
    turn = turned(whole, policy(has_warm_standbys=has_warm_standbys), of_container("c5", is_warm=is_warm))
    container = turn.view.containers["c5"]
    assert may_become_warm(turn.view.jobs["job"], container, container.since_ms + age_ms) is is_so


COLD: Final = of_holder(1, is_warm=False)

WARMING: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "none is cold": (False, ()),
    "one is": (True, (COLD,)),
    "it may be lost": (False, (COLD, of_holder(1, presence=Presence.BROKEN))),
    "it is cold for too long": (False, (COLD, of_view(now_ms=500_000))),
    "it is empty": (False, (free("c9", "h4"),)),
    "a copy only moves there": (False, (free("c9", "h4"), of_records(FIRST, SECOND, moving={1: "c9"}))),
}


@pytest.mark.parametrize(("is_so", "changes"), WARMING.values(), ids=WARMING)
def test_when_a_job_waits_for_one_of_its_containers_to_become_warm(
    whole: ClusterView, is_so: bool, changes: tuple[Change, ...]
) -> None:
    turn = turned(whole, *changes)
    assert turn.is_warming_up(turn.view.jobs["job"]) is is_so


LAG_MS: Final = 10_000

TAILING: Mapping[str, tuple[bool, Change]] = {
    "it lags as far as it may": (True, of_status(1, SECOND, lag_ms=LAG_MS)),
    "it lags further": (False, of_status(1, SECOND, lag_ms=LAG_MS + 1)),
    "its lag is not known": (False, of_status(1, SECOND, lag_ms=None)),
    "it is active": (False, of_status(1, SECOND, role=Role.ACTIVE)),
    "it restores": (False, of_status(1, SECOND, phase=Phase.RESTORING)),
    "it has not reported": (False, of_holder(1, statuses={})),
}


@pytest.mark.parametrize(("is_so", "change"), TAILING.values(), ids=TAILING)
def test_when_a_copy_is_a_standby_within_the_lag_policy(
    whole: ClusterView, is_so: bool, change: Change
) -> None:
    turn, cohort = seen(whole, policy(lag_time_ms=LAG_MS), change)
    assert turn.is_tailing(cohort, 1, turn.view.containers["c5"]) is is_so


@pytest.mark.parametrize(
    ("is_so", "runs", "active"),
    [
        pytest.param(True, 3, (0, 1), id="an earlier one was active at last"),
        pytest.param(False, 3, (3, 2), id="it was active"),
        pytest.param(False, 3, (0, 0), id="none was active"),
        pytest.param(False, 3, (), id="nothing is recorded"),
        pytest.param(False, 4, (1, 1), id="it is the present one"),
        pytest.param(False, 5, (1, 1), id="it is newer"),
    ],
)
def test_when_a_revision_was_replaced_before_it_was_active(
    whole: ClusterView, is_so: bool, runs: int, active: Sequence[int]
) -> None:
    recorded = {
        task: replace(each, record=replace(each.record, revision=revision))
        for (task, each), revision in zip(whole.records.items(), active, strict=False)
    }
    turn = turned(whole, of_view(records=recorded), of_job(revision=4))
    container = replace(turn.view.containers["c5"], revisions={"job": runs})
    assert turn.is_superseded(turn.view.jobs["job"], container) is is_so


# ---- homes ----


def of_tasks(*where: Mapping[int, str]) -> Change:
    """Have the processor have as many tasks, and their copies be there."""

    def change(view: ClusterView) -> ClusterView:
        recorded = view.records[FIRST]
        records = {
            (task := TaskId("job", "main", number)): replace(
                recorded, record=replace(recorded.record, task=task, placed=each)
            )
            for number, each in enumerate(where)
        }
        return replace(of_processor(tasks=tuple(records))(view), records=records)

    return change


#: On the host of copy 0, and on one without copies.
BESIDE, APART = free("c8", "h1"), free("c9", "h4")

HOMES: Mapping[str, tuple[Mapping[int, str], tuple[Change, ...]]] = {
    "where its copies are": ({0: "c4", 1: "c5", 2: "c6"}, ()),
    "where a copy moves": (
        {0: "c4", 1: "c9", 2: "c6"},
        (APART, without_container(1), of_records(FIRST, SECOND, moving={1: "c9"})),
    ),
    "not where a container is lost": ({1: "c5", 2: "c6"}, (without_container(0),)),
    "a process that takes all of its tasks": (
        {0: "c4", 1: "c5", 2: "c6"},
        (of_holder(1, offer=NodeOffer(tasks=2)),),
    ),
    "no process that takes fewer": ({0: "c4", 2: "c6"}, (of_holder(1, offer=NodeOffer(tasks=1)),)),
    "where most tasks are": ({1: "c9"}, (APART, of_tasks({1: "c5"}, {1: "c9"}, {1: "c9"}))),
    "the first of equals": ({1: "c5"}, (APART, of_tasks({1: "c9"}, {1: "c5"}))),
    "the one of the present revision": (
        {1: "c5"},
        (
            APART,
            of_tasks({1: "c5"}, {1: "c9"}, {1: "c9"}),
            of_job(revision=2),
            of_container("c5", revisions={"job": 2}),
            of_container("c9", revisions={"job": 1}),
        ),
    ),
    "only that of the copy with most tasks there": ({1: "c5"}, (of_tasks({0: "c5"}, {1: "c5"}, {1: "c5"}),)),
    "on one host only the better one": ({1: "c8"}, (BESIDE, of_tasks({0: "c4"}, {1: "c8"}, {1: "c8"}))),
    "a worse one if that leaves a home for each copy": (
        {0: "c4", 1: "c5"},
        (BESIDE, of_tasks({0: "c4"}, {1: "c8"}, {1: "c8"}, {1: "c5"})),
    ),
}


@pytest.mark.parametrize(("homes", "changes"), HOMES.values(), ids=HOMES)
def test_in_which_containers_tasks_come_together(
    whole: ClusterView, homes: Mapping[int, str], changes: tuple[Change, ...]
) -> None:
    turn, cohorts = parts(whole, *changes)
    found = {copy: turn.home(cohorts, SlotId(PROCESSOR, copy)) for copy in range(3)}
    assert {copy: each.id for copy, each in found.items() if each is not None} == homes


# ---- hosts of copies ----

ONE, TWO = (SlotId(PROCESSOR, copy) for copy in (1, 2))

#: The active starts where copy 2 is displaced.
DISPLACED: Final = of_records(FIRST, SECOND, displaced=2, hosts={0: "h3"})

#: For a copy: host → the other copy there.
SIBLINGS: Mapping[str, tuple[int, Mapping[str, int], tuple[Change, ...]]] = {
    "where they are": (1, {"h1": 0, "h3": 2}, ()),
    "where they move": (
        1,
        {"h1": 0, "h3": 2, "h4": 2},
        (APART, of_records(FIRST, SECOND, moving={2: "c9"})),
    ),
    "of each part": (1, {"h1": 0, "h3": 2, "h4": 2}, (APART, placed({2: "c9"}, of=(SECOND,)))),
    "where a suspect is": (1, {"h1": 0, "h3": 2}, (of_holder(2, presence=Presence.SUSPECT),)),
    "not where a container is gone": (1, {"h3": 2}, (without_container(0),)),
    "not if the host is not known": (1, {"h1": 0}, (of_holder(2, host=""),)),
    "the active in place of a displaced standby": (1, {"h3": 0}, (DISPLACED, without_container(0))),
    "for the active, not where it starts itself": (0, {"h2": 1}, (DISPLACED,)),
    "where one is requested": (1, {"h1": 0, "h3": 2, "h9": 2}, (requested(TWO, "h9"),)),
    "the copy that is there already": (1, {"h1": 0, "h3": 2}, (requested(SLOT, "h3"),)),
    "not where it is requested itself": (1, {"h1": 0, "h3": 2}, (requested(ONE, "h9"),)),
    "not where the request is not made yet": (
        1,
        {"h1": 0, "h3": 2},
        (requested(TWO, "h9", RequestState.ASKING),),
    ),
    "not if any host will do": (1, {"h1": 0, "h3": 2}, (requested(TWO, None),)),
}


@pytest.mark.parametrize(("copy", "there", "changes"), SIBLINGS.values(), ids=SIBLINGS)
def test_on_which_hosts_the_other_copies_are(
    whole: ClusterView, copy: int, there: Mapping[str, int], changes: tuple[Change, ...]
) -> None:
    turn, cohorts = parts(whole, *changes)
    found = turn.siblings(cohorts, SlotId(PROCESSOR, copy))
    assert {each.host.name: each.label for each in found} == {
        host: f"{PROCESSOR}#{other}" for host, other in there.items()
    }


@pytest.mark.parametrize(
    ("cells", "changes"),
    [
        pytest.param({"h1": 1, "h3": 2}, (), id="that of their containers"),
        pytest.param({"h3": 2}, (DISPLACED, without_container(0)), id="that of the displaced standby"),
        pytest.param(
            {"h3": 1},
            (DISPLACED, without_container(0), without_container(2)),
            id="the first, of an empty host",
        ),
    ],
)
def test_in_which_cells_the_other_copies_are(
    whole: ClusterView, cells: Mapping[str, int], changes: tuple[Change, ...]
) -> None:
    turn, cohorts = parts(whole, of_holder(2, cell=2), *changes)
    assert {each.host.name: each.host.cell for each in turn.siblings(cohorts, ONE)} == cells


def test_a_displaced_copy_may_still_be_where_it_was(whole: ClusterView) -> None:
    turn, cohort = seen(whole, DISPLACED, of_records(FIRST, SECOND, hosts={0: "h9"}))
    assert turn.hosts_of_copies(cohort, 1) == {
        host: f"{PROCESSOR}#{copy}" for host, copy in (("h1", 0), ("h3", 2), ("h9", 0))
    }


REQUESTABLE, DESCRIBED = (HostInfo("h9", rack=rack) for rack in ("/a", "/b"))

KNOWN: Mapping[str, tuple[HostInfo, tuple[Change, ...]]] = {
    "as it can be requested": (
        REQUESTABLE,
        (of_view(hosts={"h9": REQUESTABLE}), of_view(described={"h9": DESCRIBED})),
    ),
    "though it is not described": (REQUESTABLE, (of_view(hosts={"h9": REQUESTABLE}),)),
    "though it cannot be requested": (DESCRIBED, (of_view(described={"h9": DESCRIBED}),)),
    "nothing but its name": (HostInfo("h9"), ()),
}


@pytest.mark.parametrize(("known", "changes"), KNOWN.values(), ids=KNOWN)
def test_what_is_known_about_a_host(whole: ClusterView, known: HostInfo, changes: tuple[Change, ...]) -> None:
    turn = turned(whole, *changes)
    assert turn.host("h9") == known
    assert turn.host("h9", 2) == replace(known, cell=2)


# ---- containers ----


def test_which_containers_are_on_a_host(whole: ClusterView) -> None:
    turn = turned(whole, free("c8", "h1", presence=Presence.SUSPECT))
    assert names(turn.on_host("h1")) == ["c4", "c8"]
    assert names(turn.on_host("h9")) == []


def test_which_containers_a_job_has(whole: ClusterView) -> None:
    turn = turned(
        whole,
        with_another_job,
        free("c7", "h4", OF_OTHER),
        free("c8", "h4", None),
        free("c9", "h4", SpareSlotId("job", 0)),
    )
    job, other = turn.view.jobs.values()
    assert [names(turn.of_job(each)) for each in (job, other)] == [["c4", "c5", "c6"], ["c7"]]
    assert [names(turn.spares(each)) for each in (job, other)] == [["c9"], []]


FREE: Mapping[str, tuple[bool, Slot | None, tuple[Change, ...]]] = {
    "it was requested for the job": (True, SLOT, ()),
    "it was requested for another": (False, OF_OTHER, ()),
    "it may be lost": (False, SLOT, (of_container("c9", presence=Presence.BROKEN),)),
    "it is a spare one": (False, SpareSlotId("job", 0), ()),
    "an earlier leader requested it": (True, None, ()),
    "it has the job's code": (True, None, (of_container("c9", revisions={"job": 1}),)),
    "it has that of another": (False, None, (of_container("c9", revisions={"other": 1}),)),
    "it has that of a job that is gone": (False, None, (of_container("c9", revisions={"gone": 1}),)),
    "its process is not for this job": (False, None, (of_container("c9", offer=NodeOffer("group")),)),
}


@pytest.mark.parametrize(("is_so", "slot", "changes"), FREE.values(), ids=FREE)
def test_which_empty_containers_may_serve_a_job(
    whole: ClusterView, is_so: bool, slot: Slot | None, changes: tuple[Change, ...]
) -> None:
    turn = turned(whole, with_another_job, free("c9", "h4", slot), *changes)
    assert names(turn.free(turn.view.jobs["job"])) == (["c9"] if is_so else [])


def test_a_container_is_given_away_once(whole: ClusterView) -> None:
    turn = turned(whole, free("c7", "h3"), free("c8", "h4"), free("c9", "h4", ONE))
    job = turn.view.jobs["job"]

    def found() -> list[list[str]]:
        lists = turn.free(job), turn.free_at(job, SLOT), turn.idle(job, lambda each: each.host == "h4")
        return [names(each) for each in lists]

    assert found() == [["c7", "c8", "c9"], ["c7", "c8"], ["c8", "c9"]]
    turn.take(turn.view.containers["c8"])
    assert found() == [["c7", "c9"], ["c7"], ["c9"]]


def test_whether_a_container_is_idle_is_asked_once(whole: ClusterView) -> None:
    turn, asked = turned(whole, free("c9", "h4")), list[str]()

    def is_idle(container: Container) -> bool:
        asked.append(container.id)
        return True

    for _ in range(2):
        turn.idle(turn.view.jobs["job"], is_idle)
    assert asked == ["c9"]


RESERVED: Mapping[str, tuple[set[str], tuple[Change, ...]]] = {
    "nothing is": (set(), ()),
    "where a container waits": ({"h4"}, (free("c9", "h4"),)),
    "not where it serves": (set(), (free("c9", "h4"), of_container("c9", sent=1))),
    "where one is requested": ({"h5"}, (requested(SLOT, "h5"),)),
    "both": ({"h4", "h5"}, (free("c9", "h4"), requested(SLOT, "h5"))),
    "not if any host will do": (set(), (requested(SLOT, None),)),
    "not for another slot": (set(), (free("c9", "h4", ONE), requested(TWO, "h5"))),
}


@pytest.mark.parametrize(("hosts", "changes"), RESERVED.values(), ids=RESERVED)
def test_which_hosts_are_reserved_for_a_slot(
    whole: ClusterView, hosts: set[str], changes: tuple[Change, ...]
) -> None:
    turn = turned(whole, *changes)
    assert turn.reserved_hosts(turn.view.jobs["job"], SLOT) == hosts


#: What is placed in each container before anything is decided.
PLACED: Mapping[str, tuple[int, int]] = {"c4": (2, 2), "c5": (0, 2), "c6": (0, 2), "c9": (0, 0)}

LOADS: Mapping[str, tuple[Mapping[str, tuple[int, int]], tuple[Change, ...]]] = {
    "what is placed": ({}, ()),
    "what is being placed": (
        {"c9": (0, 2)},
        (of_view(writing={FIRST: "1-9", SECOND: "1-9"}, bindings={"1-9": "c9"}),),
    ),
    "no decision that places nothing": ({}, (of_view(writing={FIRST: "1-9"}),)),
    "actives where they are about to be": (
        {"c9": (2, 0)},
        (of_view(handovers={PROCESSOR: Handover(1, "c9", 0, Reason(HandoverMotive.ASKED))}),),
    ),
}


@pytest.mark.parametrize(("more", "changes"), LOADS.values(), ids=LOADS)
def test_how_many_actives_and_copies_containers_have(
    whole: ClusterView, more: Mapping[str, tuple[int, int]], changes: tuple[Change, ...]
) -> None:
    turn = turned(whole, *changes)
    assert {each: turn.loads.of(each) for each in PLACED} == {**PLACED, **more}


def test_what_a_turn_places_adds_to_the_load(whole: ClusterView) -> None:
    turn = turned(whole)
    turn.loads.add("c9", actives=1)
    turn.loads.add("c9", copies=2)
    turn.loads.add("c5", actives=1, copies=2)
    assert {each: turn.loads.of(each) for each in PLACED} == {**PLACED, "c5": (1, 4), "c9": (1, 2)}


# ---- decisions ----


def decided(
    turn: Turn, cohort: Cohort, *, container: Container | None = None, **changes: Any
) -> WriteRecords | None:
    """Return the decision that changes the records of all tasks in this way."""
    return turn.decide(
        cohort,
        DecisionKind.IN_SYNC,
        Reason(DecisionBasis.OTHER),
        lambda record: replace(record, **changes),
        container=container,
    )


def records_of(decision: WriteRecords | None) -> Sequence[TaskRecord]:
    return [each.record for each in decision.changes] if decision is not None else []


def test_decisions_are_numbered_after_those_before(whole: ClusterView) -> None:
    turn, cohort = seen(whole, of_view(epoch=3, decisions=7))
    assert decided(turn, cohort) is None
    for number in ("3-8", "3-9"):
        decision = decided(turn, cohort, in_sync=(0,))
        assert decision is not None
        assert {decision.decision, *(each.decision for each in records_of(decision))} == {number}


def test_a_decision_writes_only_what_it_changes(whole: ClusterView) -> None:
    turn, cohort = seen(whole, of_records(FIRST, claimed=False))
    assert decided(turn, cohort) is None
    assert not turn.touched
    assert [each.task for each in records_of(decided(turn, cohort, claimed=True))] == [FIRST]
    assert turn.touched == {PROCESSOR}


@pytest.mark.parametrize("container", ["", "c9"])
def test_a_container_that_a_decision_fills_is_given_away(whole: ClusterView, container: str) -> None:
    turn, cohort = seen(whole, free("c9", "h4"))
    decision = decided(turn, cohort, container=turn.view.containers.get(container), in_sync=(0,))
    assert decision is not None
    assert decision.container == container
    assert turn.taken == {container} - {""}


@pytest.mark.parametrize("version", [0, 1, None])
def test_a_record_replaces_the_version_that_is_known(whole: ClusterView, version: int | None) -> None:
    recorded = {} if version is None else {FIRST: Recorded(whole.records[FIRST].record, version)}
    turn, cohort = seen(whole, of_processor(tasks=(FIRST,)), of_view(records=recorded))
    decision = decided(turn, cohort, in_sync=(0,))
    assert decision is not None
    assert [each.expected_version for each in decision.changes] == [version]


def test_ends_of_processes_are_recorded_with_the_next_decision(whole: ClusterView) -> None:
    crash = InputFailures(7, 1)
    turn, cohort = seen(whole, of_view(crashes={SECOND: crash}))
    assert [each.failures for each in records_of(decided(turn, cohort, in_sync=(0,)))] == [None, crash]


def test_a_withdrawn_task_has_no_failures_left(whole: ClusterView) -> None:
    """Otherwise it fails at once when it is to run again."""
    turn, cohort = seen(whole, of_view(crashes={SECOND: InputFailures(7, 1)}))
    found = records_of(decided(turn, cohort, active=None, placed={}, failures=None))
    assert [each.failures for each in found] == [None, None]


NEXT: Final = {"active": 1, "epoch": 2}

REVISED: Mapping[str, tuple[int, dict[str, Any], tuple[Change, ...]]] = {
    "of the new active": (3, NEXT, (of_holder(1, revisions={"job": 3}),)),
    "of the job, without code yet": (4, NEXT, (of_holder(1, revisions={}), of_job(revision=4))),
    "not a lower one": (2, NEXT, (of_holder(1, revisions={"job": 1}),)),
    "not of a container that is gone": (2, NEXT, (without_container(1),)),
    "none without an active": (2, {"active": None, "epoch": 2}, (of_holder(0, revisions={"job": 3}),)),
    "none while the active stays": (2, {"in_sync": (0,)}, (of_holder(0, revisions={"job": 3}),)),
}


@pytest.mark.parametrize(("revision", "edit", "changes"), REVISED.values(), ids=REVISED)
def test_which_revision_is_recorded(
    whole: ClusterView, revision: int, edit: dict[str, Any], changes: tuple[Change, ...]
) -> None:
    turn, cohort = seen(whole, of_records(FIRST, SECOND, revision=2), *changes)
    assert {each.revision for each in records_of(decided(turn, cohort, **edit))} == {revision}


# ---- changes of records ----

LEFT: Mapping[str, tuple[tuple[tuple[str, int | None], ...], Change]] = {
    "with the position there": ((("h2", 10),), of_view()),
    "without one if none was reported": ((("h2", None),), of_holder(1, statuses={})),
    "nor if the container is gone": ((("h2", None),), without_container(1)),
    "not if the host is not known": ((), of_records(FIRST, SECOND, hosts={})),
}


@pytest.mark.parametrize(("history", "change"), LEFT.values(), ids=LEFT)
def test_the_host_that_a_copy_leaves_is_remembered(
    whole: ClusterView, history: tuple[tuple[str, int | None], ...], change: Change
) -> None:
    turn, cohort = seen(whole, change)
    record = turn.dropped(cohort, cohort.record, 1)
    assert tuple((each.host, each.position) for each in record.history) == history


def test_a_dropped_copy_is_nowhere(whole: ClusterView) -> None:
    turn, cohort = seen(whole, APART, of_records(FIRST, SECOND, moving={1: "c9", 2: "c8"}))
    record = turn.dropped(cohort, cohort.record, 1)
    assert (record.placed, record.moving, record.in_sync) == ({0: "c4", 2: "c6"}, {2: "c8"}, (0, 2))


@pytest.mark.parametrize("activates", [False, True])
def test_a_copy_that_is_placed_elsewhere_is_filled_there(whole: ClusterView, activates: bool) -> None:
    turn, cohort = seen(whole, APART, of_records(FIRST, SECOND, moving={1: "c9", 2: "c4"}))
    before = cohort.record
    record = turn.placed(cohort, before, 1, turn.view.containers["c9"], activates=activates)
    there = replace(
        before,
        placed={0: "c4", 1: "c9", 2: "c6"},
        hosts={0: "h1", 1: "h4", 2: "h3"},
        moving={2: "c4"},
        in_sync=(0, 2),
        history=(Held("h2", turn.view.wall(turn.view.now_ms), 10),),
    )
    assert record == (activated(there, 1) if activates else there)


@pytest.mark.parametrize("chosen", [{}, {"is_chosen": True}])
def test_a_new_active_begins_an_epoch_in_sync_and_the_former_one_is_not(
    whole: ClusterView, chosen: dict[str, bool]
) -> None:
    record = replace(whole.records[FIRST].record, in_sync=(0, 2), epoch=4)
    assert activated(record, 1, **chosen) == replace(
        record, active=1, epoch=5, in_sync=(1, 2), is_chosen=bool(chosen)
    )


#: The copies that stay, and those in sync, when one copy goes to a host.
VACATED: Mapping[str, tuple[set[int], tuple[int, ...], int, str, tuple[Change, ...]]] = {
    "all that have a container": ({0, 1, 2}, (0, 1, 2), 1, "h3", ()),
    "not one that is gone from there": ({0, 1}, (0, 1), 1, "h3", (without_container(2),)),
    "one that is gone from elsewhere": ({0, 1, 2}, (0, 1, 2), 1, "h4", (without_container(2),)),
    "the one that goes there itself": ({0, 1, 2}, (0, 1, 2), 2, "h3", (without_container(2),)),
    "one of an unknown host": (
        {0, 1, 2},
        (0, 1, 2),
        1,
        "h4",
        (without_container(2), of_records(FIRST, hosts={0: "h1"})),
    ),
    "a lost active only as in sync": ({1, 2}, (0, 1, 2), 1, "h1", (without_container(0),)),
    "an active that is gone from elsewhere": ({0, 1, 2}, (0, 1, 2), 1, "h4", (without_container(0),)),
    "not an active that may be gone from there": (
        {1, 2},
        (0, 1, 2),
        1,
        "h4",
        (without_container(0), of_records(FIRST, hosts={})),
    ),
    "nor while a standby is displaced": ({1, 2}, (0, 1, 2), 1, "h4", (without_container(0), DISPLACED)),
}


@pytest.mark.parametrize(("stay", "in_sync", "copy", "host", "changes"), VACATED.values(), ids=VACATED)
def test_which_copies_stay_when_one_goes_to_a_host(
    whole: ClusterView,
    stay: set[int],
    in_sync: tuple[int, ...],
    copy: int,
    host: str,
    changes: tuple[Change, ...],
) -> None:
    turn, cohorts = parts(whole, *changes)
    record = turn.vacated(cohorts[0].record, copy, host)
    assert (set(record.placed), record.in_sync) == (stay, in_sync)


@pytest.mark.parametrize(
    ("moving", "then"),
    [
        pytest.param({2: "c9"}, {2: "c9"}, id="to a container that is there"),
        pytest.param({2: "gone"}, {}, id="to one that is gone"),
        pytest.param({1: "gone"}, {1: "gone"}, id="of the copy that goes there itself"),
    ],
)
def test_which_moves_go_on_when_a_copy_goes_to_a_host(
    whole: ClusterView, moving: Mapping[int, str], then: Mapping[int, str]
) -> None:
    turn, cohort = seen(whole, APART, of_records(FIRST, SECOND, moving=moving))
    assert turn.vacated(cohort.record, 1, "h5").moving == then
