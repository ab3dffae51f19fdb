from __future__ import annotations

import pytest

from standby.config import JobConfig, parse
from standby.errors import BadConfiguration
from standby.feed.settings import java_client, session_settings, source_options

FILES = {"ca.pem": "CA", "cert.pem": "CERT", "key.pem": "KEY"}


def config(**more: str) -> JobConfig:
    required = {
        "job.name": "settings",
        "task.inputs": "in",
        "task.step": "job:step",
        "kafka.bootstrap.servers": "broker:1",
        "zookeeper.connect": "zoo:2",
    }
    return parse({**required, **{name.replace("__", "."): value for name, value in more.items()}})


def translated(**settings: str) -> dict[str, str]:
    return java_client(
        {name.replace("__", "."): value for name, value in settings.items()}, FILES.__getitem__
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"client__id": "x", "not__known": "y"}, {"client.id": "x", "not.known": "y"}),
        ({"fetch__wait__max__ms": "5"}, {"fetch.max.wait.ms": "5"}),
        ({"security__protocol": "SSL"}, {"security.protocol": "SSL"}),
        (
            {"ssl__ca__location": "ca.pem"},
            {"ssl.truststore.certificates": "CA", "ssl.truststore.type": "PEM"},
        ),
        (
            {
                "ssl__certificate__location": "cert.pem",
                "ssl__key__location": "key.pem",
                "ssl__key__password": "p",
            },
            {
                "ssl.keystore.certificate.chain": "CERT",
                "ssl.keystore.key": "KEY",
                "ssl.key.password": "p",
                "ssl.keystore.type": "PEM",
            },
        ),
        (
            {"ssl__keystore__location": "/k.p12", "ssl__keystore__password": "p"},
            {
                "ssl.keystore.location": "/k.p12",
                "ssl.keystore.password": "p",
                "ssl.keystore.type": "PKCS12",
            },
        ),
        (
            {"ssl__endpoint__identification__algorithm": "none"},
            {"ssl.endpoint.identification.algorithm": ""},
        ),
        ({"enable__ssl__certificate__verification": "true"}, {}),
        (
            {"sasl__mechanisms": "PLAIN", "sasl__username": 'a"b', "sasl__password": "c\\d"},
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="a\\"b" password="c\\\\d";',
            },
        ),
        (
            {"sasl__mechanism": "SCRAM-SHA-512", "sasl__username": "u", "sasl__password": "p"},
            {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="u" password="p";',
            },
        ),
        (
            {
                "sasl__kerberos__service__name": "kafka",
                "sasl__kerberos__keytab": "/k",
                "sasl__kerberos__principal": "me",
            },
            {
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
                'useKeyTab="true" storeKey="true" keyTab="/k" principal="me";',
            },
        ),
        (
            {"sasl__mechanism": "PLAIN", "sasl__username": "u", "sasl__jaas__config": "mine"},
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "mine"},
        ),
        (
            {
                "sasl__mechanism": "OAUTHBEARER",
                "sasl__oauthbearer__method": "oidc",
                "sasl__oauthbearer__client__id": "i",
                "sasl__oauthbearer__client__secret": "s",
                "sasl__oauthbearer__token__endpoint__url": "https://token",
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://token",
                "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'clientId="i" clientSecret="s";',
                "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
                "OAuthBearerLoginCallbackHandler",
            },
        ),
    ],
)
def test_librdkafkas_settings_mean_the_same_to_the_java_client(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert translated(**given) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"enable__ssl__certificate__verification": "false"}, "kafka.enable.ssl.certificate.verification"),
        (
            {"sasl__mechanism": "OAUTHBEARER", "sasl__oauthbearer__method": "default"},
            "give kafka.sasl.jaas.config",
        ),
    ],
)
def test_what_the_java_client_cannot_do_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadConfiguration, match=said):
        translated(**given)


def test_the_source_reads_committed_records_and_stops_where_data_is_lost() -> None:
    options = source_options(
        config(kafka__client__id="me", task__batch__max__records="77"), "group", FILES.__getitem__
    )
    assert options["kafka.bootstrap.servers"] == "broker:1"
    assert options["kafka.client.id"] == "me"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["failOnDataLoss"] == "true"
    assert options["maxOffsetsPerTrigger"] == "77"
    assert options["kafka.fetch.max.wait.ms"] == "1"
    assert options["kafka.max.poll.records"] == "5000"


def test_a_jobs_own_settings_of_the_consumer_are_kept() -> None:
    settings = {"kafka__fetch__wait__max__ms": "50", "kafka__max__poll__records": "100"}
    options = source_options(config(**settings), "group", FILES.__getitem__)
    assert options["kafka.fetch.max.wait.ms"] == "50"
    assert options["kafka.max.poll.records"] == "100"


def test_no_wait_of_the_source_is_longer_than_the_jobs_patience() -> None:
    waits = ("kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafkaConsumer.pollTimeoutMs")
    for settings, patience in (({}, "8000"), ({"kafka__request__timeout__ms": "20000"}, "20000")):
        options = source_options(config(**settings), "group", FILES.__getitem__)
        assert {options[each] for each in waits} == {patience}
        assert options["fetchOffset.numRetries"] == "1"


def test_the_session_has_the_jobs_settings_over_ours() -> None:
    settings = session_settings(
        config(**{"spark.driver.memory": "2g", "spark.executorEnv.PYTHONPATH": "/own", "spark.my": "1"}),
        "/code",
        "/scratch",
    )
    assert settings["spark.driver.memory"] == "2g"
    assert settings["spark.my"] == "1"
    assert settings["spark.app.name"] == "settings"
    assert settings["spark.executorEnv.PYTHONPATH"] == "/code:/own"
    assert settings["spark.local.dir"] == "/scratch"
    assert settings["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.master", "yarn"),
        ("spark.jars.packages", "a:b:1"),
        ("spark.driver.host", "x"),
        ("spark.remote", "sc://"),
    ],
)
def test_a_setting_that_would_break_the_feed_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadConfiguration, match=name):
        session_settings(config(**{name: value}))


def test_a_local_master_is_the_jobs_choice() -> None:
    assert session_settings(config(**{"spark.master": "local[1]"}))["spark.master"] == "local[1]"
    assert session_settings(config())["spark.master"] == "local[2]"
    assert (
        session_settings(config(**{"cluster-manager.container.cpu.cores": "4"}))["spark.master"] == "local[4]"
    )
