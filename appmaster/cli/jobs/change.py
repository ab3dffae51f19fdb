"""``standfast update`` and ``standfast rollback``: change a running job while it continues to run.

`update` compares the job file with the running job. Keys that only the leader uses apply at once, without starting
anything. Any other change is a new revision: containers are replaced one by one, standbys first, and actives are handed
over as planned. Changes that a running job cannot accept are refused, all of them in one message. If nothing has
changed and the candidates lack the job's code, they are given it.

`rollback` returns to the revision before the present one. It is refused if the present one has been active and has
another `task.stores.version`: the former code may not be able to read its state.

Exit status: 0 done, or nothing to do; 1 refused, or not rolled out in time (it continues); 2 the job, a key or a value
is wrong; 3 a server cannot be used; 130 interrupted (the roll-out continues).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from appmaster.adapters.kafka import Topics
from appmaster.api.client import DECIDED_SECONDS, ClusterClient
from appmaster.api.snapshot import requested_document
from appmaster.changes.operations import CurrentJob
from appmaster.changes.revisions import Update, basis_of, requested_settings, rollback, update
from appmaster.cli.jobs import rollout
from appmaster.cli.launch.checks import (
    check_candidates,
    check_placement,
    check_secrets,
    check_topics,
    describe_brokers,
    missing_candidates_warning,
    missing_hosts_warning,
    other_environment_warning,
    unused_topic_warning,
)
from appmaster.cli.launch.code import deliver
from appmaster.cli.shared import yarn
from appmaster.cli.shared.cluster import add_job_command, open_client
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.jobfile import add_job_file, load
from appmaster.cli.shared.output import Progress, printed_as_json
from appmaster.cli.shared.parsers import add_command, add_timeout
from appmaster.config import job_spec, planner_policy
from appmaster.records import JobRecord, recorded_environments
from standby.adapters.kafka.clients import check_clients
from standby.code.bundles import pack
from standby.code.reserved import check_names
from standby.config import JobConfig, check_size, kafka_settings, parse
from standby.errors import BadConfiguration, Transient, Unavailable
from standby.feed.functions import check_starts_no_spark, job_code, step_of
from standby.feed.make import check_transform


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``update`` and ``rollback`` on the command line."""
    text = "change a running job: its configuration, its code, or both"
    parser = add_command(subparsers, "update", _update, text, __doc__)
    add_job_file(parser, "the job file, as the job is to be")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    _add_waiting(parser)
    text = "return a job to the revision before the present one"
    _add_waiting(add_job_command(subparsers, "rollback", _rollback, text, __doc__))


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="say what would change, and change nothing")
    parser.add_argument(
        "--wait",
        choices=("deployed", "none"),
        default="deployed",
        help="what to wait for: everything rolled out (default), or nothing",
    )
    add_timeout(parser, 600.0, "how long to wait")


def _update(arguments: argparse.Namespace) -> int:
    progress = Progress()
    deadline = Deadline(arguments.timeout)
    job = load(arguments.job, arguments.settings, cluster=arguments.cluster)
    name = job.config.job_name
    check_names(job.directory, job.config.modules)
    with ClusterClient(job.config.cluster, job.config.zookeeper, tls=job.config.zookeeper_tls) as client:
        record = _running(name, client).record
        is_on_pool, cells = yarn.inspect_cells(client)
        settings = requested_settings(record)
        present = parse(settings)
        job = job.keeping(settings, is_on_pool=is_on_pool)
        check_placement(job.config)
        if job.config.python_archive and (warning := other_environment_warning(job.config, _shipped(client))):
            progress.say(warning)
        check_size(job.config, record.definition.tasks, present)
        progress.say("checking the job's functions")
        with job_code(job.directory, job.config.modules) as code:
            step_of(job.config, deadline.left_seconds)
            check_starts_no_spark(job.config)
            bundle = pack(code)
            change = update(record, job.flat, bundle.digest)
            if change.is_nothing:
                if not arguments.check and _is_lacked(name, client):
                    deliver(bundle, job.config, client, progress.say)
                    progress.say(f"the code of {name}, which candidates lacked, was uploaded again")
                progress.say(f"{name} is already as {arguments.job} requests; nothing was changed")
                return _print(arguments, record, change, status=None)
            for line in change.described():
                progress.say(line)
            # The definition is written there.
            check_secrets(job, lambda: _is_open(client))
            check_candidates(job.config, cells, is_new=False)
            warnings = (
                _short_of_hosts(job.config, client),
                missing_candidates_warning(job.config, cells, is_new=False),
                unused_topic_warning(job.config),
            )
            for line in filter(None, warnings):
                progress.say(line)
            if change.is_new_revision:
                progress.say("checking Kafka, and the job's transform")
                check_clients(job.config)
                check_topics(job, Topics(kafka_settings(job.config)), present)
                describe_brokers(job.config, record.definition)
                check_transform(job.config, code, deadline.left_seconds)
        if arguments.check:
            progress.say("everything is in order; nothing was changed")
            return _print(arguments, record, change, status=None)
        if change.is_new_revision:
            # Before the definition that names the bundle.
            deliver(bundle, job.config, client, progress.say)
        made = client.change(
            "update",
            deadline.within(DECIDED_SECONDS).left_seconds,
            job=name,
            config=dict(job.flat),
            code=bundle.digest,
            basis=basis_of(record),
        )
        if made["said"] != "; ".join(change.described()):
            progress.say(made["said"])
        written = _running(name, client).record
        if change.is_new_revision:
            progress.say(f"{name} is revision {written.definition.revision} now; rolling it out")
        status = _wait(arguments, deadline, client, written, progress)
        if status is not None:
            progress.say(f"{name} is updated")
    return _print(arguments, written, change, status)


