"""A pytest plugin that has threads stand still at random: ``pytest -p tests.stalls --stalls SEED`` (``make stalls``).

A test on real threads that passes only in a certain order of theirs fails now and then on a busy machine, and never
when it is looked into. Here each thread may stand still for almost a second whenever it calls a function of the product
or of the fakes, so such an order does not last. No processor time is used meanwhile, hence many tests run at once.

A seed does not repeat a run, since threads take turns as they like; another seed is another run. What fails is shown
to be unsteady by ``time.sleep`` at the place that is suspected, which is not kept.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Generator
from functools import cache
from types import FrameType
from typing import Any, Final

import pytest

from tests.patience import STALL_SECONDS, STALLS_SECONDS

#: Where threads stand still: in functions of these, and of the queues and locks between threads.
_PLACES: Final = (
    *("/standby/", "/appmaster/", "/embedded/", "/tests/fakes/", "/tests/memory_lab.py"),
    *("/threading.py", "/queue.py", "/concurrent/futures/"),
)

#: Of such calls, how many stand still.
_SHARE: Final = 0.02


class Stalls:
    """Has threads stand still."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._left = 0.0
        #: The real one, whatever a test puts in its place.
        self._sleep = time.sleep

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        """Have the test's own thread stand still, too, but not the fixtures' set-up."""
        self._left = STALLS_SECONDS
        sys.setprofile(self.called)
        try:
            return (yield)
        finally:
            sys.setprofile(None)

    def called(self, frame: FrameType, event: str, _argument: object) -> None:
        """Stand still, perhaps; Python calls this for each call on each thread (`threading.setprofile`)."""
        if event != "call" or self._left <= 0:
            return
        if _is_place(frame.f_code.co_filename) and self._random.random() < _SHARE:
            seconds = STALL_SECONDS * self._random.random()
            self._left -= seconds
            self._sleep(seconds)


@cache
def _is_place(path: str) -> bool:
    return any(each in path for each in _PLACES)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--stalls``."""
    parser.addoption(
        "--stalls", type=int, default=1, metavar="SEED", help="have threads stand still at random"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin, for every thread that starts from now on."""
    stalls = Stalls(config.getoption("--stalls"))
    config.pluginmanager.register(stalls)
    threading.setprofile(stalls.called)
