"""``standfast submit``: check everything, then submit, then wait until every replica is in place.

The cluster is the one that `cluster.name` or ``--cluster`` names, by default of the job's own name. If it already runs
with other jobs, the job is submitted into it through its candidates; otherwise it is started with the job.

Exit status: 0 deployed; 1 the application ended, did not deploy in time, or failed at once; 2 the job, a key, a value
or a topic is wrong; 3 a server cannot be used; 129, 130, 143 ended by SIGHUP, Ctrl-C or SIGTERM (once the job is
submitted, the deployment continues).
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from appmaster.adapters.code.hadoop import find_shell
from appmaster.adapters.credentials.keyring import find, make_sure
from appmaster.adapters.kafka import EventLog, Topics
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.changes.compatibility import check_joins
from appmaster.changes.revisions import grown, refuse_another_run, requested_settings
from appmaster.cli.launch import cells, checks, probe, starting
from appmaster.cli.reading.observe import tasks_table
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.ended_applications import ApplicationWatch
from appmaster.cli.shared.jobfile import JobFile, add_job_file, load
from appmaster.cli.shared.output import Progress, printed_as_json
from appmaster.cli.shared.parsers import add_command, add_timeout
from appmaster.cli.shared.undo import Undo
from appmaster.records import JobRecord
from appmaster.topics import brokers, changelog, event_log, input_growth
from standby.adapters.kafka.clients import check_clients
from standby.adapters.zookeeper.access import owner_access
from standby.code.bundles import pack
from standby.code.reserved import check_names
from standby.config import JobConfig, kafka_settings
from standby.errors import BadConfiguration, StandfastError
from standby.feed.functions import check_starts_no_spark, job_code, step_of
from standby.feed.make import check_transform
from standby.shared import naming
from standby.shared.wire import JobDefinition


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``submit`` on the command line."""
    text = "check a job, submit it and wait until every replica is deployed"
    parser = add_command(subparsers, "submit", _submit, text, __doc__)
    add_job_file(parser, "the job file")
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
    add_timeout(parser, 300.0, "how long the whole command may take")
    parser.add_argument(
        "--probe",
        action=argparse.BooleanOptionalAction,
        help="look at one of the hosts first, with a container of a few seconds (default: for a job that is new, and "
        "with --check)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


@dataclass(frozen=True, slots=True)
class _Servers:
    """The servers that a submit communicates with."""

    topics: Topics
    zookeeper: ZooKeeper
    driver: Any
    """YARN, through Skein."""
    client: ClusterClient


@dataclass(frozen=True, slots=True)
class _Checked:
    """A job that can be submitted, as far as can be checked beforehand."""

    job: JobFile
    start: starting.JobStart
    cluster: starting.TargetCluster


def _submit(arguments: argparse.Namespace) -> int:
    progress = Progress()
    deadline = Deadline(arguments.timeout)
    job = load(arguments.job, arguments.settings, cluster=arguments.cluster)
    config = job.config
    checks.check_placement(config)
    _check_hadoop(config)
    check_names(job.directory, config.modules)
    progress.say("checking the job's functions")
    with (
        job_code(job.directory, config.modules) as code,
        ExitStack() as opened,
        ThreadPoolExecutor(max_workers=2) as background,
    ):
        step_of(config, deadline.left_seconds)
        check_starts_no_spark(config)
        # All clients that the job will make, before any server is asked or changed.
        check_clients(config)
        # Skein's driver and planning the transform take a JVM some seconds each; meanwhile the servers are asked.
        starting_driver = background.submit(_start_driver, config, opened, deadline)
        transform = background.submit(check_transform, config, code, deadline.left_seconds)
        progress.say("checking Kafka and ZooKeeper")
        topics = Topics(kafka_settings(config))
        tasks = checks.check_topics(job, topics)
        # ZooKeeper is accessed with these credentials.
        ring = make_sure(config.cluster)
        if end := ring.expiry_warning():
            progress.say(end)
        access = owner_access(
            ring.secret,
            is_closed=None if config.zookeeper_acl == "digest" else False,
            tls=config.zookeeper_tls,
        )
        with (
            ZooKeeper(config.zookeeper, config.cluster, config.zookeeper_session_ms, access) as zookeeper,
            ClusterClient(config.cluster, config.zookeeper, tls=config.zookeeper_tls) as client,
            probe.HostProbe(background) as probing,
        ):
            # Whether a driver can start on this machine does not matter to a pool.
            driver = None if yarn.is_pool(zookeeper) else starting_driver.result()
            servers = _Servers(topics, zookeeper, driver, client)
            progress.say("checking YARN" if driver is not None else "checking the pool")
            checked = _check(arguments, job, code, tasks, servers, progress.say)
            _look_further(checked, servers, progress, deadline)
            when = probe.probe_time(arguments.probe, checked.cluster, is_check=arguments.check)
            if when is not probe.ProbeTime.NEVER:
                probing.begin(config, servers.driver, deadline, progress)
            if when is probe.ProbeTime.FIRST:
                probing.finish()
            progress.say("checking the job's transform")
            transform.result()
            if arguments.check:
                progress.say("everything is in order; nothing was submitted")
                _is_printed(arguments, (), progress)
                return 0
            if deadline.is_over:
                raise StandfastError(
                    f"the checks alone took {deadline.seconds:g} s; nothing was submitted: give a longer --timeout"
                )
            with Undo(progress) as undo:
                launch = cells.Launching(deadline, progress, undo, probing.finish)
                applications, deployed = _launch(arguments, checked, servers, launch)
            # The driver takes a second to end, and a job that has just begun may fail in that time.
            opened.close()
            if deployed is None:
                _is_printed(arguments, applications, progress)
                return 0
            status, said = starting.final_status(config.job_name, deployed, client)
    if not _is_printed(arguments, applications, progress, status):
        progress.say(said)
        tasks_table(status, config.job_name)
    return 0


def _is_printed(
    arguments: argparse.Namespace,
    applications: Iterable[str],
    progress: Progress,
    status: Mapping[str, Any] | None = None,
) -> bool:
    """Print the result if it is wanted as JSON; return whether it is."""
    named = [each for each in applications if each != naming.POOL]
    return printed_as_json(
        arguments, {"applications": named, "seconds": round(progress.seconds, 3), **(status or {})}
    )


def _check_hadoop(config: JobConfig) -> None:
    """Raise `BadConfiguration` if YARN's configuration is unusable, before anything is touched; a pool needs none.

    It is read again where it is shipped.
    """
    try:
        yarn.hadoop_configuration()
    except BadConfiguration:
        if not _is_on_pool(config):
            raise


def _start_driver(config: JobConfig, opened: ExitStack, deadline: Deadline) -> Any:
    """Return YARN through Skein, closed with ``opened``; None for a cluster on a pool, which needs no driver."""
    return None if _is_on_pool(config) else opened.enter_context(yarn.skein_client(deadline))


def _is_on_pool(config: JobConfig) -> bool:
    """Return whether the job's cluster is known to run on a pool."""
    ring = find(config.cluster)
    if ring is None or not ring.is_whole:
        return False  # no cluster of this user has that name yet
    with ZooKeeper(
        config.zookeeper, config.cluster, access=ring.access(tls=config.zookeeper_tls)
    ) as zookeeper:
        return yarn.is_pool(zookeeper)


def _look_further(checked: _Checked, servers: _Servers, progress: Progress, deadline: Deadline) -> None:
    """Print warnings, and check what the job's cluster needs; raises `StandfastError` if that is missing."""
    job, config = checked.job, checked.job.config
    is_new = not checked.cluster.has_others
    if is_new and not servers.zookeeper.tree.exists():
        checks.check_no_namesake(config, servers.topics, deadline)
    _, racks = checked.start.topology
    of_cluster = {} if is_new else checked.cluster.settings
    number = None if servers.driver is None else int(of_cluster.get("appmaster.cells", config.cells))
    checks.check_candidates(config, number, is_new=is_new)
    warnings = (
        checks.check_tree(job, is_open=servers.zookeeper.tree.is_open, is_new=is_new),
        checks.missing_candidates_warning(config, number, is_new=is_new),
        checks.missing_hosts_warning(config, len(racks)),
        checks.unused_topic_warning(config),
        *brokers.warnings(checks.describe_brokers(config, checked.start.definition)),
    )
    for each in filter(None, warnings):
        progress.say(each)
    if is_new and servers.driver is not None:
        for each in checks.allocation_warnings(config, yarn.hadoop_configuration()):
            progress.say(each)
    if is_new:
        cells.check(config, checked.start.bundle, checked.start.topology)


def _check(
    arguments: argparse.Namespace,
    job: JobFile,
    code: Path,
    tasks: int,
    servers: _Servers,
    say: Callable[[str], None],
) -> _Checked:
    """Return the job with the servers' answers about it; raises `StandfastError` if it cannot be submitted."""
    config = job.config
    cluster = starting.inspect_cluster(config, servers.zookeeper, servers.driver)
    if cluster.has_job and not arguments.update:
        raise BadConfiguration(
            f"{config.job_name} runs already in {cluster.in_words}; stop it with "
            f"`standfast kill {config.job_name}`, or submit with --update"
        )
    if cluster.has_others:
        check_joins(config.cluster, cluster.settings, job.joining(cluster.settings, cluster.environments))
        if warning := checks.other_environment_warning(config, cluster.environments):
            say(warning)
    if servers.driver is None:
        if arguments.probe:
            raise BadConfiguration(
                "--probe: the cluster is a pool, whose processes run on their hosts already; leave it out"
            )
        pool = checks.check_pool(config, servers.zookeeper)
        if pool.lack:
            say(f"warning: no process of the pool fits, and the job waits until one comes: {pool.lack}")
        topology: cells.Topology = (pool.hosts, dict.fromkeys(pool.hosts, ""))
        job = job.on_pool(
            pool.waiting, requested_settings(cluster.record) if cluster.record is not None else {}
        )
        config = job.config
    elif cluster.has_others:
        # What is asked of YARN are the cluster's own values, which it runs with.
        topology = checks.topology_of(config, servers.driver)
    else:
        topology = checks.check_yarn(config, servers.driver)
    if config.code_distributor == "hdfs":
        find_shell()
    bundle = pack(code)
    present = cluster.record
    definition = define(job, tasks, present, bundle.digest)
    definition = checks.with_topic_ids(config, servers.topics, definition, say, has_run=present is not None)
    checks.check_changelog(job, servers.topics, definition, present)
    return _Checked(job, starting.JobStart(config, definition, bundle, topology), cluster)


def _launch(
    arguments: argparse.Namespace, checked: _Checked, servers: _Servers, launch: cells.Launching
) -> tuple[tuple[str, ...], dict[str, Any] | None]:
    """Return the applications of the job's cluster, and its status once it is deployed; None if nothing waits."""
    start, cluster, progress = checked.start, checked.cluster, launch.progress
    client, driver = servers.client, servers.driver
    config, definition = start.config, start.definition
    starting.clear_former_deployment(config.job_name, cluster, client, driver, launch)
    before = starting.state_before(config.job_name, servers.zookeeper)

    def make() -> JobDefinition:
        make_topics(checked.job, servers.topics, definition, cluster.record, launch.undo)
        if cluster.record is not None:
            # The changelog has partitions for them now: they stay tasks, whatever becomes of the submit.
            servers.zookeeper.jobs.update(config.job_name, lambda record: grown(record, definition.tasks))
        return checks.with_ids_of_the_run(config, servers.topics, definition, launch.deadline)

    started: tuple[str, ...] = ()
    if cluster.has_others:
        ready = replace(start, definition=make())
        started = starting.join(ready, client, driver, launch)
    if not started:
        if cluster.has_others and driver is not None:
            # It ended meanwhile, so this job starts it, with its own values of the cluster's keys.
            start = replace(start, topology=checks.check_yarn(config, driver))
            cells.check(config, start.bundle, start.topology)
        started = starting.start(start, make, servers.zookeeper, driver, launch)
    progress.say("submitted to the pool" if cluster.is_pool else f"submitted as {', '.join(started)}")
    if arguments.wait == "none":
        return started, None
    with closing(EventLog(kafka_settings(config), naming.event_topic(config.cluster))) as events:
        ends = ApplicationWatch(config.job_name, progress.say, events.append)
        awaited = starting.SubmittedJob(definition, started, before, arguments.wait == "warm", ends)
        return started, starting.wait_deployed(awaited, client, driver, launch)


def define(job: JobFile, tasks: int, present: JobRecord | None, code: str) -> JobDefinition:
    """Return the job's definition: of its present run if it has one, else of a new run.

    Raises `BadConfiguration` if the input is not the run's, or has another number of partitions which may not become
    tasks.
    """
    config = job.config
    run = present.definition.run if present is not None else uuid.uuid4().hex
    if present is not None:
        refuse_another_run(requested_settings(present), job.flat)
        before = present.definition.tasks
        if before > tasks or (before < tasks and not config.may_grow):
            may = " set task.inputs.may.grow if that is acceptable," if before < tasks else ""
            raise BadConfiguration(
                f"{', '.join(config.inputs)} has {tasks} partitions, but {config.job_name} was begun with {before}: "
                f"keys would move to other tasks than their state;{may} `standfast delete {config.job_name}` and "
                "submit it again, or restore the topic"
            )
    return JobDefinition(
        name=config.job_name,
        run=run,
        config=dict(job.flat),
        changelog=naming.changelog_topic(config.cluster, config.job_name, config.stage, run),
        group=naming.consumer_group(config.cluster, config.job_name, config.stage, run),
        tasks=tasks,
        # Numbers continue over a kill: the records know which revision was active last.
        revision=present.definition.revision + 1 if present is not None else 1,
        code=code,
        topics=present.definition.topics if present is not None else {},
    )


def make_topics(
    job: JobFile, topics: Topics, definition: JobDefinition, present: JobRecord | None, undo: Undo
) -> None:
    """Create the changelog and the event log, or check the existing ones; adopt partitions of the input.

    ``undo`` removes topics that did not exist before; adopted partitions stay.
    """
    config = job.config
    events = naming.event_topic(config.cluster)
    for name in (definition.changelog, events):
        if not topics.count(name):
            undo.on_failure(f"topic {name}", partial(topics.delete, [name]))
    if present is None:
        # Containers may have been started before the submit was complete.
        undo.on_failure(f"the offsets of {config.job_name}", partial(topics.delete_group, definition.group))
    if not changelog.make(topics, definition.changelog, definition.tasks, config):
        if present is not None and definition.tasks > present.definition.tasks:
            input_growth.prepare(topics, present, config, definition.tasks)
        changelog.check(topics, definition.changelog, definition.tasks, config)
    event_log.make(topics, config.cluster, config.changelog_replication)
