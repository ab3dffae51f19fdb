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
from tests.fakes.clock import held
from tests.fakes.pool import MemoryPool, waiting


class Lab:
    """A pool, a leader's connection to it, and what the leader hears, in time that a test moves."""

    def __init__(self) -> None:
        self.pool = MemoryPool()
        self.events: list[object] = []
        self.clock = held("MainThread")
        self.cell = self.successor()

    def successor(self) -> PoolCell:
        """Return the connection of a further leader."""
        return PoolCell(1, self.pool, self.events.append, self.clock)

    def join(self, host: str = "h1", unique: str = "a") -> str:
        """Have a process of the pool wait, and return its name."""
        return self.pool.join(waiting(host, unique))

    def turn(self) -> None:
        """Have the connection's thread go round once."""
        self.cell._worker.wake()
        self.cell._turn()

    def request(self, number: int, host: str | None) -> None:
        self.cell.request(number, host)
        self.turn()

    def claimed(self) -> str:
        """Connect to a pool of one process, have that claimed for the first request, and return its name."""
        mine = self.join()
        self.cell.connect()
        self.request(1, "h1")
        return mine

    def claims(self) -> dict[str, str]:
        """Return the claimed processes, and what for."""
        return {name: each.record.claim for name, each in self.pool.members.items() if each.record.claim}

    def is_released(self, name: str) -> bool:
        return self.pool.members[name].record.is_released

    def granted(self) -> list[str]:
        return [each.skein_id for each in self.events if isinstance(each, happened.ContainerGranted)]


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.cell.close()


def test_a_request_claims_a_process_that_waits_on_its_host(lab: Lab) -> None:
    lab.join()
    mine = lab.join("h2", "b")
    lab.cell.connect()
    assert (lab.cell.hosts, lab.cell.full, lab.cell.expected()) == (("h1", "h2"), frozenset(), ())
    lab.request(5, "h2")
    assert lab.claims() == {mine: "1-5"}
    placed, given, found = lab.events
    assert placed == happened.RequestPlaced(5, "pool/1-5")
    assert isinstance(given, happened.ContainerGranted)
    assert given.skein_id == "pool/1-5"
    assert isinstance(found, happened.CellFound)
    assert (found.cell, found.attempt, found.hosts) == (1, POOL, ("h1", "h2"))
    assert found.full == {"h2"}, "nothing waits there any more"


def test_a_request_without_a_process_waits_for_one_to_come(lab: Lab) -> None:
    lab.join()
    lab.cell.connect()
    lab.request(1, "h2")
    lab.request(2, "h2")
    assert not lab.granted()
    later = lab.join("h2", "b")
    lab.turn()
    assert lab.granted() == ["pool/1-1"], "the oldest one first"
    assert lab.claims() == {later: "1-1"}


def test_a_request_for_any_host_claims_where_the_fewest_are_claimed(lab: Lab) -> None:
    for host, unique in (("h1", "a"), ("h1", "b"), ("h2", "c")):
        lab.join(host, unique)
    lab.cell.connect()
    lab.request(1, "h1")
    lab.request(2, None)
    assert sorted(lab.claims().values()) == ["1-1", "1-2"]
    assert {lab.pool.members[each].record.host for each in lab.claims()} == {"h1", "h2"}


