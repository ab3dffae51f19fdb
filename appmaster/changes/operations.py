"""Changes of the desired state, as they are queued in ZooKeeper for a leader, and the effect of each.

Any candidate takes a change and gives it an id. The leader makes it and writes its result in one transaction, so that
it is made once, whichever candidate leads. Commands that must be carried out at once are not queued: only the leader
takes them (`appmaster.api.leader_api`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from appmaster.changes import revisions
from appmaster.config import job_spec
from appmaster.planning.state.job import JobState
from appmaster.records import ChangeRecord, JobRecord
from standby.config import check_size, parse
from standby.errors import BadConfiguration, StandfastError, Transient
from standby.shared import naming
from standby.shared.wire import JobDefinition

#: The id of a change; it becomes the name of a node.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

#: The first revision of a job.
_FIRST_REVISION: Final = 1

#: Most levels of lists and objects in the arguments of a change. A definition has four levels; reading several hundred
#: exceeds the recursion limit of the leader's interpreter.
_DEEPEST: Final = 16

#: Number of settled changes that are kept for clients that still ask for them.
KEPT: Final = 200


#: The arguments that a settled change keeps.
KEPT_ARGUMENTS: Final = frozenset({"job", "hosts", "reason", "purge", "unfenced", "revision", "code"})


class NotYet(Transient):
    """Something has to end first; the change stays queued."""


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """A job at the time when a change is to be made."""

    record: JobRecord
    state: str = ""
    """The state in its status (`JobState`); empty: no leader has written one yet."""
    failure: str = ""
    """Why it failed; empty: it has not."""
    active_revisions: tuple[int, ...] = ()
    """For each task, the highest revision that an active was given; known only for the changes in `NEEDS_TASKS`."""

    @property
    def runs(self) -> bool:
        """Whether it is wanted and has not failed."""
        return self.record.is_wanted and self.state != JobState.FAILED


@dataclass(frozen=True, slots=True)
class JobAfterChange:
    """A job's record after a change, and a text that says what was done."""

    record: JobRecord | None
    """None: the job no longer exists."""
    said: str
    is_new_chance: bool = False
    """Whether the way in which the job's last run ended is disregarded."""


@dataclass(frozen=True, slots=True)
class HostsAfterChange:
    """The drained hosts after a change, and a text that says what was done."""

    hosts: Mapping[str, str]
    said: str


Arguments = Mapping[str, Any]


def submit(present: CurrentJob | None, arguments: Arguments) -> JobAfterChange:
    """Return a job as it is submitted, once its last deployment has ended.

    Raises `StandfastError` if it already runs with another definition or `submitted` refuses it, and `NotYet`.
    """
    definition = _definition(arguments)
    _check_most(definition, present)
    if present is None:
        return submitted(None, definition)
    if present.runs and not _is_submitted(present.record, definition):
        raise StandfastError(f"{definition.name} runs already; stop it first, or update it")
    made = submitted(present.record, definition)
    if made.is_new_chance:
        _await_end(present)
    return made


def submitted(former: JobRecord | None, definition: JobDefinition) -> JobAfterChange:
    """Return a job as it is submitted in place of a ``former`` record that no longer runs; None: there is no record.

    A definition continues the record that its submit has read: the same run, and a higher revision. Raises
    `StandfastError` if the record is another one now: a revision has one code and one configuration.
    """
    name = definition.name
    new = JobAfterChange(JobRecord(definition), f"{name} is submitted", is_new_chance=True)
    if former is None:
        if definition.revision > _FIRST_REVISION:
            raise StandfastError(f"{name} was deleted by another client meanwhile; submit it again")
        return new
    if _is_submitted(former, definition):
        return JobAfterChange(former, f"{name} is submitted already")
    if former.definition.run != definition.run:
        raise StandfastError(f"{name} has another run with its own state; delete it first")
    if definition.revision <= max(each.revision for each in (former.definition, *former.former)):
        raise StandfastError(meddled(name))
    return new


def meddled(job: str) -> str:
    """Return the error text of a submit whose job's record has changed since the submit read it."""
    return f"{job} was changed by another client meanwhile; submit it again"


def _is_submitted(record: JobRecord, definition: JobDefinition) -> bool:
    return record.definition == definition and record.is_wanted


def deploy(present: CurrentJob | None, arguments: Arguments) -> JobAfterChange:
    """Return a job that is to run again, once its last deployment has ended; raises `NotYet` until then."""
    known = _known(present, arguments)
    if not known.record.is_wanted:
        _await_end(known)
        record = replace(known.record, is_wanted=True, purge=False, is_fence_waived=False)
        return JobAfterChange(record, "it is to run", is_new_chance=True)
    if not known.runs:
        raise StandfastError(f"it has failed ({known.failure}); submit its job file again")
    return JobAfterChange(known.record, "it runs already")


