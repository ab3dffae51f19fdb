"""A job for tests of the kernel: a step that detects a lost, duplicate or misplaced record, and its model.

Each task has two stores of different size; keys disappear and return, so that tombstones matter.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: The stores of the job, as `task.stores` lists them.
STORES = ("counts", "chains")

#: A record with this value ends its key's chain.
END = b"end"


def chain_of(before: bytes, value: bytes) -> bytes:
    """Return a digest of everything a key has seen since its chain began."""
    return hashlib.blake2b(before + value, digest_size=6).digest()


def step(rows: Any, state: Any, out: Any) -> None:
    """Count each key's records and chain their values; one output per record: count, offset, chain."""
    keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
    counts, chains = state["counts"], state["chains"]
    known = counts.get_many(keys)
    for key, value, offset in zip(keys, values, rows["_offset"].to_pylist(), strict=True):
        if value == b"raise":
            raise ValueError(f"a poisoned record\nat {offset}")
        if value == b"crash":
            # As a segmentation fault in a library would: nothing can catch it.
            os.kill(os.getpid(), signal.SIGKILL)
        number = int(known.get(key, b"0")) + 1
        known[key] = b"%d" % number
        counts.put(key, known[key])
        chain = chain_of(chains.get(key) or b"", value)
        if value == END:
            chains.delete(key)
        else:
            chains.put(key, chain)
        out.emit(key, b"%d %d %s" % (number, offset, chain.hex().encode()))


@dataclass
class Model:
    """What the outputs and the state must be, computed record by record from the input alone."""

    counts: dict[bytes, int] = field(default_factory=dict)
    chains: dict[bytes, bytes] = field(default_factory=dict)
    outputs: dict[bytes, list[bytes]] = field(default_factory=dict)

    def take(self, records: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Go on with these (offset, key, value) of one partition, in order."""
        for offset, key, value in records:
            self.counts[key] = self.counts.get(key, 0) + 1
            chain = chain_of(self.chains.get(key, b""), value)
            if value == END:
                self.chains.pop(key, None)
            else:
                self.chains[key] = chain
            text = f"{self.counts[key]} {offset} {chain.hex()}"
            self.outputs.setdefault(key, []).append(text.encode())

    @property
    def state(self) -> dict[tuple[str, bytes], bytes]:
        """The state that all stores together must have."""
        counts = {("counts", key): b"%d" % number for key, number in self.counts.items()}
        return counts | {("chains", key): chain for key, chain in self.chains.items()}
