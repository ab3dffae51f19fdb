"""Helpers for calls of kazoo: translation of its errors, watchers that are registered once, and bulk reads."""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from kazoo.exceptions import (
    EXCEPTIONS,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from standby.adapters.zookeeper import reader
from standby.errors import BadConfiguration, Transient

#: The errors that kazoo raises if no server answers, or if a session has ended.
AWAY: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    SessionExpiredError,
    OperationTimeoutError,
    KazooTimeoutError,
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise `Transient` instead of kazoo's errors when no server answers, `BadConfiguration` when access is denied."""
    try:
        yield
    except AWAY as error:
        raise Transient(f"ZooKeeper did not answer while {what}: {type(error).__name__}") from error
    except NoAuthError as error:
        raise BadConfiguration(f"ZooKeeper refused {what}: nodes are closed to these credentials") from error


@lru_cache(maxsize=256)
def watcher(watch: Callable[[], None] | None) -> Callable[[WatchedEvent], None] | None:
    """Return ``watch`` in the form in which kazoo calls it; a watcher reads again, whatever the event.

    The result is always the same object for the same ``watch``: kazoo keeps each watcher until its event comes, and a
    caller that asks repeatedly would otherwise leave one more each time.
    """
    return None if watch is None else lambda _: watch()


def read(client: Any, path: str, watch: Callable[[], None] | None = None) -> tuple[bytes, ZnodeStat] | None:
    """Return a node's data and stat, None if there is none; ``watch`` is called once when an existing node changes.

    Raises kazoo's errors.
    """
    try:
        data, stat = client.get(path, watch=watcher(watch))
    except NoNodeError:
        return None
    return data, stat


def read_or_watch(client: Any, path: str, watch: Callable[[], None] | None = None) -> bytes | None:
    """Return a node's data, None if there is none; ``watch`` is called once when it changes, comes or goes.

    Raises kazoo's errors.
    """
    return reader.read_or_watch(client, path, watcher(watch))


def children(client: Any, path: str, watch: Callable[[], None] | None = None) -> list[str]:
    """Return the names of a node's children, sorted; none if there is no such node.

    ``watch`` is called once when a child of an existing node comes or goes. Raises kazoo's errors.
    """
    try:
        return sorted(client.get_children(path, watch=watcher(watch)))
    except NoNodeError:
        return []


# ---- many nodes in one request ----
#
# ZooKeeper's ``multiRead`` (since 3.6), which kazoo does not implement. Ten thousand pipelined reads take kazoo two
# seconds of processor time; this takes a tenth of that.

#: Nodes in one request; with records of a kilobyte an answer stays below what servers consider sane.
_NODES: Final = 500

_GET_DATA: Final = 4
_ERROR: Final = -1
_HEADER: Final = struct.Struct("!iBi")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_END: Final = _HEADER.pack(-1, True, -1)
_BEGIN: Final = _HEADER.pack(_GET_DATA, False, -1)

Read = tuple[bytes, ZnodeStat]


class _MultiRead(namedtuple("_MultiRead", "paths")):  # noqa: PYI024 - kazoo's own requests are such
    """A request in the form in which kazoo sends it."""

    __slots__ = ()

    type = 22

    def serialize(self) -> bytes:
        """Return the body: for each path a header, the path, and that no watch is left."""
        parts = []
        for each in self.paths:
            path = each.encode()
            parts += [_BEGIN, _INT.pack(len(path)), path, b"\0"]
        return b"".join((*parts, _END))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Read | None]:
        """Return each node's data and stat; None for a node that does not exist."""
        found: list[Read | None] = []
        while True:
            kind, is_done, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_done:
                return found
            if kind == _ERROR:
                (code,) = _INT.unpack_from(data, offset)
                offset += _INT.size
                if code != NoNodeError.code:
                    raise EXCEPTIONS[code]
                found.append(None)
                continue
            (length,) = _INT.unpack_from(data, offset)
            offset += _INT.size
            body = bytes(data[offset : offset + length]) if length > 0 else b""
            offset += max(length, 0)
            found.append((body, ZnodeStat._make(_STAT.unpack_from(data, offset))))
            offset += _STAT.size


def read_many(client: Any, paths: Sequence[str]) -> Iterator[tuple[str, bytes, ZnodeStat]]:
    """Yield each node that exists, with its path, data and stat; the reads are not of one instant.

    Raises kazoo's errors. Servers before 3.6 are asked for one node after another.
    """
    asked = []
    for first in range(0, len(paths), _NODES):
        pending = client.handler.async_result()
        # As kazoo's own methods do; it has no public way to send a custom request.
        absolute = [f"{client.chroot}{each}" for each in paths[first : first + _NODES]]
        client._call(_MultiRead(absolute), pending)  # noqa: SLF001
        asked.append((paths[first : first + _NODES], pending))
    for some, pending in asked:
        try:
            found = pending.get()
        except UnimplementedError:
            yield from _one_by_one(client, some)
            continue
        for path, each in zip(some, found, strict=True):
            if each is not None:
                yield (path, *each)


def _one_by_one(client: Any, paths: Sequence[str]) -> Iterator[tuple[str, bytes, ZnodeStat]]:
    for path, pending in [(each, client.get_async(each)) for each in paths]:
        try:
            data, stat = pending.get()
        except NoNodeError:
            continue
        yield path, data, stat
