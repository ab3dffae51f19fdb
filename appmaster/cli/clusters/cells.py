"""``standfast cells``: the cells of a cluster according to ZooKeeper and YARN, and restarting those that ended.

A cell comes back by itself as YARN's next attempt. Once its attempts are used up, or its application was ended by
someone, this command submits it again, while the others continue. Settings that the job was submitted with on top of
its file have to be given again: ``--set``, and ``--cluster``.

Exit status: 0 every cell runs; 1 some do not; 2 no such cluster, or the file is of another; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.changes.compatibility import check_restores, cluster_settings
from appmaster.cli.launch.cells import Claims, Launching, submit
from appmaster.cli.launch.checks import other_environment_warning
from appmaster.cli.shared import yarn
from appmaster.cli.shared.cluster import add_command_of_cluster, open_zookeeper
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.ended_applications import ended_application
from appmaster.cli.shared.jobfile import JobFile, add_settings, load
from appmaster.cli.shared.output import Progress, complain, printed_as_json
from appmaster.cli.shared.undo import Undo
from appmaster.code.activation import effective
from appmaster.records import CellRecord, recorded_environments, recorded_settings
from standby.code.bundles import pack
from standby.config import parse
from standby.ensemble import read_servers
from standby.errors import BadConfiguration
from standby.feed.functions import job_code

#: How long to wait for a restored cell's master, to learn its host, seconds.
_RESTORE_SECONDS: Final = 120.0


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``cells`` on the command line."""
    text = "list a cluster's cells; start again those that ended"
    parser = add_command_of_cluster(subparsers, "cells", _cells, text, __doc__)
    parser.add_argument(
        "--restore",
        type=Path,
        metavar="JOB.YAML",
        help="submit again the cells that do not run, with this job file",
    )
    add_settings(parser, "the file to restore with")


def _cells(arguments: argparse.Namespace) -> int:
    progress = Progress(is_quiet=arguments.json)
    if arguments.settings and arguments.restore is None:
        raise BadConfiguration("--set goes with --restore JOB.YAML; without that nothing is submitted")
    with open_zookeeper(arguments) as zookeeper, yarn.driver_of(is_pool=yarn.is_pool(zookeeper)) as client:
        if not zookeeper.tree.exists():
            raise BadConfiguration(f"there is no cluster {arguments.cluster or arguments.job}")
        if client is None:
            raise BadConfiguration(
                "this cluster is a pool and has no cells; see `standfast nodes` and `standfast candidates`"
            )
        if arguments.restore is not None:
            for number, started in restore(arguments, zookeeper, client, progress).items():
                progress.say(f"cell {number} is submitted as {started}")
        found = [
            _line(number, each, client, zookeeper) for number, each in zookeeper.cells.read_each().items()
        ]
    if not printed_as_json(arguments, found):
        for each in found:
            print(
                f"cell {each['cell']}  {each['application'] or '-'}  {each['state']}  "
                f"attempt {each['attempt'] or '-'}  AM {each['address'] or '-'}  "
                f"candidate {each['candidate'] or 'none'}"
            )
            for why in filter(None, (each["waits"], each["end"])):
                print(f"  {why}")
    return 0 if all(each["is_running"] for each in found) else 1


def _line(
    number: int, found: CellRecord | BadConfiguration, client: Any, zookeeper: ZooKeeper
) -> dict[str, Any]:
    leader = zookeeper.election.controller()
    candidate = next((each for each in zookeeper.registry.candidates() if each.cell == number), None)
    # An invalid record hides no other cell.
    record = found if isinstance(found, CellRecord) else CellRecord("")
    end = ended_application(client, record.application) if isinstance(found, CellRecord) else found
    report = yarn.report(client, record.application)
    state = yarn.state_of(report)
    is_running = state not in yarn.NOT_RUNNING
    return {
        "cell": number,
        "application": record.application,
        "is_running": is_running,
        "state": state,
        "waits": yarn.in_words(report) if is_running and state != "RUNNING" else None,
        "end": str(end) if end is not None else None,
        "attempt": record.attempt,
        "address": record.address,
        "candidate": candidate.candidate if candidate is not None else None,
        "lives": candidate.life if candidate is not None else None,
        "last_end": candidate.ended if candidate is not None else None,
        "leads": candidate is not None and leader is not None and leader.candidate == candidate.candidate,
    }


