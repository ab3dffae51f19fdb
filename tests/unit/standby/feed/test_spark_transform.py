"""The rows of batches in a real Spark session: what comes out is made of those that were put last, and of no others."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from standby.adapters.spark import direct, exchange
from standby.adapters.spark.direct import DirectPlan
from standby.adapters.spark.exchange import JobPlan
from standby.adapters.spark.jvm import spark_home
from standby.adapters.spark.session import Spark
from standby.errors import BadConfiguration, Transient
from standby.feed import archive, turns
from standby.feed import spark as feed_spark
from standby.feed.batches import rows_of
from standby.feed.borrowing import decoded, encoded
from standby.feed.make import check_transform
from standby.feed.spark import PythonWorkerLost, SparkFeed, SparkTransform, settings_of
from standby.ports import NotLent
from standby.shared.model import Offsets, TaskId
from standby.shared.wire import JobDefinition
from tests.cases import case
from tests.fakes.jobs import job_config
from tests.meanwhile import background
from tests.patience import LOOK_SECONDS, NEVER_SECONDS, PATIENCE_SECONDS, soon
from tests.unit.standby.feed import spark_plans, spark_runs
from tests.unit.standby.feed.spark_runs import (
    APPLIED,
    NAMES,
    NO_CODE,
    HeldRun,
    assert_same,
    configuration,
    rows,
)

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

#: A batch of so many rows is divided among the session's task slots.
DIVIDED = feed_spark._DIVIDED_ROWS


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[Spark]:
    """One JVM for all, whatever Spark the host has besides."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(spark_home()))
        spark = Spark.acquire(settings_of(job_config(), NO_CODE))
    yield spark
    spark.release()


Make = Callable[..., SparkTransform]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[SparkTransform] = []

    def build(function: Callable[..., Any] | None = None, **keys: str) -> SparkTransform:
        made.append(SparkTransform(configuration(function, **keys), NO_CODE))
        return made[-1]

    yield build
    for each in made:
        each.close()


