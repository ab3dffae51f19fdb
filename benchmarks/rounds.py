"""Rounds of a contest: their order, the contestants' answers, and the results of many rounds. Pure.

Every contestant runs once in each round. The order rotates from round to round, so that the after-effects of one
(warm disk caches, a broker that is busy compacting) do not always affect the same other one.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: The key that identifies a contestant's line among other output of its libraries on standard output.
MARK: Final = "benchmark"


class BadAnswer(Exception):
    """A contestant did not give a valid answer."""


def order(contestants: Sequence[T], turn: int) -> tuple[T, ...]:
    """Return the contestants in the order of round ``turn``, counted from 0: each round begins with the next one."""
    if not contestants:
        return ()
    first = turn % len(contestants)
    return (*contestants[first:], *contestants[:first])


@dataclass(frozen=True, slots=True)
class Figure:
    """The measurements of one figure in several rounds."""

    median: float
    least: float
    most: float
    rounds: int

    def as_json(self) -> dict[str, float]:
        """Return it for the result file."""
        return {"median": self.median, "min": self.least, "max": self.most, "rounds": self.rounds}


def figure(values: Iterable[float]) -> Figure | None:
    """Return median and range of ``values``; None if there are none."""
    found = sorted(values)
    if not found:
        return None
    return Figure(statistics.median(found), found[0], found[-1], len(found))


def figures(answers: Iterable[Mapping[str, Any]]) -> dict[str, Figure]:
    """Return median and range of each number in the answers of one contestant.

    A number that some answers lack is computed from the others: the result has their number.
    """
    values: dict[str, list[float]] = {}
    for answer in answers:
        for name, value in answer.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                values.setdefault(name, []).append(float(value))
    return {name: found for name, each in values.items() if (found := figure(each)) is not None}


def answer_of(text: str) -> dict[str, Any]:
    """Return the one answer in what a contestant wrote to standard output.

    It is the line that is a JSON object with the key `MARK`, which is removed. Raises `BadAnswer` unless there is
    exactly one such line.
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
    """Return the quantile ``share`` (0 to 1) of ``values``: one of them, by the nearest rank.

    Raises `ValueError` for no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(1, -(-int(share * 1_000_000) * len(ordered) // 1_000_000))
    return ordered[min(rank, len(ordered)) - 1]
