"""What a submit refuses, before anything is submitted: one clear error each, with its exit status."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from appmaster.adapters.credentials.keyring import keyring_in
from appmaster.adapters.zookeeper.session import ZooKeeper
from demo.command import ROOT
from embedded.cluster import LocalCluster
from standby.adapters.zookeeper.access import AS_IT_IS, owner_access
from standby.shared import naming
from tests.patience import PATIENCE_SECONDS
from tests.topics import make_topics

MODULE = "def step(rows, state, out): ...\n"


class Submits:
    """Runs `standfast submit` on a small valid job with one thing changed."""

    def __init__(self, cluster: LocalCluster, directory: Path, topic: str) -> None:
        self.environment = cluster.environment()
        self.job = directory / "job.yaml"
        self.job.write_text(
            "job: {name: refused, modules: [steps.py]}\n"
            f"task: {{feed: plain, inputs: {topic}, step: 'steps:step'}}\n"
            "cluster-manager.container.memory.mb: 256\n"
            "appmaster.cells: 1\n",
            encoding="utf-8",
        )
        (directory / "steps.py").write_text(MODULE, encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command("submit", str(self.job), *arguments)

    def left(self) -> set[str]:
        """Return which topics and nodes there are of the job's cluster."""
        admin = AdminClient({"bootstrap.servers": self.environment["STANDFAST_KAFKA"]})
        prefix = "standfast__refused__"
        topics = {
            each for each in admin.list_topics(timeout=PATIENCE_SECONDS).topics if each.startswith(prefix)
        }
        directory = Path(self.environment["STANDFAST_CREDENTIALS"]) / "refused"
        # The first submit makes them.
        access = owner_access(keyring_in(directory, "refused").secret) if directory.exists() else AS_IT_IS
        with ZooKeeper(self.environment["STANDFAST_ZOOKEEPER"], "", access=access) as zookeeper:
            path = naming.cluster_path("refused")
            return topics | ({path} if zookeeper.client.exists(path) is not None else set())

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "appmaster.cli.main", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE_SECONDS,
            check=False,
        )

    def refusal(self, *settings: str, status: int = 2, arguments: Sequence[str] = ()) -> str:
        """Return the message of a refusal, after checking that it is one line of ours with this exit status."""
        given = (part for each in settings for part in ("--set", each))
        done = self.run(*given, *arguments)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.partition("standfast: ")[2]


@pytest.fixture(scope="module")
def submits(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submits]:
    """Return a job that could be submitted, with its topic."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
    topic = f"submit-{uuid.uuid4().hex[:8]}"
    make_topics(cluster.kafka_bootstrap, [NewTopic(topic, 2, 1)])
    yield Submits(cluster, tmp_path_factory.mktemp("job"), topic)
    admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)


def test_job_in_order_passes_every_check_and_nothing_is_submitted(
    submits: Submits, cluster: LocalCluster
) -> None:
    standbys = ("job.hotstandby.enabled=true", "job.hotstandby.replicationcount=5")
    done = submits.run("--check", *(part for each in standbys for part in ("--set", each)))
    assert done.returncode == 0, done.stderr
    assert "5 standbys and their active need 6 hosts, one each, and there are 3 hosts" in done.stderr
    assert "everything is in order" in done.stderr
    assert cluster.container_processes() == []


def test_a_server_that_does_not_answer_is_named(submits: Submits) -> None:
    said = submits.refusal("kafka.bootstrap.servers=127.0.0.1:1", status=3)
    assert "no Kafka broker answers at 127.0.0.1:1" in said


@pytest.mark.parametrize(
    ("setting", "named", "arguments"),
    [
        ("job.python=/absent/python", "/absent/python: No such file or directory", ("--check",)),
        # Found while the masters start.
        ("job.state.dir=/proc/state", "job.state.dir: /proc/state cannot be written by ", ()),
    ],
)
def test_what_a_host_lacks_is_named_and_nothing_is_left(
    submits: Submits, setting: str, named: str, arguments: tuple[str, ...]
) -> None:
    """What else is looked at there is in tests/unit/appmaster/cli/test_probe.py."""
    assert named in submits.refusal(setting, arguments=arguments)
    assert submits.left() == set()


def test_applications_that_end_before_the_job_ran_are_reported_and_leave_nothing(submits: Submits) -> None:
    absent = ("job.python=/absent/python", "yarn.am.max.attempts=1")
    said = submits.refusal(*absent, status=1, arguments=("--no-probe",))
    assert "every application of refused has ended" in said
    assert "Application driver failed with exit code 127" in said, "YARN's own words"
    assert "/absent/python: No such file or directory" in said, "and what a master has written"
    assert submits.left() == set()
    assert "/absent/python: No such file or directory" in submits.command("logs", "refused").stdout


def test_containers_that_fail_at_their_start_are_reported_with_what_they_wrote(
    submits: Submits, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in *standby*) echo no library of that name >&2; exit 3;; esac\n'
        f'exec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    said = submits.refusal(f"job.python={python}", "cluster-manager.container.retry.count=0", status=1)
    assert "no library of that name" in said, "by the leader's status, or by YARN's words for what it ended"
    assert submits.left() == set()
