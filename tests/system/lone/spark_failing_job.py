"""Transforms that fail on the value ``poison``, each in its own way."""

from __future__ import annotations

import os
import signal
from typing import Any

from pyspark.sql import functions as f


def refuses_a_value(rows: Any) -> Any:
    """An expression of Spark's own that fails."""
    return rows.withColumn(
        "value", f.expr("if(value = binary('poison'), binary(raise_error('no number')), value)")
    )


def raises_in_worker(rows: Any) -> Any:
    """A Python function that raises in Spark's worker process."""
    return rows.withColumn("value", f.udf(_raise, "binary")("value"))


def kills_its_worker(rows: Any) -> Any:
    """A Python function that ends Spark's worker process, as a segmentation fault would."""
    return rows.withColumn("value", f.udf(_kill, "binary")("value"))


# Without annotations, from which pyspark would try to infer the kind of the function.


def _raise(value):  # type: ignore[no-untyped-def]
    if bytes(value) == b"poison":
        raise LookupError(f"no such plane: {bytes(value).decode()}")
    return value


def _kill(value):  # type: ignore[no-untyped-def]
    if bytes(value) == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)
    return value
