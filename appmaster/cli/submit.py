"""``standfast submit``: check everything, then submit, then wait until every replica is in place.

The cluster is the one that `cluster.name` names, by default of the job's own name. When it runs already with other
jobs in it, the job is submitted into it through its candidates; else the cluster is started with it.

Exit status: 0 deployed; 1 the application ended or did not deploy in time; 2 the job, a key, a value or
a topic is wrong; 3 a server cannot be used; 130 interrupted (the job goes on being deployed).
"""

from __future__ import annotations

import argparse
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from appmaster import changelog, growth
from appmaster.adapters.kafka import Topics
from appmaster.adapters.kazoo import ZooKeeper
from appmaster.cli import starting, yarn
from appmaster.cli.code import bundle_of
from appmaster.cli.jobfile import JobFile, load
from appmaster.cli.observe import tasks_table
from appmaster.cli.output import Progress, print_json
from appmaster.client import ClusterClient, user_access
from appmaster.joining import check_joins
from appmaster.records import JobRecord
from appmaster.revising import asked_of, refuse_another_run
from standby import naming
from standby.bundles import pack
from standby.config import kafka_settings
from standby.errors import BadConfiguration, Unavailable
from standby.feed.functions import job_code, step_of
from standby.feed.make import check_transform
from standby.wire import JobDefinition


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``submit`` on the command line."""
    parser = subparsers.add_parser(
        "submit",
        help="check a job, submit it to YARN and wait until it is deployed",
        description="Check a job, submit it to YARN and wait until every replica is deployed.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", type=Path, metavar="JOB.YAML", help="the job file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="set a key on top of the file",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="if the job runs already, stop it and start it as it is now; its state stays",
    )
    parser.add_argument("--check", action="store_true", help="check everything, submit nothing")
    parser.add_argument(
        "--wait",
        choices=("deployed", "warm", "none"),
        default="deployed",
        help="what to wait for: all replicas registered and restored (default), also warm, or nothing",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long to wait (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_submit)


def _submit(arguments: argparse.Namespace) -> int:
    progress = Progress()
    job = load(arguments.job, arguments.settings)
    config = job.config
    yarn.hadoop_conf()
    progress.say("checking the job's functions")
    with job_code(job.directory, config.modules) as code, ThreadPoolExecutor(max_workers=1) as background:
        step_of(config)
        # Planning the transform takes a JVM some seconds; the servers are asked meanwhile.
        transform = background.submit(check_transform, config, code)
        progress.say("checking Kafka and ZooKeeper")
        topics = Topics(kafka_settings(config))
        tasks = check_topics(job, topics)
        # ZooKeeper is asked in their name.
        end = yarn.credentials_end()
        if end:
            progress.say(end)
        # A job that does not say takes the tree as it is.
        is_given = "zookeeper.acl" in job.flat
        access = user_access(is_closed=config.zookeeper_acl == "digest" if is_given else None)
        with (
            ZooKeeper(config.zookeeper, config.cluster, config.zookeeper_session_ms, access) as zookeeper,
            yarn.skein_client() as driver,
            ClusterClient(config.cluster, config.zookeeper) as client,
        ):
            progress.say("checking YARN")
            topology = check_yarn(job, driver)
            cluster = starting.look(config, zookeeper, driver)
            if cluster.has_job and not arguments.update:
                raise BadConfiguration(
                    f"{config.job_name} runs already in {', '.join(cluster.applications)}; stop it with "
                    f"`standfast kill {config.job_name}`, or submit with --update"
                )
            if cluster.has_others:
                check_joins(config.cluster, cluster.settings, job.given)
            bundle = pack(code) if cluster.has_others else bundle_of(code, config.code_distributor)
            present = cluster.present.record if cluster.present is not None else None
            definition = define(job, tasks, present, bundle.digest if bundle is not None else "")
            progress.say("checking the job's transform")
            transform.result()
            check_changelog(job, topics, definition, present)
            if arguments.check:
                progress.say("everything is in order; nothing was submitted")
                return 0
            starting.make_way(config.job_name, cluster, client, driver, progress)
            make_topics(job, topics, definition, present)
            started: tuple[str, ...] = ()
            if cluster.has_others and bundle is not None:
                started = starting.join(config, definition, bundle, client, driver, progress)
            if not started:
                started = starting.start(
                    config, definition, code, bundle, topology, zookeeper, driver, progress
                )
            progress.say(f"submitted as {', '.join(started)}")
            if arguments.wait == "none":
                return 0
            status = starting.wait_deployed(definition, client, driver, started, arguments, progress)
    seconds = progress.seconds
    if arguments.json:
        print_json({"applications": list(started), "seconds": round(seconds, 3), **status})
    else:
        progress.say(f"{config.job_name} is deployed")
        tasks_table(status, config.job_name)
    return 0


def check_topics(job: JobFile, topics: Topics) -> int:
    """Return the number of tasks, which is the number of partitions of every input.

    Raises `BadConfiguration` naming each topic that does not exist, or how many partitions each input has when
    the numbers differ.
    """
    config = job.config
    known = topics.partitions()
    dead_letter = (config.dead_letter,) if config.on_error == "dead-letter" else ()
    missing = [name for name in (*config.inputs, *config.outputs, *dead_letter) if name not in known]
    if missing:
        raise BadConfiguration(
            f"topic {', '.join(missing)} does not exist on {config.kafka_bootstrap}; create it, "
            f"or correct task.inputs{', task.dead.letter' if dead_letter else ''} and task.outputs"
        )
    if len({known[name] for name in config.inputs}) > 1:
        counts = ", ".join(f"{name} has {known[name]}" for name in config.inputs)
        raise BadConfiguration(
            f"task.inputs: the inputs need equally many partitions, because task n reads partition n of each; {counts}"
        )
    return known[config.inputs[0]]


def check_yarn(job: JobFile, client: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the hosts that get a service of their own, and the rack of every host.

    Raises `BadConfiguration` for what YARN cannot give.
    """
    nodes = client.get_nodes(states=["RUNNING"])
    if not nodes:
        raise Unavailable("YARN has no RUNNING node")
    config = job.config
    largest = max(int(each.total_resources.memory) for each in nodes)
    for key, memory in (
        ("cluster-manager.container.memory.mb", config.memory_mb),
        ("yarn.am.container.memory.mb", config.am_memory_mb),
    ):
        if memory > largest:
            raise BadConfiguration(f"{key}: {memory} MiB, but the largest host offers {largest}")
    names = {queue.name for queue in client.get_all_queues()}
    if config.queue not in names:
        raise BadConfiguration(f"yarn.queue: no queue {config.queue}; YARN has {', '.join(sorted(names))}")
    running = tuple(sorted(each.host for each in nodes))
    unknown = [each for each in config.hosts if each not in running]
    if unknown:
        raise BadConfiguration(
            f"yarn.hosts: {', '.join(unknown)} not RUNNING in YARN; it has {', '.join(running)}"
        )
    return config.hosts or running, {each.host: str(each.rack_name or "") for each in nodes}


