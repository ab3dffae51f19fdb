from __future__ import annotations

import pytest

from standby.errors import BadConfiguration
from standby.feed.rules.settings import java_client, session_settings, source_options
from tests.cases import case
from tests.fakes.jobs import job_config

FILES = {"ca.pem": "CA", "cert.pem": "CERT", "key.pem": "KEY"}


def translated(**settings: str) -> dict[str, str]:
    return java_client(
        {name.replace("__", "."): value for name, value in settings.items()}, FILES.__getitem__
    )


def test_librdkafkas_settings_mean_the_same_to_the_java_client() -> None:
    modules = "org.apache.kafka.common.security"
    oidc = {
        "sasl__mechanism": "OAUTHBEARER",
        "sasl__oauthbearer__method": "oidc",
        "sasl__oauthbearer__client__id": "i",
        "sasl__oauthbearer__client__secret": "s",
        "sasl__oauthbearer__token__endpoint__url": "https://token",
    }
    for given, expected in (
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
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p", "ssl.keystore.type": "PKCS12"},
        ),
        ({"ssl__endpoint__identification__algorithm": "none"}, {"ssl.endpoint.identification.algorithm": ""}),
        ({"enable__ssl__certificate__verification": "true"}, {}),
        (
            {"sasl__mechanisms": "PLAIN", "sasl__username": 'a"b', "sasl__password": "c\\d"},
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{modules}.plain.PlainLoginModule required "
                'username="a\\"b" password="c\\\\d";',
            },
        ),
        (
            {"sasl__mechanism": "SCRAM-SHA-512", "sasl__username": "u", "sasl__password": "p"},
            {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{modules}.scram.ScramLoginModule required username="u" password="p";',
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
            oidc,
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://token",
                "sasl.jaas.config": f"{modules}.oauthbearer.OAuthBearerLoginModule required "
                'clientId="i" clientSecret="s";',
                "sasl.login.callback.handler.class": f"{modules}.oauthbearer.OAuthBearerLoginCallbackHandler",
            },
        ),
    ):
        assert translated(**given) == expected, given


def test_what_the_java_client_cannot_do_is_refused() -> None:
    with pytest.raises(BadConfiguration, match=r"kafka\.enable\.ssl\.certificate\.verification"):
        translated(enable__ssl__certificate__verification="false")
    with pytest.raises(BadConfiguration, match=r"give kafka\.sasl\.jaas\.config"):
        translated(sasl__mechanism="OAUTHBEARER", sasl__oauthbearer__method="default")


def test_the_source_reads_committed_records_and_stops_where_data_is_lost() -> None:
    told = job_config(kafka__client__id="me", task__batch__max__records="77")
    options = source_options(told, "group", FILES.__getitem__)
    assert (
        options.items()
        >= {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.client.id": "me",
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": "77",
            "kafka.fetch.max.wait.ms": "1",
            "kafka.max.poll.records": "5000",
        }.items()
    )
    own = job_config(kafka__fetch__wait__max__ms="50", kafka__max__poll__records="100")
    options = source_options(own, "group", FILES.__getitem__)
    assert (options["kafka.fetch.max.wait.ms"], options["kafka.max.poll.records"]) == ("50", "100")


def test_no_wait_of_the_source_is_longer_than_the_jobs_patience() -> None:
    waits = ("kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafkaConsumer.pollTimeoutMs")
    for settings, patience in (({}, "8000"), ({"kafka.request.timeout.ms": "20000"}, "20000")):
        options = source_options(job_config(settings), "group", FILES.__getitem__)
        assert {options[each] for each in waits} == {patience}
        assert options["fetchOffset.numRetries"] == "1"


def test_the_session_has_the_jobs_settings_over_ours() -> None:
    own = {"spark.driver.memory": "2g", "spark.executorEnv.PYTHONPATH": "/own", "spark.my": "1"}
    assert (
        session_settings(job_config(own), "/code", "/scratch").items()
        >= {
            "spark.driver.memory": "2g",
            "spark.my": "1",
            "spark.app.name": "job",
            "spark.executorEnv.PYTHONPATH": "/code:/own",
            "spark.local.dir": "/scratch",
            "spark.sql.session.timeZone": "UTC",
        }.items()
    )


def test_a_setting_that_would_break_the_feed_is_refused() -> None:
    for name, value in {
        "spark.master": "yarn",
        "spark.jars.packages": "a:b:1",
        "spark.driver.host": "x",
        "spark.remote": "sc://",
    }.items():
        with case(name), pytest.raises(BadConfiguration, match=name):
            session_settings(job_config({name: value}))


def test_a_local_master_is_the_jobs_choice() -> None:
    for keys, master in (
        ({"spark.master": "local[1]"}, "local[1]"),
        ({}, "local[2]"),
        ({"cluster-manager.container.cpu.cores": "4"}, "local[4]"),
    ):
        assert session_settings(job_config(keys))["spark.master"] == master