def undeploy(present: CurrentJob | None, arguments: Arguments) -> JobAfterChange:
    """Return a job that is to end; ``purge``: with its local state; ``unfenced``: even if its tasks are not fenced.

    Raises `NotYet` until a leader has loaded the job as wanted: a leader that never saw it wanted would not report its
    end, and whatever waits for that end would wait for ever.
    """
    purge = bool(arguments.get("purge", False))
    known = _known(present, arguments)
    if known.record.is_wanted and not known.state:
        raise NotYet(f"{known.record.definition.name} was just submitted; the leader has to load it first")
    is_waived = bool(arguments.get("unfenced", False))
    return JobAfterChange(
        replace(known.record, is_wanted=False, purge=purge, is_fence_waived=is_waived), "it is to end"
    )


def update(present: CurrentJob | None, arguments: Arguments) -> JobAfterChange:
    """Return a running job with another configuration (``config``, flat) or another bundle (``code``).

    Raises `StandfastError` if the job is no longer what the client compared (``basis``, of `revisions.basis_of`): the
    change would undo, unseen, what another client has changed since. Clients of earlier releases send no basis.
    """
    record = _running(present, arguments).record
    wanted = arguments.get("config")
    if not isinstance(wanted, Mapping):
        raise BadConfiguration("config: missing in the change")
    settings = {str(name): str(value) for name, value in wanted.items()}
    before = revisions.requested_settings(record)
    check_size(parse(settings, is_new=True, present=before), record.definition.tasks, parse(before))
    code = _code(arguments)
    found = revisions.update(record, settings, record.definition.code if code is None else code)
    basis = arguments.get("basis")
    if not (found.is_nothing or basis is None or basis == revisions.basis_of(record)):
        raise StandfastError(
            f"{record.definition.name} was changed by another client meanwhile; see what differs now with "
            "`update --check`, and update again"
        )
    return JobAfterChange(found.record, "; ".join(found.described()) or "it is already as requested")


def rollback(present: CurrentJob | None, arguments: Arguments) -> JobAfterChange:
    """Return a running job as it was before ``revision``, which has to be its present one.

    Decided by the task records (`appmaster.changes.revisions.rollback`): a record names an active before that active
    is informed itself.
    """
    known = _running(present, arguments)
    bad = arguments.get("revision")
    if known.record.definition.revision != bad:
        raise StandfastError(f"it is revision {known.record.definition.revision} now, no longer {bad}")
    returned = revisions.rollback(known.record, known.active_revisions)
    return JobAfterChange(returned, f"it returns to revision {known.record.former[0].revision}")


def delete(present: CurrentJob | None, arguments: Arguments) -> JobAfterChange:
    """Return no job, once its last deployment has ended; ``unfenced``: without waiting for that. Raises `NotYet`."""
    known = _known(present, arguments)
    if known.record.is_wanted:
        raise StandfastError("it is to run; undeploy it first")
    if not arguments.get("unfenced", False):
        _await_end(known)
    return JobAfterChange(None, "it is deleted")


def drain(hosts: Mapping[str, str], arguments: Arguments) -> HostsAfterChange:
    """Return the drained hosts with the named ones added."""
    named, why = _hosts(arguments), str(arguments.get("reason", ""))
    return HostsAfterChange({**hosts, **dict.fromkeys(named, why)}, f"{', '.join(named)} are to be drained")


def admit(hosts: Mapping[str, str], arguments: Arguments) -> HostsAfterChange:
    """Return the drained hosts without the named ones."""
    named = _hosts(arguments)
    left = {host: why for host, why in hosts.items() if host not in named}
    return HostsAfterChange(left, f"{', '.join(named)} are used again")


#: Changes of one job's record.
JOB_CHANGES: Final[Mapping[str, Callable[[CurrentJob | None, Arguments], JobAfterChange]]] = {
    "submit": submit,
    "deploy": deploy,
    "undeploy": undeploy,
    "update": update,
    "rollback": rollback,
    "delete": delete,
}

#: Those whose decision depends on the records of the job's tasks.
NEEDS_TASKS: Final = frozenset({"rollback"})

#: Changes of the drained hosts.
HOST_CHANGES: Final[Mapping[str, Callable[[Mapping[str, str], Arguments], HostsAfterChange]]] = {
    "drain": drain,
    "admit": admit,
}

#: Every change that can be queued.
OPERATIONS: Final = (*JOB_CHANGES, *HOST_CHANGES)


