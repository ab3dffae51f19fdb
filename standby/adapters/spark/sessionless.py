"""The error message for a module that uses Spark's session during its import. Pure: pyspark is known by name.

There is no session at that time. A module is imported in three places: by the command that checks the job, in the
container, and in Spark's Python workers, which import it for every function that a UDF refers to. The workers can
never have a session.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Final

#: Spark's names of simple types, and the classes of pyspark.sql.types.
_TYPES: Final = {
    "string": "StringType",
    "binary": "BinaryType",
    "boolean": "BooleanType",
    "byte": "ByteType",
    "tinyint": "ByteType",
    "short": "ShortType",
    "smallint": "ShortType",
    "int": "IntegerType",
    "integer": "IntegerType",
    "long": "LongType",
    "bigint": "LongType",
    "float": "FloatType",
    "real": "FloatType",
    "double": "DoubleType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
}
_DECIMAL: Final = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_ARRAY: Final = re.compile(r"array\s*<(.*)>", re.DOTALL)
_MAP: Final = re.compile(r"map\s*<\s*(\w+)\s*,(.*)>", re.DOTALL)

#: Error conditions of pyspark.
_NO_SESSION: Final = ("SESSION_OR_CONTEXT_NOT_EXISTS", "NO_ACTIVE_OR_DEFAULT_SESSION")

#: The pyspark function that lets the JVM parse a type, and the name of its text argument.
_PARSER: Final = ("_parse_datatype_string", "s")

#: pyspark's decorators around its functions.
_WRAPPERS: Final = ("wrapped", "wrapper")

_MOST_CHARACTERS: Final = 60

STARTED: Final = (
    "the job's code has started Spark itself while it was imported (for example SparkSession.builder.getOrCreate()); "
    "standfast starts it, with the job's settings: in a transform use rows.sparkSession, and outside of it types as "
    "objects, as StringType()"
)


def session_hint(error: BaseException) -> str | None:
    """Return the advice after ``error`` ended an import; None: the cause was not a missing session."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or not _is_pysparks(frames[-1]) or not _is_for_want_of_session(error):
        return None
    why = "there is no Spark session while a module is imported, nor in Spark's Python workers, which import it too"
    text = next(_parsed(frames), None)
    if text is not None:
        shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
        return (
            f"{why}, so nothing can parse the type {shown!r}: write {type_of(text)} (of pyspark.sql.types) instead, or "
            "define this inside of the function that task.transform names"
        )
    names = (frame.f_code.co_name for frame in frames if _is_pysparks(frame))
    called = next((name for name in names if name not in _WRAPPERS), "it")
    return (
        f"{why}: call {called}() inside of the function that task.transform names; a session is there as "
        "rows.sparkSession"
    )


def type_of(text: str) -> str:
    """Return the Python expression of a type that Spark calls ``text``, or a template for one."""
    given = text.strip().lower()
    if given in _TYPES:
        return f"{_TYPES[given]}()"
    if decimal := _DECIMAL.fullmatch(given):
        return f"DecimalType({decimal[1]}, {decimal[2] or 0})"
    if array := _ARRAY.fullmatch(given):
        return f"ArrayType({type_of(array[1])})"
    if of_map := _MAP.fullmatch(given):
        return f"MapType({type_of(of_map[1])}, {type_of(of_map[2])})"
    return "StructType([StructField(name, type), ...])"


def _is_for_want_of_session(error: BaseException) -> bool:
    condition = getattr(error, "getCondition", None)
    if callable(condition):
        return condition() in _NO_SESSION
    # Functions that use the JVM without a check fail with `assert sc is not None`, or on None._jvm.
    return isinstance(error, AssertionError) or (
        isinstance(error, AttributeError) and "NoneType" in str(error)
    )


def _parsed(frames: list[FrameType]) -> Iterator[str]:
    function, name = _PARSER
    for frame in frames:
        text = frame.f_locals.get(name)
        if frame.f_code.co_name == function and _is_pysparks(frame) and isinstance(text, str):
            yield text


def _is_pysparks(frame: FrameType) -> bool:
    return "pyspark" in PurePath(frame.f_code.co_filename).parts
