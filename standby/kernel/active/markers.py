"""Checks that the markers that end a task's transactions are present (rule `marker-seen`, docs/decisions/0036)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from standby.errors import StandfastError, Transient
from standby.kernel.ports import Broker, Place, WriterLost
from standby.shared.clock import Clock
from standby.shared.model import TaskId

_log: Final = logging.getLogger(__name__)

#: How long an open transaction may be another producer's, or its marker may still be on its way.
_OPEN_SECONDS: Final = 1.0

#: How long to wait for markers right after a commit. Later ones are checked before the next commit.
_SOON_SECONDS: Final = 0.05

#: Poll interval: the first, and the maximum.
_FIRST_PAUSE_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.05


class Markers:
    """Tracks the markers of an active task's commits. An aborted transaction would abort hanging ones, too.

    A partition is *unseen* until its last stable offset has passed what was written there. It *hangs* when this
    takes too long although the partition's leader answers. Used from one thread.
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
        """Wait for partitions that do not answer for ``answer_seconds``, or until ``is_given_up``."""
        self._broker, self._task, self._changelog = broker, task, changelog
        self._answer_seconds = answer_seconds
        self._is_given_up = is_given_up
        self._clock = clock
        self._unseen: dict[Place, int] = {}
        self._hanging: dict[Place, int] = {}
        #: Partitions where it is not known what this task has left open, if anything.
        self._guessed: set[Place] = set()
        self.is_begun = False
        """Whether outputs were checked for transactions that former replicas left open."""
        self.is_awaited = True
        """Whether no batch can begin yet, because it is not known whether the markers are present. Read from any
        thread."""
        self._said = ""

    def note(self, places: Mapping[Place, int]) -> None:
        """Record the last record of a commit in each partition: its marker ends everything before it."""
        self.is_awaited = True
        self._unseen.update(places)
        for each in places:
            self._hanging.pop(each, None)
            self._guessed.discard(each)

    def look(self) -> None:
        """Check for markers that arrive within a moment."""
        try:
            self._await(_SOON_SECONDS)
        except StandfastError as error:
            self._say(error)
        else:
            self.is_awaited = not self._is_settled

    def wait(self) -> None:
        """Return once nothing is unseen but what hangs in outputs, which only a commit with outputs could end.

        So no batch begins while a partition of the previous batch has no leader, which is when Kafka skips markers.
        Raises `WriterLost` when partitions do not answer in time, when the task is abandoned, and when the changelog
        hangs: the takeover then makes the commit visible in a very short transaction.
        """
        answered_by = self._clock.monotonic() + self._answer_seconds
        while not self._is_settled:
            try:
                stable = self._await(_OPEN_SECONDS)
            except Transient as error:
                self._say(error)
                stable = {}
                self._pause(_PAUSE_SECONDS)
            waiting = self._unseen.keys() - self._hanging.keys()
            if self._is_given_up():
                raise WriterLost(f"{self._task}: given up")
            if self.is_begun and waiting <= stable.keys():
                self._note_hanging({place: stable[place] for place in waiting})
            elif self._clock.monotonic() > answered_by:
                listed = ", ".join(f"{topic}-{number}" for topic, number in sorted(waiting)) or "its outputs"
                reason = f": {self._said}" if self._said else ""
                raise WriterLost(
                    f"{self._task}: whether its last commit is seen in {listed} has no answer in time{reason}"
                )
        self.is_awaited, self._said = False, ""
        if self._changelog in self._hanging:
            raise WriterLost(f"{self._task}: its last commit has no marker in its changelog")

    def hanging(self) -> tuple[tuple[str, int, int], ...]:
        """Return topic, partition and offset of one hanging record in each output partition."""
        return tuple(
            (*place, offset) for place, offset in sorted(self._hanging.items()) if place != self._changelog
        )

    @property
    def _is_settled(self) -> bool:
        return self.is_begun and self._unseen.keys() <= self._hanging.keys()

    def _say(self, error: StandfastError) -> None:
        """Log an error unless it was the last one: while a partition has no leader, each answer is the same."""
        if (said := str(error)) != self._said:
            self._said = said
            _log.warning("%s: %s", self._task, said)

    def _note_hanging(self, stable: Mapping[Place, int]) -> None:
        for place, start in stable.items():
            # If it is unknown what was written, use the first record of the open transaction.
            self._hanging[place] = start if place in self._guessed else self._unseen[place]
            _log.warning(
                "%s: a transaction that began at %d is open in %s-%d: Kafka has left its marker out, or it is another "
                "producer's; if it is this task's, its next commit there ends it",
                *(self._task, start, *place),
            )

    def _await(self, seconds: float) -> Mapping[Place, int]:
        """Poll until no marker is outstanding, or the time is up; return the latest last stable offsets."""
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
        """Wait; return how long to wait next time."""
        self._clock.sleep(seconds)
        return min(2 * seconds, _PAUSE_SECONDS)
