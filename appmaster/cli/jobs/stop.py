"""``standfast kill`` and ``standfast delete``.

`kill` ends a job's run for now: its record is withdrawn, every task's writer is fenced, the containers are stopped, and
only then the job is killed. State, offsets and run are kept, and the next submit continues from them. `delete` does the
same, then removes changelog, group, local state and records.

Other jobs of the cluster continue. A cluster on YARN ends with its last job; the processes of a pool wait for the
next one.

A job whose tasks cannot be fenced does not end, because a container of it that cannot be reached could still commit.
If that is certainly impossible, `--unfenced` ends the job nevertheless.

Exit status: 0 done; 1 it did not end in time; 2 no such job; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, Final

from appmaster.adapters.kafka import Topics
from appmaster.api.client import ClusterClient
from appmaster.cli.jobs import sweeping
from appmaster.cli.launch.undeploy import UndeployOptions, undeploy
from appmaster.cli.shared import yarn
from appmaster.cli.shared.cluster import add_job_command, open_client, record_of
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress, printed_as_json
from standby.config import kafka_settings, parse
from standby.errors import StandfastError, Unavailable
from standby.shared import naming

#: How long ZooKeeper may still have a leader whose process was ended: a session's time-out and more, seconds.
_LEFT_SECONDS: Final = 30.0


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``kill`` and ``delete`` on the command line."""
    for name, run, text in (
        ("kill", _kill, "stop a job; its state and offsets stay for the next submit"),
        ("delete", _delete, "stop a job and remove its state, offsets and records"),
    ):
        parser = add_job_command(subparsers, name, run, text, __doc__)
        parser.add_argument(
            "--unfenced",
            action="store_true",
            help="end it although its tasks cannot be fenced; only when nothing of it can write to Kafka any more",
        )
        if name == "delete":
            parser.add_argument(
                "--no-sweep",
                action="store_true",
                help="leave the state on hosts without a container of the job; it is never used again",
            )


def _kill(arguments: argparse.Namespace) -> int:
    progress = Progress(is_quiet=arguments.json)
    with open_client(arguments) as client:
        tasks = record_of(arguments.job, client).definition.tasks
        with yarn.driver_of(is_pool=yarn.is_on_pool(client)) as driver:
            how = UndeployOptions(purge=False, is_unfenced=arguments.unfenced, tasks=tasks)
            undeploy(arguments.job, client, driver, how, progress=progress, deadline=Deadline(math.inf))
    if not printed_as_json(arguments, {"job": arguments.job, "status": "killed"}):
        progress.say(f"{arguments.job} is killed; its state and offsets are kept")
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    progress, deadline = Progress(is_quiet=arguments.json), Deadline(math.inf)
    cluster = arguments.cluster or arguments.job
    with open_client(arguments) as client:
        definition = record_of(arguments.job, client).definition
        with yarn.driver_of(is_pool=yarn.is_on_pool(client)) as driver:
            # In a pool, the next process that serves tasks on a host removes what is left there.
            is_swept = driver is not None and not arguments.no_sweep
            left = _hosts_left(arguments.job, client, driver) if is_swept else ()
            # The cells' records go with the last job.
            swept = sweeping.in_cluster(definition, client.zookeeper.cells.read_each().values())
            how = UndeployOptions(purge=True, is_unfenced=arguments.unfenced, tasks=definition.tasks)
            goes_on = undeploy(arguments.job, client, driver, how, progress=progress, deadline=deadline)
            if left:
                progress.say(f"removing its state on {', '.join(left)}")
                why = sweeping.sweep(cluster, swept, left, driver, deadline)
                if why:
                    progress.warn(f"some of it may be left there, and is never used again: {why}")
        progress.say("removing changelog and offsets")
        try:
            topics = Topics(kafka_settings(parse(definition.config)))
            topics.delete([definition.changelog])
            topics.delete_group(definition.group)
        except StandfastError as error:
            if not arguments.unfenced:
                raise
            # If it cannot be fenced, it usually cannot be reached either.
            topics = None
            progress.warn(f"{definition.changelog} and group {definition.group} are left: {error}")
        if goes_on:
            client.change("delete", job=arguments.job, **({"unfenced": True} if arguments.unfenced else {}))
        else:
            client.zookeeper.jobs.delete(arguments.job)
            client.zookeeper.tree.drop(_LEFT_SECONDS)
            if topics is not None and not client.zookeeper.jobs.names():
                topics.delete([naming.event_topic(cluster)])
    if not printed_as_json(arguments, {"job": arguments.job, "status": "deleted"}):
        progress.say(f"{arguments.job} is deleted")
    return 0


def _hosts_left(job: str, client: ClusterClient, driver: Any) -> tuple[str, ...]:
    """Return the hosts on which no ending container removes the job's state."""
    loaded = client.zookeeper.jobs.load(job)
    records = [each.record for each in loaded.tasks] if loaded is not None else []
    try:
        purged = sweeping.hosts_of_containers(client.status(), job)
    except Unavailable:
        purged = frozenset()
    running = [each.host for each in driver.get_nodes(states=["RUNNING"])]
    return sweeping.hosts_with_state(records, purged, running)
