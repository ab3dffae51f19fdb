"""The flights job on the shared cluster, deployed once for a test module and verified after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from confluent_kafka.admin import AdminClient

from demo.command import standfast
from demo.events import EventLog
from demo.scenario import JOB, JOB_FILE, Scenario, Shape
from demo.standing import Status
from demo.topics import end_offsets
from demo.traffic import Traffic
from embedded.cluster import LocalCluster
from examples.flights.source import flights
from standby.shared.naming import escape, event_topic
from tests.exactness import OUTPUT_TOPICS, assert_exact, fresh_topics, wait_until_processed
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.yarn.running import STEADY, RunningJob

#: The plain feed: what these tests are about is everything else, and four JVMs would only slow it down.
PLAIN = {
    "task.feed": "plain",
    "task.transform": "flights_plain:clean_table",
    "job.modules": "flights.py,flights_plain.py",
    "cluster-manager.container.memory.mb": "400",
    "yarn.am.container.memory.mb": "400",
}


class FlightsJob(RunningJob):
    """The flights job, deployed, and its input."""

    def __init__(self, cluster: LocalCluster, scenario: Scenario, cells: int) -> None:
        super().__init__(cluster, JOB, cells)
        self.scenario = scenario
        # One for all: opening the source sorts it.
        self._flights = flights()

    @property
    def log(self) -> EventLog:
        """The cluster's event log."""
        return self.scenario.log

    def first(self, condition: Callable[[Status], bool], seconds: float) -> Status | None:
        """Return the first status, seen from now on, that meets the condition; None when none comes in time."""
        sample = self.scenario.watch.wait_for(condition, seconds)
        return None if sample is None else sample.status

    def update(self, **settings: str) -> Any:
        """Update the job to what it was submitted with and ``settings``; return what the command printed as JSON."""
        pairs = {**self.scenario.settings, **settings}.items()
        return self.ask("update", str(JOB_FILE), *(f"--set={name}={value}" for name, value in pairs))

    @contextmanager
    def flow(self, rate: float = 1_000) -> Iterator[None]:
        """Let flights flow, from input to output, during the block; after it all are processed and all is exact.

        ``rate`` is in records per second.
        """
        before = self._outputs()
        traffic = Traffic(self.cluster.kafka_bootstrap, self._flights, rate)
        traffic.start()
        try:
            # What a test does then meets tasks that have input, however busy the machine.
            soon(lambda: self._outputs() > before, lambda: f"something comes out\n{self.story()}")
            yield
        finally:
            traffic.stop()
        assert traffic.join(PATIENCE_SECONDS)
        self.assert_whole_and_exact()

    def process(self, rows: int = 4_000) -> None:
        """Have so many flights processed, as fast as it goes; after it all is exact."""
        traffic = Traffic(self.cluster.kafka_bootstrap, islice(self._flights, rows), rows)
        traffic.start()
        assert traffic.join(PATIENCE_SECONDS)
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
def deployed(cluster: LocalCluster, **settings: str) -> Iterator[FlightsJob]:
    """Deploy the flights job on fresh topics, two processors of two tasks; delete it after the block."""
    shape = Shape()
    fresh_topics(cluster.kafka_bootstrap, partitions=shape.partitions)
    # Each look at a host takes a container of its own; test_submit.py has one.
    with Scenario(cluster, shape, print, {**PLAIN, **STEADY, **settings}, probes_hosts=False) as scenario:
        scenario.submit()
        try:
            job = FlightsJob(cluster, scenario, int(settings.get("appmaster.cells", 2)))
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
    kafka = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
    soon(
        lambda: event_topic(JOB) not in kafka.list_topics(timeout=PATIENCE_SECONDS).topics,
        "the event log goes with the last job",
    )
