"""Starts a job in a cluster: one that runs already, or one that is started for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from appmaster.adapters.zookeeper.changes import ZooKeeperChanges
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import DECIDED_SECONDS, ChangeRefused, ClusterClient, StillQueued
from appmaster.api.snapshot import job_in, tasks_in
from appmaster.changes.operations import CurrentJob
from appmaster.cli.launch import cells
from appmaster.cli.launch.code import deliver, is_shipped, leave, withdraw
from appmaster.cli.launch.undeploy import UndeployOptions, undeploy
from appmaster.cli.shared import yarn
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.ended_applications import ApplicationWatch
from appmaster.cli.shared.waiting import LeaderRefusal, PollResult, unreadable, until, until_leader_says
from appmaster.planning.state.job import JobState
from appmaster.records import JobRecord, recorded_environments, recorded_settings
from standby.code.bundles import Bundle
from standby.config import JobConfig
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.shared.model import TaskId
from standby.shared.naming import POOL
from standby.shared.wire import JobDefinition

#: How long a cluster may take to end after its last job, seconds.
_END_SECONDS: Final = 60.0

#: How often YARN is asked whether a cluster still runs while no candidate answers, seconds.
_LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """The cluster that a job is submitted into, before the submit."""

    applications: tuple[str, ...]
    """The running applications of its cells."""
    present: CurrentJob | None
    """The job in that cluster."""
    has_others: bool
    """Whether the cluster continues without the job."""
    settings: Mapping[str, str]
    """As `appmaster.changes.compatibility.cluster_settings` returned them.

    Empty: nothing of the cluster runs.
    """
    environments: frozenset[str] = frozenset()
    """As `appmaster.records.recorded_environments` returned them."""
    is_pool: bool = False
    """Whether its containers are processes of a pool; ``applications`` are then only a name for it."""

    @property
    def record(self) -> JobRecord | None:
        """The job as it was submitted before; None for a new one."""
        return self.present.record if self.present is not None else None

    @property
    def in_words(self) -> str:
        """The applications, or the pool."""
        return "its pool" if self.is_pool else ", ".join(self.applications)

    @property
    def has_job(self) -> bool:
        """Whether the job runs there."""
        return bool(self.applications) and self.present is not None and self.present.runs


def inspect_cluster(config: JobConfig, zookeeper: ZooKeeper, driver: Any) -> TargetCluster:
    """Return the state of the job's cluster, read from ZooKeeper, since there may be no candidate yet."""
    if not zookeeper.tree.exists():
        return TargetCluster((), None, has_others=False, settings={})
    found = zookeeper.cells.read_all()
    requests = zookeeper.changes
    if driver is None:
        settings = next(iter(found.values())).settings
        present = requests.present(config.job_name)
        return TargetCluster((POOL,), present, has_others=True, settings=settings, is_pool=True)
    applications = tuple(each.application for each in found.values())
    running = tuple(each for each in applications if yarn.is_running(driver, each))
    others = (each for each in zookeeper.jobs.names() if each != config.job_name)
    has_others = bool(running) and any(_runs(requests, each) for each in others)
    of_it = [each for each in found.values() if each.application in running]
    present = requests.present(config.job_name)
    return TargetCluster(running, present, has_others, recorded_settings(of_it), recorded_environments(of_it))


def _runs(requests: ZooKeeperChanges, job: str) -> bool:
    """Return whether a job is to run, as far as can be read: problems of one job do not concern another."""
    try:
        present = requests.present(job)
    except BadConfiguration:
        return True
    return present is not None and present.runs


