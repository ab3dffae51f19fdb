"""What lies in ZooKeeper, as bytes: the JSON of each znode that more than one program reads.

Every body carries a ``version``; unknown fields are ignored, later fields need a default, so that programs of
neighbouring versions read each other's records. What cannot be decoded raises `BadConfiguration`, as on the
wire: another program writes there.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar, cast

import msgspec

from standby.errors import BadConfiguration
from standby.shared.model import TaskRecord
from standby.shared.peers import BundleSource

#: Version of the bodies below.
VERSION = 1


class ControllerRecord(msgspec.Struct, frozen=True):
    """``/controller``: who leads."""

    candidate: str
    host: str
    port: int
    epoch: int
    version: int = VERSION


class ContainerRecord(msgspec.Struct, frozen=True):
    """``/containers/<container>``: a container as it registered itself (ephemeral)."""

    container: str
    skein_id: str
    cell: int
    host: str
    port: int
    """Accepts as long as the process lives."""
    http_port: int
    """`/metrics` and `/healthz`."""
    pid: int
    protocol: int
    """Of `standby.shared.wire`."""
    standfast: str
    """Version of the distribution."""
    log_dirs: tuple[str, ...] = ()
    version: int = VERSION
    peer_port: int = 0
    """`standby.shared.peers`, over mutual TLS; 0: a version that has none."""


class _Task(msgspec.Struct, frozen=True):
    """``/jobs/<job>/tasks/<stage>.<n>``: the task's record."""

    record: TaskRecord
    version: int = VERSION


class _BundleSource(msgspec.Struct, frozen=True):
    """``/code/<bundle>/<candidate>``: a candidate holds a bundle (ephemeral)."""

    source: BundleSource
    version: int = VERSION


_Body = TypeVar("_Body")

_decoders: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {}
_making: Final = threading.Lock()


def encode(record: ControllerRecord | ContainerRecord) -> bytes:
    """Return the znode's data."""
    return msgspec.json.encode(record)


def encode_task(record: TaskRecord) -> bytes:
    """Return the data of a task record's znode."""
    return msgspec.json.encode(_Task(record))


def encode_source(source: BundleSource) -> bytes:
    """Return the data of a source's znode."""
    return msgspec.json.encode(_BundleSource(source))


def decode_source(data: bytes, path: str) -> BundleSource:
    """Return a candidate that holds a bundle; raises `BadConfiguration` as `decode_controller`."""
    return decoded(data, path, _BundleSource).source


def decode_controller(data: bytes, path: str) -> ControllerRecord:
    """Return who leads; ``path`` is for the message of `BadConfiguration`, raised when ``data`` is no such record."""
    return decoded(data, path, ControllerRecord)


def decode_container(data: bytes, path: str) -> ContainerRecord:
    """Return a container's registration; raises `BadConfiguration` as `decode_controller`."""
    return decoded(data, path, ContainerRecord)


def decode_task(data: bytes, path: str) -> TaskRecord:
    """Return a task record; raises `BadConfiguration` as `decode_controller`."""
    return decoded(data, path, _Task).record


def decoded(data: bytes, path: str, kind: type[_Body], version: int = VERSION) -> _Body:
    """Return the ``kind`` in ``data``, from any thread; raises `BadConfiguration` naming ``path`` when it is none.

    msgspec takes down a dataclass's fields when it first meets it, and two threads that do so at once crash a process:
    all tasks of a promoted container were the first to decode a record. So one thread at a time makes decoders.
    """
    with _making:
        decoder = _decoders.get(kind)
        if decoder is None:
            decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return cast("_Body", decoder.decode(data))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadConfiguration(f"{path}: not a record of version {version}: {error}") from error
