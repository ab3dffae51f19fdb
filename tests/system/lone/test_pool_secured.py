"""A pool whose Kafka and ZooKeeper require credentials, with the rights of docs/security.md and no more.

What a container's credentials open, who is named in the event log, and a rotation while the job runs.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kazoo.exceptions import NoAuthError

from appmaster.adapters.credentials.keyring import keyring_in, user_name
from appmaster.adapters.grpc import CALL
from appmaster.api.client import ClusterClient
from appmaster.records import CandidateRecord
from demo.scenario import now_ms
from embedded.cluster import LocalCluster
from standby import ensemble
from standby.adapters.channels import open_channel
from standby.adapters.peers.code import PeerCode
from standby.adapters.tls import TlsCredentials, channel_options
from standby.adapters.zookeeper.access import container_access, make_client
from standby.code import bundles
from standby.ensemble import Tls, tls_of
from standby.errors import BadConfiguration, StandfastError
from standby.shared import naming
from standby.shared.peers import BundleSource
from standby.shared.roles import PeerRole
from tests.fakes.authorities import certificate_in, write_certificate
from tests.fakes.certificates import keys_of
from tests.patience import PATIENCE_SECONDS, soon
from tests.servers.secured import SecuredBroker, SecuredZooKeeper
from tests.system.lone.pool_job import MASTERS, STEADY_CLUSTER, JobOnPool, wait_until_all_wait
from tests.system.lone.pool_lab import PoolOnLoopback, pool_on_loopback
from tests.system.yarn.counting import some
from tests.system.yarn.running import keyring, session
from tests.system.yarn.two_cells import leader

NAME, USER, PASSWORD = "secured", "flights", "a-s3cret-of-flights"

#: One for each copy: what replaces a process that was killed was started after it.
NODES = (1, 2)

_LITERAL, _PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
_OWN = f"standfast__{NAME}__"

#: The table of docs/security.md, row by row: containers, masters, submit and delete, `standfast events`.
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

#: Requests for what is of use where it is permitted, and not needed.
WITHOUT_HARM = {
    ("DESCRIBE_CONFIGS", "Topic", f"{NAME}-out"),
    ("DESCRIBE_CONFIGS", "Cluster", "kafka-cluster"),
}


@dataclass(frozen=True)
class Servers:
    broker: SecuredBroker
    zookeeper: SecuredZooKeeper
    tls: Tls
    log: Path
    """The broker's."""


