"""Allow-list of settings whose values may appear in answers, events and log lines. Pure.

Settings of Kafka clients and of Spark are passed on unchanged, and new releases, file systems and plug-ins bring
unknown names. So a value is shown only when its name, or its name and format together, are known to be harmless.
Everything else is shown as three asterisks, and is refused on a command line, which all users of the machine can
read.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

#: Replacement for a hidden value.
HIDDEN: Final = "***"

#: librdkafka settings without prefix whose values are harmless: names, paths and choices.
_KAFKA: Final = frozenset(
    {
        "acks",
        "broker.address.family",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.type",
        "debug",
        "enable.ssl.certificate.verification",
        "group.instance.id",
        "group.protocol",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "metadata.recovery.strategy",
        "partition.assignment.strategy",
        "partitioner",
        "queuing.strategy",
        "request.required.acks",
        "retries",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.sigalgs.list",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)

#: Spark settings whose value is a name, a path or a choice.
_SPARK: Final = frozenset(
    {
        "spark.app.name",
        "spark.driver.extraClassPath",
        "spark.driver.memory",
        "spark.io.compression.codec",
        "spark.jars",
        "spark.local.dir",
        "spark.log.level",
        "spark.master",
        "spark.serializer",
        "spark.sql.extensions",
        "spark.sql.session.timeZone",
        "spark.sql.warehouse.dir",
    }
)

#: Suffixes of Kafka settings that accept only numbers or truth values.
_KAFKA_FIGURE: Final = re.compile(
    r"[.](ms|bytes|kbytes|messages|interval|size|max|min|enable|enabled|level|factor|records|retries|fails|connections"
    r"|count|jitter|threshold|idempotence|nagle\.disable)\Z"
)

#: Prefixes of Spark settings that accept numbers, sizes, times and truth values.
_SPARK_FIGURE: Final = (
    "spark.cleaner.",
    "spark.default.",
    "spark.driver.cores",
    "spark.kafka.consumer.",
    "spark.kryo",
    "spark.locality.",
    "spark.memory.",
    "spark.network.",
    "spark.python.",
    "spark.rdd.",
    "spark.scheduler.",
    "spark.shuffle.",
    "spark.speculation",
    "spark.sql.adaptive.",
    "spark.sql.ansi.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.execution.",
    "spark.sql.files.",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.shuffle.",
    "spark.sql.ui.",
    "spark.storage.",
    "spark.task.",
    "spark.ui.",
)

#: A number with or without a Spark unit, or a truth value.
_FIGURE: Final = re.compile(
    r"(-?\d{1,12}(\.\d{1,6})?([nu]?s|ms|m|min|h|d|[kmgt]?b|[kgt])?|true|false)\Z", re.IGNORECASE
)

#: Suffix of a setting that names the file on the host with another setting's value.
FILE: Final = ".file"


def shown(name: str, value: str, known: Collection[str]) -> str:
    """Return a setting's value for display; ``known`` are the names of our own keys, all harmless."""
    return value if is_harmless(name, value, known) else HIDDEN


def is_harmless(name: str, value: str, known: Collection[str]) -> bool:
    """Return whether a setting's value is harmless; ``known`` are the names of our own keys, all harmless."""
    if name in known or not value:
        return True
    is_figure = _FIGURE.match(value) is not None
    if name.startswith("kafka."):
        own = name.removeprefix("kafka.")
        return (
            own in _KAFKA or is_path_of_secret(name) or (is_figure and _KAFKA_FIGURE.search(own) is not None)
        )
    if name.startswith("spark."):
        return name in _SPARK or is_path_of_secret(name) or (is_figure and name.startswith(_SPARK_FIGURE))
    return False


#: Parts of names that indicate a secret: such a setting may be given by a file, but not on a command line.
_SECRET: Final = re.compile(
    r"password|passwd|passphrase|secret|jaas|token|credential|private[._-]?key|access[._-]?key|account[._-]?key"
    r"|encryption[._-]?key|key[._]pem|keystore[._]key|ssl[._]key\Z|[._]sas[._]"
    # Options of a JVM, and environment variables, may contain any secret that their code needs.
    r"|javaoptions\Z|\Aspark\.executorenv\.",
    re.IGNORECASE,
)

#: Settings whose own name happens to end with `.file`.
_OWN_FILES: Final = re.compile(
    r"kafka\.sasl\.oauthbearer\.assertion\.|spark\.authenticate\.|spark\.hadoop\.hadoop\."
)


def is_secret(name: str) -> bool:
    """Return whether the name of a setting for Kafka or Spark indicates a secret."""
    is_passed_on = name.startswith(("kafka.", "spark."))
    return (
        is_passed_on
        and not name.endswith((FILE, ".location", ".ms", ".url"))
        and _SECRET.search(name) is not None
    )


def is_path_of_secret(name: str) -> bool:
    """Return whether a setting names the file of a secret, like ``kafka.sasl.password.file``."""
    return name.endswith(FILE) and not _OWN_FILES.match(name) and is_secret(name.removesuffix(FILE))
