"""ZooKeeper for the master and the command line: leadership, task records, jobs, cells.

Safety rests on one thing (design 4.13): every write of a leader is a transaction that checks the
version of ``/controller_epoch``, which the next leader raises in the transaction that makes it leader.
A deposed leader can therefore write nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent
from kazoo.retry import KazooRetry

from appmaster import records as bodies
from appmaster.adapters import kazoo_acl, kazoo_cells, kazoo_code, kazoo_registered
from appmaster.adapters.kazoo_reads import read_many
from appmaster.planning.actions import Change
from appmaster.planning.model import JobModel
from appmaster.planning.view import Recorded
from appmaster.records import (
    CandidateRecord,
    CellRecord,
    ExcludedRecord,
    JobRecord,
    ModelRecord,
    RequestRecord,
    StatusRecord,
)
from appmaster.registered import Registration
from standby import naming
from standby import records as shared
from standby.adapters.kazoo_access import AS_IT_IS, Access
from standby.errors import BadConfiguration, Fenced, StandfastError, Transient, Unavailable
from standby.records import ContainerRecord, ControllerRecord

_log = logging.getLogger(__name__)

#: The longest pause between two tries to reach a server.
_RECONNECT_SECONDS = 1.0

_TRANSIENT = (ConnectionLoss, SessionExpiredError, OperationTimeoutError, KazooTimeoutError)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except _TRANSIENT as error:
        raise Transient(f"ZooKeeper did not answer while {what}: {type(error).__name__}") from error
    except NoAuthError as error:
        raise BadConfiguration(f"ZooKeeper refused {what}: nodes are closed to these credentials") from error


@lru_cache(maxsize=256)
def _watcher(watch: Callable[[], None] | None) -> Callable[[WatchedEvent], None] | None:
    """Return ``watch`` as kazoo calls it: whoever watches reads again, whatever it was that happened.

    Always the same for the same ``watch``: kazoo keeps each watcher until its event comes, and who asks every moment
    would leave one more each time.
    """
    return None if watch is None else lambda _: watch()


@dataclass(frozen=True, slots=True)
class Loaded:
    """One job with everything that is recorded of it."""

    job: JobRecord
    status: StatusRecord | None
    model: JobModel | None
    tasks: tuple[Recorded, ...]
    """Empty when they were not asked for."""


class ZooKeeper:
    """A session with the ensemble, for one cluster's tree. Thread-safe, as kazoo is."""

    def __init__(self, hosts: str, cluster: str, session_ms: int = 6_000, access: Access = AS_IT_IS) -> None:
        self._hosts = hosts
        self._cluster = cluster
        self._access = access
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_ms / 1000.0,
            auth_data=access.proofs,
            default_acl=access.acl,
            # Servers that come back give each session its time anew. Kazoo's own back-off, of up to a minute, would
            # miss that, and a leader would be deposed for nothing.
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=_RECONNECT_SECONDS),
        )
        self._was_closed: bool | None = None
        self._epoch_version = -1
        #: The epoch under which this session leads; 0 while it does not.
        self.epoch = 0

    @property
    def client(self) -> Any:
        """The kazoo client of this session, for adapters of their own; it is opened and closed here."""
        return self._client

    def connect(self, timeout_seconds: float = 10.0) -> None:
        """Open the session; raises `Unavailable` naming the servers when none answers in time.

        Raises `BadConfiguration` when the cluster's tree is closed to this session, or closed against its wish.
        """
        try:
            self._client.start(timeout=timeout_seconds)
        except KazooTimeoutError as error:
            self._client.close()
            raise Unavailable(
                f"no ZooKeeper server answers at {self._hosts} within {timeout_seconds:g} s; "
                "check zookeeper.connect and that the servers run"
            ) from error
        try:
            with _translated("looking whose the cluster's tree is"):
                self._was_closed = kazoo_acl.enter(self._client, self._cluster, self._access)
        except StandfastError:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches ZooKeeper could read and change the cluster's tree when the session began."""
        return self._was_closed is False

    def make_way(self) -> None:
        """Have the cluster's tree be closed to others if it is a new one; `prepare` makes it."""
        if self._was_closed is None:
            with _translated("making the cluster's tree"):
                kazoo_acl.make_way(self._client, self._access)

    def protect(self) -> int:
        """Close the tree to all but the holders of the secret; return how many nodes of an open one were closed.

        Nothing of the cluster may run: what its processes create would stay open.
        """
        with _translated("closing the cluster's tree"):
            return kazoo_acl.protect(self._client, self._cluster, self._access)

    @property
    def is_closed(self) -> bool:
        """Whether what this session creates is closed to others: as the tree was found, or is to be."""
        return self._client.default_acl is not None

    def prove(self, access: Access) -> None:
        """Prove another secret besides: a part of the tree may have been given to its holders already."""
        with _translated("proving who is there"):
            for proof in access.proofs:
                self._client.add_auth(*proof)

    def hand_over(self, access: Access) -> int:
        """Give a closed tree to the holders of another secret, proved before; return how many nodes it has."""
        with _translated("giving the cluster's tree away"):
            return kazoo_acl.hand_over(self._client, self._cluster, access.holders_only)

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
        """Create the cluster's tree where it is missing; `drop_tree` removes it."""
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

    def candidates(self) -> tuple[CandidateRecord, ...]:
        """Return every candidate that is registered at this moment."""
        with _translated("listing candidates"):
            return kazoo_registered.candidates(self._client, self._cluster)

    def registered(self) -> tuple[tuple[CandidateRecord, ...], tuple[ContainerRecord, ...]]:
        """Return every candidate and every container that is registered at this moment."""
        with _translated("listing candidates and containers"):
            return (
                kazoo_registered.candidates(self._client, self._cluster),
                kazoo_registered.containers(self._client, self._cluster),
            )

    def registrations(self) -> tuple[Registration, ...]:
        """Return every registered container with its incarnation."""
        with _translated("listing containers"):
            return kazoo_registered.registrations(self._client, self._cluster)

    def container_names(self, watch: Callable[[], None] | None = None) -> frozenset[str]:
        """Return the ids of the registered containers; ``watch`` is called once when one comes or goes."""
        with _translated("listing containers"):
            return kazoo_registered.container_names(self._client, self._cluster, _watcher(watch))

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
            try:
                data, stat = self._client.get(epoch_path)
            except NoNodeError as error:
                raise Transient("the cluster has no tree (any more)") from error
            epoch = int(data) + 1
            transaction = self._client.transaction()
            if depose is not None:
                try:
                    present, present_stat = self._client.get(path)
                except NoNodeError:
                    return None  # its session has ended meanwhile: the place is empty
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

    def confirm_lead(self) -> None:
        """Return if this session still holds the newest epoch; raises `Fenced` when it does not.

        A transaction with nothing but the check: unlike a read it cannot be answered by a server that lags behind.
        """
        self._commit(self._transaction(), "confirming who leads")

    def resign_lead(self) -> None:
        """End this session's leadership at once, if it has it: nobody has to wait for the session's end."""
        if self.epoch == 0:
            return
        transaction = self._transaction()
        transaction.delete(naming.controller_path(self._cluster))
        self.epoch = 0
        self._commit(transaction, "resigning")

    def raise_epoch(self, seen: int) -> None:
        """Have the next leader's epoch be above ``seen``, and end this leadership, in one transaction.

        For a root that is younger than the containers are: they obey no epoch below one that they have seen (design
        4.13). Raises `Fenced` when another leads already, or this session does not, `Transient` when the outcome is
        unknown.
        """
        if not self.epoch:
            # It knows no version of the epoch, so the check would pass whoever leads.
            raise Fenced("this session does not lead")
        transaction = self._client.transaction()
        path = naming.controller_epoch_path(self._cluster)
        transaction.set_data(path, str(max(seen, self.epoch)).encode(), version=self._epoch_version)
        transaction.delete(naming.controller_path(self._cluster))
        if any(isinstance(each, Exception) for each in self._commit(transaction, "raising the epoch")):
            raise Transient("the record of this leader is gone: nobody leads")
        self.epoch = 0

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
        if isinstance(results[0], (BadVersionError, NoNodeError)):  # or the whole tree is gone
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
        paths = [naming.task_path(self._cluster, each.record.task) for each in changes]
        with _translated("reading task records back"):
            # The read may be served by a server that lags behind the one that refused the write.
            self._client.sync(naming.cluster_path(self._cluster))
            found = read_many(self._client, paths)
            return tuple(Recorded(shared.decode_task(data, at), stat.version) for at, data, stat in found)

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

    def has_queued(self) -> bool:
        """Return whether a change is asked for that no leader has settled yet."""
        path = naming.requests_path(self._cluster)
        with _translated("reading what is queued"):
            try:
                names = self._client.get_children(path)
            except NoNodeError:
                return False
            found = read_many(self._client, [f"{path}/{each}" for each in names])
        return any(bodies.decode(data, at, RequestRecord).state == "queued" for at, data, _ in found)

    def load(
        self, name: str, watch: Callable[[], None] | None = None, *, has_tasks: bool = True
    ) -> Loaded | None:
        """Return everything recorded of a job, or None when there is no such job.

        ``watch`` is called once when the job's own record changes; the tasks' are read if ``has_tasks``.
        """
        job = self.job(name, watch)
        if job is None:
            return None
        tasks = self._tasks(name) if has_tasks else ()
        return Loaded(job, self.status(name), self.model(name), tasks)

    def _tasks(self, name: str) -> tuple[Recorded, ...]:
        path = f"{naming.job_path(self._cluster, name)}/tasks"
        with _translated("loading task records"):
            try:
                names = self._client.get_children(path)
            except NoNodeError:
                return ()
            found = read_many(self._client, [f"{path}/{each}" for each in names])
            return tuple(Recorded(shared.decode_task(data, at), stat.version) for at, data, stat in found)

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

    def return_job(self, former: JobRecord, status: StatusRecord | None) -> None:
        """Have a job's record and its status as they were before `put_job`."""
        path = naming.job_path(self._cluster, former.definition.name)
        with _translated("recording the job as it was"):
            self._client.set(path, bodies.encode(former))
            with suppress(NoNodeError):
                self._client.delete(f"{path}/status")
            if status is not None:
                self._client.create(f"{path}/status", bodies.encode(status))

    def withdraw_job(self, name: str) -> None:
        """Remove a job's records; nothing when there are none."""
        with _translated("withdrawing the job"), suppress(NoNodeError):
            self._client.delete(naming.job_path(self._cluster, name), recursive=True)

    def withdraw_code(self, digest: str) -> bool:
        """Remove a bundle, while nothing of the cluster runs; return False when a job names it, and it stays."""
        with _translated("withdrawing a bundle of code"):
            with suppress(NoNodeError):
                if kazoo_code.is_named(self._client, self._cluster, digest):
                    return False
            with suppress(NoNodeError):
                self._client.delete(naming.code_path(self._cluster, digest), recursive=True)
        return True

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

    def cell(self, number: int, watch: Callable[[], None] | None = None) -> CellRecord | None:
        """Return a cell's record, or None; ``watch`` is called once when that changes."""
        with _translated("reading a cell"):
            return kazoo_cells.read(self._client, self._cluster, number, _watcher(watch))

    def cells(self, watch: Callable[[], None] | None = None) -> dict[int, CellRecord]:
        """Return every cell's record by its number; ``watch`` is called when one changes, comes or goes."""
        with _translated("reading the cells"):
            return kazoo_cells.read_all(self._client, self._cluster, _watcher(watch))

    def claim_cell(self, number: int, record: CellRecord, replaces: CellRecord | None = None) -> bool:
        """Create a cell's record, so that two submits never make one cell twice; False when taken.

        With ``replaces``, a record of an application that has ended gives way, if it is still that one.
        """
        with _translated("claiming a cell"):
            return kazoo_cells.claim(self._client, self._cluster, number, record, replaces)

    def change_cell(self, number: int, edit: Callable[[CellRecord], CellRecord | None]) -> bool:
        """Change a cell's record as ``edit`` says; False when there is none, or ``edit`` returns None."""
        with _translated("recording the cell"):
            return kazoo_cells.change(self._client, self._cluster, number, edit)

    def put_cell(self, number: int, record: CellRecord) -> None:
        """Complete a cell's record that this process claimed."""
        self.change_cell(number, lambda _: record)

    def drop_cell(self, number: int) -> None:
        """Remove a cell's record."""
        with _translated("removing a cell"), suppress(NoNodeError):
            self._client.delete(naming.cell_path(self._cluster, number))

    def delete_job(self, name: str, patience_seconds: float = 0.0) -> None:
        """Remove a job with its records; the cluster's tree goes too when it was the last one, as by `drop_tree`."""
        with _translated("deleting the job"):
            self._client.delete(naming.job_path(self._cluster, name), recursive=True)
        self.drop_tree(patience_seconds)

    def drop_tree(self, patience_seconds: float = 0.0) -> None:
        """Remove the cluster's tree, unless it has a job.

        A leader that is about to end holds its ephemeral record until then: for so long is it waited for.
        """
        root = naming.cluster_path(self._cluster)
        leader, epoch = naming.controller_path(self._cluster), naming.controller_epoch_path(self._cluster)
        with _translated("removing the cluster's tree"):
            try:
                if self._client.get_children(f"{root}/jobs"):
                    return
            except NoNodeError:
                pass  # it was not made completely
            try:
                others = [f"{root}/{each}" for each in self._client.get_children(root)]
            except NoNodeError:
                return
            # The epoch stays the longest: whoever still leads fails its next write.
            for each in (*(each for each in others if each not in (leader, epoch)), epoch):
                self._drop(each)
            has_left = threading.Event()
            if self._client.exists(leader, watch=lambda _: has_left.set()) is not None:
                has_left.wait(patience_seconds)
            # The record of a leader that was killed stays until its session ends.
            self._drop(leader)
            self._drop(root)

    def _drop(self, path: str) -> None:
        """Remove a node with what is below it, if nobody adds to it meanwhile."""
        try:
            self._client.delete(path, recursive=True)
        except NoNodeError:
            return
        except NotEmptyError:
            _log.warning("%s could not be removed: somebody is still there", path)


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
