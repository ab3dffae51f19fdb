"""The broker dies and comes back under an active and a standby: both go on by themselves, exact (B10)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from embedded.cluster import LocalCluster
from standby.model import Phase, Role
from tests.kernel_lab import Lab

_AWAY_SECONDS = 10


@pytest.mark.timeout(300)
def test_a_broker_away_for_a_while_is_survived_by_active_and_standby(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(cluster.kafka_bootstrap, tmp_path)
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            lab.produce(20)
            done.wait(0.02)

    lab.name(0, 1)
    with lab.local("host-a") as active, lab.local("host-b") as standby:
        active.want(0, Role.ACTIVE, 1)
        standby.want(1, Role.STANDBY, 1)
        active.await_phase(Phase.ACTIVE)
        standby.await_phase(Phase.TAILING)
        producing = threading.Thread(target=load)
        producing.start()
        active.await_all(lambda each: (each.input_committed or 0) > 100)
        cluster.stop_kafka()
        # Away for longer than the ends count as fresh: the standby's membership is frozen, nothing is lost.
        standby.await_all(lambda each: each.end is None and each.phase is Phase.TAILING, 20)
        done.wait(_AWAY_SECONDS - 5)
        before = {each.replica: each.input_committed or 0 for each in active.statuses().values()}
        cluster.start_kafka()
        began = time.monotonic()
        active.await_all(
            lambda each: each.phase is Phase.ACTIVE and (each.input_committed or 0) > before[each.replica], 90
        )
        recovered = time.monotonic() - began
        done.set()
        producing.join()
        active.await_processed(60)
        standby.await_all(lambda each: each.phase is Phase.TAILING and each.lag_records == 0, 30)
        assert active.replicas.broken is None
        assert standby.replicas.broken is None
        # And the standby is as good as it says.
        lab.name(1, 2, claimed=True)
        standby.want(1, Role.ACTIVE, 2)
        lab.produce(100)
        standby.await_processed()
    lab.assert_exact()
    lab.assert_local_state("host-b")
    with capsys.disabled():
        print(f"\n  commits again {recovered:.1f} s after the broker served again")
