"""``standfast topics``: the topics of a job's run, and whether they are still the same ones.

A topic is identified by its id, not its name. One that was deleted and created again is a different topic: the job
stops if it is an input or the changelog, and continues if it is an output. ``--accept TOPIC`` accepts the present topic
as the run's own. The job must not run. An input is then read from where ``--from`` says, once. A changelog begins with
its present content, usually nothing: the job's state is empty then, and local copies of the former one are removed when
the job starts. Its inputs continue at the committed offsets, or are read again with ``--from``. A changelog that has
kept its id, such as a truncated one, can be accepted with the same effect.

Exit status: 0 printed, or accepted; 1 a topic is a different one or missing, or the job runs; 2 no such job or topic; 3
a server cannot be used.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from appmaster.adapters.kafka import Topics
from appmaster.api.client import ClusterClient
from appmaster.changes.operations import CurrentJob
from appmaster.changes.revisions import requested_settings
from appmaster.cli.shared.cluster import add_job_command, open_client, present_job
from appmaster.cli.shared.output import Progress, print_table, printed_as_json
from appmaster.planning.state.job import JobState
from appmaster.records import JobRecord
from appmaster.topics.ids import accept, kinds, with_topics
from standby.config import JobConfig, kafka_settings, parse
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared.model import TopicIdentity
from standby.shared.wire import JobDefinition


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``topics`` on the command line."""
    text = "show a job's topics, or accept one that was made again"
    parser = add_job_command(subparsers, "topics", _topics, text, __doc__)
    parser.add_argument(
        "--accept", metavar="TOPIC", help="accept the present topic of this name as the run's own"
    )
    parser.add_argument(
        "--from",
        dest="start",
        choices=("earliest", "latest"),
        default="",
        help="where to read the accepted input from; with an accepted changelog: every input",
    )


def _topics(arguments: argparse.Namespace) -> int:
    if arguments.start and not arguments.accept:
        raise BadConfiguration("--from goes with --accept TOPIC")
    with open_client(arguments) as client:
        present = present_job(arguments.job, client)
        definition, config = present.record.definition, parse(requested_settings(present.record))
        found = Topics(kafka_settings(config)).ids(kinds(definition, config))
        if arguments.accept:
            topics = accept(definition, config, arguments.accept, found, arguments.start)
            _check_stopped(present, client)
            _record(client, present.record, topics)
            return _accepted(arguments, definition, config, topics)
    rows = table(definition, config, found)
    if not printed_as_json(arguments, {"job": definition.name, "run": definition.run, "topics": rows}):
        columns = ("topic", "is", "recorded_id", "topic_id", "state")
        print_table(
            tuple(each.replace("_", " ").upper() for each in columns),
            [[row[each] for each in columns] for row in rows],
        )
    return int(any(each["state"] in ("made again", "missing") for each in rows))


def table(definition: JobDefinition, config: JobConfig, found: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a job's topics as JSON-ready rows, each with its comparison to the run's record. Pure."""
    rows = []
    for topic, kind in kinds(definition, config).items():
        known, present = definition.topics.get(topic, TopicIdentity()), found.get(topic)
        state = "same" if known.id == present else "made again"
        if present is None:
            state = "missing"
        elif not known.id:
            state = "not recorded"
        rows.append(
            {
                "topic": topic,
                "is": kind,
                "recorded_id": known.id or None,
                "topic_id": present,
                "state": state,
            }
        )
    return rows


def _check_stopped(present: CurrentJob, client: ClusterClient) -> None:
    """Raise `StandfastError` unless nothing of the job commits any more: it was killed, or has failed."""
    name = present.record.definition.name
    if present.runs:
        raise StandfastError(f"{name} runs; `standfast kill {name}` first")
    if not present.record.is_wanted and present.state != JobState.UNDEPLOYED:
        try:
            client.info()
        except Unavailable:
            return  # There is no leader: the command that withdrew the job has fenced its tasks.
        raise StandfastError(f"{name} is still being stopped; try again in a moment")


def _record(client: ClusterClient, record: JobRecord, topics: Mapping[str, TopicIdentity]) -> None:
    before = record.definition

    def change(present: JobRecord) -> JobRecord:
        now = present.definition
        if (now.run, now.revision, now.topics) != (before.run, before.revision, before.topics):
            raise StandfastError(f"{before.name} was changed by another client meanwhile; try again")
        return with_topics(present, before.topics, topics)

    if client.zookeeper.jobs.update(before.name, change) is None:
        raise BadConfiguration(f"{before.name} was deleted meanwhile")


def _accepted(
    arguments: argparse.Namespace,
    definition: JobDefinition,
    config: JobConfig,
    topics: Mapping[str, TopicIdentity],
) -> int:
    topic = arguments.accept
    kind = kinds(definition, config)[topic]
    said = {
        "input": f"it is read from its {arguments.start} record on",
        "changelog": "the job's state begins with what it holds, and the inputs "
        + (
            f"are read from their {arguments.start} records on"
            if arguments.start
            else "continue at the committed offsets"
        ),
    }.get(kind, "the job writes to it")
    if not printed_as_json(
        arguments,
        {"job": definition.name, "topic": topic, "is": kind, "topic_id": topics[topic].id, "said": said},
    ):
        Progress().say(f"{kind} {topic} is accepted: when {definition.name} is submitted again, {said}")
    return 0
