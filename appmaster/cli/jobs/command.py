"""``standfast handover``, ``rebalance`` and ``unpark``: commands that a running job's leader carries out at once.

`handover` hands the active role over to a standby as planned: the standby gets ready while the active continues, and
the gap is a fraction of a crash's. It does not count as a failure. `rebalance` makes one such hand-over after the other
until the actives are spread over hosts as evenly as their standbys permit. `unpark` lets a processor run again that was
withdrawn for failing too often.

Exit status: 0 done (with --no-wait: begun); 1 refused, given up, or not done in time; 2 no such job, task or
processor; 3 a server cannot be used.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from appmaster.api.client import ClusterClient
from appmaster.api.snapshot import job_in, tasks_in
from appmaster.cli.reading.observe import spread_in_words
from appmaster.cli.shared.cluster import add_job_command, known_client
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress, printed_as_json
from appmaster.cli.shared.parsers import add_timeout
from appmaster.cli.shared.waiting import PollResult, until_leader_says
from standby.errors import StandfastError

#: A leader reports a hand-over within this time after its end, seconds; otherwise another leader has taken over.
_REPORT_SECONDS: Final = 10.0


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the commands on the command line."""
    command = partial(add_job_command, subparsers, doc=__doc__)
    text = "hand a task's processor over to a standby, as planned"
    # "failover" is the word of Samza, although nothing has failed.
    parser = command("handover", _hand_over, text, aliases=("failover",))
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "task",
        metavar="TASK",
        type=int,
        nargs="?",
        help="number of the task's input partition; the tasks of its processor go together",
    )
    what.add_argument("--processor", metavar="N", type=int, help="number of the processor")
    what.add_argument("--container", metavar="ID", help="everything active in this container (YARN id)")
    parser.add_argument(
        "--to", metavar="COPY", type=int, help="the copy that takes over (default: the best one)"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is done")
    add_timeout(parser, 60.0, "how long to wait")
    parser = command(
        "rebalance", _rebalance, "spread a job's actives evenly over hosts by planned hand-overs"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait until they are evenly spread")
    add_timeout(parser, 300.0, "how long to wait")
    parser = command("unpark", _unpark, "let a parked processor run again")
    parser.add_argument("processor", metavar="PROCESSOR", type=int, help="number of the processor")


def _hand_over(arguments: argparse.Namespace) -> int:
    progress = Progress()
    asked: dict[str, Any] = {"job": arguments.job, "copy": arguments.to}
    if arguments.container is not None:
        asked["container"] = arguments.container
    elif arguments.processor is not None:
        asked["processor"] = arguments.processor
    else:
        asked["partition"] = arguments.task
    with known_client(arguments) as client:
        before = client.status()
        said = client.call("handover", **asked)["said"]
        progress.say(said)
        goal = HandOver(arguments.job, _concerned(before, arguments), before)
        finished = [] if arguments.no_wait else wait(client, goal, Deadline(arguments.timeout), progress)
    if not printed_as_json(arguments, {"job": arguments.job, "said": said, "handovers": finished}):
        for each in finished:
            print(describe(each))
    return 0


def _concerned(status: Mapping[str, Any], arguments: argparse.Namespace) -> frozenset[int]:
    """Return the numbers of the processors that the command concerns."""
    found = set()
    for task in tasks_in(status, arguments.job):
        is_meant = task["task"]["partition"] == arguments.task
        if arguments.processor is not None:
            is_meant = task["processor"] == arguments.processor
        if arguments.container is not None:
            is_meant = any(
                each["copy"] == task["active"] and each["container"] == arguments.container
                for each in task["replicas"]
            )
        if is_meant:
            found.add(task["processor"])
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class HandOver:
    """What was requested, and the leader's status before."""

    job: str
    processors: frozenset[int]
    before: Mapping[str, Any]


def handover_progress(status: Mapping[str, Any], goal: HandOver) -> PollResult[list[dict[str, Any]]]:
    """Return the progress of hand-overs, with the report of each that has ended. Pure."""
    reported = _finished(goal.before, goal.job)
    new = {
        number: done
        for number, done in sorted(_finished(status, goal.job).items())
        if number in goal.processors and done != reported.get(number)
    }
    for done in new.values():
        if done["kind"] == "handover_given_up":
            failure = f"the hand-over of processor {done['processor']} was given up: {done['reason']}"
            return PollResult(False, [], failure=f"{failure}; its active stays active")
    if goal.processors <= set(new):
        return PollResult(True, list(new.values()))
    is_active = _is_active(status, goal)
    said = "the new active is taking over" if is_active else "the standby is getting ready"
    return PollResult(False, list(new.values()), said)


def _is_active(status: Mapping[str, Any], goal: HandOver) -> bool:
    """Return whether another copy is active now for every task that is handed over."""
    before = _epochs(goal.before, goal.job)
    return all(
        epoch > before[task][1]
        for task, (number, epoch) in _epochs(status, goal.job).items()
        if number in goal.processors and task in before
    )


def wait(
    client: ClusterClient, goal: HandOver, deadline: Deadline, progress: Progress
) -> list[dict[str, Any]]:
    """Return the report of each hand-over once all are done; raises `StandfastError` if one is given up."""
    telling: Deadline | None = None

    def judge(status: Mapping[str, Any]) -> PollResult[list[dict[str, Any]]]:
        nonlocal telling
        seen = handover_progress(status, goal)
        if telling is None and _is_active(status, goal):
            telling = deadline.beyond(_REPORT_SECONDS)
        if not seen.is_done and telling is not None and telling.is_over:
            said = "another copy is active; how long the gap was is not known (did the leader change?)"
            return replace(seen, is_done=True, said=said)
        return seen

    seen = until_leader_says(deadline, client.status, judge, progress.say)
    if seen is None or not seen.is_done:
        raise StandfastError(
            f"not done within {deadline.seconds:g} s; it continues: see `standfast tasks {goal.job}`"
        )
    return seen.what


def _finished(status: Mapping[str, Any], job: str) -> dict[int, dict[str, Any]]:
    return {each["processor"]: each for each in status.get("finished", ()) if each["job"] == job}


def _epochs(status: Mapping[str, Any], job: str) -> dict[int, tuple[int, int]]:
    """Return task → its processor and its epoch."""
    return {task["task"]["partition"]: (task["processor"], task["epoch"]) for task in tasks_in(status, job)}


def gap_ms(times: Mapping[str, int | None]) -> int | None:
    """Return how long a task had no active, milliseconds: from the decision to the new active's first commit.

    For a task without waiting input the gap ends when it is active. None if the times are not known.
    """
    end = times.get("first_commit_ms") or times.get("active_ms")
    begin = times.get("detected_ms")
    return None if end is None or begin is None else max(0, end - begin)


def describe(done: Mapping[str, Any]) -> str:
    """Return the leader's report of a hand-over as one line for people."""
    gaps = []
    for task, times in sorted(done["tasks"].items(), key=lambda each: int(each[0])):
        gap = gap_ms(times)
        until = "first commit" if times.get("first_commit_ms") else "active, no input waits"
        gaps.append(f"task {task}: gap {gap} ms ({until})" if gap is not None else f"task {task}: active")
    kind = "handed over" if done["kind"] == "handover_finished" else "failed over"
    return (
        f"processor {done['processor']} is {kind} to copy {done['copy']} on {done['host']}: {'; '.join(gaps)}"
    )


def _rebalance(arguments: argparse.Namespace) -> int:
    progress = Progress()
    with known_client(arguments) as client:
        said = client.call("rebalance", job=arguments.job)["said"]
        spread = None
        if not arguments.no_wait:
            progress.say(said)
            spread = wait_spread(client, arguments.job, Deadline(arguments.timeout), progress)
    if not printed_as_json(arguments, {"job": arguments.job, "said": said, "spread": spread}):
        print(said if spread is None else f"{arguments.job}: active processors {spread_in_words(spread)}")
    return 0


def spread_out(status: Mapping[str, Any], job: str) -> PollResult[Mapping[str, Any]]:
    """Return how a job's actives are spread, and whether the requested rebalance is over. Pure."""
    known = job_in(status, job)
    if known is None:
        return PollResult(False, {}, failure=f"the leader no longer leads {job}")
    spread = known["spread"]
    said = spread_in_words(spread)
    if spread["is_asked"]:
        return PollResult(False, spread, said)
    return PollResult(True, spread, said, failure="" if spread["is_even"] else f"not evenly spread: {said}")


def wait_spread(client: ClusterClient, job: str, deadline: Deadline, progress: Progress) -> Mapping[str, Any]:
    """Return how actives are spread once that is even; raises `StandfastError` if it does not become even."""
    seen = until_leader_says(deadline, client.status, lambda status: spread_out(status, job), progress.say)
    if seen is None or not seen.is_done:
        raise StandfastError(
            f"not done within {deadline.seconds:g} s; it continues: see `standfast status {job}`"
        )
    return seen.what


def _unpark(arguments: argparse.Namespace) -> int:
    with known_client(arguments) as client:
        said = client.call("unpark", job=arguments.job, processor=arguments.processor)["said"]
    if not printed_as_json(arguments, {"job": arguments.job, "said": said}):
        print(said)
    return 0
