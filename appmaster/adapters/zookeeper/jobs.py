"""The requests for jobs and the records about them, in ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from kazoo.exceptions import BadVersionError

from appmaster import records as bodies
from appmaster.adapters.zookeeper.calls import children, read, read_many, translated
from appmaster.planning.state.model import JobModel
from appmaster.planning.state.view import Recorded
from appmaster.records import JobRecord, Loaded, ModelRecord, StatusRecord
from standby.shared import naming
from standby.shared import records as shared


class ZooKeeperJobs:
    """The jobs of one cluster. Every call may raise `Transient`, and `BadConfiguration` for an invalid record."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def names(self, watch: Callable[[], None] | None = None) -> tuple[str, ...]:
        """Return the names of all jobs; ``watch`` is called once when a job comes or goes."""
        with translated("listing jobs"):
            return tuple(children(self._client, naming.jobs_path(self._cluster), watch))

    def read(self, name: str, watch: Callable[[], None] | None = None) -> JobRecord | None:
        """Return a job's record; ``watch`` is called once when it changes."""
        path = naming.job_path(self._cluster, name)
        with translated("reading a job"):
            found = read(self._client, path, watch)
        return None if found is None else bodies.decode(found[0], path, JobRecord)

    def status(self, job: str) -> StatusRecord | None:
        """Return a job's status as last written by a leader; None before the first."""
        path = f"{naming.job_path(self._cluster, job)}/status"
        with translated("reading a job's status"):
            found = read(self._client, path)
        return None if found is None else bodies.decode(found[0], path, StatusRecord)

    def load(
        self, name: str, watch: Callable[[], None] | None = None, *, has_tasks: bool = True
    ) -> Loaded | None:
        """Return everything recorded of a job, or None if there is no such job.

        ``watch`` is called once when the job's own record changes; the tasks' records are read if ``has_tasks``.
        """
        job = self.read(name, watch)
        if job is None:
            return None
        tasks = self._tasks(name) if has_tasks else ()
        return Loaded(job, self.status(name), self._model(name), tasks)

    def ask(self, job: str, *, is_wanted: bool, purge: bool = False) -> bool:
        """Change the requested state of a job; return False if there is no such job."""
        wish = partial(msgspec.structs.replace, is_wanted=is_wanted, purge=purge)
        return self.update(job, wish) is not None

    def update(self, name: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord | None:
        """Change a job's record by ``change``, retried on conflicts; return it, or None if there is no such job."""
        path = naming.job_path(self._cluster, name)
        with translated("changing the job"):
            while True:
                found = read(self._client, path)
                if found is None:
                    return None
                changed = change(bodies.decode(found[0], path, JobRecord))
                try:
                    self._client.set(path, bodies.encode(changed), version=found[1].version)
                except BadVersionError:
                    continue
                return changed

    def delete(self, name: str) -> None:
        """Remove a job with its records."""
        with translated("deleting the job"):
            self._client.delete(naming.job_path(self._cluster, name), recursive=True)

    def _tasks(self, name: str) -> tuple[Recorded, ...]:
        path = naming.tasks_path(self._cluster, name)
        with translated("loading task records"):
            found = read_many(self._client, [f"{path}/{each}" for each in children(self._client, path)])
            return tuple(Recorded(shared.decode_task(data, at), stat.version) for at, data, stat in found)

    def _model(self, job: str) -> JobModel | None:
        """Return a job's recorded model; None before the first one."""
        path = naming.model_path(self._cluster, job)
        with translated("reading a job's model"):
            found = read(self._client, path)
        if found is None:
            return None
        return bodies.model_of(bodies.decode(found[0], path, ModelRecord), found[1].version)
