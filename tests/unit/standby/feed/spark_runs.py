"""Transforms of Spark jobs, the rows that they get, and a run that a test holds up."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from standby.config import JobConfig
from standby.feed.batches import rows_of
from tests.fakes.jobs import job_config
from tests.meanwhile import background
from tests.patience import PATIENCE_SECONDS, soon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: No directory of a job's modules: what is sent to Spark's workers is nested, and so goes along as it is.
NO_CODE: Final = Path("no-code")

#: How often each transform was applied, and what those read that read more than the rows.
APPLIED: Final[list[str]] = []
NAMES: Final[dict[str, str]] = {}

#: The accumulators of `looks_up`.
COUNTED: Final[list[Any]] = []


def applied(transform: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], DataFrame]:
    """Note each call of ``transform``."""

    @functools.wraps(transform)
    def counted(rows: DataFrame) -> DataFrame:
        APPLIED.append(transform.__name__)
        return transform(rows)

    return counted


@applied
def measured(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("_task", "_offset", "length(value) as n", "spark_partition_id() as part").where(
        "n > 0"
    )


@applied
def doubled(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    def twice(value):  # type: ignore[no-untyped-def]
        return value + value

    return rows.select("_task", "_offset", f.udf(twice, "binary")("value").alias("n"))


@applied
def dated(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("_task", "_offset", "cast(cast(value as string) as date) as n")


@applied
def at_once(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("_task", "_offset", "current_timestamp() as n")


@applied
def at_once_in_words(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("_task", "_offset", "cast('now' as timestamp) as n")


@applied
def drawn(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("_task", "_offset", "rand() as n")


@applied
def named(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("_task", "_offset", "uuid() as n")


@applied
def joined(rows: DataFrame) -> DataFrame:
    table = rows.sparkSession.createDataFrame([tuple(NAMES.values())], "n string")
    return rows.select("_task", "_offset").crossJoin(table)


@applied
def looked_up(rows: DataFrame) -> DataFrame:
    rows.sparkSession.createDataFrame([tuple(NAMES.values())], "n string").createOrReplaceTempView("names")
    rows.createOrReplaceTempView("came")
    return rows.sparkSession.sql("select _task, _offset, (select max(n) from names) as n from came")


@applied
def moved(rows: DataFrame) -> DataFrame:
    """Spark keeps the files of a shuffle for the next run of the same plan."""
    return rows.selectExpr("_task", "_offset", "value as n").repartition(2, "_offset")


def chosen(rows: DataFrame) -> DataFrame:
    return rows.select("VALUE", "key", "_task", "_offset", "key").where("key is not null")


def divided(rows: DataFrame) -> DataFrame:
    rows.alias("came").createOrReplaceTempView("came")
    part = "explode(split(cast(value as string), ',')) as part"
    return rows.sparkSession.sql(
        f"select timestamp, _offset, {part}, _task, timestamp + interval 1 day from came"
    )


def unchanged(rows: DataFrame) -> DataFrame:
    return rows.where("true")


def lenient(rows: DataFrame) -> DataFrame:
    """Spark reads the setting when the first row is parsed."""
    rows.sparkSession.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    parsed = "from_json(concat('{\"n\": \"', string(value), '\"}'), 'n date', map('dateFormat', 'y-M-d')).n"
    return rows.selectExpr("_task", "_offset", parsed)


def parked(rows: DataFrame) -> DataFrame:
    """Wait for as many nanoseconds as the value says."""
    return rows.selectExpr(
        "_task",
        "_offset",
        "reflect('java.util.concurrent.locks.LockSupport', 'parkNanos', bigint(string(value))) as n",
    )


def in_scala(rows: DataFrame) -> DataFrame:
    from pyspark.ml.functions import array_to_vector, vector_to_array
    from pyspark.sql import functions as f

    vector = array_to_vector(f.array(f.length("value").cast("double")))
    return rows.select("_task", "_offset", vector_to_array(vector).alias("n"))


def endless(rows: DataFrame) -> DataFrame:
    """Take the third power of the value's steps, in one expression."""
    numbers = "sequence(1, int(string(value)))"
    steps = "n"
    for _ in range(3):
        steps = f"aggregate({numbers}, 0L, (sum, n) -> sum + {steps})"
    return rows.selectExpr("_task", "_offset", f"{steps} as sum")


def greedy(rows: DataFrame) -> DataFrame:
    """Return strings that are as many times a gigabyte as the value says."""
    return rows.selectExpr("_task", "_offset", "length(repeat('x', int(string(value)) << 30)) as n")


def even(rows: DataFrame) -> DataFrame:
    return rows.where("_offset % 2 = 0")


def mapped(rows: DataFrame) -> DataFrame:
    return rows.mapInArrow(lambda batches: batches, rows.schema)


def mapped_together(rows: DataFrame) -> DataFrame:
    """Ask for workers that start at the same time."""
    return rows.mapInArrow(lambda batches: batches, rows.schema, barrier=True)


def mapped_in_pandas(rows: DataFrame) -> DataFrame:
    return rows.mapInPandas(lambda frames: frames, rows.schema).where("length(value) > 1")


def pickled(rows: DataFrame) -> DataFrame:
    """Use two functions, of which one needs the other one's result, and a key as it came."""
    from pyspark.sql import functions as f

    length = f.udf(len, "long", useArrow=False)
    twice = f.udf(lambda number: 2 * number, "long", useArrow=False)
    return rows.select("_task", "key", "_offset", twice(length("value")).alias("n")).where("n > 2")


