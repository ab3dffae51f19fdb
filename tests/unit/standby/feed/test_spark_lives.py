"""A Spark transform whose JVM dies or hangs, and one whose session has the settings of a job: a JVM for each test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import NumberFormatException

from standby.adapters.spark import exchange
from standby.adapters.spark.direct import DirectPlan
from standby.adapters.spark.rehearsals import RehearsalNotes
from standby.errors import BadConfiguration, Transient
from standby.feed import spark as feed_spark
from standby.feed.spark import SparkTransform
from tests.fakes.clock import held
from tests.meanwhile import background
from tests.patience import A_MOMENT_SECONDS, PATIENCE_SECONDS, soon
from tests.unit.standby.feed import spark_runs
from tests.unit.standby.feed.spark_runs import NO_CODE, HeldRun, assert_same, configuration, rows

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

#: A batch of so many rows is divided among the session's task slots.
DIVIDED = feed_spark._DIVIDED_ROWS

#: Settings of a job that change the types of Spark's columns, how results are passed, and how plans are run.
OWN = {
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.execution.arrow.pyspark.selfDestruct.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.master": "local[1]",
    "spark.default.parallelism": "200",
}


ROOT = Path(__file__).parents[4]

KILLED = """
import os, signal, sys
from pathlib import Path
from standby.adapters.spark import exchange
from standby.feed.spark import SparkTransform
from tests.unit.standby.feed.spark_runs import NO_CODE, configuration, rows
exchange._IN_MEMORY = Path(sys.argv[1])
transform = SparkTransform(configuration(None), NO_CODE)
transform.open()
transform._exchange.put(rows([b"v"]), 1)
print(os.getpid(), transform.child_pids[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def transform() -> Iterator[SparkTransform]:
    transform = SparkTransform(configuration(spark_runs.refuses), NO_CODE)
    transform.open()
    yield transform
    transform.close()


def assert_ends(jvm: int) -> None:
    soon(lambda: not Path("/proc", str(jvm)).exists(), "the JVM is gone")


def test_a_jvm_that_died_is_a_passing_fault_for_whatever_is_next(transform: SparkTransform) -> None:
    transform.warm(lambda: rows([b"v"]))
    was_warm = transform.is_warm
    os.kill(transform.child_pids[0], signal.SIGKILL)
    for count in (1, DIVIDED):
        running = background(lambda count=count: transform.run(rows([b"v"] * count)))  # type: ignore[misc]
        assert isinstance(running.exception(PATIENCE_SECONDS), Transient)
    with pytest.raises(Transient, match="JVM has died"):
        transform.run(rows([b"v"]))
    for later in (transform.open, lambda: transform.warm(lambda: None)):
        with pytest.raises(Transient, match="JVM has died"):
            later()
    assert (was_warm, transform.is_warm) == (True, False)
    transform.cancel()


def test_a_jvm_that_dies_during_a_run_is_no_error_of_the_job(
    transform: SparkTransform, tmp_path: Path
) -> None:
    with HeldRun(transform.run, tmp_path / "waits") as run:
        os.kill(transform.child_pids[0], signal.SIGKILL)
    assert isinstance(run.raised, Transient), run.raised


def test_a_jvm_that_dies_ends_a_warm_up(transform: SparkTransform) -> None:
    def killed() -> None:
        os.kill(transform.child_pids[0], signal.SIGKILL)

    with pytest.raises(Transient, match="JVM has died"):
        transform.warm(killed)
    assert not transform.is_warm


def test_a_record_that_ends_a_jvm_in_a_rehearsal_is_not_rehearsed_by_its_successor(tmp_path: Path) -> None:
    """It ended every standby, and each one that was started in its place, while it was among the last records."""
    tmp_path.chmod(0o700)
    notes = RehearsalNotes(tmp_path, "run")
    transform = SparkTransform(configuration(spark_runs.greedy), NO_CODE, notes=notes)
    with pytest.raises(Transient, match="had no memory left"):
        transform.warm(lambda: rows([b"0", b"1"]))
    transform.close()
    clock, reads = held(), list[pa.Table]()
    successor = SparkTransform(configuration(spark_runs.greedy), NO_CODE, clock, notes)

    def recent() -> pa.Table:
        reads.append(rows([b"0", b"1"]))
        return reads[-1]

    for _ in range(2):
        successor.warm(recent)
    assert (successor.is_warm, successor.run_seconds, len(reads)) == (True, None, 1), "not with real rows"
    clock.advance(feed_spark._PASSED_SECONDS)
    successor.warm(lambda: rows([b"0", b"0"], first=1))
    assert successor.run_seconds is not None
    successor.close()


def test_a_jvm_that_hangs_is_ended_by_a_cancel(
    transform: SparkTransform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_spark, "CALL_SECONDS", A_MOMENT_SECONDS)
    with HeldRun(transform.run, tmp_path / "waits") as run:
        os.kill(transform.child_pids[0], signal.SIGSTOP)

        def is_over() -> bool:
            # Again and again, as at the end of a feed: a thread of the JVM that does not stand still yet may answer.
            transform.cancel()
            return run.has_ended

        soon(is_over, "the JVM is killed")
    assert isinstance(run.raised, Transient), run.raised


def test_a_jvm_keeps_nothing_of_batches_without_a_job_and_ends_without_memory() -> None:
    """A row that needs more than there is may be at fault, and is found like one that ends the process."""
    transform = SparkTransform(configuration(spark_runs.greedy), NO_CODE)
    try:
        transform.open()
        for count in (1, DIVIDED):
            assert transform.run(rows([b"0"] * count)).num_rows == count
            with pytest.raises(NumberFormatException):
                transform.run(rows([b"0"] * count + [b"v"]))
        assert transform._spark is not None
        jvm: Any = transform._spark.session._jvm
        assert jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory() == 0
        with pytest.raises(Transient, match="no memory left"):
            transform.run(rows([b"1"]))
        assert_ends(*transform.child_pids)
    finally:
        transform.close()


def test_a_row_that_computes_for_ever_holds_nobody_up_until_every_slot_has_one() -> None:
    """Nothing ends it: like a task of Spark, its thread goes on by itself."""
    clock = held()
    transform = SparkTransform(configuration(spark_runs.endless), NO_CODE, clock)
    try:
        transform.open()
        for _ in range(2):
            assert transform.run(rows([b"1"]))["_offset"].to_pylist() == [0]
            plan = transform._plans[1]
            assert isinstance(plan, DirectPlan)
            run = background(lambda: transform.run(rows([b"30000"])))

            def is_computing(plan: DirectPlan = plan) -> bool:
                running = [thread for thread, _ in plan._running.values()]
                return any(
                    "ArrayAggregate" in str(frame) for each in running for frame in each.getStackTrace()
                )

            soon(is_computing, "it computes")
            transform.cancel()
            assert isinstance(run.exception(PATIENCE_SECONDS), Transient)
            assert (plan.stuck, transform._plans) == (1, {})
        # They may only be slow.
        clock.advance(59)
        assert transform.run(rows([b"1"])).num_rows == 1
        clock.advance(2)
        with pytest.raises(Transient, match="JVM has died"):
            transform.run(rows([b"1"]))
        assert_ends(*transform.child_pids)
    finally:
        transform.close()


def test_settings_of_a_job_do_not_change_its_rows() -> None:
    of_all = SparkTransform(configuration(None, **OWN), NO_CODE)
    of_moved = SparkTransform(configuration(spark_runs.moved, **OWN), NO_CODE)
    try:
        for first, count in ((-3_600_000_000, 20), (1_709_283_605_000_000, DIVIDED)):
            put = rows([b"v"] * count, first)
            assert_same(of_all.run(put), put)
            assert set(of_all._plans) == {1}, "a batch has no more parts than Spark has task slots"
            assert sorted(of_moved.run(put)["_offset"].to_pylist()) == put["_offset"].to_pylist()
    finally:
        of_moved.close()
        of_all.close()


def test_functions_have_the_memory_that_the_job_gives_to_python_workers() -> None:
    keys = {"spark.executor.pyspark.memory": "3g"}
    direct, with_a_job = [
        SparkTransform(configuration(spark_runs.limited, **keys), NO_CODE) for _ in range(2)
    ]
    with_a_job._is_direct = False
    try:
        assert [each.run(rows([b"v"]))["n"].to_pylist() for each in (direct, with_a_job)] == [[3 << 30]] * 2
    finally:
        with_a_job.close()
        direct.close()


def test_a_worker_that_cannot_be_started_is_no_error_of_the_job(transform: SparkTransform) -> None:
    """Its error is a general one of Spark's, which has what the worker has printed."""
    name = "spark.python.unix.domain.socket.dir"
    assert transform._spark is not None
    jvm: Any = transform._spark.session._jvm
    jvm.org.apache.spark.SparkEnv.get().conf().set(name, "/absent")
    with pytest.raises(Transient, match="Spark failed"):
        transform.run(rows([b"v"]))


def test_a_setting_that_changes_the_types_of_the_rows_is_refused() -> None:
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    with pytest.raises(BadConfiguration, match=name):
        SparkTransform(configuration(None, **{name: "true"}), NO_CODE)


def test_a_killed_process_takes_its_jvm_along_and_its_rows_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In the usual place, every transform of another test sweeps as well.
    monkeypatch.setattr(exchange, "_IN_MEMORY", tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    process, jvm = run.stdout.split()
    assert_ends(int(jvm))
    left = f"{exchange._PREFIX}{process}-*"
    assert list(tmp_path.glob(left)) != []
    SparkTransform(configuration(None), NO_CODE)
    assert list(tmp_path.glob(left)) == []
