"""What the master and the command line keep in ZooKeeper, in addition to what containers read, too.

See `standby.shared.records` for the rules of all records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from appmaster.planning.state.model import JobModel, Processor
from appmaster.planning.state.reasons import FailureReason, Reason
from appmaster.planning.state.view import Recorded
from standby.cluster import ClusterConfig
from standby.config import names, written
from standby.config.cluster import ClusterKeys
from standby.errors import BadConfiguration
from standby.shared.model import ProcessorId, TaskId
from standby.shared.naming import POOL
from standby.shared.records import decoded
from standby.shared.wire import JobDefinition

VERSION = 1


class JobRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>``: a job as it was submitted, and its present settings."""

    definition: JobDefinition
    """The present revision, which containers started now run."""
    former: tuple[JobDefinition, ...] = ()
    """Earlier revisions, latest first: containers may still run them, and a rollback may return to the latest."""
    settings: Mapping[str, str] = {}
    """The flat configuration as it is requested now: keys that need no new container may differ from the definition's.
    Empty: as in the definition."""
    is_wanted: bool = True
    """Requested state: deployed, or undeployed."""
    purge: bool = False
    """Undeployed for good: containers remove local state before they end."""
    is_fence_waived: bool = False
    """Undeployed even if its tasks are not fenced: an operator has declared that nothing of it writes any more."""
    activated: int = 0
    """Highest active revision: enough candidates held its code, or the wait for them was over."""
    version: int = VERSION


class ProcessorRecord(msgspec.Struct, frozen=True):
    """A processor in a job's model. A task's number is that of its input partition and of its changelog partition."""

    number: int
    partitions: tuple[int, ...]
    copies: tuple[int, ...]
    parked: str = ""
    """Why it is parked, in words; empty: it is not."""
    parked_for: str = ""
    """The kind of that reason (`FailureReason`); empty: written by a release without kinds."""


class ModelRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>/model``: the job model; roles and locality are in the task records."""

    job: str
    stage: str
    model_version: int
    processors: tuple[ProcessorRecord, ...]
    is_mixed: bool = False
    containers: int = 0
    version: int = VERSION


class DrainedRecord(msgspec.Struct, frozen=True):
    """``/drained``: the drained hosts, and why."""

    hosts: Mapping[str, str]
    """Host → why."""
    version: int = VERSION


class EndedRecord(msgspec.Struct, frozen=True):
    """A job that failed, and for which nothing is left to do."""

    run: str
    revision: int
    """The revision that failed: a later one is another chance."""


class StatusRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>/status``: a job's status, as written by the leader."""

    state: str
    reasons: tuple[str, ...] = ()
    at_ms: int = 0
    traceback: str = ""
    """Where the job's code raised what caused the reasons (`standby.shared.errortext`); empty: it did not."""
    ended: EndedRecord | None = None
    """The failed job once every task of it is fenced; None: it has not failed, or a leader still works on it."""
    version: int = VERSION
    failure: str = ""
    """The kind (`FailureReason`) of a failed job's first reason; empty: written by a release without kinds."""
    is_unfenceable: bool = False
    """Whether its tasks cannot be fenced, so that a container of it might still commit."""
    run: str = ""
    """The run that it is about; empty: written by a release without it."""
    revision: int = 0
    """The revision that it is about."""
    is_at_risk: bool = False
    """Whether the event log says that its changelog is about to lose records."""


class CellRecord(msgspec.Struct, frozen=True):
    """``/cells/<n>``: the YARN application of a cell; created by the submit that starts it."""

    application: str
    """YARN application id; empty between the creation of the record and YARN's answer."""
    submitter: str = ""
    attempt: str = ""
    """The attempt of the application that its candidate belongs to (`appmaster.leadership.yarn_ids`); empty before."""
    address: str = ""
    """``host:port`` of that attempt's Skein AM. A client needs the pair with which the application was submitted; every
    candidate has it in its working directory."""
    settings: Mapping[str, str] = {}
    """Keys that apply to every container of the cell, with the values of the job that started it: a job that is
    submitted into the cluster later runs with them."""
    version: int = VERSION
    claim: str = ""
    """Distinguishes the claims of submits: the one that this record comes from."""
    is_pool: bool = False
    """It is no cell of YARN but stands for the cluster's pool; written by the masters (`pool_record`)."""
    environment: str = ""
    """SHA-256 of the packed environment that the cell ships (`job.python.archive`); empty: none, or not known."""


