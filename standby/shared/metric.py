"""Metrics as leaders and containers declare them for Prometheus, each together with what computes it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from standby.shared.model import ReplicaStatus

Source = TypeVar("Source")

#: Label values → value.
Values = Iterable[tuple[tuple[str, ...], float]]

#: Replicas with what they last reported; their labels are `REPLICA_LABELS`.
Replicas = Sequence[tuple[tuple[str, ...], ReplicaStatus]]


class Kind(enum.Enum):
    """How Prometheus is to take the values."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric(Generic[Source]):
    """One metric, computed at each scrape."""

    name: str
    """Ends with the unit, if there is one, and then with ``_total`` for a counter."""
    help: str
    labels: tuple[str, ...]
    values: Callable[[Source], Values]
    kind: Kind = Kind.GAUGE

    def of(self, source: Source) -> Samples:
        """Return the metric with its present values."""
        return Samples(self, tuple((labels, float(value)) for labels, value in self.values(source)))


@dataclass(frozen=True, slots=True)
class Samples:
    """One metric with all its present values."""

    metric: Metric[Any]
    values: tuple[tuple[tuple[str, ...], float], ...]


def single(name: str, text: str, value: Callable[[Source], float], kind: Kind = Kind.GAUGE) -> Metric[Source]:
    """Declare a metric without labels."""
    return Metric(name, text, (), lambda source: (((), value(source)),), kind)


#: Labels of everything that is said of one replica.
REPLICA_LABELS: Final = ("job", "stage", "partition", "copy", "role")


def of_replica(
    name: str, text: str, value: Callable[[ReplicaStatus], float | None], kind: Kind = Kind.GAUGE
) -> Metric[Replicas]:
    """Declare what is said of each replica; a value that is not known now is left out rather than shown as 0."""

    def values(replicas: Replicas) -> Iterator[tuple[tuple[str, ...], float]]:
        for labels, status in replicas:
            known = value(status)
            if known is not None:
                yield labels, known

    return Metric(name, text, REPLICA_LABELS, values, kind)


def seconds(milliseconds: int | None) -> float | None:
    """Return a time in Prometheus's unit; None when it is not known."""
    return None if milliseconds is None else milliseconds / 1000


#: Shown by containers, and by the leader as they reported them last: whoever asks takes the maximum of both.
LAGS: Final = (
    of_replica(
        "standfast_replica_lag_records",
        "Changelog offsets that are not applied to the local store yet.",
        lambda each: each.lag_records,
    ),
    of_replica(
        "standfast_replica_lag_seconds",
        "For how long the replica has been behind the changelog's end.",
        lambda each: seconds(each.lag_ms),
    ),
    of_replica(
        "standfast_replica_lag_bytes",
        "About how many bytes of keys and values are not applied to the local store yet.",
        lambda each: each.lag_bytes,
    ),
)
