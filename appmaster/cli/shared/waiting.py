"""Waiting for a condition: how often it is checked, what is printed meanwhile, and when the time is over.

A command passes a function that looks once and returns what it has seen. No command has a loop of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from appmaster.cli.shared.deadline import Deadline
from standby.errors import StandfastError, Unavailable

T = TypeVar("T")

#: Between two looks.
_PACE_SECONDS: Final = 0.2

#: How long a leader may need to read a job again that has just been changed.
_READ_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class PollResult(Generic[T]):
    """The result of one look."""

    is_done: bool
    what: T
    """The value with which the command continues, also when the time is over."""
    said: str = ""
    """The progress, for people; empty: nothing to print."""
    failure: str = ""
    """Why the condition can never be met; empty: it still can."""


def until(
    deadline: Deadline, look: Callable[[], PollResult[T]], say: Callable[[str], object] = lambda _: None
) -> PollResult[T]:
    """Return what was seen as soon as it is done, or the last look's result when the time is over.

    It looks at least once. Raises `StandfastError` for a failure; an exception of ``look`` ends the waiting, too.
    """
    while True:
        seen = look()
        if seen.failure:
            raise StandfastError(seen.failure)
        if seen.said:
            say(seen.said)
        if seen.is_done or deadline.is_over:
            return seen
        deadline.sleep(_PACE_SECONDS)


def until_leader_says(
    deadline: Deadline,
    ask: Callable[[], dict[str, Any]],
    judge: Callable[[dict[str, Any]], PollResult[T]],
    say: Callable[[str], object],
    meanwhile: Callable[[], object] = lambda: None,
) -> PollResult[T] | None:
    """Return what ``judge`` has seen in the leader's status, as `until`; None if no leader has answered at all.

    ``ask`` returns the status. While it raises `Unavailable`, this waits for a leader, and the last result stands.
    ``meanwhile`` is called before each question.
    """
    last: PollResult[T] | None = None

    def look() -> PollResult[None]:
        nonlocal last
        meanwhile()
        try:
            status = ask()
        except Unavailable:
            return PollResult(False, None, "waiting for the application master")
        last = judge(status)
        return PollResult(last.is_done, None, last.said, last.failure)

    until(deadline, look, say)
    return last


def unreadable(status: Mapping[str, Any], job: str) -> str:
    """Return why the leader cannot lead a job, according to its status; empty if it can. Pure."""
    why = status.get("unreadable", {}).get(job, "")
    return f"the leader cannot lead {job}: {why}" if why else ""


class LeaderRefusal:
    """Ends the waiting for a job that the leader cannot lead, and that no waiting will change."""

    def __init__(self, job: str, deadline: Deadline) -> None:
        self._job = job
        self._deadline = deadline
        self._patience: Deadline | None = None

    def check(self, status: Mapping[str, Any]) -> None:
        """Raise `StandfastError` if the leader cannot lead the job, and has had the time to read it again.

        Its first answers may be about the job's record as it was before the change.
        """
        said = unreadable(status, self._job)
        if not said:
            self._patience = None
        elif self._patience is None:
            self._patience = self._deadline.beyond(_READ_SECONDS)
        elif self._patience.is_over:
            raise StandfastError(f"{said}; correct that, then `standfast update`")
