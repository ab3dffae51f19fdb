"""A process's place in its cluster's pool, where no server is needed to see it; tests.contracts has the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import NoNodeError

from standby.adapters.zookeeper.pool import PoolMembership
from tests.fakes.pool import waiting


def test_a_process_that_leaves_does_not_register_again_when_its_watch_fires() -> None:
    registered = {"pool"}

    def missing(timeout: float) -> None:
        raise NoNodeError

    client: Any = SimpleNamespace(
        connected=False,
        delete_async=lambda _: SimpleNamespace(get=lambda timeout: registered.clear()),
        get_async=lambda *_, **__: SimpleNamespace(get=missing),
        exists_async=lambda *_, **__: SimpleNamespace(get=lambda timeout: None),
        create_async=lambda *_, **__: SimpleNamespace(get=lambda timeout: registered.add("pool")),
    )
    member = PoolMembership(client, "c", waiting("h1", "a"), lambda: None)
    member.leave()
    member._look()
    assert not registered
