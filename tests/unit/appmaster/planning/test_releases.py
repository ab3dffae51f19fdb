"""Which requests are cancelled, and which containers are given back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.containers.assignments import assignments
from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests.needs import Need
from appmaster.planning.requests.releases import releases
from appmaster.planning.requests.spares import SpareShare
from appmaster.planning.state.actions import CancelRequest, Outcome, ReleaseContainer, SendAssignment
from appmaster.planning.state.model import SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.reasons import Loss, Reason, Setback, SetbackKind
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    ContainerRequest,
    Presence,
    RequestKind,
    RequestState,
)
from locality.hosts import HostInfo
from locality.question import Sibling
from standby.shared.model import NodeOffer, ProcessorId, SlotId, TaskId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    PROCESSOR,
    SECOND,
    SLOT,
    Change,
    changed,
    drained,
    free,
    of_container,
    of_job,
    of_model,
    of_records,
    of_view,
    policy,
    turned,
)

MIXED: Final = SharedSlotId("job", 3)
SPARE: Final = SpareSlotId("job", 0)
NO_SPARES: Final = SpareShare()


def need(view: ClusterView, slot: Slot = SLOT, **more: Any) -> dict[Slot, Need]:
    return {slot: Need(slot, view.jobs["job"], is_active=False, **more)}


def ended(turn: Turn, needed: Mapping[Slot, Need], spares: SpareShare = NO_SPARES) -> list[Any]:
    return list(releases(turn, needed, spares))


# ---- requests ----

ASKING, WAITING, GRANTED = RequestState.ASKING, RequestState.WAITING, RequestState.GRANTED
ANY, NAMED, RESERVED = RequestKind.ANY, RequestKind.NAMED, RequestKind.RESERVATION

TIMED: Final = {"request_timeout_ms": 200, "samehost_timeout_ms": 300}
LONG: Final = {"request_timeout_ms": 400, "samehost_timeout_ms": 300}


def asked(
    waited_ms: int,
    host: str | None = "h4",
    state: RequestState = WAITING,
    kind: RequestKind = NAMED,
    slot: Slot = SLOT,
) -> Change:
    def change(view: ClusterView) -> ClusterView:
        request = ContainerRequest(1, slot, host, kind, state, view.now_ms - waited_ms, "s_9")
        return replace(view, requests={1: request})

    return change


def over(
    view: ClusterView, *changes: Change, touched: frozenset[ProcessorId] = frozenset(), **more: Any
) -> CancelRequest | None:
    """Return the end of a request after the changes, if its slot needs a container and ``more``."""
    turn = turned(view, policy(any_timeout_ms=500, launch_timeout_ms=600, **TIMED), *changes)
    turn.touched |= touched
    found = ended(turn, need(view, **more))
    assert all(isinstance(each, CancelRequest) for each in found)
    return found[0] if found else None


STANDS: Mapping[str, tuple[bool, dict[str, Any], tuple[Change, ...]]] = {
    "it waits within the time-out": (True, {}, (asked(200),)),
    "it waits for longer": (False, {}, (asked(201),)),
    "it is being made": (True, {}, (asked(9_000, state=ASKING),)),
    "for its own host alone": (True, {"only_host": True}, (asked(300),)),
    "for its own host alone, for longer": (False, {"only_host": True}, (asked(301),)),
    "on a standby's host": (True, {"is_reservation": True}, (asked(300, kind=RESERVED),)),
    "on a standby's host, for longer": (False, {"is_reservation": True}, (asked(301, kind=RESERVED),)),
    "on a standby's host, as long as for any other": (
        True,
        {"is_reservation": True},
        (policy(**LONG), asked(400, kind=RESERVED)),
    ),
    "for any host": (True, {}, (asked(500, None, kind=ANY),)),
    "for any host, for longer": (False, {}, (asked(501, None, kind=ANY),)),
    "its container starts": (True, {}, (asked(600, state=GRANTED),)),
    "its container starts for long": (False, {}, (asked(601, state=GRANTED),)),
    "a standby's host is not needed": (False, {}, (asked(1, kind=RESERVED),)),
    "a standby's host is needed": (False, {"is_reservation": True}, (asked(1),)),
    "its host is drained": (False, {}, (asked(1), drained("h4"))),
    "another is drained": (True, {}, (asked(1), drained("h3"))),
    "any host will do, and one is drained": (True, {}, (asked(1, None, kind=ANY), drained("h4"))),
    "nothing is needed": (False, {"slot": ANOTHER}, (asked(1),)),
    "nothing is needed, and its container starts": (False, {"slot": ANOTHER}, (asked(1, state=GRANTED),)),
    "its processor is gone": (False, {}, (asked(1, slot=ANOTHER),)),
    "its job is over soon": (False, {}, (asked(1), of_job(is_wanted=False))),
    "its job is gone": (False, {}, (asked(1), of_view(jobs={}, records={}, containers={}))),
    "a record is being written": (True, {"slot": ANOTHER}, (asked(9_000), of_view(writing={SECOND: "1-9"}))),
}


@pytest.mark.parametrize(("is_so", "needed", "changes"), STANDS.values(), ids=STANDS)
def test_when_a_request_stands(
    whole: ClusterView, is_so: bool, needed: dict[str, Any], changes: tuple[Change, ...]
) -> None:
    assert (over(whole, *changes, **needed) is None) is is_so


def test_a_request_stands_while_a_record_is_about_to_be_written(whole: ClusterView) -> None:
    assert over(whole, asked(201)) is not None
    assert over(whole, asked(201), touched=frozenset({PROCESSOR})) is None


def test_a_request_that_is_being_made_does_not_hide_another(whole: ClusterView) -> None:
    turn = turned(whole, asked(9_000))
    (request,) = turn.view.requests.values()
    both = {0: replace(request, number=0, state=ASKING), 1: request}
    assert [each.number for each in ended(Turn(replace(turn.view, requests=both)), {})] == [1]


def test_a_request_for_a_spare_container_stands_while_it_is_wanted(whole: ClusterView) -> None:
    turn = turned(whole, asked(1, slot=SPARE))
    assert ended(turn, {}, SpareShare(need(turn.view, SPARE))) == []
    assert [each.outcome for each in ended(turn, {})] == [Outcome.SURPLUS]


@pytest.mark.parametrize(
    ("outcome", "reason", "avoided", "change"),
    [
        pytest.param(
            Outcome.EXPIRED, Setback(SetbackKind.NOT_GRANTED, "h4", 201), "h4", asked(201), id="not granted"
        ),
        pytest.param(
            Outcome.EXPIRED,
            Setback(SetbackKind.NOT_GRANTED, None, 501),
            "",
            asked(501, None, kind=ANY),
            id="none granted",
        ),
        pytest.param(
            Outcome.EXPIRED,
            Setback(SetbackKind.NOT_REGISTERED, "h4", 601),
            "h4",
            asked(601, state=GRANTED),
            id="not registered",
        ),
        pytest.param(
            Outcome.SURPLUS,
            "something else is needed there now",
            "",
            asked(1, kind=RESERVED),
            id="not needed",
        ),
    ],
)
def test_why_a_request_is_cancelled(
    whole: ClusterView, outcome: Outcome, reason: str | Setback, avoided: str, change: Change
) -> None:
    assert over(whole, change) == CancelRequest(1, "s_9", outcome, reason, avoided, "job")


# ---- containers that do not live ----


def in_presence(presence: Presence, ago_ms: int, **more: Any) -> Change:
    def change(view: ClusterView) -> ClusterView:
        since = {"presence": presence, "since_ms": view.now_ms - ago_ms}
        return of_container("c9", **since, **more)(free("c9", "h4")(view))

    return change


SUSPECT, LEAVING = Presence.SUSPECT, Presence.LEAVING
FAILED: Final = Reason(Loss.REPLICA_FAILED)
SILENT: Final = Reason(Loss.SILENT)


@pytest.mark.parametrize(
    ("outcome", "change"),
    [
        pytest.param(None, in_presence(SUSPECT, 299, loss=SILENT), id="silent"),
        pytest.param(Outcome.LOST, in_presence(SUSPECT, 300, loss=SILENT), id="silent for long"),
        pytest.param(Outcome.LOST, in_presence(SUSPECT, 0, loss=FAILED), id="of no use any more"),
        pytest.param(None, in_presence(SUSPECT, 0), id="lost, it is not known why"),
        pytest.param(None, in_presence(LEAVING, 399), id="told to exit"),
        pytest.param(Outcome.ENDED, in_presence(LEAVING, 400), id="told to exit long ago"),
        pytest.param(None, in_presence(Presence.BROKEN, 9_000, loss=FAILED), id="cut off"),
        pytest.param(None, in_presence(Presence.EXPECTED, 9_000), id="expected"),
    ],
)
def test_when_a_container_that_does_not_live_is_given_back(
    whole: ClusterView, outcome: Outcome | None, change: Change
) -> None:
    turn = turned(whole, policy(suspect_grace_ms=300, exit_timeout_ms=400), change)
    found = ended(turn, {})
    assert [(each.container, each.outcome) for each in found] == ([("c9", outcome)] if outcome else [])


# ---- containers that live and serve nothing ----

GIVEN_BACK: Final = ReleaseContainer("c9", "s_c9", Outcome.SURPLUS, "every slot is taken", "job")


def why(
    view: ClusterView,
    needed: Mapping[Slot, Need],
    *changes: Change,
    spares: SpareShare = NO_SPARES,
    taken: str = "",
) -> tuple[Outcome, str] | None:
    """Return what becomes of the container c9 on h4, which serves nothing, and why."""
    turn = turned(view, free("c9", "h4"), *changes)
    turn.taken.add(taken)
    found = ended(turn, needed, spares)
    assert all(each.container == "c9" for each in found)
    return (found[0].outcome, found[0].reason) if found else None


def outcome(view: ClusterView, needed: Mapping[Slot, Need], *changes: Change, **more: Any) -> Outcome | None:
    found = why(view, needed, *changes, **more)
    return found[0] if found else None


def of_copies(*copies: int) -> Change:
    """Have each processor have these copies."""

    def change(view: ClusterView) -> ClusterView:
        processors = view.jobs["job"].model.processors
        return of_model(
            processors={each: replace(found, copies=copies) for each, found in processors.items()}
        )(view)

    return change


def of_other_job(**changes: Any) -> Change:
    """Add another job, whose name comes first."""

    def change(view: ClusterView) -> ClusterView:
        other = replace(
            view.jobs["job"], name="another", model=replace(view.jobs["job"].model, processors={})
        )
        return replace(view, jobs={"another": replace(other, **changes), **view.jobs})

    return change


def of_c9(**changes: Any) -> Change:
    return of_container("c9", **changes)


LOST_CELL: Final = of_view(cells={1: Cell(1, "", (), CellState.LOST, 0)})
OVER: Final = {"is_wanted": False, "is_fenced": True}
#: It was requested by an earlier leader.
STRAY: Final = of_c9(slot=None, revisions={})
WRITING: Final = of_view(writing={FIRST: "1-9"}, unsettled=frozenset({PROCESSOR}))

UNNEEDED: Mapping[str, tuple[Outcome | None, tuple[Change, ...]]] = {
    "nothing needs it": (Outcome.SURPLUS, ()),
    "its process is asked to end": (None, (of_c9(is_leaving=True),)),
    "its job is over soon": (None, (of_job(is_wanted=False),)),
    "it serves something": (None, (of_records(FIRST, placed={0: "c4", 1: "c5", 2: "c6", 3: "c9"}),)),
    "it is being given something": (None, (of_c9(binding="1-9"),)),
    "it runs an older revision": (Outcome.REPLACED, (of_job(revision=2),)),
    "it is a spare one of an older revision": (Outcome.REPLACED, (of_job(revision=2), of_c9(slot=SPARE))),
    "its host is drained": (Outcome.DRAINED, (drained("h4"),)),
    "another host is drained": (Outcome.SURPLUS, (drained("h3"),)),
    "its cell is lost": (Outcome.REPLACED, (LOST_CELL,)),
    "a record of its job is being written": (None, (WRITING,)),
    "one of another job is being written": (
        Outcome.SURPLUS,
        (
            WRITING,
            of_other_job(),
            of_c9(slot=SpareSlotId("another", 0)),
            of_c9(slot=SlotId(ProcessorId("another", "main", 0), 0)),
        ),
    ),
    # ---- for which job it was requested is not known ----
    "it may be for any job": (Outcome.SURPLUS, (STRAY,)),
    "a record of some job is being written": (None, (STRAY, WRITING, of_other_job())),
    "it has the code of a job that is gone": (Outcome.SURPLUS, (STRAY, of_c9(revisions={"gone": 1}))),
    "it may belong to a job that ends": (None, (STRAY, of_other_job(is_wanted=False))),
    "no job that ends has containers any more": (Outcome.SURPLUS, (STRAY, of_other_job(**OVER))),
    "it can only belong to the one job, which has ended": (None, (STRAY, of_job(**OVER))),
    "all jobs have ended": (Outcome.SURPLUS, (STRAY, of_other_job(**OVER), of_job(**OVER))),
}


@pytest.mark.parametrize(("found", "changes"), UNNEEDED.values(), ids=UNNEEDED)
def test_when_a_container_that_nothing_needs_is_given_back(
    whole: ClusterView, found: Outcome | None, changes: tuple[Change, ...]
) -> None:
    assert outcome(whole, {}, of_c9(revisions={"job": 1}), *changes) == found


def test_it_is_given_back_for_its_job(whole: ClusterView) -> None:
    assert ended(turned(whole, free("c9", "h4")), {}) == [GIVEN_BACK]


def test_what_this_turn_gives_away_is_not_given_back(whole: ClusterView) -> None:
    assert outcome(whole, {}, taken="c9") is None


def test_a_container_is_not_given_back_while_a_record_is_about_to_be_written(whole: ClusterView) -> None:
    turn = turned(whole, free("c9", "h4"), of_view(unsettled=frozenset({PROCESSOR})))
    turn.touched.add(PROCESSOR)
    assert ended(turn, {}) == []


@pytest.mark.parametrize(
    ("slot", "surplus", "found"),
    [
        pytest.param(SPARE, {"c9": "enough"}, (Outcome.SURPLUS, "enough"), id="there are enough"),
        pytest.param(SPARE, {}, None, id="it is wanted"),
        pytest.param(
            SpareSlotId("gone", 0), {}, (Outcome.SURPLUS, "every slot is taken"), id="its job is gone"
        ),
    ],
)
def test_when_a_spare_container_is_given_back(
    whole: ClusterView, slot: Slot, surplus: Mapping[str, str], found: tuple[Outcome, str] | None
) -> None:
    assert why(whole, {}, of_c9(slot=slot), spares=SpareShare(surplus=surplus)) == found


# ---- what it may serve ----

HERE: Final = Sibling("job/main:0#1", HostInfo("h4"))
ELSEWHERE: Final = Sibling("job/main:0#1", HostInfo("h5"))
SMALL: Final = of_c9(offer=NodeOffer(tasks=1))

FITS: Mapping[str, tuple[Outcome | None, dict[str, Any], tuple[Change, ...]]] = {
    "its slot needs one": (None, {}, ()),
    "it is too small": (Outcome.SURPLUS, {}, (SMALL,)),
    "another slot needs one": (None, {}, (of_c9(slot=ANOTHER),)),
    "another slot needs one, and any may have it": (None, {}, (STRAY,)),
    "another copy is on its host": (Outcome.SAME_HOST, {"siblings": (HERE,)}, ()),
    "another copy is elsewhere": (None, {"siblings": (ELSEWHERE,)}, ()),
    "it served beside another copy": (Outcome.REPLACED, {"siblings": (HERE,)}, (of_c9(sent=1),)),
    "it is in one of the locations": (None, {"locations": frozenset({("h4", 1)})}, ()),
    "it is in another location": (Outcome.SURPLUS, {"locations": frozenset({("h4", 2)})}, ()),
    "it is in one of the locations, beside another copy": (
        Outcome.SAME_HOST,
        {"locations": frozenset({("h4", 1)}), "siblings": (HERE, ELSEWHERE)},
        (),
    ),
    "it is on the host that is reserved": (None, {"is_reservation": True, "preferred": "h4"}, ()),
    "it is not on the host that is reserved": (
        Outcome.SURPLUS,
        {"is_reservation": True, "preferred": "h5"},
        (),
    ),
}


@pytest.mark.parametrize(("found", "needed", "changes"), FITS.values(), ids=FITS)
def test_when_a_container_may_serve_what_is_needed(
    whole: ClusterView, found: Outcome | None, needed: dict[str, Any], changes: tuple[Change, ...]
) -> None:
    assert outcome(whole, need(whole, **needed), *changes) == found


def test_a_container_is_judged_by_the_need_of_its_slot_alone(whole: ClusterView) -> None:
    mine = need(whole, siblings=(HERE,))
    other = need(whole, SlotId(PROCESSOR, 2))
    assert outcome(whole, {**other, **mine}) is Outcome.SAME_HOST
    assert outcome(whole, {**mine, **other}, of_c9(slot=SlotId(PROCESSOR, 1))) is None


def test_a_container_that_is_too_small_for_one_need_may_serve_another(whole: ClusterView) -> None:
    (processor,) = whole.jobs["job"].model.processors.values()
    processors = {ANOTHER.processor: replace(processor, tasks=(SECOND,))}
    other = need(changed(whole, of_model(processors=processors)), ANOTHER)
    assert outcome(whole, {**need(whole), **other}, STRAY, SMALL) is None


def test_another_jobs_need_is_none_of_a_containers(whole: ClusterView) -> None:
    other = changed(whole, of_other_job()).jobs["another"]
    slot = SlotId(ProcessorId("another", "main", 0), 0)
    needed: dict[Slot, Need] = {
        slot: Need(slot, replace(other, model=whole.jobs["job"].model), is_active=False)
    }
    assert why(whole, needed, of_other_job()) == (Outcome.SURPLUS, "every slot is taken")


def test_a_container_with_the_code_of_a_job_that_is_gone_serves_no_other(whole: ClusterView) -> None:
    said = "it has the code of gone, which is gone"
    assert why(whole, need(whole), STRAY, of_c9(revisions={"gone": 1})) == (Outcome.SURPLUS, said)


def test_a_mixed_job_has_no_container_that_may_be_for_another(whole: ClusterView) -> None:
    said = "an earlier leader requested it, and it is not known for which job"
    assert why(whole, need(whole, MIXED), STRAY) == (Outcome.SURPLUS, said)


# ---- containers of mixed jobs ----


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        pytest.param((Outcome.SURPLUS, "the job has enough containers"), (), id="there are enough"),
        pytest.param(None, (of_model(is_mixed=True, containers=3),), id="it is wanted"),
        pytest.param(
            (Outcome.SAME_HOST, "h1 holds another container of job"),
            (of_c9(host="h1"), of_container("c4", host="h1")),
            id="all are on one host",
        ),
        pytest.param(
            None,
            (of_model(containers=3), of_copies(0, 1, 2), of_c9(host="h2"), of_container("c4", host="h1")),
            id="all the others are",
        ),
        pytest.param(
            None, (of_model(containers=3), of_c9(host="h1")), id="another is there, and they are on two hosts"
        ),
    ],
)
def test_when_a_container_of_a_mixed_job_is_given_back(
    mixed_pair: ClusterView, found: tuple[Outcome, str] | None, changes: tuple[Change, ...]
) -> None:
    assert why(mixed_pair, {}, of_c9(slot=MIXED), *changes) == found


# ---- displaced standbys ----


def displaced(copy: int, sent_ago_ms: int, *of: TaskId, **more: Any) -> Change:
    """Have a copy be displaced, and its container have been told so some time ago."""

    def change(view: ClusterView) -> ClusterView:
        view = of_records(*(of or (FIRST, SECOND)), displaced=copy)(view)
        view = replace(view, unsettled=frozenset({PROCESSOR}))
        name = view.records[FIRST].record.placed[copy]
        (told,) = (
            each
            for each in assignments(turned(view).view, set())
            if isinstance(each, SendAssignment) and each.container == name
        )
        sent = {"sent": told.number, "sent_digest": told.digest, "sent_ms": view.now_ms - sent_ago_ms}
        return of_container(name, **{**sent, **more})(view)

    return change


STOPPING: Mapping[str, tuple[list[str], tuple[Change, ...]]] = {
    "it was told just now": ([], (displaced(1, 300),)),
    "it does not stop": (["c5"], (displaced(1, 301),)),
    "that of one task does not": (["c5"], (displaced(1, 301, SECOND),)),
    "its container was not told": ([], (displaced(1, 301, sent_digest=""),)),
    "only another one was": (["c6"], (displaced(1, 301, FIRST, sent_digest=""), displaced(2, 301, SECOND))),
    "it has stopped": ([], (displaced(1, 301, applied=99, statuses={}),)),
    "its container is suspected": ([], (displaced(1, 301, presence=SUSPECT),)),
    "it holds two, whose other copies are apart": (
        ["c5"],
        (of_records(FIRST, placed={0: "c4", 1: "c5"}), displaced(1, 301)),
    ),
}


@pytest.mark.parametrize(("names", "changes"), STOPPING.values(), ids=STOPPING)
def test_when_a_displaced_standbys_container_is_given_back(
    whole: ClusterView, names: list[str], changes: tuple[Change, ...]
) -> None:
    found = ended(turned(whole, policy(stop_timeout_ms=300, suspect_grace_ms=90_000), *changes), {})
    said = "did not stop its standby in 300 ms"
    assert [(each.container, each.outcome, each.reason) for each in found] == [
        (each, Outcome.REPLACED, said) for each in names
    ]


EMPTY: Final = (free("c9", "h4", MIXED), free("c8", "h3", MIXED), free("c7", "h1", MIXED))


@pytest.mark.parametrize(
    ("found", "containers"),
    [
        pytest.param([], 5, id="it has as many as it should"),
        pytest.param(["c7"], 4, id="one too many: on the host of another one"),
        pytest.param(["c7", "c9"], 3, id="two too many"),
        pytest.param(["c7", "c8", "c9"], 2, id="all that are empty"),
        pytest.param(["c7", "c8", "c9"], 1, id="more than are empty"),
    ],
)
def test_a_mixed_job_gives_back_no_more_empty_containers_than_it_has_too_many(
    mixed_pair: ClusterView, found: list[str], containers: int
) -> None:
    turn = turned(mixed_pair, *EMPTY, of_model(containers=containers))
    assert sorted(each.container for each in ended(turn, {})) == found


def test_of_empty_containers_of_a_mixed_job_on_one_host_one_stays(mixed_pair: ClusterView) -> None:
    turn = turned(
        mixed_pair,
        of_records(FIRST, placed={}),
        of_records(SECOND, placed={}),
        of_container("c4", host="h1"),
    )
    assert [(each.container, each.outcome) for each in ended(turn, {})] == [("c3", Outcome.SAME_HOST)]
