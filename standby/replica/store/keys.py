"""Keys of changelog records and of the local database: the user's key, prefixed by the store's name. Pure.

Both have the same form, so that replay copies records unchanged. The prefix is the name's length (1 to 64) as a
byte, and the name. The kernel's own keys begin with 0, so they never collide with a store's.
"""

from __future__ import annotations

from typing import Final

from standby.errors import CorruptState

#: The key of the changelog position in the database.
POSITION: Final = b"\x00position"

#: The key of the number of the last batch that the replica itself committed, as an active.
OWN: Final = b"\x00own"

#: The key of the commit record that every transaction writes (`standby.replica.claim.CommitRecord`).
COMMIT: Final = b"\x00commit"


def prefix(store: str) -> bytes:
    """Return the prefix of every key of ``store``."""
    name = store.encode()
    return bytes((len(name),)) + name


def is_own(key: bytes) -> bool:
    """Return whether a key is one of the kernel's own, not a store's."""
    return key[:1] == b"\x00"


def after(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with ``prefix``; None when there is none (only 0xff bytes)."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


def split(key: bytes) -> tuple[str, bytes]:
    """Return the store's name and the user's key in a changelog key.

    Raises `CorruptState` when it is not such a key.
    """
    length = key[0] if key else 0
    if not 1 <= length <= 64 or len(key) <= length:
        raise CorruptState(f"{key[:32]!r} is no key of a store")
    try:
        return key[1 : 1 + length].decode(), key[1 + length :]
    except UnicodeDecodeError as error:
        raise CorruptState(f"{key[:32]!r} is no key of a store") from error