def check(change: str, operation: str, arguments: Arguments) -> None:
    """Raise `BadConfiguration` for a change that no leader could ever make."""
    if not _ID.match(change):
        raise BadConfiguration(f"{change!r} is not an id of a change: letters, digits, dash and underscore")
    if _is_deeper(arguments, _DEEPEST):
        raise BadConfiguration(f"arguments: lists and objects are nested more than {_DEEPEST} deep")
    if operation in JOB_CHANGES:
        job_of(operation, arguments)
        _code(arguments)
    elif operation in HOST_CHANGES:
        _hosts(arguments)
    else:
        raise BadConfiguration(f"{operation}: cannot be queued; {', '.join(OPERATIONS)} can")


def job_of(operation: str, arguments: Arguments) -> str:
    """Return the name of the job that a change is about; raises `BadConfiguration` if it names none."""
    if operation == "submit":
        return _definition(arguments).name
    job = arguments.get("job")
    if not isinstance(job, str) or not job:
        raise BadConfiguration("job: missing in the change")
    # It becomes part of a node's path. A name that ZooKeeper refuses would end the queue of one leader after another,
    # since the change stays queued.
    if not naming.NAME.match(job):
        raise BadConfiguration(f"job: {job!r} is not a job name: letters, digits, dot, dash and underscore")
    return job


def settled(
    change: ChangeRecord, epoch: int, said: str, revision: int = 0, *, is_refused: bool = False
) -> ChangeRecord:
    """Return the change with its result; ``revision`` is the job's after a change of one.

    Only the arguments that say which job or hosts it was about are kept: a configuration may contain passwords.
    """
    kept = {name: value for name, value in change.arguments.items() if name in KEPT_ARGUMENTS}
    state = "refused" if is_refused else "done"
    return replace(change, arguments=kept, state=state, said=said, epoch=epoch, revision=revision)


def _is_deeper(value: object, most: int) -> bool:
    """Return whether lists and objects are nested more than ``most`` deep."""
    level: list[object] = [value]
    for _ in range(most):
        level = [inner for each in level for inner in _inside(each)]
    return any(isinstance(each, (Mapping, list, tuple)) for each in level)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def _known(present: CurrentJob | None, arguments: Arguments) -> CurrentJob:
    if present is None:
        raise BadConfiguration(f"there is no job {arguments.get('job')} in this cluster")
    return present


def _running(present: CurrentJob | None, arguments: Arguments) -> CurrentJob:
    known = _known(present, arguments)
    if not known.record.is_wanted:
        raise BadConfiguration("it does not run; submit its job file again")
    if not known.runs:
        raise BadConfiguration(f"it has failed ({known.failure}); submit its job file again")
    return known


def _await_end(present: CurrentJob) -> None:
    """Raise `NotYet` while a deployment that is no longer wanted has not ended: its tasks are being fenced."""
    if not present.record.is_wanted and present.state != JobState.UNDEPLOYED:
        raise NotYet(f"{present.record.definition.name} is still being undeployed")


def _definition(arguments: Arguments) -> JobDefinition:
    """Return the definition in a change; raises `BadConfiguration` if no leader could lead such a job."""
    try:
        found = msgspec.convert(arguments.get("definition"), JobDefinition)
    except msgspec.ValidationError as error:
        raise BadConfiguration(f"definition: {error}") from error
    config = parse(found.config)
    if found.name != config.job_name:
        raise BadConfiguration(f"definition: its name is {found.name!r}, and its job.name {config.job_name}")
    _code({"code": found.code})
    job_spec(config, found.tasks)
    return found


def _check_most(definition: JobDefinition, present: CurrentJob | None) -> None:
    """Raise `BadConfiguration` if a submit asks for more than a job may have, and than its record says."""
    before = revisions.requested_settings(present.record) if present is not None else None
    config = parse(definition.config, is_new=True, present=before)
    check_size(config, definition.tasks)


def _code(arguments: Arguments) -> str | None:
    """Return the bundle that a change names, None if it names none; raises `BadConfiguration` for an invalid name."""
    code = arguments.get("code")
    if code is None:
        return None
    if not isinstance(code, str) or (code and not naming.NAME.match(code)):
        raise BadConfiguration(f"code: {code!r} is not the name of a bundle")
    return code


def _hosts(arguments: Arguments) -> tuple[str, ...]:
    hosts = arguments.get("hosts")
    if not isinstance(hosts, (list, tuple)) or not hosts or not all(isinstance(each, str) for each in hosts):
        raise BadConfiguration("hosts: a list of names is missing in the change")
    return tuple(hosts)
