"""Removes the state of a deleted job from hosts where no container of it is left to do so.

A copy that moved left its state behind, because it might have come back; so did a container that died, and every
container of a job that was killed before. A separate application runs a short command on each of those hosts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from appmaster.cli.launch import application
from appmaster.cli.launch.starting import serves_job
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from standby.config import JobConfig, parse
from standby.shared.model import TaskRecord
from standby.shared.wire import JobDefinition
from standby.sweep import FILE, Sweep

#: How long the command may wait for its hosts, seconds; a full host makes it wait.
_PATIENCE_SECONDS: Final = 60.0


def hosts_with_state(
    records: Iterable[TaskRecord], purged: Collection[str], running: Collection[str]
) -> tuple[str, ...]:
    """Return the hosts on which state of a job may be left, in order. Pure.

    ``purged`` are hosts with containers that remove it when they end, ``running`` those that YARN can reach.
    """
    held: set[str] = set()
    for each in records:
        held |= {*each.hosts.values(), *(past.host for past in each.history)}
    return tuple(sorted((held - set(purged)) & set(running)))


def hosts_of_containers(status: Mapping[str, Any], job: str) -> frozenset[str]:
    """Return the hosts with live containers of a job, according to the leader's status. Pure."""
    return frozenset(
        each["host"] for each in status["containers"] if each["state"] == "live" and serves_job(each, job)
    )


def sweep(
    cluster: str, definition: JobDefinition, hosts: Sequence[str], driver: Any, deadline: Deadline
) -> str:
    """Remove a job's state from hosts; return why some may be left, empty if none is."""
    config: JobConfig = parse(definition.config)
    wanted = Sweep(config.state_dirs, cluster, definition.name, definition.run)
    with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
        # In a file, because YARN's scripts do not keep quotes in a variable.
        file = Path(scratch) / FILE
        file.write_bytes(msgspec.json.encode(wanted))
        started = driver.submit(application.build_sweep(config, file, hosts))
    if yarn.still_running(driver, [started], deadline.within(_PATIENCE_SECONDS)):
        driver.kill_application(started)
        return f"YARN gave no container on some of them within {_PATIENCE_SECONDS:g} s"
    report = yarn.report(driver, started)
    if report is None:
        return f"YARN does not know {started} any more"
    return "" if str(report.final_status) == "SUCCEEDED" else str(report.diagnostics or report.final_status)
