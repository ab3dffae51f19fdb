"""Two inputs of unequal rate on a real broker: every record of both exactly once when the active dies in a batch."""

from __future__ import annotations

from pathlib import Path

from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.kernel import probes
from tests.kernel_lab import CLUSTER, LabOfTwo
from tests.system.lone.deaths import StartChild, succeed_one_that_dies_in_a_batch


def test_exact_in_both_inputs_when_the_active_dies_in_a_batch(
    kafka_bootstrap: str, tmp_path: Path, start_child: StartChild
) -> None:
    lab = LabOfTwo(kafka_bootstrap, tmp_path)
    for each in succeed_one_that_dies_in_a_batch(lab, start_child, (probes.BEFORE_COMMIT, 5)):
        assert [*each.input_offsets] == [*lab.inputs]
        assert sum(each.input_offsets.values()) == each.input_committed
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    for partition in range(lab.tasks):
        found = [each for each in broker.committed([partition])[partition] if each is not None]
        assert len(found) == len(lab.inputs)
        assert all('"epoch":2,' in each.metadata for each in found), "the claim of the last owner, in both"
    broker.close()
