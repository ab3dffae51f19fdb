"""The gate between a query and the tasks: nothing before it opens, nothing from below where it opens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from standby.errors import BadConfiguration, Transient
from standby.feed.batches import from_offsets
from standby.feed.reading import COMPUTE_SECONDS, QueryBuffer
from standby.ports import TaskBatch
from standby.shared.model import InputPartition, Offsets, TaskId
from tests.fakes.feed_rows import of_two, rows, task


def at(positions: Mapping[int, int]) -> dict[TaskId, Offsets]:
    """Partition → offset, as positions of tasks."""
    return {task(each): Offsets.of(position) for each, position in positions.items()}


def ends(of: Mapping[int, int]) -> dict[InputPartition, int]:
    return {("in", each): end for each, end in of.items()}


def reading(positions: Mapping[int, int]) -> QueryBuffer:
    return QueryBuffer(at(positions), ("in",), "job:transform", lambda error, _: error)


class Seen:
    def __init__(self) -> None:
        self.spans: dict[int, list[tuple[int, int]]] = {}
        self.offsets: dict[int, list[int]] = {}

    def __call__(self, batches: tuple[TaskBatch, ...]) -> None:
        for each in batches:
            self.spans.setdefault(each.task.partition, []).append((each.start.total, each.end.total))
            self.offsets.setdefault(each.task.partition, []).extend(each.rows.column("_offset").to_pylist())


class Gate:
    """A condition at which the query waits on the test's own thread: a wait that is not over does the next step."""

    def __init__(self) -> None:
        self.steps: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        pass

    def wait_for(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            assert self.steps, "it waits for ever"
            self.steps.popleft()()


class Query:
    """A query in front of a gate: what it does takes exactly as many steps of the others as are named."""

    def __init__(self, held: QueryBuffer) -> None:
        self.held = held
        self.gate = Gate()
        cast("Any", held)._gate = self.gate

    @contextmanager
    def _waiting(self, steps: Sequence[Callable[[], object]]) -> Iterator[None]:
        self.gate.steps.extend(steps)
        yield
        assert not self.gate.steps, "it has gone on before"

    def receive(
        self, rows: pa.Table, ends: Mapping[InputPartition, int], *steps: Callable[[], object]
    ) -> None:
        """Bring a batch, which waits at the gate until the last of ``steps`` is done."""
        with self._waiting(steps):
            self.held.receive(rows, ends)

    def is_below(self, end: int, *steps: Callable[[], object]) -> bool:
        """Ask about a batch of partition 0 that ends there, which waits until the last of ``steps`` is done."""
        with self._waiting(steps):
            return self.held.is_below(ends({0: end}))


@given(
    began=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    claimed=st.lists(st.integers(0, 30), min_size=3, max_size=3),
    steps=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), max_size=12),
    kept=st.integers(1, 3),
)
@settings(derandomize=True)
def test_each_task_gets_exactly_what_lies_from_its_claimed_offset_on(
    began: list[int], claimed: list[int], steps: list[list[int]], kept: int
) -> None:
    """``kept``: the transform keeps each ``kept``-th record."""
    reached = dict(enumerate(began))
    starts = {each: position + claimed[each] for each, position in reached.items()}
    held = reading(reached)
    seen = Seen()
    held.open(at(starts), seen)
    for step in steps:
        come = {each: position + step[each] for each, position in reached.items()}
        places = [
            (each, offset)
            for each, position in reached.items()
            for offset in range(position, come[each])
            if offset % kept == 0
        ]
        held.receive(rows(*places), ends(come))
        reached = come
    for each, start in starts.items():
        spans = seen.spans.get(each, [])
        assert [first for first, _ in spans] == [start, *(end for _, end in spans)][: len(spans)]
        assert all(first < end for first, end in spans)
        end = spans[-1][1] if spans else start
        assert end == max(start, reached[each])
        assert seen.offsets.get(each, []) == [one for one in range(start, end) if one % kept == 0]


def test_nothing_passes_before_the_gate_is_open() -> None:
    held, seen = reading({0: 0}), Seen()

    def open_it() -> None:
        assert held.has_arrived
        held.open(at({0: 1}), seen)

    Query(held).receive(rows((0, 0), (0, 1)), ends({0: 2}), open_it)
    assert (seen.spans, seen.offsets) == ({0: [(1, 2)]}, {0: [1]})


