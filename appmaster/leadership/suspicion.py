"""Whether the leader is lost although its ZooKeeper session still exists. Pure.

Two sources have to agree: the leader's own port, probed by the waiting candidate, and ZooKeeper, where a leader leaves
a beat each time that it confirms its lease. One alone proves little: a candidate may be cut off from only the leader,
and a leader from ZooKeeper for a moment. A wrong verdict costs a change of leadership, never correctness: every write
of a leader checks the epoch (rule `epoch-check`). Verdicts that come quickly are limited in number: see `CALM_MS`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

#: A leader without beats whose host answers is lost after this time, milliseconds: its process may only be stalled, or
#: cut off from ZooKeeper. Longer than most pauses of a process or of a busy machine, shorter than a session.
PROCESS_LOST_MS: Final = 4_000

#: A silent host is judged that late, too, until the candidate has known this leader for so long, milliseconds. A host
#: that stalls costs a change of leadership; hosts that stall again and again must not cost one each second.
CALM_MS: Final = 30_000

#: A candidate that has not looked for this long stalled itself, and starts its observation again.
_STOOD_STILL_MS: Final = 1_000


class PortAnswer(enum.Enum):
    """The result of an attempt to connect to a port."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """No process listens, and the host's kernel says so."""
    NONE = "none"
    """There was no answer in time."""
    NOT_ASKED = "not asked"
    """The host's name was not resolved, which shows nothing about the host."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A leader's last sign of life in ZooKeeper."""

    epoch: int
    """The epoch of the leader that left it."""
    number: int
    """Different for each beat."""


class Suspicion:
    """One candidate's judgement of a leader whose port does not refuse; times are of the candidate's clock, ms."""

    def __init__(self, host_lost_ms: int, calm_ms: int = CALM_MS) -> None:
        """A leader without beats whose host does not answer is lost after ``host_lost_ms``."""
        self._host_lost_ms = host_lost_ms
        self._process_lost_ms = max(PROCESS_LOST_MS, host_lost_ms)
        self._calm_ms = calm_ms
        self._epoch = 0
        self._known_ms = 0
        self._beat: Beat | None = None
        self._beaten_ms = 0
        self._answered_ms = 0
        self._looked_ms: int | None = None

    def reset(self) -> None:
        """Start the observation again: the candidate could not observe for a while."""
        self._looked_ms = None

    def is_lost(self, now_ms: int, epoch: int, answer: PortAnswer, beat: Beat | None) -> bool:
        """Return whether the leader of ``epoch`` is lost, given what its port and ZooKeeper show now.

        Never true of a leader that has not left its first beat yet.
        """
        if epoch != self._epoch:
            self._epoch, self._known_ms = epoch, now_ms
        is_blind = self._looked_ms is None or now_ms - self._looked_ms > _STOOD_STILL_MS
        self._looked_ms = now_ms
        if is_blind or beat != self._beat:
            self._beat, self._beaten_ms = beat, now_ms
        if is_blind or answer is not PortAnswer.NONE:
            self._answered_ms = now_ms
        if beat is None or beat.epoch != epoch:
            return False
        if now_ms - self._beaten_ms >= self._process_lost_ms:
            return True
        is_calm = now_ms - self._known_ms >= self._calm_ms
        return is_calm and now_ms - max(self._beaten_ms, self._answered_ms) >= self._host_lost_ms
