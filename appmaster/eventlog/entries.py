"""The entries of the event log: their kinds, meanings and fields. Pure.

docs/events.md is generated from `CATALOGUE`; `appmaster.eventlog.derive` makes the entries of a leader.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from appmaster.planning.state.actions import DecisionKind, Facts, FailoverPolicy, Outcome
from appmaster.planning.state.job import EffectKind, JobState
from appmaster.planning.state.reasons import Reason
from appmaster.planning.state.view import RequestKind
from standby.shared.model import LeftOut, TaskId


class EntryKind(str, enum.Enum):
    """The kind of an entry; `CATALOGUE` describes each."""

    LEADER_ELECTED = "leader_elected"
    LEADER_DOUBTS_ITSELF = "leader_doubts_itself"
    JOB_STATUS = "job_status"
    MODEL_CHANGED = "model_changed"
    MODEL_REFUSED = "model_refused"
    PROCESSOR_PARKED = "processor_parked"
    PROCESSOR_UNPARKED = "processor_unparked"
    TOPIC_RECORDED = "topic_recorded"
    TOPIC_CHANGED = "topic_changed"
    CHANGELOG_AT_RISK = "changelog_at_risk"
    CHANGELOG_SAFE = "changelog_safe"
    HOST_DRAINED = "host_drained"
    HOST_ADMITTED = "host_admitted"
    CELL_FOUND = "cell_found"
    CELL_LOST = "cell_lost"
    CONTAINER_REQUESTED = "container_requested"
    REQUEST_GRANTED = "request_granted"
    REQUEST_REFUSED = "request_refused"
    REQUEST_CANCELLED = "request_cancelled"
    LAUNCH_FAILED = "launch_failed"
    CONTAINER_REGISTERED = "container_registered"
    SPARE_TAKEN = "spare_taken"
    CONTAINER_LOST = "container_lost"
    CONTAINER_GONE = "container_gone"
    CONTAINER_DISMISSED = "container_dismissed"
    CONTAINER_RELEASED = "container_released"
    SAME_HOST_REFUSED = "same_host_refused"
    DECIDED_BIND = "decided_bind"
    DECIDED_FAILOVER = "decided_failover"
    DECIDED_DISPLACE = "decided_displace"
    DECIDED_RESTORE = "decided_restore"
    DECIDED_HANDOVER = "decided_handover"
    DECIDED_MOVE = "decided_move"
    DECIDED_MOVED = "decided_moved"
    DECIDED_STAY = "decided_stay"
    DECIDED_DROP = "decided_drop"
    DECIDED_RAISE = "decided_raise"
    DECIDED_CLAIMED = "decided_claimed"
    DECIDED_IN_SYNC = "decided_in_sync"
    DECIDED_FAILURES = "decided_failures"
    DECIDED_PARK = "decided_park"
    DECIDED_UNDEPLOY = "decided_undeploy"
    DECISION_REFUSED = "decision_refused"
    REPLICA_RESTORED = "replica_restored"
    REPLICA_ACTIVE = "replica_active"
    REPLICA_FENCED = "replica_fenced"
    REPLICA_FAILED = "replica_failed"
    RECORD_GIVEN_UP = "record_given_up"
    STANDBY_STOPPED = "standby_stopped"
    FAILOVER_STARTED = "failover_started"
    FAILOVER_WITHOUT_STANDBY = "failover_without_standby"
    FAILOVER_FINISHED = "failover_finished"
    HANDOVER_STARTED = "handover_started"
    HANDOVER_FINISHED = "handover_finished"
    HANDOVER_GIVEN_UP = "handover_given_up"
    COMMAND_ANSWERED = "command_answered"
    FENCING_TASKS = "fencing_tasks"
    TASKS_FENCED = "tasks_fenced"
    FENCING_FAILED = "fencing_failed"
    FENCE_WAIVED = "fence_waived"
    EFFECT_FAILED = "effect_failed"
    EFFECT_DONE = "effect_done"
    ASKED = "asked"
    APPLICATION_ENDED = "application_ended"


#: The entry of each kind of decision.
DECIDED: Final[Mapping[DecisionKind, EntryKind]] = {
    each: EntryKind(f"decided_{each.value.replace('-', '_')}") for each in DecisionKind
}


# ---- the fields of single kinds, in addition to the common ones ----
#
# Each is annotated with its description for docs/events.md. One with its default value is left out of an entry.


@dataclass(frozen=True, slots=True)
class EntryData:
    """The contents of ``data``: nothing."""

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON-ready data, without optional fields that are not set."""
        return _data(self)


