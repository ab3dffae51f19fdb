"""Control streams: each keeps the order of its messages; messages in transit are lost when it breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from standby.control import events as told
from standby.errors import Transient
from standby.shared import wire
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.container import Container
    from tests.simulation.leader import Candidate


class Stream:
    """One stream between a container and a leader."""

    def __init__(self, container: Container, number: int, hello: wire.Hello) -> None:
        self.container = container
        self.number = number
        self.hello = hello
        self.clock = container.clock
        self.leader: Candidate | None = None
        """None until the connection stands."""
        self.is_broken = False
        self._up: deque[wire.Up] = deque([hello])
        self._down: deque[wire.Down] = deque()

    def accepted(self, leader: Candidate) -> None:
        """The connection stands: both sides learn of it, and what was queued goes out."""
        if self.is_broken or not self.container.is_alive:
            return
        self.leader = leader
        self.container.receive(1, self.container.post, told.StreamConnected(self.number))
        for _ in self._up:
            self._transmit(leader, self._deliver_up)

    def say(self, message: wire.Up) -> None:
        if self.is_broken:
            return
        self._up.append(message)
        if self.leader is not None:
            self._transmit(self.leader, self._deliver_up)

    def order(self, message: wire.Down) -> None:
        if self.is_broken or self.leader is None:
            return
        self._down.append(message)
        self.leader.send(self.clock.between(1, 6), self.container.receive, 0, self._deliver_down)

    def _transmit(self, to: Process, act: Callable[..., None], *args: object) -> None:
        self.container.send(self.clock.between(1, 6), to.receive, 0, act, *args)

    def _deliver_up(self) -> None:
        # Whatever order the deliveries come in, the stream gives its messages in theirs.
        if self._up and self.leader is not None:
            message = self._up.popleft()
            if isinstance(message, wire.Hello):
                self.leader.hello(self)
            else:
                self.leader.hear(self, message)

    def _deliver_down(self) -> None:
        if self.is_broken or not self._down:
            return
        message, leader = self._down.popleft(), self.leader
        assert leader is not None
        is_assign = isinstance(message, wire.Assignment)
        # An order that never came is no error of anybody's: the next one says all of it again.
        with suppress(Transient):
            leader.world.steps.take(leader, "assign" if is_assign else "exit", lambda: self._give(message))

    def _give(self, message: wire.Down) -> None:
        if not self.is_broken:
            self.container.post(
                told.AssignmentReceived(self.number, message)
                if isinstance(message, wire.Assignment)
                else told.ExitReceived(self.number, message)
            )

    def break_(self, reason: str, *, is_orderly: bool = False) -> None:
        """End the stream; each side hears of it, unless it is out of reach. In order: after all that was said."""
        if self.is_broken:
            return
        self.is_broken = True
        if not is_orderly:
            self._up.clear()
        self._down.clear()
        container, leader = self.container, self.leader
        container.receive(self.clock.between(0, 8), container.post, told.StreamBroken(self.number, reason))
        if leader is not None:
            container.send(self.clock.between(7, 9), leader.receive, 0, leader.stream_ended, self)
