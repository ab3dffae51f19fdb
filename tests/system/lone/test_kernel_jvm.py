"""A JVM that hangs alone: its active is given up within its deadline, and its standby goes on exactly."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from standby.shared import exits
from standby.shared.model import Phase, Role
from tests.kernel_lab import Lab
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.deaths import StartChild

#: `task.progress.timeout.ms` of the job; a cold JVM's first batch must not be taken for one that hangs.
PROGRESS_MS = 30_000


@pytest.mark.spark
@pytest.mark.soak
def test_a_jvm_that_hangs_costs_its_replica_and_no_record(
    kafka_bootstrap: str, tmp_path: Path, start_child: StartChild
) -> None:
    """Then the container ends, and the JVM with it."""
    lab = Lab(
        kafka_bootstrap,
        tmp_path,
        1,
        **{
            "task.progress.timeout.ms": str(PROGRESS_MS),
            "job.transaction.timeout.ms": "1000",
        },
    )
    lab.name(0, 1)
    active = start_child(lab, "host-a", feed="spark")
    with lab.local("host-b") as successor:
        lab.produce(200)
        active.want(0, Role.ACTIVE, 1)
        successor.want(1, Role.STANDBY, 1)
        end = lab.input[0][-1][0] + 1
        active.await_all(lambda each: each.input_committed == end)
        (jvm,) = (
            each for each in psutil.Process(active.process.pid).children(recursive=True) if is_jvm(each)
        )
        try:
            jvm.send_signal(signal.SIGSTOP)
            lab.produce(200)
            active.await_phase(Phase.FAILED)
            lab.promote(successor, 1, 2)
            successor.await_processed()
            assert active.await_death() == exits.BROKEN
            jvm.wait(PATIENCE_SECONDS)
        finally:
            if jvm.is_running():
                jvm.kill()
    lab.assert_exact()
    lab.assert_local_state("host-b")


def is_jvm(process: psutil.Process) -> bool:
    return process.name() == "java"
