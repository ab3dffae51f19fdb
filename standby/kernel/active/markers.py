"""Whether the markers that end a task's transactions are there (rule `marker-seen`, docs/decisions/0036)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from standby.errors import StandfastError, Transient
from standby.kernel.ports import Broker, Place, WriterLost
from standby.shared.clock import Clock
from standby.shared.model import TaskId

_log: Final = logging.getLogger(__name__)

#: For so long what is open in a partition may be a transaction of somebody else, or a marker that is on its way.
_OPEN_SECONDS: Final = 1.0

#: So long is waited right after a commit. What comes later is seen before the next one.
_SOON_SECONDS: Final = 0.05

#: Between the first two looks, and between two at most.
_FIRST_PAUSE_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.05


class Markers:
    """Those of one active task's commits. A transaction that is lost would take along whatever of them hangs open.

    A partition is *unseen* until its last stable offset has passed what was written there, and *hangs* when that takes
    too long although it answers. Used from one thread.
    """

    def __init__(
        self,
        broker: Broker,
        task: TaskId,
        changelog: Place,
        answer_seconds: float,
        is_given_up: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """Partitions that do not answer are waited for ``answer_seconds``, or until ``is_given_up``."""
        self._broker, self._task, self._changelog = broker, task, changelog
        self._answer_seconds = answer_seconds
        self._is_given_up = is_given_up
        self._clock = clock
        self._unseen: dict[Place, int] = {}
        self._hanging: dict[Place, int] = {}
        #: Those of which it is not known what of this task is open there, if anything is.
        self._guessed: set[Place] = set()
        self.is_begun = False
        """Whether outputs were looked at for what former replicas have left open there."""

    def note(self, places: Mapping[Place, int]) -> None:
        """Take note of the last record in each partition that a commit has written to: its marker ends all before."""
        self._unseen.update(places)
        for each in places:
            self._hanging.pop(each, None)
            self._guessed.discard(each)

    def look(self) -> None:
        """See those that are there in a moment."""
        try:
            self._await(_SOON_SECONDS)
        except StandfastError as error:
            _log.warning("%s: %s", self._task, error)

    def wait(self) -> None:
        """Return once nothing is unseen but what hangs in outputs: only a commit with outputs could show that.

        So no batch begins while a partition of the one before has no leader, the time when Kafka leaves markers out.
        Raises `WriterLost` when some do not answer in time, when the task is given up, and when the changelog hangs:
        the way to active has that be seen, in a transaction that is over as soon as it has begun.
        """
        answered_by = self._clock.monotonic() + self._answer_seconds
        while not self._is_settled:
            try:
                stable = self._await(_OPEN_SECONDS)
            except Transient as error:
                _log.warning("%s: %s", self._task, error)
                stable = {}
                self._pause(_PAUSE_SECONDS)
            waiting = self._unseen.keys() - self._hanging.keys()
            if self._is_given_up():
                raise WriterLost(f"{self._task}: given up")
            if self.is_begun and waiting <= stable.keys():
                self._note_hanging({place: stable[place] for place in waiting})
            elif self._clock.monotonic() > answered_by:
                told = ", ".join(f"{topic}-{number}" for topic, number in sorted(waiting)) or "its outputs"
                raise WriterLost(f"{self._task}: whether its last commit is seen in {told} has no answer")
        if self._changelog in self._hanging:
            raise WriterLost(f"{self._task}: its last commit has no marker in its changelog")

    def hanging(self) -> tuple[tuple[str, int, int], ...]:
        """Return topic, partition and offset of a record of what hangs in each partition of outputs."""
        return tuple(
            (*place, offset) for place, offset in sorted(self._hanging.items()) if place != self._changelog
        )

    @property
    def _is_settled(self) -> bool:
        return self.is_begun and self._unseen.keys() <= self._hanging.keys()

    def _note_hanging(self, stable: Mapping[Place, int]) -> None:
        for place, start in stable.items():
            # Where nobody has said what was written, it is the first record of what is open.
            self._hanging[place] = start if place in self._guessed else self._unseen[place]
            _log.warning(
                "%s: a transaction that began at %d is open in %s-%d: Kafka has left its marker out, or it is another "
                "producer's; if it is this task's, its next commit there ends it",
                *(self._task, start, *place),
            )

    def _await(self, seconds: float) -> Mapping[Place, int]:
        """Look until nothing is left that may still come; return the last stable offsets that were told last."""
        deadline, pause = self._clock.monotonic() + seconds, _FIRST_PAUSE_SECONDS
        if not self.is_begun:
            ends = self._broker.output_ends()
            former = {place: end - 1 for place, end in ends.items() if end}
            self._guessed = former.keys() - self._unseen.keys()
            self._unseen = {**former, **self._unseen}
            self.is_begun = True
        while True:
            stable = self._broker.stable_ends(self._unseen) if self._unseen else {}
            for place, end in stable.items():
                if end > self._unseen[place]:
                    del self._unseen[place]
                    self._hanging.pop(place, None)
            if self._is_settled or self._is_given_up() or self._clock.monotonic() > deadline:
                return stable
            pause = self._pause(pause)

    def _pause(self, seconds: float) -> float:
        """Wait; return how long to wait the next time."""
        self._clock.sleep(seconds)
        return min(2 * seconds, _PAUSE_SECONDS)