def test_python_workers_import_the_installed_pyspark_which_is_compiled(spark: Spark) -> None:
    """They imported it from the zip file next to it, at half a second of processor time."""

    def origin(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyspark

        yield from (pa.record_batch({"path": [pyspark.__file__]}) for _ in batches)

    ((path,),) = spark.session.range(1).coalesce(1).mapInArrow(origin, "path string").collect()
    assert Path(path).parent == spark_home()


def test_rows_come_out_as_they_were_put_batch_after_batch(make: Make) -> None:
    transform = make()
    large = exchange._PIECE_BYTES // 3
    sizes = [
        [5] * 3,
        [],
        [5],
        [0, 300_000, 0],
        [5] * (DIVIDED - 1),
        [5] * DIVIDED,
        [large] * 10,
        [7] * (DIVIDED + 1),
        # A divided batch of several pieces per part, and a row that is larger than a piece.
        [exchange._PIECE_BYTES * 5 // DIVIDED] * DIVIDED,
        [5, 5 * exchange._PIECE_BYTES, 5],
        [],
        [5] * 2,
    ]
    first = 0
    for number, each in enumerate(sizes):
        put = rows([bytes([number]) * size for size in each], first)
        first += len(each)
        with case(f"batch {number}"):
            assert_same(transform.run(put), put)


def test_all_columns_come_out_as_they_were_put(make: Make) -> None:
    schema = rows_of(["a", "b"], has_headers=True)
    transform = make(**{"task.inputs": "a,b", "task.input.headers": "true"})
    long_ago, far_ahead = -(2**55), 2**55
    put = pa.table(
        {
            "key": [None, b"", "clé".encode(), b"\x00\xff"],
            "value": [None, b"", b"v", b"\x00\xff"],
            "timestamp": [None, -1, long_ago, far_ahead],
            "_task": [0, 1, 2**31 - 1, 0],
            "_offset": [0, 1, 2**63 - 1, 3],
            "_topic": ["a", "b", "a", "b"],
            "headers": [
                None,
                [],
                [{"key": "h", "value": None}, {"key": "h", "value": b"\xff"}],
                [{"key": "", "value": b""}],
            ],
        },
        schema=schema,
    )
    assert_same(transform.run(put), put)
    assert_same(transform.run(put.slice(2)), put.slice(2))


@pytest.mark.parametrize(
    ("transform", "is_made_anew"),
    [
        (spark_runs.measured, False),
        (spark_runs.doubled, False),
        (spark_runs.dated, False),
        (spark_runs.at_once, True),
        (spark_runs.at_once_in_words, True),
        (spark_runs.drawn, True),
        (spark_runs.named, True),
        (spark_runs.joined, True),
        (spark_runs.looked_up, True),
        (spark_runs.moved, True),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_plan_is_made_anew_when_a_part_of_it_is_evaluated_once(
    make: Make, transform: Callable[..., Any], is_made_anew: bool
) -> None:
    made = make(transform)
    found, planned = [], []
    for number in range(3):
        NAMES["only"] = f"name {number}"
        put = rows([b"2024-03-%02d" % (5 * number + each + 1) for each in range(5)], 5 * number)
        come = made.run(put)
        planned.append(len(APPLIED))
        assert sorted(come["_offset"].to_pylist()) == put["_offset"].to_pylist()
        found.append(come["n"].to_pylist())
    assert (planned[0] < planned[1] < planned[2]) is is_made_anew
    assert (planned[0] == planned[2]) is not is_made_anew
    if transform is not spark_runs.measured:
        assert not set(found[0]) & set(found[1])
        assert not set(found[1]) & set(found[2])


def test_columns_that_a_transform_only_passes_on_go_around_spark(make: Make, spark: Spark) -> None:
    """None: all go through Spark."""
    put = rows([b"1", b"2,3", None, b"4,,5"], 7)
    put = put.set_column(0, "key", pa.array([b"a", None, b"", b"d"], pa.binary()))
    for transform, used in {
        spark_runs.chosen: ("key",),
        spark_runs.divided: ("value", "timestamp"),
        spark_runs.unchanged: (),
        spark_runs.measured: ("value",),
        spark_runs.even: None,
        spark_runs.mapped: None,
        spark_runs.in_japan: None,
    }.items():
        with case(transform.__name__):
            made = make(transform)
            found = [made.run(put), made.run(put.slice(0, 0)), made.run(put.slice(1))]
            assert (made._passing and made._passing.used) == used
            made._passing, made._empty = None, None
            made._plans.clear()
            assert found == [made.run(put), made.run(put.slice(0, 0)), made.run(put.slice(1))]
            spark.session.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_transform_whose_plan_has_become_another_gets_all_columns(make: Make) -> None:
    transform = make(spark_runs.at_first_all)
    assert transform.run(rows([b"1", b"22"]))["value"].to_pylist() == [b"22"]


def test_expressions_and_functions_over_rows_need_no_job_and_have_the_same_results(
    make: Make, spark: Spark
) -> None:
    NAMES["only"] = "name"
    some = rows([b"2024-3-1 of them", b"2023-12-31,1", b"7", b""], 5)
    many = rows([b"2024-3-%d" % (1 + each % 28) for each in range(DIVIDED)], 3)
    # Several Arrow batches of rows, and of results.
    large = rows([b"%d " % each + bytes(1_000) for each in range(11 * DIVIDED)], 3)
    for transform, kind in {
        spark_runs.measured: DirectPlan,
        spark_runs.divided: DirectPlan,
        spark_runs.unchanged: DirectPlan,
        spark_runs.even: DirectPlan,
        spark_runs.in_japan: DirectPlan,
        spark_runs.lenient: DirectPlan,
        spark_runs.doubled: DirectPlan,
        spark_runs.pickled: DirectPlan,
        spark_runs.in_columns: DirectPlan,
        spark_runs.mapped: DirectPlan,
        spark_runs.mapped_in_pandas: DirectPlan,
        spark_runs.mapped_together: JobPlan,
        spark_runs.in_a_table: None,
        spark_runs.in_scala: JobPlan,
        spark_runs.joined: None,
        spark_runs.moved: None,
    }.items():
        with case(transform.__name__):
            made, other = make(transform), make(transform)
            other._is_direct = False
            found = [
                each.run(put)
                for put in (some, many, large, some.slice(1), some.slice(0, 0))
                for each in (made, other)
            ]
            assert [{type(plan) for plan in each._plans.values()} for each in (made, other)] == [
                {kind} - {None},
                {JobPlan} if kind else set(),
            ]
            jobs = spark.session.sparkContext.statusTracker().getJobIdsForGroup(made._group)
            assert (list(jobs) == []) is (kind is DirectPlan)
            if transform is not spark_runs.moved:
                assert found[::2] == found[1::2]
                assert [each.schema for each in found[::2]] == [each.schema for each in found[1::2]]
        for name in ("spark.sql.session.timeZone", "spark.sql.legacy.timeParserPolicy"):
            spark.session.conf.set(name, {"spark.sql.session.timeZone": "UTC"}.get(name, "CORRECTED"))


def test_a_batch_without_a_job_is_cancelled_between_rows_and_while_one_waits(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_END_SECONDS", PATIENCE_SECONDS)
    transform = make(spark_runs.parked)
    for count in (1, DIVIDED):
        # One row waits longer than anybody, all of them together do.
        put = rows([b"%d" % (int(NEVER_SECONDS) * 10**9 // count)] * count)
        running = background(lambda put=put: transform.run(put))  # type: ignore[misc]

        def is_waiting(count: int = count) -> bool:
            plan = transform._plans.get(1 if count == 1 else 2)
            running = [thread for thread, _ in plan._running.values()] if isinstance(plan, DirectPlan) else []
            return [str(thread.getState()) for thread in running] == ["TIMED_WAITING"] * (
                1 if count == 1 else 2
            )

        soon(is_waiting, "the rows wait")
        transform.cancel()
        assert isinstance(running.exception(PATIENCE_SECONDS), Transient)
        assert transform.run(rows([b"1"] * count)).num_rows == count


def test_a_large_batch_is_divided_and_keeps_its_order(make: Make) -> None:
    transform = make(spark_runs.measured)
    for first, count, parts in ((0, 3 * DIVIDED, {0, 1}), (7, 3, {0}), (9, 3 * DIVIDED + 1, {0, 1})):
        found = transform.run(rows([b"v"] * count, first))
        assert found["_offset"].to_pylist() == list(range(first, first + count))
        assert set(found["part"].to_pylist()) == parts


def test_the_error_of_a_python_function_is_the_jobs_and_its_crash_is_reported(make: Make) -> None:
    transform = make(spark_runs.refuses)
    assert transform.run(rows([b"a", b"b"]))["value"].to_pylist() == [b"a", b"b"]
    with pytest.raises(Exception, match="no such plane: poison") as raised:
        transform.run(rows([b"a", b"poison"]))
    assert type(raised.value).__name__ == "PythonException"
    assert raised.value.__cause__ is not raised.value
    with pytest.raises(PythonWorkerLost):
        transform.run(rows([b"a", b"crash"]))
    own = make(spark_plans.refuses_a_value)
    for put in (rows([b"v"]), rows([b"1"] * DIVIDED + [b"v"])):
        with pytest.raises(Exception, match="CAST_INVALID_INPUT") as raised:
            own.run(put)
        assert type(raised.value).__name__ == "NumberFormatException"
    overflowing = make(spark_plans.overflows)
    with pytest.raises(Exception, match="StackOverflowError"):
        overflowing.run(rows([b"ab" * 200_000]))
    assert overflowing.run(rows([b"abc"])).num_rows == 1
    assert transform.run(rows([b"c"]))["value"].to_pylist() == [b"c"]


def test_a_cancelled_run_ends_and_the_next_one_works(make: Make, tmp_path: Path) -> None:
    transform = make(spark_runs.refuses)
    for number in range(2):
        with HeldRun(transform.run, tmp_path / str(number)) as run:
            plan = transform._plans[1]
            transform.cancel()
        assert isinstance(run.raised, Transient), run.raised
        assert transform.run(rows([b"a"]))["value"].to_pylist() == [b"a"]
        assert isinstance(plan, DirectPlan)
        soon(lambda plan=plan: not plan.stuck, "Spark ends the worker of a function that waits for ever")  # type: ignore[misc]


def test_functions_find_what_was_broadcast_and_what_they_add_is_summed_up(make: Make) -> None:
    for is_direct in (True, False):
        with case(f"direct {is_direct}"):
            transform = make(spark_runs.looks_up)
            transform._is_direct = is_direct
            assert transform.run(rows([b"a", b"b"]))["value"].to_pylist() == [b"A", b"1"]
            large = transform.run(rows([b"a", b"bb"] * DIVIDED))
            assert large["value"].to_pylist() == [b"A", b"2"] * DIVIDED
            assert sum(each.value for each in spark_runs.COUNTED) == 2 + 2 * DIVIDED
            spark_runs.COUNTED.clear()


def test_workers_do_not_search_what_their_first_batch_left_for_garbage(make: Make) -> None:
    """That would take 20 ms of processor time after each batch."""
    for is_direct in (True, False):
        with case(f"direct {is_direct}"):
            transform = make(spark_runs.collected)
            transform._is_direct = is_direct
            found = [transform.run(rows([b"v"] * DIVIDED))["n"].to_pylist() for _ in range(2)][-1]
            assert min(found) > 0


def test_functions_keep_no_memory_of_the_jvm_also_after_failures(make: Make, spark: Spark) -> None:
    jvm: Any = spark.session._jvm
    memory = jvm.org.apache.spark.SparkEnv.get().memoryManager()
    failing: dict[SparkTransform, list[bytes | None]] = {
        make(spark_runs.refuses): [b"poison", b"crash"],
        make(spark_runs.pickled): [None],
    }
    for transform, values in failing.items():
        for value in values:
            for count in (0, DIVIDED):
                with pytest.raises(Exception, match=r"poison|Spark ended|NoneType"):
                    transform.run(rows([b"a"] * count + [value]))
                assert transform.run(rows([b"aa"] * (count + 1))).num_rows == count + 1
                assert jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory() == 0
                assert memory.executionMemoryUsed() == 0


def test_transforms_of_one_session_see_their_own_rows_only(make: Make) -> None:
    transforms = [make(spark_runs.looked_up) for _ in range(2)]
    NAMES["only"] = "name"

    def run(number: int) -> None:
        for batch in range(5):
            first = 1_000 * number + batch
            assert transforms[number].run(rows([b"v"], first))["_offset"].to_pylist() == [first]

    for each in [background(partial(run, number)) for number in range(2)]:
        each.result(PATIENCE_SECONDS)


def test_the_jvm_keeps_nothing_of_the_batches_that_were_run(
    make: Make, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_spark, "_SOCKETS", 5)
    jvm: Any = spark.session._jvm
    listed = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    listed.setAccessible(True)
    transform = make(spark_runs.in_scala)
    transform.run(rows([b"v"]))
    before = listed.get(None).size()
    for _ in range(20):
        transform.run(rows([b"v"]))
    assert listed.get(None).size() <= before + 5


def test_files_of_what_was_broadcast_for_a_batch_are_deleted(
    make: Make, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_spark, "_BROADCASTS", 1)
    jvm: Any = spark.session._jvm
    place = Path(spark.session.sparkContext._temp_dir)
    transform = make(spark_runs.looks_up_anew)
    before = len(list(place.iterdir()))
    ran = 0

    def are_fewer_than_batches() -> bool:
        nonlocal ran
        ran += 1
        assert transform.run(rows([b"a"]))["value"].to_pylist() == [b"A"]
        # Spark frees a variable when it is found to be unused.
        gc.collect()
        jvm.java.lang.System.gc()
        return len(list(place.iterdir())) - before <= ran // 2

    soon(are_fewer_than_batches, "files are deleted")


def test_rows_are_in_memory_only_while_they_are_run(make: Make, tmp_path: Path) -> None:
    def held() -> list[Path]:
        return list(exchange._places()[0].glob(f"{exchange._PREFIX}{os.getpid()}-*"))

    transform = make(spark_runs.refuses)
    transform.run(rows([b"v"] * DIVIDED))
    assert held() == []
    with pytest.raises(Exception, match="poison"):
        transform.run(rows([b"poison"]))
    assert held() == []
    with HeldRun(transform.run, tmp_path / "waits"):
        assert held() != []
        transform.cancel()
    assert held() == []


def direct_plan(transform: SparkTransform) -> DirectPlan:
    """Return the plan of its batches, of which it has run one."""
    transform.run(rows([b"a"]))
    plan = transform._plans[1]
    assert isinstance(plan, DirectPlan)
    return plan


def test_a_result_for_which_there_is_no_room_in_memory_is_on_disk(
    make: Make, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform = make()
    plan = direct_plan(transform)
    monkeypatch.setattr(plan._exchange, "_spare", tmp_path / "rows")
    opened: list[str] = []

    def open_file(path: str) -> Any:
        opened.append(os.path.realpath(path))
        jvm: Any = spark.session._jvm
        return jvm.java.io.FileOutputStream("/dev/full" if len(opened) == 1 else path)

    monkeypatch.setattr(plan, "_new_file", open_file)
    for value in (b"b", b"c"):
        assert transform.run(rows([value]))["value"].to_pylist() == [value]
    assert [Path(path).is_relative_to(tmp_path) for path in opened] == [False, True, False]


@pytest.mark.parametrize(
    ("much", "error", "said"),
    [
        (1, MemoryError, "neither into memory nor on the disk: No space left on device"),
        (1 << 30, Transient, "Spark failed"),
    ],
)
def test_a_result_that_fills_the_disk_is_too_much_and_on_a_disk_that_is_full_it_is_not(
    make: Make,
    spark: Spark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    much: int,
    error: type[Exception],
    said: str,
) -> None:
    transform = make()
    plan = direct_plan(transform)
    monkeypatch.setattr(plan._exchange, "_spare", tmp_path / "rows")
    monkeypatch.setattr(exchange, "_ROOM", 1 << 60)
    monkeypatch.setattr(direct, "_MUCH_BYTES", much)
    jvm: Any = spark.session._jvm
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_new_file", lambda _: jvm.java.io.FileOutputStream("/dev/full"))
        with pytest.raises(error, match=said):
            transform.run(rows([b"b"]))
    assert list(tmp_path.iterdir()) == []
    assert transform.run(rows([b"c"]))["value"].to_pylist() == [b"c"]


def test_a_result_for_which_python_has_no_memory_is_too_much(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform = make()
    transform.run(rows([b"a"]))
    monkeypatch.setattr(
        transform._plans[1], "run", Mock(side_effect=pa.ArrowMemoryError("malloc of size 9 failed"))
    )
    with pytest.raises(MemoryError, match="malloc of size 9 failed"):
        transform.run(rows([b"b"]))


def test_a_result_that_spark_does_not_give_to_its_driver_is_too_much(make: Make, spark: Spark) -> None:
    transform = make(spark_runs.refuses)
    transform._is_direct = False
    settings: Any = spark.session.sparkContext._jsc.sc().conf()
    settings.set("spark.driver.maxResultSize", "1")
    try:
        with pytest.raises(
            MemoryError, match=r"too large for Spark: .* spark\.driver\.maxResultSize \(1\.0 B\)"
        ):
            transform.run(rows([b"a"]))
    finally:
        settings.remove("spark.driver.maxResultSize")
    assert transform.run(rows([b"a"]))["value"].to_pylist() == [b"a"]


def test_a_batch_whose_connection_was_lost_is_no_result(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM's client has made a call again, and what it wrote may lack rows."""
    transform = make()
    plan = direct_plan(transform)
    connections = iter(["first", "second"])
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_client", SimpleNamespace(get_thread_connection=lambda: next(connections)))
        with pytest.raises(Transient, match="the connection to Spark's JVM was lost"):
            transform.run(rows([b"a"]))
    assert transform._plans == {}, "the first call may still use it"
    assert transform.run(rows([b"a"]))["value"].to_pylist() == [b"a"]


def test_rows_that_are_gone_are_no_error_of_the_job(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    transform = make(spark_runs.refuses)
    transform._is_direct = False
    put = exchange.RowExchange.put

    def put_and_lose(self: exchange.RowExchange, *arguments: Any) -> None:
        put(self, *arguments)
        self.clear()

    with monkeypatch.context() as patch:
        patch.setattr(exchange.RowExchange, "put", put_and_lose)
        with pytest.raises(Transient, match="cannot read the rows of the batch"):
            transform.run(rows([b"a"]))
    assert transform.run(rows([b"a"]))["value"].to_pylist() == [b"a"]


def test_refused_plans_are_reported_before_any_row_is_read(make: Make) -> None:
    definition = JobDefinition("job", "r", {}, "c", "g", 1)
    for transform, said in {
        spark_runs.counts: "an aggregation: its state would end with each micro-batch",
        spark_runs.joins_all: "(?i)full.?outer",
        spark_runs.unites_a_table: "Union between streaming and batch",
    }.items():
        with case(transform.__name__):
            with pytest.raises(BadConfiguration, match=said):
                make(transform).warm(lambda: None)
            with pytest.raises(BadConfiguration, match=said):
                make(transform).open()
            # At the start itself: from a running feed it would be taken for an error on some record.
            feed = SparkFeed(configuration(transform), definition, NO_CODE)
            with pytest.raises(BadConfiguration, match=said):
                feed.start({TaskId("job", "main", 0): Offsets.of(0)}, lambda _: None)
            assert feed.wait(0)
            feed.close()


def test_a_transform_is_lent_once_it_is_warm_also_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is, no batch ends another one.
    for bound in ("LENT_WAIT_SECONDS", "LENT_SECONDS", "GIVE_WAY_SECONDS", "OVERDUE_SECONDS"):
        monkeypatch.setattr(turns, bound, NEVER_SECONDS)
    definition = JobDefinition("job", "run", {}, "changelog", "group", 1)
    feed = SparkFeed(configuration(spark_runs.refuses), definition, NO_CODE)
    came = rows([b"theirs"])
    with pytest.raises(Transient, match="not warm"):
        feed.lend(encoded(came))
    own = feed._own
    own.warm(lambda: rows([b"v"]))
    for stream, says in ((b"rows", "no rows"), (encoded(came.drop(["key"])), "other columns")):
        with pytest.raises(Transient, match=says):
            feed.lend(stream)
    with pytest.raises(PythonException, match="no such plane: poison"):
        feed.lend(encoded(rows([b"poison"])))
    theirs = [rows([b"%d" % number], number) for number in range(8)]
    lent = [background(partial(feed.lend, encoded(each))) for each in theirs]
    for number in range(8):
        assert_same(own.run(rows([b"ours"], number)), rows([b"ours"], number))
    for each, put in zip(lent, theirs, strict=True):
        assert_same(decoded(each.result(PATIENCE_SECONDS)), put)
    feed.close()
    with pytest.raises(Transient, match="not warm"):
        feed.lend(encoded(came))


def test_a_closed_transform_lends_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end cancels a lent batch at once."""
    monkeypatch.setattr(turns, "GIVE_WAY_SECONDS", LOOK_SECONDS)
    transform = make(spark_runs.refuses)
    transform.warm(lambda: rows([b"v"]))
    with HeldRun(transform.lend, tmp_path / "waits") as run:
        transform.close()
    assert isinstance(run.raised, NotLent), run.raised
    with pytest.raises(NotLent):
        transform.lend(rows([b"late"]))
    assert transform.child_pids == ()


@pytest.mark.parametrize("is_bounded", [False, True])
def test_only_input_without_an_end_is_borrowed(is_bounded: bool) -> None:
    """A suspected record is run alone, up to its end: it may end the process of whoever transforms it."""
    task = TaskId("job", "main", 0)
    asked: list[Any] = []
    definition = JobDefinition("job", "run", {}, "changelog", "group", 1)
    feed = SparkFeed(configuration(None), definition, NO_CODE, asked.append)
    feed._prepare((task,), is_range=is_bounded)
    assert asked == ([] if is_bounded else [(task,)])
    assert feed.child_pids, "nobody lends it"
    feed.close()


def test_a_transform_that_treats_each_row_by_itself_is_accepted_and_run_with_and_without_input(
    make: Make,
) -> None:
    check_transform(configuration(spark_plans.row_by_row), NO_CODE)
    transform = make(spark_plans.row_by_row)
    transform.warm(lambda: None)
    assert transform.is_warm
    found = transform.run(rows([b'{"a": [%d], "n": 1}' % number for number in range(5)]))
    assert found["a"].to_pylist() == found["_offset"].to_pylist() == [1, 2, 3, 4]
    assert found["name"].to_pylist() == ["one"] * 4


def test_other_transforms_are_refused_before_anything_is_deployed() -> None:
    for transform, said in {
        "distinct": r"dropDuplicates\(\) or distinct\(\)",
        "deduplicates": r"dropDuplicates\(\) or distinct\(\)",
        "deduplicates_late": r"dropDuplicatesWithinWatermark\(\)",
        "limits": r"limit\(\)",
        "joins_itself": "joins the stream with itself",
        "unites": "union of the stream with itself",
        "sorts": "a sort: its result depends on where a micro-batch ends",
        "groups_in_pandas": r"applyInPandas\(\)",
        "drops_offset": "returns no column '_offset'",
        "widens_task": "returns '_task' as bigint; it must stay int",
        "adds_an_interval": "the column 'span', which cannot be given to the step: .*CalendarInterval",
        "repeats_a_field": "the column 'both', which cannot be given to the step: .*DUPLICATED_FIELD_NAME",
        "other_table": "does not come from the one it was given",
        "nothing": "returned a NoneType, not a DataFrame",
        "fails": "raised LookupError: no dictionary",
        "unknown_column": "raised AnalysisException.*tail",
        "absent": "has no function 'absent'",
    }.items():
        config = job_config({"task.transform": f"{spark_plans.__name__}:{transform}"})
        with case(transform), pytest.raises(BadConfiguration, match=said):
            check_transform(config, NO_CODE)


def test_a_plan_that_cannot_be_made_again_now_is_worth_another_try(make: Make) -> None:
    """A static table that is away is no fault of a record."""
    NAMES["only"] = "name"
    transform = make(spark_runs.joined)
    assert transform.run(rows([b"v"]))["n"].to_pylist() == ["name"]
    # More values than columns.
    NAMES["more"] = "another"
    try:
        with pytest.raises(Transient, match=r"task\.transform: .*joined raised"):
            transform.run(rows([b"v"]))
    finally:
        del NAMES["more"]
    assert transform.run(rows([b"v"]))["n"].to_pylist() == ["name"]


def test_a_warm_up_runs_the_transform_and_survives_what_it_raises(make: Make) -> None:
    for values in ([b"a"], [b"poison"]):
        transform = make(spark_runs.refuses)
        transform.cancel_warm()
        for is_cancelled in (True, False):
            transform.warm(lambda values=values: rows(values))  # type: ignore[misc]
            assert transform.is_warm is not is_cancelled
        assert transform.run(rows([b"a"]))["value"].to_pylist() == [b"a"]


def test_a_warm_transform_has_planned_small_and_large_batches(make: Make) -> None:
    """After a failover the first batch is the input of the gap."""
    transform = make(spark_runs.measured)
    transform.warm(lambda: rows([b"v"] * 10))
    planned = len(APPLIED)
    for count in (1, DIVIDED):
        transform.run(rows([b"v"] * count))
    assert len(APPLIED) == planned


def test_archive_of_classes_is_filled_by_batches_that_run(spark: Spark) -> None:
    archive._exercise(spark)
