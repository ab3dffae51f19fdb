"""Grouping of tasks into processors: the built-in groupers, a job's own, and what each may not do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from appmaster.groupers import resolve
from appmaster.planning.state.grouping import balanced, group, regroup, singletons
from standby.errors import BadConfiguration, BrokenInvariant


def test_balanced_deals_tasks_out_in_turn_and_range_cuts_blocks() -> None:
    for name, tasks, count, expected in (
        ("balanced", 5, 3, [(0, 3), (1, 4), (2,)]),
        ("balanced", 2, 10, [(0,), (1,)]),
        ("balanced", 4, 1, [(0, 1, 2, 3)]),
        ("range", 5, 3, [(0, 1), (2, 3), (4,)]),
        ("range", 7, 3, [(0, 1, 2), (3, 4), (5, 6)]),
        ("range", 1, 10, [(0,)]),
    ):
        assert group(tasks, count, resolve(name)) == dict(enumerate(expected)), (name, tasks, count)
    assert singletons(3) == {0: (0,), 1: (1,), 2: (2,)}


@pytest.mark.parametrize(
    ("why", "present", "tasks", "count", "expected"),
    [
        ("new partitions fill the smallest", {0: (0, 2), 1: (1,)}, 5, 2, {0: (0, 2, 4), 1: (1, 3)}),
        ("one more processor takes the newest", {0: (0, 2), 1: (1, 3)}, 4, 3, {0: (0, 2), 1: (1,), 2: (3,)}),
        ("the highest number goes", {0: (0, 3), 1: (1,), 2: (2,)}, 4, 2, {0: (0, 3), 1: (1, 2)}),
        ("a gap in the numbers is filled", {0: (0,), 2: (1, 2)}, 3, 3, {0: (0,), 1: (2,), 2: (1,)}),
        ("a task that is gone counts no more", {0: (2, 3), 1: (0, 1)}, 3, 2, {0: (2,), 1: (0, 1)}),
        ("the smallest is the next", {0: (0,), 1: (1,)}, 8, 2, {0: (0, 2, 4, 6), 1: (1, 3, 5, 7)}),
    ],
)
def test_regroup(
    why: str, present: Mapping[int, tuple[int, ...]], tasks: int, count: int, expected: object
) -> None:
    assert regroup(present, tasks, count, balanced) == expected, why


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({0: (0, 2), 1: (1, 3, 4), 2: (5,)}, {0: (0,), 1: (1, 2, 3, 4), 2: (5,)}),
        ({0: (0,)}, {0: (0, 3, 4, 5), 1: (1,), 2: (2,)}),
    ],
)
def test_sizes_of_a_jobs_own_grouper_hold_on_a_running_job(
    present: Mapping[int, tuple[int, ...]], expected: object
) -> None:
    def first_is_large(tasks: Sequence[int], processors: int) -> Sequence[Sequence[int]]:
        return [tasks[: 1 - processors], *([each] for each in tasks[1 - processors :])]

    assert regroup(present, 6, 3, first_is_large) == expected


@pytest.mark.parametrize(("tasks", "count"), [(0, 1), (1, 0)])
def test_without_a_task_or_a_processor_there_is_nothing_to_group(tasks: int, count: int) -> None:
    with pytest.raises(BadConfiguration, match=f"{tasks} tasks cannot be put into {count} processors"):
        group(tasks, count, balanced)


def test_a_task_twice_in_the_running_job_is_a_broken_invariant() -> None:
    with pytest.raises(BrokenInvariant, match="task 1 is in 0 and in 1"):
        regroup({0: (0, 1), 1: (1,)}, 2, 2, balanced)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], [1, 2]], "task 1 is in two places"),
        ([[0, 1], []], "group 1 is empty"),
        ([[0], [1]], "1 tasks are in no group, 2 the first"),
        ([[0, 1], [2, 3]], "group 1 has 3, which is not a task"),
        ([[0, -1], [1, 2]], "group 0 has -1, which is not a task"),
        ([[0, 1], ["2"]], "group 1 has '2', which is not a task"),
        ([[0, True], [2]], "group 0 has True, which is not a task"),
        ([[0], [1], [2]], "3 groups; 2 were asked for"),
        (None, "not a list of groups"),
        ([0, 1, 2], "not a list of groups"),
    ],
)
def test_a_grouper_that_is_wrong_is_refused(groups: list[list[int]], message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        group(3, 2, lambda tasks, processors: groups)


def test_a_grouper_may_leave_processors_out() -> None:
    assert group(3, 2, lambda tasks, processors: [[2, 0, 1]]) == {0: (0, 1, 2)}


@pytest.fixture
def job_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_grouper.py").write_text(
        "def by_parity(tasks, processors):\n"
        "    return [[each for each in tasks if each % 2 == rest] for rest in range(processors)]\n"
        "def breaks(tasks, processors):\n"
        "    raise KeyError('zone')\n"
        "def of_one(tasks):\n"
        "    return [tasks]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("job_modules")
def test_a_jobs_own_grouper_is_found_by_name() -> None:
    assert group(5, 2, resolve("own_grouper:by_parity")) == {0: (0, 2, 4), 1: (1, 3)}


@pytest.mark.usefixtures("job_modules")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alphabetical", "not one of balanced, range, nor module:function"),
        ("own_grouper:missing", "has no function 'missing'"),
        ("own_grouper:of_one", "cannot be called with 2 positional arguments"),
        ("no_such_module:function", "there is no module 'no_such_module'"),
    ],
)
def test_a_grouper_that_cannot_be_used_is_bad_configuration(name: str, message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        resolve(name)


@pytest.mark.usefixtures("job_modules")
def test_what_a_jobs_own_grouper_raises_is_its_own_fault() -> None:
    with pytest.raises(BadConfiguration, match="own_grouper:breaks raised KeyError: 'zone'"):
        group(3, 2, resolve("own_grouper:breaks"))