class Guarded(LocalCluster):
    """The shared cluster's directories, with a Kafka and a ZooKeeper that are closed to strangers."""

    def __init__(self, cluster: LocalCluster, servers: Servers) -> None:
        self.__dict__.update(cluster.__dict__)
        self.guard = servers

    @property
    def kafka_bootstrap(self) -> str:
        """Where the test itself reads, without credentials."""
        return self.guard.broker.plain

    @property
    def zookeeper_connect(self) -> str:
        return self.guard.zookeeper.connect

    def environment(self) -> dict[str, str]:
        tls = self.guard.tls
        named = zip(ensemble.KEYS.values(), (tls.ca, tls.certificate, tls.key), strict=True)
        # The job's file says where Kafka is; nothing may use this.
        return {**super().environment(), **dict(named), "STANDFAST_KAFKA": "127.0.0.1:1"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    authority = write_certificate(tmp_path, "server")
    mine = str(write_certificate(tmp_path, "mine", authority))
    tls = Tls(str(certificate_in(authority)), mine, mine)
    for each in ("kafka", "zookeeper"):
        (tmp_path / each).mkdir()
    with (
        SecuredZooKeeper(tmp_path / "zookeeper", authority, Path(tls.ca)) as zookeeper,
        SecuredBroker(tmp_path / "kafka", authority, Path(tls.ca), {USER: PASSWORD}) as broker,
    ):
        yield Servers(broker, zookeeper, tls, tmp_path / "kafka" / "kafka.log")


@pytest.fixture
def pool(cluster: LocalCluster, servers: Servers, tmp_path: Path) -> Iterator[PoolOnLoopback]:
    """A pool whose principal has `RIGHTS`, and no more."""
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n", encoding="utf-8")
    settings = {
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
    allow(servers.broker)
    with pool_on_loopback(Guarded(cluster, servers), NAME, tmp_path / "pool") as pool:
        pool.init(**STEADY_CLUSTER, **settings)
        for each in MASTERS:
            pool.master(each)
        for each in NODES:
            pool.node(each)
        wait_until_all_wait(pool)
        yield pool


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


def test_a_job_lives_with_the_documented_rights_and_no_more(
    pool: PoolOnLoopback, servers: Servers, tmp_path: Path
) -> None:
    with closing(JobOnPool(pool, NAME, 2, **{"job.container.count": "1"})) as job:
        job.deploy()
        job.wait_whole(len(NODES))
        credentials_of_a_container_upload_no_code_and_give_no_command(job)
        secret_of_a_container_opens_what_it_needs_in_zookeeper_and_no_more(job)
        who_asked_for_what_is_in_the_event_log_by_the_name_in_the_certificate(job, tmp_path)
        credentials_are_rotated_while_records_flow_and_an_active_dies(job)
        of_run = (NAME, NAME, "main", job.run_id)
        own = {naming.changelog_topic(*of_run), naming.consumer_group(*of_run)}
        job.standfast("kill", NAME)
        assert own <= topics_and_groups(servers.broker), "they stay for the next submit"
    soon(lambda: not own & topics_and_groups(servers.broker), "what is the job's own is gone")
    assert refused(servers) == WITHOUT_HARM
    logs = list(pool.directory.glob("*.log"))
    assert len(logs) == len(MASTERS) + len(NODES)
    assert [each for each in logs if PASSWORD.encode() in each.read_bytes()] == [], "a password in a log"


def credentials_of_a_container_upload_no_code_and_give_no_command(job: JobOnPool) -> None:
    mine, begun, master = keys_of(PeerRole.CONTAINER, keyring(job.cluster, NAME)), now_ms(), leader_of(job)
    code = b"code of a container's user"
    source = BundleSource(master.candidate, master.host, master.peer_port)
    with pytest.raises(BadConfiguration, match="the cluster's container may not upload code"):
        PeerCode(mine.client_context).upload(bundles.digest_of(code), code, source, lambda _: None)
    for question in (
        {"operation": "queue", "change": "undeploy", "arguments": {"job": NAME}},
        {"operation": "handover", "job": NAME, "partition": 0},
    ):
        with pytest.raises(grpc.RpcError, match="for operators only"):
            ask(master, mine, question)
    # The first refusal; the next entry counts the others.
    refusal = job.wait_for_event("asked", begun, role="container")
    assert "refused" in (refusal.data or {})["said"]


def leader_of(job: JobOnPool) -> CandidateRecord:
    with session(job.cluster, NAME) as zookeeper:
        return leader(zookeeper)


def ask(master: CandidateRecord, keys: TlsCredentials, question: dict[str, Any]) -> Any:
    """Return a leader's answer to a question that is asked with some credentials."""
    with open_channel(
        f"{master.host}:{master.port}", keys.channel_credentials(), channel_options(PeerRole.MASTER)
    ) as channel:
        call = channel.unary_unary(CALL, None, None)
        return json.loads(call(json.dumps(question).encode(), timeout=PATIENCE_SECONDS))


def secret_of_a_container_opens_what_it_needs_in_zookeeper_and_no_more(job: JobOnPool) -> None:
    bootstrap = keyring(job.cluster, NAME).bootstrap(PeerRole.CONTAINER)
    access = container_access(
        bootstrap.secret, bootstrap.owner, is_closed=True, tls=tls_of(job.cluster.environment())
    )
    client = make_client(job.cluster.zookeeper_connect, 15_000, access)
    client.start(timeout=PATIENCE_SECONDS)
    root = naming.cluster_path(NAME)
    try:
        assert client.get(naming.controller_path(NAME))[0]
        assert client.get_children(f"{root}/containers")
        assert client.get_children(f"{root}/code")
        for closed in (naming.job_path(NAME, NAME), f"{root}/changes", f"{root}/cells", root):
            with pytest.raises(NoAuthError):
                client.get(closed)
        with pytest.raises(NoAuthError):
            client.create(f"{root}/changes/mine", b"{}")
        with pytest.raises(NoAuthError):
            client.create(f"{root}/code/{'a' * 64}", b"")
        with pytest.raises(NoAuthError):
            client.set(naming.controller_path(NAME), b"{}")
        with pytest.raises(NoAuthError):
            client.delete(naming.controller_path(NAME))
        with pytest.raises(NoAuthError):
            client.set(naming.controller_epoch_path(NAME), b"9")
    finally:
        client.stop()
        client.close()


def who_asked_for_what_is_in_the_event_log_by_the_name_in_the_certificate(
    job: JobOnPool, directory: Path
) -> None:
    begun = now_ms()
    job.standfast("credentials", "issue", NAME, "--name", "ann", "--to", str(directory / "ann"))
    ann = keyring_in(directory / "ann" / NAME, NAME)
    assert not ann.is_whole
    # Without any secret for ZooKeeper: the candidates are known since the credentials were issued.
    with ClusterClient(NAME, job.cluster.zookeeper_connect, ann) as client:
        assert client.status()["jobs"]
        with pytest.raises(StandfastError):
            client.change("undeploy", job="absent")
    hers = job.wait_for_event("asked", begun, caller="ann")
    assert (hers.job, (hers.data or {})["operation"]) == ("absent", "undeploy")
    job.standfast("handover", NAME, "0")
    mine = job.wait_for_event("asked", begun, operation="handover").data or {}
    assert (mine["caller"], mine["about"]["partition"]) == (user_name(), 0)
    job.wait_whole(len(NODES))


def credentials_are_rotated_while_records_flow_and_an_active_dies(job: JobOnPool) -> None:
    ring = keyring(job.cluster, NAME)
    former, number = ring.credentials(PeerRole.OPERATOR), ring.number
    with job.flow():
        said = job.told("credentials", "rotate", NAME)
        assert "no process trusts the former authority" in said
        assert keyring(job.cluster, NAME).number > number
        lost, standby, begun = job.replica(0, active=True), job.replica(0, active=False), now_ms()
        job.send(lost, signal.SIGKILL)
        job.wait_for_event("failover_finished", begun)
        # The new process starts with what `init` wrote, and takes the present credentials from ZooKeeper.
        job.wait_for_event("container_registered", begun)
        job.wait_whole(len(NODES))
    assert job.replica(0, active=True).copy == standby.copy
    present, status = keys_of(PeerRole.OPERATOR, keyring(job.cluster, NAME)), {"operation": "status"}
    assert ask(leader_of(job), present, status)["jobs"]
    with pytest.raises(grpc.RpcError):
        ask(leader_of(job), TlsCredentials(former), status)
    events = [json.loads(line) for line in job.standfast("events", NAME, "--json").splitlines()]
    assert "failover_finished" in {each["kind"] for each in events}
    # Once more: nothing may depend on its being the first time.
    assert "no process trusts" in job.told("credentials", "rotate", NAME)
    job.produce(1, some(100, 5))
    job.assert_exact()


def topics_and_groups(broker: SecuredBroker) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.plain})
    groups = admin.list_consumer_groups().result(PATIENCE_SECONDS).valid
    return {*admin.list_topics(timeout=PATIENCE_SECONDS).topics, *(each.group_id for each in groups)}


def refused(servers: Servers) -> set[tuple[str, str, str]]:
    """Return what the broker has refused: the operation, the kind of thing, and its name."""
    text = servers.log.read_text(encoding="utf-8")
    said = r"Principal = User:\S+ is Denied operation = (\w+) .*on resource = (\w+):\w+:(\S+)"
    return set(re.findall(said, text))
