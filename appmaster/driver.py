"""Passes events to the planner and actions to their effects. Nothing else holds the view, so nothing needs a lock."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from appmaster.blame import is_of_job
from appmaster.eventlog.derive import derive
from appmaster.eventlog.entries import LogEntry
from appmaster.planning import invariants
from appmaster.planning.containers.assignments import is_of_unreadable
from appmaster.planning.fold.apply import apply
from appmaster.planning.plan import plan
from appmaster.planning.state.actions import Action
from appmaster.planning.state.events import Event, Started, Ticked
from appmaster.planning.state.job import JobState
from appmaster.planning.state.view import ClusterView
from standby.errors import BrokenInvariant
from standby.shared.clock import REAL
from standby.threads.inbox import Inbox

_log = logging.getLogger(__name__)

#: Time passes for the planner at least this often; this is the precision of its deadlines.
TICK_SECONDS: Final = 0.05

#: A tick that is late by more than this means that the leader itself stalled.
STALL_MS: Final = 400

#: Most turns without new events: a planner that does not settle is a bug, not a busy cluster.
MOST_TURNS: Final = 1_000

#: Number of events that are kept, to be shown when an invariant breaks.
KEPT_EVENTS: Final = 300


class Driver:
    """Owns the view; `run` is the leader's one thread."""

    def __init__(
        self,
        inbox: Inbox[Event],
        carry_out: Callable[[Action, ClusterView], None],
        tell: Callable[[LogEntry, ClusterView], None],
        clock: Callable[[], int] = REAL.monotonic_ms,
        wall: Callable[[], int] = REAL.now_ms,
        turned: Callable[[float], None] = lambda _: None,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """``carry_out`` starts an action, ``tell`` takes each log entry, ``turned`` the seconds of each turn.

        ``clock`` gives monotonic milliseconds, ``wall`` Unix milliseconds.

        While ``may_act`` returns False (the lease is over), events are folded in and nothing is planned: another
        leader may be acting by now (rule `epoch-check`).
        """
        self._inbox = inbox
        self._carry_out = carry_out
        self._tell = tell
        self._clock = clock
        self._wall = wall
        self._turned = turned
        self._may_act = may_act
        self._ticked_ms = clock()
        self._events: deque[object] = deque(maxlen=KEPT_EVENTS)
        #: The log entries of the present turn.
        self._entries: list[LogEntry] = []
        #: The view after the last turn; immutable, so any thread may read it.
        self.view = ClusterView()
        self._turns = 0
        self._is_turning = False

    def run(self, is_over: Callable[[ClusterView], bool]) -> None:
        """Turn until ``is_over`` returns True.

        Raises `BrokenInvariant` with the last events when an invariant breaks (rule `crash-on-bug`).
        """
        while not is_over(self.view):
            self.turn(self._inbox.drain(TICK_SECONDS))

    @property
    def turn_under_way(self) -> int | None:
        """The number of the turn under way, None between turns (any thread)."""
        return self._turns if self._is_turning else None

    def turn(self, events: list[Event]) -> None:
        """Fold the events into the view, then plan and start actions until there is nothing to do."""
        self._turns += 1
        self._is_turning = True
        try:
            self._make_turn(events)
        finally:
            self._is_turning = False

    def _make_turn(self, events: list[Event]) -> None:
        # The real clock: no decision depends on how long a turn takes.
        begun = REAL.monotonic()
        now = self._clock()
        stalled = now - self._ticked_ms - int(TICK_SECONDS * 1000)
        for event in events:
            self._apply(event)
        # Deadlines are judged after all waiting events have been applied (rule `who-is-lost`).
        self._apply(Ticked(now, stalled if stalled > STALL_MS else 0, self._wall() - now))
        self._ticked_ms = now
        for _ in range(MOST_TURNS):
            actions = plan(self.view) if self._may_act() else ()
            if not actions:
                break
            self._check(actions)
            for action in actions:
                if not self._may_act():
                    break  # this process was stopped in the middle of the turn; the rest is planned again
                self._apply(Started(action, self._clock()))
                self._carry_out(action, self.view)
        else:
            raise BrokenInvariant(f"the planner does not settle; {self._dump()}")
        self._check(())
        entries, self._entries = self._entries, []
        for each in entries:
            self._write_entry(each)
        self._turned(REAL.monotonic() - begun)

    def _write_entry(self, entry: LogEntry) -> None:
        try:
            self._tell(entry, self.view)
        except Exception as error:
            if not is_of_job(error):
                raise
            # The leader continues without the entry.
            _log.exception("the entry %s could not be written", entry.kind.value)

    def _apply(self, event: Event) -> None:
        if not isinstance(event, Ticked):
            self._events.append(event)
        before, self.view = self.view, apply(self.view, event)
        self._entries.extend(derive(before, event, self.view))

    def _check(self, actions: tuple[Action, ...]) -> None:
        try:
            invariants.check(self.view, actions, everything=False)
        except BrokenInvariant as error:
            raise BrokenInvariant(f"{error}; {self._dump()}") from error

    def _dump(self) -> str:
        return "the last events:\n" + "\n".join(f"  {each}" for each in self._events)


def is_finished(view: ClusterView) -> bool:
    """Return whether every job has ended with nothing left: the application may end, too."""
    ended = (JobState.UNDEPLOYED, JobState.FAILED)
    return (
        view.epoch > 0
        and bool(view.jobs)
        and all(job.state in ended for job in view.jobs.values())
        and all(is_of_unreadable(view, each) for each in view.containers.values())
        and not view.requests
        and not view.writing
        and all(job.is_fenced for job in view.jobs.values())
    )
