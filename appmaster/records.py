"""What the master and the command line keep in ZooKeeper, besides what containers read too.

See `standby.records` for the rules that hold for every body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from appmaster.planning.model import JobModel, Processor
from standby.errors import BadConfiguration
from standby.model import ProcessorId, TaskId
from standby.wire import JobDefinition

VERSION = 1


class JobRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>``: a job as it was submitted, and what is asked of it now."""

    definition: JobDefinition
    """What containers that start now run: the present revision."""
    former: tuple[JobDefinition, ...] = ()
    """Earlier revisions, latest first: containers may still run them, and the latest can be returned to."""
    settings: Mapping[str, str] = {}
    """The flat configuration as it is asked for now: keys that need no new container may differ from the
    definition's. Empty: as in the definition."""
    is_wanted: bool = True
    """Requested state: deployed, or undeployed."""
    purge: bool = False
    """Undeployed for good: containers remove local state before they end."""
    version: int = VERSION


class ProcessorRecord(msgspec.Struct, frozen=True):
    """A processor in a job's model. A task's number is that of its input partition and of its changelog partition."""

    number: int
    partitions: tuple[int, ...]
    copies: tuple[int, ...]
    parked: str = ""


class ModelRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>/model``: the job model; roles and locality are in the task records."""

    job: str
    stage: str
    model_version: int
    processors: tuple[ProcessorRecord, ...]
    is_mixed: bool = False
    containers: int = 0
    version: int = VERSION


class ExcludedRecord(msgspec.Struct, frozen=True):
    """``/excluded``: the hosts that are to be empty."""

    hosts: Mapping[str, str]
    """Host → why."""
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


def model_record(model: JobModel, stage: str) -> ModelRecord:
    """Return a job model as it is kept."""
    return ModelRecord(
        model.job,
        stage,
        model.version,
        tuple(
            ProcessorRecord(
                processor.number, tuple(task.partition for task in each.tasks), each.copies, each.parked
            )
            for processor, each in model.processors.items()
        ),
        model.is_mixed,
        model.containers,
    )


def model_of(record: ModelRecord, znode: int) -> JobModel:
    """Return the job model in a record; ``znode`` is the ZooKeeper version of its node."""
    return JobModel(
        record.job,
        {
            ProcessorId(record.job, record.stage, each.number): Processor(
                tuple(TaskId(record.job, record.stage, partition) for partition in each.partitions),
                each.copies,
                each.parked,
            )
            for each in record.processors
        },
        record.is_mixed,
        record.containers,
        record.model_version,
        znode,
    )


def encode(
    record: JobRecord | ModelRecord | ExcludedRecord | StatusRecord | CellRecord | CandidateRecord,
) -> bytes:
    """Return the znode's data."""
    return msgspec.json.encode(record)


def decode(data: bytes, path: str, kind: type[_Body]) -> _Body:
    """Return the record in ``data``; raises `BadConfiguration` naming ``path`` when it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"{path}: not a record of version {VERSION}: {error}") from error
