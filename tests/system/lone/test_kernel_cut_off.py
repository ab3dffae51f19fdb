"""A container that does not reach Kafka any more, while others do: what continues is exact, whatever arrives late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from standby.shared.model import Phase, Role
from tests.far_broker import FarBroker
from tests.kernel_lab import Child, Container, Lab
from tests.system.lone.deaths import StartChild


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarBroker]:
    with FarBroker(tmp_path_factory.mktemp("far")) as broker:
        yield broker


@pytest.fixture
def lab(broker: FarBroker, tmp_path: Path) -> Iterator[Lab]:
    yield Lab(broker.plain, tmp_path, 2, **{"job.transaction.timeout.ms": "5000"})
    broker.wire.mend()


def by_wire(lab: Lab, broker: FarBroker) -> dict[str, Any]:
    """Return what makes a container of the job come to Kafka by the wire."""
    config = {**lab.definition.config, "kafka.bootstrap.servers": broker.far}
    return {"definition": msgspec.to_builtins(msgspec.structs.replace(lab.definition, config=config))}


def await_equal(standby: Child, active: Container) -> None:
    """Return when the standby holds what the active holds, by the active's word: a lag is of when it was asked last."""
    ends = {each.replica.task: each.applied or 0 for each in active.statuses().values()}
    # The marker behind the last record counts for a reader.
    standby.await_all(
        lambda each: each.phase is Phase.TAILING and (each.applied or 0) >= ends[each.replica.task]
    )


@pytest.mark.parametrize("is_ordered_first", [True, False], ids=["ordered first", "ordered late"])
def test_active_that_is_cut_off_says_so_and_what_it_sent_last_changes_nothing(
    lab: Lab, broker: FarBroker, start_child: StartChild, is_ordered_first: bool
) -> None:
    """It is ordered to be a standby while it is cut off, or gets the order only after all that waited has arrived."""
    active = start_child(lab, "host-a", **by_wire(lab, broker))
    with lab.local("host-b") as standby:
        lab.settle(active, standby)
        with lab.load():
            broker.wire.cut()
            active.await_all(lambda each: each.is_cut_off)
            assert all(each.phase is Phase.TAILING for each in standby.statuses().values())
            if is_ordered_first:
                active.want(0, Role.STANDBY, 2)
            lab.promote(standby, 1, 2)
            standby.await_phase(Phase.ACTIVE)
            broker.wire.mend()
            active.await_all(lambda each: not each.is_cut_off)
        if not is_ordered_first:
            active.want(0, Role.STANDBY, 2)
        standby.await_processed()
        await_equal(active, standby)
        active.close()
    lab.assert_exact()
    lab.assert_local_state("host-a")
    lab.assert_local_state("host-b")


@pytest.mark.parametrize("is_ordered_first", [True, False], ids=["ordered first", "ordered late"])
def test_promotion_that_is_cut_off_ends_when_another_is_promoted(
    lab: Lab, broker: FarBroker, start_child: StartChild, is_ordered_first: bool
) -> None:
    """What it asked of the coordinator comes late, and fences the one that went on meanwhile: that one claims anew."""
    active = start_child(lab, "host-a")
    stranded = start_child(lab, "host-b", **by_wire(lab, broker))
    with lab.local("host-c") as other:
        lab.settle(active, stranded)
        other.want(2, Role.STANDBY, 1)
        other.await_phase(Phase.TAILING)
        broker.wire.cut()
        active.end()
        lab.promote(stranded, 1, 2)
        stranded.await_all(lambda each: each.role is Role.ACTIVE and each.epoch == 2)
        with lab.load():
            assert all(each.phase is not Phase.ACTIVE for each in stranded.statuses().values())
            if is_ordered_first:
                stranded.want(1, Role.STANDBY, 3)
            lab.promote(other, 2, 3)
            other.await_phase(Phase.ACTIVE)
            broker.wire.mend()
            if not is_ordered_first:
                # It learns from the records that it is not meant any more.
                stranded.await_phase(Phase.FENCED)
                stranded.want(1, Role.STANDBY, 3)
            stranded.await_phase(Phase.TAILING)
        other.await_processed()
        await_equal(stranded, other)
        stranded.close()
    lab.assert_exact()
    lab.assert_local_state("host-b")
    lab.assert_local_state("host-c")
