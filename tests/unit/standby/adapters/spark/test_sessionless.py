"""Modules written as most PySpark code is: what needs a session at the top of one is refused, with what to write."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from standby.adapters.spark.sessionless import type_of
from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.feed.functions import check_starts_no_spark, job_code, step_of
from tests.cases import case
from tests.fakes.jobs import job_config

CONFIG = job_config(task__step="top_job:step")

#: Line 3 of a module, and what is said of it.
REFUSED = {
    "udf": ("bad = F.udf(len, 'int')", r"'int': write IntegerType\(\)"),
    "decorator": ("@F.udf('binary')\ndef bad(v): return v", r"'binary': write BinaryType\(\)"),
    "pandas": (
        "@F.pandas_udf('array<double>')\ndef bad(v: 'pd.Series') -> 'pd.Series': return v",
        r"'array<double>': write ArrayType\(DoubleType\(\)\)",
    ),
    "struct": (
        "bad = T.StructType.fromDDL('a int, b string')",
        r"'a int, b string': write StructType\(\[StructField",
    ),
    "column": ("bad = F.col('a')", r"call col\(\) inside of the function that task.transform names"),
    "literal": ("bad = F.lit(1)", r"call lit\(\) inside"),
    "expression": ("bad = F.expr('a + 1')", r"call expr\(\) inside"),
    "window": ("bad = Window.partitionBy('a')", r"call partitionBy\(\) inside"),
    "session": ("bad = SparkSession.active()", r"call active\(\) inside .* rows\.sparkSession"),
}

GOES = (
    "@F.udf(T.StringType())\ndef good(v): return v",
    "@F.udf\ndef good(v): return v",
    "@F.pandas_udf(T.DoubleType())\ndef good(v: 'pd.Series') -> 'pd.Series': return v",
    "good = T.StructType([T.StructField('a', T.LongType())]).add('b', 'string')",
)


def find_step(directory: Path, line: str, config: JobConfig = CONFIG) -> None:
    text = (
        "from pyspark.sql import SparkSession, Window, functions as F, types as T\nimport pandas as pd\n"
        f"{line}\ndef step(rows, state, out): ...\n"
    )
    (directory / "top_job.py").write_text(text, encoding="utf-8")
    with job_code(directory, ["top_job.py"]):
        step_of(config)
        check_starts_no_spark(config)


def test_what_needs_a_session_is_refused_with_what_to_write(tmp_path: Path) -> None:
    for kind, (line, said) in REFUSED.items():
        with case(kind), pytest.raises(BadConfiguration, match=said) as refused:
            find_step(tmp_path, line)
        assert "no Spark session while a module is imported" in str(refused.value), kind
        assert "(top_job.py, line 3)" in str(refused.value), kind


def test_what_needs_no_session_works_and_other_errors_are_reported_as_they_are(tmp_path: Path) -> None:
    for line in GOES:
        with case(line):
            find_step(tmp_path, line)
    for line in ("None._jvm", "raise AssertionError('mine')", "F.udf(1)"):
        with case(line), pytest.raises(BadConfiguration, match=r"raised \w+") as refused:
            find_step(tmp_path, line)
        assert "session" not in str(refused.value), line


def test_spark_that_was_started_by_the_import_is_refused_before_the_feed_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    started = "from types import SimpleNamespace; F.SparkContext = None\nimport pyspark\n"
    started += "pyspark.SparkContext._gateway = SimpleNamespace()"
    with pytest.raises(BadConfiguration, match=r"has started Spark itself .* rows\.sparkSession"):
        find_step(tmp_path, started)
    # The plain feed has no Spark that it could collide with.
    SparkContext._gateway = SimpleNamespace()
    find_step(tmp_path, "", dataclasses.replace(CONFIG, feed="plain"))


def test_a_type_is_written_as_an_object() -> None:
    for text, written in {
        " String ": "StringType()",
        "bigint": "LongType()",
        "decimal(10, 2)": "DecimalType(10, 2)",
        "decimal(10)": "DecimalType(10, 0)",
        "array<array<int>>": "ArrayType(ArrayType(IntegerType()))",
        "map<string, array<double>>": "MapType(StringType(), ArrayType(DoubleType()))",
        "a: int": "StructType([StructField(name, type), ...])",
    }.items():
        assert type_of(text) == written
