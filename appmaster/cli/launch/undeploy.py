"""Ends a job: through the leader, through YARN, or by fencing what may be left of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from appmaster.adapters import kafka
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient, StillQueued
from appmaster.cli.shared import yarn
from appmaster.cli.shared.cluster import record_of
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.output import Progress
from appmaster.cli.shared.waiting import PollResult, until
from appmaster.planning.state.job import JobState
from standby.errors import StandfastError, Unavailable

#: How long an orderly end may take before YARN is asked to end the application, seconds.
_ORDERLY_SECONDS: Final = 60.0

#: How much longer for every 1,000 tasks: the leader fences them first. It fences eight at a time, each in 50 to 80 ms,
#: which is a third of this.
_FENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class UndeployOptions:
    """How a job is to end."""

    purge: bool = False
    """Whether its local state is removed, too."""
    is_unfenced: bool = False
    """Whether it ends even if its tasks are not fenced."""
    tasks: int = 0
    """How many tasks it has."""

    @property
    def orderly_seconds(self) -> float:
        """How long its orderly end may take."""
        return _ORDERLY_SECONDS + self.tasks // 1_000 * _FENCE_SECONDS


def undeploy(
    job: str,
    client: ClusterClient,
    driver: Any,
    how: UndeployOptions,
    *,
    progress: Progress,
    deadline: Deadline,
) -> bool:
    """End a job, and its cluster if it was the last one; return whether the cluster continues.

    Ends it through the leader while the cluster runs, else by fencing what may be left of it. Raises `StandfastError`
    if it does not end in time; if that is the ``deadline`` of the whole command, the leader continues to end it.
    """
    orderly = deadline.within(how.orderly_seconds)

    def ask() -> PollResult[bool]:
        """Return whether anything of it runs."""
        try:
            unfenced = {"unfenced": True} if how.is_unfenced else {}
            client.change("undeploy", orderly.left_seconds, job=job, purge=how.purge, **unfenced)
        except StillQueued:
            pass
        except Unavailable:
            runs = bool(yarn.running(client.zookeeper, driver))
            return PollResult(not runs, runs)
        return PollResult(True, True)

    if not until(orderly, ask).what:
        # There is no leader for it: whatever still runs of the job must not commit any more.
        progress.say("no application of it runs" + ("" if how.is_unfenced else "; fencing its tasks"))
        _withdraw(job, client, how)
        return False
    goes_on, mine = _ended(job, client, driver, orderly, progress)
    if goes_on is not None:
        return goes_on
    if driver is None and not mine:
        # Nothing else can end the processes of a pool, and only its operator starts a master.
        raise StandfastError(
            f"{job} has not ended within {orderly.seconds:.0f} s: no master of its pool answers; "
            "start one with `standfast master`, and give the command again"
        )
    if deadline.is_over:
        said = blocked_by(job, client.cluster, mine, _unreadable(job, client))
        raise StandfastError(f"{job} has not ended within {deadline.seconds:g} s: {said}")
    return _end_by_force(job, client, driver, how, mine, progress, deadline)


def _ended(
    job: str, client: ClusterClient, driver: Any, orderly: Deadline, progress: Progress
) -> tuple[bool | None, Mapping[str, Any]]:
    """Wait until a job has ended; return whether its cluster continues (None: not ended), and the job in its info."""
    progress.say(f"undeploying {job}")
    mine: Mapping[str, Any] = {}

    def look() -> PollResult[bool]:
        nonlocal mine
        try:
            jobs = {each["job"]: each for each in client.info()["jobs"]}
        except StandfastError:
            # The candidates have ended with their cluster, or one is about to come back.
            return PollResult(not yarn.running(client.zookeeper, driver), False)
        mine = jobs.get(job, {"status": "", "is_wanted": True, "reasons": []})
        waits = "; ".join(mine["reasons"]) if mine["status"] == JobState.UNDEPLOYING else ""
        is_over = mine["status"] == JobState.UNDEPLOYED and not mine["is_wanted"]
        # A pool goes on without any job.
        goes_on = driver is None or any(_runs(each) for name, each in jobs.items() if name != job)
        return PollResult(is_over and goes_on, True, f"undeploying {job}: {waits}" if waits else "")

    seen = until(orderly, look, progress.say)
    if seen.is_done and not seen.what:
        _drop_cells(client.zookeeper)
    return seen.what if seen.is_done else None, mine


def _runs(job: Mapping[str, Any]) -> bool:
    """Return whether a job in the cluster's info keeps the cluster alive."""
    return bool(job["is_wanted"]) and job["status"] != JobState.FAILED


