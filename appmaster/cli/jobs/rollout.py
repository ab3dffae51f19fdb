"""Waits until a running job is as requested, with progress output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appmaster.api.client import ClusterClient
from appmaster.api.snapshot import job_in, tasks_in
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.waiting import LeaderRefusal, PollResult, unreadable, until_leader_says
from standby.errors import StandfastError


@dataclass(frozen=True, slots=True)
class Goal:
    """The requested state of a job."""

    job: str
    revision: int
    asked: Mapping[str, Any]
    """As returned by `appmaster.api.snapshot.requested_document`."""


def rollout_progress(status: dict[str, Any], goal: Goal) -> PollResult[dict[str, Any]]:
    """Return the job's progress according to the leader's status. Pure."""
    job = job_in(status, goal.job)
    said = unreadable(status, goal.job)
    if job is None:
        return PollResult(False, status, said or "the leader has not loaded the job yet")
    if job["status"] == "failed":
        return PollResult(False, status, "failed", f"{goal.job}: {'; '.join(job['reasons'])}")
    if job["revision"] > goal.revision:
        return PollResult(
            False, status, "", f"{goal.job}: revision {job['revision']} was requested meanwhile"
        )
    # Keys that only one side knows belong to another version of standfast.
    heard = all(job["asked"][key] == value for key, value in goal.asked.items() if key in job["asked"])
    if job["revision"] < goal.revision or not heard or job["is_modelling"]:
        return PollResult(False, status, said or "the leader has not loaded the change yet")
    serving = [each["revisions"] for each in status["containers"] if goal.job in each["revisions"]]
    current = sum(each[goal.job] == goal.revision for each in serving)
    said = f"{current} of {len(serving)} containers run revision {goal.revision}"
    if job["status"] == "deployed" and current == len(serving) > 0:
        waits_for = pending_moves(status, job)
        return PollResult(not waits_for, status, f"{said}; {waits_for}" if waits_for else said)
    why = "; ".join(job["reasons"][:2])
    return PollResult(False, status, f"{said}; {job['status']}{f': {why}' if why else ''}")


def pending_moves(status: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Return what is still moving or being handed over in a deployed job; empty when everything is in place. Pure.

    The job's status may be a moment old, so the copies themselves are checked.
    """
    name = job["name"]
    tasks = [each for each in tasks_in(status, name) if each["processor"] is not None]
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
    # The tasks of a processor belong together: while they are apart, some are about to move.
    apart = sum(len(found) > 1 for found in places.values())
    handed = [each for each in (*status["handovers"], *status["failovers"]) if each["job"] == name]
    said = [
        f"{count} {what}"
        for count, what in (
            (missing, "tasks do not exist yet"),
            (unfinished, "tasks lack copies in sync, or have surplus ones"),
            (moving, "tasks are moving"),
            (apart, "processors are not together yet"),
            (len(handed), "actives are being handed over"),
        )
        if count
    ]
    return ", ".join(said)


def wait(client: ClusterClient, goal: Goal, deadline: Deadline, progress: Progress) -> dict[str, Any]:
    """Return the leader's status once the job is as requested.

    Raises `StandfastError` if the job fails, the leader cannot lead it, or it takes longer; in the latter case the
    roll-out continues.
    """
    refusal = LeaderRefusal(goal.job, deadline)

    def judge(status: dict[str, Any]) -> PollResult[dict[str, Any]]:
        refusal.check(status)
        return rollout_progress(status, goal)

    seen = until_leader_says(deadline, client.status, judge, progress.say)
    if seen is None or not seen.is_done:
        said = seen.said if seen is not None else "the leader has not answered"
        raise StandfastError(
            f"{goal.job} is not as requested after {deadline.seconds:g} s ({said}); the roll-out continues: "
            f"see `standfast status {goal.job}`"
        )
    return seen.what
