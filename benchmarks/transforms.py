"""What Spark's part of the feed costs, for transforms that pass rows on, parse them, and call functions in Python.

Without Kafka: batches go from one process to its Spark session and back. Beside it, in the same run, each batch is a
Spark job, all columns go through Spark as well, and the JVM has its second compiler.

    python -m benchmarks.transforms
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa

from benchmarks.contest import ROOT
from benchmarks.meter import cpu_seconds
from standby.config import parse
from standby.feed import spark
from standby.feed.batches import ROWS

#: Rows of a batch → number of batches that are measured. The first size is that of a batch at 1,000 records a second.
_BATCHES: Final = {85: 600, 40_000: 30}

#: What is different in a variant: functions of the feed that have another result, and flags of the JVM.
_VARIANTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "as it is": ({}, ""),
    "a job for each batch": ({"is_direct": False}, ""),
    "and all columns through Spark": ({"is_direct": False, "passing_of": None}, ""),
    "second compiler": ({}, "-XX:TieredStopAtLevel=4"),
}

_TRANSFORMS: Final = ("unchanged", "parsed", "function", "frames")


def unchanged(rows: Any) -> Any:
    """Return the rows."""
    return rows


def parsed(rows: Any) -> Any:
    """Return three fields of the records' JSON, and what is passed on."""
    from pyspark.sql import functions as f

    fields = rows.withColumn("j", f.from_json(f.col("value").cast("string"), "a int, n int, c string"))
    return fields.where("j.n > 0").select("key", "timestamp", "j.a", "j.n", "j.c", "_task", "_offset")


def function(rows: Any) -> Any:
    """Return a field of the records' JSON, which a function in Python parses, and what is passed on."""
    from pyspark.sql import functions as f

    def text(value):  # type: ignore[no-untyped-def]
        import json

        return json.loads(bytes(value))["c"]

    return rows.select("key", "timestamp", f.udf(text, "string")("value").alias("c"), "_task", "_offset")


def frames(rows: Any) -> Any:
    """Return the rows with longer values, made by a function over pandas frames."""

    def longer(came):  # type: ignore[no-untyped-def]
        for frame in came:
            yield frame.assign(value=frame["value"] + b"!")

    return rows.mapInPandas(longer, rows.schema)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="of all variants (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=_TRANSFORMS, default=_TRANSFORMS)
    parser.add_argument("--one", nargs=2, metavar=("TRANSFORM", "VARIANT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        _measure(*arguments.one)
        return 0
    for _ in range(arguments.rounds):
        for transform in arguments.only:
            for variant in _VARIANTS:
                command = [sys.executable, "-m", "benchmarks.transforms", "--one", transform, variant]
                subprocess.run(command, cwd=ROOT, check=True)
    return 0


def _measure(transform: str, variant: str) -> None:
    changed, flags = _VARIANTS[variant]
    for name, result in changed.items():
        patch.object(spark, name, return_value=result).start()
    with TemporaryDirectory() as directory:
        code = Path(directory) / "code"
        code.mkdir()
        feed = spark.SparkTransform(_configuration(transform, flags), code)
        before = cpu_seconds()
        recent = _rows(500)
        feed.warm(lambda: recent)
        said = [f"{transform}, {variant}: warm after {cpu_seconds() - before:.1f} CPU s"]
        for size, count in _BATCHES.items():
            rows = _rows(size)
            before = cpu_seconds()
            seconds = []
            for _ in range(count):
                begun = time.monotonic()
                feed.run(rows)
                seconds.append(time.monotonic() - begun)
            cost = (cpu_seconds() - before) / count
            said.append(
                f"{size} rows: {1e3 * cost:.1f} CPU ms a batch ({1e6 * cost / size:.2f} µs a row), "
                f"median {1e3 * statistics.median(seconds):.1f} ms"
            )
        sys.stdout.write("; ".join(said) + "\n")
        sys.stdout.flush()
        feed.close()


def _configuration(transform: str, flags: str) -> Any:
    settings = {
        "job.name": "transforms",
        "task.inputs": "in",
        "task.step": "benchmarks.steps:count",
        "task.feed": "spark",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "zookeeper.connect": "127.0.0.1:1",
        "task.transform": f"benchmarks.transforms:{transform}",
    }
    settings["spark.executorEnv.PYTHONPATH"] = str(ROOT)
    if flags:
        settings["spark.driver.extraJavaOptions"] = flags
    return parse(settings)


def _rows(count: int) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "key": [b"key %d" % (each % 1_000) for each in numbers],
            "value": [
                b'{"a": %d, "n": %d, "c": "text of thirty characters, or so"}' % (each, each % 50)
                for each in numbers
            ],
            "timestamp": numbers,
            "_task": [0] * count,
            "_offset": numbers,
        },
        schema=ROWS,
    )


if __name__ == "__main__":
    sys.exit(main())