def clear_former_deployment(
    job: str, cluster: TargetCluster, client: ClusterClient, driver: Any, launch: cells.Launching
) -> None:
    """Return once neither the job's own last deployment nor a cluster that is about to end is in the way.

    Raises `StandfastError` if that takes too long.
    """
    progress = launch.progress
    if cluster.has_job:
        progress.say(f"updating: stopping {job}")
        how = UndeployOptions(tasks=cluster.record.definition.tasks if cluster.record is not None else 0)
        undeploy(job, client, driver, how, progress=progress, deadline=launch.deadline)
        return
    if cluster.has_others:
        return

    def say(left: Sequence[str]) -> None:
        progress.say(f"waiting until {', '.join(left)} have ended with their last job")

    left = yarn.still_running(driver, cluster.applications, launch.deadline.within(_END_SECONDS), say)
    if left:
        raise StandfastError(f"{', '.join(left)} run without any job and do not end")


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job that is to be started."""

    config: JobConfig
    definition: JobDefinition
    bundle: Bundle
    """Its modules."""
    topology: cells.Topology


def join(job: JobStart, client: ClusterClient, driver: Any, launch: cells.Launching) -> tuple[str, ...]:
    """Return the applications of the running cluster into which the job is submitted.

    Empty if the cluster ended before its leader accepted the job. Raises as `ClusterClient.change`. From the moment at
    which the job may be queued, only its refusal undoes what was created for it.
    """
    # Before the definition that names the bundle.
    deliver(job.bundle, job.config, client, launch.progress.say)
    mine = launch.deadline.within(DECIDED_SECONDS)
    request = ""
    launch.undo.only_for(ChangeRefused)

    def look() -> PollResult[tuple[str, ...] | StandfastError]:
        nonlocal request
        try:
            if not request:
                request = client.queue("submit", definition=msgspec.to_builtins(job.definition))
            client.result(request, min(_LOOK_SECONDS, mine.left_seconds))
            return PollResult(True, yarn.running(client.zookeeper, driver))
        except (StillQueued, Unavailable) as error:
            if not yarn.running(client.zookeeper, driver):
                return PollResult(True, ())
            return PollResult(False, error, "waiting for a leader")

    found = until(mine, look, launch.progress.say).what
    if isinstance(found, StandfastError):
        raise found
    return found


def start(
    job: JobStart,
    make_topics: Callable[[], JobDefinition],
    zookeeper: ZooKeeper,
    driver: Any,
    launch: cells.Launching,
) -> tuple[str, ...]:
    """Return the ids of the YARN applications submitted for the job's cluster, one for each cell.

    ``make_topics`` creates or checks the job's own topics, and registers how to undo that. It returns the definition to
    record, with what is known about the topics.

    Other submits of the cluster are refused meanwhile, and the cells' records are claimed before anything else is
    created, so that two submits never make one cell twice, nor undo what the other one created; if another one has the
    cells after all, because the claim of this one had ended, only the applications are undone. No candidate runs that
    could take up the job. Once this function returns, only `NeverRan` undoes what was created.
    """
    config, undo = job.config, launch.undo
    # No candidate runs that could still take up changes of a former cluster.
    undo.only_for(BaseException)
    zookeeper.tree.make_way()
    claims = cells.Claims(zookeeper, config)
    claims.begin(undo)
    is_new = not zookeeper.tree.exists()
    numbers = range(1, config.cells + 1)

    def drop_tree() -> None:
        # If this submit claimed only some of the cells, another one has the rest, and needs the tree.
        if is_new and set(claims.numbers) == set(numbers):
            zookeeper.tree.drop()

    undo.on_failure("the cluster's tree in ZooKeeper", drop_tree)
    claims.take(numbers, driver, undo)
    zookeeper.tree.prepare()
    for number, left in zookeeper.cells.read_all().items():
        if number not in numbers:  # of a submit with more cells; nothing of it runs
            undo.on_failure(f"cell {number}", partial(zookeeper.cells.claim, number, left))
            zookeeper.cells.drop(number)
    zookeeper.changes.refuse_left("its cluster ended before the change was made")
    definition = make_topics()
    # Before the definition that names the bundle.
    if not zookeeper.code.has(job.bundle.digest):
        undo.on_failure("the job's code", partial(withdraw, job.bundle, config, zookeeper))
    if not is_shipped(job.bundle, config):
        leave(job.bundle, config, zookeeper)
    first = zookeeper.changes.first_submit(definition)
    undo.on_failure(f"the record of {definition.name}", partial(zookeeper.changes.take_back, first))
    # Before what is registered above is undone, and after the applications are.
    undo.on_failure("what the cluster's cells use", claims.confirm)
    zookeeper.changes.submit(first)
    launch.progress.say("submitting to YARN")
    started = cells.submit(config, job.bundle, job.topology, claims, driver, launch)
    undo.only_for(NeverRan)
    return started


class NeverRan(StandfastError):
    """Every application of a submit has ended, and no task of the job has had an active meanwhile."""


@dataclass(frozen=True, slots=True)
class BeforeSubmit:
    """The state of a cluster before a submit into it."""

    epochs: Mapping[TaskId, int]
    """The job's tasks that have had an active, with their epochs."""
    others: frozenset[str]
    """The other jobs."""


