"""A job on its way into a cluster: one that runs already, or one that is started for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import DECIDED_SECONDS, ClusterClient, Refused, StillQueued
from appmaster.changes.operations import Present
from appmaster.cli.launch import cells
from appmaster.cli.launch.code import deliver, leave, withdraw
from appmaster.cli.launch.undeploy import Ending, undeploy
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.ended import Ends
from appmaster.cli.shared.waiting import Seen, until, until_leader_says
from appmaster.planning.state.job import JobState
from standby.code.bundles import Bundle
from standby.config import JobConfig
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared.model import TaskId
from standby.shared.wire import JobDefinition

#: How long a cluster may take to end after its last job, seconds.
_END_SECONDS: Final = 60.0

#: How often YARN is asked whether a cluster still runs while nobody in it answers, seconds.
_LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a job is submitted into, as it is before."""

    applications: tuple[str, ...]
    """Of its cells, as far as they run."""
    present: Present | None
    """The job there."""
    has_others: bool
    """Whether it goes on without the job."""
    settings: Mapping[str, str]
    """As `appmaster.changes.compatibility.of_the_cluster` gave them; empty: a version that did not keep them."""

    @property
    def has_job(self) -> bool:
        """Whether the job runs there."""
        return bool(self.applications) and self.present is not None and self.present.runs


def look(config: JobConfig, zookeeper: ZooKeeper, driver: Any) -> Cluster:
    """Return how the job's cluster is; ZooKeeper is asked, for there may be no candidate yet."""
    if not zookeeper.tree.exists():
        return Cluster((), None, has_others=False, settings={})
    found = zookeeper.cells.read_all()
    applications = tuple(each.application for each in found.values())
    running = tuple(each for each in applications if yarn.is_running(driver, each))
    requests = zookeeper.changes
    others = (each for each in zookeeper.jobs.names() if each != config.job_name)
    has_others = bool(running) and any(_runs(requests, each) for each in others)
    settings = next((each.settings for each in found.values() if each.application in running), {})
    return Cluster(running, requests.present(config.job_name), has_others, settings)


def _runs(requests: ZooKeeperChanges, job: str) -> bool:
    """Return whether a job is to run, as far as can be read: what is wrong with it is no affair of another one."""
    try:
        present = requests.present(job)
    except BadConfiguration:
        return True
    return present is not None and present.runs


def make_way(job: str, cluster: Cluster, client: ClusterClient, driver: Any, launch: cells.Launching) -> None:
    """Return once neither the job's own last deployment nor a cluster that is about to end is in the way.

    Raises `StandfastError` when that takes too long.
    """
    progress = launch.progress
    if cluster.has_job:
        progress.say(f"updating: stopping {job}")
        undeploy(job, client, driver, Ending(), progress=progress, deadline=launch.deadline)
        return
    if cluster.has_others:
        return

    def say(left: Sequence[str]) -> None:
        progress.say(f"waiting until {', '.join(left)} have ended with their last job")

    left = yarn.still_running(driver, cluster.applications, launch.deadline.within(_END_SECONDS), say)
    if left:
        raise StandfastError(f"{', '.join(left)} run without any job and do not end")


@dataclass(frozen=True, slots=True)
class Start:
    """A job that is to be started."""

    config: JobConfig
    definition: JobDefinition
    code: Path
    """Directory of its modules."""
    bundle: Bundle | None
    """The same, as it travels to the candidates; None when it is too large for that."""
    topology: cells.Topology


def join(
    job: Start, bundle: Bundle, client: ClusterClient, driver: Any, launch: cells.Launching
) -> tuple[str, ...]:
    """Return the applications of the running cluster into which the job is submitted.

    Empty when the cluster has ended before its leader took the job. Raises as `ClusterClient.change`; from the moment
    at which the job may be queued, only its refusal undoes what was made for it.
    """
    # Before the definition that names it.
    deliver(bundle, job.config, client, launch.progress.say)
    mine = launch.deadline.within(DECIDED_SECONDS)
    request = ""
    launch.undo.only_for(Refused)

    def look() -> Seen[tuple[str, ...] | StandfastError]:
        nonlocal request
        try:
            if not request:
                request = client.queue("submit", definition=msgspec.to_builtins(job.definition))
            client.result(request, min(_LOOK_SECONDS, mine.left_seconds))
            return Seen(True, yarn.running(client.zookeeper, driver))
        except (StillQueued, Unavailable) as error:
            if not yarn.running(client.zookeeper, driver):
                return Seen(True, ())
            return Seen(False, error, "waiting for a leader")

    found = until(mine, look, launch.progress.say).what
    if isinstance(found, StandfastError):
        raise found
    return found


