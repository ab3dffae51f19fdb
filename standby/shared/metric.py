"""Declarations of metrics of leaders and containers for Prometheus, with the functions that compute them. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from standby.shared.model import ReplicaStatus

Source = TypeVar("Source")

#: Label values → value.
Values = Iterable[tuple[tuple[str, ...], float]]

#: Replicas with their last reported status; their labels are `REPLICA_LABELS`.
LabelledReplicas = Sequence[tuple[tuple[str, ...], ReplicaStatus]]


class MetricKind(enum.Enum):
    """The type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric(Generic[Source]):
    """A metric, computed at each scrape."""

    name: str
    """Ends with the unit, if any, followed by ``_total`` for a counter."""
    help: str
    labels: tuple[str, ...]
    values: Callable[[Source], Values]
    kind: MetricKind = MetricKind.GAUGE

    def of(self, source: Source) -> Samples:
        """Return the metric with its current values."""
        return Samples(self, tuple((labels, float(value)) for labels, value in self.values(source)))


@dataclass(frozen=True, slots=True)
class Samples:
    """A metric with all its current values."""

    metric: Metric[Any]
    values: tuple[tuple[tuple[str, ...], float], ...]


def single(
    name: str, text: str, value: Callable[[Source], float], kind: MetricKind = MetricKind.GAUGE
) -> Metric[Source]:
    """Declare a metric without labels."""
    return Metric(name, text, (), lambda source: (((), value(source)),), kind)


#: Labels of all metrics of a replica.
REPLICA_LABELS: Final = ("job", "stage", "partition", "copy", "role")


def per_replica(
    name: str, text: str, value: Callable[[ReplicaStatus], float | None], kind: MetricKind = MetricKind.GAUGE
) -> Metric[LabelledReplicas]:
    """Declare a metric of each replica; an unknown value is omitted rather than shown as 0."""

    def values(replicas: LabelledReplicas) -> Iterator[tuple[tuple[str, ...], float]]:
        for labels, status in replicas:
            known = value(status)
            if known is not None:
                yield labels, known

    return Metric(name, text, REPLICA_LABELS, values, kind)


def seconds(milliseconds: int | None) -> float | None:
    """Return a time in Prometheus' unit; None when it is not known."""
    return None if milliseconds is None else milliseconds / 1000


#: Exported by containers, and by the leader as last reported: queries should take the maximum of both.
LAGS: Final = (
    per_replica(
        "standfast_replica_lag_records",
        "Changelog offsets that are not applied to the local store yet.",
        lambda each: each.lag_records,
    ),
    per_replica(
        "standfast_replica_lag_seconds",
        "For how long the replica has been behind the changelog's end.",
        lambda each: seconds(each.lag_ms),
    ),
    per_replica(
        "standfast_replica_lag_bytes",
        "About how many bytes of keys and values are not applied to the local store yet.",
        lambda each: each.lag_bytes,
    ),
)
