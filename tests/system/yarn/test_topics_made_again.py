"""Topics that are deleted and created again under real jobs, running and killed: told, and then accepted."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.events import Event
from demo.scenario import now_ms
from demo.topics import read_committed
from embedded.cluster import LocalCluster
from standby import naming
from tests.patience import PATIENCE_SECONDS, looks, soon
from tests.system.yarn.counting import CountingJob, Pair, some, submitted

COMPACTED = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(8 << 20),
    "delete.retention.ms": "86400000",
}


class Job(CountingJob):
    """One task with a standby, in a cluster of one cell."""

    def __init__(self, cluster: LocalCluster, directory: Path, name: str) -> None:
        directory.mkdir()
        self.state = directory / "state"
        settings = {"appmaster.cells": "1", "yarn.am.max.attempts": "1", "job.state.dir": str(self.state)}
        super().__init__(cluster, directory / name, name, name, 1, **settings)
        self._admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
        self.run = ""

    @property
    def changelog(self) -> str:
        return naming.changelog_topic(self.cluster_name, self.name, "main", self.run)

    def make_again(self, topic: str, config: dict[str, str] | None = None) -> None:
        """Delete a topic and create it again, as its owner would."""
        for deleted in self._admin.delete_topics([topic], operation_timeout=PATIENCE_SECONDS).values():
            deleted.result(PATIENCE_SECONDS)

        def is_made() -> bool:
            try:
                for made in self._admin.create_topics([NewTopic(topic, 1, 1, config=config or {})]).values():
                    made.result(PATIENCE_SECONDS)
            except KafkaException:
                return False
            return True

        soon(is_made, f"{topic} is created again")

    def committed(self, topic: str) -> list[Any]:
        return list(read_committed(self.cluster.kafka_bootstrap, topic))

    def outputs(self) -> dict[bytes, list[bytes]]:
        """Return what the present output topic has, by key."""
        found: dict[bytes, list[bytes]] = {}
        for each in self.committed(f"{self.topic}-out"):
            found.setdefault(each.key, []).append(each.value or b"")
        return found

    def await_outputs(self, records: int) -> dict[bytes, list[bytes]]:
        """Return the outputs once there are so many."""
        found: dict[bytes, list[bytes]] = {}
        for _ in looks():
            found = self.outputs()
            if sum(map(len, found.values())) >= records:
                return found
        raise AssertionError(f"{found}\n{self.story()}")

    def assert_stopped(self, topic: str, since_ms: int) -> None:
        """Fail unless the job fails with the topic named, and what to do, and the state is still on the disks."""

        def is_it(event: Event) -> bool:
            return event.kind == "job_status" and (event.data or {}).get("status") == "failed"

        told = self.wait_for_events(is_it, since_ms, "the job to fail")[0]
        assert f"{topic} was deleted and created again" in (told.reason or ""), told
        assert f"standfast topics {self.name} --accept {topic}" in (told.reason or "")
        assert "was deleted and created again" in self.standfast("status", self.name, status=1)
        assert len(list(self.state.rglob("rocksdb"))) == 2, "the state of both copies is still there"

    def submitted_again(self) -> None:
        command = self.submit()
        said = command.communicate(timeout=3 * PATIENCE_SECONDS)[0]
        assert command.returncode == 0, said

    def refused(self, topic: str) -> None:
        """Fail unless a submit is refused because of the topic, before it does anything."""
        command = self.submit()
        said = command.communicate(timeout=3 * PATIENCE_SECONDS)[0]
        assert command.returncode == 2, said
        assert f"{topic} was deleted and created again" in said

    def states(self) -> dict[str, str]:
        """Return topic → how it compares with what the run has recorded, by the command."""
        shown = self.standfast("topics", self.name, "--json", status=None)
        return {each["topic"]: each["state"] for each in json.loads(shown)["topics"]}


def counted(pairs: Iterable[Pair], before: Iterable[Pair] = ()) -> dict[bytes, list[bytes]]:
    """Return what the job puts out for records, after others that it has counted."""
    counts = Counter(key for key, _ in before)
    found: dict[bytes, list[bytes]] = {}
    for key, value in pairs:
        counts[key] += 1
        found.setdefault(key, []).append(b"%d %s" % (counts[key], value))
    return found


@pytest.fixture(scope="module")
def jobs(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Job]]:
    directory = tmp_path_factory.mktemp("remade")
    one = Job(cluster, directory / "one", "remade-one")
    two = Job(cluster, directory / "two", "remade-two")
    with submitted(one, two):
        for job in (one, two):
            job.run = job.run_id
            job.produce(0, some(200, 7))
            job.assert_exact()
        yield one, two


def test_an_output_that_was_made_again_is_told_and_written_to(jobs: tuple[Job, Job]) -> None:
    job, begun = jobs[0], now_ms()
    output = f"{job.topic}-out"
    assert set(job.states().values()) == {"same"}
    before = list(job.taken[0])
    job.make_again(output)
    (told,) = job.wait_for_events(lambda each: each.kind == "topic_changed", begun, "topic_changed")
    assert (told.data or {})["topic"] == output
    job.produce(0, some(50, 7, 200))
    assert job.await_outputs(50) == counted(some(50, 7, 200), before)
    assert job.ask("status", job.name)["jobs"][0]["status"] == "deployed"
    assert set(job.states().values()) == {"same"}


def test_a_changelog_made_again_under_a_running_job_stops_it_and_nothing_is_wiped(
    jobs: tuple[Job, Job],
) -> None:
    job, begun = jobs[0], now_ms()
    outputs = job.outputs()
    job.make_again(job.changelog, COMPACTED)
    job.produce(0, some(50, 7, 250))
    job.assert_stopped(job.changelog, begun)
    assert job.committed(job.changelog) == []
    assert job.outputs() == outputs
    job.refused(job.changelog)
    assert job.states()[job.changelog] == "made again"


def test_an_accepted_changelog_begins_with_empty_state_where_the_input_was(jobs: tuple[Job, Job]) -> None:
    job = jobs[0]
    told = job.told("topics", job.name, "--accept", job.changelog)
    assert "begins with what it holds" in told
    job.make_again(f"{job.topic}-out")
    job.submitted_again()
    # What waited since the changelog was made again.
    assert job.await_outputs(50) == counted(some(50, 7, 250))
    assert set(job.states().values()) == {"same"}


def test_an_input_that_was_made_again_and_has_grown_is_read_as_the_operator_says(
    jobs: tuple[Job, Job],
) -> None:
    job = jobs[0]
    outputs = job.outputs()
    job.standfast("topics", job.name, "--accept", job.topic, "--from", "earliest", status=1)
    job.standfast("kill", job.name)
    job.make_again(job.topic)
    # More than the former one had.
    job.produce(0, some(400, 7, 1000))
    job.refused(job.topic)
    assert "--from" in job.standfast("topics", job.name, "--accept", job.topic, status=2)
    job.standfast("topics", job.name, "--accept", job.topic, "--from", "earliest")
    job.submitted_again()
    found = job.await_outputs(450)
    new = counted(some(400, 7, 1000), some(50, 7, 250))
    assert found == {key: [*outputs.get(key, []), *values] for key, values in new.items()}
    begun = now_ms()
    job.make_again(job.topic)
    job.produce(0, some(500, 7, 2000))
    job.assert_stopped(job.topic, begun)
    assert job.outputs() == found


def test_a_changelog_made_again_and_the_loss_of_a_container_stop_the_job(jobs: tuple[Job, Job]) -> None:
    job, begun = jobs[1], now_ms()
    active = job.replica(0, active=True)
    outputs = job.outputs()
    job.make_again(job.changelog, COMPACTED)
    job.send(active, signal.SIGKILL)
    job.produce(0, some(50, 7, 200))
    job.assert_stopped(job.changelog, begun)
    assert job.committed(job.changelog) == []
    assert job.outputs() == outputs


def test_changelog_and_inputs_accepted_together_count_everything_anew(jobs: tuple[Job, Job]) -> None:
    job = jobs[1]
    job.make_again(f"{job.topic}-out")
    job.standfast("topics", job.name, "--accept", job.changelog, "--from", "earliest")
    job.submitted_again()
    job.assert_exact()
