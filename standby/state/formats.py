"""Values as JSON, msgpack or Arrow: formats that other programs can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from standby.api import ValueRefused
from standby.state.differences import difference, not_finite
from standby.state.serdes import Serde

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_JSON: Final = "JSON"

#: Distinguishes values that `==` may not, for example fields that a job's class omits from its comparison.
_flat: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def _is_plainly_equal(value: Any, read: Any) -> bool:
    """Return whether two values are certainly the same, by a fast check; False is inconclusive."""
    try:
        return bool(value == read) and _flat(value) == _flat(read)
    except Exception:  # noqa: BLE001 - comparisons of the job, numbers beyond 64 bits
        return False


class _Formatted(Generic[T]):
    """A msgspec format. It can write more than it reads back, so every written value is read back at once.

    A value that cannot be read back unchanged would fail every later record of its key, which are not the cause.
    """

    def __init__(self, name: str, encoder: Any, decoder: Any) -> None:
        self._name = name
        self._encode, self._decode = encoder.encode, decoder.decode

    def dump(self, value: T, /) -> bytes:
        try:
            data: bytes = self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueRefused(f"{self._name} cannot represent it: {error}") from error
        try:
            read = self._decode(data)
        except (ValueError, OverflowError) as error:
            raise self._refused(value, f"could not read it back: {error}") from error
        if not _is_plainly_equal(value, read):
            found = difference(value, read)
            if found is not None:
                raise self._refused(value, f"would not return it unchanged: {found}")
            # Equal, but perhaps of another type, such as 1 for 1.0: equal values must have equal bytes.
            data = self._encode(read)
        return data

    def load(self, data: bytes, /) -> T:
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except OverflowError as error:
            # Other errors of the decoder are ValueErrors.
            raise ValueError(str(error)) from error

    def _refused(self, value: T, problem: str) -> ValueRefused:
        found = not_finite(value) if self._name == _JSON else None
        if found is not None:
            return ValueRefused(f"JSON has no number for {found}, but msgpack has")
        return ValueRefused(f"{self._name} {problem}")


class _Arrow:
    """One record batch as an Arrow IPC stream, including its schema.

    The library is imported at its first use, because the command line does not need it.
    """

    def dump(self, value: pa.RecordBatch, /) -> bytes:
        import pyarrow as pa

        if not isinstance(value, pa.RecordBatch):
            raise ValueRefused(f"ARROW holds a pyarrow.RecordBatch, not {type(value).__name__}")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def load(self, data: bytes, /) -> pa.RecordBatch:
        import pyarrow as pa

        # Arrow raises a ValueError for invalid data.
        with pa.ipc.open_stream(data) as reader:
            try:
                return reader.read_next_batch()
            except StopIteration:
                raise ValueError("an Arrow stream without a record batch") from None


def json_of(kind: type[T]) -> Serde[T]:
    """Return a JSON serde for values of ``kind``: a dataclass, a msgspec struct, `dict[str, int]` and so on.

    A value that would not be read back equal is refused when it is written, with a `ValueRefused` that describes the
    difference: NaN and infinities, which JSON cannot represent, a value of another kind, and for `JSON` itself a
    tuple or a datetime, which would be read back as a list and as a text. An instance of a subclass, such as a
    Counter for a dict, is equal to what is read back. Keys of dicts are texts. Bytes of another kind raise a
    `ValueError` when they are read.
    """
    # In a fixed order: equal values must have equal bytes, whatever their insertion order.
    return _Formatted(_JSON, msgspec.json.Encoder(order="deterministic"), msgspec.json.Decoder(kind))


def msgpack_of(kind: type[T]) -> Serde[T]:
    """Return a msgpack serde for values of ``kind``: like `json_of`, but smaller, and also for bytes and NaN."""
    return _Formatted(
        "msgpack", msgspec.msgpack.Encoder(order="deterministic"), msgspec.msgpack.Decoder(kind)
    )


_ANYTHING: Final[Any] = Any

#: Anything that JSON can represent.
JSON: Final[Serde[Any]] = json_of(_ANYTHING)

#: Anything that msgpack can represent.
MSGPACK: Final[Serde[Any]] = msgpack_of(_ANYTHING)

#: A `pyarrow.RecordBatch`.
ARROW: Final[Serde[Any]] = _Arrow()
