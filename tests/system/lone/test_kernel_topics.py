"""Topics that are deleted and created again, on a real broker: reported, nothing wiped or committed (decision 21)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic
from msgspec.structs import replace

from appmaster.adapters.credentials.keyring import VARIABLE
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.cli.main import main
from appmaster.records import JobRecord
from standby.adapters.kafka.broker import connect
from standby.config import parse
from standby.replica.store.origin import DATABASE
from standby.shared.model import Fault, Phase, Role, TopicIdentity
from tests.fakes.certificates import user_directory
from tests.fakes.zookeeper import LoneZooKeeper, record_job
from tests.kernel_lab import CLUSTER, Container, Lab
from tests.patience import soon
from tests.topics import create_again


@pytest.fixture
def lab(kafka_bootstrap: str, tmp_path: Path) -> Lab:
    """Return a lab whose run has recorded its topics."""
    lab = Lab(kafka_bootstrap, tmp_path)
    topics = (lab.definition.changelog, *lab.inputs)
    broker = connect("lab", parse(lab.definition.config), lab.definition)
    # A broker hears of a new topic a moment after it was made.
    soon(lambda: len(broker.ask_topic_ids(topics)()) == len(topics), "the broker knows all topics")
    found = broker.ask_topic_ids(topics)()
    broker.close()
    lab.definition = replace(lab.definition, topics={each: TopicIdentity(found[each]) for each in topics})
    return lab


def make_again(lab: Lab, topic: str) -> None:
    policy = "compact" if topic == lab.definition.changelog else "delete"
    create_again(lab.bootstrap, NewTopic(topic, lab.tasks, 1, config={"cleanup.policy": policy}))


def process(lab: Lab, container: Container, epoch: int = 1) -> None:
    lab.promote(container, 0, epoch)
    lab.produce(200)
    container.await_processed()


def assert_told(container: Container, topic: str) -> None:
    """Fail unless every replica ends with the topic named."""
    container.await_phase(Phase.FAILED)
    for each in container.statuses().values():
        assert each.fault is Fault.CHANGED_TOPIC, each.detail
        assert f" {topic} was deleted and created again" in each.detail


def state(lab: Lab, host: str) -> list[bool]:
    """Return whether each task's state is on a host."""
    return [(lab.state_of(host, each) / DATABASE / "CURRENT").is_file() for each in lab.task_ids]


def test_a_changelog_made_again_under_an_active_and_its_standby(lab: Lab) -> None:
    with lab.local("host-a") as active, lab.local("host-b") as standby:
        process(lab, active)
        standby.want(1, Role.STANDBY, 1)
        standby.await_phase(Phase.TAILING)
        outputs = lab.committed_records(f"{lab.definition.name}-out")
        make_again(lab, lab.definition.changelog)
        lab.produce(100)
        assert_told(active, lab.definition.changelog)
        assert_told(standby, lab.definition.changelog)
    assert lab.committed_records(lab.definition.changelog) == []
    assert lab.committed_records(f"{lab.definition.name}-out") == outputs
    assert all([*state(lab, "host-a"), *state(lab, "host-b")])


# ---- the command that accepts one ----


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands be of a user who has submitted before."""
    monkeypatch.setenv(VARIABLE, str(user_directory(tmp_path / "credentials", CLUSTER)))


class Command:
    """``standfast topics`` for a lab's job, which has no leader."""

    def __init__(self, lab: Lab, zookeeper: LoneZooKeeper, output: pytest.CaptureFixture[str]) -> None:
        self._lab, self._zookeeper, self._output = lab, zookeeper, output
        with ZooKeeper(zookeeper.connect, CLUSTER) as client:
            client.tree.prepare()
            record_job(client, JobRecord(lab.definition, is_wanted=False))

    def __call__(self, *arguments: str) -> tuple[int, Any]:
        """Return the command's exit status and what it printed; the lab's job is then as it is recorded."""
        name = self._lab.definition.name
        where = ("--cluster", CLUSTER, "--zookeeper", self._zookeeper.connect)
        status = main(["topics", name, *where, "--json", *arguments])
        with ZooKeeper(self._zookeeper.connect, CLUSTER) as client:
            record = client.jobs.read(name)
        assert record is not None
        self._lab.definition = record.definition
        printed = self._output.readouterr()
        return status, json.loads(printed.out) if printed.out else printed.err

    def states(self) -> dict[str, str]:
        _, shown = self()
        return {each["topic"]: each["state"] for each in shown["topics"]}


@pytest.mark.usefixtures("credentials")
def test_an_accepted_input_is_read_from_its_beginning_and_all_else_goes_on(
    lab: Lab, server: LoneZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(lab, server, capsys)
    (topic,) = lab.inputs
    with lab.local("host-a") as active:
        process(lab, active)
    assert command()[0] == 0
    make_again(lab, topic)
    lab.produce(1_000)
    assert command()[0] == 1
    assert command.states()[topic] == "made again"
    status, told = command("--accept", topic)
    assert status == 2
    assert "--from earliest" in told
    status, _ = command("--accept", topic, "--from", "earliest")
    assert status == 0
    assert command.states()[topic] == "same"
    for epoch in (2, 3):
        with lab.local("host-a") as again:
            process(lab, again, epoch)
    lab.assert_exact()


@pytest.mark.usefixtures("credentials")
def test_an_accepted_changelog_with_its_inputs_brings_the_whole_state_back(
    lab: Lab, server: LoneZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(lab, server, capsys)
    with lab.local("host-a") as active:
        process(lab, active)
    make_again(lab, lab.definition.changelog)
    make_again(lab, f"{lab.definition.name}-out")
    status, told = command("--accept", lab.definition.changelog, "--from", "earliest")
    assert status == 0
    assert told["is"] == "changelog"
    for epoch in (2, 3):
        with lab.local("host-a") as again:
            process(lab, again, epoch)
    lab.assert_exact()
    lab.assert_local_state("host-a")
