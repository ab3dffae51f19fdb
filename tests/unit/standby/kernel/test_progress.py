"""Whether a replica on its way to active gets on."""

from __future__ import annotations

from standby.kernel.progress import Way


def test_a_way_is_stuck_when_it_has_not_got_beyond_one_point_for_too_long() -> None:
    way = Way()
    assert not way.is_stuck("here", 100.0, 5.0)
    assert not way.is_stuck("here", 105.0, 5.0)
    assert way.is_stuck("here", 105.1, 5.0)
    assert not way.is_stuck("further", 106.0, 5.0)
    assert way.is_stuck("further", 111.1, 5.0)


def test_a_rest_begins_it_anew() -> None:
    way = Way()
    assert not way.is_stuck("here", 100.0, 5.0)
    way.rest()
    assert not way.is_stuck("here", 106.0, 5.0)
    assert way.is_stuck("here", 111.1, 5.0)