def _shipped(client: ClusterClient) -> frozenset[str]:
    """Return the digests of the packed environments that the cluster ships, as far as they are known."""
    try:
        return recorded_environments(client.zookeeper.cells.read_each().values())
    except (BadConfiguration, Transient):
        return frozenset()  # as in `_is_open`


def _is_open(client: ClusterClient) -> bool:
    """Return whether the cluster's tree is known to be open to everybody."""
    try:
        return client.zookeeper.tree.is_open
    except (BadConfiguration, Transient):
        # It is closed to these credentials, with which the leader may well be asked, or not reached from here.
        return False


def _rollback(arguments: argparse.Namespace) -> int:
    progress = Progress()
    deadline = Deadline(arguments.timeout)
    with open_client(arguments) as client:
        present = _running(arguments.job, client, with_tasks=True)
        bad = present.record.definition.revision
        # The leader decides again when it makes the change: an active may have been handed over meanwhile.
        returned = rollback(present.record, present.active_revisions)
        old, new = present.record.former[0].revision, returned.definition.revision
        progress.say(f"returning from revision {bad} to revision {old}, as {new}")
        if arguments.check:
            return _print(arguments, present.record, None, status=None)
        within = deadline.within(DECIDED_SECONDS).left_seconds
        client.change("rollback", within, job=arguments.job, revision=bad)
        written = _running(arguments.job, client).record
        status = _wait(arguments, deadline, client, written, progress)
        if status is not None:
            progress.say(f"{arguments.job} runs as revision {old} did")
    return _print(arguments, written, None, status)


def _short_of_hosts(config: JobConfig, client: ClusterClient) -> str:
    """Return a warning if the hosts that the leader knows cannot hold every copy; empty without a leader's answer."""
    try:
        return missing_hosts_warning(config, len(usable_hosts(client.status())))
    except Unavailable:
        return ""


def usable_hosts(status: Mapping[str, Any]) -> frozenset[str]:
    """Return the hosts that may hold copies, according to the leader's status. Pure."""
    held = {each["host"] for each in status["containers"] if each["host"]}
    return frozenset({*status["hosts"], *held} - set(status["drained"]))


def _is_lacked(name: str, client: ClusterClient) -> bool:
    """Return whether a job's code is missing where it should be, as far as a candidate reports it."""
    try:
        info = client.info()
    except Unavailable:
        return False
    return any(name in info.get(what, {}) for what in ("waiting", "quarantined"))


def _running(name: str, client: ClusterClient, *, with_tasks: bool = False) -> CurrentJob:
    """Return a running job; raises `BadConfiguration` if it does not run."""
    present = client.present(name, with_tasks=with_tasks)
    if present is None:
        raise BadConfiguration(
            f"there is no job {name} in its cluster; `standfast submit` starts it (or is --cluster missing?)"
        )
    if not present.record.is_wanted:
        raise BadConfiguration(f"{name} does not run; `standfast submit` starts it")
    if not present.runs:
        raise BadConfiguration(f"{name} has failed ({present.failure}); `standfast submit` starts it again")
    return present


def _wait(
    arguments: argparse.Namespace,
    deadline: Deadline,
    client: ClusterClient,
    record: JobRecord,
    progress: Progress,
) -> dict[str, Any] | None:
    """Return the leader's status after the roll-out; None if the command does not wait for it."""
    if arguments.wait == "none":
        return None
    config, definition = parse(requested_settings(record)), record.definition
    goal = rollout.Goal(
        definition.name,
        definition.revision,
        requested_document(job_spec(config, definition.tasks), planner_policy(config)),
    )
    return rollout.wait(client, goal, deadline, progress)


def _print(
    arguments: argparse.Namespace,
    record: JobRecord,
    change: Update | None,
    status: Mapping[str, Any] | None,
) -> int:
    changes = [
        {"key": each.key, "before": before, "after": after, "applies": each.applies}
        for each in (change.differences if change is not None else ())
        for before, after in (each.shown,)
    ]
    document: dict[str, Any] = {
        "job": record.definition.name,
        "revision": record.definition.revision,
        "former": [each.revision for each in record.former],
        "changes": changes,
        "is_new_code": change is not None and change.is_new_code,
        "is_rolled_out": status is not None,
    }
    printed_as_json(arguments, document)
    return 0
