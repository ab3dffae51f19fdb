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
from skein.exceptions import SkeinError

from appmaster.cli.launch import application
from appmaster.cli.launch.starting import serves_job
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.records import CellRecord, recorded_settings
from standby.config import JobConfig, parse
from standby.errors import BadConfiguration, StandfastError
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
    """Remove a job's state from hosts; return why some may be left, empty if none is.

    Raises nothing because of the sweep: what is left is never used again, and the job's other things are to be removed.
    """
    try:
        return _sweep(cluster, definition, hosts, driver, deadline)
    except (StandfastError, SkeinError, ValueError, OSError) as error:
        # A `ValueError` is Skein's, for what YARN refuses.
        return " ".join(str(error).split())


def in_cluster(definition: JobDefinition, cells: Iterable[CellRecord | BadConfiguration]) -> JobDefinition:
    """Return a job's definition with the settings of the cluster in which it runs. Pure.

    A job that was submitted into a running cluster leaves out the queue and the Python of its containers.
    """
    return msgspec.structs.replace(definition, config={**definition.config, **recorded_settings(cells)})


def _sweep(
    cluster: str, definition: JobDefinition, hosts: Sequence[str], driver: Any, deadline: Deadline
) -> str:
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
