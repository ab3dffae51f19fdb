"""Which hosts held a task: remembered in order, bounded, and forgotten after a while."""

from __future__ import annotations

from locality.history import NOTHING, Freshness, StateOnDisk, expire, forget, freshness, merge, remember
from standby.shared.model import Held, TaskId

HOUR = 3_600_000
TASK, OTHER, EMPTY = (TaskId("job", "main", each) for each in range(3))


def test_an_unreported_position_keeps_the_one_before_and_one_that_fell_is_believed() -> None:
    assert remember((Held("h1", 1_000, 10),), "h1", 2_000, None, expiry_ms=HOUR) == (Held("h1", 2_000, 10),)
    assert remember((), "h1", 2_000, None, expiry_ms=HOUR) == (Held("h1", 2_000, None),)
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


def test_what_was_seen_on_a_disk_adds_forgotten_hosts() -> None:
    assert merge((Held("h1", 9, 10),), (StateOnDisk("h2", 7, 5),)) == (Held("h1", 9, 10), Held("h2", 0, 7))
    assert merge((), ()) == ()


def test_the_later_word_on_a_host_counts() -> None:
    for seen_ms, position, case in (
        (9, 6, "after the copy had left: a killed process left less than it had reported"),
        (8, 10, "before the copy came, and wrote more"),
        (0, 10, "at an unknown time"),
    ):
        merged = merge((Held("h1", 9, 10),), (StateOnDisk("h1", 6, seen_ms),))
        assert merged == (Held("h1", 9, position),), case
    unreported = merge((Held("h1", 9, None),), (StateOnDisk("h1", 6, 1),))
    assert unreported == (Held("h1", 9, 6),), "a position that was never reported"


def test_state_is_added_up_over_tasks() -> None:
    found = freshness(
        {TASK: (Held("h1", 9, 10), Held("h2", 5, None)), OTHER: (Held("h1", 7, 20),), EMPTY: ()},
        {OTHER: (StateOnDisk("h3", 25, 3),), TaskId("job", "main", 9): (StateOnDisk("h4", 1, 3),)},
    )
    assert found == {
        "h1": Freshness(nothing=False, behind=5, missing=1, age=-9),
        "h2": Freshness(nothing=False, behind=35, missing=2, age=-5),
        "h3": Freshness(nothing=False, behind=10, missing=2, age=0),
    }
    assert max(*found.values(), NOTHING) == NOTHING
