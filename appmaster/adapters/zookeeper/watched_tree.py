"""A part of ZooKeeper's tree, kept in memory and refreshed by watches.

Clients are answered from it, so that neither sessions nor reads grow with the number of clients (as in Storm's highly
available Nimbus). One thread reads; kazoo's own threads only note which path has changed. Nodes are read one after
another, so the result is not of one instant; its users act on differences and look again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState, WatchedEvent

from appmaster.adapters.zookeeper.calls import AWAY
from appmaster.changes.ports import Nodes, Znode
from standby.errors import Transient
from standby.threads.worker import Worker, fatal

_log: Final = logging.getLogger(__name__)

#: Between two attempts while ZooKeeper does not answer, seconds; a new connection is noticed at once.
_RETRY_SECONDS: Final = 0.5

#: After this time without an answer, a server is left to kazoo's own time-outs, seconds.
_ANSWER_SECONDS: Final = 10.0

#: Any name, in a pattern.
ANY: Final = "*"


_Path = tuple[str, ...]


class WatchedTree:
    """Keeps the nodes below ``root`` that match one of ``patterns``, such as ``candidates/*``.

    ``*`` stands for any one name. What matches no pattern is not read, though its parents may be.
    """

    def __init__(self, client: Any, root: str, patterns: Iterable[str]) -> None:
        """``client`` is a started kazoo client that still belongs to the caller."""
        self._client = client
        self._root = root
        self._patterns = tuple(tuple(each.split("/")) for each in patterns)
        self._worker = Worker("tree", self._turn, failed=fatal)
        self._nodes: dict[_Path, Znode] = {}
        self._dirty: set[_Path] = set()
        self._lock = threading.Condition()
        self._shown: Nodes = {}
        self._is_complete = False
        #: Whether the connection was lost since the last reading of everything began.
        self._was_lost = False
        self._waiting: list[threading.Event] = []
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called, on the tree's thread, after each change. Call before `start`."""
        self._listeners.append(changed)

    def start(self) -> None:
        """Start reading."""
        self._client.add_listener(self._connection_changed)
        self._worker.put(self._begin_anew)
        self._worker.start()

    def close(self) -> None:
        """Stop reading; returns when the thread has ended."""
        self._client.remove_listener(self._connection_changed)
        self._worker.close()
        self._worker.join(_ANSWER_SECONDS)

    @property
    def nodes(self) -> Nodes:
        """The nodes as last read; never modified, so any thread may use it."""
        return self._shown

    @property
    def is_complete(self) -> bool:
        """Whether everything has been read and ZooKeeper has been reachable since."""
        return self._is_complete

    def fresh(self, timeout_seconds: float) -> Nodes:
        """Return the nodes, read again after a sync: they include everything written before this call.

        Raises `Transient` if ZooKeeper does not answer in time.
        """
        done = threading.Event()
        self._worker.put(lambda: self._begin_anew(done))
        if not done.wait(timeout_seconds):
            raise Transient(f"ZooKeeper did not answer within {timeout_seconds:g} s")
        return self._shown

    def wait(self, is_so: Callable[[Nodes], bool], timeout_seconds: float) -> bool:
        """Return whether ``is_so`` became true of the nodes in time."""
        with self._lock:
            return self._lock.wait_for(lambda: is_so(self._shown), timeout_seconds)

    # ---- kazoo's threads ----

    def _connection_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            # Watches of an ended session are gone, and changes in the meantime were not reported.
            self._worker.put(self._begin_anew)
        else:
            with self._lock:
                self._was_lost = True
                self._is_complete = False

    def _changed(self, event: WatchedEvent) -> None:
        if not event.path:
            # The session has ended, and its watches with it.
            self._worker.put(self._begin_anew)
            return
        path = tuple(event.path[len(self._root) :].strip("/").split("/"))
        self._worker.put(lambda: self._dirty.add(path))

    # ---- the tree's thread ----

    def _turn(self) -> None:
        self._worker.wait(_RETRY_SECONDS if self._dirty else None)
        self._worker.catch_up()
        if self._worker.is_closed or not self._dirty:
            return
        try:
            if self._waiting:
                self._client.sync_async(self._root).get(timeout=_ANSWER_SECONDS)
            while self._dirty:
                self._read(sorted(self._dirty))
        except AWAY as error:
            self._is_complete = False
            self._begin_anew()
            _log.debug("the tree could not be read: %s", type(error).__name__)
        else:
            self._show()

    def _begin_anew(self, *waiting: threading.Event) -> None:
        """Have everything read again, and notify ``waiting`` then; until that is done the former nodes are shown."""
        self._waiting.extend(waiting)
        self._was_lost = False
        self._nodes = {}
        self._dirty = {pattern[:1] for pattern in self._patterns}

    def _show(self) -> None:
        """Show what was read; it is complete unless the connection was lost meanwhile."""
        with self._lock:
            self._shown = {"/".join(path): node for path, node in self._nodes.items()}
            self._is_complete = not self._was_lost
            self._lock.notify_all()
        for each in self._waiting:
            each.set()
        self._waiting.clear()
        for changed in self._listeners:
            changed()

    def _read(self, paths: list[_Path]) -> None:
        """Read ``paths`` again, all requested at once; nodes below them become dirty as far as they match."""
        asked = [
            (
                path,
                self._client.get_async(self._at(path), watch=self._changed) if self._is_kept(path) else None,
                self._client.get_children_async(self._at(path), watch=self._changed)
                if self._below(path)
                else None,
            )
            for path in paths
        ]
        for path, data, children in asked:
            self._dirty.discard(path)
            if data is not None:
                self._take(path, data)
            if children is not None:
                self._descend(path, children)

    def _take(self, path: _Path, data: Any) -> None:
        try:
            content, stat = data.get(timeout=_ANSWER_SECONDS)
        except NoNodeError:
            self._await(path)
            return
        self._nodes[path] = Znode(content, stat.version, stat.czxid)

    def _descend(self, path: _Path, children: Any) -> None:
        names = self._below(path)
        try:
            present = set(children.get(timeout=_ANSWER_SECONDS))
        except NoNodeError:
            self._await(path)
            return
        wanted = present if ANY in names else present & names
        known = {
            each[len(path)] for each in self._nodes if len(each) > len(path) and each[: len(path)] == path
        }
        for gone in known - wanted:
            self._forget((*path, gone))
        # Changes of the others are reported by their own watches, even if one was deleted and created again.
        self._dirty |= {(*path, each) for each in wanted - known}

    def _await(self, path: _Path) -> None:
        """Forget a node that does not exist, and watch for its creation."""
        self._forget(path)
        if any(len(each) >= len(path) and each[len(path) - 1] == path[-1] for each in self._patterns):
            # Only an exists call leaves such a watch; nodes of other names are reported by their parent's list.
            pending = self._client.exists_async(self._at(path), watch=self._changed)
            if pending.get(timeout=_ANSWER_SECONDS):
                self._dirty.add(path)

    def _forget(self, path: _Path) -> None:
        for each in [each for each in self._nodes if each[: len(path)] == path]:
            del self._nodes[each]

    def _at(self, path: _Path) -> str:
        return "/".join((self._root, *path))

    def _is_kept(self, path: _Path) -> bool:
        return any(len(each) == len(path) and _matches(each, path) for each in self._patterns)

    def _below(self, path: _Path) -> set[str]:
        return {each[len(path)] for each in self._patterns if len(each) > len(path) and _matches(each, path)}


def _matches(pattern: _Path, path: _Path) -> bool:
    return all(each in (ANY, name) for each, name in zip(pattern, path, strict=False))
