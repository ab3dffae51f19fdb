"""``standfast update`` and ``standfast rollback``: a running job changes, and goes on running.

`update` compares the job file with what runs. Keys that the leader alone acts on apply at once and start
nothing anew. Any other change is a new revision: containers are started anew one by one, standbys first, and
actives are handed over as planned. What cannot change on a running job is refused, all of it in one message.

`rollback` returns to the revision before the present one: as long as the present one has not been active anywhere,
or when both name the same `task.stores.version`.

Exit status: 0 done, or nothing to do; 1 refused, or not rolled out in time (it goes on); 2 the job, a key or a
value is wrong; 3 a server cannot be used; 130 interrupted (the roll-out goes on).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appmaster.adapters.kafka import Topics
from appmaster.adapters.kazoo import ZooKeeper
from appmaster.cli import rollout
from appmaster.cli.code import forget_code
from appmaster.cli.jobfile import JobFile, load
from appmaster.cli.output import Progress, print_json
from appmaster.cli.parsers import add_command
from appmaster.cli.stop import add_cluster_options
from appmaster.cli.submit import check_topics
from appmaster.client import ClusterClient
from appmaster.config import policy, spec
from appmaster.planning.view import JobState
from appmaster.records import JobRecord
from appmaster.revising import Update, asked_of, rollback, update
from appmaster.snapshot import asked
from standby.bundles import Bundle, pack
from standby.config import kafka_settings, parse
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.feed.functions import job_code, step_of
from standby.feed.make import check_transform


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``update`` and ``rollback`` on the command line."""

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        return add_command(subparsers, name, run, text, __doc__)

    parser = command("update", _update, "change a running job: its configuration, its code, or both")
    parser.add_argument("job", type=Path, metavar="JOB.YAML", help="the job file, as the job is to be")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="set a key on top of the file",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    _add_waiting(parser)
    parser = command("rollback", _rollback, "return a job to the revision before the present one")
    parser.add_argument("job", metavar="JOB", help="the job's name")
    add_cluster_options(parser)
    _add_waiting(parser)


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="say what would change, and change nothing")
    parser.add_argument(
        "--wait",
        choices=("deployed", "none"),
        default="deployed",
        help="what to wait for: everything rolled out (default), or nothing",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long to wait (default: %(default)g)",
    )


def _update(arguments: argparse.Namespace) -> int:
    progress = Progress()
    job = load(arguments.job, arguments.settings)
    name = job.config.job_name
    with ClusterClient(job.config.cluster, job.config.zookeeper) as client:
        zookeeper = client.zookeeper
        record = _running(name, zookeeper)
        job = job.keeping(asked_of(record))
        # The master resolves it too, and must not find it missing.
        spec(job.config, record.definition.tasks)
        progress.say("checking the job's functions")
        with job_code(job.directory, job.config.modules) as code:
            step_of(job.config)
            bundle = pack(code)
            change = update(record, job.flat, bundle.digest)
            if change.is_nothing:
                progress.say(f"{name} is as {arguments.job} asks for already; nothing was changed")
                return _print(arguments, record, change, status=None)
            for line in change.described():
                progress.say(line)
            if change.is_new_revision:
                progress.say("checking Kafka, and the job's transform")
                check_topics(job, Topics(kafka_settings(job.config)))
                check_transform(job.config, code)
        if arguments.check:
            progress.say("everything is in order; nothing was changed")
            return _print(arguments, record, change, status=None)
        written = _write(zookeeper, job, bundle, change)
        if change.is_new_revision:
            progress.say(f"{name} is revision {written.definition.revision} now; rolling it out")
        status = _wait(arguments, client, written, progress)
        if status is not None:
            progress.say(f"{name} is updated")
    return _print(arguments, written, change, status)


def _write(zookeeper: ZooKeeper, job: JobFile, bundle: Bundle, change: Update) -> JobRecord:
    """Return the job's record as it has been written; raises `BadConfiguration` when the job has gone."""
    before = change.record
    if change.is_new_revision:
        # Before the definition that names it.
        zookeeper.put_code(bundle.digest, bundle.data)

    def changed(present: JobRecord) -> JobRecord:
        nonlocal before
        before = present
        return update(present, job.flat, bundle.digest).record

    written = zookeeper.update_job(job.config.job_name, changed)
    if written is None:
        raise BadConfiguration(f"{job.config.job_name} was deleted meanwhile")
    forget_code(zookeeper, before, written)
    return written


