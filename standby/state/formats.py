"""Values as JSON, msgpack or Arrow: formats that any other program can read, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from standby.state.serdes import Serde

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class _Formatted(Generic[T]):
    def __init__(self, encoder: Any, decoder: Any) -> None:
        self._encode, self._decode = encoder.encode, decoder.decode

    def dump(self, value: T, /) -> bytes:
        return self._encode(value)  # type: ignore[no-any-return]

    def load(self, data: bytes, /) -> T:
        # Its errors are ValueErrors.
        return self._decode(data)  # type: ignore[no-any-return]


class _Arrow:
    """One record batch as an Arrow IPC stream, its schema included.

    The library is imported at the first use: the command line, which needs none of it, would wait for it.
    """

    def dump(self, value: pa.RecordBatch, /) -> bytes:
        import pyarrow as pa

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

    A value of another kind is refused when it is read, with a `ValueError` that says where it differs.
    """
    # In a fixed order: equal values are to have equal bytes, whatever order they were filled in.
    return _Formatted(msgspec.json.Encoder(order="deterministic"), msgspec.json.Decoder(kind))


def msgpack_of(kind: type[T]) -> Serde[T]:
    """Return msgpack that holds values of ``kind``; as `json_of`, but smaller, and it holds bytes."""
    return _Formatted(msgspec.msgpack.Encoder(order="deterministic"), msgspec.msgpack.Decoder(kind))


_ANYTHING: Final[Any] = Any

#: Whatever JSON can hold.
JSON: Final[Serde[Any]] = json_of(_ANYTHING)

#: Whatever msgpack can hold.
MSGPACK: Final[Serde[Any]] = msgpack_of(_ANYTHING)

#: A `pyarrow.RecordBatch`.
ARROW: Final[Serde[Any]] = _Arrow()
