"""A job on its way into a cluster: one that runs already, or one that is started for it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from appmaster.adapters.kazoo import ZooKeeper
from appmaster.adapters.kazoo_requests import KazooRequests
from appmaster.cli import cells, yarn
from appmaster.cli.code import deliver, leave
from appmaster.cli.output import Progress
from appmaster.cli.stop import undeploy
from appmaster.client import DECIDED_SECONDS, ClusterClient, StillQueued
from appmaster.records import JobRecord
from appmaster.requests import Present
from standby.bundles import Bundle
from standby.config import JobConfig
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.wire import JobDefinition

_POLL_SECONDS: Final = 0.25

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
    """As `appmaster.joining.of_the_cluster` gave them; empty: a version that did not keep them."""

    @property
    def has_job(self) -> bool:
        """Whether the job runs there."""
        return bool(self.applications) and self.present is not None and self.present.runs


def look(config: JobConfig, zookeeper: ZooKeeper, driver: Any) -> Cluster:
    """Return how the job's cluster is; ZooKeeper is asked, for there may be no candidate yet."""
    if not zookeeper.exists():
        return Cluster((), None, has_others=False, settings={})
    found = zookeeper.cells()
    applications = tuple(each.application for each in found.values())
    running = tuple(each for each in applications if yarn.is_running(driver, each))
    requests = KazooRequests(zookeeper.client, config.cluster)
    others = (each for each in zookeeper.jobs() if each != config.job_name)
    has_others = bool(running) and any(_runs(requests, each) for each in others)
    settings = next((each.settings for each in found.values() if each.application in running), {})
    return Cluster(running, requests.present(config.job_name), has_others, settings)


def _runs(requests: KazooRequests, job: str) -> bool:
    """Return whether a job is to run, as far as can be read: what is wrong with it is no affair of another one."""
    try:
        present = requests.present(job)
    except BadConfiguration:
        return True
    return present is not None and present.runs


def make_way(job: str, cluster: Cluster, client: ClusterClient, driver: Any, progress: Progress) -> None:
    """Return once neither the job's own last deployment nor a cluster that is about to end is in the way.

    Raises `StandfastError` when that takes too long.
    """
    if cluster.has_job:
        progress.say(f"updating: stopping {job}")
        undeploy(job, client, driver, purge=False, progress=progress)
        return
    if cluster.has_others:
        return
    deadline = time.monotonic() + _END_SECONDS
    while left := [each for each in cluster.applications if yarn.is_running(driver, each)]:
        if time.monotonic() > deadline:
            raise StandfastError(f"{', '.join(left)} run without any job and do not end")
        progress.say(f"waiting until {', '.join(left)} have ended with their last job")
        time.sleep(_POLL_SECONDS)


def join(
    config: JobConfig,
    definition: JobDefinition,
    bundle: Bundle,
    client: ClusterClient,
    driver: Any,
    progress: Progress,
) -> tuple[str, ...]:
    """Return the applications of the running cluster into which the job is submitted.

    Empty when the cluster has ended before its leader took the job. Raises as `ClusterClient.change`.
    """
    # Before the definition that names it.
    deliver(bundle, config, client, progress.say)
    deadline = time.monotonic() + DECIDED_SECONDS
    request = ""
    while True:
        try:
            if not request:
                request = client.queue("submit", definition=msgspec.to_builtins(definition))
            client.result(request, _LOOK_SECONDS)
            return yarn.running(client.zookeeper, driver)
        except (StillQueued, Unavailable):
            if not yarn.running(client.zookeeper, driver):
                return ()
            if time.monotonic() > deadline:
                raise
            progress.say("waiting for a leader")
            time.sleep(_POLL_SECONDS)


