"""The composition root of a candidate: ``python -m appmaster``, started by `appmaster.supervisor`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from appmaster.adapters.credentials.certificates import as_metric
from appmaster.adapters.grpc import ControlServer
from appmaster.adapters.http import HttpPort
from appmaster.adapters.kafka import EventLog, Topics, fence_job
from appmaster.adapters.node_logs import last_lines
from appmaster.adapters.prometheus import Metrics
from appmaster.adapters.skein import CellAddress, SkeinCell
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.audit import Auditor
from appmaster.api.discovery import targets
from appmaster.api.leader_api import LeaderApi
from appmaster.api.snapshot import snapshot
from appmaster.driver import Driver
from appmaster.effects import Effects, Replies
from appmaster.eventlog.entries import EntryKind, LeaderElected, LogEntry, written
from appmaster.eventlog.latest_failovers import LatestFailovers
from appmaster.eventlog.publish import publisher
from appmaster.leadership import endings, own_cell
from appmaster.leadership.candidate import Candidate, verdict
from appmaster.leadership.cells import Cells
from appmaster.leadership.election import Election
from appmaster.leadership.own_cell import Attempt
from appmaster.leadership.yarn_ids import attempt_of, number_of
from appmaster.planning.state.events import Event
from appmaster.planning.state.view import ClusterView
from appmaster.records import CandidateRecord, CellRecord
from appmaster.services import CandidateServices
from appmaster.supervisor import ENDED, FINISHED, LIFE, RESIGNED
from appmaster.version import version
from standby import cluster as cluster_file
from standby.adapters.gate import of_gates
from standby.adapters.logfiles import LogFiles
from standby.adapters.tls import Keys
from standby.adapters.zookeeper.access import Access, owner_access
from standby.adapters.zookeeper.credentials import Renewal
from standby.config import librdkafka_settings
from standby.errors import BadConfiguration, BrokenInvariant, Fenced, StandfastError, Unavailable
from standby.security import credentials
from standby.shared import naming
from standby.shared.clock import REAL, boot_ms
from standby.shared.probes import Probe, no_probe
from standby.shared.records import ControllerRecord
from standby.shared.roles import PeerRole
from standby.threads.inbox import Inbox

_log = logging.getLogger("appmaster")

#: How long ZooKeeper may take for what a leader decided last.
_WRITTEN_SECONDS: Final = 5.0


#: Exit status after an error that nobody foresaw; the supervisor starts the next life.
_BROKEN: Final = 1


def main(probe: Probe = no_probe) -> int:
    """Run a candidate in the working directory of its YARN container; return its exit status."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout
    )
    # It warns of every single attempt to reconnect; the election tells what matters of that.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    threading.excepthook = end_with_thread
    # Bundles and what else is written are for this user alone.
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
    config = _begun()
    host, container = _environment("NM_HOST"), _environment("CONTAINER_ID")
    mine = Attempt(
        config.cell,
        _environment("SKEIN_APPLICATION_ID"),
        attempt_of(container),
        _environment("SKEIN_APPMASTER_ADDRESS"),
        config.attempts,
    )
    # Of Skein's AMs.
    certificate, key = Path(".skein.crt").read_bytes(), Path(".skein.pem").read_bytes()
    keys, access = _identity(config)
    kafka = librdkafka_settings(config.kafka_bootstrap, config.kafka)
    inbox: Inbox[Event] = Inbox()
    replies = Replies(inbox.post, REAL)
    events = EventLog(kafka, naming.event_topic(config.name))
    candidate_id = f"{container}-{uuid.uuid4().hex[:8]}"
    audit = Auditor(events.append, REAL, lambda: driver.view.epoch, candidate_id, host)
    leader: dict[str, Any] = {"candidate": candidate_id, "host": host, "container": container}

    # Built further down, once everything that it carries events for exists.
    driver: Driver
    metrics = Metrics(
        lambda: driver.view,
        lambda: (as_metric(keys.now.certificate), of_gates((http.gate, services.gate))),
    )
    failovers = LatestFailovers()

    def status() -> dict[str, Any]:
        if not driver.view.epoch:
            raise Unavailable(f"candidate {candidate_id} does not lead; /api/v1/cluster says which one does")
        return {
            **snapshot(driver.view, config.name, leader),
            "finished": failovers.latest(),
            "unreadable": dict(candidate.loading.unreadable),
        }

    candidate: Candidate
    with _session(config, mine, access, keys) as zookeeper:
        if _has_ended(zookeeper, mine, certificate, key):
            return FINISHED
        services = CandidateServices(
            zookeeper.client,
            config,
            candidate_id,
            host,
            Path(),
            keys,
            REAL,
            lambda why: candidate.resign(why),  # noqa: PLW0108 (bound further down)
            lambda: candidate.reload(),  # noqa: PLW0108 (bound further down)
            audit,
        )
        control = ControlServer(
            inbox.post,
            services.api(
                # Without a lease another may lead: whoever asks is not to take this view for the present one.
                lambda: driver.view.epoch > 0 and election.is_leader,
                LeaderApi(lambda: driver.view, status, replies),
            ),
            REAL.monotonic_ms,
            lambda: zookeeper.election.epoch,
            keys,
            lambda seen: candidate.outdated(seen),  # noqa: PLW0108 (bound further down)
            lambda caller, what: audit(caller, what, {}, "refused: its role may not"),
        )

        def connect(number: int, record: CellRecord, lost: Callable[[str], None]) -> SkeinCell:
            where = CellAddress(number, record.application, record.attempt, record.address)
            return SkeinCell(where, certificate, key, inbox.post, REAL, lost, last_lines)

        cells = Cells(zookeeper.cells, connect, inbox.post, REAL, config.cell)
        effects = Effects(
            inbox.post,
            REAL,
            zookeeper.records,
            cells,
            control,
            partial(fence_job, config.name),
            resign=lambda why: candidate.resign(why),  # noqa: PLW0108 (bound further down)
            reload=lambda: candidate.reload(),  # noqa: PLW0108 (bound further down)
            replies=replies,
            broken=end_with_error,
            probe=probe,
        )
        driver = Driver(
            inbox,
            effects.carry_out,
            publisher(metrics.count, events.append, failovers.note),
            turned=metrics.turned,
            may_act=lambda: election.is_leader,
        )
        port = control.start(host)
        http = HttpPort(
            host,
            metrics,
            status,
            lambda: targets(config.name, zookeeper.registry.candidates(), zookeeper.registry.containers()),
            config.http_port,
            info=services.changes.info,
            change=services.change,
            shows_all=config.http_pages == "all",
        )
        leader |= {"port": port, "http_port": http.port}
        me = ControllerRecord(candidate_id, host, port, 0)
        election = Election(
            zookeeper.election, me, services.code.may_lead, boot_ms, config.zookeeper_session_ms
        )
        candidate = Candidate(
            zookeeper,
            cells,
            effects,
            driver,
            inbox,
            election,
            REAL,
            Topics,
            config.racks,
            services.quarantined,
            services.waiting,
        )
        _heed(zookeeper, candidate.resign)
        services.start()
        zookeeper.registry.register(
            CandidateRecord(
                candidate_id,
                host,
                port,
                http.port,
                config.cell,
                os.getpid(),
                container,
                REAL.now_ms(),
                version(),
                peer_port=services.peer_port,
                life=int(os.environ.get(LIFE, "1")),
                ended=os.environ.get(ENDED, ""),
            )
        )
        own_cell.watch(zookeeper.cells, mine, effects.writer.put, candidate.resign)
        try:
            epoch = election.enter()
            _log.info(
                "leading under epoch %d; control port %s:%d, http port %d", epoch, host, port, http.port
            )
            events.append(_elected(epoch, me, container, election.deposed))
            _finish(_led(candidate, services, epoch), effects, events, cells)
        finally:
            election.give_up()
            services.close()
            events.close(1.0)
            http.close()
            control.stop()
    return FINISHED


