"""kill -9 under load at random moments, and a transaction that the broker ends."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.kernel import probes
from standby.kernel.ports import WriterLost
from standby.replica.outbox import Outputs
from standby.replica.store.keys import prefix
from standby.shared.model import Offsets, Phase
from tests.kernel_lab import CLUSTER, Container, Lab
from tests.patience import PATIENCE_SECONDS, STRIKE_SECONDS, soon
from tests.system.lone.deaths import StartChild, process_the_rest, take_over_and_die


class Ends:
    """A probe that notes where the changelog of a task ends once its new owner's fence holds.

    It can also have the replay stand still until then, so that there is something to restore.
    """

    def __init__(self, lab: Lab) -> None:
        self._broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
        self.seen: dict[int, int] = {}
        self.may_replay = threading.Event()
        self.may_replay.set()

    def __call__(self, point: str) -> None:
        if point == probes.REPLAYED:
            assert self.may_replay.wait(PATIENCE_SECONDS)
        if point == probes.OFFSETS_READ:
            # The replica's own thread passes here, and is named after it.
            partition = int(threading.current_thread().name.rpartition(".")[2].partition("#")[0])
            self.seen[partition] = self._broker.changelog_ends((partition,))[partition]
            if len(self.seen) == 2:
                self.may_replay.set()

    def assert_restored(self, container: Container) -> int:
        """Compare what the actives say they had to restore with what was seen; return the most of it."""
        for each in container.statuses().values():
            assert each.drained_to == self.seen[each.replica.task.partition]
            assert each.drained_from is not None
            assert each.restored_records == each.drained_to - each.drained_from >= 0
        return max(each.restored_records or 0 for each in container.statuses().values())

    def close(self) -> None:
        self._broker.close()


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_exact_however_often_the_active_is_killed(
    kafka_bootstrap: str, tmp_path: Path, start_child: StartChild, kills: int
) -> None:
    lab = Lab(kafka_bootstrap, tmp_path)
    ends, moments = Ends(lab), random.Random(7)
    with lab.local("host-b", ends) as keeper, lab.load(10, per_second=200):
        lab.promote(keeper, 1, 1)
        # From now on the records say that the tasks were claimed.
        keeper.await_phase(Phase.ACTIVE)
        for epoch in range(2, 2 + 2 * kills, 2):
            is_behind = epoch % 4 == 0

            def wait_for_the_moment(is_behind: bool = is_behind) -> None:
                ends.seen.clear()
                if is_behind:
                    ends.may_replay.clear()
                    keeper.await_all(lambda each: bool(each.lag_records))
                time.sleep(moments.uniform(0, STRIKE_SECONDS))

            take_over_and_die(lab, start_child, keeper, epoch, wait_for_the_moment)
            assert ends.assert_restored(keeper) > 0 or not is_behind
    ends.close()
    process_the_rest(lab, epoch + 2)


def test_a_transaction_that_takes_longer_than_its_time_out_says_so(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    """The broker aborts it, and calls that a fence: without the reason, the right key is not obvious."""
    lab = Lab(kafka_bootstrap, tmp_path, 1, **{"job.transaction.timeout.ms": "1000"})
    broker = connect(CLUSTER, parse(lab.definition.config), lab.definition)
    writer = broker.open_writer(0)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    writer.begin(b"record")
    writer.prepare(Outputs(), {prefix("counts") + b"k": b"1"}, Offsets.of(1), "m")
    soon(lambda: broker.changelog_ends((0,), is_stable=True)[0] >= 2, "the broker aborts it")
    with pytest.raises(WriterLost, match=r"has taken \d+\.\d s \(job.transaction.timeout.ms is 1000\)"):
        writer.commit()
    writer.close()
    broker.close()
    assert lab.committed_records(lab.definition.changelog) == []