def _data(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in dataclasses.fields(value):
        content = getattr(value, each.name)
        if isinstance(content, Facts):
            found.update(_data(content))
        elif content != each.default:
            # ``from`` and ``is`` are keywords of Python.
            found[each.name.rstrip("_")] = _plain(content)
    return found


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, Reason) else value


@dataclass(frozen=True, slots=True)
class LeaderElectedData(EntryData):
    """A leadership begins."""

    candidate: Annotated[str, "the candidate that leads"]
    pid: Annotated[int, "its process"]
    deposed: Annotated[
        str | None,
        "the candidate that was found dead by its closed port, and whose record was seized; null when that record was "
        "gone already",
    ]


@dataclass(frozen=True, slots=True)
class JobStatusData(EntryData):
    """The status of a job."""

    status: Annotated[JobState, "as `standfast status` shows it"]
    traceback: Annotated[str, "where the code of a job that has failed raised, if it did"] = ""


@dataclass(frozen=True, slots=True)
class ModelChangedData(EntryData):
    """A job's next model."""

    version: Annotated[int, "of the model"]
    processors: Annotated[int, "how many it has"]
    tasks: Annotated[int, "how many"]
    copies: Annotated[int, "of each task, the active included"]


@dataclass(frozen=True, slots=True)
class ProcessorData(EntryData):
    """About one processor."""

    processor: Annotated[int, "its number"]


@dataclass(frozen=True, slots=True)
class TopicData(EntryData):
    """A topic of a job."""

    topic: Annotated[str, "its name"]
    is_: Annotated[str, "`input`, `changelog`, `output` or `dead letters`"]
    recorded_id: Annotated[str | None, "Kafka's id of it as recorded; null: none"]
    topic_id: Annotated[str, "Kafka's id of the existing topic"]


@dataclass(frozen=True, slots=True)
class CellFoundData(EntryData):
    """A cell's Skein application master answers."""

    cell: Annotated[int, "its number"]
    attempt: Annotated[str, "of its application"]
    hosts: Annotated[int, "how many can be requested by name"]


@dataclass(frozen=True, slots=True)
class CellLostData(EntryData):
    """A cell's Skein application master is gone."""

    cell: Annotated[int, "its number"]
    attempt: Annotated[str, "of its application"]
    containers: Annotated[int, "how many it holds"]


@dataclass(frozen=True, slots=True)
class RequestData(EntryData):
    """A request for a container."""

    slot: Annotated[
        str,
        "what it is for: `job/stage:processor#copy`, or `job:mixed-number`, a mixed job's shared container",
    ]
    kind: Annotated[RequestKind, "`preferred`, `named`, `any` or `reservation`"]
    cell: Annotated[int | None, "the cell that is asked"] = None
    waited_ms: Annotated[int | None, "from the request to the grant"] = None
    outcome: Annotated[Outcome | None, "why it is cancelled"] = None


@dataclass(frozen=True, slots=True)
class RegisteredData(EntryData):
    """A container that has registered."""

    skein_id: Annotated[str, "its id in its cell"]
    pid: Annotated[int, "its process"]
    holds: Annotated[int, "how many replicas it has"]
    slot: Annotated[str | None, "what it was requested for; null: not known"]


@dataclass(frozen=True, slots=True)
class SpareTakenData(EntryData):
    """A spare container that a slot takes."""

    spare: Annotated[str, "the slot that it had as a spare container"]
    slot: Annotated[str, "the slot that takes it"]
    is_ready: Annotated[bool, "whether its pipeline was warm"]


@dataclass(frozen=True, slots=True)
class LostData(EntryData):
    """A container that is lost."""

    role: Annotated[str | None, "`active`, `standby`, or `mixed` when it had both; null: it held nothing"]
    actives: Annotated[int, "for how many tasks it was active"]
    replicas: Annotated[int, "how many it held"]
    silent_ms: Annotated[int | None, "from its last message to the verdict"] = None


