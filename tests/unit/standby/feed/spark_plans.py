"""Transforms whose plan Spark shows: one as jobs have them, one that Spark fails to run, and those that are refused."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f


def row_by_row(rows: Any) -> Any:
    """What jobs usually do, with a join to a table that was aggregated and sorted before."""
    names = (
        rows.sparkSession.createDataFrame([(0, "zero"), (1, "one"), (1, "one")], "number int, name string")
        .groupBy("number")
        .agg(f.max("name").alias("name"))
        .orderBy("number")
    )
    parsed = rows.withColumn("j", f.from_json(f.col("value").cast("string"), "a array<int>, n int"))
    return (
        parsed.select("key", "timestamp", f.explode("j.a").alias("a"), "j.n", "_task", "_offset")
        .where("a > 0")
        .join(names, f.col("n") == f.col("number"), "left")
        .withWatermark("timestamp", "1 minute")
    )


def _same(batches: Any) -> Any:
    yield from batches


def refuses_a_value(rows: Any) -> Any:
    return rows.withColumn("number", f.col("value").cast("string").cast("int"))


def overflows(rows: Any) -> Any:
    return rows.where("string(value) rlike '(a|b)*c'")


def distinct(rows: Any) -> Any:
    return rows.distinct()


def deduplicates(rows: Any) -> Any:
    return rows.dropDuplicates(["key"])


def deduplicates_late(rows: Any) -> Any:
    return rows.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["key"])


def limits(rows: Any) -> Any:
    return rows.limit(3)


def joins_itself(rows: Any) -> Any:
    return rows.join(rows.selectExpr("key as other"), f.col("key") == f.col("other")).drop("other")


def unites(rows: Any) -> Any:
    return rows.union(rows)


def sorts(rows: Any) -> Any:
    return rows.orderBy("value")


def groups_in_pandas(rows: Any) -> Any:
    return rows.groupBy("key").applyInPandas(_same, rows.schema)


def drops_offset(rows: Any) -> Any:
    return rows.drop("_offset")


def widens_task(rows: Any) -> Any:
    return rows.withColumn("_task", f.col("_task").cast("long"))


def adds_an_interval(rows: Any) -> Any:
    """Its plan is made for each batch."""
    return rows.selectExpr("*", "make_interval(0, length(value)) as span", "current_timestamp() as now")


def repeats_a_field(rows: Any) -> Any:
    return rows.withColumn("both", f.struct("key", f.col("value").alias("key")))


def other_table(rows: Any) -> Any:
    return rows.sparkSession.range(3).selectExpr("cast(id as int) as _task", "id as _offset")


def nothing(rows: Any) -> Any:
    return None


def fails(rows: Any) -> Any:
    raise LookupError("no dictionary")


def unknown_column(rows: Any) -> Any:
    return rows.select("tail")
