"""The composition root of a candidate: ``python -m appmaster``, started by `appmaster.supervisor`."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from appmaster.adapters.credentials.certificates import EXPIRY
from appmaster.adapters.grpc import ControlServer
from appmaster.adapters.http import HttpPort
from appmaster.adapters.kafka import EventLog, Topics, fence_job
from appmaster.adapters.node_logs import last_lines
from appmaster.adapters.pool import PoolCell
from appmaster.adapters.prometheus import Metrics
from appmaster.adapters.skein import CellAddress, SkeinCell
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.audit import Auditor
from appmaster.api.discovery import targets
from appmaster.api.leader_api import LeaderApi
from appmaster.api.snapshot import snapshot
from appmaster.driver import Driver
from appmaster.effects import LeaderEffects, Replies
from appmaster.eventlog.entries import EntryKind, LeaderElectedData, LogEntry, entry_document
from appmaster.eventlog.latest_failovers import LatestFailovers
from appmaster.eventlog.publish import publisher
from appmaster.gauges import UNREADABLE
from appmaster.leadership import endings, own_cell
from appmaster.leadership.candidate import Candidate, verdict
from appmaster.leadership.cells import Cells
from appmaster.leadership.election import Election
from appmaster.leadership.own_cell import Attempt
from appmaster.leadership.ports import CellConnection
from appmaster.leadership.yarn_ids import attempt_of, number_of
from appmaster.planning.state.events import Event
from appmaster.planning.state.view import ClusterView
from appmaster.records import CandidateRecord, CellRecord, pool_record
from appmaster.services import CandidateServices
from appmaster.supervisor import ENDED, ENDS_WITH, FINISHED, LIFE, RESIGNED
from appmaster.topics import event_log
from standby import cluster as cluster_file
from standby.adapters.acceptor import REFUSED_CONNECTIONS
from standby.adapters.logfiles import LogFiles
from standby.adapters.tls import TlsCredentials
from standby.adapters.zookeeper.access import Access, owner_access
from standby.adapters.zookeeper.credentials import Renewal
from standby.config import librdkafka_settings
from standby.control.watchdog import Watchdog
from standby.errors import BadConfiguration, BrokenInvariant, Fenced, StandfastError, Unavailable
from standby.process.descriptors import allow_most
from standby.process.ending import end_at_once
from standby.process.witness import end_with
from standby.security import credentials
from standby.shared import naming
from standby.shared.clock import REAL, boot_ms
from standby.shared.metric import Samples
from standby.shared.probes import Probe, no_probe
from standby.shared.records import ControllerRecord
from standby.shared.roles import PeerRole
from standby.shared.version import version
from standby.threads.inbox import Inbox
from standby.threads.worker import Worker, do_nothing, fatal

_log = logging.getLogger("appmaster")

#: How long to wait for ZooKeeper to write a leader's last decisions, seconds.
_WRITTEN_SECONDS: Final = 5.0

#: How long a question waits for the renewal of the lease, seconds: less than clients wait for the answer.
_RENEWED_SECONDS: Final = 1.0

#: How long a candidate that is told to end may take, seconds: less than the 60 s after which it would be killed without
#: YARN (`appmaster.cli.clusters.standalone`), and more than Skein AMs that do not answer take.
_END_SECONDS: Final = 20.0

#: How long it waits at its end for what the last signal asked for, seconds: that only starts a timer.
_TOLD_SECONDS: Final = 1.0

#: How long a candidate's last log lines may take, seconds: the disk of the log may not answer.
_LAST_SECONDS: Final = 10.0

#: A leader ends when one turn of its loop has taken this many looks, half a second apart: a minute. The longest turns
#: take seconds: of a leader that takes over 10,000 tasks, on a busy machine.
_STUCK_LOOKS: Final = 120

#: Exit status after an unexpected error; the supervisor starts the candidate again.
_BROKEN: Final = 1


def main(probe: Probe = no_probe) -> int:
    """Run a candidate in the working directory of its YARN container; return its exit status."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout
    )
    # It warns of every single attempt to reconnect; the election logs what matters.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    threading.excepthook = end_with_thread
    if supervisor := os.environ.get(ENDS_WITH):
        end_with(int(supervisor))
    # Each container's stream needs one.
    allow_most()
    # Bundles and everything else that is written are only for this user.
    os.umask(0o077)
    try:
        return _run(probe)
    except Fenced as error:
        _log.warning("resigned: %s", error)
        return RESIGNED
    except StandfastError as error:
        _log.critical("%s: %s", type(error).__name__, error)
        return error.exit_status


