"""The election of the leader, with the operations that Storm's design names (``ILeaderElector``).

Each candidate in the election tries to write the controller's record. ZooKeeper lets one of them succeed, and raises
the epoch in the same transaction (as Kafka's controller). Candidates are not ordered: the first to find the record
absent gets it. A candidate that may not lead (it lacks the code of a job) does not try until it may, and the record
stays absent.

The record is bound to its session. The loss of a leader is noticed before its session ends: once its port refuses, or
its host is silent and its beats in ZooKeeper have ended (`appmaster.leadership.suspicion`), another candidate seizes
the record, in the transaction that raises the epoch (rule `epoch-check`). For a silent leader that transaction also
checks that it has left no beat meanwhile. So neither a candidate that is cut off from the servers' quorum, nor one
whose server lags behind, deposes a leader whose beats arrive. A lost or suspended connection changes nothing by itself:
the session may still exist, and if it does not, the next write finds another epoch.
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

#: How often a leader's port is probed while its record stands, seconds.
WATCH_SECONDS: Final = 0.25

#: The same after a probe without an answer, seconds.
_WATCH_SILENT_SECONDS: Final = 0.1

#: How long a probe waits for an answer, seconds: Linux repeats a lost packet after one second.
_ANSWER_SECONDS: Final = 0.25

#: How often the record is read without a watch's notice, milliseconds: a follower that waits for months must cost the
#: servers next to nothing, and a lost watch must not delay it by more than this.
_READ_AGAIN_MS: Final = 2_000

#: How often the beats of a leader whose port accepts are read, milliseconds.
_BEAT_AGAIN_MS: Final = 1_000

#: A lease ends by this fraction of the time-out before the leader can be deposed for its silence: clocks differ a
#: little.
_MARGIN: Final = 0.1

#: The lease is renewed at least this many times within its term.
_RENEWALS: Final = 4

#: And at least this often, milliseconds: each renewal is a beat that shows other candidates that the leader is alive.
BEAT_MS: Final = 400


class Election:
    """One candidate's part in the election."""

    def __init__(
        self,
        electorate: Electorate,
        me: ControllerRecord,
        may_lead: Callable[[], Sequence[str]],
        now_ms: Callable[[], int],
        timeout_ms: int,
        ask: Callable[[str, int], PortAnswer] = lambda host, port: probe(host, port, _ANSWER_SECONDS),
        pace: Callable[[float], float] = REAL.pace,
    ) -> None:
        """Take this candidate's record, and ``may_lead``, which returns why it may not lead (nothing: it may).

        ``timeout_ms`` is the silence after which a leader whose host does not answer is deposed. No leader acts for
        that long without a confirmation of its lease, so a deposed one has ended its acts before the next one begins.
        ``now_ms`` is `standby.shared.clock.boot_ms`, ``pace`` is `standby.shared.clock.Clock.pace`.
        """
        self._electorate = electorate
        self._me = me
        self._may_lead = may_lead
        self._now_ms = now_ms
        self._ask = ask
        self._pace = pace
        self._suspicion = Suspicion(timeout_ms)
        self.lease = Lease(now_ms, lease_ms(timeout_ms))
        self._renewal = threading.Condition()
        self._answer = PortAnswer.NOT_ASKED
        self._leader: ControllerRecord | None = None
        self._read_again_ms = 0
        self._beat: Beat | None = None
        self._beat_again_ms = 0
        self._changed = threading.Event()
        self._left = threading.Event()
        self._declined: Sequence[str] = ()
        self._epoch = 0
        self.why = ""
        """Why this candidate has left; empty while it has not."""
        self.deposed: str | None = None
        """The candidate that this one found lost and deposed in order to lead; None: there was no leader to depose."""

    # ---- Storm's operations ----

    def enter(self) -> int:
        """Enter the election, and wait; return the epoch under which this candidate leads.

        Raises `Fenced` with the reason once it has left.
        """
        while not self._left.is_set():
            if self._changed.is_set():
                self._changed.clear()
                self._read_again_ms = 0
            try:
                epoch = self._try()
            except Transient as error:
                # The outcome is unknown: the record may name this candidate by now.
                _log.warning("the election waits: %s", error)
                epoch, self._read_again_ms = None, 0
                self._suspicion.reset()
            if epoch is not None:
                self._epoch = epoch
                threading.Thread(target=self._keep, name="lease", daemon=True).start()
                return epoch
            is_silent = self._answer is PortAnswer.NONE
            self._changed.wait(self._pace(_WATCH_SILENT_SECONDS if is_silent else WATCH_SECONDS))
        raise Fenced(self.why)

    def leave(self, reason: str) -> None:
        """Leave the election and stop leading (any thread); the first reason counts."""
        self.why = self.why or reason
        self._left.set()
        self._changed.set()
        self._renewed()

    def pause(self, seconds: float) -> None:
        """Wait, at most until this candidate leaves."""
        self._left.wait(self._pace(seconds))

    @property
    def has_left(self) -> bool:
        """Whether this candidate has left."""
        return self._left.is_set()

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads, according to its lease."""
        return self._epoch > 0 and not self._left.is_set() and self.lease.is_valid

    def awaits_lease(self, timeout_seconds: float) -> bool:
        """Return whether this candidate leads; waits so long for the answer to a lease's renewal if it has to."""
        with self._renewal:
            self._renewal.wait_for(
                lambda: self.is_leader or self.has_left or not self._epoch, self._pace(timeout_seconds)
            )
        return self.is_leader

    def leader(self) -> ControllerRecord | None:
        """Return the leader that the record names, with its address; None if there is none. Raises `Transient`."""
        return self._electorate.controller()

    def give_up(self) -> None:
        """Stop leading, and end a record that may still stand, so that no candidate waits for this session's end."""
        self.leave("this candidate gives up the leadership")
        try:
            self._electorate.resign_lead()
        except (Fenced, Transient) as error:
            _log.info("the record was not given up: %s", error)

    # ---- how ----

    def _try(self) -> int | None:
        """Return the epoch won; None: another candidate leads or was quicker, or this one may not lead."""
        leader = self._present()
        is_other = leader is not None and leader.candidate != self._me.candidate
        last: Beat | None = None
        if leader is not None and is_other:
            self._answer = self._ask(leader.host, leader.port)
            if self._answer is not PortAnswer.REFUSED:
                if not self._is_silent(leader, self._answer):
                    return None
                last = self._beat
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
        # Otherwise an earlier try succeeded without its answer arriving, and has deposed the leader it was to depose.
        epoch = self._electorate.lead(self._me, leader, last)
        if epoch is not None:
            self.lease.renew(asked)
        self._read_again_ms = 0
        return epoch

    def _is_silent(self, leader: ControllerRecord, answer: PortAnswer) -> bool:
        """Return whether a leader is lost whose port gave this answer, as its beats show. Raises `Transient`."""
        now = self._now_ms()
        if answer is PortAnswer.NONE or now >= self._beat_again_ms:
            self._beat = self._electorate.beat()
            self._beat_again_ms = now + _BEAT_AGAIN_MS
        return self._suspicion.is_lost(now, leader.epoch, answer, self._beat)

    def _present(self) -> ControllerRecord | None:
        """Return the leader, read again only if it may have changed."""
        now = self._now_ms()
        if now >= self._read_again_ms:
            self._leader = self._electorate.controller(self._changed.set)
            self._read_again_ms = now + _READ_AGAIN_MS
        return self._leader

    def _keep(self) -> None:
        """Renew the lease until this candidate leaves or another leads."""
        pause = min(self.lease.lasts_ms / _RENEWALS, BEAT_MS) / 1000
        # If an answer came too late to keep the lease valid, it is renewed again at once.
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
            self._renewed()

    def _renewed(self) -> None:
        with self._renewal:
            self._renewal.notify_all()


def lease_ms(timeout_ms: int) -> int:
    """Return how long a leader may act after its last confirmation, if its silence is judged after ``timeout_ms``."""
    return round(timeout_ms * (1 - _MARGIN))
