"""The end is waited for as long as the job gets on, however slow the machine is."""

from __future__ import annotations

from collections.abc import Iterator

from demo.scenario import wait_for_none


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, _: float) -> None:
        self.now += 100.0


def wait(answers: Iterator[int | None]) -> int | None:
    clock = Clock()
    return wait_for_none(lambda: next(answers), clock, clock.pause)


def test_who_gets_on_is_waited_for() -> None:
    assert wait(iter([*range(50, 0, -1), None, 0])) == 0


def test_what_stands_still_is_not_reported_and_what_is_left_is() -> None:
    answers = iter([70, 60, 60, None, 60, 60, 0])
    assert wait(answers) == 60
    assert next(answers) is not None, "it gave up before the end"


def test_a_broker_that_never_answers_is_given_up() -> None:
    assert wait(iter([None] * 9)) is None


def test_nothing_to_wait_for_takes_no_time() -> None:
    assert wait(iter([0])) == 0