def _run(probe: Probe) -> int:
    begun = _begun()
    with _session(begun) as zookeeper:
        if _has_ended(begun, zookeeper):
            return FINISHED
        CandidateRuntime(begun, zookeeper, probe).run()
    return FINISHED


@dataclass(frozen=True, slots=True)
class CandidateEnvironment:
    """What YARN and the submit, or `standfast master`, have given to this process."""

    config: cluster_file.ClusterConfig
    host: str
    container: str
    skein: CandidateOfYarn | None
    """None: the cluster's containers are processes of a pool."""
    keys: TlsCredentials
    """By which the cluster's other processes authenticate this one."""
    access: Access
    """How its sessions with ZooKeeper authenticate."""


@dataclass(frozen=True, slots=True)
class CandidateOfYarn:
    """What a candidate of a cell has in addition."""

    attempt: Attempt
    certificate: bytes
    """The pair of Skein's AMs, together with ``key``."""
    key: bytes

    def connection(
        self,
        where: CellAddress,
        post: Callable[[Event], None],
        lost: Callable[[str], None],
        may_act: Callable[[], bool] = lambda: True,
    ) -> SkeinCell:
        """Return a connection to a Skein AM that is not connected yet."""
        return SkeinCell(where, self.certificate, self.key, post, REAL, lost, last_lines, may_act)


