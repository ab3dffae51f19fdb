"""Which settings no log and no answer may show, and secrets that files of the host hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from appmaster.changes.operations import settled
from appmaster.cli.shared.jobfile import load
from appmaster.records import ChangeRecord
from standby.cluster import ClusterConfig
from standby.config import JobConfig, flatten, kafka_settings, keys, shown
from standby.errors import BadConfiguration
from standby.feed.rules.settings import session_settings
from standby.security.disclosure import is_path_of_secret, is_secret
from tests.cases import case
from tests.fakes.jobs import JOB, job_config

SECRETS = [
    "kafka.sasl.password",
    "kafka.sasl.jaas.config",
    "kafka.sasl.oauthbearer.client.secret",
    "kafka.sasl.oauthbearer.config",
    "kafka.sasl.kerberos.kinit.cmd",
    "kafka.ssl.key.password",
    "kafka.ssl.key.pem",
    "kafka.ssl.key",
    "kafka.ssl.keystore.password",
    "kafka.plugin.library.paths",
    "kafka.of.some.later.release",
    "spark.driver.extraJavaOptions",
    "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.c.a.blob.core.windows.net",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.sql.catalog.lake.uri",
    "spark.ssl.keyPassword",
    "something.else.altogether",
]


def test_value_that_is_not_known_to_be_harmless_is_not_shown() -> None:
    for name in SECRETS:
        found = [shown(name, value) for value in ("s3cret", "12345", "")]
        assert found == ["***", "***", ""], name
    # A figure is shown where its form is one.
    assert shown("kafka.linger.ms", "a password, pasted here") == "***"
    assert shown("spark.ui.enabled", "s3cret") == "***"


def test_every_key_of_our_own_is_shown() -> None:
    for key, _ in keys():
        assert shown(key.name, "value") == "value"


def test_no_error_and_no_representation_shows_a_secret() -> None:
    with pytest.raises(BadConfiguration) as refused:
        flatten({"kafka.sasl.password": b"s3cret"})
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(ClusterConfig("c", "z:1", kafka={"sasl.password": "s3cret"}))


def test_settled_change_keeps_no_configuration() -> None:
    queued = ChangeRecord("update", {"job": "j", "config": {"kafka.sasl.password": "s3cret"}, "code": ""})
    done = settled(queued, 3, "kafka.sasl.password: *** → ***", 2)
    assert "s3cret" not in repr(done)
    assert done.arguments["job"] == "j"


# ---- by file ----


def with_file(path: Path, key: str = "kafka.sasl.password.file", **more: str) -> JobConfig:
    return job_config({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "a", key: str(path), **more})


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("s3cret\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def test_password_of_a_file_reaches_every_client_as_it_is_then_and_nothing_else(secret: Path) -> None:
    config = with_file(secret)
    assert "s3cret" not in repr(config.kafka)
    for content in ("s3cret\n", "an0ther"):
        secret.write_text(content, encoding="utf-8")
        settings = kafka_settings(config)
        assert settings["sasl.password"] == content.strip()
        assert "sasl.password.file" not in settings


def test_setting_of_spark_may_lie_in_a_file(secret: Path) -> None:
    config = with_file(secret, "spark.hadoop.fs.s3a.secret.key.file")
    settings: Mapping[str, str] = session_settings(config)
    assert settings["spark.hadoop.fs.s3a.secret.key"] == "s3cret"
    assert "spark.hadoop.fs.s3a.secret.key.file" not in settings


def test_file_that_everybody_can_read_is_refused_with_what_to_do(secret: Path) -> None:
    secret.chmod(0o644)
    with pytest.raises(BadConfiguration, match=r"kafka\.sasl\.password\.file: .*chmod o-rwx") as refused:
        kafka_settings(with_file(secret))
    assert "s3cret" not in str(refused.value)


def test_file_without_a_value_is_named(tmp_path: Path) -> None:
    makers: dict[str, Callable[[Path], object]] = {
        "absent": lambda path: None,
        "directory": Path.mkdir,
        "pipe": os.mkfifo,
        "empty": lambda path: path.touch(0o600),
    }
    for kind, make in makers.items():
        path = tmp_path / kind
        make(path)
        with case(kind), pytest.raises(BadConfiguration, match=rf"kafka\.sasl\.password\.file: {path}"):
            kafka_settings(with_file(path))


def test_secret_twice_or_at_a_relative_path_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="give one of them"):
        with_file(Path("/p"), **{"kafka.sasl.password": "s3cret"})
    with pytest.raises(BadConfiguration, match="not an absolute path"):
        with_file(Path("password"))


def test_setting_whose_own_name_ends_so_is_left_alone() -> None:
    for name in (
        "kafka.sasl.oauthbearer.assertion.private.key.file",
        "spark.authenticate.secret.file",
        "spark.hadoop.hadoop.security.group.mapping.ldap.bind.password.file",
        "spark.files",
    ):
        assert not is_path_of_secret(name), name


# ---- on a command line ----


BY_FILE = [
    "kafka.sasl.password",
    "kafka.ssl.key",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.executorEnv.DATABASE",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.s3a.server-side-encryption.key",
    "spark.hadoop.fs.s3a.secret.key",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in JOB.items()), encoding="utf-8")
    return path


def test_secret_is_not_taken_from_a_command_line(file: Path) -> None:
    """What is not known to be harmless counts as one; where a file may hold it, that is said."""
    everybody = "everybody on this machine"
    said = dict.fromkeys(("kafka.linger.ms", "spark.ui.enabled"), everybody)
    for name in {*SECRETS, *BY_FILE}:
        if name.startswith(("kafka.", "spark.")):
            by_file = rf".*{name}\.file" if name in BY_FILE else ""
            said[name] = said[f" {name} "] = f"{name}: {everybody}.*job file{by_file}"
    for name, text in said.items():
        with case(name), pytest.raises(BadConfiguration, match=f"--set .*{text}") as refused:
            load(file, [f"{name}=s3cret"])
        assert "s3cret" not in str(refused.value)
    for name in BY_FILE:
        assert is_path_of_secret(f"{name}.file"), name
        assert not is_secret(f"{name}.file"), name
        load(file, [f"{name}.file=/etc/password"])


def test_what_is_known_to_be_harmless_is_shown_and_taken_from_a_command_line(file: Path) -> None:
    for setting in (
        "kafka.bootstrap.servers=k:2",
        "kafka.client.id=0123",
        "kafka.debug=broker,topic",
        "kafka.linger.ms=5",
        "kafka.sasl.mechanism=PLAIN",
        "kafka.sasl.password.file=/etc/kafka/password",
        "kafka.sasl.username=alice",
        "kafka.security.protocol=SASL_SSL",
        "kafka.socket.keepalive.enable=true",
        "kafka.ssl.ca.location=/etc/ca.pem",
        "kafka.ssl.key.location=/etc/key.pem",
        "spark.driver.extraClassPath=/opt/a.jar",
        "spark.driver.memory=2g",
        "spark.sql.extensions=a.b.C",
        "spark.sql.session.timeZone=+10:30",
        "spark.sql.shuffle.partitions=4",
        "spark.ui.enabled=false",
        "spark.anything.at.all=",
        "task.inputs=in",
    ):
        name, _, value = setting.partition("=")
        assert load(file, [setting]).flat[name] == value, setting
        assert shown(name, value) == value, setting


def test_setting_that_no_job_may_have_is_refused_with_that_as_the_reason(file: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"kafka\.acks: exactly-once depends on this setting"):
        load(file, ["kafka.acks=all"])
