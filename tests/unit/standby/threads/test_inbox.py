"""A queue with many writers and one reader."""

from __future__ import annotations

import queue
import threading

import pytest

from standby.threads.inbox import Inbox


def test_all_that_waits_is_taken_in_order() -> None:
    inbox: Inbox[int] = Inbox()
    for each in range(3):
        inbox.post(each)
    assert inbox.take() == 0
    assert inbox.drain(60) == [1, 2]
    assert inbox.is_empty()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.01])
def test_nothing_is_waited_for_so_long_and_no_longer(seconds: float) -> None:
    inbox: Inbox[int] = Inbox()
    assert inbox.drain(seconds) == []
    with pytest.raises(queue.Empty):
        inbox.take(seconds)


def test_the_first_item_ends_the_wait() -> None:
    inbox: Inbox[str] = Inbox()
    writer = threading.Thread(target=inbox.post, args=("here",))
    writer.start()
    assert inbox.drain(60) == ["here"]
    writer.join()
