"""The composition root of a candidate: ``python -m appmaster``, started by `appmaster.supervisor`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.grpc import ControlServer
from appmaster.adapters.http import HttpPort
from appmaster.adapters.kafka import EventLog
from appmaster.adapters.kazoo import ZooKeeper
from appmaster.adapters.prometheus import Metrics
from appmaster.adapters.skein import SkeinCell
from appmaster.answers import Answers
from appmaster.candidate import Candidate, verdict
from appmaster.cli.main import version
from appmaster.discovery import targets
from appmaster.driver import Driver, now_ms
from appmaster.effects import Effects, Replies, settings
from appmaster.inbox import Inbox
from appmaster.planning.events import Event
from appmaster.records import CandidateRecord
from appmaster.snapshot import snapshot
from appmaster.stories import Stories
from appmaster.supervisor import FINISHED, RESIGNED
from appmaster.telling import teller
from standby import cluster as cluster_file
from standby import naming
from standby.errors import BadConfiguration, BrokenLaw, Fenced, StandfastError
from standby.records import ControllerRecord

_log = logging.getLogger("appmaster")

#: How long the submit may take to record the application that it has just submitted, seconds.
_CELL_SECONDS: Final = 60.0


def main() -> int:
    """Run a candidate in the working directory of its YARN container; return its exit status."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    try:
        return _run()
    except Fenced as error:
        _log.warning("resigned: %s", error)
        return RESIGNED
    except StandfastError as error:
        _log.critical("%s: %s", type(error).__name__, error)
        return error.exit_status


def _run() -> int:
    config = cluster_file.load(Path(cluster_file.FILE))
    host, container = _environment("NM_HOST"), _environment("CONTAINER_ID")
    application = _environment("SKEIN_APPLICATION_ID")
    kafka = settings(config.kafka_bootstrap, config.kafka)
    inbox: Inbox[Event] = Inbox()
    replies = Replies(inbox.post)
    events = EventLog(kafka, naming.event_topic(config.name))
    candidate_id = f"{container}-{uuid.uuid4().hex[:8]}"
    leader: dict[str, Any] = {"candidate": candidate_id, "host": host, "container": container}

    # Built further down, once everything that it carries events for exists.
    driver: Driver
    metrics = Metrics(lambda: driver.view)
    stories = Stories()

    def status() -> dict[str, Any]:
        return {**snapshot(driver.view, config.name, leader), "finished": stories.latest()}

    candidate: Candidate
    with ZooKeeper(config.zookeeper, config.name, config.zookeeper_session_ms) as zookeeper:
        _await_cell(zookeeper, config.cell, application)
        control = ControlServer(
            inbox.post,
            Answers(lambda: driver.view, status, replies),
            now_ms,
            lambda: zookeeper.epoch,
            Path(".skein.crt").read_bytes(),
            Path(".skein.pem").read_bytes(),
        )
        cell = SkeinCell(inbox.post, now_ms, lambda why: os.kill(os.getpid(), signal.SIGTERM))
        effects = Effects(
            inbox.post,
            now_ms,
            zookeeper,
            cell,
            control,
            config.name,
            resign=lambda why: candidate.resign(why),  # noqa: PLW0108 (bound further down)
            reload=lambda: candidate.reload(),  # noqa: PLW0108 (bound further down)
            replies=replies,
        )
        driver = Driver(
            inbox,
            effects.carry_out,
            teller(events.append, metrics.count, stories.hear),
            turned=metrics.turned,
        )
        port = control.start(host)
        http = HttpPort(
            host,
            metrics,
            status,
            lambda: targets(config.name, *zookeeper.registered()),
            config.http_port,
        )
        leader |= {"port": port, "http_port": http.port}
        cell.connect()
        me = ControllerRecord(candidate_id, host, port, 0)
        candidate = Candidate(zookeeper, cell, effects, driver, inbox, me, _wall_ms, config.racks)
        zookeeper.on_session(lambda: candidate.resign("the ZooKeeper session has expired"))
        zookeeper.register_candidate(
            CandidateRecord(
                candidate_id,
                host,
                port,
                http.port,
                config.cell,
                os.getpid(),
                container,
                _wall_ms(),
                version(),
            )
        )
        signal.signal(signal.SIGTERM, lambda *_: candidate.resign("told to end"))
        try:
            epoch = candidate.stand()
            _log.info(
                "leading under epoch %d; control port %s:%d, http port %d", epoch, host, port, http.port
            )
            events.append(
                {
                    "at_ms": _wall_ms(),
                    "epoch": epoch,
                    "kind": "leader_elected",
                    **dict.fromkeys(("job", "task", "copy", "task_epoch", "reason", "decision")),
                    "container": container,
                    "host": host,
                    "data": {"candidate": candidate_id, "pid": os.getpid()},
                }
            )
            view = candidate.lead(epoch)
            succeeded, diagnostics = verdict(view)
            effects.writer.close(5.0)
            events.close()
            cell.stop()
            cell.finish(succeeded=succeeded, diagnostics=diagnostics)
        finally:
            events.close(1.0)
            http.close()
            control.stop()
    return FINISHED


def _await_cell(zookeeper: ZooKeeper, number: int, application: str) -> None:
    """Wait until the cell's record names this application; raises `BadConfiguration` when it names another.

    Two submits never make one cell twice: the one that lost its claim ends here.
    """
    deadline = time.monotonic() + _CELL_SECONDS
    pause = threading.Event()
    while True:
        cell = zookeeper.cell(number)
        if cell is not None and cell.application == application:
            return
        if cell is not None and cell.application:
            raise BadConfiguration(f"cell {number} is application {cell.application}, not {application}")
        if time.monotonic() > deadline:
            raise BadConfiguration(f"nobody recorded {application} as cell {number}; its submit has failed")
        pause.wait(0.05)


def _environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise BadConfiguration(
            f"${name} is not set; this process is to be started by YARN through standfast submit"
        )
    return value


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenLaw:
        _log.exception("a law is broken")
        sys.exit(BrokenLaw.exit_status)