def _identity(config: cluster_file.ClusterConfig) -> tuple[Keys, Access]:
    """Return by what the cluster's processes know this one, and what its sessions with ZooKeeper prove."""
    bootstrap = credentials.load(Path())
    return Keys(bootstrap.credentials), owner_access(bootstrap.secret, tls=config.zookeeper_tls)


@contextmanager
def _session(
    config: cluster_file.ClusterConfig, mine: Attempt, access: Access, keys: Keys
) -> Iterator[ZooKeeper]:
    """Have a session with ZooKeeper in which this attempt is its cell's, and ``keys`` as they were given out last."""
    with ZooKeeper(config.zookeeper, config.name, config.zookeeper_session_ms, access) as zookeeper:
        # Before anything is opened with them: those of the submit may have been replaced since.
        Renewal(zookeeper.client, config.name, PeerRole.MASTER, keys).look()
        own_cell.enter(zookeeper.cells, zookeeper.registry, mine, REAL)
        yield zookeeper


def _heed(zookeeper: ZooKeeper, resign: Callable[[str], None]) -> None:
    """Resign when the session is gone, or when YARN says so."""
    zookeeper.on_session(lambda: resign("the ZooKeeper session has expired"))
    signal.signal(signal.SIGTERM, lambda *_: resign("told to end"))