def _rollback(arguments: argparse.Namespace) -> int:
    progress = Progress()
    if not arguments.zookeeper:
        raise BadConfiguration("give --zookeeper HOSTS or set STANDFAST_ZOOKEEPER")
    with ClusterClient(arguments.cluster or arguments.job, arguments.zookeeper) as client:
        zookeeper = client.zookeeper
        record = _running(arguments.job, zookeeper)
        bad = record.definition.revision
        returned = rollback(record, _active_revisions(client, arguments.job))
        old = record.former[0].revision
        progress.say(f"returning from revision {bad} to revision {old}, as {returned.definition.revision}")
        if arguments.check:
            return _print(arguments, record, None, status=None)
        before = record

        def changed(present: JobRecord) -> JobRecord:
            nonlocal before
            before = present
            if present.definition.revision != bad:
                raise StandfastError(
                    f"{arguments.job} is revision {present.definition.revision} meanwhile, not {bad} any more"
                )
            # Once more, at the last moment: an active may have been handed over meanwhile.
            return rollback(present, _active_revisions(client, arguments.job))

        written = zookeeper.update_job(arguments.job, changed)
        if written is None:
            raise BadConfiguration(f"{arguments.job} was deleted meanwhile")
        forget_code(zookeeper, before, written)
        status = _wait(arguments, client, written, progress)
        if status is not None:
            progress.say(f"{arguments.job} runs as revision {old} did")
    return _print(arguments, written, None, status)


def _active_revisions(client: ClusterClient, job: str) -> list[int]:
    """Return the highest revision that an active of each task was given: as recorded, and as the leader sees it."""
    loaded = client.zookeeper.load(job)
    found = [each.record.revision for each in loaded.tasks] if loaded is not None else []
    try:
        status = client.status()
    except Unavailable:
        return found
    runs = {each["container"]: each["revisions"].get(job, 0) for each in status["containers"]}
    return found + [
        runs.get(replica["container"], 0)
        for task in status["tasks"]
        if task["task"]["job"] == job
        for replica in task["replicas"]
        if replica["copy"] == task["active"]
    ]


def _running(name: str, zookeeper: ZooKeeper) -> JobRecord:
    """Return the record of a job that runs; raises `BadConfiguration` when it does not."""
    record = zookeeper.job(name)
    if record is None:
        raise BadConfiguration(
            f"there is no job {name} in its cluster; `standfast submit` starts it (or is --cluster missing?)"
        )
    if not record.is_wanted or zookeeper.cell(1) is None:
        raise BadConfiguration(f"{name} does not run; `standfast submit` starts it as its file says")
    status = zookeeper.status(name)
    if status is not None and status.state == JobState.FAILED:
        raise BadConfiguration(
            f"{name} has failed ({'; '.join(status.reasons)}); `standfast submit` starts it as its file says"
        )
    return record


def _wait(
    arguments: argparse.Namespace, client: ClusterClient, record: JobRecord, progress: Progress
) -> dict[str, Any] | None:
    """Return the leader's status after the roll-out; None when nobody waits for it."""
    if arguments.wait == "none":
        return None
    config, definition = parse(asked_of(record)), record.definition
    goal = rollout.Goal(
        definition.name, definition.revision, asked(spec(config, definition.tasks), policy(config))
    )
    return rollout.wait(client, goal, arguments.timeout, progress)


def _print(
    arguments: argparse.Namespace,
    record: JobRecord,
    change: Update | None,
    status: Mapping[str, Any] | None,
) -> int:
    if arguments.json:
        changes = [
            {"key": each.key, "before": each.before, "after": each.after, "applies": each.applies}
            for each in (change.differences if change is not None else ())
        ]
        document: dict[str, Any] = {
            "job": record.definition.name,
            "revision": record.definition.revision,
            "former": [each.revision for each in record.former],
            "changes": changes,
            "is_new_code": change is not None and change.is_new_code,
            "is_rolled_out": status is not None,
        }
        print_json(document)
    return 0
