"""The end of a process that waits for nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NoReturn

from standby.shared.clock import REAL


def end_at_once(status: int, acts: Iterable[Callable[[], object]], within_seconds: float) -> NoReturn:
    """End this process with ``status`` after its last ``acts``, whatever becomes of them, ``within_seconds`` at most.

    The interpreter's own end would wait for threads of libraries, which may wait for a server.
    """
    late: Callable[[], object] = partial(REAL.later, within_seconds, partial(os._exit, status))
    for act in (late, *acts):
        # The disk of a log may be full, or not answer; there may be no descriptor, or no thread for the first one.
        with suppress(Exception):
            act()
    os._exit(status)
