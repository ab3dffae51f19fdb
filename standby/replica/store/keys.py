"""Keys of changelog records and of the local database: a store's name in front of the user's key. Pure.

Both have the same form, so that replay copies records as they are. A name's first byte is its length,
1 to 64; keys of the kernel's own begin with 0 and can never meet a store's.
"""

from __future__ import annotations

from typing import Final

from standby.errors import CorruptState

#: Where the database keeps the changelog position.
POSITION: Final = b"\x00position"

#: Where the database keeps the number of the last batch that the replica has committed itself, as an active.
OWN: Final = b"\x00own"

#: Under which every transaction writes to the changelog what it commits (`standby.replica.claim.CommitRecord`).
COMMIT: Final = b"\x00commit"


def prefix(store: str) -> bytes:
    """Return what every key of ``store`` begins with."""
    name = store.encode()
    return bytes((len(name),)) + name


def is_own(key: bytes) -> bool:
    """Return whether a key is one of the kernel's own, and no store's."""
    return key[:1] == b"\x00"


def after(prefix: bytes) -> bytes | None:
    """Return the first key behind all that begin with ``prefix``; None when there is none (only 0xff bytes)."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


def split(key: bytes) -> tuple[str, bytes]:
    """Return the store's name and the user's key in a changelog key.

    Raises `CorruptState` when it is no such key.
    """
    length = key[0] if key else 0
    if not 1 <= length <= 64 or len(key) <= length:
        raise CorruptState(f"{key[:32]!r} is no key of a store")
    try:
        return key[1 : 1 + length].decode(), key[1 + length :]
    except UnicodeDecodeError as error:
        raise CorruptState(f"{key[:32]!r} is no key of a store") from error