class CandidateRuntime:
    """The parts of a candidate, composed; its ports are not published before `run`."""

    def __init__(self, begun: CandidateEnvironment, zookeeper: ZooKeeper, probe: Probe) -> None:
        config = begun.config
        self._begun, self._zookeeper = begun, zookeeper
        self._id = f"{begun.container}-{uuid.uuid4().hex[:8]}"
        self._inbox: Inbox[Event] = Inbox()
        self._failovers = LatestFailovers()
        self._replies = Replies(self._inbox.post, REAL)
        kafka = librdkafka_settings(config.kafka_bootstrap, config.kafka)
        self._events = EventLog(kafka, naming.event_topic(config.name))
        self._audit = Auditor(self._events.append, REAL, lambda: self._view().epoch, self._id, begun.host)
        self._metrics = Metrics(self._view, self._own_metrics, self._may_act)
        self._services = CandidateServices(
            zookeeper.client,
            config,
            self._id,
            begun.host,
            Path(),
            begun.keys,
            REAL,
            self._resign,
            self._reload,
            self._audit,
        )
        self._control = self._control_server()
        self._cells = Cells(
            zookeeper.cells,
            self._connect,
            self._inbox.post,
            REAL,
            config.cell,
            may_act=self._may_act,
        )
        self._effects = LeaderEffects(
            self._inbox.post,
            REAL,
            zookeeper.records,
            self._cells,
            self._control,
            partial(fence_job, config.name),
            resign=self._resign,
            reload=self._reload,
            replies=self._replies,
            broken=end_with_error,
            probe=probe,
        )
        self._driver = Driver(
            self._inbox,
            self._effects.carry_out,
            publisher(self._metrics.count, self._events.append, self._failovers.note),
            turned=self._metrics.turned,
            may_act=self._may_act,
        )
        self._me = ControllerRecord(self._id, begun.host, self._control.start(begun.host), 0)
        self._election = Election(
            zookeeper.election,
            self._me,
            self._services.code.may_lead,
            boot_ms,
            # Without a session the record is gone, and no leader needs to be deposed.
            min(config.leader_timeout_ms, config.zookeeper_session_ms),
        )
        self._candidate = Candidate(
            zookeeper,
            self._cells,
            self._effects,
            self._driver,
            self._inbox,
            self._election,
            REAL,
            Topics,
            config.racks,
            self._services.quarantined,
            self._services.waiting,
            # Its hosts are the operator's, and wait for the next job.
            ends_with_jobs=not config.is_pool,
        )
        self._http = self._http_port()
        #: Numbers the watchdog's looks between turns.
        self._looks = itertools.count(1)
        #: Cancels the end that a candidate comes to if it was told to end and is late.
        self._is_in_time: Callable[[], None] = lambda: None
        #: Does what a signal asks for. A handler must not: what ends a candidate takes locks, which the code that it
        #: has interrupted may hold.
        self._signals = Worker("signals", failed=fatal)

    def run(self) -> None:
        """Stand for election, lead until every job has ended, and end the applications; raises `Fenced`."""
        zookeeper, election = self._zookeeper, self._election
        zookeeper.on_session(lambda: self._resign("the ZooKeeper session has expired"))
        self._signals.start()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: self._signals.put(self._told_to_end))
        self._services.start()
        zookeeper.registry.register(self._record())
        if self._begun.skein is not None:
            mine = self._begun.skein.attempt
            own_cell.watch(zookeeper.cells, mine, self._effects.writer.put, self._resign)
        try:
            epoch = election.enter()
            _log.info(
                "leading under epoch %d; control port %s:%d, http port %d",
                *(epoch, self._begun.host, self._me.port, self._http.port),
            )
            self._events.append(self._elected(epoch))
            self._finish(self._lead(epoch))
        finally:
            election.give_up()
            self._services.close()
            self._events.close(1.0)
            self._http.close()
            self._control.stop()
            # Last: an AM that stands still takes its time. Without a lease they do nothing any more.
            self._cells.stop()
            self._signals.flush(_TOLD_SECONDS)
            self._is_in_time()

    # ---- callbacks between its parts, some of which are created later than their callers ----

    def _resign(self, why: str) -> None:
        self._candidate.resign(why)

    def _told_to_end(self) -> None:
        self._is_in_time()
        # A call to ZooKeeper waits until that answers again. It may be ending, too, as all do with their host.
        self._is_in_time = REAL.later(_END_SECONDS, lambda: _end(RESIGNED))
        self._resign("told to end")

    def _reload(self) -> None:
        self._candidate.reload()

    def _outdated(self, seen: int) -> None:
        self._candidate.outdated(seen)

    def _view(self) -> ClusterView:
        return self._driver.view

    def _may_act(self) -> bool:
        return self._election.is_leader

    def _leads(self) -> bool:
        # Without a lease another candidate may lead: this view must not be taken for the present one.
        return self._view().epoch > 0 and self._election.awaits_lease(_RENEWED_SECONDS)

    def _own_metrics(self) -> Sequence[Samples]:
        gates = (self._http.gate, self._services.gate)
        own = EXPIRY.of(self._begun.keys.now.certificate), REFUSED_CONNECTIONS.of(gates)
        return (*own, UNREADABLE.of(self._candidate.loading.unreadable)) if self._view().epoch else own

    def _status(self) -> dict[str, Any]:
        view = self._view()
        if not view.epoch:
            raise Unavailable(f"candidate {self._id} does not lead; /api/v1/cluster says which one does")
        if not self._may_act():
            # Another candidate may lead: what this one knows may be out of date.
            raise Unavailable(f"candidate {self._id} cannot be certain at the moment that it leads")
        leader = {
            "candidate": self._id,
            "host": self._begun.host,
            "container": self._begun.container,
            "port": self._me.port,
            "http_port": self._http.port,
        }
        return {
            **snapshot(view, self._begun.config.name, leader),
            "finished": self._failovers.latest(),
            "unreadable": dict(self._candidate.loading.unreadable),
        }

    def _connect(self, number: int, record: CellRecord, lost: Callable[[str], None]) -> CellConnection:
        if self._begun.skein is None:
            return PoolCell(number, self._zookeeper.pool, self._inbox.post, REAL)
        where = CellAddress(number, record.application, record.attempt, record.address)
        return self._begun.skein.connection(where, self._inbox.post, lost, self._may_act)

    # ---- its ports ----

    def _control_server(self) -> ControlServer:
        leader_api = LeaderApi(self._view, self._status, self._replies)
        return ControlServer(
            self._inbox.post,
            self._services.api(self._leads, leader_api),
            REAL.monotonic_ms,
            lambda: self._zookeeper.election.epoch,
            self._begun.keys,
            self._outdated,
            lambda caller, what: self._audit(caller, what, {}, "refused: its role may not"),
        )

    def _http_port(self) -> HttpPort:
        config, registry = self._begun.config, self._zookeeper.registry
        return HttpPort(
            self._begun.host,
            self._metrics,
            self._status,
            lambda: targets(config.name, registry.candidates(), registry.containers()),
            config.http_port,
            info=self._services.changes.info,
            change=self._services.change,
            shows_all=config.http_pages == "all",
        )

    # ---- lifecycle ----

    def _record(self) -> CandidateRecord:
        return CandidateRecord(
            self._id,
            self._begun.host,
            self._me.port,
            self._http.port,
            self._begun.config.cell,
            os.getpid(),
            self._begun.container,
            REAL.now_ms(),
            version(),
            peer_port=self._services.peer_port,
            life=int(os.environ.get(LIFE, "1")),
            ended=os.environ.get(ENDED, ""),
        )

    def _elected(self, epoch: int) -> dict[str, Any]:
        """Return the first log entry of a leadership."""
        details = LeaderElectedData(self._id, os.getpid(), self._election.deposed)
        entry = LogEntry(
            EntryKind.LEADER_ELECTED, details, container=self._begun.container, host=self._begun.host
        )
        return entry_document(entry, REAL.now_ms(), epoch)

    def _lead(self, epoch: int) -> ClusterView:
        """Return the last view of a leadership when every job has ended; raises `Fenced` if there is more to lead."""
        candidate, services = self._candidate, self._services
        services.code.lead(epoch)
        # Its lease is renewed on another thread: no candidate would depose a leader whose loop stands still.
        watchdog = Watchdog(self._loops, end_stuck, looks=_STUCK_LOOKS)
        watchdog.start()
        try:
            view = candidate.lead(epoch, lambda: services.changes.lead(epoch))
        finally:
            watchdog.stop()
        # A queued change may wait for the end of the last job; that end has to be written first.
        self._effects.writer.flush(_WRITTEN_SECONDS)
        services.changes.rest()
        if candidate.has_more(view):
            raise Fenced("a job was submitted when the last one had just ended")
        return view

    def _loops(self) -> int:
        """Return a number that stays the same only during one turn of the leader's loop."""
        under_way = self._driver.turn_under_way
        return under_way if under_way is not None else -next(self._looks)

    def _finish(self, view: ClusterView) -> None:
        """End the cells' applications after every job has ended, with the diagnostics for YARN."""
        succeeded, diagnostics = verdict(view)
        self._effects.writer.close()
        self._effects.writer.join(_WRITTEN_SECONDS)
        self._events.close()
        self._cells.stop()
        self._cells.finish(succeeded=succeeded, diagnostics=diagnostics)