def start(
    job: Start,
    make_topics: Callable[[], JobDefinition],
    zookeeper: ZooKeeper,
    driver: Any,
    launch: cells.Launching,
) -> tuple[str, ...]:
    """Return the ids of the YARN applications that have been submitted for the job's cluster, one for each cell.

    ``make_topics`` makes, or checks, the job's own topics, and undoes it as the rest; it returns the definition that
    is to be recorded, with what is known of them.

    The cells' records are claimed before anything else is made, so that two submits never make one cell twice, nor
    undo what the other one made; nobody runs who could take the job as a request. Once it returns, only `NeverRan`
    undoes what was made.
    """
    config, undo = job.config, launch.undo
    # Nobody runs who could still take up what a former cluster had been asked for.
    undo.only_for(BaseException)
    zookeeper.tree.make_way()
    is_new = not zookeeper.tree.exists()
    numbers = range(1, config.cells + 1)
    claims = cells.Claims(zookeeper, config)

    def drop_tree() -> None:
        # With a part of the cells, another submit has the others, and needs the tree.
        if is_new and set(claims.numbers) == set(numbers):
            zookeeper.tree.drop()

    undo.on_failure("the cluster's tree in ZooKeeper", drop_tree)
    cells.claim(claims, zookeeper, driver, numbers, undo)
    zookeeper.tree.prepare()
    for number, left in zookeeper.cells.read_all().items():
        if number not in numbers:  # of a submit that asked for more; nothing of it runs
            undo.on_failure(f"cell {number}", partial(zookeeper.cells.claim, number, left))
            zookeeper.cells.drop(number)
    zookeeper.changes.refuse_left("its cluster ended before anybody made it")
    definition = make_topics()
    if job.bundle is not None:
        # Before the definition that names it: hosts that come late and later revisions fetch the same.
        if not zookeeper.code.has(job.bundle.digest):
            undo.on_failure("the job's code", partial(withdraw, job.bundle, config, zookeeper))
        leave(job.bundle, config, zookeeper)
    first = zookeeper.changes.first_submit(definition)
    undo.on_failure(f"the record of {definition.name}", partial(zookeeper.changes.take_back, first))
    zookeeper.changes.submit(first)
    launch.progress.say("submitting to YARN")
    started = cells.submit(config, job.code, job.topology, claims, driver, launch)
    undo.only_for(NeverRan)
    return started


class NeverRan(StandfastError):
    """Every application of a submit has ended, and no task of the job has had an active meanwhile."""


@dataclass(frozen=True, slots=True)
class Before:
    """What there was of a cluster before a submit into it."""

    epochs: Mapping[TaskId, int]
    """Of the job's tasks that have had an active."""
    others: frozenset[str]
    """The other jobs."""


