"""What is wrong with Kafka's brokers and topics for a job, or could cost it records or time. Pure.

What is as it should be is not mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appmaster.topics.ports import TopicShape
from standby.errors import BadConfiguration

#: The feature level of Kafka 4.3, the first release whose coordinator skips the markers of partitions without a leader
#: (KAFKA-20734, docs/decisions/0016).
_LEVEL_OF_4_3: Final = 30

#: The feature level of Kafka 3.7. Since then a partition needs no more replicas in sync than it has (KAFKA-15583);
#: earlier brokers refuse every write if `min.insync.replicas` is above that.
_LEVEL_OF_3_7: Final = 15

_IN_SYNC: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class Brokers:
    """What is known about a Kafka cluster."""

    levels: Mapping[int, int | None]
    """Broker → the highest ``metadata.version`` that it supports; None: unknown."""
    topics: Mapping[str, TopicShape]
    """The job's topics, and Kafka's own that are part of a transaction, as far as they can be described."""
    default_replicas: int | None = None
    """The default number of replicas of a topic; None: unknown."""
    most_transaction_ms: int | None = None
    """The longest time-out of a transaction (``transaction.max.timeout.ms``); None: unknown."""


def check(found: Brokers, transaction_ms: int) -> None:
    """Raise `BadConfiguration` with the remedies if the job could never write to its topics.

    ``transaction_ms`` is the job's time-out of transactions.
    """
    wrong = [*_refused_timeout(found, transaction_ms), *_refused_writes(found)]
    if wrong:
        raise BadConfiguration("\n".join(wrong))


def _refused_timeout(found: Brokers, transaction_ms: int) -> Iterator[str]:
    most = found.most_transaction_ms
    if most is not None and transaction_ms > most:
        yield (
            f"job.transaction.timeout.ms: {transaction_ms}, and the brokers allow {most} ms "
            "(transaction.max.timeout.ms); lower it, or raise that at every broker"
        )


def _refused_writes(found: Brokers) -> Iterator[str]:
    if not any(level is not None and level < _LEVEL_OF_3_7 for level in found.levels.values()):
        return
    yield from (
        f"topic {name} has {_IN_SYNC}={each.settings[_IN_SYNC]} and {each.replicas} "
        f"replica{'' if each.replicas == 1 else 's'}: these brokers, of a release before 3.7, refuse every write to "
        "it; correct it with kafka-configs.sh --bootstrap-server SERVERS --alter --entity-type topics "
        f"--entity-name {name} --add-config {_IN_SYNC}={each.replicas}, or give it more replicas"
        for name, each in found.topics.items()
        if _least(each) > each.replicas
    )


def _least(topic: TopicShape) -> int:
    return int(topic.settings.get(_IN_SYNC, "1"))


def warnings(found: Brokers) -> Iterator[str]:
    """Yield a sentence for each thing that is not as it should be; for a single broker, one sentence for everything."""
    affected = sorted(each for each, level in found.levels.items() if (level or 0) >= _LEVEL_OF_4_3)
    unknown = sorted(each for each, level in found.levels.items() if level is None)
    if len(found.levels) == 1:
        also = (
            ", and its release (4.3 or later) may leave a transaction open when it comes back (KAFKA-20734)"
            if affected
            else ""
        )
        yield f"warning: there is only one Kafka broker: jobs stop while it is unavailable{also}"
    else:
        if affected:
            yield (
                f"warning: Kafka {_numbers('broker', affected)} {'is' if len(affected) == 1 else 'are'} of release 4.3 "
                "or later, which leaves transactions open in partitions that have no leader when they end "
                "(KAFKA-20734): a job may stop there until they are ended by hand. Releases 4.0 to 4.2 do not"
            )
        alone = [name for name, each in found.topics.items() if each.replicas == 1]
        if alone:
            yield (
                f"warning: {_numbers('topic', alone)} {'has' if len(alone) == 1 else 'have'} one replica: the job "
                "stops while its broker is away, and what that loses is lost; three are recommended"
            )
    if unknown:
        yield (
            f"warning: the release of Kafka {_numbers('broker', unknown)} is unknown; 4.3 and later may leave "
            "transactions open (KAFKA-20734)"
        )
    for key, names, why in _settings(found.topics):
        yield f"warning: {_numbers('topic', names)} {'has' if len(names) == 1 else 'have'} {key}: {why}"


def _settings(topics: Mapping[str, TopicShape]) -> Iterator[tuple[str, list[str], str]]:
    several = {name: each for name, each in topics.items() if each.replicas > 1}
    least = {name: _least(each) for name, each in topics.items()}
    if few := [name for name in several if least[name] < 2]:
        yield (
            f"{_IN_SYNC}=1",
            few,
            "a broker that dies could take with it what was committed; 2 of 3 are recommended",
        )
    if above := [name for name, each in topics.items() if least[name] > each.replicas]:
        yield (
            f"{_IN_SYNC} above their replicas",
            above,
            "only the number of replicas counts, and brokers before Kafka 3.7 refuse every write",
        )
    if all_of := [name for name, each in several.items() if least[name] == each.replicas]:
        yield (
            f"{_IN_SYNC} as high as their replicas",
            all_of,
            "the job stops while any of their brokers is away",
        )
    if unclean := [name for name, each in topics.items() if each.settings.get(_UNCLEAN) == "true"]:
        yield (
            f"{_UNCLEAN}=true",
            unclean,
            "a broker that lacks the last records may lead, and what was committed is lost",
        )


def _numbers(noun: str, each: Sequence[object]) -> str:
    return f"{noun}{'' if len(each) == 1 else 's'} {', '.join(map(str, each))}"
