"""Queued changes in ZooKeeper: taken by any candidate, made by the leader."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from appmaster import records as bodies
from appmaster import requests
from appmaster.adapters.kazoo_directory import epoch_version, translated
from appmaster.adapters.kazoo_tree import Nodes
from appmaster.records import ExcludedRecord, JobRecord, RequestRecord, StatusRecord
from appmaster.requests import Made, Present
from appmaster.revising import codes
from standby import naming
from standby import records as shared
from standby.errors import BadConfiguration, Fenced, StandfastError, Transient
from standby.model import TaskRecord

#: How often a change is tried again when somebody else was quicker, before a turn is left to others.
_ATTEMPTS = 10

#: Less than a client waits for an answer, seconds: calls are answered on a few threads, which must not all wait for a
#: ZooKeeper that is away while cluster info could be given.
_ANSWER_SECONDS = 2.0

#: ZooKeeper takes about 1 MB in one transaction; task records are deleted by the path.
_DELETED_AT_ONCE = 1_000


class KazooRequests:
    """Writes through ``client``, a started kazoo client that stays its owner's. Every call may raise `Transient`."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def present(self, job: str, *, with_tasks: bool = False) -> Present | None:
        """Return a job as it is now, whoever changed it last; None when there is no such job.

        Its actives' revisions are read ``with_tasks`` only.
        """
        path = naming.job_path(self._cluster, job)
        with translated("reading a job"):
            self._client.sync_async(path).get(timeout=_ANSWER_SECONDS)
            found = self._read(path)
            return self._present(path, found[0], with_tasks=with_tasks) if found is not None else None

    def put(self, request: str, record: RequestRecord) -> None:
        """Queue a change; once more under the same id is the same change, whatever became of it."""
        with translated("queueing a change"):
            try:
                path = naming.request_path(self._cluster, request)
                self._client.create_async(path, bodies.encode(record)).get(timeout=_ANSWER_SECONDS)
            except NodeExistsError:
                return
            except NoNodeError as error:
                raise BadConfiguration(f"there is no cluster {self._cluster}") from error

    def settle(self, request: str, epoch: int) -> None:
        """Make a queued change: what it changes and its result are one transaction that checks the epoch.

        Nothing when it is settled already. Raises `Fenced` when another leads, `NotYet` when it has to wait.
        """
        path = naming.request_path(self._cluster, request)
        with translated("making a queued change"):
            for _ in range(_ATTEMPTS):
                found = self._read(path)
                if found is None:
                    return
                record = bodies.decode(found[0], path, RequestRecord)
                if record.state != "queued" or self._settle(path, record, found[1], epoch):
                    return
        raise Transient(f"request {request}: what it changes does not stand still")

    def refuse_left(self, why: str) -> None:
        """Refuse every change that is queued; for who starts a cluster of which nothing runs.

        They were meant for what had been there. Nobody leads, so there is no epoch to be checked.
        """
        root = naming.requests_path(self._cluster)
        with translated("refusing changes of before"):
            for name in self._client.get_children(root):
                path = f"{root}/{name}"
                found = self._read(path)
                record = bodies.decode(found[0], path, RequestRecord) if found is not None else None
                if found is None or record is None or record.state != "queued":
                    continue
                refused = requests.settled(record, 0, why, is_refused=True)
                with suppress(NoNodeError, BadVersionError):
                    self._client.set(path, bodies.encode(refused), version=found[1])

    def forget(self, request: str, version: int) -> None:
        """Remove a settled request."""
        with translated("removing a settled request"), suppress(NoNodeError, BadVersionError):
            self._client.delete(naming.request_path(self._cluster, request), version=version)

    def _settle(self, path: str, record: RequestRecord, version: int, epoch: int) -> bool:
        """Return whether the transaction was made; False when something had changed under it."""
        transaction = self._leaders(epoch)
        try:
            if record.operation in requests.JOB_CHANGES:
                made = self._change_job(transaction, record, epoch)
                revision = made.record.definition.revision if made.record is not None else 0
                result = requests.settled(record, epoch, made.said, revision)
            elif record.operation in requests.HOST_CHANGES:
                result = requests.settled(record, epoch, self._change_hosts(transaction, record))
            else:
                raise BadConfiguration(f"{record.operation}: this version of standfast does not know it")
        except (Fenced, Transient):
            raise
        except StandfastError as error:
            # What was put together so far is left: nothing of it is to be done.
            transaction = self._leaders(epoch)
            result = requests.settled(record, epoch, str(error), is_refused=True)
        transaction.set_data(path, bodies.encode(result), version=version)
        return self._commit(transaction, epoch)

    def _leaders(self, epoch: int) -> Any:
        """Return a transaction that only the leader of ``epoch`` can make; raises `Fenced`."""
        transaction = self._client.transaction()
        transaction.check(
            naming.controller_epoch_path(self._cluster), epoch_version(self._client, self._cluster, epoch)
        )
        return transaction

    @staticmethod
    def _commit(transaction: Any, epoch: int) -> bool:
        results = transaction.commit()
        if isinstance(results[0], BadVersionError):
            raise Fenced(f"another leader has come after epoch {epoch}")
        return not any(isinstance(each, Exception) for each in results)

    def _change_job(self, transaction: Any, request: RequestRecord, epoch: int) -> Made:
        job = requests.job_of(request.operation, request.arguments)
        path = naming.job_path(self._cluster, job)
        found = self._read(path)
        present = self._present(path, found[0], with_tasks=False) if found is not None else None
        if present is not None and request.operation in requests.NEEDS_TASKS:
            tasks = self._tasks(path)
            for each, (_, version) in tasks.items():
                # What it is judged by is to hold when it is made.
                transaction.check(each, version)
            present = replace(present, active_revisions=tuple(each.revision for each, _ in tasks.values()))
        made = requests.JOB_CHANGES[request.operation](present, request.arguments)
        before = present.record if present is not None else None
        if made.record is None:
            self._delete(transaction, path, epoch)
        elif made.record != before:
            data = bodies.encode(made.record)
            if found is None:
                transaction.create(path, data)
                transaction.create(f"{path}/tasks", b"")
            else:
                transaction.set_data(path, data, version=found[1])
        status = f"{path}/status"
        if made.is_new_chance and self._client.exists(status) is not None:
            transaction.delete(status)
        self._name_code(transaction, before, made.record)
        return made

    def _present(self, path: str, data: bytes, *, with_tasks: bool) -> Present:
        record = bodies.decode(data, path, JobRecord)
        found = self._read(f"{path}/status")
        status = bodies.decode(found[0], f"{path}/status", StatusRecord) if found is not None else None
        revisions = tuple(each.revision for each, _ in self._tasks(path).values()) if with_tasks else ()
        if status is None:
            return Present(record, active_revisions=revisions)
        return Present(record, status.state, "; ".join(status.reasons), revisions)

    def _tasks(self, path: str) -> dict[str, tuple[TaskRecord, int]]:
        """Return the path of each task's record of the job at ``path``, with the record and its version."""
        listed = self._client.get_children_async(f"{path}/tasks").get(timeout=_ANSWER_SECONDS)
        asked = [(f"{path}/tasks/{each}", self._client.get_async(f"{path}/tasks/{each}")) for each in listed]
        found = [(each, *pending.get(timeout=_ANSWER_SECONDS)) for each, pending in asked]
        return {each: (shared.decode_task(data, each), stat.version) for each, data, stat in found}

    def _delete(self, transaction: Any, path: str, epoch: int) -> None:
        """Delete a job that has ended: its tasks, which may be more than one transaction takes, before the rest."""
        for part in ("tasks", "locality"):
            try:
                names = self._client.get_children(f"{path}/{part}")
            except NoNodeError:
                continue
            for begin in range(0, len(names), _DELETED_AT_ONCE):
                some = self._leaders(epoch)
                for each in names[begin : begin + _DELETED_AT_ONCE]:
                    some.delete(f"{path}/{part}/{each}")
                self._commit(some, epoch)
        for each in self._client.get_children(path):
            transaction.delete(f"{path}/{each}")
        transaction.delete(path)

    def _name_code(self, transaction: Any, before: JobRecord | None, after: JobRecord | None) -> None:
        """Change the node of each bundle that a job names from now on, and take its tombstone away.

        Who wants to condemn it at the same moment fails (`KazooCodeDirectory.condemn`).
        """
        was = codes(before) if before is not None else frozenset()
        for each in sorted((codes(after) if after is not None else frozenset()) - was):
            path = naming.code_path(self._cluster, each)
            found = self._read(path)
            if found is None:
                transaction.create(path, b"")
            else:
                transaction.set_data(path, b"", version=found[1])

    def _change_hosts(self, transaction: Any, request: RequestRecord) -> str:
        path = naming.excluded_path(self._cluster)
        found = self._read(path)
        hosts = dict(bodies.decode(found[0], path, ExcludedRecord).hosts) if found is not None else {}
        made = requests.HOST_CHANGES[request.operation](hosts, request.arguments)
        data = bodies.encode(ExcludedRecord(made.hosts))
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


