"""A whole job on YARN whose Kafka and ZooKeeper let in only who proves who it is, with the rights that are told."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from appmaster.api.client import ClusterClient
from embedded.cluster import LocalCluster
from standby import ensemble
from standby.ensemble import Tls
from tests.fakes.authorities import certificate_in, write_certificate
from tests.patience import PATIENCE_SECONDS, soon
from tests.servers.secured import SecuredBroker, SecuredZooKeeper
from tests.system.yarn.counting import CountingJob, some, submitted
from tests.system.yarn.running import keyring

NAME, USER, PASSWORD = "secured", "flights", "a-s3cret-of-flights"

_LITERAL, _PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
_OWN = f"standfast__{NAME}__"

#: The table of docs/security.md, row by row: containers, masters, who submits and deletes, `standfast events`.
RIGHTS = {
    ("topic", NAME, _LITERAL): {AclOperation.READ},
    ("topic", f"{NAME}-out", _LITERAL): {AclOperation.WRITE},
    ("topic", _OWN, _PREFIXED): {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
    },
    ("group", _OWN, _PREFIXED): {AclOperation.READ, AclOperation.DELETE},
    ("group", "standfast-events-reader", _LITERAL): {AclOperation.READ},
    ("transactional_id", _OWN, _PREFIXED): {AclOperation.WRITE},
}


class Guarded(LocalCluster):
    """The session's YARN, with a Kafka and a ZooKeeper that are closed to strangers."""

    def __init__(self, cluster: LocalCluster, servers: Servers) -> None:
        self.__dict__.update(cluster.__dict__)
        self.guard = servers

    @property
    def kafka_bootstrap(self) -> str:
        """Where whoever judges the job reads, past the guard."""
        return self.guard.broker.plain

    @property
    def zookeeper_connect(self) -> str:
        return self.guard.zookeeper.connect

    def environment(self) -> dict[str, str]:
        tls = self.guard.tls
        named = zip(ensemble.KEYS.values(), (tls.ca, tls.certificate, tls.key), strict=True)
        # Nothing may go past the guard.
        return {**super().environment(), **dict(named), "STANDFAST_KAFKA": "127.0.0.1:1"}


@dataclass(frozen=True)
class Servers:
    broker: SecuredBroker
    zookeeper: SecuredZooKeeper
    tls: Tls
    log: Path
    """The broker's."""


class SecuredJob(CountingJob):
    """The job, whose leader is found in a ZooKeeper that is reached by TLS."""

    @property
    def client(self) -> ClusterClient:
        if self._client is None:
            assert isinstance(self.cluster, Guarded)
            servers = self.cluster.guard
            ring = keyring(self.cluster, self.cluster_name)
            client = ClusterClient(NAME, servers.zookeeper.connect, ring, tls=servers.tls)
            self._client = self._open.enter_context(client)
        return self._client


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    directory = tmp_path_factory.mktemp("secured")
    authority = write_certificate(directory, "server")
    mine = str(write_certificate(directory, "mine", authority))
    tls = Tls(str(certificate_in(authority)), mine, mine)
    for each in ("kafka", "zookeeper"):
        (directory / each).mkdir()
    with (
        SecuredZooKeeper(directory / "zookeeper", authority, Path(tls.ca)) as zookeeper,
        SecuredBroker(directory / "kafka", authority, Path(tls.ca), {USER: PASSWORD}) as broker,
    ):
        yield Servers(broker, zookeeper, tls, directory / "kafka" / "kafka.log")


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> SecuredJob:
    """The job, not submitted yet; its principal has the rights that are told, and no more."""
    directory = tmp_path_factory.mktemp("job")
    password = directory / "password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n", encoding="utf-8")
    settings: dict[str, Any] = {
        "kafka.bootstrap.servers": servers.broker.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": servers.tls.ca,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER,
        "kafka.sasl.password.file": str(password),
        "zookeeper.connect": servers.zookeeper.connect,
        "zookeeper.ssl.ca.location": servers.tls.ca,
        "zookeeper.ssl.certificate.location": servers.tls.certificate,
        "zookeeper.ssl.key.location": servers.tls.key,
    }
    job = SecuredJob(Guarded(cluster, servers), directory / "job", NAME, NAME, 1, **settings)
    allow(servers.broker)
    return job


#: What is asked for because it is of use where it is allowed.
WITHOUT_HARM = {
    ("DESCRIBE_CONFIGS", "Topic", f"{NAME}-out"),
    ("DESCRIBE_CONFIGS", "Cluster", "kafka-cluster"),
}


def allow(broker: SecuredBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.plain})
    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional_id": ResourceType.TRANSACTIONAL_ID,
    }
    bindings = [
        AclBinding(kinds[kind], name, form, f"User:{USER}", "*", each, AclPermissionType.ALLOW)
        for (kind, name, form), operations in RIGHTS.items()
        for each in operations
    ]
    for future in admin.create_acls(bindings).values():
        future.result(PATIENCE_SECONDS)


def test_job_runs_fails_over_and_goes_with_the_rights_that_are_told_and_no_more(
    job: SecuredJob, servers: Servers
) -> None:
    with submitted(job):
        job.produce(0, some(200, 7))
        job.assert_exact()
        standby = job.replica(0, active=False)
        job.send(job.replica(0, active=True), signal.SIGKILL)
        job.wait(lambda status: status.tasks[0].active == standby.copy, "the standby as active")
        job.wait_for_event("failover_finished", 0)
        job.produce(0, some(200, 7, 200))
        job.assert_exact()
        events = [json.loads(line) for line in job.standfast("events", NAME, "--json").splitlines()]
        assert "failover_finished" in {each["kind"] for each in events}
        job.standfast("kill", NAME)
        assert own(servers.broker), "topics and offsets stay for the next submit"
    soon(lambda: not own(servers.broker), "what is the job's own is gone")
    assert refused(servers) == WITHOUT_HARM
    logs = [each for each in job.cluster.directory.rglob("*.log") if each.is_file()]
    assert logs
    assert [each for each in logs if PASSWORD.encode() in each.read_bytes()] == [], "told in a log"


def own(broker: SecuredBroker) -> set[str]:
    """Return the topics and groups that are made for the job."""
    admin = AdminClient({"bootstrap.servers": broker.plain})
    groups = admin.list_consumer_groups().result(PATIENCE_SECONDS).valid
    names = {*admin.list_topics(timeout=PATIENCE_SECONDS).topics, *(each.group_id for each in groups)}
    return {each for each in names if each.startswith(_OWN)}


def refused(servers: Servers) -> set[tuple[str, str, str]]:
    """Return what the broker has refused: the operation, the kind of thing, and its name."""
    text = servers.log.read_text(encoding="utf-8")
    said = r"Principal = User:\S+ is Denied operation = (\w+) .*on resource = (\w+):\w+:(\S+)"
    return set(re.findall(said, text))
