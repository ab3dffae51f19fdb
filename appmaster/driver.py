"""Carries events in and actions out. Nothing else holds the view, so nothing needs a lock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from appmaster.inbox import Inbox
from appmaster.planning import laws
from appmaster.planning.actions import Action
from appmaster.planning.apply import apply
from appmaster.planning.events import Event, Started, Ticked
from appmaster.planning.plan import plan
from appmaster.planning.view import ClusterView, JobState, News
from standby.errors import BrokenLaw

#: Time passes for the planner at least this often: how exactly it sees a deadline.
TICK_SECONDS: Final = 0.05

#: A tick that comes later than this beyond its due means that the leader itself stood still.
STALL_MS: Final = 400

#: Most turns without new events: a planner that never comes to rest is a bug, not a busy cluster.
MOST_TURNS: Final = 1_000

#: How much of the story is kept for a law's breaking.
STORY: Final = 300


def now_ms() -> int:
    """Return the leader's clock: monotonic milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Driver:
    """Owns the view; `run` is the leader's one thread."""

    def __init__(
        self,
        inbox: Inbox[Event],
        carry_out: Callable[[Action, ClusterView], None],
        tell: Callable[[News, ClusterView], None],
        clock: Callable[[], int] = now_ms,
        turned: Callable[[float], None] = lambda _: None,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take what carries out actions, what is told the news, what is told each turn's seconds, and the lease.

        While ``may_act`` says no, events are folded in and nothing is planned: what this leader would do may be
        another's to do by now (design 4.13).
        """
        self._inbox = inbox
        self._carry_out = carry_out
        self._tell = tell
        self._clock = clock
        self._turned = turned
        self._may_act = may_act
        self._ticked_ms = clock()
        self._story: deque[object] = deque(maxlen=STORY)
        #: The view as the last turn left it; immutable, so any thread may read it.
        self.view = ClusterView()

    def run(self, is_over: Callable[[ClusterView], bool]) -> None:
        """Turn until ``is_over`` says so; raises `BrokenLaw` with the story when a law breaks."""
        while not is_over(self.view):
            self.turn(self._inbox.drain(TICK_SECONDS))

    def turn(self, events: list[Event]) -> None:
        """Fold the events into the view, then plan and start actions until there is nothing to do."""
        begun = time.perf_counter()
        now = self._clock()
        stalled = now - self._ticked_ms - int(TICK_SECONDS * 1000)
        for event in events:
            self._apply(event)
        # Deadlines are judged after everything that was waiting has been heard (design 4.9).
        self._apply(Ticked(now, stalled if stalled > STALL_MS else 0))
        self._ticked_ms = now
        for _ in range(MOST_TURNS):
            actions = plan(self.view) if self._may_act() else ()
            if not actions:
                break
            self._check(actions)
            for action in actions:
                self._apply(Started(action, self._clock()))
                self._carry_out(action, self.view)
        else:
            raise BrokenLaw(f"the planner does not come to rest; {self._dump()}")
        self._check(())
        news, self.view = self.view.news, replace(self.view, news=())
        for each in news:
            self._tell(each, self.view)
        self._turned(time.perf_counter() - begun)

    def _apply(self, event: Event) -> None:
        if not isinstance(event, Ticked):
            self._story.append(event)
        self.view = apply(self.view, event)

    def _check(self, actions: tuple[Action, ...]) -> None:
        try:
            laws.check(self.view, actions, everything=False)
        except BrokenLaw as error:
            raise BrokenLaw(f"{error}; {self._dump()}") from error

    def _dump(self) -> str:
        return "the story:\n" + "\n".join(f"  {each}" for each in self._story)


def is_finished(view: ClusterView) -> bool:
    """Return whether every job has ended and nothing of them is left: the application may end too."""
    ended = (JobState.UNDEPLOYED, JobState.FAILED)
    return (
        view.epoch > 0
        and bool(view.jobs)
        and all(job.state in ended for job in view.jobs.values())
        and not view.containers
        and not view.requests
        and not view.writing
        and all(job.is_fenced for job in view.jobs.values())
    )
