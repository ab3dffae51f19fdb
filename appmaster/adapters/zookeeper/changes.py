"""Queued changes in ZooKeeper: taken by any candidate, made by the leader."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from msgspec import structs

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import AWAY, children, read_many, read_or_watch, translated
from appmaster.adapters.zookeeper.election import checked, commit, deposed_by, has_failed, transaction_of
from appmaster.blame import describe_error, is_of_job
from appmaster.changes import operations
from appmaster.changes.operations import CurrentJob, JobAfterChange
from appmaster.changes.revisions import codes
from appmaster.records import ChangeRecord, DrainedRecord, JobRecord, StatusRecord
from standby.errors import BadConfiguration, Fenced, StandfastError, Transient
from standby.shared import naming
from standby.shared import records as shared
from standby.shared.wire import JobDefinition

_log = logging.getLogger(__name__)

#: How often a change is tried again after conflicts before it is left for a later turn.
_ATTEMPTS = 10

#: Less than a client waits for an answer, seconds: calls are answered on a few threads, which must not all wait for an
#: unavailable ZooKeeper while cluster info could be given.
_ANSWER_SECONDS = 2.0

#: ZooKeeper accepts about 1 MB in one transaction; task records are deleted by path.
_DELETED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class FirstSubmit:
    """A job that the command which starts its cluster records itself, and what there was before."""

    definition: JobDefinition
    former: tuple[bytes, int] | None
    """The data of its record and their version; None: there was no such job."""
    status: bytes | None
    epoch: int
    """Version of the node with the cluster's epoch: no candidate may lead yet."""


