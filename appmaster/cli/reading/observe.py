"""``standfast status``, ``tasks``, ``containers``, ``events`` and ``logs``: read-only commands.

Exit status: 0 printed; 1 `status`: the job is not deployed, `logs`: nothing was found; 2 no such job, or a wrong
option; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

from appmaster.adapters import node_logs
from appmaster.adapters.kafka import read_events
from appmaster.api.client import ClusterClient
from appmaster.api.snapshot import job_in, tasks_in
from appmaster.cli.reading import leaderless
from appmaster.cli.reading.job_history import JobHistory, read_history
from appmaster.cli.shared import yarn
from appmaster.cli.shared.cluster import add_job_command, open_client, record_of
from appmaster.cli.shared.ended_applications import (
    EndedApplication,
    end_entry,
    ended_application,
    latest_ended,
)
from appmaster.cli.shared.output import attributes_in_words, local_time, print_table, printed_as_json
from appmaster.cli.shared.parsers import count_of
from appmaster.eventlog.entries import EntryKind
from appmaster.planning.state.view import Presence
from standby.config import JobConfig, kafka_settings, parse
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared import naming

#: Of the table of tasks. A rate is a mean over `RATE_WINDOW_SECONDS`; failures are those at the present offset; START
#: MS is how long a promotion would wait for its first batch, as last measured by the standby.
_HEADINGS: Final = (
    "TASK",
    "EPOCH",
    "COPY",
    "ROLE",
    "PHASE",
    "IN SYNC",
    "CHANGELOG LAG",
    "INPUT LAG",
    "INPUT/S",
    "FAILURES",
    "SKIPPED",
    "DEAD LETTERS",
    "HOST",
    "CONTAINER",
    "WARM",
    "START MS",
)


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the reading commands on the command line."""
    command = partial(add_job_command, subparsers, doc=__doc__)
    command("status", _status, "show a job's status; exit status 1 if it is not deployed")
    command("tasks", _tasks, "show each replica: role, phase, host, lag")
    containers = command("containers", _containers, "show each container: host, state, memory")
    containers.add_argument(
        "--host", action="append", default=[], help="only those on this host (repeatable)"
    )
    containers.add_argument(
        "--state",
        action="append",
        default=[],
        choices=[each.value for each in Presence],
        help="only those in this state (repeatable)",
    )
    events = command("events", _events, "show the event log: failures, decisions and their reasons")
    events.add_argument("--follow", action="store_true", help="continue with new entries, until interrupted")
    events.add_argument(
        "--kind",
        action="append",
        default=[],
        type=_kind,
        help="only entries of this kind, as container_lost (repeatable; docs/events.md has the kinds)",
    )
    events.add_argument("--all", action="store_true", help="also entries of the cluster's other jobs")
    log = command("logs", _logs, "show what the master and the containers have logged")
    log.add_argument("--container", metavar="ID", help="only this container (YARN id or Skein id)")
    log.add_argument(
        "--lines", type=count_of, default=200, metavar="N", help="the last N lines of each (default: 200)"
    )


