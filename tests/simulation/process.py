"""Hosts and processes, which can be stopped, cut off, and killed; and calls between them and servers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from standby.errors import BrokenInvariant, StandfastError
from tests.simulation.clock import Clock

#: Whoever is within reach for so long has been heard: a little more than the interval of heartbeats.
HEARD_MS = 700


@dataclass
class Host:
    """A machine: its disks outlive every process on it."""

    name: str
    capacity: int = 8
    is_up: bool = True
    is_cut: bool = False
    """Nothing goes in or out."""
    slowness: int = 1
    """How many times longer its disks take."""
    disks: dict[Any, tuple[int, int]] = field(default_factory=dict)
    """Task → flushed position and value of its store."""
    stores: dict[Any, Process] = field(default_factory=dict)
    """Task → the process that has its store open."""
    held_up: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    """What waits for the cut to end."""


class Process:
    """A process on a host. What is due while it stands still happens once it runs again."""

    def __init__(self, clock: Clock, host: Host, name: str) -> None:
        self.clock = clock
        self.host = host
        self.name = name
        self.is_alive = True
        self.is_without_kafka = False
        """No broker can be reached from it, while all else can."""
        self.stops = 0
        """How many faults make it stand still."""
        self.disk_waits = 0
        """How many of them are waits for its disk."""
        self.at_disk_since_ms: int | None = None
        """Since when it has only waited for its disk; None: it does not, or somebody may not have heard it before."""
        self.running_since_ms = clock.now_ms
        """Since when it has been running and within reach, without a break."""
        self._due: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.on_contact: list[Callable[[Process], None]] = []
        """Called when it stops, dies, or comes back, for those who count on its signs of life."""

    @property
    def is_running(self) -> bool:
        """Return whether it lives and does not stand still."""
        return self.is_alive and not self.stops

    @property
    def is_within_reach(self) -> bool:
        """Return whether it runs and its host is not cut off."""
        return self.is_running and not self.host.is_cut

    def after(self, delay_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Have the process do something later; never, when it is dead by then."""
        self.clock.after(delay_ms, self._do, act, args)

    def _do(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.is_alive:
            return
        if self.stops:
            self._due.append((act, args))
            return
        act(*args)

    @property
    def waits_for_disk(self) -> bool:
        """Return whether it stands still for no other reason."""
        return 0 < self.stops == self.disk_waits

    def stop(self) -> None:
        """SIGSTOP, or its host's."""
        self.stops += 1
        self.at_disk_since_ms = None
        self.contact_changed()

    def wait_for_disk(self) -> None:
        """Stand still until `end_disk_wait`, in a call that holds the interpreter's lock; its witness says so."""
        since, audible_ms = self.at_disk_since_ms, self.clock.now_ms - self.running_since_ms
        was_heard = self.is_within_reach and audible_ms >= HEARD_MS
        self.disk_waits += 1
        self.stop()
        self.at_disk_since_ms = self.clock.now_ms if was_heard else since

    def end_disk_wait(self) -> None:
        """Have the call return."""
        self.disk_waits -= 1
        self.resume()

    def resume(self) -> None:
        """SIGCONT. Its threads wake in any order."""
        self.stops -= 1
        if self.stops or not self.is_alive:
            return
        self.at_disk_since_ms = None
        due, self._due = self._due, []
        for act, args in due:
            self.after(self.clock.between(0, 15), act, *args)
        self.contact_changed()

    def kill(self) -> None:
        """SIGKILL: nothing of it happens any more. Its sockets are closed by the override of `died`."""
        if not self.is_alive:
            return
        self.is_alive = False
        for task in [each for each, owner in self.host.stores.items() if owner is self]:
            del self.host.stores[task]
        self.contact_changed()
        self.died()

    def died(self) -> None:
        """Inform those who notice at once; none, by default."""

    def contact_changed(self) -> None:
        """Take note that the process went out of reach, or came back."""
        self.running_since_ms = self.clock.now_ms
        for listen in self.on_contact:
            listen(self)

    # ---- calls of servers ----

    def call(
        self,
        hop_ms: tuple[int, int],
        act: Callable[[], Any],
        done: Callable[[Any, StandfastError | None], None],
    ) -> None:
        """Have a server ``act`` and tell ``done`` what came of it. Once sent, a request needs no process."""
        self.send(self.clock.between(*hop_ms), self._arrive, hop_ms, act, done)

    def send(self, delay_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Have ``act`` happen outside the host, later when that is cut off; a dead process may have sent it."""
        self.clock.after(delay_ms, self._leave, act, args)

    def _leave(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.host.is_cut:
            self.host.held_up.append((act, args))
        else:
            act(*args)

    def receive(self, delay_ms: int, act: Callable[..., None], *args: Any) -> None:
        """Have ``act`` happen in the process, later when its host is cut off."""
        self.clock.after(delay_ms, self._leave, self._do, (act, args))

    def _arrive(
        self,
        hop_ms: tuple[int, int],
        act: Callable[[], Any],
        done: Callable[[Any, StandfastError | None], None],
    ) -> None:
        try:
            answer, error = act(), None
        except BrokenInvariant:
            raise
        except StandfastError as broken:
            answer, error = None, broken
        self.receive(self.clock.between(*hop_ms), done, answer, error)


@dataclass(frozen=True, slots=True)
class Call:
    """A step of a course: ask a server."""

    hop_ms: tuple[int, int]
    act: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Until:
    """A step of a course: wait until somebody calls what is added to ``waiters``."""

    waiters: list[Callable[[], None]]


#: What a process does one step after the other: each step is a pause (milliseconds), a `Call`, or an `Until`.
Course = Generator["int | Call | Until", Any, Any]


class Runner:
    """Takes a process through a course; the process may stop, or die, between any two steps."""

    def __init__(
        self, process: Process, course: Course, done: Callable[[StandfastError | None], None]
    ) -> None:
        self._process = process
        self._course = course
        self._done = done

    def begin(self) -> None:
        self._go_on(None, None)

    def _go_on(self, answer: Any, error: StandfastError | None) -> None:
        try:
            step = self._course.send(answer) if error is None else self._course.throw(error)
        except StopIteration:
            self._done(None)
            return
        except BrokenInvariant:
            raise
        except StandfastError as broken:
            self._done(broken)
            return
        if isinstance(step, Call):
            self._process.call(step.hop_ms, step.act, self._go_on)
        elif isinstance(step, Until):
            step.waiters.append(lambda: self._process.receive(1, self._go_on, None, None))
        else:
            self._process.after(step, self._go_on, None, None)
