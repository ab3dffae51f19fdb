"""A metric with its values, as leaders and containers tell it to Prometheus. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    """How Prometheus is to take the values."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with all its present values."""

    name: str
    """A counter's name ends with ``_total``."""
    help: str
    kind: Kind
    labels: tuple[str, ...]
    values: tuple[tuple[tuple[str, ...], float], ...]
    """Label values → value."""


#: Labels of everything that is said of one replica.
REPLICA_LABELS: Final = ("job", "stage", "partition", "copy", "role")
