"""Checks of combinations of keys that are valid individually."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from standby.config.keys import MOST_CONTAINERS, MOST_COPIES
from standby.config.whole import JobConfig
from standby.ensemble import KEYS, Tls, wrong, wrong_servers
from standby.errors import BadConfiguration
from standby.security.disclosure import FILE, is_path_of_secret
from standby.shared import naming

_COUNT: Final = "job.hotstandby.replicationcount"


def left_out(flat: Mapping[str, str], config: JobConfig) -> Iterator[str]:
    """Yield errors in the combination of given and missing keys."""
    if "job.state.dir" in flat and not config.state_dirs:
        yield "job.state.dir: give at least one directory, or leave it out"
    if _COUNT in flat and config.replication_count and "job.hotstandby.enabled" not in flat:
        yield (
            f"{_COUNT}: {config.replication_count}, but job.hotstandby.enabled is not set; set it to true for "
            "standbys, or to false to do without"
        )


def _secrets(given: Mapping[str, str]) -> Iterator[str]:
    """Yield errors of secrets given by files."""
    for name, path in given.items():
        if not is_path_of_secret(name):
            continue
        if name.removesuffix(FILE) in given:
            yield f"{name} and {name.removesuffix(FILE)}: give one of them"
        if not path.startswith("/"):
            yield f"{name}: {path!r} is not an absolute path"


def contradictions(config: JobConfig) -> Iterator[str]:
    """Yield errors in combinations of keys that are valid individually."""
    yield from wrong(
        Tls(config.zookeeper_ca, config.zookeeper_certificate, config.zookeeper_key), tuple(KEYS)
    )
    yield from (f"zookeeper.connect: {each}" for each in wrong_servers(config.zookeeper))
    yield from _secrets({**{f"kafka.{name}": each for name, each in config.kafka.items()}, **config.spark})
    if config.heartbeat_timeout_ms < 2 * config.heartbeat_interval_ms:
        yield (
            f"job.hotstandby.heartbeat.timeout.ms: {config.heartbeat_timeout_ms} is less than twice the interval "
            f"({config.heartbeat_interval_ms}); one late heartbeat would be a failover"
        )
    if config.host_timeout_ms < 2 * config.heartbeat_interval_ms:
        yield (
            f"job.hotstandby.host.timeout.ms: {config.host_timeout_ms} is less than twice the interval of heartbeats "
            f"({config.heartbeat_interval_ms}); one lost packet would be a failover"
        )
    if config.progress_timeout_ms < 2 * config.commit_interval_ms:
        yield (
            f"task.progress.timeout.ms: {config.progress_timeout_ms} is less than twice the interval of commits "
            f"({config.commit_interval_ms}, task.commit.interval.ms); one late commit would be a failure"
        )
    if not config.inputs:
        yield "task.inputs: give at least one topic"
    if config.python and config.python_archive:
        yield "job.python and job.python.archive: give one of them"
    longest = naming.changelog_topic(config.cluster, config.job_name, config.stage, "0" * 32)
    if len(longest) > 249:
        yield (
            "job.name, cluster.name: too long together; "
            f"the changelog's topic would have {len(longest)} characters, Kafka allows 249"
        )
    yield from _contradictions_of_failures(config)
    if set(config.inputs) & set(config.outputs):
        yield "task.outputs: an input topic is also an output; the job would feed itself"


def _contradictions_of_failures(config: JobConfig) -> Iterator[str]:
    """Yield errors in combinations of keys for failover, placement and failing records."""
    if config.on_error == "dead-letter" and not config.dead_letter:
        yield "task.dead.letter: missing; task.on.error is dead-letter, and needs a topic to write to"
    if config.dead_letter and config.dead_letter in config.inputs:
        yield "task.dead.letter: an input topic; the job would feed itself"
    if config.mixed and config.failover != "promote":
        yield "job.hotstandby.failover: mixed containers can only promote (job.hotstandby.mixed)"
    if config.mixed and config.container_count < 1 + config.standbys:
        yield (
            f"job.container.count: {config.container_count} mixed containers cannot keep {1 + config.standbys} "
            "copies of a task apart"
        )


def check_size(config: JobConfig, tasks: int, present: JobConfig | None = None) -> None:
    """Raise `BadConfiguration` if a job with ``tasks`` tasks has more containers or copies than a leader can plan.

    Each number that makes up the product is allowed by itself. A job that is too large already, as ``present``, may be
    updated unless it grows.
    """
    wrong = "; ".join(_oversizes(config, tasks))
    if wrong and (present is None or _grows(config, present)):
        raise BadConfiguration(wrong)


def _grows(config: JobConfig, present: JobConfig) -> bool:
    copies, before = 1 + config.standbys, 1 + present.standbys
    return copies > before or config.container_count * copies > present.container_count * before


def _oversizes(config: JobConfig, tasks: int) -> Iterator[str]:
    copies = 1 + config.standbys
    processors = min(config.container_count, tasks)
    if not config.mixed and processors * copies > MOST_CONTAINERS:
        yield (
            f"job.container.count: {processors} processors with {copies} copies each are {processors * copies} "
            f"containers, and a job may have {MOST_CONTAINERS}; set it to at most {MOST_CONTAINERS // copies}, or "
            f"lower {_COUNT}"
        )
    if tasks > MOST_COPIES:
        yield (
            f"task.inputs: {tasks} partitions are as many tasks, and a job may have {MOST_COPIES}; use topics with "
            "fewer partitions"
        )
    elif tasks * copies > MOST_COPIES:
        yield (
            f"{_COUNT}: {tasks} tasks with {copies} copies each are {tasks * copies} copies, and a job may have "
            f"{MOST_COPIES}; set it to at most {MOST_COPIES // tasks - 1}"
        )
