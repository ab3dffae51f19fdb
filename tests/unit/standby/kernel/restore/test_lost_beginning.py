"""A changelog that has lost its beginning: state at hand is gone on with, and nothing is restored from the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from standby.kernel.replica import restore
from standby.shared.model import Fault, Phase, Role
from tests.fakes.peers import PeerNet, by_source
from tests.memory_lab import JOB, MakeLab, MemoryContainer, MemoryLab

NEVER_FROM_PEERS = {"job.restore.peer.min.records": "-1"}


@pytest.fixture
def lab(make_lab: MakeLab, net: PeerNet) -> MemoryLab:
    """A lab that asks no peer as long as the changelog does."""
    lab = make_lab(1, **NEVER_FROM_PEERS)
    lab.net = net
    return lab


def end_of(lab: MemoryLab) -> int:
    return len(lab.kafka.logs["changelog", 0])


def lose(lab: MemoryLab, below: int) -> None:
    """Have the changelog begin at an offset, as one does from which records were deleted by their age."""
    with lab.kafka.lock:
        lab.kafka.starts["changelog", 0] = below


def began(lab: MemoryLab) -> MemoryContainer:
    """Return an active in a that has processed something."""
    lab.placed.placed, lab.placed.in_sync = {0: "a", 1: "b"}, (0,)
    return lab.begun(60)


def assert_told(detail: str, first: int) -> None:
    assert f"changelog changelog-0 has lost its beginning: it begins at offset {first}" in detail
    assert "cleanup.policy" in detail
    assert f"standfast topics {JOB} --accept changelog" in detail


def is_waiting(standby: MemoryContainer) -> bool:
    return [each.detail.partition(": it begins")[0] for each in standby.statuses()] == [
        "waiting: changelog changelog-0 has lost its beginning"
    ]


@pytest.mark.parametrize("left", [0, 10], ids=["all of it", "its first part"])
def test_an_active_without_state_at_hand_fails_and_names_it(lab: MemoryLab, left: int) -> None:
    began(lab).close()
    first = end_of(lab) - left
    lose(lab, first)
    outputs, before = lab.kafka.committed_records("out", 0), end_of(lab)
    lab.placed.placed = {0: "c"}
    successor = lab.container("c").activate(0, 2, claimed=True)
    lab.produce(20)
    successor.await_phase(Phase.FAILED)
    (status,) = successor.statuses()
    assert_told(status.detail, first)
    assert status.fault is Fault.OTHER, "where state is at hand another container does better"
    assert (lab.kafka.committed_records("out", 0), end_of(lab)) == (outputs, before)


def test_a_standby_gets_its_state_from_a_peer_although_the_job_asks_none(lab: MemoryLab) -> None:
    active = began(lab)
    lose(lab, end_of(lab) - 10)
    standby = lab.container("b").stand_by()
    assert by_source(standby.restores) == {"active": 1}
    active.want(0, Role.STANDBY, 2)
    standby.activate(1, 2, claimed=True).process(20)
    lab.assert_exact()


def test_a_standby_waits_for_a_provider_of_the_state_and_says_so(lab: MemoryLab, net: PeerNet) -> None:
    active = began(lab)
    first = end_of(lab) - 10
    lose(lab, first)
    net.is_away = True
    standby = lab.container("b").want(1, Role.STANDBY, 1)
    standby.eventually(lambda: is_waiting(standby))
    assert standby.status().phase is Phase.OPENING
    assert f"waiting: {standby.status().waits_for}" == standby.status().detail, "the leader says so"
    assert_told(standby.status().detail, first)
    active.process(20)
    net.is_away = False
    standby.await_phase(Phase.TAILING)


@pytest.mark.parametrize("role", [Role.STANDBY, Role.ACTIVE])
def test_a_host_without_room_for_the_only_copy_is_named(
    lab: MemoryLab, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    """It said that no copy was available."""
    active = began(lab)
    lose(lab, end_of(lab) - 10)
    is_full = [True]
    monkeypatch.setattr(restore, "free_bytes", lambda _: 10 << 20 if is_full[0] else 1 << 40)
    if role is Role.ACTIVE:
        lab.name(1, 2, claimed=True)
        active.stand_by(0, 2)
    other = lab.container("b").want(1, role, 1 if role is Role.STANDBY else 2)
    other.eventually(lambda: any("no disk of host b has room" in each for each in other.details))
    status = other.status()
    assert re.fullmatch(
        r"(waiting: )?no disk of host b has room for a copy of the state: (68|69|70|71) MB must be free in one of "
        rf"{re.escape(', '.join(lab.config.state_dirs))}; it cannot be restored from changelog-0, which has lost "
        r"its beginning \(docs/troubles.md\)",
        status.detail,
    )
    assert bool(status.waits_for) is (role is Role.STANDBY)
    if role is Role.ACTIVE:
        other.await_phase(Phase.FAILED)
        return
    is_full[0] = False
    other.await_phase(Phase.TAILING)
    assert not other.status().waits_for
    assert by_source(other.restores) == {"active": 1}


def test_a_peer_is_asked_again_when_there_is_room(
    lab: MemoryLab, net: PeerNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made a copy every two seconds, and wrote what its state had in memory to its disk each time."""
    began(lab)
    lose(lab, end_of(lab) - 10)
    rooms, looks = [10 << 20], [0]

    def free_bytes(_: Path) -> int:
        looks[0] += 1
        return rooms[0]

    def copies() -> int:
        return [each.method for each in net.provider_of("a").requests].count("POST")

    monkeypatch.setattr(restore, "free_bytes", free_bytes)
    lab.clock.hold()
    standby = lab.container("b").want(1, Role.STANDBY, 1)
    standby.eventually(lambda: looks[0] > 10)
    assert copies() == 1
    lab.clock.advance(60)
    standby.eventually(lambda: copies() == 2)
    seen = looks[0]
    standby.eventually(lambda: looks[0] > seen + 10)
    assert copies() == 2, "the state may need less by now"
    rooms[0] = 1 << 40
    standby.await_phase(Phase.TAILING)
    assert copies() == 3


def test_an_active_waits_for_the_record_that_says_who_has_the_state(lab: MemoryLab) -> None:
    """While ZooKeeper was away it failed, although a standby had its state."""
    former = began(lab)
    lose(lab, end_of(lab) - 10)
    lab.name(1, 2, claimed=True)
    former.stand_by(0, 2)
    lab.records.is_away = True
    successor = lab.container("b").want(1, Role.ACTIVE, 2)
    successor.eventually(lambda: "waiting: the records cannot be read" in successor.details)
    lab.records.is_away = False
    successor.process(20)
    assert by_source(successor.restores) == {"standby": 1}
    lab.assert_exact()


def test_a_standby_that_waits_and_is_to_become_active_fails(lab: MemoryLab, net: PeerNet) -> None:
    active = began(lab)
    lose(lab, end_of(lab) - 10)
    net.is_away = True
    standby = lab.container("b").want(1, Role.STANDBY, 1)
    standby.eventually(lambda: is_waiting(standby))
    active.close()
    standby.activate(1, 2, claimed=True).await_phase(Phase.FAILED)
    assert "has lost its beginning" in standby.status().detail
