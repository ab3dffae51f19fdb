"""One story, and for each of its steps the same story with a leader that is hit there.

The story runs once. At each step the process forks, and the child continues as another story: the part before the step
is the same in all of them, and more than half of the work.

All this is in a process of its own. Where tests have used gRPC or librdkafka before, their threads are gone in a fork,
and now and then it crashes.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context

from tests.simulation.mutations import MUTATIONS
from tests.simulation.plots import PLOTS, SEED, act
from tests.simulation.run import Failure, told
from tests.simulation.steps import Strike
from tests.simulation.world import World

#: Says by the number of a step which stories go on from there, each by its strikes; the first is at that step.
Strikes = Callable[[int], Iterable[tuple[Strike, ...]]]


@dataclass(frozen=True)
class Branch:
    """A story that went on from a step with strikes."""

    strikes: tuple[Strike, ...]
    """None: the story that all others branch off from."""
    step: str
    failure: Failure | None

    def __str__(self) -> str:
        strikes = ", ".join(f"{each.blow.value} step {each.number}" for each in self.strikes)
        return f"{strikes or 'not struck'} ({self.step}): {self.failure}"


class _Fork:
    """Where a story branches off; in a child, the way back to the process that waits for its result."""

    def __init__(self, world: World, strikes: Strikes) -> None:
        self._world = world
        self._strikes = strikes
        self._answer: int | None = None
        self.found: list[Branch] = []

    @property
    def is_child(self) -> bool:
        return self._answer is not None

    def at_step(self, number: int, step: str) -> tuple[Strike, ...]:
        """Tell all stories that go on from a step; in each of them, return its strikes."""
        for strikes in self._strikes(number):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reading)
                self._answer = writing
                self._world.steps.at_step = None
                return strikes
            os.close(writing)
            self.found.append(Branch(strikes, step, self._wait(child, reading)))
        return ()

    @staticmethod
    def _wait(child: int, reading: int) -> Failure | None:
        try:
            with os.fdopen(reading, "rb") as answer:
                failure: Failure | None = pickle.loads(answer.read())
                return failure
        finally:
            # It has ended, or nothing waits for it any more.
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def end(self, failure: Failure | None) -> None:
        """End a child's process with what became of its story."""
        assert self._answer is not None
        with os.fdopen(self._answer, "wb") as answer:
            answer.write(pickle.dumps(failure))
        os._exit(0)


def branches(name: str, strikes: Strikes, mutation: str = "") -> list[Branch]:
    """Return all stories of a plot that ``strikes`` asks for, with a mutation if one is named.

    The last story is the one without strikes. ``strikes`` is a function of a module.
    """
    return _process().submit(_branches, name, strikes, mutation).result()


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"))


def _branches(name: str, strikes: Strikes, mutation: str) -> list[Branch]:
    with MUTATIONS[mutation].plant() if mutation else nullcontext():
        return _told(name, strikes)


def _told(name: str, strikes: Strikes) -> list[Branch]:
    plot = PLOTS[name]
    world = World(SEED, plot.shape)
    fork = _Fork(world, strikes)
    world.steps.at_step = fork.at_step
    failure: Failure | None = Failure(SEED, "the story did not run to its end", "")
    try:
        failure = told(world, partial(act, world, plot))
    finally:
        # Whatever happens, a child does not return to its caller.
        if fork.is_child:
            fork.end(failure)
    return [*fork.found, Branch((), "the end", failure)]