def _begun() -> CandidateEnvironment:
    """Return what this process was given, after applying the settings that concern the process itself."""
    config = cluster_file.load(Path(cluster_file.FILE))
    LogFiles(config.log_max_bytes).start()
    container = _environment("CONTAINER_ID")
    bootstrap = credentials.load(Path())
    return CandidateEnvironment(
        config,
        _environment("NM_HOST"),
        container,
        None if config.is_pool else _of_yarn(config, container),
        TlsCredentials(bootstrap.credentials),
        owner_access(
            bootstrap.secret,
            is_closed=False if config.is_pool and config.zookeeper_acl == "open" else None,
            tls=config.zookeeper_tls,
        ),
    )


def _of_yarn(config: cluster_file.ClusterConfig, container: str) -> CandidateOfYarn:
    mine = Attempt(
        config.cell,
        _environment("SKEIN_APPLICATION_ID"),
        attempt_of(container),
        _environment("SKEIN_APPMASTER_ADDRESS"),
        config.attempts,
    )
    return CandidateOfYarn(mine, Path(".skein.crt").read_bytes(), Path(".skein.pem").read_bytes())


@contextmanager
def _session(begun: CandidateEnvironment) -> Iterator[ZooKeeper]:
    """Open a session with ZooKeeper in which this attempt is its cell's, and its keys are the latest given out.

    In a pool, the first candidate creates the cluster's tree.
    """
    config = begun.config
    with ZooKeeper(config.zookeeper, config.name, config.zookeeper_session_ms, begun.access) as zookeeper:
        # Before anything is opened with the keys: those of the submit may have been replaced since.
        Renewal(zookeeper.client, config.name, PeerRole.MASTER, begun.keys).look()
        if begun.skein is None:
            _enter_pool(config, zookeeper)
        else:
            own_cell.enter(zookeeper.cells, zookeeper.registry, begun.skein.attempt, REAL)
        yield zookeeper