def define(job: JobFile, tasks: int, present: JobRecord | None, code: str) -> JobDefinition:
    """Return the job's definition: of its present run when it has one, else of a new run.

    Raises `BadConfiguration` when the input is another one than the run's, or has another number of partitions
    and they may not become tasks.
    """
    config = job.config
    run = present.definition.run if present is not None else uuid.uuid4().hex
    if present is not None:
        refuse_another_run(asked_of(present), job.flat)
        before = present.definition.tasks
        if before > tasks or (before < tasks and not config.may_grow):
            may = " set task.inputs.may.grow if that is all right," if before < tasks else ""
            raise BadConfiguration(
                f"{', '.join(config.inputs)} has {tasks} partitions, but {config.job_name} was begun with {before}: "
                f"keys would move to other tasks than their state;{may} `standfast delete {config.job_name}` and "
                "submit it anew, or restore the topic"
            )
    return JobDefinition(
        name=config.job_name,
        run=run,
        config=dict(job.flat),
        changelog=naming.changelog_topic(config.cluster, config.job_name, config.stage, run),
        group=naming.consumer_group(config.cluster, config.job_name, config.stage, run),
        tasks=tasks,
        # Numbers go on over a kill: the records know which revision was active last.
        revision=present.definition.revision + 1 if present is not None else 1,
        code=code,
    )


def check_changelog(
    job: JobFile, topics: Topics, definition: JobDefinition, present: JobRecord | None
) -> None:
    """Raise `BadConfiguration` for a changelog that exists and is not what state needs; before anything is stopped."""
    if topics.count(definition.changelog):
        # It has the partitions of the tasks that were; those that the input grew by are added later.
        tasks = definition.tasks if present is None else present.definition.tasks
        changelog.check(topics, definition.changelog, tasks, job.config)


def make_topics(job: JobFile, topics: Topics, definition: JobDefinition, present: JobRecord | None) -> None:
    """Create the changelog and the event log, or check the ones that exist; adopt partitions of the input."""
    config = job.config
    if not changelog.make(topics, definition.changelog, definition.tasks, config):
        if present is not None and definition.tasks > present.definition.tasks:
            growth.prepare(topics, present, config, definition.tasks)
        changelog.check(topics, definition.changelog, definition.tasks, config)
    # A week of events, in one partition: its order is the cluster's history.
    topics.create(
        naming.event_topic(config.cluster), 1, config.changelog_replication, {"retention.ms": "604800000"}
    )
