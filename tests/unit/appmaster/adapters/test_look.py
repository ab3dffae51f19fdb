"""A look at a port by a process that is short of processor time; the rest is in test_control_streams."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from appmaster.adapters.look import _SAY_SECONDS, NOT_ASKED, Look, look_at
from standby.adapters.liveness import listen
from tests.patience import LOOK_SECONDS, soon

_CONNECT_SECONDS = 5 * LOOK_SECONDS


class Starved(selectors.DefaultSelector):
    """Shows a loop what has come only when a connection is not waited for any more."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        time.sleep(1.2 * _CONNECT_SECONDS)
        return super().select(timeout)


def looked(look: Callable[[], Look]) -> Look:
    """Return a look for which the address was looked up, which a busy machine may not do in time."""
    found: list[Look] = []

    def is_asked() -> bool:
        found.append(look())
        return found[-1] != NOT_ASKED

    soon(is_asked, "the address is looked up")
    return found[-1]


def test_an_answer_that_is_heard_too_late_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appmaster.adapters.look._CONNECT_SECONDS", _CONNECT_SECONDS)
    with closing(asyncio.SelectorEventLoop(Starved())) as loop:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            host, port = listening.getsockname()
            began = loop.time()
            seen = looked(lambda: loop.run_until_complete(look_at(host, port)))
            assert seen == Look(is_running=False, waited_ms=seen.waited_ms)
            assert _SAY_SECONDS <= seen.waited_ms / 1000 <= loop.time() - began
        refused = looked(lambda: loop.run_until_complete(look_at(host, port)))
        assert refused == Look(accepts=False, is_running=False)


def test_an_unknown_name_is_no_silence() -> None:
    assert asyncio.run(look_at("no-such-host.invalid", 1)) == NOT_ASKED


@pytest.mark.parametrize(
    "first",
    [(socket.AF_INET6, ("::1", 0, 0, 0)), (socket.AF_INET, ("127.0.0.2", 0))],
    ids=["IPv6", "another"],
)
def test_a_name_with_several_addresses_is_asked_where_it_listens(
    monkeypatch: pytest.MonkeyPatch, first: tuple[socket.AddressFamily, tuple[Any, ...]]
) -> None:
    """The first address refused, so a container that was alive counted as dead."""

    def resolve(host: str, port: int, family: int = 0, *_: Any, **__: Any) -> list[Any]:
        found = [
            (kind, (each[0], port, *each[2:])) for kind, each in (first, (socket.AF_INET, ("127.0.0.1", 0)))
        ]
        return [(kind, socket.SOCK_STREAM, 6, "", each) for kind, each in found if family in (0, kind)]

    with closing(listen("127.0.0.1")) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        assert looked(lambda: asyncio.run(look_at("host.example", port))).accepts
    refused = looked(lambda: asyncio.run(look_at("host.example", port)))
    assert refused == Look(accepts=False, is_running=False)