@dataclass(frozen=True, slots=True)
class ReleasedData(EntryData):
    """A container that is given back."""

    outcome: Annotated[
        Outcome, "why: a `reason` of [`standfast_containers_released_total`](monitoring.md#label-values)"
    ]
    slot: Annotated[str | None, "what it was requested for; null: not known"]


@dataclass(frozen=True, slots=True)
class DecisionData(EntryData):
    """A decision about task records."""

    processor: Annotated[int, "the processor whose tasks it is about"]
    tasks: Annotated[Sequence[int], "their numbers"]
    facts: Facts


@dataclass(frozen=True, slots=True)
class PhaseData(EntryData):
    """A replica that entered a phase."""

    since_ms: Annotated[int, "when it did, by the container's clock"]
    applied: Annotated[int | None, "changelog position of its state"]
    traceback: Annotated[str, "where the job's code raised, if it did"] = ""


@dataclass(frozen=True, slots=True)
class RecordGivenUpData(EntryData):
    """Input that was given up."""

    topic: Annotated[str, "of the input"]
    partition: Annotated[int, "of the input"]
    offset: Annotated[int, "the first one that was given up"]
    offsets: Annotated[int, "how many, from there on; more than one only if input was lost"]
    how: Annotated[LeftOut, "`skipped`, `dead-letter`, or `lost` (`task.input.lost`)"]
    error: Annotated[
        str, "the exception's type; `ProcessEnded` when a process ended; empty when input was lost"
    ]
    given_up_ms: Annotated[int, "when, by the container's clock"]
    unnamed: Annotated[int, "how many more were given up without an entry of their own"] = 0


@dataclass(frozen=True, slots=True)
class FailoverStartedData(EntryData):
    """A lost active is being replaced."""

    tasks: Annotated[Sequence[int], "their numbers"]
    processor: Annotated[int, "its number"]
    from_: Annotated[str, "the container that was active before"]
    to: Annotated[str, "the container that becomes active"]
    from_copy: Annotated[int, "the copy that was active"]
    to_copy: Annotated[int, "the copy that becomes active"]
    detected_ms: Annotated[int, "when the loss was noticed"]
    to_in_sync: Annotated[bool, "whether that copy was in sync"]
    policy: Annotated[FailoverPolicy, "`promote` or `restart`"]


@dataclass(frozen=True, slots=True)
class FinishedData(EntryData):
    """A failover or hand-over that has finished."""

    tasks: Annotated[
        Mapping[str, Mapping[str, int | None]],
        "task → Unix milliseconds: loss detected (`detected_ms`), record durable (`recorded_ms`), order sent "
        "(`ordered_ms`), writer fenced (`fenced_ms`), changelog drained (`drained_ms`), epoch claimed (`active_ms`), "
        "task joined the pipeline (`joined_ms`), feed started (`started_ms`), batch delivered (`delivered_ms`), "
        "computed (`computed_ms`), begun (`begun_ms`) and committed (`first_commit_ms`)",
    ]
    from_: Annotated[str, "the container that was active before"]
    processor: Annotated[int, "its number"]


@dataclass(frozen=True, slots=True)
class CommandAnsweredData(EntryData):
    """The outcome of a command."""

    is_refused: Annotated[bool, "whether the command was refused"]


@dataclass(frozen=True, slots=True)
class FencingData(EntryData):
    """The writers of a job are being fenced."""

    tasks: Annotated[int, "how many"]


@dataclass(frozen=True, slots=True)
class EffectData(EntryData):
    """An effect that is carried out for a job."""

    effect: Annotated[EffectKind, "which"]


@dataclass(frozen=True, slots=True)
class AuditData(EntryData):
    """The audit: who asked for a change."""

    caller: Annotated[str, "the name in the certificate; of an operator the one for which it was issued"]
    role: Annotated[str, "of the caller"]
    operation: Annotated[str, "what was asked for"]
    about: Annotated[Mapping[str, Any], "its arguments, without settings"]
    said: Annotated[str, "the answer"]
    candidate: Annotated[str, "the candidate that answered"]
    before: Annotated[
        int | None, "refusals of a container for its role are logged once in 10 s: how many there were before"
    ] = None


