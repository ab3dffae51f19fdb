"""``standfast status``, ``tasks``, ``containers``, ``events`` and ``logs``: reading, never changing.

Exit status: 0 the job is as it should be (or there was something to print); 1 it is not deployed;
2 no such job; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from appmaster.adapters.kafka import read_events
from appmaster.cli import logs
from appmaster.cli.output import print_json, print_table
from appmaster.cli.parsers import add_command
from appmaster.cli.stop import add_cluster_options, open_client, record_of
from appmaster.client import ClusterClient
from standby import naming
from standby.config import kafka_settings, parse
from standby.errors import BadConfiguration, Unavailable


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the reading commands on the command line."""

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        parser = add_command(subparsers, name, run, text, __doc__)
        parser.add_argument("job", metavar="JOB", help="the job's name")
        add_cluster_options(parser)
        return parser

    command("status", _status, "show how a job is; exit status 1 when it is not deployed")
    command("tasks", _tasks, "show each replica: role, phase, host, lag")
    command("containers", _containers, "show each container: host, state, memory")
    events = command("events", _events, "show the event log: failures, decisions and their reasons")
    events.add_argument("--follow", action="store_true", help="go on with what happens, until interrupted")
    events.add_argument("--kind", action="append", default=[], help="only entries of this kind (repeatable)")
    log = command("logs", _logs, "show what the master and the containers have logged")
    log.add_argument("--container", metavar="ID", help="only this container (YARN id or Skein id)")
    log.add_argument(
        "--lines", type=int, default=200, metavar="N", help="the last N lines of each (default: 200)"
    )