@pytest.mark.parametrize("host", [None, "h1"])
def test_the_smallest_process_that_fits_is_claimed_wherever_fewest_are(lab: Lab, host: str | None) -> None:
    offers = (
        NodeOffer(),
        NodeOffer("gpu"),
        NodeOffer("gpu", 8_192),
        NodeOffer("gpu", 4_096),
        NodeOffer("gpu", 512),
    )
    names = [lab.pool.join(waiting("h1", f"p{at}", offer=each)) for at, each in enumerate(offers)]
    lab.cell.connect()
    demand = Demand("flights", "gpu", 1_024)
    for number in range(1, 5):
        lab.cell.request(number, host, demand)
    lab.turn()
    assert lab.claims() == {names[3]: "1-1", names[2]: "1-2", names[1]: "1-3"}
    assert lab.pool.members[names[3]].record.job == "flights"
    given = [each.offer for each in lab.events if isinstance(each, happened.ContainerGranted)]
    assert given == [offers[3], offers[2], offers[1]]
    (found,) = (each for each in lab.events if isinstance(each, happened.CellFound))
    assert [(each.offer, each.is_free) for each in found.processes] == [
        (each, each in (offers[0], offers[4])) for each in offers
    ]
    later_offer = NodeOffer("gpu", 1_024)
    later = lab.pool.join(waiting("h1", "q", offer=later_offer))
    lab.turn()
    assert lab.claims()[later] == "1-4", "it has waited for one that fits"
    successor = lab.successor()
    successor.connect()
    assert [each.offer for each in successor.expected()] == [offers[1], offers[2], offers[3], later_offer]


