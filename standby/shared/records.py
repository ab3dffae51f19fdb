"""The contents of znodes: the JSON of each znode that more than one program reads.

Every body has a ``version``. Unknown fields are ignored, and later fields need a default, so that programs of
neighbouring versions can read each other's records. Undecodable content raises `BadConfiguration`, as on the wire:
another program must have written it.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar, cast

import msgspec

from standby.errors import BadConfiguration
from standby.shared.model import NodeOffer, TaskRecord
from standby.shared.peers import BundleSource

#: Version of the bodies below.
VERSION = 1


class ControllerRecord(msgspec.Struct, frozen=True):
    """``/controller``: the leader."""

    candidate: str
    host: str
    port: int
    epoch: int
    version: int = VERSION

    def __str__(self) -> str:
        return f"{self.candidate} at {self.host}:{self.port}, epoch {self.epoch}"


class ContainerRecord(msgspec.Struct, frozen=True):
    """``/containers/<container>``: a container as it registered itself (ephemeral)."""

    container: str
    skein_id: str
    cell: int
    host: str
    port: int
    """Accepts connections while the process is alive."""
    http_port: int
    """`/metrics` and `/healthz`."""
    pid: int
    protocol: int
    """The version of `standby.shared.wire`."""
    standfast: str
    """Version of the distribution."""
    log_dirs: tuple[str, ...] = ()
    version: int = VERSION
    peer_port: int = 0
    """The port for `standby.shared.peers`, with mutual TLS."""


class MemberRecord(msgspec.Struct, frozen=True):
    """``/pool/<container>``: a process of a pool, which waits until the leader claims it (ephemeral).

    The process creates the node, and the leader changes it in transactions that check its epoch. A process that has to
    create it again, because its session had ended, keeps its claim.
    """

    container: str
    host: str
    pid: int
    protocol: int
    """The version of `standby.shared.wire`."""
    standfast: str
    """Version of the distribution."""
    claim: str = ""
    """The request for which it was claimed: the leader's epoch and the number of the request. Empty: it waits."""
    is_released: bool = False
    """It is no longer needed, and ends."""
    version: int = VERSION
    offer: NodeOffer = NodeOffer()
    since_ms: int = 0
    """When its process began to wait, Unix milliseconds."""
    job: str = ""
    """The job that it was claimed for; empty: it waits."""


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


def encode(record: ControllerRecord | ContainerRecord | MemberRecord) -> bytes:
    """Return the znode's data."""
    return msgspec.json.encode(record)


def encode_offer(offer: NodeOffer) -> str:
    """Return an offer as the value of a variable."""
    return msgspec.json.encode(offer).decode()


def decode_offer(text: str, where: str) -> NodeOffer:
    """Return the offer in a variable. Raises `BadConfiguration` with ``where`` it was found."""
    return decoded(text.encode(), where, NodeOffer)


def encode_task(record: TaskRecord) -> bytes:
    """Return the data of a task record's znode."""
    return msgspec.json.encode(_Task(record))


def encode_source(source: BundleSource) -> bytes:
    """Return the data of a source's znode."""
    return msgspec.json.encode(_BundleSource(source))


def decode_source(data: bytes, path: str) -> BundleSource:
    """Return a candidate that holds a bundle. Raises like `decoded`."""
    return decoded(data, path, _BundleSource).source


def decode_task(data: bytes, path: str) -> TaskRecord:
    """Return a task record. Raises like `decoded`."""
    return decoded(data, path, _Task).record


def decoded(data: bytes, path: str, kind: type[_Body]) -> _Body:
    """Return the ``kind`` in ``data``. Raises `BadConfiguration` with ``path`` when it is invalid. Thread-safe.

    msgspec collects a dataclass's fields at its first use, and two threads that do this concurrently crash the
    process: all tasks of a promoted container were the first to decode a record. So decoders are created under a
    lock.
    """
    with _making:
        decoder = _decoders.get(kind)
        if decoder is None:
            decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return cast("_Body", decoder.decode(data))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadConfiguration(f"{path}: not a record of version {VERSION}: {error}") from error
