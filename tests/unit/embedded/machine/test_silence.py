"""Ports that do not answer although the kernel would accept in a held process's name."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from appmaster.leadership.port_probe import probe
from appmaster.leadership.suspicion import PortAnswer
from embedded.machine.silence import full_times, silence

HOST = "127.0.0.77"


@pytest.mark.parametrize("is_by_filter", [True, False])
@pytest.mark.parametrize(("family", "listeners"), [(socket.AF_INET6, 1), (socket.AF_INET, 3)])
def test_silenced_port_does_not_answer(
    family: socket.AddressFamily, listeners: int, is_by_filter: bool
) -> None:
    with contextlib.ExitStack() as open_ones:
        port = 0
        for _ in range(listeners):
            each = open_ones.enter_context(socket.socket(family))
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind((HOST if family == socket.AF_INET else f"::ffff:{HOST}", port))
            each.listen(5)
            port = each.getsockname()[1]
        elsewhere = open_ones.enter_context(socket.create_server(("127.0.0.78", 0)))
        assert probe(HOST, port) is PortAnswer.ACCEPTED
        silence([os.getpid()], HOST, is_by_filter=is_by_filter)
        assert {probe(HOST, port, 0.05) for _ in range(10)} == {PortAnswer.NONE}
        assert probe(*elsewhere.getsockname()) is PortAnswer.ACCEPTED


def test_no_listener_of_a_shared_port_is_left_with_room() -> None:
    """With room at one of them only, a connection meets a full one all the same, most of the time."""
    for listeners in range(2, 9):
        assert (1 - 1 / listeners) ** full_times(listeners) <= 1e-9, listeners


def test_process_that_has_ended_is_passed_over() -> None:
    silence([0x7FFFFFF0], HOST)
