"""``standfast drain`` and ``standfast admit``: empty hosts, and use them again.

`drain` records the hosts, and waits until they are empty: actives are handed over to standbys in sync, and copies are
filled elsewhere before they are given up here. Nothing new is placed there until `admit`. The application master of the
cluster itself stays where YARN started it.

Exit status: 0 empty (with --no-wait: recorded); 1 something stays (emptying continues); 2 no such cluster or host; 3 a
server cannot be used.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from appmaster.adapters.credentials.keyring import user_name
from appmaster.api.client import ClusterClient
from appmaster.cli.shared.cluster import add_cluster_options, cluster_of
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress, printed_as_json
from appmaster.cli.shared.parsers import add_command, add_timeout
from appmaster.cli.shared.waiting import PollResult, until_leader_says
from standby.errors import BadConfiguration, StandfastError, Unavailable


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the commands on the command line."""

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        parser = add_command(subparsers, name, run, text, __doc__)
        parser.add_argument("hosts", metavar="HOST", nargs="+", help="a host, by YARN's name of it")
        add_cluster_options(parser, "the only one there is")
        return parser

    drain = command("drain", _drain, "empty hosts, as planned")
    drain.add_argument("--reason", metavar="TEXT", default="", help="why, for status and event log")
    drain.add_argument("--no-wait", action="store_true", help="do not wait until they are empty")
    add_timeout(drain, 300.0, "how long to wait")
    command("admit", _admit, "use drained hosts again")


@dataclass(frozen=True, slots=True)
class RemainingContainer:
    """A container that is still on a drained host."""

    container: str
    host: str
    state: str
    slot: str
    actives: tuple[tuple[str, int], ...]
    """Job and partition of each task that is active in it."""
    standbys: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        held = [
            f"{len(tasks)} {role}{'s' if len(tasks) > 1 else ''}"
            for role, tasks in (("active", self.actives), ("standby copy", self.standbys))
            if tasks
        ]
        return f"{self.slot or self.container} on {self.host} ({', '.join(held) or self.state})"


def remaining_containers(status: Mapping[str, Any], hosts: Collection[str]) -> tuple[RemainingContainer, ...]:
    """Return the containers on the hosts, according to the leader's status. Pure."""
    held: dict[str, tuple[list[tuple[str, int]], list[tuple[str, int]]]] = {}
    for task in status["tasks"]:
        name = (task["task"]["job"], task["task"]["partition"])
        for each in task["replicas"]:
            if each["container"] is not None:
                roles = held.setdefault(each["container"], ([], []))
                roles[each["copy"] != task["active"]].append(name)
    return tuple(
        RemainingContainer(
            each["container"],
            each["host"],
            each["state"],
            each["slot"] or "",
            *(tuple(tasks) for tasks in held.get(each["container"], ([], []))),
        )
        for each in status["containers"]
        if each["host"] in hosts
    )


def _drain(arguments: argparse.Namespace) -> int:
    progress = Progress()
    hosts = tuple(dict.fromkeys(arguments.hosts))
    why = arguments.reason or f"drained by {user_name()}"
    deadline = Deadline(arguments.timeout)
    with ClusterClient(cluster_of(arguments), arguments.zookeeper) as client:
        try:
            status = client.status()
        except Unavailable as error:
            drained = client.info()["drained"]
            queued = client.queue("drain", hosts=hosts, reason=why)
            progress.say(
                f"queued as {queued}; there is no leader now to carry it out, or to know the hosts ({error})"
            )
            if arguments.no_wait:
                return _print(arguments, hosts, (), {})
            status = _of_next_leader(client, queued, deadline, progress)
            try:
                _check_known(hosts, status)
            except BadConfiguration:
                if new := [each for each in hosts if each not in drained]:
                    undone = client.queue("admit", hosts=new)
                    progress.say(f"{queued} is undone by {undone}, which is queued")
                raise
        else:
            _check_known(hosts, status)
            client.change("drain", hosts=hosts, reason=why)
        master = status["leader"]["host"]
        if master in hosts:
            progress.say(f"the application master itself runs on {master}, and stays there")
        left: tuple[RemainingContainer, ...] = ()
        reasons: dict[str, list[str]] = {}
        if not arguments.no_wait:
            left = wait_empty(client, hosts, deadline, progress)
            reasons = {each.container: _why(client, each) for each in left}
    if not left:
        progress.say(f"{', '.join(hosts)}: {'recorded' if arguments.no_wait else 'empty'}")
    for each in left:
        progress.say(f"stays: {each}")
        for line in reasons[each.container]:
            progress.say(f"  {line}")
    if left:
        progress.say(
            "emptying continues as soon as there is room elsewhere: add a host, or give the jobs fewer "
            f"standbys; `standfast admit {' '.join(hosts)}` undoes it"
        )
    return _print(arguments, hosts, left, reasons)


