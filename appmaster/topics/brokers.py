"""Warnings about Kafka's brokers and topics at a submit: settings that could cost a job records or time. Pure.

Nothing here prevents a submit. What is as it should be is not mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appmaster.topics.ports import TopicShape

#: The feature level of Kafka 4.3, the first release whose coordinator skips the markers of partitions without a leader
#: (KAFKA-20734, docs/decisions/0016).
_LEVEL_OF_4_3: Final = 30

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
    least = {name: int(each.settings.get(_IN_SYNC, "1")) for name, each in several.items()}
    if few := [name for name in several if least[name] < 2]:
        yield (
            f"{_IN_SYNC}=1",
            few,
            "a broker that dies could take with it what was committed; 2 of 3 are recommended",
        )
    if all_of := [name for name, each in several.items() if least[name] >= each.replicas]:
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
