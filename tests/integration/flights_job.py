"""The flights job on the shared cluster, deployed once for a module of tests and judged after each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from demo.events import Event
from demo.scenario import JOB, ROOT, Scenario, Shape
from demo.standing import Replica, Status
from embedded.cluster import LocalCluster
from standby.naming import escape
from tests.exactness import assert_exact, fresh_topics, stream, wait_until_processed

#: The plain feed: what these tests are about is everything else, and four JVMs would only slow it down.
PLAIN = {
    "task.feed": "plain",
    "task.transform": "flights_plain:clean_table",
    "job.modules": "flights.py,flights_plain.py",
    "cluster-manager.container.memory.mb": "400",
    "yarn.am.container.memory.mb": "400",
}

#: A test that takes longer to see something has failed.
PATIENCE_SECONDS = 60.0


class FlightsJob:
    """A deployed job and the input that has been sent to it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = scenario.cluster
        self.sent = 0

    @property
    def status(self) -> Status:
        """The leader's present status."""
        return self.wait(lambda _: True)

    def wait(self, condition: Callable[[Status], bool], what: str = "an answer of the leader") -> Status:
        """Return the first status, seen from now on, that meets the condition."""
        sample = self.scenario.watch.wait_for(condition, PATIENCE_SECONDS)
        assert sample is not None, f"{what} did not come within {PATIENCE_SECONDS:.0f} s\n{self.story()}"
        return sample.status

    def events(self, since_ms: int = 0) -> list[Event]:
        """Return the event log from ``since_ms`` (Unix) on."""
        return [each for each in self.scenario.log.events if each.at_ms >= since_ms]

    def wait_for_event(self, kind: str, since_ms: int, **fields: object) -> Event:
        """Return the first event of a kind, since a time, with the given fields."""

        def is_it(event: Event) -> bool:
            return event.kind == kind and all(getattr(event, name) == value for name, value in fields.items())

        return self.wait_for_events(is_it, since_ms, f"{kind} {fields or ''}")[0]

    def wait_for_events(
        self, is_one: Callable[[Event], bool], since_ms: int, what: str, least: int = 1
    ) -> list[Event]:
        """Return the events of a sort, since a time, as soon as there are ``least`` of them."""

        def matching(events: Iterable[Event]) -> list[Event]:
            return [each for each in events if each.at_ms >= since_ms and is_one(each)]

        self.scenario.log.wait_for(lambda events: len(matching(events)) >= least, PATIENCE_SECONDS)
        found = matching(self.scenario.log.events)
        assert len(found) >= least, (
            f"{len(found)} of {least} {what} within {PATIENCE_SECONDS:.0f} s\n{self.story(since_ms)}"
        )
        return found

    def story(self, since_ms: int = 0) -> str:
        """Return the event log from ``since_ms`` (Unix) on, a line an event, for whoever reads of a failure."""
        events = (each for each in self.events(since_ms) if each.kind != "job_status")
        return "\n".join(f"{each.at_ms - since_ms:>8} {each.text} {dict(each.data or {})}" for each in events)

    @contextmanager
    def lost_host(self, host: str, *, silent: bool = False) -> Iterator[None]:
        """Let a host die for the time of the block; after it, it runs again."""
        self.cluster.kill_host(host, silent=silent)
        try:
            yield
        finally:
            self.cluster.start_host(host)

    @contextmanager
    def flow(self, rows: int = 12_000, rate: float = 1_000) -> Iterator[None]:
        """Let flights flow during the block; after it all are processed, every replica is back, and all exact."""
        traffic = stream(self.cluster.kafka_bootstrap, rows=rows, rate=rate, skip=self.sent)
        self.sent += rows
        try:
            yield
            assert traffic.join(120)
        finally:
            traffic.stop()
        self.assert_whole_and_exact()

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

    @property
    def run_id(self) -> str:
        """The job's run id."""
        return next(job.run for job in self.status.jobs if job.name == JOB)

    def replica(self, partition: int, *, active: bool) -> Replica:
        """Return the active, or the first standby, of a task."""
        task = next(each for each in self.status.tasks if each.partition == partition)
        return next(each for each in task.replicas if (each.copy == task.active) == active)

    def send(self, replica: Replica, number: signal.Signals) -> None:
        """Send a signal to every process of a replica's container."""
        assert replica.container is not None, f"copy {replica.copy} is nowhere"
        self.send_to(replica.container, number, replica.pid)

    def send_to(self, container: str, number: signal.Signals, first: int | None = None) -> None:
        """Send a signal to every process of a container; to the one with the pid ``first`` before the others."""
        found = [each for each in self.cluster.container_processes() if each.container_id == container]
        assert found, f"{container} has no process"
        for each in sorted(found, key=lambda each: each.pid != first):
            each.send(number)

    def scrape(self) -> str:
        """Return the leader's metrics, as Prometheus gets them."""
        leader = self.ask("status", JOB)["leader"]
        with urllib.request.urlopen(
            f"http://{leader['host']}:{leader['http_port']}/metrics", timeout=5
        ) as answer:
            text: str = answer.read().decode()
        return text

    def assert_no_container_too_many(self) -> None:
        """Fail unless YARN's hosts run the containers that the leader knows, and its own, and no others."""
        known = {each.container for each in self.status.containers}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            running = {each.container_id for each in self.cluster.container_processes()}
            others = {each for each in running - known if not each.endswith("_000001")}
            if not others:
                break
            assert time.monotonic() < deadline, f"{sorted(others)} still run, and nobody needs them"
            time.sleep(0.2)
        assert known <= running

    def standfast(self, *arguments: str, status: int | None = 0) -> str:
        """Run the command line; return what it prints, after checking its exit status."""
        done = subprocess.run(
            [sys.executable, "-m", "appmaster.cli.main", *arguments],
            cwd=ROOT,
            env=self.cluster.environment(),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def ask(self, *arguments: str) -> Any:
        """Return what a command prints as JSON."""
        return json.loads(self.standfast(*arguments, "--json"))


@contextmanager
def deployed(cluster: LocalCluster, shape: Shape | None = None, /, **settings: str) -> Iterator[FlightsJob]:
    """Deploy the flights job on fresh topics, by default two processors of two tasks; delete it after the block."""
    shape = shape if shape is not None else Shape()
    fresh_topics(cluster.kafka_bootstrap, partitions=shape.partitions)
    with Scenario(cluster, shape, print, {**PLAIN, **settings}) as scenario:
        scenario.submit()
        try:
            yield FlightsJob(scenario)
        finally:
            sample = scenario.watch.latest
            scenario.delete()
    hosts = {each.host for each in sample.status.containers} if sample is not None else set()
    left = [path for host in hosts for path in (cluster.directory / "state" / JOB).glob(f"{escape(host)}/*")]
    assert left == [], "a deleted job leaves no state on a host where it ran"