def in_columns(rows: DataFrame) -> DataFrame:
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    on_columns: Any = pandas_udf

    def lengths(values):  # type: ignore[no-untyped-def]
        return values.str.len()

    lengths.__annotations__ = {"values": pd.Series, "return": pd.Series}
    return rows.selectExpr("*", "explode(array(1, 2)) as n").select(
        "_task", "_offset", "n", on_columns(lengths, "long")("value")
    )


def in_a_table(rows: DataFrame) -> DataFrame:
    """Make several rows of one by a function in Python."""
    from pyspark.sql import functions as f

    class Letters:
        def eval(self, value):  # type: ignore[no-untyped-def]
            for each in bytes(value)[:2]:
                yield (each,)

    letters: Any = f.udtf(Letters, returnType="letter int")
    rows.sparkSession.udtf.register("letters", letters)
    rows.createOrReplaceTempView("came")
    return rows.sparkSession.sql("select _task, _offset, letter from came, lateral letters(value)")


def looks_up(rows: DataFrame) -> DataFrame:
    """Use a large table, a broadcast one, and an accumulator, which is kept in `COUNTED`."""
    from pyspark.sql import functions as f

    context = rows.sparkSession.sparkContext
    table = {number: b"%d" % number for number in range(200_000)}
    names = context.broadcast({b"a": b"A"})
    counter = context.accumulator(0)
    COUNTED.append(counter)

    def found(value):  # type: ignore[no-untyped-def]
        counter.add(1)
        return names.value.get(bytes(value), table[len(value)])

    return rows.withColumn("value", f.udf(found, "binary")("value"))


def looks_up_anew(rows: DataFrame) -> DataFrame:
    """Broadcast a variable for each batch."""
    from pyspark.sql import functions as f

    names = rows.sparkSession.sparkContext.broadcast({b"a": b"A"})

    def found(value):  # type: ignore[no-untyped-def]
        return names.value[bytes(value)]

    return rows.withColumn("value", f.udf(found, "binary")("value")).withColumn("now", f.current_timestamp())


def collected(rows: DataFrame) -> DataFrame:
    """Return how many objects the worker does not look at when it collects garbage."""
    from pyspark.sql import functions as f

    def frozen(value):  # type: ignore[no-untyped-def]
        import gc

        return gc.get_freeze_count()

    return rows.select("_task", "_offset", f.udf(frozen, "int")("value").alias("n"))


def limited(rows: DataFrame) -> DataFrame:
    """Return how much memory a worker may have."""
    from pyspark.sql import functions as f

    def limit(value):  # type: ignore[no-untyped-def]
        import resource

        return resource.getrlimit(resource.RLIMIT_AS)[0]

    return rows.select("_task", "_offset", f.udf(limit, "long")("value").alias("n"))


def in_japan(rows: DataFrame) -> DataFrame:
    rows.sparkSession.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return rows.drop("key")


def at_first_all(rows: DataFrame) -> DataFrame:
    """Return another result than when it is applied for the first time."""
    APPLIED.append("at_first_all")
    return rows if APPLIED.count("at_first_all") == 1 else rows.where("length(value) > 1")


def refuses(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    def same(came):  # type: ignore[no-untyped-def]
        value = bytes(came)
        if value == b"poison":
            raise LookupError("no such plane: poison")
        if value == b"crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if value.startswith(b"/"):
            Path(os.fsdecode(value)).touch()
            threading.Event().wait()
        return value

    return rows.withColumn("value", f.udf(same, "binary")("value"))


def counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("_task", "_offset").count()


def joins_all(rows: DataFrame) -> DataFrame:
    table = rows.sparkSession.createDataFrame([(1,)], "n int")
    return rows.join(table, rows["_task"] == table["n"], "full")


def unites_a_table(rows: DataFrame) -> DataFrame:
    return rows.union(rows.sparkSession.createDataFrame([], rows.schema))


def configuration(function: Callable[..., Any] | None, **keys: str) -> JobConfig:
    named = {} if function is None else {"task.transform": f"{function.__module__}:{function.__name__}"}
    return job_config({**named, **keys})


def rows(values: Sequence[bytes | None], first: int = 0) -> pa.Table:
    """Return one record for each value, with rising offsets from ``first`` on."""
    return pa.table(
        {
            "key": [b"k"] * len(values),
            "value": values,
            "timestamp": range(first, first + len(values)),
            "_task": [0] * len(values),
            "_offset": range(first, first + len(values)),
        },
        schema=rows_of(["in"]),
    )


def assert_same(found: pa.Table, put: pa.Table) -> None:
    assert found.schema.names == put.schema.names
    assert found.schema.types == put.schema.types
    for name in put.schema.names:
        assert found.column(name).equals(put.column(name)), name


class HeldRun:
    """A batch on a thread of its own, as each start of a feed has one; its function waits when the block begins."""

    def __init__(self, run: Callable[[pa.Table], pa.Table], waits: Path) -> None:
        """``run``: of a transform of `refuses`, for batches of the container itself or of others."""
        self._run, self._waits = run, waits
        self._running: Future[pa.Table] = Future()

    def __enter__(self) -> HeldRun:
        self._running = background(lambda: self._run(rows([bytes(self._waits)])))
        soon(self._waits.exists, "the function is called")
        return self

    @property
    def has_ended(self) -> bool:
        return self._running.done()

    @property
    def raised(self) -> BaseException | None:
        return self._running.exception(PATIENCE_SECONDS)

    def __exit__(self, *_: object) -> None:
        wait([self._running], PATIENCE_SECONDS)
        assert self.has_ended
