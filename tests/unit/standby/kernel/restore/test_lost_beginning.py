"""A changelog that has lost its beginning: state at hand is gone on with, and nothing is restored from the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from standby.shared.model import Fault, Phase, Role
from tests.fakes.peers import PeerNet, by_source
from tests.memory_lab import JOB, Make, MemoryContainer, MemoryLab

NEVER_FROM_PEERS = {"job.restore.peer.min.records": "-1"}


@pytest.fixture
def lab(tmp_path: Path) -> MemoryLab:
    """A lab that asks no peer as long as the changelog does."""
    return MemoryLab(tmp_path, 1, **NEVER_FROM_PEERS)


@pytest.fixture
def start(net: PeerNet, start: Make) -> Make:
    return net.joined(start)


def end_of(lab: MemoryLab) -> int:
    return len(lab.kafka.logs["changelog", 0])


def lose(lab: MemoryLab, below: int) -> None:
    """Have the changelog begin at an offset, as one does from which records were deleted by their age."""
    with lab.kafka.lock:
        lab.kafka.starts["changelog", 0] = below


def began(lab: MemoryLab, start: Make) -> MemoryContainer:
    """Return an active in a that has processed something."""
    lab.placed.placed, lab.placed.in_sync = {0: "a", 1: "b"}, (0,)
    lab.name(0, 1)
    active = start("a")
    active.want(0, Role.ACTIVE, 1)
    lab.produce(60)
    active.await_processed()
    return active


def assert_told(detail: str, first: int) -> None:
    assert f"changelog changelog-0 has lost its beginning: it begins at offset {first}" in detail
    assert "cleanup.policy" in detail
    assert f"standfast topics {JOB} --accept changelog" in detail


def is_waiting(standby: MemoryContainer) -> bool:
    return [each.detail.partition(": it begins")[0] for each in standby.statuses()] == [
        "waiting: changelog changelog-0 has lost its beginning"
    ]


@pytest.mark.parametrize("left", [0, 10], ids=["all of it", "its first part"])
def test_an_active_without_state_at_hand_fails_and_names_it(lab: MemoryLab, start: Make, left: int) -> None:
    began(lab, start).close()
    first = end_of(lab) - left
    lose(lab, first)
    outputs, before = lab.kafka.committed_records("out", 0), end_of(lab)
    lab.placed.placed = {0: "c"}
    lab.name(0, 2, claimed=True)
    successor = start("c")
    successor.want(0, Role.ACTIVE, 2)
    lab.produce(20)
    successor.await_phase(Phase.FAILED)
    (status,) = successor.statuses()
    assert_told(status.detail, first)
    assert status.fault is Fault.OTHER, "where state is at hand another container does better"
    assert (lab.kafka.committed_records("out", 0), end_of(lab)) == (outputs, before)


def test_state_at_hand_beyond_the_beginning_is_gone_on_with(lab: MemoryLab, start: Make) -> None:
    began(lab, start).close()
    # An active is at the marker of its last commit.
    lose(lab, end_of(lab) - 1)
    lab.name(0, 2, claimed=True)
    again = start("a")
    again.want(0, Role.ACTIVE, 2)
    lab.produce(20)
    again.await_processed()
    assert by_source(again.restores) == {"local": 1}
    lab.assert_exact()


def test_a_standby_gets_its_state_from_a_peer_although_the_job_asks_none(lab: MemoryLab, start: Make) -> None:
    active = began(lab, start)
    lose(lab, end_of(lab) - 10)
    standby = start("b")
    standby.want(1, Role.STANDBY, 1)
    standby.await_phase(Phase.TAILING)
    assert by_source(standby.restores) == {"active": 1}
    lab.name(1, 2, claimed=True)
    active.want(0, Role.STANDBY, 2)
    standby.want(1, Role.ACTIVE, 2)
    lab.produce(20)
    standby.await_processed()
    lab.assert_exact()


def test_a_standby_waits_for_whoever_has_the_state_and_says_so(
    lab: MemoryLab, net: PeerNet, start: Make
) -> None:
    active = began(lab, start)
    first = end_of(lab) - 10
    lose(lab, first)
    net.is_away = True
    standby = start("b")
    standby.want(1, Role.STANDBY, 1)
    standby.eventually(lambda: is_waiting(standby))
    assert standby.statuses()[0].phase is Phase.OPENING
    assert_told(standby.statuses()[0].detail, first)
    lab.produce(20)
    active.await_processed()
    net.is_away = False
    standby.await_phase(Phase.TAILING)


def test_an_active_waits_for_the_record_that_says_who_has_the_state(lab: MemoryLab, start: Make) -> None:
    """While ZooKeeper was away it failed, although a standby had its state."""
    former = began(lab, start)
    lose(lab, end_of(lab) - 10)
    lab.name(1, 2, claimed=True)
    former.want(0, Role.STANDBY, 2)
    former.await_phase(Phase.TAILING)
    lab.records.is_away = True
    successor = start("b")
    successor.want(1, Role.ACTIVE, 2)
    waiting = "waiting: the records cannot be read"
    successor.eventually(lambda: waiting in [each.detail for each in successor.statuses()])
    lab.records.is_away = False
    lab.produce(20)
    successor.await_processed()
    assert by_source(successor.restores) == {"standby": 1}
    lab.assert_exact()


def test_a_standby_that_waits_and_is_to_become_active_fails(
    lab: MemoryLab, net: PeerNet, start: Make
) -> None:
    active = began(lab, start)
    lose(lab, end_of(lab) - 10)
    net.is_away = True
    standby = start("b")
    standby.want(1, Role.STANDBY, 1)
    standby.eventually(lambda: is_waiting(standby))
    active.close()
    lab.name(1, 2, claimed=True)
    standby.want(1, Role.ACTIVE, 2)
    standby.await_phase(Phase.FAILED)
    assert "has lost its beginning" in standby.statuses()[0].detail
