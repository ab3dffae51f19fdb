"""How kazoo is called: its errors as the project's own, and watchers that it keeps once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from standby.errors import BadConfiguration, Transient

#: What kazoo raises when no server answers, or a session has ended.
AWAY: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    SessionExpiredError,
    OperationTimeoutError,
    KazooTimeoutError,
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise `Transient` instead of what kazoo raises when no server answers, `BadConfiguration` when it may not."""
    try:
        yield
    except AWAY as error:
        raise Transient(f"ZooKeeper did not answer while {what}: {type(error).__name__}") from error
    except NoAuthError as error:
        raise BadConfiguration(f"ZooKeeper refused {what}: nodes are closed to these credentials") from error


@lru_cache(maxsize=256)
def watcher(watch: Callable[[], None] | None) -> Callable[[WatchedEvent], None] | None:
    """Return ``watch`` as kazoo calls it: whoever watches reads again, whatever it was that happened.

    Always the same for the same ``watch``: kazoo keeps each watcher until its event comes, and who asks every moment
    would leave one more each time.
    """
    return None if watch is None else lambda _: watch()


def read(client: Any, path: str, watch: Callable[[], None] | None = None) -> tuple[bytes, ZnodeStat] | None:
    """Return a node's data and stat, None when there is none; ``watch`` is called once when one that is there changes.

    Raises as kazoo does.
    """
    try:
        data, stat = client.get(path, watch=watcher(watch))
    except NoNodeError:
        return None
    return data, stat


def read_or_watch(client: Any, path: str, watch: Callable[[], None] | None = None) -> bytes | None:
    """Return a node's data, None when there is none; ``watch`` is called once when it changes, comes or goes.

    Raises as kazoo does.
    """
    while True:
        if client.exists(path, watch=watcher(watch)) is None:
            return None
        found = read(client, path)
        if found is not None:
            return found[0]
        # It went between the two reads.
