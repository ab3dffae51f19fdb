"""A job with two inputs: one position of all of them, committed as one, and each judged by itself."""

from __future__ import annotations

from typing import Any

import pytest

from standby.replica.claim import Committed
from standby.shared.model import Phase
from tests.memory_lab import MakeLab, MemoryLab, having, on_error

TWO = {"task.inputs": "in,also"}


def values(lab: MemoryLab, topic: str, count: int) -> None:
    for number in range(count):
        lab.kafka.append(topic, 0, b"0/%s k" % topic.encode(), b"v%d" % number)


def test_both_are_processed_and_reported_as_their_sum_and_one_by_one(make_lab: MakeLab) -> None:
    lab = make_lab(1, **TWO)
    values(lab, "in", 30)
    values(lab, "also", 4)
    active = lab.begun(0)
    active.eventually(lambda: active.status().input_end == 34)
    found = active.status()
    assert (found.input_committed, dict(found.input_offsets)) == (34, {"in": 30, "also": 4})
    values(lab, "also", 3)
    active.await_processed()
    assert [lab.kafka.offsets["group", each, 0].offset for each in ("in", "also")] == [30, 7]
    assert len({each.metadata for each in lab.kafka.offsets.values()}) == 1, "one epoch, one commit"
    lab.assert_exact()


def test_an_offset_of_one_that_is_gone_and_nowhere_else_is_loud(make_lab: MakeLab) -> None:
    """No commit record shows the offset either."""
    lab = make_lab(1, **TWO)
    values(lab, "in", 3)
    values(lab, "also", 3)
    lab.kafka.offsets["group", "in", 0] = Committed(2)
    active = lab.container("a").activate(claimed=True).await_phase(Phase.FAILED)
    assert "the committed input offset is gone" in active.status().detail
    assert lab.kafka.committed_records("out", 0) == []


@pytest.mark.parametrize(("poisoned", "by"), [("in", "transform"), ("also", "step"), ("both", "step")])
def test_exactly_the_record_of_the_input_that_fails_is_left_out_and_its_dead_letter_names_the_input(
    make_lab: MakeLab, poisoned: str, by: str
) -> None:
    given_up: dict[str, list[tuple[int, int]]] = {"in": [], "also": []}
    lab = make_lab(1, **TWO, **on_error("dead-letter"), **{"task.batch.max.records": "16"})
    for topic in ("in", "also"):
        values(lab, topic, 5)
        if poisoned in (topic, "both"):
            given_up[topic].append(lab.poison(0, topic=topic))
        values(lab, topic, 9)

    def transform(rows: Any) -> None:
        if by == "transform" and b"raise" in rows["value"].to_pylist():
            raise ValueError("a row that cannot be read")

    active = lab.begun(0, script=having(transform=transform))
    active.eventually(lambda: active.status().skipped == len(given_up["in"]) + len(given_up["also"]))
    lab.assert_exact(given_up["in"], given_up["also"])
    letters = [dict(each.headers) for each in lab.kafka.logs["dead", 0] if not each.is_marker]
    told = sorted((each["standfast-topic"], each["standfast-offset"]) for each in letters)
    assert told == [(each.encode(), b"5") for each in sorted(given_up) if given_up[each]]
