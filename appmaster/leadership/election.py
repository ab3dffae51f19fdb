"""Who leads: the election with the operations that Storm's design names (``ILeaderElector``).

Whoever stands tries to write the controller's record; the ensemble lets one of them, and raises the epoch in the same
transaction (Kafka's controller). There is no order among those who stand: who finds the place empty first has it. A
candidate that may not lead (it lacks the code of a job) stays out of the queue until it may, and an empty place waits
for it.

The record goes with its session. A leader that is lost is not waited for that long: once its port refuses, or its host
is silent and its beats in ZooKeeper have ended (`appmaster.leadership.suspicion`), another seizes the record, in the
epoch's transaction (rule `epoch-check`). A connection that is lost or suspended changes nothing by itself: the session
may live, and if it does not, the next question finds another epoch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from appmaster.leadership.lease import Lease
from appmaster.leadership.port_probe import probe
from appmaster.leadership.ports import Electorate
from appmaster.leadership.suspicion import Beat, PortAnswer, Suspicion
from standby.errors import Fenced, Transient
from standby.shared.clock import REAL
from standby.shared.records import ControllerRecord

_log = logging.getLogger(__name__)

#: How often a leader's port is asked while its record stands, seconds.
WATCH_SECONDS: Final = 0.25

#: For how long an answer is waited for there, seconds: Linux sends a lost packet again after one.
_ANSWER_SECONDS: Final = 0.25

#: How often the record is read although no watch says that it has changed, milliseconds: a follower that waits for
#: months shall cost the servers nothing, and a watch that was lost shall cost it no more than this.
_READ_AGAIN_MS: Final = 2_000

#: How often the beats of a leader whose port accepts are read, milliseconds.
_BEAT_AGAIN_MS: Final = 1_000

#: A lease ends so much of a session's time before the session could: clocks differ a little.
_MARGIN: Final = 0.1

#: The lease is renewed so many times within its term, at least.
_RENEWALS: Final = 4

#: And so often, milliseconds: each renewal is a beat, by which the other candidates see that the leader lives.
BEAT_MS: Final = 400


class Election:
    """One candidate's part in the election."""

    def __init__(
        self,
        electorate: Electorate,
        me: ControllerRecord,
        may_lead: Callable[[], Sequence[str]],
        now_ms: Callable[[], int],
        session_ms: int,
        ask: Callable[[str, int], PortAnswer] = lambda host, port: probe(host, port, _ANSWER_SECONDS),
        pace: Callable[[float], float] = REAL.pace,
    ) -> None:
        """Take who this candidate is, and what tells why it may not lead (nothing: it may).

        ``now_ms`` is `standby.shared.clock.boot_ms`, ``pace`` is `standby.shared.clock.Clock.pace`.
        """
        self._electorate = electorate
        self._me = me
        self._may_lead = may_lead
        self._now_ms = now_ms
        self._ask = ask
        self._pace = pace
        self._suspicion = Suspicion()
        self.lease = Lease(now_ms, round(session_ms * (1 - _MARGIN)))
        self._leader: ControllerRecord | None = None
        self._read_again_ms = 0
        self._beat: Beat | None = None
        self._beat_again_ms = 0
        self._changed = threading.Event()
        self._left = threading.Event()
        self._declined: Sequence[str] = ()
        self._epoch = 0
        self._why = ""
        self.deposed: str | None = None
        """Whom this candidate found lost, and deposed to lead; None: nobody led, or nobody any more."""

    # ---- Storm's operations ----

    def enter(self) -> int:
        """Enter the queue, and wait; return the epoch under which this candidate leads.

        Raises `Fenced` with the reason once it has left.
        """
        while not self._left.is_set():
            if self._changed.is_set():
                self._changed.clear()
                self._read_again_ms = 0
            try:
                epoch = self._try()
            except Transient as error:
                # What came of it is not known: the record may name this candidate by now.
                _log.warning("the election waits: %s", error)
                epoch, self._read_again_ms = None, 0
                self._suspicion.reset()
            if epoch is not None:
                self._epoch = epoch
                threading.Thread(target=self._keep, name="lease", daemon=True).start()
                return epoch
            self._changed.wait(self._pace(WATCH_SECONDS))
        raise Fenced(self._why)

    def leave(self, reason: str) -> None:
        """Leave the queue, and lead no more (any thread); the first reason counts."""
        self._why = self._why or reason
        self._left.set()
        self._changed.set()

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until this candidate leaves."""
        self._left.wait(self._pace(seconds))

    @property
    def has_left(self) -> bool:
        """Whether this candidate has left."""
        return self._left.is_set()

    @property
    def why(self) -> str:
        """Why it has left; empty while it has not."""
        return self._why

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads, as far as its lease knows."""
        return self._epoch > 0 and not self._left.is_set() and self.lease.is_valid

    def leader(self) -> ControllerRecord | None:
        """Return who leads by the record, with its address; None when nobody does. Raises `Transient`."""
        return self._electorate.controller()

    def give_up(self) -> None:
        """End a leadership whose record may still stand, so that nobody waits for this session's end."""
        try:
            self._electorate.resign_lead()
        except (Fenced, Transient) as error:
            _log.info("the record was not given up: %s", error)

    # ---- how ----

    def _try(self) -> int | None:
        """Return the epoch won; None: another leads, was quicker, or this candidate may not lead."""
        leader = self._present()
        is_other = leader is not None and leader.candidate != self._me.candidate
        if leader is not None and is_other and not self._is_lost(leader):
            return None
        reasons = tuple(self._may_lead())
        if reasons:
            if reasons != self._declined:
                _log.warning("leadership is declined: %s", "; ".join(reasons))
            self._declined = reasons
            return None
        self._declined = ()
        asked = self._now_ms()
        if leader is None:
            self.deposed = None
        elif is_other:
            _log.info("the leader %s of epoch %d is lost: seizing", leader.candidate, leader.epoch)
            self.deposed = leader.candidate
        # Otherwise a try won of which no answer came, and deposed whom it was to depose.
        epoch = self._electorate.lead(self._me, depose=leader)
        if epoch is not None:
            self.lease.renew(asked)
        self._read_again_ms = 0
        return epoch

    def _is_lost(self, leader: ControllerRecord) -> bool:
        """Return whether its port and its beats say that the leader is lost. Raises `Transient`."""
        answer = self._ask(leader.host, leader.port)
        if answer is PortAnswer.REFUSED:
            return True
        now = self._now_ms()
        if answer is PortAnswer.NONE or now >= self._beat_again_ms:
            self._beat = self._electorate.beat()
            self._beat_again_ms = now + _BEAT_AGAIN_MS
        if not self._suspicion.is_lost(now, leader.epoch, answer, self._beat):
            return False
        # The server that answered may lag behind; once more, now that it matters.
        beat, self._beat = self._beat, self._electorate.beat(is_synced=True)
        return self._beat == beat

    def _present(self) -> ControllerRecord | None:
        """Return who leads, read again only when it may be another."""
        now = self._now_ms()
        if now >= self._read_again_ms:
            self._leader = self._electorate.controller(self._changed.set)
            self._read_again_ms = now + _READ_AGAIN_MS
        return self._leader

    def _keep(self) -> None:
        """Renew the lease until this candidate leaves, or another leads."""
        pause = min(self.lease.lasts_ms / _RENEWALS, BEAT_MS) / 1000
        # An answer that came too late to be worth anything is asked for again at once.
        while not self._left.wait(self._pace(pause) if self.lease.is_valid else 0):
            asked = self._now_ms()
            try:
                self._electorate.confirm_lead()
            except Fenced as error:
                self.leave(str(error))
                return
            except Transient as error:
                _log.warning("the lease is not renewed: %s", error)
                self._left.wait(0 if self.lease.is_valid else self._pace(pause))
                continue
            self.lease.renew(asked)
