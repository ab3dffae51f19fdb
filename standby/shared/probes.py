"""Named points in the work of a process at which a test may look, wait, or end the process.

Nothing outside of a process chooses what happens there: no setting and no variable does. A test that holds deployed
processes starts them by an entry point of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Called with the point's name, on the thread that does the work.
Probe = Callable[[str], None]

REGISTERING: Final = "container: about to register"


def no_probe(point: str) -> None:
    """Do nothing: what runs in production."""
