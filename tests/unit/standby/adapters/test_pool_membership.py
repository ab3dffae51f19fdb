"""A process's place in its cluster's pool, where no server is needed to see it; tests.contracts has the rest."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from msgspec.structs import replace

from standby.adapters.zookeeper.pool import PoolMembership
from standby.shared.records import encode
from tests.fakes.pool import waiting


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
    )


def test_a_process_that_leaves_does_not_register_again_when_its_watch_fires() -> None:
    nodes: dict[str, bytes] = {}
    member = PoolMembership(client_of(nodes), "c", waiting("h1", "a"), lambda: None)
    member.leave()
    member._look()
    assert not nodes


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
