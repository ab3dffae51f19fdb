"""A broker that lets nobody in unknown, and allows only what was allowed: every client of a job gets through."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from appmaster.adapters.kafka import EventLog, Topics, fence_job, read_events
from appmaster.config import cluster as cluster_settings
from embedded.jars import classpath
from embedded.secured import SecuredBroker
from standby.cluster import dump
from standby.config import kafka_settings, parse
from standby.errors import Unavailable
from standby.feed.make import make_feed
from standby.model import Offsets, Phase, Role
from standby.naming import transactional_id
from standby.ports import TaskBatch
from tests.fakes.candidates import until
from tests.kernel_lab import Lab
from tests.patience import PATIENCE_SECONDS

USER, PASSWORD = "alice", "a-s3cret-of-alice"


def write_certificate(directory: Path, name: str, signed_by: Path | None = None) -> Path:
    """Write a new key with its certificate for 127.0.0.1, by its own or another's key; return the file with both."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signing = subject, key
    if signed_by is not None:
        of_signer = signed_by.read_bytes()
        issuer = x509.load_pem_x509_certificate(of_signer).subject
        signing = serialization.load_pem_private_key(of_signer, None)  # type: ignore[assignment]
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), critical=True)
        .sign(signing, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pair = directory / f"{name}.pem"
    pair.touch(0o600)
    pair.write_bytes(private + certificate)
    return pair


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to prove who one is: the broker, the keys that a job needs for it, and who it is then."""

    broker: SecuredBroker
    keys: Mapping[str, str]
    principal: str


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Way]]:
    directory = tmp_path_factory.mktemp("secured")
    pair = write_certificate(directory, "broker")
    authority = directory / "ca.pem"
    authority.write_bytes(pair.read_bytes()[pair.read_bytes().index(b"-----BEGIN CERT") :])
    mine = write_certificate(directory, "bob", pair)
    password = directory / "password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n", encoding="utf-8")
    with SecuredBroker(directory, pair, authority, USER, PASSWORD) as broker:
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = AdminClient({"bootstrap.servers": broker.plain})
        altered = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("carol", scram, PASSWORD.encode())]
        )
        altered["carol"].result(PATIENCE_SECONDS)

        def by_password(mechanism: str, user: str) -> Way:
            keys = {
                "kafka.bootstrap.servers": broker.bootstrap,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.ca.location": str(authority),
                "kafka.sasl.mechanism": mechanism,
                "kafka.sasl.username": user,
                "kafka.sasl.password.file": str(password),
            }
            return Way(broker, keys, f"User:{user}")

        by_certificate = {
            "kafka.bootstrap.servers": broker.mutual,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": str(authority),
            "kafka.ssl.certificate.location": str(mine),
            "kafka.ssl.key.location": str(mine),
        }
        yield {
            "PLAIN": by_password("PLAIN", USER),
            "SCRAM-SHA-512": by_password("SCRAM-SHA-512", "carol"),
            "mutual TLS": Way(broker, by_certificate, "User:CN=bob"),
        }


#: A kind of thing, its name or the beginning of it, and what may be done with it.
Right = tuple[ResourceType, str, AclOperation]


def of_containers(lab: Lab) -> dict[str, Right]:
    """Return the rights that docs/security.md says a job's containers need, by name."""
    job = lab.definition
    return {
        "read the input": (ResourceType.TOPIC, lab.inputs[0], AclOperation.READ),
        "read the changelog": (ResourceType.TOPIC, job.changelog, AclOperation.READ),
        "write the changelog": (ResourceType.TOPIC, job.changelog, AclOperation.WRITE),
        "write the output": (ResourceType.TOPIC, job.config["task.outputs"], AclOperation.WRITE),
        "read the group": (ResourceType.GROUP, job.group, AclOperation.READ),
        "write by transactional id": (
            ResourceType.TRANSACTIONAL_ID,
            transactional_id("lab", lab.task_ids[0])[:-1],
            AclOperation.WRITE,
        ),
    }


def allow(lab: Lab, principal: str, rights: Iterable[Right]) -> None:
    bindings = [
        AclBinding(kind, name, ResourcePatternType.PREFIXED, principal, "*", what, AclPermissionType.ALLOW)
        for kind, name, what in rights
    ]
    for future in lab.admin.create_acls(bindings).values():
        future.result(PATIENCE_SECONDS)
    # The controller has them; that the broker has heard of them there is no event for.
    mine = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        principal,
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    until(lambda: set(bindings) <= set(lab.admin.describe_acls(mine).result(PATIENCE_SECONDS)), "the rights")


def lab_of(way: Way, directory: Path) -> Lab:
    """Return a job whose own clients have to log in; the judge reads past the guard."""
    return Lab(way.broker.plain, directory, 2, "compact", **way.keys)


@pytest.fixture
def lab(ways: Mapping[str, Way], tmp_path: Path) -> Lab:
    way = ways["PLAIN"]
    lab = lab_of(way, tmp_path)
    allow(lab, way.principal, of_containers(lab).values())
    return lab


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-512", "mutual TLS"])
def test_kernel_gets_through_everywhere_with_the_rights_that_are_told(
    ways: Mapping[str, Way], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lab = lab_of(ways[name], tmp_path)
    allow(lab, ways[name].principal, of_containers(lab).values())
    lab.name(0, 1)
    with lab.local("host-a") as active, lab.local("host-b") as standby:
        active.want(0, Role.ACTIVE, 1)
        standby.want(1, Role.STANDBY, 1)
        lab.produce(300)
        active.await_processed()
        standby.await_all(lambda each: each.phase is Phase.TAILING and each.lag_records == 0)
        lab.name(1, 2, claimed=True)
        standby.want(1, Role.ACTIVE, 2)
        lab.produce(100)
        standby.await_processed()
    lab.assert_exact()
    assert PASSWORD not in caplog.text


#: Right → what is said where it is missing, and by whom.
NAMED = {
    "read the input": ("describing {}-in: TOPIC_AUTHORIZATION_FAILED", Role.ACTIVE),
    "read the changelog": ("reading {}-changelog .*: TOPIC_AUTHORIZATION_FAILED", Role.STANDBY),
    "write the output": ("describing {}-out: TOPIC_AUTHORIZATION_FAILED", Role.ACTIVE),
    "read the group": ("as group {}-group: GROUP_AUTHORIZATION_FAILED", Role.ACTIVE),
    "write by transactional id": ("Kafka refuses it: .* Transactional Id authorization failed", Role.ACTIVE),
}


@pytest.mark.parametrize("missing", NAMED)
def test_right_that_is_missing_is_named(ways: Mapping[str, Way], missing: str, tmp_path: Path) -> None:
    way = ways["mutual TLS"]
    lab = lab_of(way, tmp_path)
    rights = of_containers(lab)
    # Without Write on the changelog it is told that a record did not arrive, and is tried again.
    assert rights.keys() - NAMED.keys() == {"write the changelog"}
    allow(lab, way.principal, [right for name, right in rights.items() if name != missing])
    lab.name(0, 1)
    told, role = NAMED[missing]
    with lab.local("host-a") as container:
        container.want(0, role, 1)
        lab.produce(100)
        container.await_all(lambda each: each.phase is Phase.FAILED and each.detail != "")
        for each in container.statuses().values():
            assert re.search(told.format(lab.definition.name), each.detail), each.detail


def test_tools_and_event_log_log_in(ways: Mapping[str, Way], lab: Lab) -> None:
    settings = kafka_settings(parse(lab.definition.config))
    topics = Topics(settings)
    name = f"{lab.definition.name}-events"
    # Of who submits, and of the masters.
    events = [
        (ResourceType.TOPIC, name, each)
        for each in (AclOperation.CREATE, AclOperation.WRITE, AclOperation.READ)
    ]
    reader = (ResourceType.GROUP, "standfast-events-reader", AclOperation.READ)
    allow(lab, ways["PLAIN"].principal, [*events, reader])
    topics.create(name, 1, 1, {})
    assert topics.partitions()[lab.inputs[0]] == lab.tasks
    log = EventLog(settings, name)
    log.append({"kind": "test"})
    log.close()
    assert list(read_events(settings, name, follow=False, stop=lambda: False)) == [{"kind": "test"}]
    fence_job("lab", lab.definition)


def test_password_is_in_nothing_that_leaves_the_host(lab: Lab) -> None:
    assert PASSWORD.encode() not in msgspec.json.encode(lab.definition)
    assert PASSWORD.encode() not in dump(cluster_settings(parse(lab.definition.config), 1))


def test_wrong_password_is_an_error_that_does_not_show_it(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    flat = {
        name: value for name, value in lab.definition.config.items() if name != "kafka.sasl.password.file"
    }
    config = parse({**flat, "kafka.sasl.password": "wr0ng"})
    with pytest.raises(Unavailable) as caught:
        Topics(kafka_settings(config)).partitions(timeout_seconds=5)
    assert "wr0ng" not in str(caught.value) + caplog.text


@pytest.mark.spark
def test_spark_logs_in(lab: Lab, tmp_path: Path) -> None:
    lab.produce(50)
    config = dataclasses.replace(parse(lab.definition.config), feed="spark", step="none:none")
    feed = make_feed(config, lab.definition, classpath("spark-kafka"), tmp_path)
    seen: dict[int, int] = {}
    done = threading.Event()

    def deliver(batches: tuple[TaskBatch, ...]) -> None:
        seen.update({each.task.partition: each.end.total for each in batches})
        if seen == {each: lab.position(each) for each in range(lab.tasks)}:
            done.set()

    try:
        feed.start(dict.fromkeys(lab.task_ids, Offsets.of(0)), deliver)
        assert done.wait(PATIENCE_SECONDS), (seen, feed.failure)
    finally:
        feed.stop()
        feed.close()
