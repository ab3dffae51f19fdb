"""Fixtures of the masters' tests."""

from __future__ import annotations

import queue
import threading

import pytest

Died = queue.SimpleQueue[threading.ExceptHookArgs]


@pytest.fixture
def died(monkeypatch: pytest.MonkeyPatch) -> Died:
    """Return how threads have died, one after the other."""
    found: Died = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", found.put)
    return found
