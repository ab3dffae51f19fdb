"""``standfast candidates``, ``jobs``, ``deploy``, ``undeploy`` and ``change``: answered or queued by any candidate.

`candidates` lists the application masters of a cluster, which of them leads, and what jobs wait for; `jobs` lists its
jobs. `undeploy` and `deploy` queue a change of a job's desired state, which the leader makes, or the next one if there
is none now. `change` shows what became of one. State, offsets and run of an undeployed job are kept.

Exit status: 0 done, or with --no-wait queued; 1 refused, or not made in time (it stays queued); 2 no such job; 3 no
candidate answers.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from appmaster.api.client import ClusterClient
from appmaster.cli.shared.cluster import add_cluster_options, add_job_command, cluster_of, open_client
from appmaster.cli.shared.output import Progress, local_time, print_table, printed_as_json
from appmaster.cli.shared.parsers import add_command, add_timeout


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the commands on the command line."""
    command = partial(add_job_command, subparsers, doc=__doc__)
    command("candidates", _candidates, "list a cluster's application masters, and which one leads")
    jobs = add_command(subparsers, "jobs", _jobs, "list a cluster's jobs", __doc__)
    add_cluster_options(jobs, "the only one there is")
    for name, text in (("deploy", "have a job run again"), ("undeploy", "have a job end")):
        parser = command(name, _queue, text)
        parser.set_defaults(change=name)
        parser.add_argument("--no-wait", action="store_true", help="queue it and print its id")
        add_timeout(parser, 60.0, "how long to wait until a leader has made it")
    command("change", _change, "show what became of a queued change").add_argument(
        "id", metavar="ID", help="as `deploy` or `undeploy` printed it"
    )


def _candidates(arguments: argparse.Namespace) -> int:
    with open_client(arguments) as client:
        info = client.info()
    if printed_as_json(arguments, info):
        return 0
    headings = ("candidate", "cell", "host", "port", "http port", "uptime", "version", "leads")
    rows = [
        (
            each["candidate"],
            each["cell"],
            each["host"],
            each["port"],
            each["http_port"],
            f"{each['uptime_seconds']} s",
            each["version"],
            f"yes, epoch {info['epoch']}" if each["is_leader"] else "no",
        )
        for each in info["candidates"]
    ]
    print_table(headings, rows)
    for what in ("waiting", "quarantined"):
        for job, trouble in sorted(info.get(what, {}).items()):
            print(f"{job}: {what} since {local_time(trouble['since_ms'])}: {trouble['why']}")
    if not info["is_fresh"]:
        print(f"{info['answered_by']} cannot reach ZooKeeper: this may be out of date")
    return 0


def _jobs(arguments: argparse.Namespace) -> int:
    with ClusterClient(cluster_of(arguments), arguments.zookeeper) as client:
        info = client.info()
    if printed_as_json(arguments, info["jobs"]):
        return 0
    rows = [
        (
            each["job"],
            each["status"] or "submitted",
            "yes" if each["is_wanted"] else "no",
            each["revision"],
            each["active_revision"],
            each["reasons"][0] if each["reasons"] else None,
        )
        for each in info["jobs"]
    ]
    print_table(("JOB", "STATUS", "WANTED", "REVISION", "ACTIVE", "REASON"), rows)
    return 0


def _queue(arguments: argparse.Namespace) -> int:
    progress = Progress(is_quiet=arguments.json)
    with open_client(arguments) as client:
        queued = client.queue(arguments.change, job=arguments.job)
        progress.say(f"queued as {queued}")
        found = {"id": queued, "state": "queued"}
        if not arguments.no_wait:
            found = client.result(queued, arguments.timeout)
    return _print(arguments, found)


def _change(arguments: argparse.Namespace) -> int:
    with open_client(arguments) as client:
        return _print(arguments, client.call_any("result", id=arguments.id))


def _print(arguments: argparse.Namespace, found: dict[str, Any]) -> int:
    if not printed_as_json(arguments, found):
        is_queued = found["state"] == "queued"
        print(found["id"] if is_queued else f"{arguments.job}: {found['state']}: {found['said']}")
    return 1 if found["state"] == "refused" else 0
