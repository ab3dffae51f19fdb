"""A job from an edge node as companies have them: a proxy, a configuration in parts, and a part of ZooKeeper."""

from __future__ import annotations

import json
import shutil
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

NAME = "edge"
INCLUDING = """<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
  <xi:include href="yarn-common.xml"/>
</configuration>
"""


class User:
    """Runs commands with the edge node's environment."""

    def __init__(self, cluster: LocalCluster, directory: Path, topic: str) -> None:
        conf = directory / "conf"
        shutil.copytree(cluster.additional_environment()["HADOOP_CONF_DIR"], conf)
        (conf / "yarn-site.xml").rename(conf / "yarn-common.xml")
        (conf / "yarn-site.xml").write_text(INCLUDING, encoding="utf-8")
        proxies = (
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "grpc_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
        )
        self.environment = {
            **{name: value for name, value in cluster.environment().items() if name.lower() != "no_proxy"},
            **dict.fromkeys(proxies, "http://127.0.0.1:9"),
            "HADOOP_CONF_DIR": str(conf),
            "STANDFAST_ZOOKEEPER": f"{cluster.zookeeper_connect}/apps/{topic}",
        }
        self.job = directory / "job.yaml"
        self.job.write_text(
            f"job: {{name: {NAME}, modules: [steps.py]}}\n"
            f"task: {{feed: plain, inputs: {topic}, step: 'steps:step'}}\n"
            "cluster-manager.container.memory.mb: 256\n"
            "appmaster.cells: 1\n",
            encoding="utf-8",
        )
        (directory / "steps.py").write_text("def step(rows, state, out):\n    pass\n", encoding="utf-8")

    def runs(self, *command: str) -> str:
        """Return what a command prints that has to do well."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def standfast(self, *arguments: str) -> str:
        return self.runs(sys.executable, "-m", "appmaster.cli.main", *arguments)


@pytest.fixture
def user(cluster: LocalCluster, tmp_path: Path) -> Iterator[User]:
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
    topic = f"edge-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_SECONDS)
    yield User(cluster, tmp_path, topic)
    admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)


def test_job_is_deployed_reported_and_ended(user: User) -> None:
    user.standfast("submit", str(user.job))
    status = json.loads(user.standfast("status", NAME, "--json"))
    assert len(status["tasks"]) == 1
    assert user.standfast("logs", NAME, "--lines", "1")
    listed = user.runs("yarn", "application", "-list", "-appStates", "RUNNING")
    applications = [line.split()[0] for line in listed.splitlines() if f"standfast-{NAME}-" in line]
    assert applications
    for each in applications:
        user.runs("yarn", "application", "-kill", each)
    user.standfast("delete", NAME)