def _begun() -> cluster_file.ClusterConfig:
    """Return the cluster's settings, once those that hold for the process itself have been heeded."""
    config = cluster_file.load(Path(cluster_file.FILE))
    LogFiles(config.log_max_bytes).start()
    return config


def _has_ended(zookeeper: ZooKeeper, mine: Attempt, certificate: bytes, key: bytes) -> bool:
    """End an attempt that YARN has started for nothing, with what YARN is to show of it; return whether it is one."""
    why = endings.given_up(zookeeper.jobs, zookeeper.changes) if number_of(mine.attempt) > 1 else ""
    if not why:
        return False
    _log.info("nothing is left to be led: %s", why)
    where = CellAddress(mine.cell, mine.application, mine.attempt, mine.address)
    cell = SkeinCell(where, certificate, key, lambda _: None, REAL, lambda _: None)
    cell.connect()
    cell.finish(succeeded=False, diagnostics=why)
    cell.close()
    return True


def _led(candidate: Candidate, services: CandidateServices, epoch: int) -> ClusterView:
    """Return the last view of a leadership, once every job has ended; raises `Fenced` when there is more to lead."""
    services.code.lead(epoch)
    view = candidate.lead(epoch, lambda: services.changes.lead(epoch))
    # What is queued may wait for the end of the job that was the last one, which has to be written for that.
    candidate.effects.writer.flush(_WRITTEN_SECONDS)
    services.changes.rest()
    if candidate.has_more(view):
        raise Fenced("a job was submitted when the last one had just ended")
    return view


def _finish(view: ClusterView, effects: Effects, events: EventLog, cells: Cells) -> None:
    """End the cells' applications after every job has ended, with what YARN is to show of it."""
    succeeded, diagnostics = verdict(view)
    effects.writer.close()
    effects.writer.join(_WRITTEN_SECONDS)
    events.close()
    cells.stop()
    cells.finish(succeeded=succeeded, diagnostics=diagnostics)


def _elected(epoch: int, me: ControllerRecord, container: str, deposed: str | None) -> dict[str, Any]:
    """Return the first entry of a leadership in the event log."""
    details = LeaderElected(me.candidate, os.getpid(), deposed)
    entry = LogEntry(EntryKind.LEADER_ELECTED, details, container=container, host=me.host)
    return written(entry, REAL.now_ms(), epoch)


def _environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise BadConfiguration(
            f"${name} is not set; this process is to be started by YARN through standfast submit"
        )
    return value


def end_with_thread(died: threading.ExceptHookArgs) -> NoReturn:
    """End the candidate with a thread of its that dies of an error that nobody foresaw: its next life is whole.

    A leader without its writer would hold its record for ever, decide, and carry out nothing.
    """
    name = died.thread.name if died.thread is not None else "a thread"
    _log.critical("%s: an error that nobody foresaw", name, exc_info=died.exc_value)
    _end(_BROKEN)


def end_with_error(error: BaseException) -> NoReturn:
    """End the candidate for an error after which nothing that it does can be relied on."""
    _log.critical("this process cannot go on", exc_info=error)
    _end(_BROKEN)


def _end(status: int) -> NoReturn:
    """End the process now.

    A call that still waits for an answer of ZooKeeper would hold it up by up to a minute, and the next life with it.
    """
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


def start(probe: Probe = no_probe) -> NoReturn:
    """Run a candidate, and end the process with its exit status."""
    try:
        status = main(probe)
    except BrokenInvariant:
        _log.exception("an invariant is broken")
        status = BrokenInvariant.exit_status
    except Exception:  # noqa: BLE001 - the process's outermost level
        _log.critical("an error that nobody foresaw", exc_info=True)
        status = _BROKEN
    _end(status)


if __name__ == "__main__":
    start()
