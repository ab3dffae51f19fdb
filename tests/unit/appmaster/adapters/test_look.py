"""A look at a port by a process that is short of processor time; the rest is in test_control_streams."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

from appmaster.adapters.look import _CONNECT_SECONDS, NOT_ASKED, Look, look_at


def test_an_answer_that_is_heard_too_late_is_an_answer() -> None:
    async def starved(host: str, port: int) -> Look:
        looking = asyncio.create_task(look_at(host, port))
        while not any(thread.name.startswith("asyncio") for thread in threading.enumerate()):
            await asyncio.sleep(0)  # its name is being resolved
        for _ in range(50):
            # Longer than a connection is waited for, whatever the look has come to.
            time.sleep(1.2 * _CONNECT_SECONDS)
            await asyncio.sleep(0)
            if looking.done():
                break
        return await looking

    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert asyncio.run(starved(*listening.getsockname())) == Look(is_running=False)
        port = listening.getsockname()[1]
    assert asyncio.run(starved("127.0.0.1", port)) == Look(accepts=False, is_running=False)


def test_a_name_that_nobody_knows_is_nobodys_silence() -> None:
    assert asyncio.run(look_at("no-such-host.invalid", 1)) == NOT_ASKED