class ZooKeeperChanges:
    """The queued changes of one cluster, and the drained hosts, which only changes write.

    ``client`` is a started kazoo client that still belongs to the caller. Every call may raise `Transient`.
    """

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def present(self, job: str, *, with_tasks: bool = False) -> CurrentJob | None:
        """Return a job as it is now, whichever client changed it last; None if there is no such job.

        Its actives' revisions are read only ``with_tasks``.
        """
        path = naming.job_path(self._cluster, job)
        with translated("reading a job"):
            self._client.sync_async(path).get(timeout=_ANSWER_SECONDS)
            found = self._read(path)
            return self._present(path, found[0], with_tasks=with_tasks) if found is not None else None

    def put(self, change: str, record: ChangeRecord) -> None:
        """Queue a change; the same id again is the same change, whatever its state."""
        with translated("queueing a change"):
            try:
                path = naming.change_path(self._cluster, change)
                self._client.create_async(path, bodies.encode(record)).get(timeout=_ANSWER_SECONDS)
            except NodeExistsError:
                return
            except NoNodeError as error:
                raise BadConfiguration(f"there is no cluster {self._cluster}") from error

    def has_queued(self) -> bool:
        """Return whether there is a change that no leader has settled yet."""
        path = naming.changes_path(self._cluster)
        with translated("reading what is queued"):
            queued = [f"{path}/{each}" for each in children(self._client, path)]
            found = list(read_many(self._client, queued))
        records = (_decoded(at, data) for at, data, _ in found)
        return any(each is not None and each.state == "queued" for each in records)

    def drained(self, watch: Callable[[], None] | None = None) -> dict[str, str]:
        """Return the drained hosts, and why; ``watch`` is called once when they change."""
        path = naming.drained_path(self._cluster)
        with translated("reading which hosts are drained"):
            data = read_or_watch(self._client, path, watch)
        return {} if data is None else dict(bodies.decode(data, path, DrainedRecord).hosts)

    def settle(self, change: str, epoch: int) -> None:
        """Make a queued change: its effect and its result are one transaction that checks the epoch.

        Does nothing if it is settled already. Raises `Fenced` if another candidate leads, `NotYet` if it has to wait.
        """
        path = naming.change_path(self._cluster, change)
        with translated("making a queued change"):
            for _ in range(_ATTEMPTS):
                found = self._read(path)
                if found is None:
                    return
                record = bodies.decode(found[0], path, ChangeRecord)
                if record.state != "queued" or self._settle(path, record, found[1], epoch):
                    return
        raise Transient(f"change {change}: its records keep changing meanwhile")

    def hold_up(self, change: str, epoch: int, why: str) -> None:
        """Record in a queued change why it could not be made, for clients that ask; it stays queued.

        Raises `Fenced` if another candidate leads.
        """
        path = naming.change_path(self._cluster, change)
        with translated("recording why a change waits"):
            found = self._read(path)
            record = bodies.decode(found[0], path, ChangeRecord) if found is not None else None
            if found is None or record is None or record.state != "queued" or record.said == why:
                return
            transaction = self._leaders(epoch)
            transaction.set_data(path, bodies.encode(structs.replace(record, said=why)), version=found[1])
            self._commit(transaction, epoch)

    def refuse_left(self, why: str) -> None:
        """Refuse every queued change; for the start of a cluster of which nothing runs.

        They were meant for the former cluster. There is no leader, so there is no epoch to check. One that cannot be
        read stays: no leader can make it either.
        """
        root = naming.changes_path(self._cluster)
        with translated("refusing changes of before"):
            for name in self._client.get_children(root):
                path = f"{root}/{name}"
                found = self._read(path)
                record = _decoded(path, found[0]) if found is not None else None
                if found is None or record is None or record.state != "queued":
                    continue
                refused = operations.settled(record, 0, why, is_refused=True)
                with suppress(NoNodeError, BadVersionError):
                    self._client.set(path, bodies.encode(refused), version=found[1])

    def first_submit(self, definition: JobDefinition) -> FirstSubmit:
        """Return what `submit` needs for a job of a cluster of which nothing runs; `prepare` has created the tree."""
        path = naming.job_path(self._cluster, definition.name)
        with translated("reading the job"):
            self._client.sync_async(path).get(timeout=_ANSWER_SECONDS)
            _, epoch = self._client.get(naming.controller_epoch_path(self._cluster))
            status = self._read(f"{path}/status")
            return FirstSubmit(
                definition, self._read(path), status[0] if status is not None else None, epoch.version
            )

    def submit(self, first: FirstSubmit) -> None:
        """Record a job by the rules of a queued submit, in one transaction, while there is no leader.

        Raises `StandfastError` if those refuse it, if the job has changed since `first_submit`, or if a leader exists.
        """
        path = naming.job_path(self._cluster, first.definition.name)
        former = bodies.decode(first.former[0], path, JobRecord) if first.former is not None else None
        made = operations.submitted(former, first.definition)
        with translated("recording the job"):
            transaction = checked(self._client, self._cluster, first.epoch)
            self._write_job(transaction, path, first.former, former, made)
            if has_failed(transaction.commit()):
                raise StandfastError(operations.meddled(first.definition.name))

    def take_back(self, first: FirstSubmit) -> None:
        """Restore a job as it was before `submit`, unless that was not made, or another client has changed it since.

        Nothing of the cluster may run.
        """
        path, mine = naming.job_path(self._cluster, first.definition.name), first.definition
        with translated("restoring the job's record"):
            found = self._read(path)
            if found is None:
                return
            now = bodies.decode(found[0], path, JobRecord).definition
            if (now.run, now.revision) != (mine.run, mine.revision):
                return
            if first.former is None:
                self._client.delete(path, recursive=True)
                return
            transaction = self._client.transaction()
            transaction.set_data(path, first.former[0], version=found[1])
            status = f"{path}/status"
            if self._client.exists(status) is not None:
                transaction.delete(status)
            if first.status is not None:
                transaction.create(status, first.status)
            if has_failed(transaction.commit()):
                raise Transient(f"{mine.name}: its record keeps changing meanwhile")

    def forget(self, change: str, version: int) -> None:
        """Remove a settled change."""
        with translated("removing a settled change"), suppress(NoNodeError, BadVersionError):
            self._client.delete(naming.change_path(self._cluster, change), version=version)

    def _settle(self, path: str, record: ChangeRecord, version: int, epoch: int) -> bool:
        """Return whether the transaction was made; False if its nodes were changed meanwhile."""
        transaction = self._leaders(epoch)
        try:
            if record.operation in operations.JOB_CHANGES:
                made = self._change_job(transaction, record, epoch)
                revision = made.record.definition.revision if made.record is not None else 0
                result = operations.settled(record, epoch, made.said, revision)
            elif record.operation in operations.HOST_CHANGES:
                result = operations.settled(record, epoch, self._change_hosts(transaction, record))
            else:
                raise BadConfiguration(f"{record.operation}: this version of standfast does not know it")
            transaction.set_data(path, bodies.encode(result), version=version)
            # In here, because the job's record may be too large for the servers.
            return self._commit(transaction, epoch)
        except (Fenced, Transient, KazooException, *AWAY):
            raise
        except Exception as error:
            if not is_of_job(error):
                raise
            if not isinstance(error, StandfastError):
                _log.exception("%s cannot be made", record.operation)
            # The transaction begun so far is dropped: none of it is to be done.
            transaction = self._leaders(epoch)
            refused = operations.settled(record, epoch, describe_error(error), is_refused=True)
            transaction.set_data(path, bodies.encode(refused), version=version)
            return self._commit(transaction, epoch)

    def _leaders(self, epoch: int) -> Any:
        """Return a transaction that only the leader of ``epoch`` can make; raises `Fenced`."""
        return transaction_of(self._client, self._cluster, epoch)

    @staticmethod
    def _commit(transaction: Any, epoch: int) -> bool:
        return not has_failed(commit(transaction, deposed_by(epoch)))

    def _change_job(self, transaction: Any, change: ChangeRecord, epoch: int) -> JobAfterChange:
        job = operations.job_of(change.operation, change.arguments)
        path = naming.job_path(self._cluster, job)
        found = self._read(path)
        present = self._present(path, found[0], with_tasks=False) if found is not None else None
        if present is not None and change.operation in operations.NEEDS_TASKS:
            # What the change is judged by must still hold when it is made. A check of each record could be more than
            # servers accept in one transaction; a write that changes a revision changes the node above them, too.
            above = self._read(f"{path}/tasks")
            if above is not None:
                transaction.check(f"{path}/tasks", above[1])
            present = replace(present, active_revisions=self._active_revisions(path))
        made = operations.JOB_CHANGES[change.operation](present, change.arguments)
        before = present.record if present is not None else None
        if made.record is None:
            self._delete(transaction, path, epoch)
        self._write_job(transaction, path, found, before, made)
        return made

    def _write_job(
        self,
        transaction: Any,
        path: str,
        found: tuple[bytes, int] | None,
        before: JobRecord | None,
        made: JobAfterChange,
    ) -> None:
        """Add to a transaction the record ``made`` of a job, on condition that the one ``found`` is unchanged."""
        if made.record is not None and made.record != before:
            data = bodies.encode(made.record)
            if found is None:
                transaction.create(path, data)
            else:
                transaction.set_data(path, data, version=found[1])
            # A delete that was interrupted leaves the record of a job alone.
            if found is None or self._client.exists(f"{path}/tasks") is None:
                transaction.create(f"{path}/tasks", b"")
        status = f"{path}/status"
        if made.is_new_chance and self._client.exists(status) is not None:
            transaction.delete(status)
        self._name_code(transaction, before, made.record)

    def _present(self, path: str, data: bytes, *, with_tasks: bool) -> CurrentJob:
        record = bodies.decode(data, path, JobRecord)
        found = self._read(f"{path}/status")
        status = bodies.decode(found[0], f"{path}/status", StatusRecord) if found is not None else None
        revisions = self._active_revisions(path) if with_tasks else ()
        if status is None:
            return CurrentJob(record, active_revisions=revisions)
        return CurrentJob(record, status.state, "; ".join(status.reasons), revisions)

    def _active_revisions(self, path: str) -> tuple[int, ...]:
        """Return, for each task of the job at ``path``, the highest revision that an active was given."""
        try:
            listed = self._client.get_children_async(f"{path}/tasks").get(timeout=_ANSWER_SECONDS)
        except NoNodeError:
            return ()
        asked = [(f"{path}/tasks/{each}", self._client.get_async(f"{path}/tasks/{each}")) for each in listed]
        found = []
        for each, pending in asked:
            # A job that is being deleted loses its tasks first.
            with suppress(NoNodeError):
                found.append(shared.decode_task(pending.get(timeout=_ANSWER_SECONDS)[0], each).revision)
        return tuple(found)

    def _delete(self, transaction: Any, path: str, epoch: int) -> None:
        """Delete a job that has ended: first its tasks, which may exceed one transaction, then the rest."""
        names = children(self._client, f"{path}/tasks")
        for begin in range(0, len(names), _DELETED_AT_ONCE):
            some = self._leaders(epoch)
            for each in names[begin : begin + _DELETED_AT_ONCE]:
                some.delete(f"{path}/tasks/{each}")
            self._commit(some, epoch)
        for each in self._client.get_children(path):
            transaction.delete(f"{path}/{each}")
        transaction.delete(path)

    def _name_code(self, transaction: Any, before: JobRecord | None, after: JobRecord | None) -> None:
        """Change the node of each bundle that a job names from now on, and remove its tombstone.

        A leader that condemns it at the same moment fails (`ZooKeeperCodeDirectory.condemn`).
        """
        was = codes(before) if before is not None else frozenset()
        for each in sorted((codes(after) if after is not None else frozenset()) - was):
            path = naming.code_path(self._cluster, each)
            found = self._read(path)
            if found is None:
                transaction.create(path, b"")
            else:
                transaction.set_data(path, b"", version=found[1])

    def _change_hosts(self, transaction: Any, change: ChangeRecord) -> str:
        path = naming.drained_path(self._cluster)
        found = self._read(path)
        hosts = dict(bodies.decode(found[0], path, DrainedRecord).hosts) if found is not None else {}
        made = operations.HOST_CHANGES[change.operation](hosts, change.arguments)
        data = bodies.encode(DrainedRecord(made.hosts))
        if found is None:
            transaction.create(path, data)
        else:
            transaction.set_data(path, data, version=found[1])
        return made.said

    def _read(self, path: str) -> tuple[bytes, int] | None:
        try:
            data, stat = self._client.get_async(path).get(timeout=_ANSWER_SECONDS)
        except NoNodeError:
            return None
        return data, stat.version


def _decoded(path: str, data: bytes) -> ChangeRecord | None:
    """Return a change; None if it cannot be read, which is logged."""
    try:
        return bodies.decode(data, path, ChangeRecord)
    except BadConfiguration as error:
        _log.warning("%s is left as it is: %s", path, error)
        return None
