"""At which input offsets a task continues, when topics that were made again may have been accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from standby.errors import BadConfiguration
from standby.replica.accepted import known_generation, task_offsets
from standby.replica.claim import CommitRecord, Committed, claim_text
from standby.replica.identity import RunTopics
from standby.shared.model import Offsets, TaskId, TaskRecord, TopicIdentity

LAST: Final = CommitRecord(10, 1, "run1", Offsets.of(6, 8))


def at_offsets(*offsets: int | None, generation: int = 0) -> Sequence[Committed | None]:
    """Return the offsets of the commit before `LAST`, made with that generation of topics; None: one is gone."""
    metadata = claim_text(1, "run1", 9, generation)
    return [Committed(each, metadata) if each is not None else None for each in offsets]


GENERATIONS: Mapping[str, tuple[int, Sequence[Committed | None], CommitRecord | None]] = {
    "nothing was committed": (0, [None], None),
    "before anything was accepted": (0, at_offsets(5), LAST),
    "of the offsets": (3, at_offsets(5, generation=3), replace(LAST, generation=2)),
    "of the changelog": (3, at_offsets(None, 5, generation=2), replace(LAST, generation=3)),
    "where an offset has no metadata": (1, [Committed(5), *at_offsets(5, generation=1)], None),
}


@pytest.mark.parametrize(("generation", "offsets", "last"), GENERATIONS.values(), ids=GENERATIONS)
def test_which_generation_of_topics_the_commits_know(
    generation: int, offsets: Sequence[Committed | None], last: CommitRecord | None
) -> None:
    assert known_generation(offsets, last) == generation


def found(
    offsets: Sequence[Committed | None],
    *,
    last: CommitRecord | None = LAST,
    is_claimed: bool = True,
    start: str = "earliest",
    **accepted: tuple[int, str],
) -> tuple[int, ...]:
    """Return the offsets in the inputs a and b; ``accepted``: topic → its generation, and where it is read from."""
    recorded = {topic: TopicIdentity("id", *each) for topic, each in accepted.items()}
    run = RunTopics("flights", "log", ("a", "b"), recorded)
    record = TaskRecord(TaskId("flights", "main", 0), 0, 2, claimed=is_claimed)
    return task_offsets(offsets, last, record, run, start, lambda: ((3, 30), (4, 40))).each


OLDER: Final = at_offsets(5, 7)
NEWER: Final = at_offsets(5, 7, generation=1)
OF_A: Final = at_offsets(5, None)
NONE: Final = at_offsets(None, None)
NEVER: Final[Mapping[str, Any]] = {"last": None, "is_claimed": False}

CONTINUING: Mapping[str, tuple[tuple[int, ...], Sequence[Committed | None], Mapping[str, Any]]] = {
    "where the changelog ends": ((6, 8), OLDER, {}),
    "at the beginning of an accepted input": ((3, 8), OLDER, {"a": (1, "earliest")}),
    "at the end of one": ((6, 40), OLDER, {"b": (1, "latest")}),
    "where the changelog ends, once a commit knows of it": ((6, 8), NEWER, {"a": (1, "earliest")}),
    "at its beginning, if it was accepted again": ((3, 8), NEWER, {"a": (2, "earliest"), "b": (1, "latest")}),
    "at the committed offsets, if the changelog was accepted": ((5, 7), OLDER, {"log": (1, "")}),
    "where that ends, once a commit knows of it": ((6, 8), NEWER, {"log": (1, "")}),
    "at both, if an input was accepted too": ((3, 7), OLDER, {"log": (2, ""), "a": (1, "earliest")}),
    "also if the offset in the input is gone": ((5, 40), OF_A, {"log": (2, ""), "b": (1, "latest")}),
    "at the beginning of all inputs, if nothing was committed": ((3, 4), NONE, NEVER),
    "at the ends of all inputs": ((30, 40), NONE, {**NEVER, "start": "latest"}),
    "at the beginning of the others than an accepted one": ((30, 4), NONE, {**NEVER, "a": (1, "latest")}),
    "at the ends of the others": ((3, 40), NONE, {**NEVER, "a": (1, "earliest"), "start": "latest"}),
}


@pytest.mark.parametrize(("offsets", "present", "given"), CONTINUING.values(), ids=CONTINUING)
def test_where_a_task_continues(
    offsets: tuple[int, ...], present: Sequence[Committed | None], given: Mapping[str, Any]
) -> None:
    assert found(present, **given) == offsets


def test_an_offset_that_is_gone_is_not_replaced_by_another() -> None:
    with pytest.raises(BadConfiguration, match=r"offset in b is gone, .* --accept b --from earliest`"):
        found(OF_A, log=(1, ""))
