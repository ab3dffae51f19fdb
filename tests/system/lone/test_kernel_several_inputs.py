"""Two inputs of unequal rate on a real broker: every record of both exactly once, whatever dies where."""

from __future__ import annotations

from pathlib import Path

import pytest

from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.kernel import probes
from standby.model import Phase, Role
from tests.kernel_lab import CLUSTER, Lab, LabOfTwo
from tests.system.lone.deaths import (
    Death,
    StartChild,
    named,
    process_the_rest,
    succeed_one_that_dies_in_a_batch,
    take_over_and_die,
)

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


@pytest.mark.parametrize("death", DEATHS, ids=named)
def test_exact_in_both_inputs_when_the_active_dies_in_a_batch(
    lab: Lab, start_child: StartChild, death: Death
) -> None:
    for each in succeed_one_that_dies_in_a_batch(lab, start_child, death):
        assert [*each.input_offsets] == [*lab.inputs]
        assert sum(each.input_offsets.values()) == each.input_committed
    assert_one_epoch(lab, 2)


def test_exact_in_both_inputs_over_kills_under_load(lab: Lab, start_child: StartChild) -> None:
    lab.name(1, 1)
    with lab.local("host-b") as keeper, lab.load(10, per_second=200):
        keeper.want(1, Role.ACTIVE, 1)
        # From now on the records say that the tasks were claimed.
        keeper.await_phase(Phase.ACTIVE)
        for epoch in (2, 4, 6):
            take_over_and_die(lab, start_child, keeper, epoch)
    process_the_rest(lab, 8)
    assert_one_epoch(lab, 8)


def assert_one_epoch(lab: Lab, epoch: int) -> None:
    """Every task's offsets of both inputs carry the claim of its last owner."""
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    try:
        for partition in range(lab.tasks):
            found = [each for each in broker.committed([partition])[partition] if each is not None]
            assert len(found) == len(lab.inputs)
            assert all(f'"epoch":{epoch},' in each.metadata for each in found)
    finally:
        broker.close()
