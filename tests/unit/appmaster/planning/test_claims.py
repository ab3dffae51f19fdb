"""Which processes of a pool the needs of one turn get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from appmaster.planning.placement.turn import Turn
from appmaster.planning.requests.claims import PoolClaims, ProcessClaim
from appmaster.planning.state.model import SharedSlotId, Slot
from appmaster.planning.state.view import ClusterView, ContainerRequest, RequestKind, RequestState
from locality.fit import ANY, Demand, PoolProcess
from standby.shared.model import NodeOffer, ProcessorId, SlotId
from tests.unit.appmaster.planning.views import PROCESSOR, SLOT, Change, a_pool, changed, of_view

#: Needs by number.
A, B, C, D = (SharedSlotId("job", each) for each in range(4))

ONE, TWO = Demand(tasks=1), Demand(tasks=2)


def process(host: str, tasks: int = 0, **more: Any) -> PoolProcess:
    return PoolProcess(host, NodeOffer(tasks=tasks), **more)


def claims(*processes: PoolProcess) -> PoolClaims:
    """Return the claims on these processes."""
    return PoolClaims(Turn(ClusterView()), processes)


def claim(slot: Slot, *hosts: str, demand: Demand = ANY, **more: Any) -> ProcessClaim:
    return ProcessClaim(slot, demand, hosts=hosts, **more)


def hosts_left(found: PoolClaims, tasks: int = 1) -> set[str]:
    return found.hosts(Demand(tasks=tasks))


# ---- what there is ----


def of_view_with(view: ClusterView, *changes: Change) -> PoolClaims:
    """Return the claims on a pool with processes of one and of four tasks on h1, and another on h2."""
    pool = a_pool(process("h1", 1), process("h1", 4), process("h2", 4))
    return PoolClaims(Turn(changed(view, pool, *changes)))


def test_a_process_that_does_not_wait_cannot_be_had() -> None:
    pool = a_pool(process("h1"), process("h2", is_free=False), process("h3", is_foreign=True))
    found = PoolClaims(Turn(changed(ClusterView(), pool)))
    assert found.is_pool
    assert found.hosts(ANY) == {"h1"}
    assert found.hosts(Demand(group="gpu")) == set()


def test_there_is_none_on_yarn() -> None:
    found = PoolClaims(Turn(ClusterView()))
    assert not found.is_pool
    assert found.hosts(ANY) == set()
    assert not found.place(claim(A, "h1"))


def under_way(slot: Slot, host: str | None, state: RequestState = RequestState.WAITING) -> Change:
    return of_view(requests={1: ContainerRequest(1, slot, host, RequestKind.NAMED, state, 0)})


GONE: Final = SlotId(ProcessorId("job", "main", 9), 0)
OTHER: Final = SlotId(ProcessorId("other", "main", 0), 0)


def test_what_is_requested_already_gets_the_process_that_fits_best(whole: ClusterView) -> None:
    cases: Mapping[str, tuple[str, str, Change]] = {
        "any host": ("h1 h2", "h1 h2", under_way(SLOT, None)),
        "of two tasks": ("h1 h2", "h2", under_way(SLOT, "h1")),
        "just asked for": ("h1", "h1", under_way(SLOT, "h2", RequestState.ASKING)),
        "granted": ("h1 h2", "h1 h2", under_way(SLOT, "h1", RequestState.GRANTED)),
        "none is there": ("h1 h2", "h1 h2", under_way(SLOT, "h9")),
        "of no tasks any more": ("h1 h2", "h1 h2", under_way(GONE, "h1")),
        "of a job that is gone": ("h1 h2", "h1 h2", under_way(OTHER, "h1")),
        "of a mixed job": ("h1 h2", "h1 h2", under_way(A, "h1")),
    }
    for case, (ones, fours, change) in cases.items():
        found = of_view_with(whole, change)
        assert hosts_left(found) == {*ones.split()}, case
        assert hosts_left(found, 4) == {*fours.split()}, case


def test_what_is_requested_already_stays_where_it_is(whole: ClusterView) -> None:
    found = of_view_with(whole, under_way(SLOT, "h2"))
    assert not found.place(claim(A, "h2", demand=ONE))


@pytest.mark.parametrize("pool", [a_pool(process("h1")), of_view()])
def test_requests_get_none_of_what_there_is_in_place_of_a_pool(whole: ClusterView, pool: Change) -> None:
    found = PoolClaims(Turn(changed(whole, pool, under_way(SLOT, "h1"))), [process("h1")])
    assert found.hosts(ANY) == {"h1"}


# ---- a need on a host ----


def test_a_need_gets_the_smallest_process_of_a_host_that_fits() -> None:
    found = claims(process("h1", 4), process("h1", 2), process("h1", 1))
    found.take(claim(A, demand=TWO), "h1")
    assert hosts_left(found, 2) == {"h1"}
    found.take(claim(B, demand=TWO), "h1")
    assert hosts_left(found, 2) == set()
    found.take(claim(C, demand=TWO), "h1")
    assert hosts_left(found, 1) == {"h1"}


def test_a_need_gets_nothing_on_a_host_without_a_process() -> None:
    found = claims(process("h1"))
    found.take(claim(A), "h2")
    assert found.hosts(ANY) == {"h1"}


# ---- a need on any of its hosts ----


def placed(found: PoolClaims, *wanted: ProcessClaim) -> list[bool]:
    return [found.place(each) for each in wanted]


def test_a_need_gets_only_what_fits_on_one_of_its_hosts() -> None:
    found = claims(process("h1", 1), process("h2", 2), process("h3", 2))
    assert placed(found, claim(A, "h1", "h2", demand=TWO)) == [True]
    assert hosts_left(found) == {"h1", "h3"}
    assert placed(found, claim(B, "h1", demand=TWO), claim(B, "h9", demand=TWO)) == [False, False]


OWNED: Final[dict[str, Any]] = {"owner": PROCESSOR}


def test_only_needs_of_one_owner_go_to_different_hosts() -> None:
    cases: Mapping[str, tuple[dict[str, Any], bool]] = {
        "of one processor": (OWNED, False),
        "of another": ({"owner": GONE.processor}, True),
        "of none": ({}, True),
    }
    for case, (owner, is_placed) in cases.items():
        found = claims(process("h1"), process("h1"))
        assert placed(found, claim(A, "h1", **OWNED), claim(B, "h1", **owner)) == [True, is_placed], case


def test_another_need_gets_another_process_in_favour_of_one_that_finds_none() -> None:
    found = claims(process("h1"), process("h2"))
    assert placed(found, claim(A, "h1", "h2"), claim(B, "h1")) == [True, True]
    assert found.holder_of(0) == B
    assert found.holder_of(1) == A


def moved(found: PoolClaims, *, stays: bool = False) -> dict[Slot, str]:
    """Have a need that can only use h1 come after one that has a process there and can use h1 or h2."""
    found.take(claim(A, "h1", "h2", may_move=not stays), "h1")
    return found.make_room(claim(B, "h1"))


def test_who_gets_another_process_is_told_with_its_host() -> None:
    assert moved(claims(process("h1"), process("h2"))) == {A: "h2", B: "h1"}


def test_a_need_that_is_to_stay_stays() -> None:
    assert moved(claims(process("h1"), process("h2")), stays=True) == {}


def test_nothing_moves_if_that_is_of_no_use() -> None:
    found = claims(process("h1"), process("h3"))
    assert moved(found) == {}
    assert found.holder_of(0) == A


def test_the_shortest_way_is_taken() -> None:
    """The longer one would be over h2 and h3 to h4."""
    found = claims(*(process(each) for each in ("h1", "h2", "h3", "h4")))
    found.take(claim(A, "h1", "h2", "h3"), "h1")
    found.take(claim(B, "h2", "h4"), "h2")
    assert found.make_room(claim(C, "h1")) == {A: "h3", C: "h1"}


def test_a_way_over_several_needs_is_found() -> None:
    found = claims(*(process(each) for each in ("h1", "h2", "h3", "h4")))
    found.take(claim(A, "h1", "h2"), "h1")
    found.take(claim(B, "h2", "h3"), "h2")
    assert found.make_room(claim(C, "h1")) == {B: "h3", A: "h2", C: "h1"}


def test_needs_that_are_out_of_reach_do_not_hide_others() -> None:
    """What the first one that finds none can reach is not looked at again; what lies beside it is."""
    found = claims(process("h1"), process("h2"), process("h3"))
    assert placed(found, claim(A, "h1"), claim(B, "h1"), claim(C, "h2", "h3"), claim(D, "h1", "h2")) == [
        True,
        False,
        True,
        True,
    ]


def test_a_process_more_brings_what_was_out_of_reach_within_reach() -> None:
    found = claims(process("h1"))
    wanted = (claim(A, "h1", "h2"), claim(B, "h1"))
    assert placed(found, *wanted) == [True, False]
    number = found.add(process("h2"))
    assert found.holder_of(number) is None
    assert placed(found, wanted[1]) == [True]
    assert found.holder_of(number) == A


def test_a_process_may_be_added_that_a_need_has_already() -> None:
    found = claims(process("h2"))
    number = found.add(process("h1"), claim(A, "h1", "h2"))
    assert number == 1
    assert found.holder_of(number) == A
    assert found.make_room(claim(B, "h1")) == {A: "h2", B: "h1"}


# ---- processes of several sizes ----


def test_a_need_may_get_another_process_of_its_own_host() -> None:
    """The smaller one there was in use by another need, which can go elsewhere."""
    found = claims(process("h1", 2), process("h1", 1), process("h2", 1))
    found.take(claim(A, "h1", "h2", demand=ONE), "h1")
    found.take(claim(B, "h1", demand=ONE, **OWNED), "h1")
    assert found.make_room(claim(C, "h1", demand=TWO)) == {A: "h2", B: "h1", C: "h1"}


def test_needs_of_one_owner_do_not_come_to_one_host_by_moving() -> None:
    """The way over h2 would lead back to h1, where the process that is free is too small for the first need."""
    found = claims(process("h1", 2), process("h1", 1), process("h2", 2))
    found.take(claim(A, "h2", demand=TWO), "h1")
    found.take(claim(B, "h1", demand=ONE, **OWNED), "h2")
    assert found.make_room(claim(C, "h1", demand=TWO, **OWNED)) == {}


def test_one_of_a_processors_needs_that_cannot_move_does_not_keep_the_other_from_it() -> None:
    found = claims(process("h1", 2), process("h2", 2), process("h2", 1))
    found.add(process("h1", 2), claim(A, "h1", demand=ONE, **OWNED))
    found.add(process("h2", 2), claim(B, "h2", demand=ONE, **OWNED))
    found.take(claim(C, may_move=False, demand=TWO), "h1")
    found.take(claim(D, may_move=False, demand=TWO), "h2")
    e = claim(SLOT, "h1", "h2", demand=TWO)
    assert found.make_room(e) == {B: "h2", SLOT: "h2"}
