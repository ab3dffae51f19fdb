"""How often and over what a feed rehearses, on a scripted stage without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from standby.errors import Transient
from standby.feed.warmup import FIRST, KEEP_SECONDS, MOST, WarmUp
from standby.shared.model import InputPartition
from tests.patience import PATIENCE_SECONDS


class ScriptedQuery:
    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class ScriptedStage:
    """Plays each query at once: one batch per call of `receive`, up to the input's end or without one."""

    def __init__(self, bounds: Mapping[int, tuple[int, int]]) -> None:
        self.known = dict(bounds)
        self.queries: list[tuple[dict[int, int], int]] = []
        self.running: list[ScriptedQuery] = []
        self.is_silent = False
        #: Called by each `begin`, before its batches.
        self.on_begin: Callable[[], None] = lambda: None
        self.is_away = False
        self.fails_with: BaseException | None = None
        self.begun = threading.Event()

    def bounds(self) -> Any:
        return self

    def ask(self, partitions: Any) -> dict[InputPartition, tuple[int, int]]:
        if self.is_away:
            raise Transient("no broker")
        return {partition: self.known[partition[1]] for partition in partitions}

    def begin(self, positions: Mapping[InputPartition, int], records: int, receive: Any, ended: Any) -> Any:
        batches = 0
        query = ScriptedQuery()
        self.running.append(query)
        self.on_begin()
        if self.fails_with is not None:
            ended(self.fails_with)
        elif not self.is_silent:
            reached = dict(positions)
            for _ in range(3):
                batches += 1
                reached = {
                    partition: min(self.known[partition[1]][1], offset + max(1, records // len(positions)))
                    for partition, offset in reached.items()
                }
                receive(None, reached)
                if reached and all(self.known[each[1]][1] == reached[each] for each in reached):
                    break
        self.queries.append(({each: offset for (_, each), offset in positions.items()}, batches))
        self.begun.set()
        return query


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def warm_up(stage: ScriptedStage, clock: Clock | None = None) -> WarmUp:
    return WarmUp(stage, [("in", each) for each in stage.known], clock or Clock())


def test_the_first_run_rehearses_several_starts_and_later_ones_one_where_it_is_of_use() -> None:
    stage, clock = ScriptedStage({0: (0, 10_000)}), Clock()
    warm = warm_up(stage, clock)
    warm.run()
    assert warm.is_done
    for passed, later in ((KEEP_SECONDS - 1, 0), (1, 1)):
        clock.now += passed
        warm.run()
        assert len(stage.queries) == len(FIRST) + later
    assert all(query.is_stopped for query in stage.running)


def test_the_last_records_of_few_partitions_are_read() -> None:
    stage = ScriptedStage({0: (5, 5), 1: (0, 10_000), 2: (90, 100), 3: (0, 10_000)})
    warm_up(stage).run()
    for positions, _ in stage.queries:
        assert set(positions) == {1, 2}
        assert 8_000 < positions[1] < 10_000
        assert positions[2] == 90


def test_an_empty_input_is_replaced_by_synthetic_rows_until_it_has_records() -> None:
    stage, clock = ScriptedStage({0: (7, 7), 1: (0, 0)}), Clock()
    warm = warm_up(stage, clock)
    warm.run()
    assert warm.is_done
    before_rows = warm.start_seconds
    clock.now += KEEP_SECONDS
    warm.run()
    clock.now += 2
    warm.run()
    assert [positions for positions, _ in stage.queries] == [{}] * (len(FIRST) + 1), (
        "nothing new without rows"
    )
    stage.known[1] = (0, 50)
    warm.run()
    assert before_rows is None, "what a start takes is not known before real rows were read"
    assert warm.start_seconds is not None
    first_rows = [positions for positions, _ in stage.queries[len(FIRST) + 1 :]]
    assert first_rows == [{1: 0}] * len(FIRST), "the first ones do not wait for the next turn"


def test_a_cancel_ends_the_running_rehearsal_and_leaves_out_the_others() -> None:
    stage = ScriptedStage({0: (0, 10_000)})
    stage.is_silent = True
    warm = warm_up(stage)
    thread = threading.Thread(target=warm.run)
    thread.start()
    assert stage.begun.wait(PATIENCE_SECONDS)
    warm.cancel()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert len(stage.queries) == 1
    assert stage.running[0].is_stopped
    assert not warm.is_done


def test_a_cancel_just_before_a_run_counts_for_it_and_for_no_later_one() -> None:
    stage = ScriptedStage({0: (0, 10_000)})
    warm = warm_up(stage)
    warm.cancel()
    warm.run()
    assert not warm.is_done
    assert stage.queries == []
    warm.run()
    assert len(stage.queries) == len(FIRST)


def test_a_real_start_warms_as_well() -> None:
    stage, clock = ScriptedStage({0: (0, 10_000)}), Clock()
    warm = warm_up(stage, clock)
    warm.cancel()
    warm.count_start()
    assert warm.is_done
    clock.now += KEEP_SECONDS
    warm.run()
    assert len(stage.queries) == 1


def test_a_rehearsal_that_fails_over_its_rows_is_left_to_the_real_start() -> None:
    stage = ScriptedStage({0: (0, 10)})
    stage.fails_with = ValueError("no number")
    warm = warm_up(stage)
    warm.run()
    assert warm.is_done


def test_an_input_that_cannot_be_asked_is_told() -> None:
    stage = ScriptedStage({0: (0, 10)})
    stage.is_away = True
    with pytest.raises(Transient):
        warm_up(stage).run()


def test_starts_are_rehearsed_until_they_are_no_quicker_any_more() -> None:
    for times, expected in (
        ([4, 2, 1, 0.5, 0.4, 0.4], 5),
        ([4, 2, 1.9, 0.1], 3),
        ([64, 32, 16, 8, 4, 2, 1], MOST),
    ):
        stage, clock = ScriptedStage({0: (0, 10_000)}), Clock()
        left = iter(times)

        def take(clock: Clock = clock, left: Iterator[float] = left) -> None:
            clock.now += next(left)

        stage.on_begin = take
        warm = warm_up(stage, clock)
        warm.run()
        assert len(stage.queries) == expected
        assert warm.start_seconds == pytest.approx(times[expected - 1])