def blocked_by(job: str, cluster: str, mine: Mapping[str, Any], unreadable: str) -> str:
    """Return why a job does not end, as far as is known, and what to do about it.

    ``mine`` is the job in the cluster's info, ``unreadable`` why the leader cannot lead it. Pure.
    """
    reasons = [f"the leader cannot lead it ({unreadable})"] if unreadable else []
    is_ending = not mine.get("is_wanted", True)
    if is_ending:
        reasons += mine["reasons"] or ["the leader does not say what it waits for"]
    said = (
        f"{'; '.join(reasons) or 'no leader has loaded it'}. The leader continues as soon as that is fixed, "
        f"without another command; `standfast status {job} --cluster {cluster}` shows the progress"
    )
    if not unreadable and not (is_ending and mine["is_unfenceable"]):
        return said
    return (
        f"{said}. If that is not possible, make sure that nothing of {job} can write to Kafka any more (its "
        f"containers have ended, or are cut off for good), then `standfast kill {job} --unfenced`, or `delete`"
    )


def _unreadable(job: str, client: ClusterClient) -> str:
    """Return why the leader cannot lead a job; empty if it can, or if there is no answer."""
    try:
        return str(client.status().get("unreadable", {}).get(job, ""))
    except StandfastError:
        return ""


def _end_by_force(
    job: str,
    client: ClusterClient,
    driver: Any,
    how: UndeployOptions,
    mine: Mapping[str, Any],
    progress: Progress,
    deadline: Deadline,
) -> bool:
    """Have YARN end the cluster of a job that does not end by itself, unless it is a pool or other jobs run there.

    Returns whether the cluster continues: so it does if the leader cannot lead the job, and must not be waited for.
    """
    zookeeper = client.zookeeper
    others = [each for each in zookeeper.jobs.names() if each != job]
    if driver is None or any(
        (record := zookeeper.jobs.read(each)) is not None and record.is_wanted for each in others
    ):
        why = _unreadable(job, client)
        if why and how.is_unfenced:
            progress.warn(f"the leader cannot lead {job} ({why}), so its containers are not waited for")
            return True
        said = blocked_by(job, client.cluster, mine, why)
        raise StandfastError(f"{job} has not ended within {how.orderly_seconds:g} s: {said}")
    running = yarn.running(zookeeper, driver)
    progress.say(f"it does not end by itself; asking YARN to end {', '.join(running)}")
    for each in running:
        yarn.kill(driver, each)
    yarn.await_end(driver, running, deadline)
    _withdraw(job, client, how)
    return False


def _withdraw(job: str, client: ClusterClient, how: UndeployOptions) -> None:
    """Record and fence what there is no leader for."""
    client.zookeeper.jobs.ask(job, is_wanted=False, purge=how.purge)
    if not how.is_unfenced:
        try:
            kafka.fence_job(client.cluster, record_of(job, client).definition)
        except StandfastError as error:
            end_it = f"`standfast kill {job} --unfenced`, or `delete`"
            error.args = (f"{error}; if nothing of {job} can write to Kafka any more, {end_it}",)
            raise
    _drop_cells(client.zookeeper)


def _drop_cells(zookeeper: ZooKeeper) -> None:
    for number in zookeeper.cells.read_each():
        zookeeper.cells.drop(number)
