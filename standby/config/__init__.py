"""The configuration of a job: every key once, with its scope, its type, default, unit, bounds and meaning.

`standby.config.keys` describes how a key is declared. docs/configuration.md is generated from the declarations
(``python -m docs.generate``), so the page and the checks cannot differ. Keys have the names of Samza and SEP-23
where those exist.
"""

from standby.config.checks import check_size
from standby.config.kafka import (
    CHANGELOG_RECORD_BYTES,
    OWNED_BY_KERNEL,
    KafkaSettings,
    kafka_settings,
    librdkafka_settings,
)
from standby.config.keys import Applies, ConfigKey
from standby.config.parse import (
    flatten,
    in_one_form,
    is_harmless,
    is_text,
    parse,
    shown,
    written,
)
from standby.config.whole import JobConfig, keys, names

__all__ = [
    "CHANGELOG_RECORD_BYTES",
    "OWNED_BY_KERNEL",
    "Applies",
    "ConfigKey",
    "JobConfig",
    "KafkaSettings",
    "check_size",
    "flatten",
    "in_one_form",
    "is_harmless",
    "is_text",
    "kafka_settings",
    "keys",
    "librdkafka_settings",
    "names",
    "parse",
    "shown",
    "written",
]
