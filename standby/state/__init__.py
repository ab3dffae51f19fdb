"""Layers on top of a store for a job's author: typed keys and values, counters, expiry (docs/state.md).

All of them write through the given store, so the changelog, standbys and the active contain the same bytes.
"""

from standby.api import ValueRefused
from standby.state.counters import Counters
from standby.state.expiring import Expiring
from standby.state.formats import ARROW, JSON, MSGPACK, json_of, msgpack_of
from standby.state.serdes import BYTES, INT, TEXT, Key, Serde, tuple_of
from standby.state.typed import Typed, typed

__all__ = [
    "ARROW",
    "BYTES",
    "INT",
    "JSON",
    "MSGPACK",
    "TEXT",
    "Counters",
    "Expiring",
    "Key",
    "Serde",
    "Typed",
    "ValueRefused",
    "json_of",
    "msgpack_of",
    "tuple_of",
    "typed",
]
