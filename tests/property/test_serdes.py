"""Every serde reads back what it has written, or refuses to write it."""

from __future__ import annotations

import enum
import math
import zoneinfo
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standby.api import ValueRefused
from standby.eventtime import MAX
from standby.state import ARROW, BYTES, INT, JSON, MSGPACK, TEXT, Serde, json_of, msgpack_of, tuple_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: float
    y: float | None


@dataclass
class Mean:
    n: int = 0
    mean: float = 0.0


@dataclass
class Careless:
    """Its comparison says nothing of the field that matters."""

    name: str
    last: float | None = field(default=None, compare=False)


@dataclass(eq=False)
class Nested:
    means: dict[str, Mean]
    careless: list[Careless]
    point: Point | None
    anything: Any = None


class Row(msgspec.Struct, omit_defaults=True):
    at: datetime
    price: Decimal
    day: date | None = None
    until: time | None = None
    took: timedelta | None = None
    id: UUID | None = None
    colours: set[Colour] = set()


texts = st.text(max_size=4)
numbers = st.integers() | st.integers(-3, 3)
floats = st.floats() | st.integers(-3, 3) | st.integers(1 << 53, (1 << 53) + 9)
zones = (
    st.none()
    | st.just(timezone.utc)
    | st.sampled_from(
        [zoneinfo.ZoneInfo(name) for name in ("America/New_York", "Australia/Lord_Howe", "Africa/Monrovia")]
    )
    | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
)
moments = st.datetimes(timezones=zones, allow_imaginary=True)
decimals = st.decimals()
points = st.builds(Point, floats, st.none() | floats)
means = st.builds(Mean, numbers, floats)
careless = st.builds(Careless, texts, st.none() | floats)
leaves = (
    st.none()
    | st.booleans()
    | numbers
    | floats
    | texts
    | st.binary(max_size=3)
    | moments
    | decimals
    | st.uuids()
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.sampled_from(Colour)
    | means
    | points
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(texts | numbers | st.tuples(numbers), inner, max_size=3)
    ),
    max_leaves=5,
)
nested = st.builds(
    Nested,
    st.dictionaries(texts, means, max_size=2),
    st.lists(careless, max_size=2),
    st.none() | points,
    anything,
)
rows = st.builds(
    Row,
    moments,
    decimals,
    st.none() | st.dates(),
    st.none() | st.times(timezones=zones),
    st.none() | st.timedeltas(),
    st.none() | st.uuids(),
    st.sets(st.sampled_from(Colour)),
)

#: Kind → values that it holds, and some that it does not.
KINDS: dict[str, tuple[Any, Any]] = {
    "anything": (Any, anything),
    "int": (int, numbers | leaves),
    "float": (float, floats | leaves),
    "text": (str, texts | leaves),
    "bytes": (bytes, st.binary() | st.binary().map(bytearray) | leaves),
    "datetime": (datetime, moments),
    "time": (time, st.times(timezones=zones)),
    "timedelta": (timedelta, st.timedeltas()),
    "decimal": (Decimal, decimals),
    "enum": (Colour, st.sampled_from(Colour)),
    "optional": (float | None, st.none() | floats),
    "numbers": (list[float], st.lists(floats) | st.tuples(floats)),
    "pair": (tuple[int, float], st.tuples(numbers, floats) | st.lists(numbers, max_size=2)),
    "set": (set[float], st.sets(floats, max_size=3) | st.lists(floats, max_size=3)),
    "by text": (dict[str, float], st.dictionaries(texts, floats, max_size=3)),
    "by number": (dict[int, float], st.dictionaries(numbers, floats, max_size=3)),
    "by float": (dict[float, int], st.dictionaries(floats, numbers, max_size=3)),
    "dataclass": (Mean, means | careless | st.just({"n": 1, "mean": 2.0})),
    "compared in part": (Careless, careless),
    "nested": (Nested, nested),
    "struct": (Row, rows),
    "named tuple": (Point, points | st.tuples(floats, floats)),
}