def _snapshot(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the leader's status, or what is recorded when nobody leads; the job is always among its jobs."""
    with open_client(arguments) as client:
        record = record_of(arguments.job, client)
        mine = {"name": arguments.job, "run": record.definition.run}
        try:
            status = client.status()
        except Unavailable as error:
            state, reasons = _recorded(arguments.job, client)
            mine |= {"status": state or "submitted", "reasons": [*reasons, str(error)]}
            nothing: dict[str, Any] = {"tasks": [], "containers": [], "requests": []}
            return {"cluster": client.cluster, "leader": None, "jobs": [mine], **nothing}
    if all(each["name"] != arguments.job for each in status["jobs"]):
        why = status.get("unreadable", {}).get(arguments.job)
        said = f"the leader cannot lead it: {why}" if why else "the leader has not loaded it yet"
        status["jobs"].append({**mine, "status": "unreadable" if why else "submitted", "reasons": [said]})
    return status


def _recorded(job: str, client: ClusterClient) -> tuple[str, list[str]]:
    """Return a job's status and its reasons as the last leader left them."""
    try:
        found = next((each for each in client.info()["jobs"] if each["job"] == job), None)
    except Unavailable:
        recorded = client.zookeeper.status(job)
        return (recorded.state, list(recorded.reasons)) if recorded is not None else ("", [])
    return (found["status"], found["reasons"]) if found is not None else ("", [])


def _status(arguments: argparse.Namespace) -> int:
    status = _snapshot(arguments)
    job = next(each for each in status["jobs"] if each["name"] == arguments.job)
    if arguments.json:
        print_json(status)
    else:
        leader = status["leader"]
        print(f"{job['name']}: {job['status']}")
        print(*(f"  {reason}" for reason in job["reasons"]), sep="\n", end="\n" if job["reasons"] else "")
        revision = f", revision {job['revision']}" if "revision" in job else ""
        print(f"run {job['run']}{revision}")
        if leader is not None:
            print(f"leader {leader['candidate']} on {leader['host']}, epoch {leader['epoch']}")
        if status["tasks"]:
            print()
            tasks_table(status, arguments.job)
    return 0 if job["status"] == "deployed" and status["leader"] is not None else 1


def tasks_table(status: dict[str, Any], job: str) -> None:
    """Print who does what where, of a job's tasks."""
    tasks = tasks_of(status, job)
    rows = [
        (
            f"{task['task']['job']}/{task['task']['stage']}.{task['task']['partition']}",
            task["epoch"],
            each["copy"],
            each["role"],
            each["phase"],
            "yes" if each["in_sync"] else "no",
            each["lag_records"],
            each["host"],
            each["container"],
            "yes" if each["warm"] else "no",
        )
        for task in tasks
        for each in task["replicas"]
    ]
    headings = ("TASK", "EPOCH", "COPY", "ROLE", "PHASE", "IN SYNC", "LAG", "HOST", "CONTAINER", "WARM")
    print_table(headings, rows)
    details = (each["detail"] for task in tasks for each in task["replicas"])
    for row, detail in zip(rows, details, strict=True):
        if detail:
            print(f"{row[0]}#{row[2]}: {detail}")


def tasks_of(status: dict[str, Any], job: str) -> list[dict[str, Any]]:
    """Return the tasks of a job in the leader's status."""
    return [each for each in status["tasks"] if each["task"]["job"] == job]


def _tasks(arguments: argparse.Namespace) -> int:
    status = _snapshot(arguments)
    if arguments.json:
        print_json(tasks_of(status, arguments.job))
    else:
        tasks_table(status, arguments.job)
    return 0


def _containers(arguments: argparse.Namespace) -> int:
    status = _snapshot(arguments)
    if arguments.json:
        print_json(status["containers"])
        return 0
    rows = [
        (
            each["container"],
            each["host"],
            each["pid"],
            each["state"],
            each["slot"],
            each["revisions"].get(arguments.job),
            "yes" if each["warm"] else "no",
            f"{each['rss_bytes'] >> 20} MiB" if each["rss_bytes"] else None,
            each["reason"] or None,
        )
        for each in status["containers"]
    ]
    print_table(("CONTAINER", "HOST", "PID", "STATE", "PLACE", "REVISION", "WARM", "MEMORY", "REASON"), rows)
    return 0


def _events(arguments: argparse.Namespace) -> int:
    with open_client(arguments) as client:
        config = parse(record_of(arguments.job, client).definition.config)
    topic = naming.event_topic(arguments.cluster or arguments.job)
    for entry in read_events(kafka_settings(config), topic, follow=arguments.follow, stop=lambda: False):
        if arguments.kind and entry["kind"] not in arguments.kind:
            continue
        if arguments.json:
            print(json.dumps(entry), flush=True)
        else:
            print(describe(entry), flush=True)
    return 0


def describe(entry: dict[str, Any]) -> str:
    """Return an entry of the event log as one line for people, times local."""
    seconds, milliseconds = divmod(entry["at_ms"], 1000)
    at = time.strftime("%H:%M:%S", time.localtime(seconds))
    named = ("job", "task", "copy", "container", "host", "task_epoch")
    said = (f"{key.replace('_', ' ')} {entry[key]}" for key in named if entry[key] is not None)
    line = "  ".join((f"{at}.{milliseconds:03d}", entry["kind"].replace("_", " "), *said))
    return f"{line}: {entry['reason']}" if entry["reason"] else line


def _logs(arguments: argparse.Namespace) -> int:
    with open_client(arguments) as client:
        record_of(arguments.job, client)
        try:
            known = [each["application"] for each in client.info()["cells"]]
        except Unavailable:
            known = [each.application for each in client.zookeeper.cells().values()]
    applications = [each for each in known if each]
    if not applications:
        raise BadConfiguration(
            f"{arguments.job} has no application now; its YARN logs go with the application"
        )
    found = [log for each in applications for log in logs.collect(each, arguments.container, arguments.lines)]
    if arguments.json:
        print_json([each.as_json() for each in found])
        return 0 if found else 1
    for each in found:
        print(f"==> {each.container} on {each.node}: {each.name}")
        print(each.text)
    return 0 if found else 1