def _enter_pool(config: cluster_file.ClusterConfig, zookeeper: ZooKeeper) -> None:
    """Make sure that the cluster's tree is there, with the pool in place of cells.

    Raises `BadConfiguration` if the cluster runs on YARN.
    """
    # Before anything is written: a record of a pool would hide the cluster's cells from every command.
    _refuse_yarn(config, zookeeper)
    zookeeper.tree.make_way()
    zookeeper.tree.prepare()
    # Beside: a candidate does without Kafka, and a submit makes what is missing.
    threading.Thread(target=_make_event_log, args=(config,), name="event-log", daemon=True).start()
    mine = pool_record(config)
    zookeeper.cells.claim(config.cell, mine)
    if _refuse_yarn(config, zookeeper).get(config.cell) != mine:
        # A key of cluster.json has changed, and the masters are being started anew one after the other.
        zookeeper.cells.put(config.cell, mine)


def _refuse_yarn(config: cluster_file.ClusterConfig, zookeeper: ZooKeeper) -> dict[int, CellRecord]:
    """Return the cluster's cells; raises `BadConfiguration` if one of them is YARN's."""
    present = zookeeper.cells.read_all()
    others = [each.application for each in present.values() if not each.is_pool]
    if others:
        raise BadConfiguration(
            f"cluster {config.name} runs on YARN as {', '.join(others)}; give the pool a name of its own "
            "(standfast init --cluster)"
        )
    return present


def _make_event_log(config: cluster_file.ClusterConfig) -> None:
    kafka = librdkafka_settings(config.kafka_bootstrap, config.kafka)
    try:
        event_log.make(Topics(kafka), config.name)
    except StandfastError as error:
        _log.warning("%s", error)


def _has_ended(begun: CandidateEnvironment, zookeeper: ZooKeeper) -> bool:
    """End an attempt that YARN has started for nothing, with diagnostics for YARN; return whether it is one."""
    if begun.skein is None:
        return False
    mine = begun.skein.attempt
    why = endings.given_up(zookeeper.jobs, zookeeper.changes) if number_of(mine.attempt) > 1 else ""
    if not why:
        return False
    _log.info("nothing is left to lead: %s", why)
    where = CellAddress(mine.cell, mine.application, mine.attempt, mine.address)
    cell = begun.skein.connection(where, lambda _: None, lambda _: None)
    cell.connect()
    cell.finish(succeeded=False, diagnostics=why)
    cell.close()
    return True


def _environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise BadConfiguration(
            f"${name} is not set; this process is to be started by YARN through standfast submit, or by standfast "
            "master"
        )
    return value


def end_with_thread(died: threading.ExceptHookArgs) -> NoReturn:
    """End the candidate when one of its threads dies of an unexpected error; it is started again with all of them.

    A leader without its writer would keep its record for ever, and decide without carrying anything out.
    """
    name = died.thread.name if died.thread is not None else "a thread"
    _end(_BROKEN, lambda: _log.critical("%s: unexpected error", name, exc_info=died.exc_value))


def end_with_error(error: BaseException) -> NoReturn:
    """End the candidate after an error that makes its further actions unreliable."""
    _end(_BROKEN, lambda: _log.critical("this process cannot continue", exc_info=error))


def end_stuck() -> NoReturn:
    """End a leader whose loop stands still, perhaps because its log cannot be written: another candidate leads."""
    _end(_BROKEN, _say_stuck)


def _say_stuck() -> None:
    # Not by the faulthandler: it holds the interpreter's lock while it writes, which may never end.
    names = {each.ident: each.name for each in threading.enumerate()}
    stacks = [
        f"{names.get(thread, thread)}:\n{''.join(traceback.format_stack(frame))}"
        for thread, frame in sys._current_frames().items()  # noqa: SLF001 - the only way to them
    ]
    _log.critical("the leader's loop stands still; the stacks of all threads:\n%s", "\n".join(stacks))


def _end(status: int, say: Callable[[], None] = do_nothing) -> NoReturn:
    """End the process at once, after it has logged why (``say``).

    A call that still waits for ZooKeeper's answer would delay the end, and so the next start, by up to a minute.
    """
    end_at_once(status, (say, logging.shutdown, sys.stdout.flush), _LAST_SECONDS)


def start(probe: Probe = no_probe) -> NoReturn:
    """Run a candidate, and end the process with its exit status."""
    try:
        status = main(probe)
    except BrokenInvariant:
        _log.exception("an invariant is broken")
        status = BrokenInvariant.exit_status
    except Exception:  # noqa: BLE001 - the process's outermost level
        _log.critical("unexpected error", exc_info=True)
        status = _BROKEN
    _end(status)


if __name__ == "__main__":
    start()
