"""ZooKeeper for the master and the command line: leadership, task records, jobs, cells.

Safety rests on one thing (design 4.13): every write of a leader is a transaction that checks the
version of ``/controller_epoch``, which the next leader raises in the transaction that makes it leader.
A deposed leader can therefore write nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent

from appmaster import records as bodies
from appmaster.adapters import kazoo_code, kazoo_registered
from appmaster.planning.actions import Change
from appmaster.planning.model import JobModel
from appmaster.planning.view import Recorded
from appmaster.records import (
    CandidateRecord,
    CellRecord,
    ExcludedRecord,
    JobRecord,
    ModelRecord,
    StatusRecord,
)
from standby import naming
from standby import records as shared
from standby.errors import Fenced, Transient, Unavailable
from standby.records import ContainerRecord, ControllerRecord

_log = logging.getLogger(__name__)

_TRANSIENT = (ConnectionLoss, SessionExpiredError, OperationTimeoutError, KazooTimeoutError)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except _TRANSIENT as error:
        raise Transient(f"ZooKeeper did not answer while {what}: {type(error).__name__}") from error


def _watcher(watch: Callable[[], None] | None) -> Callable[[WatchedEvent], None] | None:
    """Return ``watch`` as kazoo calls it: whoever watches reads again, whatever it was that happened."""
    return None if watch is None else lambda _: watch()


@dataclass(frozen=True, slots=True)
class Loaded:
    """One job with everything that is recorded of it."""

    job: JobRecord
    status: StatusRecord | None
    model: JobModel | None
    tasks: tuple[Recorded, ...]


class ZooKeeper:
    """A session with the ensemble, for one cluster's tree. Thread-safe, as kazoo is."""

    def __init__(self, hosts: str, cluster: str, session_ms: int = 6_000) -> None:
        self._hosts = hosts
        self._cluster = cluster
        self._client = KazooClient(hosts=hosts, timeout=session_ms / 1000.0)
        self._epoch_version = -1
        #: The epoch under which this session leads; 0 while it does not.
        self.epoch = 0

    def connect(self, timeout_seconds: float = 10.0) -> None:
        """Open the session; raises `Unavailable` naming the servers when none answers in time."""
        try:
            self._client.start(timeout=timeout_seconds)
        except KazooTimeoutError as error:
            self._client.close()
            raise Unavailable(
                f"no ZooKeeper server answers at {self._hosts} within {timeout_seconds:g} s; "
                "check zookeeper.connect and that the servers run"
            ) from error

    def close(self) -> None:
        """End the session; its ephemeral nodes go at once."""
        self._client.stop()
        self._client.close()

    def __enter__(self) -> ZooKeeper:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def on_session(self, lost: Callable[[], None]) -> None:
        """Call ``lost`` (on kazoo's thread) when the session has expired: leadership is gone."""

        def listen(state: str) -> None:
            if state == KazooState.LOST:
                lost()

        self._client.add_listener(listen)

    # ---- leadership ----

    def prepare(self) -> None:
        """Create the cluster's tree where it is missing."""
        root = naming.cluster_path(self._cluster)
        with _translated("preparing the cluster's tree"):
            for each in ("cells", "candidates", "code", "containers", "jobs", "requests"):
                self._client.ensure_path(f"{root}/{each}")
            with suppress(NodeExistsError):
                self._client.create(naming.controller_epoch_path(self._cluster), b"0")

    def exists(self) -> bool:
        """Return whether the cluster has a tree."""
        with _translated("looking for the cluster"):
            return self._client.exists(naming.controller_epoch_path(self._cluster)) is not None

    def clusters(self) -> tuple[str, ...]:
        """Return the names of all clusters on these servers, whichever this session is of."""
        with _translated("listing clusters"):
            return kazoo_registered.clusters(self._client)

    def register_candidate(self, record: CandidateRecord) -> None:
        """Announce this candidate; the node lasts as long as the session."""
        path = f"{naming.cluster_path(self._cluster)}/candidates/{record.candidate}"
        with _translated("registering the candidate"):
            try:
                self._client.create(path, bodies.encode(record), ephemeral=True, makepath=True)
            except NodeExistsError:
                # Of this candidate's own former session, which nobody has closed yet.
                self._client.delete(path)
                self._client.create(path, bodies.encode(record), ephemeral=True, makepath=True)

    def registered(self) -> tuple[tuple[CandidateRecord, ...], tuple[ContainerRecord, ...]]:
        """Return every candidate and every container that is registered at this moment."""
        with _translated("listing candidates and containers"):
            return (
                kazoo_registered.candidates(self._client, self._cluster),
                kazoo_registered.containers(self._client, self._cluster),
            )

    def controller(self, watch: Callable[[], None] | None = None) -> ControllerRecord | None:
        """Return who leads, or None; ``watch`` is called once, on kazoo's thread, when that changes."""
        path = naming.controller_path(self._cluster)

        with _translated("reading who leads"):
            while True:
                if self._client.exists(path, watch=_watcher(watch)) is None:
                    return None
                try:
                    data, _ = self._client.get(path)
                except NoNodeError:
                    continue  # it went between the two reads
                return shared.decode_controller(data, path)

    def lead(self, record: ControllerRecord, depose: ControllerRecord | None = None) -> int | None:
        """Try to become leader; return the new epoch, or None when somebody else was quicker.

        The record, the risen epoch and, with ``depose``, the end of a leader whose port was found
        closed (design 4.13) are one transaction.
        """
        path = naming.controller_path(self._cluster)
        epoch_path = naming.controller_epoch_path(self._cluster)
        with _translated("standing for leader"):
            data, stat = self._client.get(epoch_path)
            epoch = int(data) + 1
            transaction = self._client.transaction()
            if depose is not None:
                present, present_stat = self._client.get(path)
                if shared.decode_controller(present, path) != depose:
                    return None
                transaction.delete(path, version=present_stat.version)
            transaction.set_data(epoch_path, str(epoch).encode(), version=stat.version)
            elected = ControllerRecord(record.candidate, record.host, record.port, epoch)
            transaction.create(path, shared.encode(elected), ephemeral=True)
            results = transaction.commit()
        if any(isinstance(each, Exception) for each in results):
            return None
        self._epoch_version = stat.version + 1
        self.epoch = epoch
        return epoch

    def _transaction(self) -> Any:
        """Return a transaction that fails unless this session still holds the newest epoch."""
        transaction = self._client.transaction()
        transaction.check(naming.controller_epoch_path(self._cluster), self._epoch_version)
        return transaction

    @staticmethod
    def _commit(transaction: Any, what: str) -> list[Any]:
        """Return the results of ``transaction``, its check's included.

        Raises `Fenced` when the epoch has moved on, `Transient` when the outcome is unknown.
        """
        with _translated(what):
            results: list[Any] = transaction.commit()
        if isinstance(results[0], BadVersionError):
            raise Fenced(f"another leader has taken over; refused while {what}")
        return results

    # ---- the leader's writes ----

    def write_tasks(self, changes: Sequence[Change]) -> tuple[Recorded, ...] | None:
        """Write a decision's records in one transaction; return them with their new versions.

        None when a record was not as expected, and nothing was written. Raises `Fenced` when another
        leads, `Transient` when the outcome is unknown: then read back, the records carry the decision.
        """
        transaction = self._transaction()
        for each in changes:
            path = naming.task_path(self._cluster, each.record.task)
            data = shared.encode_task(each.record)
            if each.expected_version is None:
                transaction.create(path, data)
            else:
                transaction.set_data(path, data, version=each.expected_version)
        results = self._commit(transaction, "writing task records")
        if any(isinstance(each, (KazooException, RolledBackError)) for each in results):
            return None
        return tuple(
            Recorded(each.record, 0 if each.expected_version is None else each.expected_version + 1)
            for each in changes
        )

    def read_tasks(self, changes: Sequence[Change]) -> tuple[Recorded, ...]:
        """Return the present records of the tasks in ``changes``; those without one are left out."""
        found = []
        with _translated("reading task records back"):
            # The read may be served by a server that lags behind the one that refused the write.
            self._client.sync(naming.cluster_path(self._cluster))
            for each in changes:
                path = naming.task_path(self._cluster, each.record.task)
                try:
                    data, stat = self._client.get(path)
                except NoNodeError:
                    continue
                found.append(Recorded(shared.decode_task(data, path), stat.version))
        return tuple(found)

    def write_model(self, model: JobModel, stage: str) -> JobModel | None:
        """Write a job's model in place of its version ``znode``; return it with its new one.

        None when the present one is another. Raises as `write_tasks`.
        """
        path = naming.model_path(self._cluster, model.job)
        data = bodies.encode(bodies.model_record(model, stage))
        transaction = self._transaction()
        if model.znode < 0:
            transaction.create(path, data)
        else:
            transaction.set_data(path, data, version=model.znode)
        results = self._commit(transaction, "writing a job's model")
        if any(isinstance(each, (KazooException, RolledBackError)) for each in results):
            return None
        return replace(model, znode=model.znode + 1)

    def write_status(self, job: str, status: StatusRecord) -> None:
        """Record how far a job is; raises as `write_tasks`."""
        path = f"{naming.job_path(self._cluster, job)}/status"
        with _translated("writing a job's status"):
            exists = self._client.exists(path) is not None
        transaction = self._transaction()
        if exists:
            transaction.set_data(path, bodies.encode(status))
        else:
            transaction.create(path, bodies.encode(status))
        self._commit(transaction, "writing a job's status")

    # ---- reading ----

    def jobs(self, watch: Callable[[], None] | None = None) -> tuple[str, ...]:
        """Return the names of all jobs; ``watch`` is called once when a job comes or goes."""
        path = f"{naming.cluster_path(self._cluster)}/jobs"

        with _translated("listing jobs"):
            try:
                return tuple(sorted(self._client.get_children(path, watch=_watcher(watch))))
            except NoNodeError:
                return ()

    def job(self, name: str, watch: Callable[[], None] | None = None) -> JobRecord | None:
        """Return a job's record; ``watch`` is called once when it changes."""
        path = naming.job_path(self._cluster, name)

        with _translated("reading a job"):
            try:
                data, _ = self._client.get(path, watch=_watcher(watch))
            except NoNodeError:
                return None
        return bodies.decode(data, path, JobRecord)

    def status(self, job: str) -> StatusRecord | None:
        """Return how far the leader is with a job; None before it has looked at it."""
        path = f"{naming.job_path(self._cluster, job)}/status"
        with _translated("reading a job's status"):
            try:
                data, _ = self._client.get(path)
            except NoNodeError:
                return None
        return bodies.decode(data, path, StatusRecord)

    def load(self, name: str) -> Loaded | None:
        """Return everything recorded of a job, or None when there is no such job."""
        job = self.job(name)
        if job is None:
            return None
        path = f"{naming.job_path(self._cluster, name)}/tasks"
        found: list[Recorded] = []
        with _translated("loading task records"):
            try:
                names = self._client.get_children(path)
            except NoNodeError:
                names = []
            for pending in [(each, self._client.get_async(f"{path}/{each}")) for each in names]:
                data, stat = pending[1].get()
                found.append(Recorded(shared.decode_task(data, f"{path}/{pending[0]}"), stat.version))
        return Loaded(job, self.status(name), self.model(name), tuple(found))

    def model(self, job: str) -> JobModel | None:
        """Return a job's recorded model; None before the first one."""
        path = naming.model_path(self._cluster, job)
        with _translated("reading a job's model"):
            try:
                data, stat = self._client.get(path)
            except NoNodeError:
                return None
        return bodies.model_of(bodies.decode(data, path, ModelRecord), stat.version)

    def excluded(self, watch: Callable[[], None] | None = None) -> dict[str, str]:
        """Return the hosts that are to be empty, and why; ``watch`` is called once when they change."""
        path = naming.excluded_path(self._cluster)
        with _translated("reading which hosts are drained"):
            while True:
                if self._client.exists(path, watch=_watcher(watch)) is None:
                    return {}
                try:
                    data, _ = self._client.get(path)
                except NoNodeError:
                    continue  # it went between the two reads
                return dict(bodies.decode(data, path, ExcludedRecord).hosts)

    # ---- the command line's writes ----

    def put_job(self, record: JobRecord) -> None:
        """Create a job or change what is asked of it."""
        path = naming.job_path(self._cluster, record.definition.name)
        data = bodies.encode(record)
        with _translated("recording the job"):
            self._client.ensure_path(f"{naming.cluster_path(self._cluster)}/jobs")
            try:
                self._client.create(path, data)
            except NodeExistsError:
                self._client.set(path, data)
            # A submit is a new chance: how the last one ended is not held against it.
            with suppress(NoNodeError):
                self._client.delete(f"{path}/status")
            self._client.ensure_path(f"{path}/tasks")

    def put_code(self, digest: str, data: bytes) -> None:
        """Keep a bundle of code (`standby.bundles`); nothing when it is there already.

        Raises `CorruptState` when ``data`` is not what ``digest`` says.
        """
        with _translated("writing a bundle of code"):
            kazoo_code.put_code(self._client, self._cluster, digest, data)

    def has_code(self, digest: str) -> bool:
        """Return whether the bundle is there, completely."""
        with _translated("looking for a bundle of code"):
            return kazoo_code.has_code(self._client, self._cluster, digest)

    def codes(self) -> tuple[str, ...]:
        """Return the digests of all bundles, those that were never completed included."""
        with _translated("listing the bundles of code"):
            return kazoo_code.list_code(self._client, self._cluster)

    def delete_code(self, digest: str) -> None:
        """Remove a bundle that no job needs any more."""
        with _translated("removing a bundle of code"):
            kazoo_code.delete_code(self._client, self._cluster, digest)

    def request(self, job: str, *, is_wanted: bool, purge: bool = False) -> bool:
        """Change the requested state of a job; return False when there is no such job."""
        path = naming.job_path(self._cluster, job)
        with _translated("changing what is asked of the job"):
            while True:
                try:
                    data, stat = self._client.get(path)
                except NoNodeError:
                    return False
                record = bodies.decode(data, path, JobRecord)
                changed = msgspec.structs.replace(record, is_wanted=is_wanted, purge=purge)
                try:
                    self._client.set(path, bodies.encode(changed), version=stat.version)
                except BadVersionError:
                    continue
                return True

    def update_job(self, name: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord | None:
        """Change a job's record, as ``change`` says, whoever else changes it; return it, None without such a job."""
        path = naming.job_path(self._cluster, name)
        with _translated("changing the job"):
            while True:
                try:
                    data, stat = self._client.get(path)
                except NoNodeError:
                    return None
                changed = change(bodies.decode(data, path, JobRecord))
                try:
                    self._client.set(path, bodies.encode(changed), version=stat.version)
                except BadVersionError:
                    continue
                return changed

    def exclude(self, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        """Change which hosts are to be empty, whoever else changes it; return all of them."""
        path = naming.excluded_path(self._cluster)
        with _translated("changing which hosts are drained"):
            self._client.ensure_path(naming.cluster_path(self._cluster))
            while True:
                try:
                    data, stat = self._client.get(path)
                except NoNodeError:
                    hosts = change({})
                    with suppress(NodeExistsError):
                        self._client.create(path, bodies.encode(ExcludedRecord(hosts)))
                        return hosts
                    continue
                hosts = change(dict(bodies.decode(data, path, ExcludedRecord).hosts))
                with suppress(BadVersionError):
                    self._client.set(path, bodies.encode(ExcludedRecord(hosts)), version=stat.version)
                    return hosts

    def cell(self, number: int) -> CellRecord | None:
        """Return a cell's record, or None."""
        path = naming.cell_path(self._cluster, number)
        with _translated("reading a cell"):
            try:
                data, _ = self._client.get(path)
            except NoNodeError:
                return None
        return bodies.decode(data, path, CellRecord)

    def claim_cell(self, number: int, record: CellRecord, replaces: CellRecord | None = None) -> bool:
        """Create a cell's record, so that two submits never make one cell twice; False when taken.

        With ``replaces``, a record of an application that has ended gives way, if it is still that one.
        """
        path = naming.cell_path(self._cluster, number)
        with _translated("claiming a cell"):
            if replaces is None:
                try:
                    self._client.create(path, bodies.encode(record), makepath=True)
                except NodeExistsError:
                    return False
                return True
            try:
                data, stat = self._client.get(path)
                if bodies.decode(data, path, CellRecord) != replaces:
                    return False
                self._client.set(path, bodies.encode(record), version=stat.version)
            except (BadVersionError, NoNodeError):
                return False
        return True

    def put_cell(self, number: int, record: CellRecord) -> None:
        """Complete a cell's record that this process claimed."""
        with _translated("recording the cell"):
            self._client.set(naming.cell_path(self._cluster, number), bodies.encode(record))

    def drop_cell(self, number: int) -> None:
        """Remove a cell's record."""
        with _translated("removing a cell"), suppress(NoNodeError):
            self._client.delete(naming.cell_path(self._cluster, number))

    def delete_job(self, name: str) -> None:
        """Remove a job with its records; the cluster's tree goes too when it was the last one."""
        root = naming.cluster_path(self._cluster)
        with _translated("deleting the job"):
            self._client.delete(naming.job_path(self._cluster, name), recursive=True)
            if self._client.get_children(f"{root}/jobs"):
                return
            # The epoch stays the longest: whoever still leads fails its next write.
            for each in ("cells", "code", "requests", "candidates", "containers", "jobs", "controller_epoch"):
                try:
                    self._client.delete(f"{root}/{each}", recursive=True)
                except (NoNodeError, NotEmptyError):
                    _log.warning("%s/%s could not be removed", root, each)
            with suppress(NotEmptyError):  # a leader that is about to end holds its ephemeral record
                self._client.delete(root)


def as_recorded(changes: Sequence[Change], present: Sequence[Recorded]) -> tuple[Recorded, ...]:
    """Return what is recorded of the tasks in ``changes``, blank records for those that have none.

    A blank one has version -1: the planner creates it then.
    """
    known = {each.record.task: each for each in present}
    return tuple(
        known.get(each.record.task)
        or Recorded(
            replace(
                each.record,
                active=None,
                epoch=0,
                placed={},
                hosts={},
                in_sync=(),
                claimed=False,
                decision="",
                revision=0,
            ),
            -1,
        )
        for each in changes
    )
