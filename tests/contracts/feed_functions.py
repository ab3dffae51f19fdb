"""Transforms for the feeds' contract suite, each in two equivalent forms."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def spark_unchanged(rows: Any) -> Any:
    return rows


def plain_keep_marked(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.starts_with(rows.column("value"), b"keep"))


def spark_keep_marked(rows: Any) -> Any:
    return rows.where("startswith(value, binary('keep'))")


def plain_other_task(rows: pa.Table) -> pa.Table:
    return rows.set_column(3, "_task", pa.array([7] * rows.num_rows, pa.int32()))


def spark_other_task(rows: Any) -> Any:
    from pyspark.sql import functions

    return rows.withColumn("_task", functions.lit(7))


def plain_without_topic(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(["_topic"])


def spark_without_topic(rows: Any) -> Any:
    return rows.drop("_topic")


def plain_twice_backwards(rows: pa.Table) -> pa.Table:
    doubled = pa.concat_tables([rows, rows])
    return doubled.take(pc.sort_indices(doubled, sort_keys=[("_offset", "descending")]))


def spark_twice_backwards(rows: Any) -> Any:
    from pyspark.sql import functions

    # Explode, then part the rows at random: they arrive in no order.
    return (
        rows.withColumn("n", functions.explode(functions.array(functions.lit(0), functions.lit(1))))
        .drop("n")
        .repartition(2, functions.xxhash64("_offset"))
    )


def plain_refuse_poison(rows: pa.Table) -> pa.Table:
    if b"poison" in rows.column("value").to_pylist():
        raise ValueError("poison: no number")
    return rows


def spark_refuse_poison(rows: Any) -> Any:
    from pyspark.sql import functions

    is_poison = "value = binary('poison')"
    # An unused column would not be computed.
    return rows.withColumn(
        "value", functions.expr(f"if({is_poison}, binary(raise_error('poison: no number')), value)")
    )
