"""``standfast submit``: check everything, then submit, then wait until every replica is in place.

Exit status: 0 deployed; 1 the application ended or did not deploy in time; 2 the job, a key, a value or
a topic is wrong; 3 a server cannot be used; 130 interrupted (the job goes on being deployed).
"""

from __future__ import annotations

import argparse
import getpass
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from appmaster import changelog, growth
from appmaster.adapters.kafka import Topics, now_ms
from appmaster.adapters.kazoo import ZooKeeper
from appmaster.cli import application, yarn
from appmaster.cli.code import bundle_of, forget_code
from appmaster.cli.jobfile import JobFile, load
from appmaster.cli.observe import tasks_table
from appmaster.cli.output import Progress, print_json
from appmaster.cli.stop import undeploy
from appmaster.client import ClusterClient
from appmaster.records import CellRecord, JobRecord
from appmaster.revising import asked_of, refuse_another_run
from embedded import jars
from standby import naming
from standby.bundles import Bundle
from standby.config import kafka_settings
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.feed.functions import job_code, step_of
from standby.feed.make import check_transform
from standby.wire import JobDefinition

_POLL_SECONDS: Final = 0.25


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
        with (
            ZooKeeper(config.zookeeper, config.cluster, config.zookeeper_session_ms) as zookeeper,
            yarn.skein_client() as client,
        ):
            progress.say("checking YARN")
            hosts, racks = check_yarn(job, client)
            running = _running(zookeeper, client)
            if running and not arguments.update:
                raise BadConfiguration(
                    f"{config.job_name} runs already as {running}; stop it with `standfast kill {config.job_name}`, "
                    "or submit with --update"
                )
            present = zookeeper.job(config.job_name) if zookeeper.exists() else None
            bundle = bundle_of(code)
            definition = define(job, tasks, present, bundle.digest if bundle is not None else "")
            progress.say("checking the job's transform")
            transform.result()
            check_changelog(job, topics, definition, present)
            if arguments.check:
                progress.say("everything is in order; nothing was submitted")
                return 0
            if running:
                progress.say(f"updating: stopping {running}")
                undeploy(config.job_name, config.cluster, zookeeper, client, purge=False, progress=progress)
            make_topics(job, topics, definition, present)
            application_id = start(job, definition, code, bundle, (hosts, racks), zookeeper, client, progress)
            progress.say(f"submitted as {application_id}")
            if arguments.wait == "none":
                return 0
            status = wait_deployed(job, client, application_id, arguments, progress)
    seconds = progress.seconds
    if arguments.json:
        print_json({"application": application_id, "seconds": round(seconds, 3), **status})
    else:
        progress.say(f"{config.job_name} is deployed")
        tasks_table(status)
    return 0


def start(
    job: JobFile,
    definition: JobDefinition,
    code: Path,
    bundle: Bundle | None,
    topology: tuple[Sequence[str], Mapping[str, str]],
    zookeeper: ZooKeeper,
    client: Any,
    progress: Progress,
) -> str:
    """Return the id of the YARN application that has been submitted for the job, recorded as its cell.

    ``topology`` is the hosts that get a service of their own, and every host's rack. The cell's record is
    claimed before, so that two submits never make one cell twice.
    """
    config = job.config
    zookeeper.prepare()
    former = zookeeper.cell(1)
    claim = CellRecord("", now_ms(), getpass.getuser())
    if not zookeeper.claim_cell(1, claim, replaces=former):
        raise BadConfiguration(f"somebody else is submitting cluster {config.cluster} at this moment")
    try:
        if bundle is not None:
            # Before the definition that names it: hosts that come late and later revisions fetch the same.
            zookeeper.put_code(bundle.digest, bundle.data)
        former_record = zookeeper.job(definition.name)
        record = JobRecord(definition)
        zookeeper.put_job(record)
        if former_record is not None:
            forget_code(zookeeper, former_record, record)
        progress.say("submitting to YARN")
        with tempfile.TemporaryDirectory(prefix="standfast-") as scratch:
            connector = jars.classpath("spark-kafka") if config.feed == "spark" else []
            hosts, racks = topology
            spec = application.build(
                config, hosts, code, connector, Path(scratch), yarn.hadoop_conf(), racks=racks
            )
            application_id: str = client.submit(spec)
    except BaseException:
        zookeeper.drop_cell(1)
        raise
    zookeeper.put_cell(1, CellRecord(application_id, claim.submitted_ms, claim.submitter))
    return application_id


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


def _running(zookeeper: ZooKeeper, client: Any) -> str:
    cell = zookeeper.cell(1)
    return cell.application if cell is not None and yarn.is_running(client, cell.application) else ""


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


def wait_deployed(
    job: JobFile, client: Any, application_id: str, arguments: argparse.Namespace, progress: Progress
) -> dict[str, Any]:
    """Return the leader's status once the job is deployed (and warm, if asked for).

    Raises `StandfastError` with the reasons when the application ends, or the time is over.
    """
    deadline = time.monotonic() + arguments.timeout
    looked = 0.0
    reasons: Sequence[str] = ()
    with ClusterClient(job.config.cluster, job.config.zookeeper) as cluster:
        while time.monotonic() < deadline:
            if time.monotonic() - looked > 2.0:
                looked = time.monotonic()
                if not yarn.is_running(client, application_id):
                    report = client.application_report(application_id)
                    raise StandfastError(
                        f"{application_id} ended: {report.diagnostics or report.final_status}; "
                        f"see `standfast logs {job.config.job_name}`"
                    )
            try:
                status = cluster.status()
            except Unavailable:
                progress.say("waiting for the application master")
                time.sleep(_POLL_SECONDS)
                continue
            mine = next((each for each in status["jobs"] if each["name"] == job.config.job_name), None)
            if mine is not None and mine["status"] == "failed":
                raise StandfastError(f"{job.config.job_name} failed: {'; '.join(mine['reasons'])}")
            if mine is not None:
                reasons = mine["reasons"]
                cold = [each["container"] for each in status["containers"] if not each["warm"]]
                if mine["status"] == "deployed" and (arguments.wait == "deployed" or not cold):
                    if not cold:
                        progress.say("all containers are warm")
                    else:
                        progress.say(
                            f"{len(cold)} of {len(status['containers'])} containers are not warm yet"
                        )
                    return status
                progress.say(_describe(mine, status, cold))
            time.sleep(_POLL_SECONDS)
    raise StandfastError(
        f"{job.config.job_name} is not deployed after {arguments.timeout:g} s ({'; '.join(reasons)}); "
        f"it goes on trying: see `standfast status {job.config.job_name}`"
    )


def _describe(mine: dict[str, Any], status: dict[str, Any], cold: list[str]) -> str:
    registered = len(status["containers"])
    wanted = mine["processors"] * mine["copies"]
    placed = [each for task in status["tasks"] for each in task["replicas"]]
    ready = sum(each["phase"] in ("active", "tailing") for each in placed)
    return (
        f"{registered} of {wanted} containers registered, {ready} of {len(placed)} replicas restored, "
        f"{registered - len(cold)} containers warm"
    )
