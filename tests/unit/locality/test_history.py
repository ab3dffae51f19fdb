"""Which hosts held a task: remembered in order, bounded, and forgotten after a while."""

from __future__ import annotations

from locality.history import by_freshness, expire, forget, found, freshest, remember
from standby.model import Held, Leftover, TaskId

HOUR = 3_600_000
TASK = TaskId("job", "main", 0)


def test_the_latest_host_comes_first_and_is_there_once() -> None:
    history = remember((), "h1", 1_000, 10, expiry_ms=HOUR)
    history = remember(history, "h2", 2_000, 20, expiry_ms=HOUR)
    history = remember(history, "h1", 3_000, 30, expiry_ms=HOUR)
    assert history == (Held("h1", 3_000, 30), Held("h2", 2_000, 20))


def test_a_position_that_nobody_reported_keeps_the_one_before() -> None:
    assert remember((Held("h1", 1_000, 10),), "h1", 2_000, None, expiry_ms=HOUR) == (Held("h1", 2_000, 10),)
    assert remember((), "h1", 2_000, None, expiry_ms=HOUR) == (Held("h1", 2_000, None),)


def test_a_position_that_fell_is_believed() -> None:
    # The state was wiped and is being restored.
    assert remember((Held("h1", 1_000, 10),), "h1", 2_000, 3, expiry_ms=HOUR) == (Held("h1", 2_000, 3),)


def test_a_clock_that_stands_behind_takes_nothing_back() -> None:
    history = (Held("h1", 5_000, 10),)
    assert remember(history, "h1", 4_000, 11, expiry_ms=HOUR) == (Held("h1", 5_000, 11),)
    assert remember(history, "h2", 4_000, 5, expiry_ms=HOUR) == (Held("h1", 5_000, 10), Held("h2", 4_000, 5))


def test_old_entries_are_forgotten_at_the_expiry_to_the_millisecond() -> None:
    history = (Held("h1", 1_001), Held("h2", 1_000))
    assert expire(history, 1_000 + HOUR, expiry_ms=HOUR) == (Held("h1", 1_001),)
    assert remember(history, "h3", 1_000 + HOUR, None, expiry_ms=HOUR)[1:] == (Held("h1", 1_001),)
    assert remember(history, "h3", 1_000, None, expiry_ms=0) == ()


def test_the_oldest_beyond_the_bound_go() -> None:
    history: tuple[Held, ...] = ()
    for number in range(12):
        history = remember(history, f"h{number}", number, number, expiry_ms=HOUR, most=3)
    assert [each.host for each in history] == ["h11", "h10", "h9"]
    assert len(remember(history, "h0", 20, 0, expiry_ms=HOUR)) == 4


def test_a_host_can_be_forgotten() -> None:
    history = (Held("h1", 2), Held("h2", 1))
    assert forget(history, "h1") == (Held("h2", 1),)
    assert forget(history, "h9") == history


def test_the_freshest_has_the_least_to_replay() -> None:
    history = (Held("h1", 5, 10), Held("h2", 4, 12), Held("h3", 9, None), Held("h4", 6, 10))
    assert [each.host for each in by_freshness(history)] == ["h2", "h4", "h1", "h3"]
    assert freshest(history) == Held("h2", 4, 12)
    assert freshest((Held("h3", 9),)) == Held("h3", 9)
    assert freshest(()) is None


def test_position_nought_was_reported() -> None:
    assert freshest((Held("h1", 9, None), Held("h2", 1, 0))) == Held("h2", 1, 0)


def test_state_found_on_disks_is_indexed_by_task() -> None:
    other = TaskId("job", "main", 1)
    assert found(
        {
            "h1": (Leftover(TASK, "run", 5), Leftover(other, "run", 7), Leftover(TASK, "run", 4)),
            "h2": (Leftover(TASK, "run", 9),),
        }
    ) == {TASK: {"h1": 5, "h2": 9}, other: {"h1": 7}}
