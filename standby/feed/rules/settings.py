"""Settings of the Spark session and of its Kafka source. Pure, except for secrets read from the host's files.

A job specifies Kafka settings once, with librdkafka's names, for all clients. Spark reads with the Java client,
which has different names for some of them; `java_client` translates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.security.secret_files import resolved

#: The session's settings; a job may change them.
_SESSION: Final = {
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # One reading task per partition anyway; a shuffle or a second plan would only add latency.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    # The driver listens on loopback; a secret created by Spark excludes other users of the host.
    "spark.authenticate": "true",
    # The same timestamps as the plain feed, on every host.
    "spark.sql.session.timeZone": "UTC",
    # Batches are run for new input only.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The checkpoint is discarded, so it needs no checksums and no atomic renames.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Each query leaves data that its consumers have prefetched; keeping it for half a minute is enough.
    "spark.kafka.consumer.fetchedData.cache.timeout": "30s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "15s",
    # A container runs for months; the history of its Spark jobs is not used.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
}

#: Settings that would break the feed's guarantees, with the reason.
_REFUSED: Final = {
    "spark.jars.packages": "containers resolve nothing; give files with spark.jars",
    "spark.submit.pyFiles": "list the files in job.modules",
    "spark.files": "list the files in job.modules",
    "spark.archives": "use job.python.archive",
    "spark.remote": "the session is local to its container",
    "spark.app.name": "it is the job's name",
    "spark.driver.host": "the session is local to its container",
    "spark.driver.bindAddress": "the session is local to its container",
}


def session_settings(config: JobConfig, python_path: str = "", scratch: str = "") -> dict[str, str]:
    """Return all settings of the job's Spark session.

    ``python_path`` is where Spark's Python workers find the job's modules (empty: nowhere), ``scratch`` where Spark
    may keep files (empty: the system's default). Raises `BadConfiguration` for a setting that is not allowed.
    """
    for name, reason in _REFUSED.items():
        if name in config.spark:
            raise BadConfiguration(f"{name}: cannot be set: {reason}")
    master = config.spark.get("spark.master", "local")
    if not master.startswith("local"):
        raise BadConfiguration(
            f"spark.master: {master!r} is not local; each container runs a session of its own"
        )
    settings = {
        # Two partitions are read at a time even on one core, because reads mostly wait for the broker.
        "spark.master": f"local[{max(2, config.vcores)}]",
        **_SESSION,
        **resolved(config.spark),
        "spark.app.name": config.job_name,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if scratch:
        settings.setdefault("spark.local.dir", scratch)
    if python_path:
        own = settings.get("spark.executorEnv.PYTHONPATH")
        settings["spark.executorEnv.PYTHONPATH"] = f"{python_path}:{own}" if own else python_path
    return settings


#: librdkafka's name → the Java client's, if only the name differs.
RENAMED: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
}

#: librdkafka's name of a PEM file → the Java client's setting that takes the file's content.
_FILES: Final = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}

#: Parts of a login; together they become `sasl.jaas.config`.
_LOGIN: Final = frozenset(
    {
        "sasl.username",
        "sasl.password",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.scope",
    }
)

#: Settings that the Java client does not support; they are refused rather than ignored.
_NOT_IN_JAVA: Final = {
    "enable.ssl.certificate.verification": "the Java client always verifies; trust the broker's CA instead",
    "oauthbearer_token_refresh_cb": "a callback cannot be configured",
}


def java_client(settings: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    """Return librdkafka's ``settings``, translated for the Java client.

    This covers the names in `RENAMED`, PEM files (``read`` returns a file's text; the Java client expects the
    private key as PKCS #8), the PKCS #12 key store, and user and password, Kerberos or OIDC logins, which become
    `sasl.jaas.config`. Everything else is passed on unchanged; the Java client ignores unknown settings. Raises
    `BadConfiguration` for settings without a counterpart.
    """
    result: dict[str, str] = {}
    for name, value in settings.items():
        if name in _NOT_IN_JAVA and value.lower() != "true":
            raise BadConfiguration(
                f"kafka.{name}: {value!r} is not possible with task.feed=spark: {_NOT_IN_JAVA[name]}"
            )
        if name in _FILES:
            result[_FILES[name]] = read(value)
        elif name == "ssl.endpoint.identification.algorithm":
            result[name] = "" if value.lower() == "none" else value
        elif name not in _LOGIN and name not in _NOT_IN_JAVA:
            result[RENAMED.get(name, name)] = value
    if "ssl.truststore.certificates" in result:
        result["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.key" in result:
        result["ssl.keystore.type"] = "PEM"
    elif "ssl.keystore.location" in result:
        result.setdefault("ssl.keystore.type", "PKCS12")
    if any(name in _LOGIN for name in settings) and "sasl.jaas.config" not in result:
        result.update(_login(settings, result.get("sasl.mechanism", "GSSAPI").upper()))
    return result


def _login(settings: Mapping[str, str], mechanism: str) -> dict[str, str]:
    """Return `sasl.jaas.config` and related settings for the login in ``settings``."""
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = {
            "username": settings.get("sasl.username", ""),
            "password": settings.get("sasl.password", ""),
        }
        return {"sasl.jaas.config": _jaas(f"org.apache.kafka.common.security.{module}", options)}
    if mechanism == "GSSAPI":
        options = {
            "useKeyTab": "true",
            "storeKey": "true",
            "keyTab": settings.get("sasl.kerberos.keytab", ""),
            "principal": settings.get("sasl.kerberos.principal", ""),
        }
        return {"sasl.jaas.config": _jaas("com.sun.security.auth.module.Krb5LoginModule", options)}
    if mechanism == "OAUTHBEARER" and settings.get("sasl.oauthbearer.method", "").lower() == "oidc":
        options = {
            "clientId": settings.get("sasl.oauthbearer.client.id", ""),
            "clientSecret": settings.get("sasl.oauthbearer.client.secret", ""),
            "scope": settings.get("sasl.oauthbearer.scope", ""),
        }
        package = "org.apache.kafka.common.security.oauthbearer"
        return {
            "sasl.jaas.config": _jaas(f"{package}.OAuthBearerLoginModule", options),
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        }
    raise BadConfiguration(
        f"kafka.sasl.mechanism: the login for {mechanism} cannot be translated for task.feed=spark; "
        "give kafka.sasl.jaas.config as well"
    )


def _jaas(module: str, options: Mapping[str, str]) -> str:
    quoted = (
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"'))
        for name, value in options.items()
        if value
    )
    return f"{module} required {' '.join(quoted)};"


#: The option of Spark's Kafka source that adds the column `headers`.
HEADERS_OPTION: Final = "includeHeaders"

#: Maximum records per poll of the source's consumer. After each poll, Spark requests the partition's first and last
#: offset, which discards what the consumer has prefetched: with the client's default of 500, a megabyte of small
#: records is fetched fifteen times. The records of one poll are in memory at once, which limits the value.
_POLL_RECORDS: Final = "5000"

#: How long the broker holds a fetch without records, in milliseconds. Spark polls only for existing records, but
#: with the last of them the consumer sends a fetch ahead, and Spark's next request waits for that one.
_FETCH_WAIT_MS: Final = "1"

#: How long a query waits for a partition that does not answer, in milliseconds. Spark's default is two to three
#: minutes, during which the other tasks get no input either.
_PATIENCE_MS: Final = "8000"


def source_options(config: JobConfig, group: str, read: Callable[[str], str]) -> dict[str, str]:
    """Return the options of Spark's Kafka source, except for the partitions and the start offsets.

    ``group`` names the pool of consumers that the queries of a container share, so that a new query finds connected
    ones. No consumer joins the group, and nothing is committed with it.
    """
    client = java_client(
        {"bootstrap.servers": config.kafka_bootstrap, **resolved(config.kafka, "kafka.")}, read
    )
    client.setdefault("fetch.max.wait.ms", _FETCH_WAIT_MS)
    client.setdefault("max.poll.records", _POLL_RECORDS)
    client.setdefault("reconnect.backoff.max.ms", "500")
    # The whole call must not time out before a single request.
    patience = client.setdefault("request.timeout.ms", _PATIENCE_MS)
    client.setdefault("default.api.timeout.ms", patience)
    return {
        **{f"kafka.{name}": value for name, value in client.items()},
        "kafka.group.id": group,
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": str(config.batch_max_records),
        # Data loss must be detected: the kernel decides what to do, never the source.
        "failOnDataLoss": "true",
        "kafkaConsumer.pollTimeoutMs": patience,
        # The kernel retries, without the partition that did not answer.
        "fetchOffset.numRetries": "1",
        **column_options(config),
    }


def column_options(config: JobConfig) -> dict[str, str]:
    """Return the part of `source_options` that determines the columns."""
    return {HEADERS_OPTION: str(config.input_headers).lower()}