def state_before(job: str, zookeeper: ZooKeeper) -> BeforeSubmit:
    """Return the state of a job's cluster."""
    found = zookeeper.jobs.load(job)
    records = (each.record for each in (found.tasks if found is not None else ()))
    epochs = {each.task: each.epoch for each in records if each.epoch > 0}
    return BeforeSubmit(epochs, frozenset(zookeeper.jobs.names()) - {job})


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A submitted job."""

    definition: JobDefinition
    applications: tuple[str, ...]
    before: BeforeSubmit
    is_warm: bool
    """Whether to wait until its containers are warm."""
    ends: ApplicationWatch


def wait_deployed(
    awaited: SubmittedJob, client: ClusterClient, driver: Any, launch: cells.Launching
) -> dict[str, Any]:
    """Return the leader's status once the job is deployed (and warm, if requested).

    Raises `StandfastError` with the reasons when the time is over, the leader cannot lead the job, the job fails, or
    its applications end. In the last two cases it raises `NeverRan` if none of the job's tasks has had an active and no
    other job uses the cluster.
    """
    job = awaited.definition.name
    reasons: Sequence[str] = ()
    looked: Deadline | None = None
    refusal = LeaderRefusal(job, launch.deadline)

    def look_at_yarn() -> None:
        nonlocal looked
        if driver is None or (looked is not None and not looked.is_over):
            return
        looked = launch.deadline.beyond(_LOOK_SECONDS)
        # In this order: one that ends in between is found to have ended.
        is_running = any(yarn.is_running(driver, each) for each in awaited.applications)
        ends = awaited.ends.look(driver, awaited.applications)
        if not is_running:
            said = "\n  ".join(map(str, ends)) or "YARN no longer knows them"
            raise _failure(awaited, client, f"every application of {job} has ended:\n  {said}")

    def judge(status: dict[str, Any]) -> PollResult[dict[str, Any]]:
        nonlocal reasons
        mine = _mine(status, awaited)
        refusal.check(status)
        if mine is not None:
            reasons = mine["reasons"]
        elif said := unreadable(status, job):
            reasons = (said,)
        seen = deployment(status, awaited)
        if seen.failure and not any(_is_alive(each) for each in status["jobs"] if each["name"] != job):
            raise _failure(awaited, client, seen.failure)
        return seen

    seen = until_leader_says(launch.deadline, client.status, judge, launch.progress.say, look_at_yarn)
    if seen is not None and seen.is_done:
        return seen.what
    applications = () if driver is None else awaited.applications
    why = "; ".join(reasons or (_waiting(driver, each) for each in applications)) or "no leader answers"
    raise StandfastError(
        f"{job} is not deployed after {launch.deadline.seconds:g} s ({why}); "
        f"it keeps trying: see `standfast status {job}`"
    )


def deployment(status: dict[str, Any], awaited: SubmittedJob) -> PollResult[dict[str, Any]]:
    """Return the progress of a job's deployment according to the leader's status. Pure."""
    job, mine = awaited.definition.name, _mine(status, awaited)
    if mine is None:
        return PollResult(False, status, unreadable(status, job))
    if mine["status"] == "failed":
        return PollResult(False, status, failure=f"{job} failed: {'; '.join(mine['reasons'])}")
    serving = [each for each in status["containers"] if serves_job(each, job) and not each["spare"]]
    cold = sum(not each["warm"] for each in serving)
    if mine["status"] != "deployed" or (awaited.is_warm and cold):
        return PollResult(False, status, _describe(mine, status, len(serving), cold))
    said = f"{cold} of {len(serving)} containers are not warm yet" if cold else "all containers are warm"
    return PollResult(True, status, said)


def _mine(status: Mapping[str, Any], awaited: SubmittedJob) -> Mapping[str, Any] | None:
    """Return the job; None before the leader has read it again, since its status is of the last deployment then."""
    definition = awaited.definition
    found = job_in(status, definition.name)
    return found if found is not None and found["revision"] >= definition.revision else None


def final_status(job: str, deployed: dict[str, Any], client: ClusterClient) -> tuple[dict[str, Any], str]:
    """Return a job's newest status and the message about it, when nothing that takes time is left to do.

    ``deployed`` is the status, of a moment ago, in which it was deployed. Raises `StandfastError` if it has failed
    since, or has been ended.
    """
    try:
        status = client.status()
    except Unavailable as error:
        recorded = client.zookeeper.jobs.status(job)
        if recorded is not None:
            _refuse_ended(job, recorded.state, recorded.reasons)
        return deployed, f"{job} was deployed when a leader last looked: {error}"
    mine = job_in(status, job)
    if mine is None:
        raise StandfastError(f"{job} was deployed, and is gone now: it has been deleted")
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


def _failure(awaited: SubmittedJob, client: ClusterClient, said: str) -> StandfastError:
    """Return the error of a submit after which nothing of its cluster runs or will run."""
    now = state_before(awaited.definition.name, client.zookeeper)
    # If another job was submitted into the cluster meanwhile, what was created is not this submit's alone.
    is_unused = now.epochs == awaited.before.epochs and now.others <= awaited.before.others
    return NeverRan(said) if is_unused else StandfastError(said)


def _is_alive(job: Mapping[str, Any]) -> bool:
    return job["status"] not in (JobState.FAILED, JobState.UNDEPLOYED)


def _waiting(driver: Any, application: str) -> str:
    """Return YARN's report of an application for which no leader has answered yet."""
    found = yarn.report(driver, application)
    if found is None:
        return f"YARN does not know {application}"
    return f"{application} is {yarn.in_words(found)}, and no leader answers"


def serves_job(container: Mapping[str, Any], job: str) -> bool:
    """Return whether a container in the leader's status holds something of a job, or runs it. Pure."""
    return job in container["revisions"] or container["job"] == job


def _describe(mine: Mapping[str, Any], status: Mapping[str, Any], serving: int, cold: int) -> str:
    placed = [each for task in tasks_in(status, mine["name"]) for each in task["replicas"]]
    ready = sum(each["phase"] in ("active", "tailing") for each in placed)
    return (
        f"{serving} of {mine['containers']} containers serve it, {ready} of {len(placed)} replicas restored, "
        f"{serving - cold} containers warm"
    )