def before(job: str, zookeeper: ZooKeeper) -> Before:
    """Return what there is of a job's cluster."""
    found = zookeeper.jobs.load(job)
    records = (each.record for each in (found.tasks if found is not None else ()))
    epochs = {each.task: each.epoch for each in records if each.epoch > 0}
    return Before(epochs, frozenset(zookeeper.jobs.names()) - {job})


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job that was submitted."""

    definition: JobDefinition
    applications: tuple[str, ...]
    before: Before
    is_warm: bool
    """Whether it is waited for until its containers are warm."""
    ends: Ends


def wait_deployed(
    awaited: Awaited, client: ClusterClient, driver: Any, launch: cells.Launching
) -> dict[str, Any]:
    """Return the leader's status once the job is deployed (and warm, if asked for).

    Raises `StandfastError` with the reasons when the time is over, the job fails or its applications end; in the last
    two cases `NeverRan` when none of its tasks has had an active, and no other job uses the cluster.
    """
    job = awaited.definition.name
    reasons: Sequence[str] = ()
    looked: Deadline | None = None

    def look_at_yarn() -> None:
        nonlocal looked
        if looked is not None and not looked.is_over:
            return
        looked = launch.deadline.beyond(_LOOK_SECONDS)
        ends = awaited.ends.look(driver, awaited.applications)
        if not any(yarn.is_running(driver, each) for each in awaited.applications):
            said = "\n  ".join(map(str, ends)) or "YARN does not know them any more"
            raise _failure(awaited, client, f"every application of {job} has ended:\n  {said}")

    def judge(status: dict[str, Any]) -> Seen[dict[str, Any]]:
        nonlocal reasons
        mine = _mine(status, awaited)
        if mine is not None:
            reasons = mine["reasons"]
        seen = deployment(status, awaited)
        if seen.failure and not any(_is_alive(each) for each in status["jobs"] if each["name"] != job):
            raise _failure(awaited, client, seen.failure)
        return seen

    seen = until_leader_says(launch.deadline, client.status, judge, launch.progress.say, look_at_yarn)
    if seen is not None and seen.is_done:
        return seen.what
    why = "; ".join(reasons) or "; ".join(_waiting(driver, each) for each in awaited.applications)
    raise StandfastError(
        f"{job} is not deployed after {launch.deadline.seconds:g} s ({why}); "
        f"it goes on trying: see `standfast status {job}`"
    )


def deployment(status: dict[str, Any], awaited: Awaited) -> Seen[dict[str, Any]]:
    """Return how far a job's deployment is, by the leader's status. Pure."""
    job, mine = awaited.definition.name, _mine(status, awaited)
    if mine is None:
        return Seen(False, status)
    if mine["status"] == "failed":
        return Seen(False, status, failure=f"{job} failed: {'; '.join(mine['reasons'])}")
    serving = [each for each in status["containers"] if serves(each, job)]
    cold = sum(not each["warm"] for each in serving)
    if mine["status"] != "deployed" or (awaited.is_warm and cold):
        return Seen(False, status, _describe(mine, status, len(serving), cold))
    said = f"{cold} of {len(serving)} containers are not warm yet" if cold else "all containers are warm"
    return Seen(True, status, said)


def _mine(status: Mapping[str, Any], awaited: Awaited) -> Mapping[str, Any] | None:
    """Return the job; None before the leader has read it again: its status is of the last deployment then."""
    definition = awaited.definition
    found = next((each for each in status["jobs"] if each["name"] == definition.name), None)
    return found if found is not None and found["revision"] >= definition.revision else None


def at_the_end(job: str, deployed: dict[str, Any], client: ClusterClient) -> tuple[dict[str, Any], str]:
    """Return a job's newest status, and what is to be said of it, once nothing is left to be done that takes time.

    ``deployed`` is the status by which it was deployed, a moment ago. Raises `StandfastError` when it has failed
    since, or somebody has ended it.
    """
    try:
        status = client.status()
    except Unavailable as error:
        recorded = client.zookeeper.jobs.status(job)
        if recorded is not None:
            _refuse_ended(job, recorded.state, recorded.reasons)
        return deployed, f"{job} was deployed when a leader last looked: {error}"
    mine = next((each for each in status["jobs"] if each["name"] == job), None)
    if mine is None:
        raise StandfastError(f"{job} was deployed, and is gone now: somebody has deleted it")
    _refuse_ended(job, mine["status"], mine["reasons"])
    is_well = mine["status"] == JobState.DEPLOYED
    said = f"{job} is deployed" if is_well else f"{job} was deployed, and is {mine['status']} now"
    return status, "\n  ".join((said, *mine["reasons"]))


def _refuse_ended(job: str, state: str, reasons: Sequence[str]) -> None:
    why = f": {'; '.join(reasons)}" if reasons else ""
    if state == JobState.FAILED:
        raise StandfastError(f"{job} was deployed, and has failed since{why}")
    if state in (JobState.UNDEPLOYING, JobState.UNDEPLOYED):
        raise StandfastError(f"{job} was deployed, and is {JobState(state).value} now{why}")


def _failure(awaited: Awaited, client: ClusterClient, said: str) -> StandfastError:
    """Return the error of a submit after which nothing of its cluster runs, or goes on running."""
    now = before(awaited.definition.name, client.zookeeper)
    # With a job that was submitted into the cluster meanwhile, what was made is not this submit's alone.
    is_unused = now.epochs == awaited.before.epochs and now.others <= awaited.before.others
    return NeverRan(said) if is_unused else StandfastError(said)


def _is_alive(job: Mapping[str, Any]) -> bool:
    return job["status"] not in (JobState.FAILED, JobState.UNDEPLOYED)


def _waiting(driver: Any, application: str) -> str:
    """Return what YARN says of an application for which nobody has answered yet."""
    found = yarn.report(driver, application)
    if found is None:
        return f"YARN does not know {application}"
    words = " ".join((found.diagnostics or "").split())
    return f"{application} is {found.state}{f': {words}' if words else ''}, and no leader answers"


def serves(container: Mapping[str, Any], job: str) -> bool:
    """Return whether a container in the leader's status holds something of a job, or runs it. Pure.

    A leader of a release that does not say the job knows it by what the container runs.
    """
    return job in container["revisions"] or container.get("job") == job


def _describe(mine: Mapping[str, Any], status: Mapping[str, Any], serving: int, cold: int) -> str:
    wanted = mine["processors"] * mine["copies"]
    tasks = (each for each in status["tasks"] if each["task"]["job"] == mine["name"])
    placed = [each for task in tasks for each in task["replicas"]]
    ready = sum(each["phase"] in ("active", "tailing") for each in placed)
    return (
        f"{serving} of {wanted} containers serve it, {ready} of {len(placed)} replicas restored, "
        f"{serving - cold} containers warm"
    )
