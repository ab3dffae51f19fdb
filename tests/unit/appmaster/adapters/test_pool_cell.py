"""The connection to a pool: what is claimed for what, what is given back, and what the leader hears of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appmaster.adapters.pool import (
    MOST_QUIET_SECONDS,
    QUIET_SECONDS,
    RESTART_SECONDS,
    RETURN_SECONDS,
    PoolCell,
)
from appmaster.planning.state import events as happened
from locality.fit import Demand
from standby.shared.model import NodeOffer
from standby.shared.naming import POOL
from standby.shared.wire import PROTOCOL
from tests.fakes.clock import HandClock, held
from tests.fakes.pool import MemoryPool, waiting


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool()


@pytest.fixture
def events() -> list[object]:
    return []


@pytest.fixture
def clock() -> HandClock:
    return held("MainThread")


@pytest.fixture
def cell(pool: MemoryPool, events: list[object], clock: HandClock) -> Iterator[PoolCell]:
    made = PoolCell(1, pool, events.append, clock)
    yield made
    made.close()


def turn(cell: PoolCell) -> None:
    """Have the connection's thread go round once."""
    cell._worker.wake()
    cell._turn()


def request(cell: PoolCell, number: int, host: str | None) -> None:
    cell.request(number, host)
    turn(cell)


def granted(events: list[object]) -> list[str]:
    return [each.skein_id for each in events if isinstance(each, happened.ContainerGranted)]


def claims(pool: MemoryPool) -> dict[str, str]:
    """Return the claimed processes, and what for."""
    return {name: each.record.claim for name, each in pool.members.items() if each.record.claim}


def test_a_request_claims_a_process_that_waits_on_its_host(
    cell: PoolCell, pool: MemoryPool, events: list[object]
) -> None:
    pool.join(waiting("h1", "a"))
    mine = pool.join(waiting("h2", "b"))
    cell.connect()
    assert (cell.hosts, cell.full, cell.expected()) == (("h1", "h2"), frozenset(), ())
    request(cell, 5, "h2")
    assert claims(pool) == {mine: "1-5"}
    placed, given, found = events
    assert placed == happened.RequestPlaced(5, "pool/1-5")
    assert isinstance(given, happened.ContainerGranted)
    assert given.skein_id == "pool/1-5"
    assert isinstance(found, happened.CellFound)
    assert (found.cell, found.attempt, found.hosts) == (1, POOL, ("h1", "h2"))
    assert found.full == {"h2"}, "nothing waits there any more"


def test_a_request_without_a_process_waits_for_one_to_come(
    cell: PoolCell, pool: MemoryPool, events: list[object]
) -> None:
    pool.join(waiting("h1", "a"))
    cell.connect()
    request(cell, 1, "h2")
    request(cell, 2, "h2")
    assert not granted(events)
    later = pool.join(waiting("h2", "b"))
    turn(cell)
    assert granted(events) == ["pool/1-1"], "the oldest one first"
    assert claims(pool) == {later: "1-1"}


def test_a_request_for_any_host_claims_where_the_fewest_are_claimed(cell: PoolCell, pool: MemoryPool) -> None:
    for host, unique in (("h1", "a"), ("h1", "b"), ("h2", "c")):
        pool.join(waiting(host, unique))
    cell.connect()
    request(cell, 1, "h1")
    request(cell, 2, None)
    assert sorted(claims(pool).values()) == ["1-1", "1-2"]
    assert {pool.members[each].record.host for each in claims(pool)} == {"h1", "h2"}


