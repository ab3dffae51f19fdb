"""A broker that wants TLS and a password: every client of a job gets through with ``kafka.*`` alone."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
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
from standby.ports import TaskBatch
from tests.kernel_lab import Lab

pytestmark = [pytest.mark.integration]

USER, PASSWORD = "alice", "a-s3cret-of-alice"


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """Write a new key with its certificate for 127.0.0.1; return the file with both, and that of the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pair, authority = directory / "pair.pem", directory / "ca.pem"
    pair.write_bytes(private + certificate)
    authority.write_bytes(certificate)
    return pair, authority


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecuredBroker, Mapping[str, str]]]:
    """Return the broker, and the keys that a job needs for it."""
    directory = tmp_path_factory.mktemp("secured")
    pair, authority = write_certificate(directory)
    password = directory / "password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n", encoding="utf-8")
    with SecuredBroker(directory, pair, USER, PASSWORD) as broker:
        yield (
            broker,
            {
                "kafka.bootstrap.servers": broker.bootstrap,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.ca.location": str(authority),
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.username": USER,
                "kafka.sasl.password.file": str(password),
            },
        )


@pytest.fixture
def lab(secured: tuple[SecuredBroker, Mapping[str, str]], tmp_path: Path) -> Lab:
    """Return a job whose own clients have to log in; the judge reads past the guard."""
    broker, keys = secured
    return Lab(broker.plain, tmp_path, 2, "compact", **keys)


def test_kernel_logs_in_everywhere(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
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


def test_tools_and_event_log_log_in(lab: Lab) -> None:
    settings = kafka_settings(parse(lab.definition.config))
    topics = Topics(settings)
    name = f"{lab.definition.name}-events"
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
        assert done.wait(90), (seen, feed.failure)
    finally:
        feed.stop()
        feed.close()
