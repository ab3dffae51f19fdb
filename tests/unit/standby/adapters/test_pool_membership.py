"""A process's place in its cluster's pool, where no server is needed to see it; tests.contracts has the rest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError, WriterNotClosedException
from msgspec.structs import replace

from standby.adapters.zookeeper.pool import PoolMembership
from standby.shared.records import encode
from tests.fakes.pool import waiting
from tests.patience import PATIENCE_SECONDS


def client_of(nodes: dict[str, bytes]) -> Any:
    """Return a client of a server with these nodes, which answers at once."""

    def answer(ask: Callable[[], object]) -> Any:
        return SimpleNamespace(get=lambda timeout: ask())

    def read(path: str) -> tuple[bytes, None]:
        if path not in nodes:
            raise NoNodeError
        return nodes[path], None

    return SimpleNamespace(
        connected=False,
        delete_async=lambda path: answer(lambda: nodes.pop(path, None)),
        get_async=lambda path, **_: answer(lambda: read(path)),
        exists_async=lambda path, **_: answer(lambda: nodes.get(path)),
        create_async=lambda path, data, **_: answer(lambda: nodes.setdefault(path, data)),
        stop=lambda: None,
    )


def test_a_process_that_leaves_does_not_register_again_when_its_watch_fires() -> None:
    nodes: dict[str, bytes] = {}
    member = PoolMembership(client_of(nodes), "c", waiting("h1", "a"), lambda: None)
    member.leave()
    member._look()
    assert not nodes


def test_a_process_leaves_although_zookeeper_does_not_answer() -> None:
    """Kazoo takes 10 s and more to stop then."""
    client, over = client_of({}), threading.Event()
    client.stop = over.wait
    member = PoolMembership(client, "c", waiting("h1", "a"), lambda: None)
    leaving = threading.Thread(target=member.leave, args=(0.1,), daemon=True)
    leaving.start()
    leaving.join(PATIENCE_SECONDS)
    assert not leaving.is_alive()
    over.set()


def test_a_process_leaves_although_its_session_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = client_of({})

    def refuse() -> None:
        raise WriterNotClosedException("wouldn't close after 10 seconds")

    client.stop = refuse
    PoolMembership(client, "c", waiting("h1", "a"), lambda: None).leave()
    assert "left to the end of its session: WriterNotClosedException" in caplog.text


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_process_whose_session_has_ended_registers_again_only_with_its_claim(*, is_seen: bool) -> None:
    """The node that is gone may have held a claim that it never saw: it must not seem to wait under the same id."""
    nodes: dict[str, bytes] = {}
    record = waiting("h1", "a")
    member = PoolMembership(client_of(nodes), "c", record, lambda: None)
    member._look()
    (path,) = nodes
    claimed = encode(replace(record, claim="1-1"))
    if is_seen:
        nodes[path] = claimed
        member._look()
    nodes.clear()
    member._look()
    assert nodes == ({path: claimed} if is_seen else {})
    assert member._decided.get_nowait() == ("1-1" if is_seen else ""), "without a claim it ends"
