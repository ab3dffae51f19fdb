"""How much one transaction is to have of what closes or expires by the time of a single row. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standby.api import Store

#: Most windows or sessions of a key that are told, or removed, at once: a million of them would take one transaction
#: longer than it may. A store of the kernel has the rest done in calls of the step without rows, each a transaction.
MOST: Final = 10_000

#: The key of what is being closed; none is there as a rule.
CLOSING: Final = b"c"


def postpone(store: Store, row: int, closing: bytes) -> None:
    """Have the rows before ``row`` done first, or when it is the first one: what is due before it, without rows.

    Then ``closing`` lies at `CLOSING` when the step is called. Returns where the store cannot do that, as one of a test
    or one whose rows are to be done at once, whatever they bring: then everything is to be done now.
    """
    of_kernel = getattr(store, "postpone", None)
    if of_kernel is not None:
        notes: Mapping[bytes, bytes] = {} if row else {CLOSING: closing}
        of_kernel(row, notes)
