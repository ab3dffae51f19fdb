"""Waiting until a running job is what it is asked to be, with progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appmaster.api.client import ClusterClient
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.waiting import Seen, until_leader_says
from standby.errors import StandfastError


@dataclass(frozen=True, slots=True)
class Goal:
    """What a job is to become."""

    job: str
    revision: int
    asked: Mapping[str, Any]
    """As `appmaster.api.snapshot.asked` has it."""


def standing(status: dict[str, Any], goal: Goal) -> Seen[dict[str, Any]]:
    """Return how far the job is, by the leader's status. Pure."""
    job = next((each for each in status["jobs"] if each["name"] == goal.job), None)
    if job is None:
        return Seen(False, status, "the leader has not loaded the job yet")
    if job["status"] == "failed":
        return Seen(False, status, "failed", f"{goal.job}: {'; '.join(job['reasons'])}")
    if job["revision"] > goal.revision:
        return Seen(False, status, "", f"{goal.job}: revision {job['revision']} was asked for meanwhile")
    # Keys that only one side knows are of another version of standfast.
    heard = all(job["asked"][key] == value for key, value in goal.asked.items() if key in job["asked"])
    if job["revision"] < goal.revision or not heard or job["is_modelling"]:
        return Seen(False, status, "the leader has not taken it up yet")
    serving = [each["revisions"] for each in status["containers"] if goal.job in each["revisions"]]
    current = sum(each[goal.job] == goal.revision for each in serving)
    said = f"{current} of {len(serving)} containers run revision {goal.revision}"
    if job["status"] == "deployed" and current == len(serving) > 0:
        waits_for = under_way(status, job)
        return Seen(not waits_for, status, f"{said}; {waits_for}" if waits_for else said)
    why = "; ".join(job["reasons"][:2])
    return Seen(False, status, f"{said}; {job['status']}{f': {why}' if why else ''}")


def under_way(status: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Return what is being moved or handed over in a job that is deployed; empty when all is in place. Pure.

    Its status may be of a moment ago: the copies themselves are what counts.
    """
    name = job["name"]
    tasks = [
        each for each in status["tasks"] if each["task"]["job"] == name and each["processor"] is not None
    ]
    missing = max(0, job["asked"]["tasks"] - len(tasks))
    unfinished = sum(
        len(each["replicas"]) != job["copies"] or not all(copy["in_sync"] for copy in each["replicas"])
        for each in tasks
    )
    moving = sum(bool(each["moving"]) for each in tasks)
    places: dict[int, set[tuple[tuple[int, str | None], ...]]] = {}
    for each in tasks:
        place = tuple((copy["copy"], copy["container"]) for copy in each["replicas"])
        places.setdefault(each["processor"], set()).add(place)
    # The tasks of a processor belong together: where they are not yet, some are about to move.
    apart = sum(len(found) > 1 for found in places.values())
    # Where a leader of a release that does not say the job has any under way, it may be this one's.
    handed = [each for each in (*status["handovers"], *status["failovers"]) if each.get("job", name) == name]
    said = [
        f"{count} {what}"
        for count, what in (
            (missing, "tasks are not there yet"),
            (unfinished, "tasks have not all their copies in sync, and no others"),
            (moving, "tasks are moving"),
            (apart, "processors are not together yet"),
            (len(handed), "actives are being handed over"),
        )
        if count
    ]
    return ", ".join(said)


def wait(client: ClusterClient, goal: Goal, deadline: Deadline, progress: Progress) -> dict[str, Any]:
    """Return the leader's status once the job is what it is to be.

    Raises `StandfastError` when it fails, or takes longer; it goes on all the same.
    """
    seen = until_leader_says(deadline, client.status, lambda status: standing(status, goal), progress.say)
    if seen is None or not seen.is_done:
        said = seen.said if seen is not None else "the leader has not answered"
        raise StandfastError(
            f"{goal.job} is not there after {deadline.seconds:g} s ({said}); it goes on: "
            f"see `standfast status {goal.job}`"
        )
    return seen.what