@pytest.mark.parametrize("host", [None, "h1"])
def test_the_smallest_process_that_fits_is_claimed_wherever_fewest_are(
    cell: PoolCell, pool: MemoryPool, events: list[object], host: str | None
) -> None:
    offers = (
        NodeOffer(),
        NodeOffer("gpu"),
        NodeOffer("gpu", 8_192),
        NodeOffer("gpu", 4_096),
        NodeOffer("gpu", 512),
    )
    names = [pool.join(waiting("h1", f"p{at}", offer=each)) for at, each in enumerate(offers)]
    cell.connect()
    demand = Demand("flights", "gpu", 1_024)
    for number in range(1, 5):
        cell.request(number, host, demand)
    turn(cell)
    assert claims(pool) == {names[3]: "1-1", names[2]: "1-2", names[1]: "1-3"}
    assert pool.members[names[3]].record.job == "flights"
    given = [each.offer for each in events if isinstance(each, happened.ContainerGranted)]
    assert given == [offers[3], offers[2], offers[1]]
    (found,) = (each for each in events if isinstance(each, happened.CellFound))
    assert [(each.offer, each.is_free) for each in found.processes] == [
        (each, each in (offers[0], offers[4])) for each in offers
    ]
    later_offer = NodeOffer("gpu", 1_024)
    later = pool.join(waiting("h1", "q", offer=later_offer))
    turn(cell)
    assert claims(pool)[later] == "1-4", "it has waited for one that fits"
    successor = PoolCell(1, pool, events.append, held("MainThread"))
    successor.connect()
    assert [each.offer for each in successor.expected()] == [offers[1], offers[2], offers[3], later_offer]