def file_of_cluster(arguments: argparse.Namespace) -> JobFile:
    """Return the job file to restore with, as one of the cluster that the command is about.

    Raises `BadConfiguration` if it names another cluster, or other ZooKeeper servers than the command.
    """
    cluster, connect = arguments.cluster or arguments.job, arguments.zookeeper
    environment = {**os.environ, "STANDFAST_ZOOKEEPER": connect}
    # A job may run with a number that is above the most allowed for a new one.
    job = load(arguments.restore, arguments.settings, environment, cluster, is_new=False)
    (servers, chroot), (own_servers, own_chroot) = read_servers(job.config.zookeeper), read_servers(connect)
    # A list of servers may be a part of the other.
    if set(servers).isdisjoint(own_servers) or chroot != own_chroot:
        raise BadConfiguration(
            f"{arguments.restore}: zookeeper.connect is {job.config.zookeeper}, and the command is about cluster "
            f"{cluster} on {connect}; correct --zookeeper, or give this cluster's file"
        )
    return job


def restore(
    arguments: argparse.Namespace, zookeeper: ZooKeeper, client: Any, progress: Progress
) -> dict[int, str]:
    """Return cell → the application submitted for it, for every cell of the cluster that does not run.

    Raises `BadConfiguration` if the job file is of another cluster than the session's, or sets other keys of it, and as
    `_refuse_without_bundle`.
    """
    path, job = arguments.restore, file_of_cluster(arguments)
    cluster = job.config.cluster
    if zookeeper.jobs.read(job.config.job_name) is None:
        raise BadConfiguration(f"{path}: there is no job {job.config.job_name} in cluster {cluster}")
    present = zookeeper.cells.read_all()
    running = {number: each for number, each in present.items() if yarn.is_running(client, each.application)}
    # With the settings with which the cluster was started, whichever of its jobs the file belongs to.
    shipped = recorded_environments((running or present).values())
    settings = job.restoring(recorded_settings(present.values()) or cluster_settings(job.config), shipped)
    given = [each.partition("=")[0].strip() for each in arguments.settings]
    check_restores(cluster, settings, job.config, given)
    config = parse({**job.flat, **settings})
    numbers = [each for each in range(1, config.cells + 1) if each not in running]
    if not numbers:
        return {}
    _refuse_without_bundle(zookeeper, is_running=len(numbers) < config.cells)
    if warning := other_environment_warning(config, shipped, is_restored=True):
        complain(warning)
    topology = yarn.topology(config, client)
    with job_code(job.directory, config.modules) as code:
        bundle = pack(code)
    with Undo(progress) as undo:
        launch = Launching(Deadline(_RESTORE_SECONDS), progress, undo)
        claims = Claims(zookeeper, config)
        claims.begin(undo)
        claims.take(numbers, client, undo)
        return dict(zip(numbers, submit(config, bundle, topology, claims, client, launch), strict=True))


def _refuse_without_bundle(zookeeper: ZooKeeper, *, is_running: bool) -> None:
    """Raise `BadConfiguration` naming the running jobs without a bundle: containers of a new cell would have no code.

    Such a job was submitted with an earlier release, whose applications ship its modules. ``is_running``: whether a
    cell of the cluster runs, so that there are candidates for an update.
    """
    lacking = []
    for name in zookeeper.jobs.names():
        try:
            present = zookeeper.changes.present(name)
        except BadConfiguration:
            continue  # An invalid record keeps no other job's cells away.
        led = effective(present.record) if present is not None and present.runs else None
        if led is not None and not led.definition.code:
            lacking.append(name)
    if lacking:
        remedy = (
            "run `standfast update` with the job file of each, which uploads them, and restore the cell after that"
            if is_running
            else "no cell runs, so run `standfast submit` with the job file of one, which starts the cluster again, "
            "and then `standfast submit --update` with that of each other"
        )
        raise BadConfiguration(
            f"{', '.join(lacking)}: submitted with an earlier release, which shipped the modules with each cell's "
            f"application; containers of a restored cell would not have them: {remedy}"
        )
