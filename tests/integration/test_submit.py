"""What a submit refuses, before anything is submitted: one clear error each, with its exit status."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from demo.command import ROOT
from embedded.cluster import LocalCluster
from tests.patience import PATIENCE_SECONDS

MODULE = """
def step(rows, state, out):
    pass

def few(rows):
    pass
"""


class Submits:
    """Runs `standfast submit` on a small valid job with one thing changed."""

    def __init__(self, cluster: LocalCluster, directory: Path, topic: str) -> None:
        self.environment = cluster.environment()
        self.job = directory / "job.yaml"
        self.job.write_text(
            "job: {name: refused, modules: [code.py]}\n"
            f"task: {{feed: plain, inputs: {topic}, step: 'code:step'}}\n"
            "cluster-manager.container.memory.mb: 256\n",
            encoding="utf-8",
        )
        (directory / "code.py").write_text(MODULE, encoding="utf-8")

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "appmaster.cli.main", "submit", str(self.job), *arguments],
            cwd=ROOT,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def refusal(self, *settings: str, status: int = 2, **environment: str) -> str:
        """Return the message of a refusal, after checking that it is one line of ours with this exit status."""
        done = self.run(*(part for each in settings for part in ("--set", each)), **environment)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.partition("standfast: ")[2]


@pytest.fixture(scope="module")
def submits(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submits]:
    """Return a job that could be submitted, with its topic."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
    topic = f"submit-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(PATIENCE_SECONDS)
    yield Submits(cluster, tmp_path_factory.mktemp("job"), topic)
    admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)


def test_job_in_order_passes_every_check_and_nothing_is_submitted(
    submits: Submits, cluster: LocalCluster
) -> None:
    done = submits.run("--check")
    assert done.returncode == 0, done.stderr
    assert "everything is in order" in done.stderr
    assert cluster.container_processes() == []


@pytest.mark.parametrize(
    ("setting", "status", "named"),
    [
        ("job.hotstandby.enable=true", 2, "did you mean job.hotstandby.enabled?"),
        ("job.container.count=many", 2, "'many' is not a whole number"),
        ("task.inputs=absent-topic", 2, "topic absent-topic does not exist"),
        ("task.outputs=absent-output", 2, "topic absent-output does not exist"),
        ("task.step=absent:step", 2, "there is no module 'absent'"),
        ("task.step=code:absent", 2, "has no function 'absent'"),
        ("task.step=code:few", 2, "task.step"),
        ("job.modules=absent.py", 2, "absent.py"),
        ("kafka.bootstrap.servers=127.0.0.1:1", 3, "no Kafka broker answers at 127.0.0.1:1"),
        ("zookeeper.connect=127.0.0.1:1", 3, "no ZooKeeper server answers at 127.0.0.1:1"),
        ("yarn.queue=absent", 2, "no queue absent"),
        ("cluster-manager.container.memory.mb=9999999", 2, "the largest host offers"),
        ("yarn.hosts=10.9.9.9", 2, "10.9.9.9 not RUNNING"),
    ],
)
def test_what_is_wrong_is_named(submits: Submits, setting: str, status: int, named: str) -> None:
    assert named in submits.refusal(setting, status=status)


def test_missing_hadoop_configuration_is_named_with_the_remedy(submits: Submits, tmp_path: Path) -> None:
    assert "HADOOP_CONF_DIR is not set" in submits.refusal(HADOOP_CONF_DIR="")
    assert "there is no yarn-site.xml" in submits.refusal(HADOOP_CONF_DIR=str(tmp_path))


def test_update_stops_what_runs_and_starts_it_anew_with_its_run(
    submits: Submits, cluster: LocalCluster
) -> None:
    try:
        first = submits.run("--json")
        assert first.returncode == 0, first.stderr
        assert "runs already" in submits.refusal()
        second = submits.run("--update", "--set", "job.hotstandby.enabled=true", "--json")
        assert second.returncode == 0, second.stderr
        assert '"copies": 2' in second.stdout
        assert '"copies": 1' in first.stdout
    finally:
        deleted = subprocess.run(
            [sys.executable, "-m", "appmaster.cli.main", "delete", "refused"],
            cwd=ROOT,
            env=submits.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert deleted.returncode == 0, deleted.stderr
    assert cluster.container_processes() == []