@dataclass(frozen=True, slots=True)
class ApplicationEndedData(EntryData):
    """YARN's report about an application."""

    application: Annotated[str, "YARN's id of it"]
    state: Annotated[str, "as reported by YARN"]
    final_status: Annotated[str, "as reported by YARN"]
    diagnostics: Annotated[str, "as reported by YARN"]
    output: Annotated[str, "the last lines of its master's output, if still available"]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something that happened or was decided, for the event log, the metrics and the log."""

    kind: EntryKind
    details: EntryData = EntryData()
    job: str | None = None
    task: TaskId | None = None
    copy: int | None = None
    container: str | None = None
    host: str | None = None
    task_epoch: int | None = None
    reason: Reason[enum.Enum] | str | None = None
    decision: str | None = None
    at_ms: int | None = None
    """Leader's clock; None: the present time."""

    @property
    def data(self) -> dict[str, Any]:
        """The entry's own fields, JSON-ready."""
        return self.details.as_data()


# ---- the catalogue ----


@dataclass(frozen=True, slots=True)
class Described:
    """The description of a kind of entry."""

    meaning: str
    details: type[EntryData] = EntryData
    about: tuple[str, ...] = ()
    """The common fields that may be set in it, in addition to time and epoch."""


_OF_REQUEST: Final = ("job", "copy", "host", "reason")
_OF_DECISION: Final = ("job", "copy", "container", "task_epoch", "reason", "decision")
_OF_REPLICA: Final = ("job", "task", "copy", "container", "host", "task_epoch", "reason")
_OF_FAILOVER: Final = ("job", "copy", "container", "host", "task_epoch", "reason", "decision")
_OF_CONTAINER: Final = ("container", "host", "reason")


def _decided(meaning: str) -> Described:
    return Described(meaning, DecisionData, _OF_DECISION)


