"""A job with two inputs: one position of all of them, committed as one, and each judged by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from standby.replica.claim import CommitRecord
from standby.shared.model import InputFailures, Offsets, Phase, Role
from tests.fakes.feed import MemoryFeed
from tests.memory_lab import MakeLab, MemoryContainer, MemoryLab
from tests.patience import PATIENCE_SECONDS

Start = Callable[..., tuple[MemoryLab, MemoryContainer]]


@pytest.fixture
def start(make_lab: MakeLab) -> Start:
    """Starts a lab of one task with two inputs, `in` and `also`, and one active container."""

    def one(
        *,
        fill: Callable[[MemoryLab], None] = lambda _: None,
        failures: InputFailures | None = None,
        is_claimed: bool = False,
        config: dict[str, str] | None = None,
        **more: Any,
    ) -> tuple[MemoryLab, MemoryContainer]:
        lab = make_lab(1, **{"task.inputs": "in,also", **(config or {})})
        lab.records.name(lab.tasks[0], 0, 1, claimed=is_claimed, failures=failures)
        fill(lab)
        active = lab.container("a", **more).want(0, Role.ACTIVE, 1)
        active.eventually(lambda: bool(active.statuses()))
        return lab, active

    return one


def values(lab: MemoryLab, topic: str, count: int, key: bytes = b"k") -> None:
    for number in range(count):
        lab.kafka.append(topic, 0, b"0/%s %s" % (topic.encode(), key), b"v%d" % number)


def committed(lab: MemoryLab) -> tuple[int, int]:
    return lab.kafka.offsets["group", "in", 0].offset, lab.kafka.offsets["group", "also", 0].offset


def test_both_are_processed_and_reported_as_their_sum_and_one_by_one(start: Start) -> None:
    lab, active = start()
    values(lab, "in", 30)
    values(lab, "also", 4)
    active.await_processed()
    active.eventually(lambda: active.status().input_end == 34)
    found = active.status()
    assert (found.input_committed, dict(found.input_offsets)) == (34, {"in": 30, "also": 4})
    values(lab, "also", 3)
    active.await_processed()
    assert committed(lab) == (30, 7)
    assert len({each.metadata for each in lab.kafka.offsets.values()}) == 1, "one epoch, one commit"
    lab.assert_exact()


def commit_before(lab: MemoryLab, offsets: Offsets) -> None:
    """Commit ``offsets`` as an active of earlier did."""
    writer = lab.kafka.connect("cluster", lab.config, lab.definition).open_writer(0)
    writer.initialise(lambda: False, PATIENCE_SECONDS)
    writer.begin(CommitRecord(0, 0, "run", offsets).encode())
    writer.prepare([], {}, offsets, "")
    writer.commit()


def forgotten(lab: MemoryLab) -> None:
    """Have Kafka lose the committed offset of the second input."""
    values(lab, "in", 3)
    values(lab, "also", 3)
    commit_before(lab, Offsets.of(2, 2))
    del lab.kafka.offsets["group", "also", 0]


def test_an_offset_of_one_that_is_gone_and_nowhere_else_is_loud(start: Start) -> None:
    """No commit record shows the offset either."""

    def fill(lab: MemoryLab) -> None:
        forgotten(lab)
        lab.kafka.logs["changelog", 0].clear()

    lab, active = start(fill=fill, is_claimed=True)
    active.await_phase(Phase.FAILED)
    assert "the committed input offset is gone" in active.status().detail
    assert lab.kafka.committed_records("out", 0) == []


@pytest.mark.parametrize(("poisoned", "by"), [("in", "transform"), ("also", "step"), ("both", "step")])
def test_exactly_the_record_of_the_input_that_fails_is_left_out_and_its_dead_letter_names_the_input(
    start: Start, poisoned: str, by: str
) -> None:
    given_up: dict[str, list[tuple[int, int]]] = {"in": [], "also": []}

    def fill(lab: MemoryLab) -> None:
        for topic in ("in", "also"):
            values(lab, topic, 5)
            if poisoned in (topic, "both"):
                given_up[topic].append(lab.poison(0, topic=topic))
            values(lab, topic, 9)

    def script(feed: MemoryFeed) -> None:
        def transform(rows: Any) -> None:
            if by == "transform" and b"raise" in rows["value"].to_pylist():
                raise ValueError("a row that cannot be read")

        feed.transform = transform

    config = {
        "task.on.error": "dead-letter",
        "task.dead.letter": "dead",
        "task.batch.max.records": "16",
    }
    lab, active = start(fill=fill, script=script, config=config)
    active.await_processed()
    active.eventually(lambda: active.status().skipped == len(given_up["in"]) + len(given_up["also"]))
    lab.assert_exact(given_up["in"], given_up["also"])
    letters = [dict(each.headers) for each in lab.kafka.logs["dead", 0] if not each.is_marker]
    told = sorted((each["standfast-topic"], each["standfast-offset"]) for each in letters)
    assert told == [(each.encode(), b"5") for each in sorted(given_up) if given_up[each]]
