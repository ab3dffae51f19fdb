"""Creates the archive of Spark's loaded classes: ``python -m standby.feed.archive``.

With the archive, a JVM maps Spark's classes from one file instead of reading, verifying and linking thousands of
them from 280 jars. This halves the processor time of its start, and the JVMs of a host share the mapping. The
archive is stored beside pyspark's files, and is valid for that installation and that Java only. The JVM checks both,
and starts without the archive when something differs, so a stale archive is harmless; but the start then takes twice
as long, so a stale archive is recreated.

It contains Spark, not the jars of a job: an archive is only used with a class path that begins with the one it was
created with.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from standby.adapters.spark.direct import DirectPlan, direct_source
from standby.adapters.spark.exchange import JobPlan, RowExchange
from standby.adapters.spark.jvm import class_archive, is_archive_usable
from standby.adapters.spark.session import FAILURES, Spark
from standby.config import parse
from standby.errors import StandfastError, Unavailable
from standby.feed.batches import ROWS
from standby.feed.rules.settings import session_settings
from standby.feed.spark import columns_of
from standby.shared.errortext import first_line

#: The JVM writes 180 MB at its exit.
_EXIT_SECONDS: Final = 300.0

_BATCHES: Final = 3
_ROWS: Final = 100


def make_archive() -> Path:
    """Create the archive and return its path: a JVM runs a typical transform, and dumps its loaded classes at exit.

    Takes 15 to 30 s. Raises `Unavailable` when the archive cannot be written where pyspark is installed.
    """
    archive = class_archive()
    # Renamed when complete: a JVM that maps an incomplete archive would crash.
    making = archive.with_name(f"{archive.name}.{os.getpid()}")
    if not os.access(archive.parent, os.W_OK):
        raise Unavailable(f"the archive of classes cannot be written to {archive.parent}")
    settings = session_settings(
        parse(
            {
                "job.name": "archive",
                "task.inputs": "none",
                "task.step": "none:none",
                "kafka.bootstrap.servers": "none:1",
                "zookeeper.connect": "none:1",
            }
        )
    )
    try:
        spark = Spark(settings, (f"-XX:ArchiveClassesAtExit={making}", "-Xlog:cds=error"))
        try:
            _exercise(spark)
        finally:
            spark.close(_EXIT_SECONDS)
        if not making.exists():
            raise Unavailable("the JVM has not written the archive of classes; see its own message")
        making.replace(archive)
    except FAILURES as error:
        raise Unavailable(f"the archive of classes cannot be created: {first_line(error)}") from error
    finally:
        making.unlink(missing_ok=True)
    return archive


def _exercise(spark: Spark) -> None:
    """Run some batches through a typical transform, with and without a job."""
    exchange = RowExchange()
    rows = pa.table(
        {
            "key": [b"k"] * _ROWS,
            "value": [b'{"a": "2013-01-01", "b": 1}'] * _ROWS,
            "timestamp": range(_ROWS),
            "_task": [0] * _ROWS,
            "_offset": range(_ROWS),
        },
        ROWS,
    )
    columns = columns_of(ROWS)
    try:
        for parts in (1, 2):
            source = direct_source(spark.session, ROWS, columns)
            direct = DirectPlan(_typical(source), parts)
            job = JobPlan(_typical(exchange.frame(spark.session, columns, parts)), exchange, parts)
            for _ in range(_BATCHES):
                direct.run(rows, "")
                job.run(rows, "")
    finally:
        exchange.clear()


def _typical(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    parsed = functions.from_json(
        functions.col("value").cast("string"), "a string, b int, c timestamp, d array<double>"
    )
    return (
        rows.withColumn("j", parsed)
        .select("key", "j.*", "_task", "_offset", functions.expr("try_cast(string(value) as int)").alias("n"))
        .where("coalesce(b, 0) >= 0 or a is not null")
        .withColumn("late", functions.when(functions.col("b") > 15, "late").otherwise(functions.upper("a")))
        .withColumn("day", functions.date_format(functions.to_timestamp("a"), "yyyy-MM-dd"))
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Create the archive unless a usable one exists; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m standby.feed.archive", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--again", action="store_true", help="recreate it, even if it is usable")
    arguments = parser.parse_args(argv)
    try:
        if not arguments.again and is_archive_usable():
            sys.stdout.write(f"{class_archive()} is up to date\n")
            return 0
        archive = make_archive()
    except StandfastError as error:
        sys.stderr.write(f"archive: {error}\n")
        return error.exit_status
    sys.stdout.write(f"{archive} holds Spark's classes, {archive.stat().st_size / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