def test_what_another_has_committed_and_gone_on_from_passes_uncounted_and_the_rest_waits() -> None:
    """A query without a batch would ask for input all the time: one stays while the input stands still."""
    held, seen = reading({0: 0, 1: 5}), Seen()
    query = Query(held)
    query.receive(
        rows((0, 0), (0, 1), (1, 5)),
        ends({0: 2, 1: 6}),
        lambda: held.pass_below(at({0: 2, 1: 5})),
        lambda: held.pass_below(at({0: 2, 1: 6})),
        lambda: held.pass_below(at({0: 3, 1: 6})),
    )
    assert held.records_below(at({0: 1, 1: 6})) is None, "that has gone"
    assert held.records_below(at({0: 3, 1: 6})) == 1
    query.receive(rows((0, 2), (0, 3), (1, 6)), ends({0: 4, 1: 7}), lambda: held.open(at({0: 3, 1: 6}), seen))
    assert (seen.spans, seen.offsets) == ({0: [(3, 4)], 1: [(6, 7)]}, {0: [3], 1: [6]})


def test_of_batches_that_are_committed_one_is_computed_and_the_others_need_no_rows() -> None:
    held, seen = reading({0: 0}), Seen()
    held.pass_below(at({0: 5}))
    assert not held.is_below(ends({0: 2})), "the first comes to the gate"
    held.receive(rows((0, 0), (0, 1)), ends({0: 2}))
    assert held.is_below(ends({0: 4}))
    assert held.records_below(at({0: 5})) == 1
    assert not held.is_below(ends({0: 5})), "it is to wait there"
    held.open(at({0: 7}), seen)
    assert held.is_below(ends({0: 7}))
    assert not held.is_below(ends({0: 9}))
    held.receive(rows((0, 7), (0, 8)), ends({0: 9}))
    assert (seen.spans, seen.offsets) == ({0: [(7, 9)]}, {0: [7, 8]})


def test_far_from_the_start_few_batches_are_computed_and_near_it_the_one_at_the_gate_is() -> None:
    now = [100.0]
    held = QueryBuffer(at({0: 0}), ("in",), "", lambda error, _: error, lambda: now[0])
    query, seen = Query(held), Seen()

    def others_at(position: int, *, is_near: bool = False, after: float = 0.0) -> Callable[[], None]:
        def step() -> None:
            now[0] += after
            held.pass_below(at({0: position}), is_near=is_near)

        return step

    others_at(2)()
    assert not query.is_below(1), "the first is computed"
    query.receive(rows((0, 0)), ends({0: 1}))
    assert query.is_below(2, others_at(3)), "it has waited for that without its rows"
    assert not query.is_below(3, others_at(3), others_at(3, after=COMPUTE_SECONDS)), "it is still at the gate"
    query.receive(rows((0, 2)), ends({0: 3}), others_at(4))
    assert not query.is_below(4, others_at(4), others_at(4, is_near=True))
    query.receive(rows((0, 3)), ends({0: 4}), lambda: held.open(at({0: 4}), seen))
    for end in (5, 6):
        assert not query.is_below(end)
        query.receive(rows((0, end - 1)), ends({0: end}))
    assert held.has_arrived
    assert not held.has_ended
    assert (seen.spans, seen.offsets) == ({0: [(4, 5), (5, 6)]}, {0: [4, 5]})


@given(data=st.data())
@settings(derandomize=True)
def test_what_needs_no_rows_is_what_would_be_dropped(data: st.DataObject) -> None:
    """With and without asking first, the tasks get the same."""
    claimed = {each: data.draw(st.integers(0, 12)) for each in (0, 1)}
    held = [reading({0: 0, 1: 0}) for _ in range(2)]
    seen = [Seen(), Seen()]
    for each, take in zip(held, seen, strict=True):
        each.open(at(claimed), take)
    reached = {0: 0, 1: 0}
    for _ in range(8):
        come = {each: position + data.draw(st.integers(0, 4)) for each, position in reached.items()}
        table = rows(*((each, offset) for each in (0, 1) for offset in range(reached[each], come[each])))
        held[0].receive(table, ends(come))
        if not held[1].is_below(ends(come)):
            held[1].receive(table, ends(come))
        reached = come
    assert seen[0].spans == seen[1].spans
    assert seen[0].offsets == seen[1].offsets


def test_a_batch_that_waited_tells_how_long_it_took_to_come() -> None:
    now = [100.0]
    held = QueryBuffer(at({0: 0}), ("in",), "", lambda error, _: error, lambda: now[0])
    told: list[tuple[float | None, bool]] = []

    def take(seconds: float, offset: int) -> None:
        now[0] += seconds
        held.receive(rows((0, offset)), ends({0: offset + 1}))
        told.append((held.step_seconds, held.has_waited))

    held.pass_below(at({0: 9}))
    take(3, 0)
    take(0.5, 1)
    held.open(at({0: 2}), Seen())
    take(7, 2)
    assert told == [(3, True), (0.5, True), (0.5, False)], "what is delivered is no start"