def is_read_back(written: Any, read: Any) -> bool:
    """Whether a value is the same by its parts: what is not a number is the same as itself, as is a moment."""
    if isinstance(written, float) and isinstance(read, float) and math.isnan(written):
        return math.isnan(read)
    if isinstance(written, Decimal) and isinstance(read, Decimal):
        return written.compare_total(read) == 0
    if isinstance(written, datetime) and isinstance(read, datetime):
        naive = (written.tzinfo is None, read.tzinfo is None)
        return naive in {(True, True), (False, False)} and written - read == timedelta()
    names = (
        [each.name for each in fields(written)]
        if is_dataclass(written)
        else written.__struct_fields__
        if isinstance(written, msgspec.Struct)
        else None
    )
    if names is not None:
        return type(read) is type(written) and all(
            is_read_back(getattr(written, each), getattr(read, each)) for each in names
        )
    if isinstance(written, list | tuple):
        kind = list if isinstance(written, list) else tuple
        return isinstance(read, kind) and len(written) == len(read) and all(map(is_read_back, written, read))
    if isinstance(written, Mapping):
        return (
            isinstance(read, Mapping)
            and written.keys() == read.keys()
            and all(is_read_back(each, read[key]) for key, each in written.items())
        )
    return bool(written == read)


def check(serde: Serde[Any], value: Any) -> None:
    try:
        data = serde.dump(value)
    except ValueRefused:
        return
    assert type(data) is bytes
    assert is_read_back(value, serde.load(data)), data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", [json_of, msgpack_of])
@settings(derandomize=True)
@given(data=st.data())
def test_a_format_reads_back_what_it_wrote_or_refuses_it(made: Any, kind: str, data: st.DataObject) -> None:
    of, values = KINDS[kind]
    check(made(of), data.draw(values))


@pytest.mark.parametrize(
    "serde", [BYTES, TEXT, INT, tuple_of(TEXT, INT, BYTES), tuple_of(tuple_of(INT), TEXT), MAX.serde]
)
@settings(derandomize=True)
@given(value=anything | st.tuples(texts, numbers, st.binary()) | st.tuples(st.tuples(numbers), texts))
def test_a_key_reads_back_what_it_wrote_or_refuses_it(serde: Serde[Any], value: Any) -> None:
    check(serde, value)


@settings(derandomize=True)
@given(value=anything)
def test_what_is_written_is_written_the_same_again(value: Any) -> None:
    """A standby that reads a value and writes it has the bytes of its active."""
    for serde in (JSON, MSGPACK):
        with suppress(ValueRefused):
            data = serde.dump(value)
            assert serde.dump(serde.load(data)) == data


columns = st.sampled_from(
    [
        (pa.float64(), st.floats()),
        (pa.int8(), st.integers(-128, 127)),
        (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3)),
        (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b"])),
        (pa.timestamp("ns", "America/New_York"), st.integers(-(1 << 63), (1 << 63) - 1)),
        (pa.decimal128(38, 2), st.decimals(-1000, 1000, places=2)),
        (pa.list_(pa.float32()), st.lists(st.floats(width=32), max_size=2)),
        (pa.struct({"x": pa.float64()}), st.fixed_dictionaries({"x": st.none() | st.floats()})),
    ]
)


@settings(derandomize=True)
@given(data=st.data())
def test_record_batches_come_back_or_are_refused(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 4))
    arrays = [
        pa.array(data.draw(st.lists(st.none() | values, min_size=length, max_size=length)), kind)
        for kind, values in data.draw(st.lists(columns, max_size=3))
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(each) for each in range(len(arrays))])
    batch = batch.slice(data.draw(st.integers(0, length)))
    read = ARROW.load(ARROW.dump(batch))
    assert read.schema.equals(batch.schema, check_metadata=True)
    assert is_read_back(batch.to_pylist(), read.to_pylist()), "NaN is not equal to itself for Arrow"


@settings(derandomize=True)
@given(value=anything)
def test_what_is_no_record_batch_is_refused(value: Any) -> None:
    for each in (value, pa.table({"a": [1]})):
        with pytest.raises(ValueRefused, match="RecordBatch"):
            ARROW.dump(each)
