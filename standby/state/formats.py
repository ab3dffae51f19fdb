"""Values as JSON, msgpack or Arrow: formats that any other program can read, too."""

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

#: Tells apart what `==` may not: what a class of the job's own leaves out of its comparison, say.
_flat: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def _is_plainly_equal(value: Any, read: Any) -> bool:
    """Return whether two values are the same for sure, found quickly; False says nothing."""
    try:
        return bool(value == read) and _flat(value) == _flat(read)
    except Exception:  # noqa: BLE001 - comparisons of the job's own, numbers beyond 64 bits
        return False


class _Formatted(Generic[T]):
    """A format of msgspec's, which writes more than it reads back: what it writes is read at once.

    A value that cannot be read, or not as what it was, would fail every later record of its key, and those are not to
    blame for it.
    """

    def __init__(self, name: str, encoder: Any, decoder: Any) -> None:
        self._name = name
        self._encode, self._decode = encoder.encode, decoder.decode

    def dump(self, value: T, /) -> bytes:
        try:
            data: bytes = self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueRefused(f"{self._name} cannot hold it: {error}") from error
        try:
            read = self._decode(data)
        except (ValueError, OverflowError) as error:
            raise self._refused(value, f"could not read it back: {error}") from error
        if not _is_plainly_equal(value, read):
            found = difference(value, read)
            if found is not None:
                raise self._refused(value, f"would not give it back as it is: {found}")
            # Equal, but perhaps of another type, 1 for 1.0: equal values are to have equal bytes.
            data = self._encode(read)
        return data

    def load(self, data: bytes, /) -> T:
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except OverflowError as error:
            # Its other errors are ValueErrors.
            raise ValueError(str(error)) from error

    def _refused(self, value: T, told: str) -> ValueRefused:
        found = not_finite(value) if self._name == _JSON else None
        if found is not None:
            return ValueRefused(f"JSON has no number for {found}; msgpack has")
        return ValueRefused(f"{self._name} {told}")


class _Arrow:
    """One record batch as an Arrow IPC stream, its schema included.

    The library is imported at the first use: the command line, which needs none of it, would wait for it.
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

        # Arrow's own error for what is none is a ValueError.
        with pa.ipc.open_stream(data) as reader:
            try:
                return reader.read_next_batch()
            except StopIteration:
                raise ValueError("an Arrow stream without a record batch") from None


def json_of(kind: type[T]) -> Serde[T]:
    """Return JSON that holds values of ``kind``: a dataclass, a msgspec struct, `dict[str, int]` and so on.

    What would not be read back equal is refused when it is written, with a `ValueRefused` that says where it differs:
    NaN and infinities, for which JSON has no number, a value of another kind, and for `JSON` itself a tuple or a
    moment, which would come back as a list and as a text. A subclass of what the kind has, a Counter for a dict, is
    equal to what comes back. Keys of dicts are texts. Bytes of another kind raise a `ValueError` when they are read.
    """
    # In a fixed order: equal values are to have equal bytes, whatever order they were filled in.
    return _Formatted(_JSON, msgspec.json.Encoder(order="deterministic"), msgspec.json.Decoder(kind))


def msgpack_of(kind: type[T]) -> Serde[T]:
    """Return msgpack that holds values of ``kind``; as `json_of`, but smaller; it holds bytes and NaN, too."""
    return _Formatted(
        "msgpack", msgspec.msgpack.Encoder(order="deterministic"), msgspec.msgpack.Decoder(kind)
    )


_ANYTHING: Final[Any] = Any

#: Whatever JSON can hold.
JSON: Final[Serde[Any]] = json_of(_ANYTHING)

#: Whatever msgpack can hold.
MSGPACK: Final[Serde[Any]] = msgpack_of(_ANYTHING)

#: A `pyarrow.RecordBatch`.
ARROW: Final[Serde[Any]] = _Arrow()
