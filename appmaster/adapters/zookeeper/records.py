"""The leader's records of tasks, models and statuses: written in transactions that check the epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import read, read_many, translated
from appmaster.adapters.zookeeper.election import ZooKeeperElection, has_failed
from appmaster.code.activation import effective
from appmaster.planning.state.actions import RecordWrite
from appmaster.planning.state.job import JobState
from appmaster.planning.state.model import JobModel
from appmaster.planning.state.view import Recorded
from appmaster.records import JobRecord, StatusRecord
from standby.errors import Transient
from standby.shared import naming
from standby.shared import records as shared

#: Most bytes of records and paths in one transaction: half of what servers accept, since each record also has an ACL.
_MOST_BYTES: Final = 512 << 10

#: How often a status is written again at once because the job's record has changed meanwhile.
_STATUS_TRIES: Final = 10


class ZooKeeperLeaderRecords:
    """Writes as the leader according to ``election``; each call raises `Fenced` if another candidate leads."""

    def __init__(self, client: Any, cluster: str, election: ZooKeeperElection) -> None:
        self._client = client
        self._cluster = cluster
        self._election = election

    def write_tasks(self, changes: Sequence[RecordWrite]) -> tuple[Recorded, ...] | None:
        """Write a decision's records in one transaction; return them with their new versions.

        None if a record was not as expected, and nothing was written. Raises `Fenced` if another candidate leads,
        `Transient` if the outcome is unknown: if it was written, the records then carry the decision.

        If the records are too large for one request, they are written in several transactions, of which some may
        succeed and others fail. They are then read again, and tasks that are now placed differently are separate
        cohorts.
        """
        for some in self._portions(changes):
            transaction = self._election.transaction()
            # A rollback is decided by the revisions of all actives. It checks this node instead of each record; there
            # is none from the first revision.
            for job in sorted({each.record.task.job for each, *_ in some if each.record.revision > 1}):
                transaction.set_data(naming.tasks_path(self._cluster, job), b"")
            for each, path, data in some:
                if each.expected_version is None:
                    transaction.create(path, data)
                else:
                    transaction.set_data(path, data, version=each.expected_version)
            if has_failed(self._election.commit(transaction, "writing task records")):
                return None
        return tuple(
            Recorded(each.record, 0 if each.expected_version is None else each.expected_version + 1)
            for each in changes
        )

    def _portions(self, changes: Sequence[RecordWrite]) -> Iterator[list[tuple[RecordWrite, str, bytes]]]:
        """Yield the changes with their paths and data, in portions that servers accept."""
        portion: list[tuple[RecordWrite, str, bytes]] = []
        size = 0
        for each in changes:
            path = naming.task_path(self._cluster, each.record.task)
            data = shared.encode_task(each.record)
            size += len(path) + len(data)
            if portion and size > _MOST_BYTES:
                yield portion
                portion, size = [], len(path) + len(data)
            portion.append((each, path, data))
        if portion:
            yield portion

    def read_tasks(self, changes: Sequence[RecordWrite]) -> tuple[Recorded, ...]:
        """Return the present records of the tasks in ``changes``; tasks without one are left out."""
        paths = [naming.task_path(self._cluster, each.record.task) for each in changes]
        with translated("reading task records back"):
            # The read may be served by a server that lags behind the one that refused the write.
            self._client.sync(naming.cluster_path(self._cluster))
            found = read_many(self._client, paths)
            return tuple(Recorded(shared.decode_task(data, at), stat.version) for at, data, stat in found)

    def write_model(self, model: JobModel, stage: str) -> JobModel | None:
        """Write a job's model over version ``znode`` of its node; return it with its new version.

        None if the node has another version. Raises as `write_tasks`.
        """
        path = naming.model_path(self._cluster, model.job)
        data = bodies.encode(bodies.model_record(model, stage))
        transaction = self._election.transaction()
        if model.znode < 0:
            transaction.create(path, data)
        else:
            transaction.set_data(path, data, version=model.znode)
        results = self._election.commit(transaction, "writing a job's model")
        if has_failed(results):
            return None
        return replace(model, znode=model.znode + 1)

    def write_status(self, job: str, status: StatusRecord) -> None:
        """Write a job's status; raises as `write_tasks`.

        Not if the job failed and has been submitted again since, which this leader has yet to read: its new deployment
        would count as failed, for clients and for the next leader.
        """
        path = naming.job_path(self._cluster, job)
        for _ in range(_STATUS_TRIES):
            with translated("writing a job's status"):
                found = read(self._client, path)
                exists = self._client.exists(f"{path}/status") is not None
            if found is None or (status.state == JobState.FAILED and _is_outdated(status, found[0], path)):
                return
            transaction = self._election.transaction()
            # Whatever changes the job meanwhile.
            transaction.check(path, found[1].version)
            if exists:
                transaction.set_data(f"{path}/status", bodies.encode(status))
            else:
                transaction.create(f"{path}/status", bodies.encode(status))
            if not has_failed(self._election.commit(transaction, "writing a job's status")):
                return
            with translated("writing a job's status"):
                # The read may be served by a server that lags behind the one that refused the write.
                self._client.sync(path)
        raise Transient(
            f"the status of job {job} could not be written: its record changed {_STATUS_TRIES} times meanwhile"
        )


def _is_outdated(status: StatusRecord, data: bytes, path: str) -> bool:
    """Return whether a job has another run or revision, of those that can be led, than the one that failed."""
    record = bodies.decode(data, path, JobRecord)
    present = (effective(record) or record).definition
    return (present.run, present.revision) != (status.run, status.revision)