#: Every entry of the event log.
CATALOGUE: Final[Mapping[EntryKind, Described]] = {
    EntryKind.LEADER_ELECTED: Described(
        "A candidate leads from now on.", LeaderElectedData, ("container", "host")
    ),
    EntryKind.LEADER_DOUBTS_ITSELF: Described(
        "So many containers fell silent at once that the leader gives all of them one more time-out.",
        about=("reason",),
    ),
    EntryKind.JOB_STATUS: Described(
        "A job's status, or its reasons, have changed.", JobStatusData, ("job", "reason")
    ),
    EntryKind.MODEL_CHANGED: Described(
        "A job's model is being written: the first one, or the next.", ModelChangedData, ("job", "reason")
    ),
    EntryKind.MODEL_REFUSED: Described(
        "A job's model was not written, because it was changed meanwhile.", about=("job", "reason")
    ),
    EntryKind.PROCESSOR_PARKED: Described(
        "A processor failed too often and is withdrawn until `standfast unpark`.",
        ProcessorData,
        ("job", "reason"),
    ),
    EntryKind.PROCESSOR_UNPARKED: Described("The processor runs again.", ProcessorData, ("job", "reason")),
    EntryKind.TOPIC_RECORDED: Described(
        "The id of an output was recorded later than at the submit, because the topic did not exist then.",
        TopicData,
        ("job", "reason"),
    ),
    EntryKind.TOPIC_CHANGED: Described("An output topic was made again.", TopicData, ("job", "reason")),
    EntryKind.CHANGELOG_AT_RISK: Described(
        "Brokers delete records of a job's changelog: its `cleanup.policy` is not `compact`.",
        about=("job", "reason"),
    ),
    EntryKind.CHANGELOG_SAFE: Described("They no longer do; what is deleted stays lost.", about=("job",)),
    EntryKind.HOST_DRAINED: Described("A host is drained: `standfast drain`.", about=("host", "reason")),
    EntryKind.HOST_ADMITTED: Described("A host may be used again.", about=("host",)),
    EntryKind.CELL_FOUND: Described("A cell can be asked for containers.", CellFoundData),
    EntryKind.CELL_LOST: Described(
        "A cell's application master is gone: what the cell holds is handed over.", CellLostData, ("reason",)
    ),
    EntryKind.CONTAINER_REQUESTED: Described("A container is requested from YARN.", RequestData, _OF_REQUEST),
    EntryKind.REQUEST_GRANTED: Described(
        "YARN granted a container; its process is about to start.", RequestData, ("job", "host")
    ),
    EntryKind.REQUEST_REFUSED: Described(
        "A request could not be made; the next one waits.", RequestData, ("job", "host", "reason")
    ),
    EntryKind.REQUEST_CANCELLED: Described(
        "A request is cancelled; `outcome` says why.", RequestData, ("job", "host", "reason")
    ),
    EntryKind.LAUNCH_FAILED: Described(
        "A granted container ended before it registered; unless it was ended from outside, this spends retry budget.",
        RequestData,
        _OF_REQUEST,
    ),
    EntryKind.CONTAINER_REGISTERED: Described(
        "A container opened its stream; the reason is `new` or `returned`.",
        RegisteredData,
        ("job", *_OF_CONTAINER),
    ),
    EntryKind.SPARE_TAKEN: Described(
        "A slot that needs a container takes a spare one (`job.container.spare.count`).",
        SpareTakenData,
        ("job", "copy", "container", "host"),
    ),
    EntryKind.CONTAINER_LOST: Described(
        "A container is considered lost. The reason begins with how that was noticed.",
        LostData,
        ("job", "copy", *_OF_CONTAINER),
    ),
    EntryKind.CONTAINER_GONE: Described("A container has ended, or counts as ended.", about=_OF_CONTAINER),
    EntryKind.CONTAINER_DISMISSED: Described("A container is told to exit.", about=_OF_CONTAINER),
    EntryKind.CONTAINER_RELEASED: Described(
        "A container is given back to YARN, which ends its process.", ReleasedData, _OF_CONTAINER
    ),
    EntryKind.SAME_HOST_REFUSED: Described(
        "A container was started on a host that holds another copy of its tasks.", about=_OF_CONTAINER
    ),
    EntryKind.DECIDED_BIND: _decided("Replicas are placed in a container."),
    EntryKind.DECIDED_FAILOVER: _decided("A lost active is replaced."),
    EntryKind.DECIDED_DISPLACE: _decided("Policy `restart`: a standby is displaced by the active."),
    EntryKind.DECIDED_RESTORE: _decided(
        "Policy `restart`: a standby that was displaced in vain is restored in place."
    ),
    EntryKind.DECIDED_HANDOVER: _decided("A planned change of active."),
    EntryKind.DECIDED_MOVE: _decided("A copy is being filled elsewhere."),
    EntryKind.DECIDED_MOVED: _decided("That copy has replaced the old one."),
    EntryKind.DECIDED_STAY: _decided("A move is given up."),
    EntryKind.DECIDED_DROP: _decided("A copy is given up as planned."),
    EntryKind.DECIDED_RAISE: _decided("Epochs rise above what containers have seen."),
    EntryKind.DECIDED_CLAIMED: _decided("An active has claimed its tasks' epoch."),
    EntryKind.DECIDED_IN_SYNC: _decided("In-sync sets have changed."),
    EntryKind.DECIDED_FAILURES: _decided(
        "Failures of the job's code were counted, and the input is tried again; or the failures are overcome."
    ),
    EntryKind.DECIDED_PARK: _decided("The tasks of a parked processor are withdrawn."),
    EntryKind.DECIDED_UNDEPLOY: _decided("A job's tasks are withdrawn for good."),
    EntryKind.DECISION_REFUSED: Described(
        "A decision was not written: its records had changed.", about=("reason", "decision")
    ),
    EntryKind.REPLICA_RESTORED: Described("A standby is in step with its changelog.", PhaseData, _OF_REPLICA),
    EntryKind.REPLICA_ACTIVE: Described("A replica has become active.", PhaseData, _OF_REPLICA),
    EntryKind.REPLICA_FENCED: Described("A replica was fenced by a newer epoch.", PhaseData, _OF_REPLICA),
    EntryKind.REPLICA_FAILED: Described("A replica has failed.", PhaseData, _OF_REPLICA),
    EntryKind.RECORD_GIVEN_UP: Described(
        "Input was given up; `reason` has the exception's type and first line. A report names the last eight per task. "
        "After a change of leader those of the last 30 s may be logged twice, with equal topic, partition and offset.",
        RecordGivenUpData,
        _OF_REPLICA,
    ),
    EntryKind.STANDBY_STOPPED: Described(
        "Policy `restart`: a displaced standby has stopped, as its container confirms.",
        ProcessorData,
        ("job", "copy", *_OF_CONTAINER),
    ),
    EntryKind.FAILOVER_STARTED: Described(
        "It is decided which copy replaces a lost active.", FailoverStartedData, _OF_FAILOVER
    ),
    EntryKind.FAILOVER_WITHOUT_STANDBY: Described(
        "No standby in sync replaced it: `restoring`, `no other copy lives`, or `standby-stayed` begins the reason.",
        FailoverStartedData,
        _OF_FAILOVER,
    ),
    EntryKind.FAILOVER_FINISHED: Described(
        "Every task is active again, and each has committed input or has none to commit.",
        FinishedData,
        ("job", "copy", *_OF_CONTAINER),
    ),
    EntryKind.HANDOVER_STARTED: Described(
        "A standby gets ready to become active as planned.", ProcessorData, ("job", "copy", *_OF_CONTAINER)
    ),
    EntryKind.HANDOVER_FINISHED: Described(
        "The standby is active, and has committed input or has none to commit.",
        FinishedData,
        ("job", "copy", *_OF_CONTAINER),
    ),
    EntryKind.HANDOVER_GIVEN_UP: Described(
        "The hand-over is given up; it is begun again if it is still called for.",
        ProcessorData,
        ("job", "reason"),
    ),
    EntryKind.COMMAND_ANSWERED: Described(
        "An operator asked for a hand-over, a rebalance or unparking; the reason is the answer.",
        CommandAnsweredData,
        ("reason",),
    ),
    EntryKind.FENCING_TASKS: Described(
        "The writers of a job that ends are being fenced.", FencingData, ("job",)
    ),
    EntryKind.TASKS_FENCED: Described("The writers have been fenced.", about=("job",)),
    EntryKind.FENCING_FAILED: Described("Fencing failed and is tried again.", about=("job", "reason")),
    EntryKind.FENCE_WAIVED: Described(
        "The job ends unfenced, as an operator has decided: `kill` or `delete` with `--unfenced`.",
        about=("job",),
    ),
    EntryKind.EFFECT_FAILED: Described(
        "Something could not be done for a job, because of an error that concerns only that job. The job is set aside "
        "to that extent: the attempt is repeated, and the other jobs are led.",
        EffectData,
        ("job", "reason"),
    ),
    EntryKind.EFFECT_DONE: Described("What had failed has succeeded.", EffectData, ("job",)),
    EntryKind.ASKED: Described(
        "The audit: a client asked a candidate for a change, by a command or an upload of code. `epoch` is 0 if the "
        "candidate does not lead.",
        AuditData,
        ("job", "host"),
    ),
    EntryKind.APPLICATION_ENDED: Described(
        "YARN's report, which only the command line sees: a `submit` that waits writes it, with `epoch` 0. If no "
        "candidate answers, `events` (without `--follow`) shows those of the last deployment that are not in the log. "
        "`status` shows the same as reasons while there is no leader.",
        ApplicationEndedData,
        ("job", "host", "reason"),
    ),
}


def entry_document(entry: LogEntry, at_ms: int, epoch: int) -> dict[str, Any]:
    """Return an entry as it is written to the event log, JSON-ready; ``at_ms`` is Unix time."""
    return {
        "at_ms": at_ms,
        "epoch": epoch,
        "kind": entry.kind.value,
        "job": entry.job,
        "task": str(entry.task) if entry.task is not None else None,
        "copy": entry.copy,
        "container": entry.container,
        "host": entry.host,
        "task_epoch": entry.task_epoch,
        "reason": str(entry.reason) if entry.reason is not None else None,
        "decision": entry.decision,
        "data": entry.data,
    }
