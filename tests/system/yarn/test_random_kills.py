"""A hundred processes of a job are killed at random moments, new ones among them; nothing of it is its failure."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from embedded.state import ContainerProcess
from tests.patience import STRIKE_SECONDS, looks
from tests.system.yarn.counting import CountingJob, some, submitted

KILLS = 100

#: Records of each task between two kills.
RECORDS = 5


def workers(job: CountingJob, attempts: set[str]) -> list[ContainerProcess]:
    """Return the processes that do the work in the job's containers, whether or not these have registered.

    Of the two in a container the witness is the older one.
    """
    found: dict[str, list[ContainerProcess]] = {}
    for each in job.cluster.container_processes():
        attempt, _, number = each.container_id.rpartition("_")
        if attempt in attempts and number != "000001" and "standby" in each.command:
            found.setdefault(each.container_id, []).append(each)
    return [each[1] for each in found.values() if len(each) > 1]


@pytest.mark.soak
def test_a_hundred_random_kills_end_nothing_and_spend_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    chance = random.Random()
    settings: dict[str, Any] = {"appmaster.cells": "2", "job.container.count": "2"}
    job = CountingJob(cluster, tmp_path / "killed", "killed", "killed", 2, **settings)
    with submitted(job):
        begun, kills, unregistered = now_ms(), 0, 0
        attempts = {each.container.rpartition("_")[0] for each in job.status.containers}
        while kills < KILLS:
            for task in range(job.partitions):
                records = some(RECORDS, 3, kills * RECORDS)
                job.produce(task, [(b"%d %s" % (task, key), value) for key, value in records])
            for _ in looks(chance.random() * 4 * STRIKE_SECONDS):
                pass
            known = {each.container for each in job.status.containers}
            alive = workers(job, attempts)
            new = [each for each in alive if each.container_id not in known]
            if alive:
                victim = chance.choice(new or alive)
                kills += victim.send(signal.SIGKILL)
                unregistered += victim in new
        print(f"{kills} kills, {unregistered} before they had registered")
        job.wait_until_settled()
        job.assert_exact()
        assert {"processor_parked", "decided_failures"}.isdisjoint(job.kinds(begun))
        assert job.status.jobs[0].status == "deployed"