def _kind(text: str) -> EntryKind:
    """Return the kind of an entry from its name; also with spaces, as the command prints it."""
    name = text.strip().replace(" ", "_")
    kinds = [each.value for each in EntryKind]
    if name in kinds:
        return EntryKind(name)
    near = get_close_matches(name, kinds, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else f"the kinds are {', '.join(kinds)}"
    raise argparse.ArgumentTypeError(f"{text!r} is not a kind of entry; {hint}")


def _snapshot(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the leader's status, or what is recorded if there is no leader; the job is always among its jobs."""
    with open_client(arguments) as client:
        record = record_of(arguments.job, client)
        mine = {"name": arguments.job, "run": record.definition.run}
        try:
            status = client.status()
        except Unavailable as error:
            state, reasons, traceback = _recorded(arguments.job, client)
            running, ends = applications_of(client)
            mine |= {
                "status": leaderless.state(state, running),
                "reasons": [*reasons, *map(str, ends), str(error)],
                "traceback": traceback,
            }
            nothing: dict[str, Any] = {"tasks": [], "containers": [], "requests": []}
            return {"cluster": client.cluster, "leader": None, "jobs": [mine], **nothing}
    why = status.get("unreadable", {}).get(arguments.job)
    known = job_in(status, arguments.job)
    if known is not None and why:
        known["reasons"] = [*known["reasons"], f"the leader leads it as it was before: {why}"]
    if known is None:
        said = f"the leader cannot lead it: {why}" if why else "the leader has not loaded it yet"
        status["jobs"].append({**mine, "status": "unreadable" if why else "submitted", "reasons": [said]})
    return status


def _recorded(job: str, client: ClusterClient) -> tuple[str, list[str], str]:
    """Return a job's status, its reasons, and its code's last traceback, as recorded by the last leader."""
    try:
        found = next((each for each in client.info()["jobs"] if each["job"] == job), None)
    except Unavailable:
        recorded = client.zookeeper.jobs.status(job)
        if recorded is None:
            return "", [], ""
        return recorded.state, list(recorded.reasons), recorded.traceback
    if found is None:
        return "", [], ""
    return found["status"], found["reasons"], found.get("traceback", "")


def _applications(client: ClusterClient, driver: Any) -> list[str]:
    """Return the YARN applications of a cluster's cells; those that ended last if none runs."""
    try:
        return [each["application"] for each in client.info()["cells"] if each["application"]]
    except Unavailable:
        running = yarn.running(client.zookeeper, driver)
    return list(running) or [each.application for each in latest_ended(driver, client.cluster)]


def applications_of(
    client: ClusterClient, open_driver: Callable[[], AbstractContextManager[Any]] = yarn.skein_client
) -> tuple[leaderless.Running, list[EndedApplication]]:
    """Return whether applications of a cluster run, and how the others have ended.

    The ends are returned only if no candidate answers and YARN can be asked, with the Skein client of ``open_driver``.
    """
    try:
        client.info()
    except Unavailable:
        pass
    else:
        return leaderless.Running.YES, []
    try:
        if yarn.is_pool(client.zookeeper):
            return leaderless.Running.UNKNOWN, []
        with open_driver() as driver:
            if not yarn.running(client.zookeeper, driver):
                return leaderless.Running.NO, latest_ended(driver, client.cluster)
            cells = client.zookeeper.cells.read_all().values()
            found = [ended_application(driver, each.application) for each in cells]
    except StandfastError:
        return leaderless.Running.UNKNOWN, []
    return leaderless.Running.YES, [each for each in found if each is not None]


def _status(arguments: argparse.Namespace) -> int:
    status = _snapshot(arguments)
    job = next(each for each in status["jobs"] if each["name"] == arguments.job)
    if not printed_as_json(arguments, status):
        leader = status["leader"]
        print(f"{job['name']}: {leaderless.status_text(job['status'], is_led=leader is not None)}")
        print(*(f"  {reason}" for reason in job["reasons"]), sep="\n", end="\n" if job["reasons"] else "")
        revision = f", revision {job['revision']}" if "revision" in job else ""
        print(f"run {job['run']}{revision}")
        if leader is not None:
            print(f"leader {leader['candidate']} on {leader['host']}, epoch {leader['epoch']}")
        if job.get("spread", {}).get("hosts"):
            print(f"active processors: {spread_in_words(job['spread'])}")
        if "spares" in job and (said := spares_in_words(job["spares"])):
            print(f"spare containers: {said}")
        if job.get("traceback"):
            print("\nthe job's code raised:")
            print(_indented(job["traceback"]))
        if status["tasks"]:
            print()
            tasks_table(status, arguments.job)
    return 0 if job["status"] == "deployed" and status["leader"] is not None else 1


def spread_in_words(spread: Mapping[str, Any]) -> str:
    """Return the number of active processors per host, highest first, and the reason if they are not evenly spread."""
    ranked = sorted(spread["hosts"].items(), key=lambda each: (-each[1], each[0]))
    counts = ", ".join(f"{host} {count}" for host, count in ranked) or "none"
    return counts if spread["is_even"] or not spread["why"] else f"{counts}; not even: {spread['why']}"


def spares_in_words(spares: Mapping[str, int]) -> str:
    """Return how many spare containers a job has of those it wants, and how many are ready; empty if none."""
    if not (spares["wanted"] or spares["held"]):
        return ""
    return f"{spares['held']} of {spares['wanted']}, {spares['ready']} ready"


def tasks_table(status: dict[str, Any], job: str) -> None:
    """Print a job's tasks: each copy's role and place, its changelog lag, and an active's input lag."""
    tasks = tasks_in(status, job)
    rows = [
        (
            f"{task['task']['job']}/{task['task']['stage']}.{task['task']['partition']}",
            task["epoch"],
            each["copy"],
            each["role"],
            each["phase"],
            "yes" if each["in_sync"] else "no",
            each["changelog_lag_records"],
            _of_input(each, "input_lag_records"),
            _of_input(each, "input_rate"),
            _of_input(each, "failures"),
            _of_input(each, "skipped"),
            _of_input(each, "dead_lettered"),
            each["host"],
            each["container"],
            "yes" if each["warm"] else "no",
            each["start_ms"],
        )
        for task in tasks
        for each in task["replicas"]
    ]
    print_table(_HEADINGS, rows)
    details = (each["detail"] for task in tasks for each in task["replicas"])
    for row, detail in zip(rows, details, strict=True):
        if detail:
            print(f"{row[0]}#{row[2]}: {detail}")


def _of_input(replica: dict[str, Any], name: str) -> Any:
    """Return a value about an active's input; None for a standby, which has no input."""
    return replica[name] if replica["input_committed"] is not None or replica[name] else None


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _tasks(arguments: argparse.Namespace) -> int:
    status = _snapshot(arguments)
    if not printed_as_json(arguments, tasks_in(status, arguments.job)):
        tasks_table(status, arguments.job)
    return 0


def _containers(arguments: argparse.Namespace) -> int:
    found = chosen(_snapshot(arguments)["containers"], hosts=arguments.host, states=arguments.state)
    if printed_as_json(arguments, found):
        return 0
    # Only processes of a pool offer them; a leader of an earlier version does not tell.
    has_offers = any(each.get("group") or each.get("attributes") for each in found)
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
            *((each["group"], attributes_in_words(each["attributes"])) if has_offers else ()),
            each["reason"] or None,
        )
        for each in found
    ]
    offers = ("GROUP", "ATTRIBUTES") if has_offers else ()
    print_table(
        ("CONTAINER", "HOST", "PID", "STATE", "SLOT", "REVISION", "WARM", "MEMORY", *offers, "REASON"), rows
    )
    return 0


