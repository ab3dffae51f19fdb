"""Which settings nobody is to read in a log or an answer."""

from __future__ import annotations

import pytest

from standby.cluster import ClusterConfig
from standby.config import shown


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.password",
        "kafka.sasl.jaas.config",
        "kafka.sasl.oauthbearer.client.secret",
        "kafka.ssl.key.password",
        "kafka.ssl.key.pem",
        "kafka.ssl.keystore.password",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.ssl.keyPassword",
    ],
)
def test_value_of_a_secret_is_not_shown(name: str) -> None:
    assert shown(name, "s3cret") == "***"
    assert shown(name, "") == ""


@pytest.mark.parametrize(
    "name",
    [
        "kafka.security.protocol",
        "kafka.sasl.username",
        "kafka.sasl.mechanism",
        "kafka.ssl.ca.location",
        "kafka.ssl.key.location",
        "spark.sql.shuffle.partitions",
        "task.inputs",
    ],
)
def test_everything_else_is_shown(name: str) -> None:
    assert shown(name, "value") == "value"


def test_representation_of_the_cluster_s_settings_keeps_its_secrets() -> None:
    assert "s3cret" not in repr(ClusterConfig("c", "z:1", kafka={"sasl.password": "s3cret"}))