def queued(nodes: Nodes) -> tuple[tuple[str, str], ...]:
    """Return id and job of the requests that wait, oldest first, in a tree with ``requests/*``.

    The job is empty of those that are about none, or about nothing that this version knows.
    """
    return tuple((name, _job_of(record)) for name, _, record in _requests(nodes) if record.state == "queued")


def _job_of(record: RequestRecord) -> str:
    if record.operation in requests.JOB_CHANGES:
        with suppress(BadConfiguration):
            return requests.job_of(record.operation, record.arguments)
    return ""


def outlived(nodes: Nodes) -> tuple[tuple[str, int], ...]:
    """Return id and version of the settled requests beyond those that are kept, in a tree with ``requests/*``."""
    done = [(name, version) for name, version, record in _requests(nodes) if record.state != "queued"]
    return tuple(done[: max(0, len(done) - requests.KEPT)])


def request_of(nodes: Nodes, request: str) -> RequestRecord | None:
    """Return a request as it stands; None when there is none of this id."""
    path = f"requests/{request}"
    node = nodes.get(path)
    return bodies.decode(node.data, path, RequestRecord) if node is not None else None


def _requests(nodes: Nodes) -> list[tuple[str, int, RequestRecord]]:
    found = []
    for path, node in nodes.items():
        parent, _, name = path.partition("/")
        if parent == "requests":
            with suppress(BadConfiguration):
                found.append(
                    (node.created, name, node.version, bodies.decode(node.data, path, RequestRecord))
                )
    return [(name, version, record) for _, name, version, record in sorted(found, key=lambda each: each[0])]
