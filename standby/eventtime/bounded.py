"""Limits how many windows that close or expire at one row are processed in one transaction. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standby.api import Store

#: Maximum number of windows or sessions of keys that are emitted or removed at once: a million of them would exceed
#: the time-out of a transaction. With a store of the kernel, the rest is processed in calls of the step without
#: rows, each in a transaction.
MOST: Final = 10_000

#: The key of the closing in progress; usually absent.
CLOSING: Final = b"c"


def postpone(store: Store, row: int, closing: bytes) -> None:
    """Process the rows before ``row`` first; if it is the first row, process what is due before it, without rows.

    In the latter case, ``closing`` is stored at `CLOSING` when the step is called. This function returns if the
    store does not support it, like a test's store, or one whose rows must be processed at once: then everything must
    be done now.
    """
    of_kernel = getattr(store, "postpone", None)
    if of_kernel is not None:
        notes: Mapping[bytes, bytes] = {} if row else {CLOSING: closing}
        of_kernel(row, notes)
