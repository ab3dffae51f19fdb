"""What becomes of a picture of ZooKeeper's tree whose thread fails; what it shows is tested on real servers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appmaster.adapters.zookeeper.watched_tree import WatchedTree
from tests.patience import PATIENCE_SECONDS


class Broken:
    """A client of which every question fails as nobody foresaw."""

    def add_listener(self, listener: Callable[[str], None]) -> None: ...

    def remove_listener(self, listener: Callable[[str], None]) -> None: ...

    def get_async(self, path: str, watch: Callable[[Any], None]) -> Any:
        raise LookupError("planted")


def test_error_that_nobody_foresaw_ends_the_thread_and_so_the_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that went on would answer clients from an old picture for ever."""
    died: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", died.put)
    tree = WatchedTree(Broken(), "/root", ["controller"])
    tree.start()
    thread = died.get(timeout=PATIENCE_SECONDS).thread
    assert thread is not None
    assert thread.name == "tree"
    tree.close()
