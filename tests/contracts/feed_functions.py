"""Transforms for the feeds' contract suite, each in two equivalent forms."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def spark_unchanged(rows: Any) -> Any:
    return rows


def plain_without_topic(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(["_topic"])


def spark_without_topic(rows: Any) -> Any:
    return rows.drop("_topic")


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
