"""What the master and the command line keep in ZooKeeper, besides what containers read too.

See `standby.shared.records` for the rules that hold for every body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from appmaster.planning.state.model import JobModel, Processor
from appmaster.planning.state.reasons import Failure, Reason
from appmaster.planning.state.view import Recorded
from standby.shared.model import ProcessorId, TaskId
from standby.shared.records import decoded
from standby.shared.wire import JobDefinition

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
    is_fence_waived: bool = False
    """Undeployed although its tasks may not be fenced: an operator has said that nothing of it writes any more."""
    activated: int = 0
    """Highest revision that is active: enough candidates held its code, or it was waited for long enough."""
    version: int = VERSION


class ProcessorRecord(msgspec.Struct, frozen=True):
    """A processor in a job's model. A task's number is that of its input partition and of its changelog partition."""

    number: int
    partitions: tuple[int, ...]
    copies: tuple[int, ...]
    parked: str = ""
    """Why it is parked, in words; empty: it is not."""
    parked_for: str = ""
    """The `Failure` that is meant; empty: a release that did not say."""


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
    """``/drained``: the hosts that are drained, and why."""

    hosts: Mapping[str, str]
    """Host → why."""
    version: int = VERSION


class EndedRecord(msgspec.Struct, frozen=True):
    """A job that was given up, and of which nothing is left to do."""

    run: str
    revision: int
    """The one that was given up: a later one is another chance."""


class StatusRecord(msgspec.Struct, frozen=True):
    """``/jobs/<job>/status``: how far the leader is with it."""

    state: str
    reasons: tuple[str, ...] = ()
    at_ms: int = 0
    traceback: str = ""
    """Where the job's code raised what is behind the reasons (`standby.shared.errortext`); empty: it did
    not."""
    ended: EndedRecord | None = None
    """What was given up, once every task of it is fenced; None: nothing was, or a leader is still at it."""
    version: int = VERSION
    failure: str = ""
    """Of a job that was given up, the `Failure` that its first reason is about; empty: a release that did not say."""
    is_unfenceable: bool | None = None
    """Whether its tasks cannot be fenced, so that a container of it might still commit; None: a release that did not
    say."""


class CellRecord(msgspec.Struct, frozen=True):
    """``/cells/<n>``: the YARN application of a cell; created by the submit that starts it."""

    application: str
    """YARN application id; empty between the creation of the record and YARN's answer."""
    submitter: str = ""
    attempt: str = ""
    """Of the application, as its candidate has it from YARN (`appmaster.leadership.yarn_ids`); empty until then."""
    address: str = ""
    """``host:port`` of that attempt's Skein AM. Whoever has the pair that the application was submitted with can talk
    to it: every candidate has it in its working directory."""
    settings: Mapping[str, str] = {}
    """Keys that hold for every container of the cell, as the job had them that started it: a job that is submitted
    into the cluster later runs with them."""
    version: int = VERSION


class DeletedRecord(msgspec.Struct, frozen=True):
    """``/code/<bundle>`` of a bundle that was deleted: its tombstone. Otherwise the node is empty."""

    at_ms: int
    """For people: how long it stays is measured by each candidate's own clock."""
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
    """`standby.shared.peers`, over mutual TLS: gives code and takes it; 0: a version that has none."""
    life: int = 1
    """How many times its supervisor has started it in this attempt."""
    ended: str = ""
    """How the life before ended; empty: there was none."""


class ChangeRecord(msgspec.Struct, frozen=True):
    """``/changes/<id>``: a change of what is desired, queued until a leader makes it, and its result."""

    operation: str
    """Of `appmaster.changes.operations.OPERATIONS`."""
    arguments: Mapping[str, Any]
    submitter: str = ""
    at_ms: int = 0
    state: str = "queued"
    """``queued``, ``done`` or ``refused``."""
    said: str = ""
    """Of one that is settled: what was done, or why not; of one that is queued: what keeps it from being made."""
    epoch: int = 0
    """Of the leader that settled it."""
    revision: int = 0
    """Of the job after a change of one."""
    version: int = VERSION


_Body = TypeVar("_Body")

_FAILURES: Final = frozenset(each.value for each in Failure)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One job with everything that is recorded of it."""

    job: JobRecord
    status: StatusRecord | None
    model: JobModel | None
    tasks: tuple[Recorded, ...]
    """Empty when they were not asked for."""


def model_record(model: JobModel, stage: str) -> ModelRecord:
    """Return a job model as it is kept."""
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


def failure_of(kind: str, said: str) -> Reason[Failure]:
    """Return why a job was given up, or a processor parked, as it is recorded; ``kind`` may be of a later release."""
    return Reason(Failure(kind) if kind in _FAILURES else Failure.OTHER, said)


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
    """Return the record in ``data``; raises `BadConfiguration` naming ``path`` when it is none."""
    return decoded(data, path, kind, VERSION)