def test_a_process_of_another_protocol_is_not_claimed_and_named(
    cell: PoolCell, pool: MemoryPool, events: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    old = pool.join(waiting("h1", "old", protocol=PROTOCOL - 1))
    cell.connect()
    assert cell.full == {"h1"}
    assert f"standfast 0.1.0 (protocol {PROTOCOL - 1}) on h1" in cell.note
    request(cell, 1, None)
    turn(cell)
    assert not claims(pool)
    assert [each.getMessage() for each in caplog.records] == [f"processes are {cell.note}"]
    pool.leave(old)
    turn(cell)
    found = events[-1]
    assert isinstance(found, happened.CellFound)
    assert not found.note


def test_a_new_leader_expects_what_was_claimed_and_not_given_back(
    cell: PoolCell, pool: MemoryPool, events: list[object]
) -> None:
    first, second = (pool.join(waiting(f"h{each}", "a")) for each in (1, 2))
    cell.connect()
    request(cell, 1, "h1")
    request(cell, 2, "h2")
    cell.release("pool/1-2")
    turn(cell)
    assert pool.members[second].record.is_released
    pool.epoch = 2
    successor = PoolCell(1, pool, events.append, held("MainThread"))
    successor.connect()
    found = successor.expected()
    assert [(each.container, each.skein_id, each.host, each.attempt) for each in found] == [
        (first, "pool/1-1", "h1", POOL)
    ]
    events.clear()
    request(successor, 1, None)
    assert events == [happened.RequestPlaced(1, "pool/2-1")], "neither claims anything again"


def test_what_is_given_back_is_owed_until_it_is_recorded(
    cell: PoolCell, pool: MemoryPool, clock: HandClock
) -> None:
    mine = pool.join(waiting("h1", "a"))
    cell.connect()
    request(cell, 1, "h1")
    pool.is_away = True
    assert cell.release("pool/1-1")
    turn(cell)
    assert cell.owed == {"pool/1-1"}
    pool.is_away = False
    turn(cell)
    assert pool.members[mine].record.is_released
    assert not cell.owed
    assert not cell.release("a1_01/s_0"), "that is a container of YARN"


def test_a_request_that_was_withdrawn_claims_nothing_later(cell: PoolCell, pool: MemoryPool) -> None:
    pool.join(waiting("h1", "a"))
    cell.connect()
    request(cell, 1, "h2")
    cell.release("pool/1-1")
    pool.join(waiting("h2", "b"))
    turn(cell)
    assert not claims(pool)
    assert not cell.owed


def test_a_request_that_is_withdrawn_while_a_process_is_claimed_for_it_gives_that_one_back(
    cell: PoolCell, pool: MemoryPool
) -> None:
    pool.join(waiting("h1", "a"))
    cell.connect()
    request(cell, 1, "h2")
    pool.meanwhile = lambda: cell.release("pool/1-1")
    mine = pool.join(waiting("h2", "b"))
    turn(cell)
    assert claims(pool) == {mine: "1-1"}
    turn(cell)
    assert pool.members[mine].record.is_released
    assert not cell.owed


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_a_claim_of_unknown_outcome_is_read_back_and_never_made_twice(
    cell: PoolCell, pool: MemoryPool, events: list[object], *, is_withdrawn: bool
) -> None:
    for each in "ab":
        pool.join(waiting("h1", each))
    cell.connect()
    pool.lost_answers = 1
    request(cell, 1, "h1")
    (mine,) = claims(pool)
    assert not granted(events)
    if is_withdrawn:
        cell.release("pool/1-1")
    turn(cell)
    assert list(claims(pool)) == [mine]
    assert granted(events) == ([] if is_withdrawn else ["pool/1-1"])
    assert pool.members[mine].record.is_released is is_withdrawn
    assert not cell.owed


@pytest.mark.parametrize("comes_back", ["with its claim", "too late", "never"])
def test_a_process_that_is_away_when_its_claim_is_read_back_is_waited_for_before_another_is_claimed(
    cell: PoolCell, pool: MemoryPool, events: list[object], clock: HandClock, comes_back: str
) -> None:
    for each in "ab":
        pool.join(waiting("h1", each))
    cell.connect()
    pool.lost_answers = 1
    request(cell, 1, None)
    (mine,) = claims(pool)
    record = pool.end_session(mine)
    turn(cell)
    assert not claims(pool), "it may come back with its claim"
    if comes_back != "with its claim":
        events.clear()
        clock.advance(RETURN_SECONDS)
        turn(cell)
        (ended,) = events
        assert isinstance(ended, happened.ContainerUnregistered)
        assert ended.skein_id == "pool/1-1", "the request has ended, and the next one has another claim"
    if comes_back != "never":
        pool.join(record)
        turn(cell)
    assert granted(events) == (["pool/1-1"] if comes_back == "with its claim" else [])
    assert list(claims(pool)) == ([] if comes_back == "never" else [mine])
    request(cell, 2, None)
    assert len(claims(pool)) == len(set(claims(pool).values())), "no two have the same claim"


def test_a_process_that_had_to_register_again_can_be_claimed_and_given_back(
    cell: PoolCell, pool: MemoryPool
) -> None:
    mine = pool.join(waiting("h1", "a"))
    cell.connect()
    request(cell, 1, "h1")
    pool.rejoin(mine)
    cell.release("pool/1-1")
    turn(cell)
    turn(cell)
    assert pool.members[mine].record.is_released


def test_the_end_of_a_claimed_process_is_posted_and_its_host_has_room_until_another_is_started(
    cell: PoolCell, pool: MemoryPool, events: list[object], clock: HandClock
) -> None:
    mine = pool.join(waiting("h1", "a"))
    free = pool.join(waiting("h2", "a"))
    cell.connect()
    request(cell, 1, "h1")
    assert cell.full == {"h1"}
    events.clear()
    pool.leave(free)
    pool.leave(mine)
    turn(cell)
    ended, found = events
    assert isinstance(ended, happened.ContainerUnregistered)
    assert (ended.container, ended.skein_id) == (mine, "pool/1-1")
    assert isinstance(found, happened.CellFound)
    assert (found.hosts, found.full) == (("h1", "h2"), frozenset())
    pool.join(waiting("h1", "b"))
    clock.advance(RESTART_SECONDS)
    turn(cell)
    assert (cell.hosts, cell.full) == (("h1",), frozenset())


@pytest.mark.parametrize("is_successor", [False, True])
def test_a_process_that_is_given_back_makes_room_for_as_long_as_another_takes_to_start(
    cell: PoolCell, pool: MemoryPool, events: list[object], clock: HandClock, *, is_successor: bool
) -> None:
    """One that is dead stays registered until its session ends, and its node may be dead, too."""

    def has_room() -> bool:
        turn(cell)
        assert [each.is_free for each in cell.processes] == [not cell.full]
        return not cell.full

    mine = pool.join(waiting("h1", "a"))
    cell.connect()
    request(cell, 1, "h1")
    assert not has_room()
    cell.release("pool/1-1")
    turn(cell)
    if is_successor:
        cell = PoolCell(1, pool, events.append, clock)
        cell.connect()
    assert has_room()
    clock.advance(RESTART_SECONDS)
    assert not has_room()
    pool.leave(mine)
    assert has_room()


def test_a_deposed_leader_claims_nothing(cell: PoolCell, pool: MemoryPool, events: list[object]) -> None:
    pool.join(waiting("h1", "a"))
    cell.connect()
    pool.is_deposed = True
    request(cell, 1, "h1")
    assert not claims(pool)
    assert not granted(events)
    assert cell._worker.is_closed


@pytest.mark.parametrize(
    ("first", "comes_every", "waits"),
    [
        pytest.param(0, None, QUIET_SECONDS, id="one is there already"),
        pytest.param(20, None, QUIET_SECONDS, id="no other comes"),
        pytest.param(20, QUIET_SECONDS - 1, MOST_QUIET_SECONDS, id="others come all the time"),
    ],
)
def test_a_new_pool_is_used_once_it_is_quiet(
    pool: MemoryPool, events: list[object], first: float, comes_every: float | None, waits: float
) -> None:
    clock = held("MainThread")
    came: list[float] = []

    def join(unique: str) -> None:
        came.append(clock.monotonic())
        pool.join(waiting("h1", unique))
        if comes_every is not None:
            clock.later(comes_every, lambda: join(f"{unique}x"))

    if first:
        clock.later(first, lambda: join("a"))
    else:
        join("a")
    cell = PoolCell(1, pool, events.append, clock)
    cell.connect()
    assert clock.monotonic() - came[0] == pytest.approx(waits, abs=1)
    assert len(pool.members) == (1 if comes_every is None else len(came))


def test_a_pool_that_ended_and_comes_back_is_used_once_it_is_quiet_or_as_large_as_before(
    cell: PoolCell, pool: MemoryPool, clock: HandClock
) -> None:
    def start(*uniques: str) -> None:
        for number, each in enumerate(uniques, start=1):
            pool.join(waiting(f"h{number}", each))

    def end_all() -> None:
        for each in list(pool.members):
            pool.leave(each)
        turn(cell)

    start("a", "a", "a")
    cell.connect()
    request(cell, 1, "h1")
    assert claims(pool)
    end_all()
    request(cell, 2, None)
    start("b", "b")
    turn(cell)
    assert not claims(pool), "the third is still to come"
    pool.join(waiting("h3", "b"))
    turn(cell)
    assert claims(pool)
    end_all()
    request(cell, 3, None)
    start("c", "c")
    turn(cell)
    clock.advance(QUIET_SECONDS)
    turn(cell)
    assert claims(pool), "the third does not come"
    end_all()
    request(cell, 4, None)
    start("d", "d")
    turn(cell)
    assert claims(pool), "there are no more"


def test_a_pool_that_cannot_be_read_is_not_lost_but_read_again(
    pool: MemoryPool, events: list[object], clock: HandClock
) -> None:
    pool.join(waiting("h1", "a"))
    pool.is_away = True

    def return_() -> None:
        pool.is_away = False

    clock.later(60, return_)
    cell = PoolCell(1, pool, events.append, clock)
    cell.connect()
    assert cell.hosts == ("h1",)
    assert not events


@pytest.mark.parametrize("trouble", ["is_away", "is_closed"])
def test_a_pool_that_could_not_be_read_for_a_while_is_followed_again_and_the_trouble_is_logged_once(
    cell: PoolCell, pool: MemoryPool, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    pool.join(waiting("h1", "a"))
    cell.connect()
    setattr(pool, trouble, True)
    pool.join(waiting("h2", "b"))
    turn(cell)
    turn(cell)
    setattr(pool, trouble, False)
    turn(cell)
    assert cell.hosts == ("h1", "h2")
    assert ["cannot be read" in each.getMessage() for each in caplog.records].count(True) == 1
