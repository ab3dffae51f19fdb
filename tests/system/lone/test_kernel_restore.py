"""A new replica's state on a real broker, over real HTTP, with real databases, while the active goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standby.adapters.rocksdict import open_database
from standby.kernel.ports import Profile
from standby.replica.store.keys import OWN, POSITION
from standby.replica.store.origin import DATABASE
from standby.shared.model import Phase, Role, TaskId
from tests.fakes.peers import PeerNet, PlacedRecords, by_source
from tests.kernel_lab import Container, Lab
from tests.patience import PATIENCE_SECONDS

STATE_RECORDS = 4000


@pytest.fixture
def lab(kafka_bootstrap: str, tmp_path: Path) -> Lab:
    return Lab(kafka_bootstrap, tmp_path, **{"job.restore.peer.min.records": "100"})  # type: ignore[arg-type]


@pytest.fixture
def net() -> Iterator[PeerNet]:
    with closing(PeerNet()) as made:
        yield made


@pytest.fixture
def records(lab: Lab) -> PlacedRecords:
    return PlacedRecords(lab.records)


Start = Callable[[str], Container]


@pytest.fixture
def start(lab: Lab, net: PeerNet, records: PlacedRecords) -> Iterator[Start]:
    made: list[Container] = []

    def one(host: str, **more: Any) -> Container:
        made.append(lab.local(host, records=records, **more))
        return made[-1]

    yield net.joined(one)
    for each in made:
        each.replicas.close(PATIENCE_SECONDS)


def sources(container: Container) -> dict[str, float]:
    return by_source(container.restores)


def contents(lab: Lab, host: str, task: TaskId) -> list[tuple[bytes, bytes]]:
    """Return what a host's database has of the stores and of the last commit, but nothing of whose it is."""
    database = open_database(lab.state_of(host, task) / DATABASE, Profile.SERVING)
    try:
        return [each for each in database.items(b"") if each[0] not in (POSITION, OWN)]
    finally:
        database.close()


def follow(container: Container, active: Container) -> None:
    """Return once everything is applied that the active has committed."""
    done = {each.replica.task: each.applied or 0 for each in active.statuses().values()}
    container.await_phase(Phase.TAILING)
    container.await_all(lambda each: (each.applied or 0) >= done[each.replica.task])


def active_and_standby(lab: Lab, start: Start) -> tuple[Container, Container]:
    """Start an active in a and a standby in b, in step with each other, with some state."""
    lab.name(0, 1)
    lab.produce(STATE_RECORDS, keys=500)
    active, standby = start("a"), start("b")
    active.want(0, Role.ACTIVE, 1)
    active.await_processed()
    standby.want(1, Role.STANDBY, 1)
    follow(standby, active)
    return active, standby


def test_a_new_standby_bootstraps_from_a_standby_while_the_active_goes_on(
    lab: Lab, net: PeerNet, records: PlacedRecords, start: Start
) -> None:
    records.placed, records.in_sync = {0: "a", 1: "b", 2: "c"}, (0, 1)
    active, standby = active_and_standby(lab, start)
    with lab.load(50, per_second=50, keys=500):
        before = len(net.provider_of("a").requests)
        new = start("c")
        new.want(2, Role.STANDBY, 1)
        new.await_phase(Phase.TAILING)
    active.await_processed()
    follow(new, active)
    follow(standby, active)
    assert sources(new) == {"standby": lab.tasks}
    assert len(net.provider_of("a").requests) == before, "the active gave nothing"
    for each in (new, standby, active):
        each.close()
    for host in ("a", "b", "c"):
        lab.assert_local_state(host)
    for task in lab.task_ids:
        assert contents(lab, "c", task) == contents(lab, "a", task) == contents(lab, "b", task)
    lab.assert_exact()


def test_a_bootstrapped_standby_takes_over_exactly(lab: Lab, records: PlacedRecords, start: Start) -> None:
    records.placed, records.in_sync = {0: "a", 2: "c"}, (0,)
    lab.name(0, 1)
    lab.produce(STATE_RECORDS, keys=500)
    active = start("a")
    active.want(0, Role.ACTIVE, 1)
    active.await_processed()
    new = start("c")
    new.want(2, Role.STANDBY, 1)
    follow(new, active)
    assert sources(new) == {"active": lab.tasks}
    lab.produce(200, keys=500)
    lab.name(2, 2, claimed=True)
    # The old one gets no order: it must be fenced, as when it cannot be reached.
    new.want(2, Role.ACTIVE, 2)
    new.await_phase(Phase.ACTIVE)
    lab.produce(200, keys=500)
    new.await_processed()
    active.want(0, Role.STANDBY, 2)
    active.await_phase(Phase.TAILING)
    new.close()
    active.close()
    lab.assert_exact()
    lab.assert_local_state("c")


def test_all_containers_restarted_with_their_disks_replay_only_tails(
    lab: Lab, records: PlacedRecords, start: Start
) -> None:
    """State on a host's disk is used again after an orderly end, by the active and the standby alike."""
    records.placed, records.in_sync = {0: "a", 1: "b"}, (0, 1)
    active, standby = active_and_standby(lab, start)
    active.close()
    standby.close()
    lab.name(0, 2, claimed=True)
    active, standby = start("a"), start("b")
    active.want(0, Role.ACTIVE, 2)
    standby.want(1, Role.STANDBY, 2)
    lab.produce(100, keys=500)
    active.await_processed()
    follow(standby, active)
    assert sources(active) == sources(standby) == {"local": lab.tasks}
    for each in active.statuses().values():
        assert each.drained_from is not None
        assert each.drained_to is not None
        # The marker of the last commit, and of the claim.
        assert each.drained_to - each.drained_from <= 4
    active.close()
    standby.close()
    lab.assert_exact()
    lab.assert_local_state("b")