def _of_next_leader(
    client: ClusterClient, queued: str, deadline: Deadline, progress: Progress
) -> dict[str, Any]:
    """Return the status of the leader that carries the change out; raises `StandfastError` if none comes in time."""
    seen = until_leader_says(deadline, client.status, lambda status: PollResult(True, status), progress.say)
    if seen is None:
        raise StandfastError(
            f"queued as {queued}, but there was no leader within {deadline.seconds:g} s; the next one carries it out"
        )
    return seen.what


def _check_known(hosts: Sequence[str], status: Mapping[str, Any]) -> None:
    known = {*status.get("hosts", {}), *(each["host"] for each in status["containers"] if each["host"])}
    unknown = [each for each in hosts if each not in known]
    if unknown:
        raise BadConfiguration(
            f"{', '.join(unknown)}: not a host of this cluster; it has {', '.join(sorted(known))}"
        )


def wait_empty(
    client: ClusterClient, hosts: Collection[str], deadline: Deadline, progress: Progress
) -> tuple[RemainingContainer, ...]:
    """Return what is still on the hosts when they are empty, or when the time is over."""
    has_heard = False

    def judge(status: Mapping[str, Any]) -> PollResult[tuple[RemainingContainer, ...]]:
        nonlocal has_heard
        has_heard = has_heard or all(each in status["drained"] for each in hosts)
        left = remaining_containers(status, hosts)
        if has_heard and not left and not any(each["host"] in hosts for each in status["requests"]):
            return PollResult(True, left)
        actives = sum(len(each.actives) for each in left)
        standbys = sum(len(each.standbys) for each in left)
        said = f"still there: {len(left)} containers with {actives} actives, {standbys} standby copies"
        return PollResult(False, left, said)

    seen = until_leader_says(deadline, client.status, judge, progress.say)
    if seen is None or not has_heard:
        raise StandfastError("recorded, but the leader has not loaded it; see `standfast status`")
    return seen.what


def _why(client: ClusterClient, each: RemainingContainer) -> list[str]:
    """Return why a container is still there, according to the placement rules, for one of its tasks."""
    for job, partition in (*each.actives, *each.standbys):
        try:
            answer = client.call("explain", job=job, partition=partition)
        except StandfastError as error:
            return [str(error)]
        return [
            line for copy in answer["copies"] if copy["container"] == each.container for line in copy["why"]
        ]
    return [f"it is {each.state} and holds nothing; YARN has not ended it yet"]


def _admit(arguments: argparse.Namespace) -> int:
    hosts = tuple(dict.fromkeys(arguments.hosts))
    with ClusterClient(cluster_of(arguments), arguments.zookeeper) as client:
        drained = client.info()["drained"]
        client.change("admit", hosts=hosts)
    known = {each for each in hosts if each in drained}
    left = {host: why for host, why in drained.items() if host not in hosts}
    if printed_as_json(arguments, {"admitted": sorted(known), "drained": left}):
        return 0
    for each in hosts:
        print(f"{each} may be used again" if each in known else f"{each} was not drained")
    if left:
        print(f"still drained: {', '.join(sorted(left))}")
    return 0


def _print(
    arguments: argparse.Namespace,
    hosts: Sequence[str],
    left: Sequence[RemainingContainer],
    reasons: Mapping[str, list[str]],
) -> int:
    stays = [{**asdict(each), "why": reasons.get(each.container, [])} for each in left]
    printed_as_json(arguments, {"hosts": list(hosts), "stays": stays})
    return 1 if left else 0