def test_a_process_of_another_protocol_is_not_claimed_and_named(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    old = lab.pool.join(waiting("h1", "old", protocol=PROTOCOL - 1))
    lab.cell.connect()
    assert lab.cell.full == {"h1"}
    assert f"standfast 0.1.0 (protocol {PROTOCOL - 1}) on h1" in lab.cell.note
    lab.request(1, None)
    lab.turn()
    assert not lab.claims()
    assert [each.getMessage() for each in caplog.records] == [f"processes are {lab.cell.note}"]
    lab.pool.leave(old)
    lab.turn()
    found = lab.events[-1]
    assert isinstance(found, happened.CellFound)
    assert not found.note


def test_a_new_leader_expects_what_was_claimed_and_not_given_back(lab: Lab) -> None:
    first, second = (lab.pool.join(waiting(f"h{each}", "a")) for each in (1, 2))
    lab.cell.connect()
    lab.request(1, "h1")
    lab.request(2, "h2")
    lab.cell.release("pool/1-2")
    lab.turn()
    assert lab.is_released(second)
    lab.pool.epoch = 2
    successor = lab.successor()
    successor.connect()
    found = successor.expected()
    assert [(each.container, each.skein_id, each.host, each.attempt) for each in found] == [
        (first, "pool/1-1", "h1", POOL)
    ]
    lab.events.clear()
    lab.cell = successor
    lab.request(1, None)
    assert lab.events == [happened.RequestPlaced(1, "pool/2-1")], "neither claims anything again"


def test_what_is_given_back_is_owed_until_it_is_recorded(lab: Lab) -> None:
    mine = lab.claimed()
    lab.pool.is_away = True
    assert lab.cell.release("pool/1-1")
    lab.turn()
    assert lab.cell.owed == {"pool/1-1"}
    lab.pool.is_away = False
    lab.turn()
    assert lab.is_released(mine)
    assert not lab.cell.owed
    assert not lab.cell.release("a1_01/s_0"), "that is a container of YARN"


@pytest.mark.parametrize("is_claiming", [False, True])
def test_a_request_that_is_withdrawn_claims_nothing_later_or_gives_back_what_is_just_claimed(
    lab: Lab, *, is_claiming: bool
) -> None:
    lab.join()
    lab.cell.connect()
    lab.request(1, "h2")
    if is_claiming:
        lab.pool.meanwhile = lambda: lab.cell.release("pool/1-1")
    else:
        lab.cell.release("pool/1-1")
    mine = lab.join("h2", "b")
    lab.turn()
    assert lab.claims() == ({mine: "1-1"} if is_claiming else {})
    lab.turn()
    assert lab.is_released(mine) is is_claiming
    assert not lab.cell.owed


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_a_claim_of_unknown_outcome_is_read_back_and_never_made_twice(
    lab: Lab, *, is_withdrawn: bool
) -> None:
    for each in "ab":
        lab.join("h1", each)
    lab.cell.connect()
    lab.pool.lost_answers = 1
    lab.request(1, "h1")
    (mine,) = lab.claims()
    assert not lab.granted()
    if is_withdrawn:
        lab.cell.release("pool/1-1")
    lab.turn()
    assert list(lab.claims()) == [mine]
    assert lab.granted() == ([] if is_withdrawn else ["pool/1-1"])
    assert lab.is_released(mine) is is_withdrawn
    assert not lab.cell.owed


@pytest.mark.parametrize("comes_back", ["with its claim", "too late", "never"])
def test_a_process_that_is_away_when_its_claim_is_read_back_is_waited_for_before_another_is_claimed(
    lab: Lab, comes_back: str
) -> None:
    for each in "ab":
        lab.join("h1", each)
    lab.cell.connect()
    lab.pool.lost_answers = 1
    lab.request(1, None)
    (mine,) = lab.claims()
    record = lab.pool.end_session(mine)
    lab.turn()
    assert not lab.claims(), "it may come back with its claim"
    if comes_back != "with its claim":
        lab.events.clear()
        lab.clock.advance(RETURN_SECONDS)
        lab.turn()
        (ended,) = lab.events
        assert isinstance(ended, happened.ContainerUnregistered)
        assert ended.skein_id == "pool/1-1", "the request has ended, and the next one has another claim"
    if comes_back != "never":
        lab.pool.join(record)
        lab.turn()
    assert lab.granted() == (["pool/1-1"] if comes_back == "with its claim" else [])
    assert list(lab.claims()) == ([] if comes_back == "never" else [mine])
    lab.request(2, None)
    assert len(lab.claims()) == len(set(lab.claims().values())), "no two have the same claim"


def test_a_process_that_had_to_register_again_can_be_claimed_and_given_back(lab: Lab) -> None:
    mine = lab.claimed()
    lab.pool.rejoin(mine)
    lab.cell.release("pool/1-1")
    lab.turn()
    lab.turn()
    assert lab.is_released(mine)


def test_the_end_of_a_claimed_process_is_posted_and_its_host_has_room_until_another_is_started(
    lab: Lab,
) -> None:
    mine = lab.join()
    free = lab.join("h2", "a")
    lab.cell.connect()
    lab.request(1, "h1")
    assert lab.cell.full == {"h1"}
    lab.events.clear()
    lab.pool.leave(free)
    lab.pool.leave(mine)
    lab.turn()
    ended, found = lab.events
    assert isinstance(ended, happened.ContainerUnregistered)
    assert (ended.container, ended.skein_id) == (mine, "pool/1-1")
    assert isinstance(found, happened.CellFound)
    assert (found.hosts, found.full) == (("h1", "h2"), frozenset())
    lab.join("h1", "b")
    lab.turn()
    lab.clock.advance(RESTART_SECONDS)
    lab.turn()
    assert (lab.cell.hosts, lab.cell.full) == (("h1",), frozenset())


@pytest.mark.parametrize("is_successor", [False, True])
def test_a_process_that_is_given_back_makes_room_for_as_long_as_another_takes_to_start(
    lab: Lab, *, is_successor: bool
) -> None:
    """One that is dead stays registered until its session ends, and its node may be dead, too."""

    def has_room() -> bool:
        lab.turn()
        assert [each.is_free for each in lab.cell.processes] == [not lab.cell.full]
        return not lab.cell.full

    mine = lab.claimed()
    assert not has_room()
    lab.cell.release("pool/1-1")
    lab.turn()
    if is_successor:
        lab.cell = lab.successor()
        lab.cell.connect()
    assert has_room()
    lab.clock.advance(RESTART_SECONDS)
    assert not has_room()
    lab.pool.leave(mine)
    assert has_room()


def test_a_deposed_leader_claims_nothing(lab: Lab) -> None:
    lab.join()
    lab.cell.connect()
    lab.pool.is_deposed = True
    lab.request(1, "h1")
    assert not lab.claims()
    assert not lab.granted()
    assert lab.cell._worker.is_closed


@pytest.mark.parametrize(
    ("first", "comes_every", "waits"),
    [
        pytest.param(0, None, QUIET_SECONDS, id="one is there already"),
        pytest.param(20, None, QUIET_SECONDS, id="no other comes"),
        pytest.param(20, QUIET_SECONDS - 1, MOST_QUIET_SECONDS, id="others come all the time"),
    ],
)
def test_a_new_pool_is_used_once_it_is_quiet(
    lab: Lab, first: float, comes_every: float | None, waits: float
) -> None:
    came: list[float] = []

    def join(unique: str) -> None:
        came.append(lab.clock.monotonic())
        lab.join("h1", unique)
        if comes_every is not None:
            lab.clock.later(comes_every, lambda: join(f"{unique}x"))

    if first:
        lab.clock.later(first, lambda: join("a"))
    else:
        join("a")
    lab.cell.connect()
    assert lab.clock.monotonic() - came[0] == pytest.approx(waits, abs=1)
    assert len(lab.pool.members) == (1 if comes_every is None else len(came))


def test_a_pool_that_ended_and_comes_back_is_used_once_it_is_quiet_or_as_large_as_before(lab: Lab) -> None:
    def start(*uniques: str) -> None:
        for number, each in enumerate(uniques, start=1):
            lab.pool.join(waiting(f"h{number}", each))

    def end_all() -> None:
        for each in list(lab.pool.members):
            lab.pool.leave(each)
        lab.turn()

    start("a", "a", "a")
    lab.cell.connect()
    lab.request(1, "h1")
    assert lab.claims()
    end_all()
    lab.request(2, None)
    start("b", "b")
    lab.turn()
    assert not lab.claims(), "the third is still to come"
    lab.join("h3", "b")
    lab.turn()
    assert lab.claims()
    end_all()
    lab.request(3, None)
    start("c", "c")
    lab.turn()
    lab.clock.advance(QUIET_SECONDS)
    lab.turn()
    assert lab.claims(), "the third does not come"
    end_all()
    lab.request(4, None)
    start("d", "d")
    lab.turn()
    assert lab.claims(), "there are no more"


def test_what_comes_to_an_emptied_pool_is_offered_once_it_is_quiet(lab: Lab) -> None:
    """Else the first one would be requested for a copy whose state lies on the host of the next one."""

    def offered() -> list[str]:
        found = [each for each in lab.events if isinstance(each, happened.CellFound)]
        return [each.host for each in found[-1].processes]

    mine = lab.claimed()
    lab.join("h2", "b")
    lab.turn()
    for each in (mine, *(set(lab.pool.members) - {mine})):
        lab.pool.leave(each)
    lab.turn()
    lab.clock.advance(RESTART_SECONDS)
    lab.turn()
    assert offered() == []
    lab.join("h1", "c")
    lab.turn()
    assert offered() == []
    lab.join("h2", "d")
    lab.turn()
    assert offered() == ["h1", "h2"]


def test_a_pool_that_cannot_be_read_is_not_lost_but_read_again(lab: Lab) -> None:
    lab.join()
    lab.pool.is_away = True

    def return_() -> None:
        lab.pool.is_away = False

    lab.clock.later(60, return_)
    lab.cell.connect()
    assert lab.cell.hosts == ("h1",)
    assert not lab.events


@pytest.mark.parametrize("trouble", ["is_away", "is_closed"])
def test_a_pool_that_could_not_be_read_for_a_while_is_followed_again_and_the_trouble_is_logged_once(
    lab: Lab, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    lab.join()
    lab.cell.connect()
    setattr(lab.pool, trouble, True)
    lab.join("h2", "b")
    lab.turn()
    lab.turn()
    setattr(lab.pool, trouble, False)
    lab.turn()
    assert lab.cell.hosts == ("h1", "h2")
    assert ["cannot be read" in each.getMessage() for each in caplog.records].count(True) == 1
