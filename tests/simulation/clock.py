"""Virtual time: a heap of (time, sequence), and one source of randomness. Nothing here waits."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from standby.errors import BrokenInvariant

#: How much of a story is kept.
STORY = 600

#: Unix time at the beginning of every story.
WALL_MS: Final = 1_700_000_000_000


class Clock:
    """Milliseconds that pass only when the next event is taken; the same seed gives the same events."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.taken = 0
        """How many events have happened."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._story: deque[tuple[int, str, tuple[Any, ...]]] = deque(maxlen=STORY)

    def after(self, delay_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Have ``act`` called in ``delay_ms``; what is due at one time happens in the order of these calls."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, act, args))

    def between(self, least: int, most: int) -> int:
        """Return a delay of chance, both ends included."""
        return least + int(self.chance.random() * (most - least + 1))

    def happens(self, probability: float) -> bool:
        """Return True with ``probability``."""
        return self.chance.random() < probability

    def run(self, until_ms: int) -> None:
        """Let everything happen that is due up to ``until_ms``."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now_ms, _, act, args = heapq.heappop(heap)
            self.taken += 1
            act(*args)
        self.now_ms = max(self.now_ms, until_ms)

    def tell(self, text: str, *args: Any) -> None:
        """Add a line to the story; ``text`` is filled with ``args`` only when somebody reads it."""
        self._story.append((self.now_ms, text, args))

    def story(self, lines: int) -> str:
        told = list(self._story)[-lines:]
        return "\n".join(f"{at_ms:>7} {text.format(*args)}" for at_ms, text, args in told)

    def check(self, holds: bool, invariant: str, text: str, *args: Any) -> None:
        """Raise `BrokenInvariant` naming ``invariant`` unless it ``holds``."""
        if not holds:
            raise BrokenInvariant(f"{invariant}: {text.format(*args)}")
