"""Rounds of a contest: who runs when, what a contestant says, and what many rounds come to. Pure.

Every contestant runs once in each round. The order is rotated from round to round, so that what one of them
leaves behind (warm disk caches, a broker that is busy compacting) is not always met by the same next one.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: What a contestant's line is recognised by among whatever else its libraries write to standard output.
MARK: Final = "benchmark"


class BadAnswer(Exception):
    """A contestant did not say what it was to say."""


def order(contestants: Sequence[T], turn: int) -> tuple[T, ...]:
    """Return the contestants in the order of round ``turn``, counted from 0: each round begins with the next one."""
    if not contestants:
        return ()
    first = turn % len(contestants)
    return (*contestants[first:], *contestants[:first])


@dataclass(frozen=True, slots=True)
class Figure:
    """What several rounds measured of one thing."""

    median: float
    least: float
    most: float
    rounds: int

    def as_json(self) -> dict[str, float]:
        """Return it for the result file."""
        return {"median": self.median, "min": self.least, "max": self.most, "rounds": self.rounds}


def figure(values: Iterable[float]) -> Figure | None:
    """Return median and range of ``values``; None when there are none."""
    found = sorted(values)
    if not found:
        return None
    return Figure(statistics.median(found), found[0], found[-1], len(found))


def figures(answers: Iterable[Mapping[str, Any]]) -> dict[str, Figure]:
    """Return median and range of each number that the answers of one contestant hold.

    A number that some answers lack is judged by the others: the result tells by how many.
    """
    values: dict[str, list[float]] = {}
    for answer in answers:
        for name, value in answer.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                values.setdefault(name, []).append(float(value))
    return {name: found for name, each in values.items() if (found := figure(each)) is not None}


def answer_of(text: str) -> dict[str, Any]:
    """Return the one answer in what a contestant wrote to standard output.

    It is the line that is a JSON object with the key `MARK`, which is taken out. Raises `BadAnswer` when there
    is no such line, or more than one.
    """
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict) and MARK in content:
            del content[MARK]
            found.append(content)
    if len(found) != 1:
        raise BadAnswer(f"{len(found)} answers where one is wanted")
    return found[0]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` (0 to 1) of ``values`` do not exceed: one of them, the nearest rank.

    Raises `ValueError` for no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(1, -(-int(share * 1_000_000) * len(ordered) // 1_000_000))
    return ordered[min(rank, len(ordered)) - 1]
