"""A changelog that is deleted and created again under a real job: told, refused, accepted."""

from __future__ import annotations

import json
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
from standby.shared import naming
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
        settings = {"yarn.am.max.attempts": "1", "job.state.dir": str(self.state)}
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


def counted(pairs: Iterable[Pair]) -> dict[bytes, list[bytes]]:
    """Return what the job puts out for records when it has counted no others."""
    counts = Counter[bytes]()
    found: dict[bytes, list[bytes]] = {}
    for key, value in pairs:
        counts[key] += 1
        found.setdefault(key, []).append(b"%d %s" % (counts[key], value))
    return found


@pytest.fixture
def job(cluster: LocalCluster, tmp_path: Path) -> Iterator[Job]:
    job = Job(cluster, tmp_path / "one", "remade")
    with submitted(job):
        job.run = job.run_id
        job.produce(0, some(200, 7))
        job.assert_exact()
        yield job


def test_a_changelog_made_again_stops_its_job_until_it_is_accepted_and_state_begins_anew(job: Job) -> None:
    begun, outputs = now_ms(), job.outputs()
    assert set(job.states().values()) == {"same"}
    job.make_again(job.changelog, COMPACTED)
    job.produce(0, some(50, 7, 250))
    job.assert_stopped(job.changelog, begun)
    assert job.committed(job.changelog) == [], "nothing is wiped, nor written"
    assert job.outputs() == outputs
    job.refused(job.changelog)
    assert job.states()[job.changelog] == "made again"
    told = job.told("topics", job.name, "--accept", job.changelog)
    assert "begins with what it holds" in told
    job.submitted_again()
    # What waited since the changelog was made again, where the input was.
    anew = counted(some(50, 7, 250))
    found = job.await_outputs(250)
    assert found == {key: [*outputs[key], *anew.get(key, [])] for key in outputs}
    assert set(job.states().values()) == {"same"}
