"""What the master and the command line keep in ZooKeeper, besides what containers read too.

See `standby.records` for the rules that hold for every body.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from standby.errors import BadConfiguration
from standby.wire import JobDefinition

VERSION = 1


class JobRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>``: a job as it was submitted, and what is asked of it now."""

    definition: JobDefinition
    is_wanted: bool = True
    """Requested state: deployed, or undeployed."""
    purge: bool = False
    """Undeployed for good: containers remove local state before they end."""
    version: int = VERSION


class StatusRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>/status``: how far the leader is with it."""

    state: str
    reasons: tuple[str, ...] = ()
    at_ms: int = 0
    version: int = VERSION


class CellRecord(msgspec.Struct, frozen=True):
    """``/cells/<n>``: the YARN application of a cell; created by the submit that starts it."""

    application: str
    """YARN application id; empty between the creation of the record and YARN's answer."""
    submitted_ms: int = 0
    submitter: str = ""
    version: int = VERSION


class CandidateRecord(msgspec.Struct, frozen=True):
    """``/candidates/<id>``: an application master's process (ephemeral)."""

    candidate: str
    host: str
    port: int
    http_port: int
    cell: int
    pid: int
    container: str
    started_ms: int
    standfast: str
    version: int = VERSION


_Body = TypeVar("_Body")


def encode(record: JobRecord | StatusRecord | CellRecord | CandidateRecord) -> bytes:
    """Return the znode's data."""
    return msgspec.json.encode(record)


def decode(data: bytes, path: str, kind: type[_Body]) -> _Body:
    """Return the record in ``data``; raises `BadConfiguration` naming ``path`` when it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"{path}: not a record of version {VERSION}: {error}") from error
