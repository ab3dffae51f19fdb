"""What tests wait with: it looks at once, again, and a last time when time is up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.patience import LOOK_SECONDS, NEVER_SECONDS, looks, soon


def test_what_holds_is_not_waited_for() -> None:
    assert soon(lambda: "found", "nothing", NEVER_SECONDS) == "found"
    assert soon(lambda: "found", "nothing", 0) == "found"


def test_it_is_looked_at_until_it_holds() -> None:
    answers = iter([0, 0, 7])
    assert soon(lambda: next(answers), "never") == 7


@pytest.mark.parametrize("what", ["it is there", lambda: "it is there"])
def test_what_does_not_come_is_named(what: str | Callable[[], str]) -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: it is there"):
        soon(lambda: False, what, 0)


def test_there_is_a_last_look_when_time_is_up() -> None:
    assert len(list(looks(0))) == 1
    assert len(list(looks(2 * LOOK_SECONDS))) >= 2
