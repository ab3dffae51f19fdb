"""``standfast kill`` and ``standfast delete``.

`kill` ends a job's run for now: its record is withdrawn, every task's writer is fenced, the containers
are stopped, and only then is it killed; state, offsets and run stay, and the next submit goes on from
them. `delete` does that, then removes changelog, group, local state and records.

Exit status: 0 done; 1 it did not end in time; 2 no such job; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, Final

from appmaster.adapters import kafka
from appmaster.adapters.kafka import Topics
from appmaster.adapters.kazoo import ZooKeeper
from appmaster.cli import yarn
from appmaster.cli.output import Progress, print_json
from appmaster.cli.parsers import add_command
from standby import naming
from standby.config import kafka_settings, parse
from standby.errors import BadConfiguration, StandfastError
from standby.wire import JobDefinition

#: How long an orderly end may take before YARN is told to end the application, seconds.
_ORDERLY_SECONDS: Final = 60.0


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``kill`` and ``delete`` on the command line."""
    for name, run, text in (
        ("kill", _kill, "stop a job; its state and offsets stay for the next submit"),
        ("delete", _delete, "stop a job and remove its state, offsets and records"),
    ):
        parser = add_command(subparsers, name, run, text, __doc__)
        parser.add_argument("job", metavar="JOB", help="the job's name")
        add_cluster_options(parser)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which cluster is meant, and ``--json``."""
    parser.add_argument("--cluster", metavar="NAME", help="the cluster's name (default: the job's)")
    parser.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        default=os.environ.get("STANDFAST_ZOOKEEPER", ""),
        help="ZooKeeper servers (default: $STANDFAST_ZOOKEEPER)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def open_zookeeper(arguments: argparse.Namespace) -> ZooKeeper:
    """Return an unopened session for the cluster that the arguments name; raises `BadConfiguration`."""
    if not arguments.zookeeper:
        raise BadConfiguration("give --zookeeper HOSTS or set STANDFAST_ZOOKEEPER")
    return ZooKeeper(arguments.zookeeper, arguments.cluster or arguments.job)


def definition_of(job: str, zookeeper: ZooKeeper) -> JobDefinition:
    """Return the job's definition; raises `BadConfiguration` when there is no such job."""
    record = zookeeper.job(job)
    if record is None:
        raise BadConfiguration(
            f"there is no job {job} in its cluster; is the name right, or --cluster missing?"
        )
    return record.definition


def _kill(arguments: argparse.Namespace) -> int:
    progress = Progress(is_quiet=arguments.json)
    with open_zookeeper(arguments) as zookeeper:
        definition_of(arguments.job, zookeeper)
        with yarn.skein_client() as client:
            undeploy(
                arguments.job,
                arguments.cluster or arguments.job,
                zookeeper,
                client,
                purge=False,
                progress=progress,
            )
    if arguments.json:
        print_json({"job": arguments.job, "status": "killed"})
    else:
        progress.say(f"{arguments.job} is killed; its state and offsets are kept")
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    progress = Progress(is_quiet=arguments.json)
    cluster = arguments.cluster or arguments.job
    with open_zookeeper(arguments) as zookeeper:
        definition = definition_of(arguments.job, zookeeper)
        with yarn.skein_client() as client:
            undeploy(arguments.job, cluster, zookeeper, client, purge=True, progress=progress)
        topics = Topics(kafka_settings(parse(definition.config)))
        progress.say("removing changelog and offsets")
        topics.delete([definition.changelog])
        topics.delete_group(definition.group)
        zookeeper.delete_job(arguments.job)
        if not zookeeper.jobs():
            topics.delete([naming.event_topic(cluster)])
    if arguments.json:
        print_json({"job": arguments.job, "status": "deleted"})
    else:
        progress.say(f"{arguments.job} is deleted")
    return 0


def undeploy(
    job: str, cluster: str, zookeeper: ZooKeeper, client: Any, *, purge: bool, progress: Progress
) -> None:
    """End a job: through its leader while the application runs, else by fencing what may be left of it.

    Raises `StandfastError` when the application had to be ended by force and still runs.
    """
    definition = definition_of(job, zookeeper)
    cell = zookeeper.cell(1)
    application = cell.application if cell is not None else ""
    zookeeper.request(job, is_wanted=False, purge=purge)
    if yarn.is_running(client, application):
        progress.say(f"undeploying {job}")
        deadline = time.monotonic() + _ORDERLY_SECONDS
        while yarn.is_running(client, application) and time.monotonic() < deadline:
            time.sleep(0.2)
        if yarn.is_running(client, application):
            progress.say(f"it does not end by itself; telling YARN to end {application}")
            client.kill_application(application)
            _await_end(client, application)
            kafka.fence_job(cluster, definition)
    else:
        # No leader is left to do it: whatever still runs of it must not commit any more.
        progress.say(f"{application or 'its application'} does not run; fencing its tasks")
        kafka.fence_job(cluster, definition)
    zookeeper.drop_cell(1)


def _await_end(client: Any, application: str) -> None:
    deadline = time.monotonic() + 30
    while yarn.is_running(client, application):
        if time.monotonic() > deadline:
            raise StandfastError(f"{application} still runs, although YARN was told to end it")
        time.sleep(0.2)
