"""Named points in a process at which a test may observe, wait, or end the process.

No setting and no environment variable affects them. A test of deployed processes starts them with its own entry
point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Called with the point's name, on the thread that does the work.
Probe = Callable[[str], None]

REGISTERING: Final = "container: about to register"


def no_probe(point: str) -> None:
    """Do nothing; used in production."""