def chosen(
    containers: Iterable[dict[str, Any]], *, hosts: Collection[str], states: Collection[str]
) -> list[dict[str, Any]]:
    """Return the containers on one of the hosts and in one of the states; empty: any."""
    return [
        each
        for each in containers
        if (not hosts or each["host"] in hosts) and (not states or each["state"] in states)
    ]


def _events(arguments: argparse.Namespace) -> int:
    with open_client(arguments) as client:
        config = parse(record_of(arguments.job, client).definition.config)
        _, found = applications_of(client)
        ends = {each.application: each for each in found}
    topic = naming.event_topic(arguments.cluster or arguments.job)
    entries = read_events(kafka_settings(config), topic, follow=arguments.follow, stop=lambda: False)
    for entry in _with_ends(entries, ends, arguments.job):
        if arguments.kind and entry["kind"] not in arguments.kind:
            continue
        if not arguments.all and not concerns(entry, arguments.job):
            continue
        if arguments.json:
            print(json.dumps(entry), flush=True)
        else:
            print(describe(entry), flush=True)
    return 0


def concerns(entry: Mapping[str, Any], job: str) -> bool:
    """Return whether an entry of the event log is about a job, or about its cluster.

    An application is the cluster's, whichever job's submit has seen its end.
    """
    return entry["job"] in (None, job) or entry["kind"] == EntryKind.APPLICATION_ENDED