def test_a_failure_on_what_may_be_done_already_is_not_told_as_that_of_the_jobs_code() -> None:
    """The former active may have left the record out."""
    held = reading({0: 0})
    held.open(at({0: 5}), Seen())
    held.end(ValueError("no number"))
    assert isinstance(held.failure, Transient)
    assert "no number" in str(held.failure)
    held = reading({0: 0})
    held.open(at({0: 5}), Seen())
    held.receive(rows((0, 4), (0, 5)), ends({0: 6}))
    held.end(ValueError("no number"))
    assert isinstance(held.failure, ValueError)


def test_what_is_dropped_goes_away_and_an_opened_one_stays() -> None:
    dropped = reading({0: 0})
    dropped.drop()
    dropped.receive(rows((0, 0)), ends({0: 1}))
    opened, seen = reading({0: 0}), Seen()
    opened.open(at({0: 0}), seen)
    opened.drop()
    opened.receive(rows((0, 0)), ends({0: 1}))
    assert seen.offsets == {0: [0]}


def test_it_is_of_use_to_the_same_tasks_further_on() -> None:
    held = reading({0: 5, 1: 7})
    assert held.records_below(at({0: 5, 1: 7})) == 0
    assert held.records_below(at({0: 6, 1: 9})) == 3
    assert held.records_below(at({0: 6, 1: 6})) is None
    assert held.records_below(at({0: 6})) is None
    assert held.records_below(at({0: 6, 2: 9})) is None
    held.end(None)
    assert held.records_below(at({0: 5, 1: 7})) is None


def test_a_failure_is_told_as_it_is_judged_where_the_tasks_are() -> None:
    asked: list[Mapping[TaskId, Offsets]] = []

    def judge(error: BaseException, positions: Mapping[TaskId, Offsets]) -> BaseException:
        asked.append(positions)
        return ValueError(str(error))

    held = QueryBuffer(at({0: 0}), ("in",), "", judge)
    held.open(at({0: 1}), Seen())
    held.receive(rows((0, 0), (0, 1)), ends({0: 2}))
    held.end(RuntimeError("the query"))
    assert held.wait(0)
    assert repr(held.failure) == "ValueError('the query')"
    assert asked == [at({0: 2})]


def test_a_judge_that_fails_leaves_the_first_failure() -> None:
    def judge(error: BaseException, _: Mapping[TaskId, Offsets]) -> BaseException:
        raise OSError("the JVM")

    held = QueryBuffer(at({0: 0}), ("in",), "", judge)
    first = RuntimeError("the query")
    with pytest.raises(OSError, match="the JVM"):
        held.end(first)
    assert held.wait(0)
    assert held.failure is first


def test_a_spoiled_reserved_column_is_still_found_out() -> None:
    for spoiled in ((None, 9), (0, None), (3, 9)):
        held = reading({0: 0})
        held.open(at({0: 5}), Seen())
        with pytest.raises(BadConfiguration, match="job:transform"):
            held.receive(rows((0, 8), spoiled), ends({0: 10}))
    with pytest.raises(BadConfiguration, match="returns no column '_task'"):
        from_offsets(rows().drop_columns(["_task"]), {0: Offsets.of(1)}, ("in",), "job:transform")


def test_of_two_inputs_each_is_dropped_up_to_its_own_claimed_offset() -> None:
    began, claimed = {task(0): Offsets.of(0, 0)}, {task(0): Offsets.of(2, 1)}
    held, seen = QueryBuffer(began, ("a", "b"), "job:transform", lambda error, _: error), Seen()
    assert held.records_below(claimed) == 3
    assert held.records_below({task(0): Offsets.of(9, -1)}) is None, "behind where it began in one of them"
    held.open(claimed, seen)
    held.receive(of_two(("a", 0, 0), ("b", 0, 1), ("b", 1, 2)), {("a", 0): 1, ("b", 0): 2})
    held.receive(of_two(("a", 1, 0), ("a", 2, 1)), {("a", 0): 3, ("b", 0): 2})
    held.receive(of_two(("b", 2, 0)), {("a", 0): 3, ("b", 0): 3})
    assert seen.spans == {0: [(3, 4), (4, 5), (5, 6)]}
    assert seen.offsets == {0: [1, 2, 2]}


def test_a_batch_passes_uncounted_only_when_it_is_committed_of_both_inputs() -> None:
    held = QueryBuffer({task(0): Offsets.of(0, 0)}, ("a", "b"), "job:transform", lambda error, _: error)
    Query(held).receive(
        of_two(("a", 0, 0), ("b", 0, 1)),
        {("a", 0): 1, ("b", 0): 1},
        lambda: held.pass_below({task(0): Offsets.of(5, 0)}),
        lambda: held.pass_below({task(0): Offsets.of(5, 1)}),
    )
    assert held.positions == {task(0): Offsets.of(1, 1)}
