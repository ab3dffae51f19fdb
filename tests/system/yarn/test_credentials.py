"""What each role's credentials open on a real YARN, who is told of, and other credentials while the job runs."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from kazoo.exceptions import NoAuthError

from appmaster.adapters.credentials.keyring import keyring_in, user_name
from appmaster.adapters.grpc import CALL
from appmaster.api.client import ClusterClient
from embedded.cluster import LocalCluster
from standby.adapters.channels import open_channel
from standby.adapters.peers.code import PeerCode
from standby.adapters.tls import TlsCredentials, channel_options
from standby.adapters.zookeeper.access import container_access, make_client
from standby.code import bundles
from standby.errors import BadConfiguration, StandfastError
from standby.shared import naming
from standby.shared.peers import BundleSource
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.meanwhile import meanwhile
from tests.patience import PATIENCE_SECONDS
from tests.system.yarn.counting import CountingJob, some, submitted
from tests.system.yarn.running import keyring, session

NAME = "credentials"

#: Records of the second partition, with keys of its own.
OTHERS = [(b"other " + key, value) for key, value in some(20, 5)]


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster, tmp_path_factory.mktemp("credentials") / "job", NAME, NAME, 2, **{"appmaster.cells": "2"}
    )
    with submitted(job):
        yield job


def leader(job: CountingJob) -> BundleSource:
    with session(job.cluster, NAME) as zookeeper:
        found = zookeeper.election.controller()
        assert found is not None
        record = next(each for each in zookeeper.registry.candidates() if each.candidate == found.candidate)
        return BundleSource(record.candidate, record.host, record.peer_port)


def test_the_credentials_of_a_container_upload_no_code_and_queue_no_change(job: CountingJob) -> None:
    ring = keyring(job.cluster, NAME)
    containers, since = keys_of(PeerRole.CONTAINER, ring), time.time_ns() // 1_000_000
    code = b"code of whoever runs in a container"
    with pytest.raises(BadConfiguration, match="the cluster's container may not upload code"):
        PeerCode(containers.client_context).upload(bundles.digest_of(code), code, leader(job), lambda _: None)
    with session(job.cluster, NAME) as zookeeper:
        found = zookeeper.election.controller()
        assert found is not None
    for question in (
        {"operation": "queue", "change": "undeploy", "arguments": {"job": NAME}},
        {"operation": "handover", "job": NAME, "partition": 0},
    ):
        with (
            open_channel(
                f"{found.host}:{found.port}",
                containers.channel_credentials(),
                channel_options(PeerRole.MASTER),
            ) as channel,
            pytest.raises(grpc.RpcError, match="for operators only"),
        ):
            channel.unary_unary(CALL, None, None)(json.dumps(question).encode(), timeout=PATIENCE_SECONDS)
    # The first of them; the others are counted by the next that is told.
    told = job.wait_for_event("asked", since)
    assert (told.data or {})["role"] == "container"
    assert "refused" in (told.data or {})["said"]


def test_the_secret_of_a_container_opens_what_it_needs_in_zookeeper_and_no_more(job: CountingJob) -> None:
    bootstrap = keyring(job.cluster, NAME).bootstrap(PeerRole.CONTAINER)
    client = make_client(
        job.cluster.zookeeper_connect,
        15_000,
        container_access(bootstrap.secret, bootstrap.owner, is_closed=True),
    )
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


def test_who_asked_for_what_is_in_the_event_log_by_the_name_in_the_certificate(
    job: CountingJob, tmp_path: Path
) -> None:
    since = time.time_ns() // 1_000_000
    job.standfast("credentials", "issue", NAME, "--name", "ann", "--to", str(tmp_path / "ann"))
    ann = keyring_in(tmp_path / "ann" / NAME, NAME)
    assert not ann.is_whole
    # Without any secret for ZooKeeper: the candidates are known since the credentials were issued.
    with ClusterClient(NAME, job.cluster.zookeeper_connect, ann) as client:
        assert client.status()["jobs"]
        with pytest.raises(StandfastError):
            client.change("undeploy", job="absent")
    hers = job.wait_for_event("asked", since, caller="ann")
    assert (hers.job, (hers.data or {})["operation"]) == ("absent", "undeploy")
    job.standfast("handover", NAME, "0")
    mine = job.wait_for_event("asked", since, operation="handover").data or {}
    assert (mine["caller"], mine["about"]["partition"]) == (user_name(), 0)
    job.wait_until_settled()


def test_credentials_are_rotated_while_the_job_runs(job: CountingJob, tmp_path: Path) -> None:
    ring = keyring(job.cluster, NAME)
    former, submitted_with = ring.credentials(PeerRole.OPERATOR), ring.number
    job.produce(0, some(50, 5))

    def produce(over: threading.Event) -> None:
        while not over.is_set():
            job.produce(0, some(20, 5))
            job.produce(1, OTHERS)

    with meanwhile(produce):
        said = job.told("credentials", "rotate", NAME)
        assert "no process trusts the former authority" in said
        assert keyring(job.cluster, NAME).number > submitted_with
        # A container that YARN starts now has what the submit gave it, and takes the present ones from ZooKeeper.
        lost = job.replica(0, active=True)
        since = time.time_ns() // 1_000_000
        job.send(lost, signal.SIGKILL)
        job.wait_for_event("container_registered", since)
        job.wait_until_settled()
    job.assert_exact()
    assert job.replica(0, active=True).container != lost.container
    with session(job.cluster, NAME) as zookeeper:
        found = zookeeper.election.controller()
        assert found is not None
    for keys in (TlsCredentials(former), keys_of(PeerRole.OPERATOR, keyring(job.cluster, NAME))):
        with open_channel(
            f"{found.host}:{found.port}", keys.channel_credentials(), channel_options(PeerRole.MASTER)
        ) as channel:
            ask = channel.unary_unary(CALL, None, None)
            question = json.dumps({"operation": "status"}).encode()
            if keys.now == former:
                with pytest.raises(grpc.RpcError):
                    ask(question, timeout=PATIENCE_SECONDS)
            else:
                assert json.loads(ask(question, timeout=PATIENCE_SECONDS))["jobs"]
    # And once more, so that nothing rests on its being the first time.
    assert "no process trusts" in job.told("credentials", "rotate", NAME)
    job.produce(1, OTHERS)
    job.assert_exact()
