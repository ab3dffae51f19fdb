"""Containers as they ship, on real ZooKeeper and Kafka: a new standby fetches its state from a peer."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from embedded.cluster import LocalCluster
from embedded.web import open_url
from standby.shared import naming
from standby.shared.model import Phase, Role, TaskId, TaskRecord
from standby.shared.records import encode_task
from tests.fakes.zookeeper import LoneZooKeeper
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.test_container_kernel import HOSTS, TASKS, Play


@dataclass(frozen=True, slots=True)
class Servers:
    """All that these containers need of a cluster."""

    kafka_bootstrap: str
    zookeeper_connect: str


class PlacedPlay(Play):
    """Its records say, too, where the copies are."""

    def record(self, active: int, epoch: int, *, claimed: bool) -> None:
        placed = {copy: f"container_1_0001_01_00000{copy + 2}" for copy in range(2)}
        for number in range(TASKS):
            task = TaskId("counting", "main", number)
            path = naming.task_path(self.job.cluster, task)
            record = TaskRecord(task, active, epoch, placed, in_sync=(active,), claimed=claimed)
            if self.zookeeper.exists(path):
                self.zookeeper.set(path, encode_task(record))
            else:
                self.zookeeper.create(path, encode_task(record), makepath=True)

    def metrics(self, copy: int) -> dict[str, float]:
        """Return where a container's states came from."""
        port = self.sessions[copy].hello.http_port
        with open_url(f"http://{HOSTS[copy]}:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
            text = answer.read().decode()
        found = re.findall(
            r'^standfast_restores_total\{job="counting",source="(\w+)"\} (\S+)$', text, re.MULTILINE
        )
        return {source: float(value) for source, value in found}


@pytest.fixture
def play(kafka_bootstrap: str, tmp_path: Path) -> Iterator[PlacedPlay]:
    (tmp_path / "zookeeper").mkdir()
    with LoneZooKeeper(tmp_path / "zookeeper") as zookeeper:
        play = PlacedPlay(cast("LocalCluster", Servers(kafka_bootstrap, zookeeper.connect)), tmp_path)
        # The definition is frozen; what it says of the job is the test's to choose before anybody reads it.
        cast("dict[str, str]", play.job.definition.config)["job.restore.peer.min.records"] = "1"
        yield play
        play.close()
        for each in play.containers:
            print(f"==> {each.id}\n{each.log.read_text()}")


def test_a_new_standby_fetches_from_its_active_and_takes_over(play: PlacedPlay) -> None:
    play.record(0, 1, claimed=False)
    play.start(0)
    play.order(0, Role.ACTIVE, 1)
    play.job.send(5_000)
    play.processed(0)
    play.start(1)
    play.order(1, Role.STANDBY, 1)
    play.wait(1, lambda each: each.phase is Phase.TAILING and each.lag_records == 0)
    assert play.metrics(0) == {"changelog": TASKS}
    assert play.metrics(1) == {"active": TASKS}
    play.job.send(1_000)
    play.containers[0].send(signal.SIGKILL)
    play.record(1, 2, claimed=True)
    play.order(1, Role.ACTIVE, 2)
    play.processed(1)
    play.job.assert_exact()