def _with_ends(
    entries: Iterable[dict[str, Any]], ends: dict[str, EndedApplication], job: str
) -> Iterator[dict[str, Any]]:
    """Yield the event log's entries, then the ends of applications that it does not contain."""
    for each in entries:
        if each["kind"] == EntryKind.APPLICATION_ENDED:
            ends.pop(each["data"]["application"], None)
        yield each
    yield from (dict(end_entry(each, job)) for each in ends.values())


def describe(entry: dict[str, Any]) -> str:
    """Return an entry of the event log as a line for people, with local time, and its traceback if it has one."""
    at_ms = entry["at_ms"]
    named = ("job", "task", "copy", "container", "host", "task_epoch")
    said = (f"{key.replace('_', ' ')} {entry[key]}" for key in named if entry[key] is not None)
    line = "  ".join((f"{local_time(at_ms)}.{at_ms % 1000:03d}", entry["kind"].replace("_", " "), *said))
    line = f"{line}: {entry['reason']}" if entry["reason"] else line
    traceback = (entry.get("data") or {}).get("traceback")
    return f"{line}\n{_indented(traceback)}" if traceback else line


def _past(arguments: argparse.Namespace, config: JobConfig) -> JobHistory:
    """Return what the event log has about a job's containers, as far as it can be read."""
    topic = naming.event_topic(arguments.cluster or arguments.job)
    entries = read_events(kafka_settings(config), topic, follow=False, stop=lambda: False)
    return read_history(_readable(entries), arguments.job)


def _readable(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries of an event log up to where it cannot be read."""
    with suppress(Unavailable):
        yield from entries


def _collected(driver: Any, application: str, arguments: argparse.Namespace) -> list[node_logs.Log]:
    report = yarn.report(driver, application)
    address = (report.tracking_url or "") if report is not None else ""
    return node_logs.collect(driver, application, address, arguments.container, arguments.lines)


def _logs(arguments: argparse.Namespace) -> int:
    with open_client(arguments) as client:
        if yarn.is_on_pool(client):
            raise BadConfiguration(
                "this cluster is a pool: its nodes and masters write their logs where they were started (with systemd: "
                "journalctl -u standfast-node, -u standfast-master)"
            )
        found = _logs_of_yarn(arguments, client)
    if printed_as_json(arguments, [each.as_json() for each in found]):
        return 0 if found else 1
    for each in found:
        print(f"==> {each.container} on {each.node}: {each.name}")
        print(each.text)
    return 0 if found else 1


def _logs_of_yarn(arguments: argparse.Namespace, client: ClusterClient) -> list[node_logs.Log]:
    with yarn.skein_client() as driver:
        past, cells = JobHistory(), 0
        try:
            config = parse(record_of(arguments.job, client).definition.config)
        except BadConfiguration:
            # A failed submit leaves no job, but YARN remembers its applications.
            if client.zookeeper.tree.exists():
                raise
        else:
            past, cells = _past(arguments, config), config.cells
        applications = _applications(client, driver) or past.applications(cells)
        if not applications:
            raise BadConfiguration(
                f"{arguments.job} has no application, and neither YARN nor the event log knows of one that has ended; "
                "is the name right, or --cluster missing?"
            )
        found = [log for each in applications for log in _collected(driver, each, arguments)]
        past = past.of(applications, arguments.container)
        found += node_logs.container_logs(driver, past.missing(found), arguments.lines)
    return [*node_logs.masters_first(found), *past.logs(found)]
