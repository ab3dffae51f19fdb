"""The broker dies and comes back under an active, a standby and a restore: all go on by themselves, exact.

And at any moment, one broker and any of three, with containers that die in between; `benchmarks.brokerkills` does the
same for hours.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.cluster import LocalCluster
from embedded.servers import KAFKA
from standby.kernel import probes
from standby.shared.model import Phase, Role
from tests.kernel_lab import Lab
from tests.meanwhile import Hold
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.broker_kills import Course

#: How long all may take to be processed after a broker has come back.
AGAIN_SECONDS = 2 * PATIENCE_SECONDS

#: How often a broker is killed at any moment, and when: what a failure tells can be had again.
KILLS = int(os.environ.get("STANDFAST_BROKER_KILLS", "50"))
SEED = int(os.environ.get("STANDFAST_BROKER_SEED") or random.randrange(1 << 30))

#: What a job may fail with when a broker has left a marker out, and with nothing else.
OF_MARKERS = re.compile(
    r"are open at the end of its changelog|what was committed to the changelog is lost|"
    r"outputs that were committed are not visible|has left out the markers of commit"
)


@pytest.mark.timeout(10 * PATIENCE_SECONDS)
@pytest.mark.parametrize("away_seconds", [0, 7, pytest.param(120, marks=pytest.mark.soak)])
def test_a_broker_that_comes_back_finds_active_standby_and_restore_going_on(
    own_cluster: LocalCluster, tmp_path: Path, away_seconds: float
) -> None:
    # Longer than a transaction may take by default, 5 s; a restart is to be over before the open ones time out.
    timeout = {} if away_seconds else {"job.transaction.timeout.ms": "30000"}
    lab = Lab(own_cluster.kafka_bootstrap, tmp_path, 2, **timeout)
    # In the midst of its restore when the broker goes.
    restore = Hold(probes.REPLAYED)
    stopping, stopped, held = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hold_open(point: str) -> None:
        # Each task has a transaction open when the broker goes; the test below kills it at any moment.
        if point == probes.BEFORE_COMMIT and stopping.is_set():
            held.release()
            assert stopped.wait(PATIENCE_SECONDS)

    with (
        lab.local("host-a", hold_open) as active,
        lab.local("host-b") as standby,
        lab.local("host-c", restore) as late,
    ):
        lab.promote(active, 0, 1)
        standby.want(1, Role.STANDBY, 1)
        active.await_phase(Phase.ACTIVE)
        standby.await_phase(Phase.TAILING)
        with lab.load(20, per_second=50):
            active.await_all(lambda each: (each.input_committed or 0) > 100)
            late.want(2, Role.STANDBY, 1)
            restore.await_reached()
            stopping.set()
            assert all(held.acquire(timeout=PATIENCE_SECONDS) for _ in range(lab.tasks))
            own_cluster.stop_server(KAFKA)
            stopped.set()
            restore.let_go()
            if away_seconds:
                # For longer than the ends count as fresh: the standby's membership is frozen, nothing is lost.
                standby.await_all(lambda each: each.end is None and each.phase is Phase.TAILING)
                time.sleep(away_seconds - 4)
            before = {each.replica: each.input_committed or 0 for each in active.statuses().values()}
            own_cluster.start_server(KAFKA)
            active.await_all(
                lambda each: (
                    each.phase is Phase.ACTIVE and (each.input_committed or 0) > before.get(each.replica, 0)
                ),
                AGAIN_SECONDS,
            )
        # A broker that has just come back is busy with all that other tests have left on it.
        active.await_processed(AGAIN_SECONDS)
        for each in (standby, late):
            each.await_all(lambda one: one.phase is Phase.TAILING and one.lag_records == 0)
        assert [each.replicas.broken for each in (active, standby, late)] == [None] * 3
        # And the standbys are as good as they say.
        lab.promote(standby, 1, 2)
        lab.produce(100)
        standby.await_processed()
        late.await_all(lambda one: one.lag_records == 0)
    lab.assert_exact()
    lab.assert_local_state("host-b")


@pytest.fixture
def three_brokers() -> Iterator[LocalCluster]:
    """Servers of its own: most tests are lighter with one broker."""
    with LocalCluster.start(f"three-{os.getpid()}", nodes=0, brokers=3, is_temporary=True) as cluster:
        yield cluster


@pytest.mark.soak
@pytest.mark.timeout((10 + KILLS) * PATIENCE_SECONDS)
@pytest.mark.parametrize("which", ["own_cluster", "three_brokers"], ids=["one broker", "any of three"])
def test_whenever_a_broker_is_killed_all_is_exact_or_a_named_failure(
    request: pytest.FixtureRequest, tmp_path: Path, which: str
) -> None:
    cluster: LocalCluster = request.getfixturevalue(which)
    # Three brokers start slowly on a small machine.
    kills = KILLS if which == "own_cluster" else (KILLS + 1) // 2
    tally = Course(cluster, tmp_path, SEED).run(kills)
    told = f"STANDFAST_BROKER_SEED={SEED} STANDFAST_BROKER_KILLS={KILLS}: {tally}"
    (verdict,) = tally.verdicts
    assert verdict.is_exact, told
    assert verdict.records > 0, told
    assert not tally.stuck, told
    # With a release that writes every marker, no outcome is unknown.
    assert len(tally.named_failures) <= tally.markers_left_out, told
    assert all(OF_MARKERS.search(each) for each in tally.named_failures), told
