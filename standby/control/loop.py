"""The control loop: feeds events to the core and executes effects. Nothing it calls blocks (rule `never-block`)."""

from __future__ import annotations

import logging
import random
import threading
from functools import partial
from typing import Final

from msgspec import structs

from standby.control.core import step
from standby.control.effects import (
    Assign,
    CloseReplicas,
    CloseStream,
    ControlEffect,
    LookUpLeader,
    OpenStream,
    Quit,
    Register,
    SendReport,
    WriteLog,
)
from standby.control.events import ControlEvent, InboxDrained, LeftoversFound, ReplicasClosed
from standby.control.ports import OpenedStream, Ports
from standby.control.state import ControlState
from standby.control.turn import due_in_ms
from standby.errors import BrokenInvariant
from standby.shared.clock import REAL, Clock
from standby.threads.inbox import Inbox

_LOG: Final = logging.getLogger("standby.control")

#: How often an idle loop checks the replicas: a lag may have crossed its bound, or a child have died.
TICK_SECONDS: Final = 0.1

#: Time-outs at an orderly end: for the last reports to the leader, then for ZooKeeper.
_FINISH_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 1.0


class ControlLoop:
    """Runs turns until the container is to end. No other thread owns the state, so no lock is needed."""

    def __init__(
        self, state: ControlState, inbox: Inbox[ControlEvent], ports: Ports, clock: Clock = REAL
    ) -> None:
        self._state = state
        self._inbox = inbox
        self._ports = ports
        self._clock = clock
        self._stream: OpenedStream | None = None
        self._turns = 0
        self._quit: Quit | None = None

    @property
    def state(self) -> ControlState:
        """The state as of the last turn; a frozen value that any thread may read."""
        return self._state

    @property
    def turns(self) -> int:
        """The number of turns so far; the watchdog checks that it increases."""
        return self._turns

    def run(self) -> Quit:
        """Run turns until the container is to end; return the reason and the exit code."""
        self.begin()
        while self._quit is None:
            self.turn(self._clock.pace(self._pause_seconds()))
        return self._quit

    def begin(self) -> None:
        """Start scanning the host's disks; the introduction to the leader waits for the result."""
        threading.Thread(target=self._look, name="leftovers", daemon=True).start()

    def turn(self, timeout_seconds: float) -> None:
        """Apply the pending events to the state, then evaluate the clock and the replicas once."""
        for event in self._inbox.drain(timeout_seconds):
            self._apply(event)
        replicas = self._ports.replicas
        self._apply(
            InboxDrained(
                now_ms=self._clock.monotonic_ms(),
                jitter=random.random(),
                statuses=replicas.statuses(),
                is_warm=replicas.is_warm,
                broken=replicas.broken,
                revisions=replicas.revisions,
            )
        )
        self._turns += 1

    def leave(self) -> None:
        """Finish an orderly end: send the queued reports, then end the registration."""
        if self._stream is not None:
            self._stream.finish(_FINISH_SECONDS)
        self._ports.membership.leave(_LEAVE_SECONDS)

    def _pause_seconds(self) -> float:
        due = due_in_ms(self._state, self._clock.monotonic_ms())
        # An overdue deadline waits for an event, which ends the pause by itself.
        return min(TICK_SECONDS, due / 1000) if due else TICK_SECONDS

    def _apply(self, event: ControlEvent) -> None:
        self._state, effects = step(self._state, event)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: ControlEffect) -> None:
        match effect:
            case WriteLog(text, is_warning):
                _LOG.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
            case Register():
                self._ports.membership.register()
            case LookUpLeader():
                self._ports.membership.look_up_leader()
            case OpenStream():
                self._stream = self._ports.connect(effect, self._inbox.post)
            case CloseStream():
                if self._stream is not None:
                    self._stream.drop()
                    self._stream = None
            case SendReport():
                if self._stream is None:
                    raise BrokenInvariant(f"a report for stream {effect.stream}, and there is none")
                report = structs.replace(effect.report, rss_bytes=self._ports.rss_bytes())
                self._stream.send(report, partial(self._ports.replicas.note_reported, report.replicas))
            case Assign(assignment, jobs):
                self._ports.replicas.obey(assignment, jobs)
            case CloseReplicas(deadline_ms):
                threading.Thread(target=self._close, args=(deadline_ms,), name="closing", daemon=True).start()
            case Quit():
                self._quit = effect

    def _look(self) -> None:
        try:
            found = self._ports.find_leftovers()
        except Exception:  # noqa: BLE001 - a thread's outermost level; without left-overs, only more must be replayed
            _LOG.exception("scanning the host's disks failed")
            found = ()
        self._inbox.post(LeftoversFound(found))

    def _close(self, deadline_ms: int) -> None:
        try:
            in_time = self._ports.replicas.close(deadline_ms / 1000)
        except Exception:  # noqa: BLE001 - a thread's outermost level; the process ends either way
            _LOG.exception("closing the replicas failed")
            in_time = False
        self._inbox.post(ReplicasClosed(in_time))
