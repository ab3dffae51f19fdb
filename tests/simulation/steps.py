"""The leaders' effects on the outside, counted one by one; a leader may be hit at one of these steps.

A step is an effect elsewhere: a transaction of ZooKeeper, an order that a container receives, a request to YARN or its
end. A story that is repeated takes the same steps in the same order up to the one that is hit.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from standby.errors import Fenced, Transient

if TYPE_CHECKING:
    from tests.simulation.leader import Candidate
    from tests.simulation.world import World

T = TypeVar("T")

#: For how long a leader is cut off: another leads long before that is over.
CUT_MS = 6_000


class Blow(str, enum.Enum):
    """What happens to a leader at a step."""

    BEFORE = "killed before"
    """The step is never taken."""
    AFTER = "killed after"
    """The step is taken, and the leader does not live to hear of it."""
    LATE = "cut off at"
    """The step is under way until another has led for long; then it arrives, and the leader is back."""


@dataclass(frozen=True)
class Strike:
    """A blow at the ``number``-th step, counted from 0."""

    number: int
    blow: Blow


@dataclass
class Steps:
    """Counts the steps of all leaders from when counting begins, and strikes at some of them."""

    world: World
    taken: list[str] = field(default_factory=list)
    strikes: tuple[Strike, ...] = ()
    """Those that are to come, in order."""
    at_step: Callable[[int, str], tuple[Strike, ...]] | None = None
    """Called at each step with its number and what it is; returns the strikes that are to come from there on."""
    is_counting: bool = False
    begun_ms: int = 0
    """Since when."""

    def count(self, strikes: tuple[Strike, ...]) -> None:
        """Count from now on; each of ``strikes`` comes with its step."""
        self.is_counting, self.strikes, self.begun_ms = True, strikes, self.world.clock.now_ms

    def take(self, leader: Candidate, what: str, act: Callable[[], T]) -> T:
        """Return what comes of a step; raises `Transient` when the leader does not learn it, or it is not taken."""
        if not self.is_counting:
            return act()
        number = len(self.taken)
        self.taken.append(what)
        if self.at_step is not None:
            self.strikes = self.at_step(number, what) or self.strikes
        if not self.strikes or number != self.strikes[0].number:
            return act()
        blow, self.strikes = self.strikes[0].blow, self.strikes[1:]
        self.world.clock.tell("FAULT: {} is {} step {}: {}", leader.name, blow.value, number, what)
        if blow is Blow.AFTER:
            try:
                act()
            finally:
                leader.kill()
        elif blow is Blow.BEFORE:
            leader.kill()
        else:
            host = leader.host
            self.world.cut(host, is_cut=True)
            host.held_up.append((self._late, (what, act)))
            self.world.clock.after(CUT_MS, self._reconnect, leader)
        raise Transient("its leader was struck")

    def _late(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (Fenced, Transient) as error:
            self.world.clock.tell("too late: {}: {}", what, error)

    def _reconnect(self, leader: Candidate) -> None:
        self.world.cut(leader.host, is_cut=False)