def recorded_settings(cells: Iterable[CellRecord | BadConfiguration]) -> Mapping[str, str]:
    """Return the settings with which a cluster was started, of its cells' records; empty if none has them."""
    return next((each.settings for each in cells if isinstance(each, CellRecord) and each.settings), {})


def recorded_environments(cells: Iterable[CellRecord | BadConfiguration]) -> frozenset[str]:
    """Return each `CellRecord.environment` of a cluster's cells: more than one if a restored cell has another."""
    return frozenset(each.environment for each in cells if isinstance(each, CellRecord) and each.environment)


def pool_record(config: ClusterConfig) -> CellRecord:
    """Return the record that stands for the pool of a cluster, in place of the cells of YARN."""
    settings = {
        each.metadata["key"].name: written(getattr(config, each.name))
        for each in dataclasses.fields(ClusterKeys)
    }
    of_cluster = {name: value for name, value in settings.items() if name in names("cluster")}
    return CellRecord("", attempt=POOL, settings=of_cluster, is_pool=True)


class DeletedRecord(msgspec.Struct, frozen=True):
    """``/code/<bundle>`` of a bundle that was deleted: its tombstone. Otherwise the node is empty."""

    at_ms: int
    """For people only: its age is measured by each candidate's own clock."""
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
    peer_port: int = 0
    """Port of `standby.shared.peers`, over mutual TLS, for transfers of code; 0: a version without it."""
    life: int = 1
    """How many times its supervisor has started it in this attempt."""
    ended: str = ""
    """How its former life ended; empty: there was none."""


class ChangeRecord(msgspec.Struct, frozen=True):
    """``/changes/<id>``: a change of the desired state, queued until a leader makes it, and its result."""

    operation: str
    """One of `appmaster.changes.operations.OPERATIONS`."""
    arguments: Mapping[str, Any]
    submitter: str = ""
    at_ms: int = 0
    state: str = "queued"
    """``queued``, ``done`` or ``refused``."""
    said: str = ""
    """Of a settled change: what was done, or why it was not; of a queued change: why it is not made yet."""
    epoch: int = 0
    """Epoch of the leader that settled it."""
    revision: int = 0
    """The job's revision after a change of a job."""
    version: int = VERSION


_Body = TypeVar("_Body")

_FAILURES: Final = frozenset(each.value for each in FailureReason)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One job with everything that is recorded of it."""

    job: JobRecord
    status: StatusRecord | None
    model: JobModel | None
    tasks: tuple[Recorded, ...]
    """Empty if they were not requested."""


def model_record(model: JobModel, stage: str) -> ModelRecord:
    """Return the record of a job model."""
    return ModelRecord(
        model.job,
        stage,
        model.version,
        tuple(
            ProcessorRecord(
                processor.number,
                tuple(task.partition for task in each.tasks),
                each.copies,
                str(each.parked or ""),
                each.parked.kind.value if each.parked is not None else "",
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
                failure_of(each.parked_for, each.parked) if each.parked else None,
            )
            for each in record.processors
        },
        record.is_mixed,
        record.containers,
        record.model_version,
        znode,
    )


def failure_of(kind: str, said: str) -> Reason[FailureReason]:
    """Return the recorded reason why a job failed or a processor was parked; ``kind`` may be of a later release."""
    return Reason(FailureReason(kind) if kind in _FAILURES else FailureReason.OTHER, said)


def encode(
    record: JobRecord
    | ModelRecord
    | DrainedRecord
    | StatusRecord
    | CellRecord
    | CandidateRecord
    | DeletedRecord
    | ChangeRecord,
) -> bytes:
    """Return the znode's data."""
    return msgspec.json.encode(record)


def decode(data: bytes, path: str, kind: type[_Body]) -> _Body:
    """Return the record in ``data``; raises `BadConfiguration` naming ``path`` if it is not one."""
    return decoded(data, path, kind)
