"""Which containers are requested, where, and in which order hosts are tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests.needs import Need
from appmaster.planning.requests.requests import (
    cell_loads,
    exhausted,
    host_loads,
    is_failing_over,
    placement_question,
    requests,
    spare_loads,
)
from appmaster.planning.state.actions import Action, RequestContainer
from appmaster.planning.state.attempts import Attempts
from appmaster.planning.state.model import SharedSlotId, Slot, SpareSlotId
from appmaster.planning.state.reasons import Loss, Setback, SetbackKind
from appmaster.planning.state.view import (
    Cell,
    CellState,
    ClusterView,
    Failover,
    LostActive,
    Presence,
    RequestKind,
)
from locality.fit import PoolProcess
from locality.hosts import HostInfo
from locality.question import Sibling
from standby.shared.model import Held, Leftover, NodeOffer, ProcessorId, SlotId
from tests.unit.appmaster.planning.views import (
    ANOTHER,
    FIRST,
    ONE,
    PROCESSOR,
    PROCESSORS,
    SECOND,
    SLOT,
    TWO,
    Change,
    a_pool,
    asked_for,
    beside,
    changed,
    drained,
    free,
    of_container,
    of_holder,
    of_model,
    of_records,
    of_view,
    offered,
    policy,
    requested,
    turned,
    unchanged,
    without_container,
)

MIXED, SPARE = SharedSlotId("job", 0), SpareSlotId("job", 0)
ANY, NAMED, PREFERRED, RESERVATION = (
    RequestKind.ANY,
    RequestKind.NAMED,
    RequestKind.PREFERRED,
    RequestKind.RESERVATION,
)


def need(slot: Slot = ONE, **more: Any) -> dict[Slot, dict[str, Any]]:
    """Return what is asked of the container of a slot."""
    return {slot: {"is_active": False, **more}}


def made(turn: Turn, needed: Mapping[Slot, Mapping[str, Any]]) -> list[RequestContainer]:
    job = turn.view.jobs["job"]
    found: list[Action] = [*requests(turn, {slot: Need(slot, job, **each) for slot, each in needed.items()})]
    asked = [each for each in found if isinstance(each, RequestContainer)]
    assert len(asked) == len(found)
    return asked


def slots(turn: Turn, needed: Mapping[Slot, Mapping[str, Any]]) -> list[Slot]:
    return [each.slot for each in made(turn, needed)]


# ---- whether ----


def tried(*slots: Slot, **more: Any) -> Change:
    return of_view(attempts={each: Attempts(**more) for each in slots})


def failing_over(
    since_ms: int = 0, *, lost: bool = False, of: ProcessorId = PROCESSOR, **more: Any
) -> Change:
    """Have a failover, or a lost active, be known for so long."""

    def change(view: ClusterView) -> ClusterView:
        at_ms = view.now_ms - since_ms
        if lost:
            return replace(view, lost_actives={of: LostActive("c4", Loss.SILENT, at_ms)})
        failover = Failover(of, "c4", Loss.SILENT, 1, "c5", at_ms, **more)
        return replace(view, failovers={of: failover})

    return change


def now(ms: int) -> Change:
    return of_view(now_ms=ms)


EXHAUSTED: Final = (policy(retry_count=0), tried(ONE, failures_ms=(1,)))
BACKS_OFF: Final = (now(9), tried(ONE, move_not_before_ms=10))
ACTIVE: Final = {"is_active": True}
RESERVED: Final = {"is_active": True, "is_reservation": True, "preferred": "h4"}
OWN_HOST: Final = {"is_active": True, "only_host": True, "preferred": "h4"}
LAST: Final = (without_container(0), without_container(1), without_container(2))
BOUND: Final = of_container("c9", binding="1-9")

ASKED: Mapping[str, tuple[bool, dict[str, Any], tuple[Change, ...]]] = {
    "it is needed": (True, {}, ()),
    "it is there": (False, {"is_met": True}, ()),
    "it is requested": (False, {}, (requested(ONE, "h4"),)),
    "it has come": (False, {}, (free("c9", "h4", ONE),)),
    "it has come, and is being given its tasks": (False, {}, (free("c9", "h4", ONE), BOUND)),
    "one for another slot has come": (True, {}, (free("c9", "h4", SLOT),)),
    "one has come, but not where the standby is displaced": (True, RESERVED, (free("c9", "h4", ONE),)),
    "it failed too often": (False, {}, EXHAUSTED),
    "it failed, and is tried again later": (False, {}, BACKS_OFF),
    "it failed, and is tried again now": (True, {}, (now(10), tried(ONE, move_not_before_ms=10))),
    "it failed, and the copy is lost": (
        False,
        {},
        (now(9), without_container(1), tried(ONE, not_before_ms=10)),
    ),
    "it failed, and only its own host will do": (True, OWN_HOST, BACKS_OFF),
    "it was refused, though only its own host will do": (
        False,
        OWN_HOST,
        (now(9), tried(ONE, move_not_before_ms=10, last=Setback(SetbackKind.REFUSED, "h4"))),
    ),
    "a failover is under way": (False, {}, (failing_over(),)),
    "a failover is under way, and it is the active's": (False, ACTIVE, (failing_over(),)),
    "a failover is under way, and no other copy lives": (True, ACTIVE, (failing_over(), *LAST)),
    "a failover is under way, and no copy lives, but it is a standby's": (
        False,
        {},
        (failing_over(), *LAST),
    ),
    "a failover is under way, and only its own host will do": (True, OWN_HOST, (failing_over(),)),
    "a failover is under way, and a standby is displaced for it": (True, RESERVED, (failing_over(),)),
}


@pytest.mark.parametrize(("is_so", "asked", "changes"), ASKED.values(), ids=ASKED)
def test_when_a_container_is_requested(
    whole: ClusterView, is_so: bool, asked: dict[str, Any], changes: tuple[Change, ...]
) -> None:
    """What keeps one slot waiting holds up no reservation of another one."""
    second = need(SLOT, is_active=True, is_reservation=True, preferred="h1")
    found = slots(turned(whole, *changes), {**need(ONE, **asked), **second})
    assert found == ([ONE, SLOT] if is_so else [SLOT])


@pytest.mark.parametrize("slot", [MIXED, SPARE])
def test_another_kind_of_container_waits_for_a_failover(whole: ClusterView, slot: Slot) -> None:
    assert slots(turned(whole, failing_over(), *LAST), need(slot, is_active=True)) == []


def test_nothing_is_requested_while_no_cell_answers(whole: ClusterView) -> None:
    lost = of_view(cells={1: Cell(1, "", (), CellState.LOST, 0)})
    assert slots(turned(whole, lost), need()) == []


def test_requests_are_numbered_after_the_turns_decisions(whole: ClusterView) -> None:
    turn = turned(whole, of_view(decisions=20))
    turn.decided = 3
    assert [each.number for each in made(turn, {**need(ONE), **need(TWO)})] == [24, 25]


@pytest.mark.parametrize(
    ("is_so", "change"),
    [
        pytest.param(False, unchanged, id="none"),
        pytest.param(True, failing_over(299), id="one is under way"),
        pytest.param(False, failing_over(300), id="one takes long"),
        pytest.param(False, failing_over(is_planned=True), id="a hand-over is"),
        pytest.param(False, failing_over(of=ProcessorId("other", "main", 0)), id="another job's is"),
        pytest.param(True, failing_over(299, lost=True), id="an active is lost"),
        pytest.param(False, failing_over(300, lost=True), id="it was lost long ago"),
        pytest.param(
            False, failing_over(lost=True, of=ProcessorId("other", "main", 0)), id="another job's is lost"
        ),
        pytest.param(
            False,
            lambda view: changed(view, failing_over(lost=True), policy(restore_delay_ms=300, restarts=True)),
            id="it is lost, and starts again",
        ),
    ],
)
def test_when_lost_copies_wait_for_a_failover(whole: ClusterView, change: Change, *, is_so: bool) -> None:
    view = changed(whole, policy(restore_delay_ms=300), change)
    assert is_failing_over(view, view.jobs["job"]) is is_so


@pytest.mark.parametrize(
    ("is_so", "count", "failures_ms"),
    [
        pytest.param(False, 2, (901, 950), id="as often as it may"),
        pytest.param(True, 2, (901, 950, 960), id="more often"),
        pytest.param(False, 2, (900, 950, 960), id="one of them before the window"),
        pytest.param(True, 0, (950,), id="it may not fail"),
        pytest.param(False, -1, (950,), id="it may fail for ever"),
    ],
)
def test_when_a_slot_has_failed_too_often(
    whole: ClusterView, count: int, failures_ms: tuple[int, ...], *, is_so: bool
) -> None:
    view = changed(whole, now(1_000), policy(retry_count=count, retry_window_ms=100))
    assert exhausted(view, view.jobs["job"], Attempts(failures_ms)) is is_so


# ---- where ----

FULL: Final = of_view(offers=())
NOWHERE: Final = of_view(offers=(), hosts={})


def at(*hosts: str) -> dict[str, Any]:
    return {"locations": frozenset((each, 1) for each in hosts)}


def in_row(count: int) -> Change:
    """Have containers to which the copy was to move have failed."""
    return tried(ONE, moves_in_row=count)


def lost(before: ClusterView) -> ClusterView:
    """Have the copy be lost, after containers to which it was to move and two that were to replace it failed."""
    return changed(
        before, now(9), without_container(1), tried(ONE, in_row=2, moves_in_row=3, move_not_before_ms=10)
    )


EMPTY: Final = ("h4", NAMED, "carries no copies")
RESTART_THERE: Final = ("h4", PREFERRED, "the active was there when it was lost")
UNFIT: Final = (None, ANY, "any host: no named host fits")
WAS_THERE: Final = {FIRST: (Held("h3", 9, 9),), SECOND: (Held("h3", 9, 9),)}

WHERE: Mapping[str, tuple[tuple[str | None, RequestKind, str] | None, dict[str, Any], tuple[Change, ...]]] = {
    "the best of the hosts": (EMPTY, {}, ()),
    "its last host": (("h2", PREFERRED, "is its last host"), {"preferred": "h2"}, ()),
    "a host with its state": (("h3", PREFERRED, "holds its state"), {"histories": WAS_THERE}, ()),
    "a host where its state was found": (
        ("h3", PREFERRED, "(seen on its disk)"),
        {"histories": {FIRST: (), SECOND: ()}},
        (of_holder(2, leftovers=(Leftover(FIRST, "run1", 9),)),),
    ),
    "not beside another copy": (("h3", NAMED, "carries 1 copy"), beside("h1", "h2", "h4"), ()),
    "no host but those of other copies": (UNFIT, beside("h1", "h2", "h3", "h4"), ()),
    "the hosts are full": ((None, ANY, "every host that is known by name is full"), {}, (FULL,)),
    "no host is known": ((None, ANY, "no host is known by name"), {}, (NOWHERE,)),
    "after a failure": (EMPTY, {}, (in_row(1),)),
    "after two": ((None, ANY, "any host, after 2 failed requests"), {}, (in_row(2),)),
    "after three": (EMPTY, {}, (in_row(3),)),
    "after four": ((None, ANY, "any host, after 4 failed requests"), {}, (in_row(4),)),
    "after two, for a lost copy": ((None, ANY, "any host, after 2 failed requests"), {}, (lost,)),
    "a copy that could stay": (("h3", NAMED, "carries 1 copy"), at("h3"), ()),
    "a copy that could stay, after two failures": (("h3", NAMED, "carries 1 copy"), at("h3"), (in_row(2),)),
    "a copy that could stay, and cannot go there": (None, at("h3"), (drained("h3"),)),
    "only its own host": (RESTART_THERE, OWN_HOST, ()),
    "only its own host, after two failures": (RESTART_THERE, OWN_HOST, (in_row(2),)),
    "only its own host, which is drained": (None, OWN_HOST, (drained("h4"),)),
    "only its own host, which is not known": (None, {**OWN_HOST, "preferred": "h9"}, ()),
    "the host of a displaced standby": (
        ("h4", RESERVATION, "the standby there is displaced for it"),
        RESERVED,
        (drained("h4"),),
    ),
}


@pytest.mark.parametrize(("found", "asked", "changes"), WHERE.values(), ids=WHERE)
def test_where_a_container_is_requested(
    whole: ClusterView,
    found: tuple[str | None, RequestKind, str] | None,
    asked: dict[str, Any],
    changes: tuple[Change, ...],
) -> None:
    made_now = made(turned(whole, *changes), need(ONE, **asked))
    if found is None:
        assert made_now == []
        return
    (request,) = made_now
    assert (request.host, request.kind) == found[:2]
    assert found[2] in request.reason


def test_what_is_asked_of_the_container_is_told(whole: ClusterView) -> None:
    (request,) = made(turned(whole), need())
    assert request.demand.tasks == 2


def hosts(turn: Turn, needed: Mapping[Slot, Mapping[str, Any]]) -> list[str | None]:
    return [each.host for each in made(turn, needed)]


def racks(**names: str) -> Change:
    return offered(*(HostInfo(host, rack=rack) for host, rack in names.items()))


def test_two_copies_of_one_processor_are_requested_on_different_hosts(whole: ClusterView) -> None:
    only = offered(HostInfo("h4"), HostInfo("h5"))
    assert hosts(turned(whole, only), {**need(ONE), **need(TWO)}) == ["h4", "h5"]
    assert hosts(turned(whole, offered(HostInfo("h4"))), {**need(ONE), **need(TWO)}) == ["h4", None]


def test_the_rack_of_another_copys_request_counts(whole: ClusterView) -> None:
    there = racks(h4="/a", h5="/a", h6="/b")
    assert hosts(turned(whole, there), {**need(ONE), **need(TWO)}) == ["h4", "h6"]


@pytest.mark.parametrize(
    ("found", "busy", "is_active"),
    [
        pytest.param(["h4", "h5", "h4"], "h9", False, id="each counts"),
        pytest.param(["h4", "h4", "h5"], "h5", False, id="as much as a container that is there"),
        pytest.param(["h5", "h4", "h5"], "h4", False, id="whatever its name"),
        pytest.param(["h4", "h5", "h5"], "h9", True, id="of equal ones that without an active is better"),
    ],
)
def test_what_is_requested_in_the_same_turn_counts_as_load(
    whole: ClusterView, found: list[str], busy: str, is_active: bool
) -> None:
    """One of the hosts has a container already."""
    turn = turned(whole, offered(HostInfo("h4"), HostInfo("h5")), free("c9", busy))
    slots = (MIXED, SharedSlotId("job", 1), SharedSlotId("job", 2))
    needed: dict[Slot, dict[str, Any]] = {each: {"is_active": is_active and each == MIXED} for each in slots}
    assert hosts(turn, needed) == found


def test_what_is_requested_in_the_same_turn_counts_for_a_cell(whole: ClusterView) -> None:
    """No host is known by name, so the cell with fewer of the other copies is asked, then the one with less."""
    up = of_view(cells={each: Cell(each, "", (), CellState.UP, 0) for each in (1, 2)})
    turn = turned(whole, NOWHERE, up, *LAST, free("c9", "h9", cell=2))
    many: dict[Slot, dict[str, Any]] = {SharedSlotId("job", each): {"is_active": False} for each in range(4)}
    assert [each.cell for each in made(turn, many)] == [1, 1, 2, 1]
    second = {"siblings": (Sibling("job/main:0#2", HostInfo("h9", 1)), Sibling("a", HostInfo("h9", 7)))}
    turn = turned(whole, NOWHERE, up, *LAST)
    assert [each.cell for each in made(turn, need(ONE, **second))] == [2]
    (request,) = made(turned(whole, up, *LAST, offered(HostInfo("h4", 2))), need())
    assert (request.host, request.cell) == ("h4", 2)


# ---- loads ----


@pytest.mark.parametrize("asked", [RESERVED, OWN_HOST], ids=["reserved", "its own"])
@pytest.mark.parametrize(
    ("of", "cell"),
    [((2,), 2), ((1, 2), 1), ((1, 3), 1), ((3,), 1), ((), 1)],
    ids=["the cell that has it", "the less loaded one", "that is up", "none that is up", "not known by name"],
)
def test_a_host_is_asked_of_a_cell_that_has_it(
    whole: ClusterView, asked: dict[str, Any], of: tuple[int, ...], cell: int
) -> None:
    """Another one refuses it each time. Cell 1 holds c4, c5 and c6, and cell 2 holds four containers."""
    cells = {each: Cell(each, "", (), CellState.LOST if each == 3 else CellState.UP, 0) for each in (1, 2, 3)}
    offers = tuple(
        HostInfo(host, cell=each) for host, those in (("h4", of), ("h3", (1, 2))) for each in those
    )
    more = (free(f"c{each}", "h9", cell=2) for each in (7, 8, 9, 10))
    (request,) = made(turned(whole, of_view(cells=cells, offers=offers), *more), need(ONE, **asked))
    assert (request.host, request.cell) == ("h4", cell)


TWICE: Final = (asked_for(1, ANOTHER, "h1"), asked_for(2, ANOTHER, "h5"), asked_for(3, ANOTHER, None))


def test_the_load_of_a_host_is_what_is_there_and_requested_there(whole: ClusterView) -> None:
    turn = turned(
        whole,
        free("c7", "h1"),
        *(free("c8", "h4"), of_container("c8", presence=Presence.LEAVING)),
        *(free("c9", ""), of_holder(2, presence=Presence.SUSPECT)),
        of_records(SECOND, active=2),
        *TWICE,
    )
    assert host_loads(turn) == {"h1": (3, 1), "h2": (1, 0), "h3": (1, 1), "h5": (1, 0)}
    assert host_loads(turn, "c4") == {"h1": (2, 0), "h2": (1, 0), "h3": (1, 1), "h5": (1, 0)}


def test_the_load_of_a_host_for_a_spare_container_is_what_that_could_not_take_over(
    three: ClusterView,
) -> None:
    turn = turned(
        three,
        free("c20", "h1"),
        *(free("c21", "h2", SPARE), free("c22", "h7", SPARE), free("c23", "", SPARE)),
        *(free("c24", "h8", SPARE), of_container("c24", presence=Presence.SUSPECT)),
        *(asked_for(1, SPARE, "h2"), asked_for(2, SPARE, None), asked_for(3, ANOTHER, "h9")),
    )
    copies = dict.fromkeys(("h1", "h3", "h4", "h5", "h6"), (2, 0))
    assert spare_loads(turn, turn.view.jobs["job"]) == {**copies, "h2": (2, 2), "h7": (0, 1)}


def test_the_load_of_a_cell_is_what_is_there_and_requested_there(whole: ClusterView) -> None:
    cells = {each: Cell(each, "", (), CellState.LOST if each == 3 else CellState.UP, 0) for each in (1, 2, 3)}
    turn = turned(
        whole,
        of_view(cells=cells),
        *(of_container("c5", cell=2), of_container("c6", presence=Presence.LEAVING)),
        *(asked_for(1, ANOTHER, "h1", cell=2), asked_for(2, ANOTHER, "h1", cell=3)),
    )
    assert cell_loads(turn) == {1: 1, 2: 2}
    assert cell_loads(turn, "c4") == {1: 0, 2: 2}
    assert cell_loads(turned(whole)) == {1: 0}


# ---- the question to the rules ----


def test_what_the_rules_are_asked_about_a_copy(whole: ClusterView) -> None:
    turn = turned(
        whole,
        now(9),
        of_view(avoided={"h1": (10, "down"), "h2": (9, "down")}),
        drained("h3"),
        a_pool(PoolProcess("h4", NodeOffer(tasks=5))),
    )
    job = turn.view.jobs["job"]

    def asked(slot: Slot, *, of_spares: bool = False) -> tuple[object, ...]:
        question = placement_question(turn, Need(slot, job, is_active=False), {}, {}, of_spares=of_spares)
        rests = {host: rest[1] for host, rest in question.rests.items()}
        assert question.drained == {"h3": "by hand"}
        return question.avoided, question.shuns_masters, rests

    assert asked(ONE) == ({"h1": "down"}, True, {"h4": 3})
    assert asked(ONE, of_spares=True) == ({}, True, {})
    assert asked(MIXED) == ({"h1": "down"}, False, {"h4": 4})
    assert asked(SPARE) == ({"h1": "down"}, False, {})


# ---- in a pool ----


def pool(*there: str, tasks: int = 0) -> Change:
    """Have a process wait on each of these hosts, which can be requested."""
    names = dict.fromkeys(there)
    return lambda view: changed(
        view,
        a_pool(*(PoolProcess(each, NodeOffer(tasks=tasks)) for each in there)),
        offered(*(HostInfo(each) for each in names)),
    )


EACH: Final = "so that each copy finds a process on a host of its own"


def claimed(
    turn: Turn, needed: Mapping[Slot, Mapping[str, Any]]
) -> dict[str, tuple[str | None, RequestKind]]:
    return {str(each.slot): (each.host, each.kind) for each in made(turn, needed)}


CLAIMS: Mapping[str, tuple[str | None, RequestKind, dict[str, Any], tuple[Change, ...]]] = {
    "the best of what waits": ("h4", NAMED, {}, (pool("h1", "h4"),)),
    "its last host": ("h1", PREFERRED, {"preferred": "h1"}, (pool("h1", "h4"),)),
    "not beside another copy": ("h1", NAMED, beside("h4"), (pool("h1", "h4"),)),
    "nothing else": (None, NAMED, beside("h1", "h4"), (pool("h1", "h4"),)),
    "what is large enough": (None, NAMED, {}, (pool("h4", tasks=1),)),
    "not what is requested for another": (None, NAMED, {}, (pool("h4"), requested(ANOTHER, "h4"))),
    "where it is of use": ("h1", NAMED, at("h1"), (pool("h1", "h4"),)),
    "where it is of use, in this cell": (None, NAMED, {"locations": frozenset({("h4", 2)})}, (pool("h4"),)),
    "not on a host that is avoided": (
        "h1",
        NAMED,
        {},
        (pool("h1", "h4"), now(9), of_view(avoided={"h4": (10, "down")})),
    ),
    "on a host that is avoided if there is no other": (
        "h4",
        NAMED,
        {},
        (pool("h4"), now(9), of_view(avoided={"h4": (10, "down")})),
    ),
    "the host of a displaced standby": ("h4", RESERVATION, RESERVED, (pool("h1"),)),
    "only its own host": ("h4", PREFERRED, OWN_HOST, (pool("h1", "h4"),)),
    "after two failures": ("h4", NAMED, {}, (pool("h4"), in_row(2))),
}


@pytest.mark.parametrize(("host", "kind", "asked", "changes"), CLAIMS.values(), ids=CLAIMS)
def test_which_process_is_claimed(
    whole: ClusterView,
    host: str | None,
    kind: RequestKind,
    asked: dict[str, Any],
    changes: tuple[Change, ...],
) -> None:
    found = claimed(turned(whole, *changes), need(ONE, **asked))
    assert found == ({} if host is None else {str(ONE): (host, kind)})


def test_a_reserved_process_is_claimed_by_no_other(whole: ClusterView) -> None:
    turn = turned(whole, pool("h1", "h4"))
    other = {**need(SLOT, **RESERVED), **need(SpareSlotId("job", 0), **beside("h1"))}
    assert hosts(turn, other) == ["h4"]


def test_another_need_is_given_another_process_for_one_that_finds_none(three: ClusterView) -> None:
    """Processor 0 would have h7, and so would processor 1, which cannot have h8."""
    turn = turned(three, pool("h7", "h8"))
    first, second = (SlotId(PROCESSORS[each], 1) for each in (0, 1))
    found = made(turn, {**need(first), **need(second, **beside("h8"))})
    assert [(each.slot, each.host, each.kind, each.reason) for each in found] == [
        (first, "h8", NAMED, EACH),
        (second, "h7", NAMED, EACH),
    ]


def test_a_copy_that_could_stay_gives_way_to_none(three: ClusterView) -> None:
    turn = turned(three, pool("h7", "h8"))
    first, second = (SlotId(PROCESSORS[each], 1) for each in (0, 1))
    assert hosts(turn, {**need(first, **at("h7", "h8")), **need(second, **beside("h8"))}) == ["h7"]
    assert hosts(turn, {**need(second), **need(first, **at("h7"))}) == ["h7"]


def of_tasks(**counts: int) -> Change:
    """Have processors have so many tasks."""

    def change(view: ClusterView) -> ClusterView:
        processors = dict(view.jobs["job"].model.processors)
        for each, (processor, found) in zip(counts.values(), [*processors.items()], strict=True):
            processors[processor] = replace(found, tasks=found.tasks[:each])
        return of_model(processors=processors)(view)

    return change


@pytest.mark.parametrize(
    ("found", "left", "gets", "busy"),
    [
        pytest.param("h5", "h5", "h6", "h7", id="where it was, another has come"),
        pytest.param("h5", "h7", "h6", "h5", id="where it was, there is no less than one"),
        pytest.param("h6", "h5", "h6", "h7", id="where it is now, there is one"),
        pytest.param("h6", "h5", "h7", "h6", id="where it is now, there is no less than one"),
    ],
)
def test_the_load_follows_a_need_that_is_given_another_process(
    three: ClusterView, found: str, left: str, gets: str, busy: str
) -> None:
    """The last need is for one task, and can use the host with a container, or the other one that is in question."""
    sizes = {left: (1, 2), gets: (1, 2), busy: (1,)}
    there = a_pool(*(PoolProcess(host, NodeOffer(tasks=n)) for host, all_n in sizes.items() for n in all_n))
    turn = turned(
        three,
        of_view(containers={}),
        free("c20", busy),
        there,
        offered(*map(HostInfo, sizes)),
        of_tasks(a=2, b=2, c=1),
    )
    first, second, third = (SlotId(PROCESSORS[each], 1) for each in (0, 1, 2))
    closed = gets if found == left or busy == "h5" else left
    needed = {
        **need(first, preferred=left),
        **need(second, **beside(gets, busy)),
        **need(third, **beside(closed)),
    }
    assert hosts(turn, needed) == [gets, left, found]


def test_a_need_that_keeps_its_host_keeps_its_reason(three: ClusterView) -> None:
    """It gets the smaller process on h7, which another one leaves for h8."""
    there = a_pool(*(PoolProcess(host, NodeOffer(tasks=n)) for host, n in (("h7", 1), ("h7", 2), ("h8", 1))))
    turn = turned(three, of_tasks(a=1, b=1, c=2), there, offered(HostInfo("h7"), HostInfo("h8")))
    first, second, third = (SlotId(PROCESSORS[each], 1) for each in (0, 1, 2))
    needed = {**need(first, preferred="h7"), **need(second, preferred="h7", **beside("h8")), **need(third)}
    found = made(turn, needed)
    assert [(each.host, each.kind) for each in found] == [("h8", NAMED), ("h7", PREFERRED), ("h7", NAMED)]


# ---- containers of mixed jobs, and spare ones, in a pool ----


def shared(*numbers: int, **more: Any) -> dict[Slot, dict[str, Any]]:
    return {SharedSlotId("job", each): {"is_active": False, **more} for each in numbers}


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        pytest.param(["h7", "h8"], (pool("h7", "h7", "h8"),), id="each to another"),
        pytest.param(["h7"], (pool("h7", "h7"),), id="none beside one that is requested"),
        pytest.param(["h8"], (pool("h7", "h8"), asked_for(1, SharedSlotId("job", 9), "h7")), id="or was"),
        pytest.param(
            ["h8", "h7"], (pool("h7", "h8"), free("c9", "h7", SharedSlotId("job", 9))), id="or is there"
        ),
        pytest.param(
            ["h7", "h7"],
            (pool("h7", "h7"), *(free(f"c{n}", f"h{n}", SharedSlotId("job", n)) for n in (8, 9))),
            id="beside another once there are as many hosts as copies",
        ),
    ],
)
def test_on_which_hosts_processes_are_claimed_for_a_mixed_job(
    mixed_pair: ClusterView, found: list[str], changes: tuple[Change, ...]
) -> None:
    turn = turned(mixed_pair, of_view(containers={}), *changes)
    assert hosts(turn, shared(5, 6)) == found


def test_spare_containers_share_hosts(whole: ClusterView) -> None:
    turn = turned(whole, pool("h7", "h7"))
    assert hosts(turn, {**need(SPARE), **need(SpareSlotId("job", 1))}) == ["h7", "h7"]


def test_spare_containers_go_where_they_can_take_over_most(whole: ClusterView) -> None:
    """First where no copy is; of equal hosts to the one with fewer spares, of which h8 has one."""
    turn = turned(whole, pool("h1", "h7", "h7", "h7", "h8"), free("c9", "h8", SpareSlotId("job", 9)))
    four: dict[Slot, dict[str, Any]] = {SpareSlotId("job", each): {"is_active": False} for each in range(4)}
    assert hosts(turn, four) == ["h7", "h7", "h8", "h7"]
    assert hosts(turned(whole, pool("h1", "h7")), {**need(SPARE), **need(SpareSlotId("job", 1))}) == [
        "h7",
        "h1",
    ]