def start(
    config: JobConfig,
    definition: JobDefinition,
    code: Path,
    bundle: Bundle | None,
    topology: tuple[Sequence[str], Mapping[str, str]],
    zookeeper: ZooKeeper,
    driver: Any,
    progress: Progress,
) -> tuple[str, ...]:
    """Return the ids of the YARN applications that have been submitted for the job's cluster, one for each cell.

    ``topology`` is the hosts that get a service of their own, and every host's rack. The cells' records are
    claimed before, so that two submits never make one cell twice; nobody runs who could take the job as a request.
    """
    closed = zookeeper.protect()
    if closed:
        progress.say(f"the cluster's tree in ZooKeeper was open; its {closed} nodes are closed to others now")
    zookeeper.prepare()
    numbers = range(1, config.cells + 1)
    with cells.claimed(zookeeper, driver, config, numbers) as claims:
        for number in set(zookeeper.cells()) - set(numbers):
            zookeeper.drop_cell(number)  # of a submit that asked for more; nothing of it runs
        KazooRequests(zookeeper.client, config.cluster).refuse_left(
            "its cluster ended before anybody made it"
        )
        if bundle is not None:
            # Before the definition that names it: hosts that come late and later revisions fetch the same.
            leave(bundle, config, zookeeper)
        zookeeper.put_job(JobRecord(definition))
        progress.say("submitting to YARN")
        return cells.submit(config, code, topology, claims, driver)


def wait_deployed(
    definition: JobDefinition,
    client: ClusterClient,
    driver: Any,
    started: Sequence[str],
    arguments: argparse.Namespace,
    progress: Progress,
) -> dict[str, Any]:
    """Return the leader's status once the job is deployed (and warm, if asked for).

    Raises `StandfastError` with the reasons when the application ends, or the time is over.
    """
    job = definition.name
    deadline = time.monotonic() + arguments.timeout
    looked = 0.0
    reasons: Sequence[str] = ()
    while time.monotonic() < deadline:
        if time.monotonic() - looked > _LOOK_SECONDS:
            looked = time.monotonic()
            if not any(yarn.is_running(driver, each) for each in started):
                report = driver.application_report(started[0])
                raise StandfastError(
                    f"{', '.join(started)} ended: {report.diagnostics or report.final_status}; "
                    f"see `standfast logs {job}`"
                )
        try:
            status = client.status()
        except Unavailable:
            progress.say("waiting for the application master")
            time.sleep(_POLL_SECONDS)
            continue
        mine = next((each for each in status["jobs"] if each["name"] == job), None)
        # Before the leader has read the job again, its status is of the last deployment.
        if mine is not None and mine["revision"] >= definition.revision:
            if mine["status"] == "failed":
                raise StandfastError(f"{job} failed: {'; '.join(mine['reasons'])}")
            reasons = mine["reasons"]
            serving = [each for each in status["containers"] if _serves(each, job)]
            cold = sum(not each["warm"] for each in serving)
            if mine["status"] == "deployed" and (arguments.wait == "deployed" or not cold):
                progress.say(
                    f"{cold} of {len(serving)} containers are not warm yet"
                    if cold
                    else "all containers are warm"
                )
                return status
            progress.say(_describe(mine, status, len(serving), cold))
        time.sleep(_POLL_SECONDS)
    raise StandfastError(
        f"{job} is not deployed after {arguments.timeout:g} s ({'; '.join(reasons)}); "
        f"it goes on trying: see `standfast status {job}`"
    )


def _serves(container: Mapping[str, Any], job: str) -> bool:
    return job in container["revisions"] or (container["slot"] or "").startswith(f"{job}/")


def _describe(mine: Mapping[str, Any], status: Mapping[str, Any], serving: int, cold: int) -> str:
    wanted = mine["processors"] * mine["copies"]
    tasks = (each for each in status["tasks"] if each["task"]["job"] == mine["name"])
    placed = [each for task in tasks for each in task["replicas"]]
    ready = sum(each["phase"] in ("active", "tailing") for each in placed)
    return (
        f"{serving} of {wanted} containers serve it, {ready} of {len(placed)} replicas restored, "
        f"{serving - cold} containers warm"
    )
