"""Whether the leader is lost although its ZooKeeper session lives. Pure.

Two witnesses have to agree: the leader's own port, asked by the candidate that waits, and ZooKeeper, where a leader
leaves a beat each time that it confirms its lease. One alone proves little: a candidate may be cut off from the leader
alone, and a leader from ZooKeeper for a moment. A wrong verdict costs a change of leadership, never correctness: every
write of a leader checks the epoch (rule `epoch-check`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

#: A leader whose host does not answer, and of which there is no beat, is lost after this, milliseconds.
HOST_LOST_MS: Final = 1_000

#: One without a beat whose host answers: its process may only stand still, or be cut off from ZooKeeper. Longer than
#: most pauses of a process or of a busy machine, shorter than a session.
PROCESS_LOST_MS: Final = 4_000

#: A candidate that has not looked for this long stood still itself, and begins anew.
_STOOD_STILL_MS: Final = 1_000


class PortAnswer(enum.Enum):
    """What came of an attempt to connect to a port."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Nobody listens, and the host's kernel says so."""
    NONE = "none"
    """Nothing was heard in time."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A leader's last sign of life in ZooKeeper."""

    epoch: int
    """Of the leader that left it."""
    number: int
    """Another one with each beat."""


class Suspicion:
    """One candidate's judgement of a leader whose port does not refuse; times are of its own clock, milliseconds."""

    def __init__(self) -> None:
        self._beat: Beat | None = None
        self._beaten_ms = 0
        self._answered_ms = 0
        self._looked_ms: int | None = None

    def reset(self) -> None:
        """Begin anew: whoever looks could not see for a while."""
        self._looked_ms = None

    def is_lost(self, now_ms: int, epoch: int, answer: PortAnswer, beat: Beat | None) -> bool:
        """Return whether the leader of ``epoch`` is lost, by what its port and ZooKeeper show now.

        A leader that leaves no beats, which is one of an earlier release, is never.
        """
        is_blind = self._looked_ms is None or now_ms - self._looked_ms > _STOOD_STILL_MS
        self._looked_ms = now_ms
        if is_blind or beat != self._beat:
            self._beat, self._beaten_ms = beat, now_ms
        if is_blind or answer is PortAnswer.ACCEPTED:
            self._answered_ms = now_ms
        if beat is None or beat.epoch != epoch:
            return False
        if now_ms - self._beaten_ms >= PROCESS_LOST_MS:
            return True
        return now_ms - max(self._beaten_ms, self._answered_ms) >= HOST_LOST_MS
