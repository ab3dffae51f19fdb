"""Replicas that must be given up, and whose standbys go on exactly, on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from standby.adapters.rocksdict import RocksDatabase
from standby.errors import Unavailable
from standby.kernel.ports import ChangelogRecord, Profile
from standby.shared.model import Phase, Role
from tests.fakes import ledger_job
from tests.kernel_lab import Lab
from tests.patience import PATIENCE_SECONDS


class FailingDisk:
    """Opens real databases whose writes fail while it is broken, as on a disk that is full or gone."""

    def __init__(self) -> None:
        self.is_broken = False

    def __call__(self, path: Path, profile: Profile) -> RocksDatabase:
        disk = self

        class Failing(RocksDatabase):
            def write(
                self, changes: Iterable[ChangelogRecord], cancelled: threading.Event | None = None
            ) -> None:
                if disk.is_broken:
                    raise Unavailable(f"{path}: No space left on device")
                super().write(changes, cancelled)

        return Failing(path, profile)


def test_a_write_that_fails_after_a_good_commit_costs_the_replica_and_no_record(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    lab, disk = Lab(kafka_bootstrap, tmp_path), FailingDisk()
    with lab.local("host-a", databases=disk) as active, lab.local("host-b") as standby:
        lab.settle(active, standby)
        disk.is_broken = True
        before = lab.committed_offsets()
        lab.produce(200)
        active.await_phase(Phase.FAILED)
        assert all("the store is not written" in each.detail for each in active.statuses().values())
        assert all(now > then for now, then in zip(lab.committed_offsets(), before, strict=True))
        lab.promote(standby, 1, 2)
        standby.await_processed()
        # The disk has room again: what it has is older than what it committed, and is brought up to it.
        disk.is_broken = False
        active.want(0, Role.STANDBY, 2)
        active.await_all(lambda each: each.phase is Phase.TAILING and each.lag_records == 0)
    lab.assert_exact()
    lab.assert_local_state("host-a")
    lab.assert_local_state("host-b")


def test_user_code_that_never_returns_is_given_up_within_its_deadline(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    lab = Lab(kafka_bootstrap, tmp_path, 2, **{"task.progress.timeout.ms": "5000"})
    hangs, go = threading.Event(), threading.Event()

    def step(rows: Any, state: Any, out: Any) -> None:
        ledger_job.step(rows, state, out)
        if hangs.is_set():
            assert go.wait(PATIENCE_SECONDS)

    with lab.local("host-a", step=step) as active, lab.local("host-b") as standby:
        lab.settle(active, standby)
        hangs.set()
        lab.produce(200)
        active.await_phase(Phase.FAILED)
        assert all("nothing was committed for 5000 ms" in each.detail for each in active.statuses().values())
        lab.promote(standby, 1, 2)
        standby.await_processed()
        # What it computed comes too late: it may commit nothing, and write nothing to its store.
        go.set()
        active.want(0, Role.STANDBY, 2)
        active.await_all(lambda each: each.phase is Phase.TAILING and each.lag_records == 0)
    lab.assert_exact()
    lab.assert_local_state("host-a")
    lab.assert_local_state("host-b")
