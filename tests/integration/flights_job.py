"""The flights job on the shared cluster, deployed once for a module of tests and judged after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from demo.command import standfast
from demo.events import EventLog
from demo.scenario import JOB, Scenario, Shape
from demo.standing import Status
from demo.topics import end_offsets
from embedded.cluster import LocalCluster
from standby.naming import escape
from tests.exactness import OUTPUT_TOPICS, assert_exact, fresh_topics, stream, wait_until_processed
from tests.integration.running import RunningJob
from tests.patience import PATIENCE_SECONDS

_LOOK_SECONDS = 0.05

#: The plain feed: what these tests are about is everything else, and four JVMs would only slow it down.
PLAIN = {
    "task.feed": "plain",
    "task.transform": "flights_plain:clean_table",
    "job.modules": "flights.py,flights_plain.py",
    "cluster-manager.container.memory.mb": "400",
    "yarn.am.container.memory.mb": "400",
}


class FlightsJob(RunningJob):
    """The flights job, deployed, and the input that has been sent to it."""

    def __init__(self, scenario: Scenario, cells: int) -> None:
        super().__init__(scenario.cluster, JOB, cells)
        self.scenario = scenario
        self.sent = 0

    @property
    def log(self) -> EventLog:
        """The cluster's event log."""
        return self.scenario.log

    def first(self, condition: Callable[[Status], bool], seconds: float) -> Status | None:
        """Return the first status, seen from now on, that meets the condition; None when none comes in time."""
        sample = self.scenario.watch.wait_for(condition, seconds)
        return None if sample is None else sample.status

    @contextmanager
    def flow(self, rows: int = 12_000, rate: float = 1_000) -> Iterator[None]:
        """Let flights flow, from input to output, during the block; after it all are processed and all is exact."""
        before = self._outputs()
        traffic = stream(self.cluster.kafka_bootstrap, rows=rows, rate=rate, skip=self.sent)
        self.sent += rows
        try:
            # What a test does then meets tasks that have input, however busy the machine.
            give_up = time.monotonic() + PATIENCE_SECONDS
            while self._outputs() <= before:
                assert time.monotonic() < give_up, f"nothing came out\n{self.story()}"
                time.sleep(_LOOK_SECONDS)
            yield
            assert traffic.join(120)
        finally:
            traffic.stop()
        self.assert_whole_and_exact()

    def _outputs(self) -> int:
        """Return how many records were ever put out, transaction markers included."""
        return sum(sum(end_offsets(self.cluster.kafka_bootstrap, each).values()) for each in OUTPUT_TOPICS)

    def assert_whole_and_exact(self) -> None:
        """Fail unless every replica is in sync on its own host, and outputs and state equal the batch model."""
        run = self.run_id
        bootstrap = self.cluster.kafka_bootstrap
        wait_until_processed(bootstrap, cluster=JOB, job=JOB, run=run)
        assert self.scenario.wait_until_whole() is not None
        assert self.scenario.watch.same_host_violations == frozenset(), (
            "copies of one task were seen on one host"
        )
        assert_exact(bootstrap, cluster=JOB, job=JOB, run=run)


@contextmanager
def deployed(cluster: LocalCluster, shape: Shape | None = None, /, **settings: str) -> Iterator[FlightsJob]:
    """Deploy the flights job on fresh topics, by default two processors of two tasks; delete it after the block."""
    shape = shape if shape is not None else Shape()
    fresh_topics(cluster.kafka_bootstrap, partitions=shape.partitions)
    with Scenario(cluster, shape, print, {**PLAIN, **settings}) as scenario:
        scenario.submit()
        try:
            job = FlightsJob(scenario, int(settings.get("appmaster.cells", 2)))
            job.wait_until_settled()
            yield job
        finally:
            sample = scenario.watch.latest
            # What is drained stays so without the job, and the next job of this name is not to start with it.
            standfast(cluster.environment(), print, "admit", *cluster.hosts, "--cluster", JOB)
            scenario.delete()
    hosts = {each.host for each in sample.status.containers} if sample is not None else set()
    runs = {job.run for job in sample.status.jobs} if sample is not None else set()
    state = cluster.directory / "state" / JOB
    left = [path for host in hosts for run in runs for path in state.glob(f"{escape(host)}/*/{run}")]
    assert left == [], "a deleted job leaves no state on a host where it ran"
