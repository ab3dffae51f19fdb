"""Which settings may be read by whoever sees an answer, an event or a log line: an allow-list. Pure.

Settings of Kafka's clients and of Spark are handed on as they are, and new releases, file systems and plug-ins bring
names that nobody here has heard of. So a value is shown only when its name, or its name and its form together, are
known to be harmless; everything else shows as three asterisks, and is not taken from a command line, which everybody on
the machine can read.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

#: What a value shows as that is not to be read.
HIDDEN: Final = "***"

#: Settings of librdkafka, by their names without prefix: names, paths and choices, whatever their value.
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

#: Settings of Spark whose value is a name, a path or a choice.
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
        "spark.sql.streaming.checkpointFileManagerClass",
        "spark.sql.warehouse.dir",
    }
)

#: Ends of names of Kafka's settings that take a number or a truth value, and nothing else.
_KAFKA_FIGURE: Final = re.compile(
    r"[.](ms|bytes|kbytes|messages|interval|size|max|min|enable|enabled|level|factor|records|retries|fails|connections"
    r"|count|jitter|threshold|idempotence|nagle\.disable)\Z"
)

#: Beginnings of names of Spark's settings that take numbers, sizes, times and truth values.
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
    "spark.sql.streaming.",
    "spark.sql.ui.",
    "spark.storage.",
    "spark.task.",
    "spark.ui.",
)

#: A number with or without a unit of Spark's, or a truth value.
_FIGURE: Final = re.compile(
    r"(-?\d{1,12}(\.\d{1,6})?([nu]?s|ms|m|min|h|d|[kmgt]?b|[kgt])?|true|false)\Z", re.IGNORECASE
)

#: The end of the name of a setting that says in which file of the host another one's value lies.
FILE: Final = ".file"


def shown(name: str, value: str, known: Collection[str]) -> str:
    """Return a setting's value as it may be shown; ``known`` are the names of our own keys, all harmless."""
    return value if is_harmless(name, value, known) else HIDDEN


def is_harmless(name: str, value: str, known: Collection[str]) -> bool:
    """Return whether anybody may read a setting's value; ``known`` are the names of our own keys, all harmless."""
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


#: Parts of names that tell of a secret: such a setting may be given by a file, and not on a command line.
_SECRET: Final = re.compile(
    r"password|passwd|passphrase|secret|jaas|token|credential|private[._-]?key|access[._-]?key|account[._-]?key"
    r"|encryption[._-]?key|key[._]pem|keystore[._]key|ssl[._]key\Z|[._]sas[._]"
    # What is handed to a JVM, or to the environment of a process, has whatever its code asks for there.
    r"|javaoptions\Z|\Aspark\.executorenv\.",
    re.IGNORECASE,
)

#: Settings whose own name ends as if they named another one's file.
_OWN_FILES: Final = re.compile(
    r"kafka\.sasl\.oauthbearer\.assertion\.|spark\.authenticate\.|spark\.hadoop\.hadoop\."
)


def is_secret(name: str) -> bool:
    """Return whether the name of a setting that is handed on to Kafka or Spark tells of a secret."""
    is_passed_on = name.startswith(("kafka.", "spark."))
    return (
        is_passed_on
        and not name.endswith((FILE, ".location", ".ms", ".url"))
        and _SECRET.search(name) is not None
    )


def is_path_of_secret(name: str) -> bool:
    """Return whether a setting names the file with the value of a secret one: ``kafka.sasl.password.file``."""
    return name.endswith(FILE) and not _OWN_FILES.match(name) and is_secret(name.removesuffix(FILE))
