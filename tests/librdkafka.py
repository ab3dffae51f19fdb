"""Records that confluent-kafka cannot write, but other producers do: written through librdkafka itself."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

import confluent_kafka

from tests.patience import PATIENCE_SECONDS

# See `rd_kafka_type_t`, `rd_kafka_vtype_t` and `RD_KAFKA_MSG_F_COPY` in rdkafka.h.
_PRODUCER: Final = 0
_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 0, 1, 3, 4, 5, 7, 9
_COPY: Final = 2


def produce_with_header(bootstrap: str, topic: str, key: bytes, value: bytes, name: bytes) -> None:
    """Write a record to partition 0 with one header, whose name need not be UTF-8."""
    library = _library()
    settings = library.rd_kafka_conf_new()
    error = ctypes.create_string_buffer(512)
    assert library.rd_kafka_conf_set(settings, b"bootstrap.servers", bootstrap.encode(), error, 512) == 0
    producer = library.rd_kafka_new(_PRODUCER, settings, error, 512)
    assert producer, error.value
    size = ctypes.c_size_t
    arguments = (
        *(_TOPIC, topic.encode(), _PARTITION, 0, _FLAGS, _COPY),
        *(_KEY, key, size(len(key)), _VALUE, value, size(len(value))),
        *(_HEADER, name, b"1", ctypes.c_ssize_t(1), _END),
    )
    try:
        assert library.rd_kafka_producev(ctypes.c_void_p(producer), *arguments) == 0
        assert library.rd_kafka_flush(ctypes.c_void_p(producer), int(PATIENCE_SECONDS * 1000)) == 0
    finally:
        library.rd_kafka_destroy(ctypes.c_void_p(producer))


def _library() -> ctypes.CDLL:
    """Return the library that the wheel of confluent-kafka contains."""
    (found,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(found))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_set.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    ]
    library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    return library
