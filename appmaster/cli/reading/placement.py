"""``standfast model`` and ``standfast explain``: where copies are, and why.

`model` shows the recorded job model: processors, tasks, copies, roles, changelog partitions, hosts. It is read from
ZooKeeper, so no leader is needed. `explain` asks the leader why each copy of a task is where it is, and why no other
host is better.

Exit status: 0 printed; 2 no such job or task; 3 a server cannot be used, or (explain) there is no leader.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from appmaster.cli.shared.cluster import add_job_command, known_client, open_zookeeper
from appmaster.cli.shared.output import print_table, printed_as_json
from appmaster.records import Loaded
from standby.errors import BadConfiguration
from standby.shared.model import TaskRecord


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the commands on the command line."""
    command = partial(add_job_command, subparsers, doc=__doc__)
    command("model", _model, "show the job model: processors, tasks, copies, roles, hosts")
    explained = command("explain", _explain, "show why a task's copies are where they are")
    explained.add_argument("task", metavar="TASK", type=int, help="number of the task's input partition")


def _model(arguments: argparse.Namespace) -> int:
    with open_zookeeper(arguments) as zookeeper:
        loaded = zookeeper.jobs.load(arguments.job)
    if loaded is None:
        raise BadConfiguration(f"there is no job {arguments.job} in its cluster; is --cluster missing?")
    document = as_document(loaded)
    if printed_as_json(arguments, document):
        return 0
    kind = f", {document['containers']} mixed containers" if document["mixed"] else ""
    print(
        f"{document['job']}: model version {document['version']}, revision {document['revision']}{kind}; "
        f"changelog {document['changelog']}"
    )
    print()
    rows = [
        (
            each["number"],
            task["task"],
            task["changelog_partition"],
            task["epoch"],
            _placed(each["parked"], task["active"]),
            ", ".join(_placed("", standby) for standby in task["standbys"]) or None,
        )
        for each in document["processors"]
        for task in each["tasks"]
    ]
    print_table(("PROCESSOR", "TASK", "CHANGELOG PARTITION", "EPOCH", "ACTIVE", "STANDBYS"), rows)
    for each in document["processors"]:
        if each["parked"]:
            print(f"processor {each['number']} is parked: {each['parked']}")
    return 0


def as_document(loaded: Loaded) -> dict[str, Any]:
    """Return a job's recorded model, with roles and locality from the task records, as JSON-ready data. Pure."""
    definition = loaded.job.definition
    model = loaded.model
    records = {each.record.task.partition: each.record for each in loaded.tasks}
    return {
        "job": definition.name,
        "run": definition.run,
        "revision": definition.revision,
        "changelog": definition.changelog,
        "version": model.version if model is not None else 0,
        "mixed": model.is_mixed if model is not None else False,
        "containers": (model.containers or len(model.slots)) if model is not None else 0,
        "processors": [
            {
                "number": processor.number,
                "stage": processor.stage,
                "copies": list(each.copies),
                "parked": str(each.parked or ""),
                "tasks": [
                    _task(each.copies, records.get(task.partition, TaskRecord(task, None, 0)))
                    for task in each.tasks
                ],
            }
            for processor, each in (model.processors.items() if model is not None else ())
        ],
    }


def _task(copies: Iterable[int], record: TaskRecord) -> dict[str, Any]:
    def copy(number: int) -> dict[str, Any]:
        return {
            "copy": number,
            "host": record.hosts.get(number),
            "container": record.placed.get(number),
            "in_sync": number in record.in_sync,
        }

    return {
        "task": record.task.partition,
        "changelog_partition": record.task.partition,
        "epoch": record.epoch,
        "active": copy(record.active) if record.active is not None else None,
        "standbys": [copy(each) for each in sorted({*copies, *record.placed}) if each != record.active],
        "moving": {str(number): to for number, to in record.moving.items()},
    }


def _placed(parked: str, replica: Mapping[str, Any] | None) -> str:
    if replica is None:
        return "parked" if parked else "none"
    where = replica["host"] or "nowhere yet"
    if replica["container"] is None:
        return (
            f"{replica['copy']} (last on {replica['host']})"
            if replica["host"]
            else f"{replica['copy']} nowhere"
        )
    return f"{replica['copy']} on {where}{'' if replica['in_sync'] else ' (not in sync)'}"


def _explain(arguments: argparse.Namespace) -> int:
    with known_client(arguments) as client:
        answer = client.call("explain", job=arguments.job, partition=arguments.task)
    if printed_as_json(arguments, answer):
        return 0
    print(f"{answer['task']}{', processor ' + answer['processor'] if 'processor' in answer else ''}")
    if "note" in answer:
        print(f"  {answer['note']}")
    for each in answer["copies"]:
        where = f"on {each['host']} in {each['container']}" if each["container"] else "not placed"
        print(f"copy {each['copy']}, {each['role']}, {where}")
        for line in each["why"]:
            print(f"  {line}")
    return 0
