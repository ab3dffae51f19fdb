"""Two inputs of unequal rate on a real broker: every record of both exactly once, whatever dies where."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from standby.adapters.confluent_kafka import connect
from standby.config import parse
from standby.kernel import probes
from standby.model import Phase, Role
from tests.kernel_lab import CLUSTER, Child, Lab, LabOfTwo

#: Where the active dies, and at which passing.
DEATHS = (
    (probes.STEPPED, 2),
    (probes.BEFORE_COMMIT, 5),
    (probes.AFTER_COMMIT, 5),
    (probes.STORE_BATCH, 4),
    (probes.TASK_COMMITTED, 3),
)


@pytest.fixture
def lab(kafka_bootstrap: str, tmp_path: Path) -> Lab:
    return LabOfTwo(kafka_bootstrap, tmp_path)


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: f"{death[0]} {death[1]}")
def test_exact_in_both_inputs_when_the_active_dies_in_a_batch(
    lab: Lab, start_child: Callable[..., Child], death: tuple[str, int]
) -> None:
    point, hit = death
    lab.name(0, 1)
    doomed = start_child(lab, "host-a", kill_at=point, hit=hit)
    doomed.want(0, Role.ACTIVE, 1)
    with lab.local("host-b") as successor:
        successor.want(1, Role.STANDBY, 1)
        successor.await_phase(Phase.TAILING)
        lab.produce(900)
        assert doomed.await_death() == -signal.SIGKILL
        lab.name(1, 2, claimed=True)
        successor.want(1, Role.ACTIVE, 2)
        lab.produce(300)
        successor.await_processed()
        for each in successor.statuses().values():
            assert [*each.input_offsets] == [*lab.inputs]
            assert sum(each.input_offsets.values()) == each.input_committed
        with lab.local("host-a") as returned:
            returned.want(0, Role.STANDBY, 2)
            returned.await_phase(Phase.TAILING)
    assert_one_epoch(lab, 2)
    lab.assert_exact()
    lab.assert_local_state("host-a")
    lab.assert_local_state("host-b")


def test_exact_in_both_inputs_over_kills_under_load(lab: Lab, start_child: Callable[..., Child]) -> None:
    """Exactness is cumulative: what any of the kills had lost or doubled would still be wrong at the end."""
    lab.name(1, 1)
    with lab.local("host-b") as keeper, lab.load(10, 0.005):
        keeper.want(1, Role.ACTIVE, 1)
        # From now on the records say that the tasks were claimed.
        keeper.await_phase(Phase.ACTIVE)
        for epoch in (2, 4, 6):
            doomed = start_child(lab, "host-a")
            doomed.want(0, Role.STANDBY, epoch - 1)
            doomed.await_phase(Phase.TAILING)
            lab.name(0, epoch, claimed=True)
            keeper.want(1, Role.STANDBY, epoch)
            doomed.want(0, Role.ACTIVE, epoch)
            doomed.await_all(lambda each: each.first_commit_ms is not None)
            keeper.await_phase(Phase.TAILING)
            doomed.send(signal.SIGKILL)
            doomed.await_death()
            lab.name(1, epoch + 1, claimed=True)
            keeper.want(1, Role.ACTIVE, epoch + 1)
            keeper.await_all(lambda each: each.first_commit_ms is not None)
    # The load ended first, then the keeper, which may not have processed all of it.
    lab.name(1, 8, claimed=True)
    with lab.local("host-b") as keeper:
        keeper.want(1, Role.ACTIVE, 8)
        keeper.await_processed()
    assert_one_epoch(lab, 8)
    lab.assert_exact()
    lab.assert_local_state("host-b")


def assert_one_epoch(lab: Lab, epoch: int) -> None:
    """Every task's offsets of both inputs carry the claim of its last owner."""
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    try:
        for partition in range(lab.tasks):
            found = [each for each in broker.committed(partition) if each is not None]
            assert len(found) == len(lab.inputs)
            assert all(f'"epoch":{epoch},' in each.metadata for each in found)
    finally:
        broker.close()
