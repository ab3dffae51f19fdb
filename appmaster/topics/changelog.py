"""What a changelog topic has to be like: how it is created, and what is wrong with an existing one.

A job's state is its changelog. A compacted topic keeps the last record of each key for ever. If tombstones are removed
too early, or records are removed by age, deleted keys come back or live ones vanish, without any other sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from appmaster.topics.ports import TopicAdmin, TopicShape
from standby.config import CHANGELOG_RECORD_BYTES, JobConfig
from standby.errors import BadConfiguration

_POLICY: Final = "cleanup.policy"
_RETENTION: Final = "delete.retention.ms"
_LARGEST: Final = "max.message.bytes"
_IN_SYNC: Final = "min.insync.replicas"


def make(topics: TopicAdmin, name: str, partitions: int, config: JobConfig) -> bool:
    """Create the changelog with the right settings; return False if it exists, in which case `check` applies.

    Raises `BadConfiguration` if it gets fewer replicas than are to have each record.
    """
    settings = {
        _POLICY: "compact",
        "min.cleanable.dirty.ratio": "0.3",
        _RETENTION: str(config.changelog_delete_retention_ms),
        # Higher than Kafka's default, which leaves no room for a value of 1 MB and its key.
        _LARGEST: str(CHANGELOG_RECORD_BYTES),
    }
    replication = config.changelog_replication
    if replication > 0:
        check_in_sync(config, replication)
        settings[_IN_SYNC] = str(least_in_sync(config, replication))
    if not topics.create(name, partitions, replication, settings):
        return False
    if replication < 0:
        # Only now it is known how many replicas the brokers give a topic by default.
        found = topics.shape(name)
        check_in_sync(config, found.replicas)
        least = least_in_sync(config, found.replicas)
        if int(found.settings.get(_IN_SYNC, "1")) < least:
            topics.alter(name, {_IN_SYNC: str(least)})
    return True


def least_in_sync(config: JobConfig, replicas: int) -> int:
    """Return how many replicas must have a record before it counts as written."""
    if config.changelog_min_in_sync > 0:
        return min(config.changelog_min_in_sync, replicas)
    # With fewer than three, the absence of one would stop the job.
    return 2 if replicas >= 3 else 1


def too_many_in_sync(config: JobConfig, replicas: int) -> str:
    """Return why a changelog with this number of replicas does not fit to the job; empty: it does."""
    asked = config.changelog_min_in_sync
    if asked <= replicas:
        return ""
    return (
        f"job.changelog.min.insync.replicas: {asked}, and the changelog has {replicas} "
        f"replica{'' if replicas == 1 else 's'}; set it to at most {replicas}, or give the changelog more replicas "
        "(a new one by job.changelog.replication.factor)"
    )


def check_in_sync(config: JobConfig, replicas: int) -> None:
    """Raise `BadConfiguration` with `too_many_in_sync`."""
    if wrong := too_many_in_sync(config, replicas):
        raise BadConfiguration(wrong)


def check(topics: TopicAdmin, name: str, partitions: int, config: JobConfig) -> None:
    """Raise `BadConfiguration` with everything that is wrong with an existing changelog, and the remedies."""
    found = list(problems(name, topics.shape(name), partitions, config))
    if found:
        raise BadConfiguration("\n".join(found))


def problems(name: str, found: TopicShape, partitions: int, config: JobConfig) -> Iterator[str]:
    """Yield what is wrong with a changelog, one sentence each with the remedy."""
    settings, replicas = found.settings, found.replicas
    if found.partitions != partitions:
        yield (
            f"changelog {name} has {found.partitions} partitions, the input has {partitions}: a keyed stateful job "
            "keeps its partition count; delete the job and submit it again, or restore the input"
        )
    if deletion := risk(name, found):
        yield deletion
    for key, least, why in (
        (_RETENTION, config.changelog_delete_retention_ms, "keys that were deleted could come back"),
        (_LARGEST, CHANGELOG_RECORD_BYTES, "larger values would be refused and stop the job"),
    ):
        value = int(settings.get(key, "0"))
        if value < least:
            yield f"changelog {name} has {key}={value}, below {least}: {why}; {_mend(name, key, least)}"
    if replicas < config.changelog_replication:
        yield (
            f"changelog {name} has {replicas} replicas, job.changelog.replication.factor asks for "
            f"{config.changelog_replication}; give it more with kafka-reassign-partitions.sh"
        )
    if wrong := too_many_in_sync(config, replicas):
        yield wrong
    in_sync, least = int(settings.get(_IN_SYNC, "1")), least_in_sync(config, replicas)
    # What is above the replicas depends on the brokers (`appmaster.topics.brokers`).
    if in_sync < least:
        yield (
            f"changelog {name} has {_IN_SYNC}={in_sync} with {replicas} replicas: a broker that dies could take "
            f"committed state with it; {_mend(name, _IN_SYNC, least)}, or set job.changelog.min.insync.replicas"
        )


def risk(name: str, found: TopicShape) -> str:
    """Return the message and remedy for a changelog from which brokers delete records; empty: they do not."""
    policy = found.settings.get(_POLICY, "")
    if policy == "compact":
        return ""
    return (
        f"changelog {name} has {_POLICY}={policy}, so that state would be deleted by its age; "
        f"{_mend(name, _POLICY, 'compact')}; what is deleted already stays lost"
    )


def _mend(name: str, key: str, value: object) -> str:
    return (
        "correct it with kafka-configs.sh --bootstrap-server SERVERS --alter --entity-type topics "
        f"--entity-name {name} --add-config {key}={value}"
    )
