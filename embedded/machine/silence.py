"""Makes the ports of suspended processes unresponsive, like those of a host whose cable is pulled.

The kernel completes connections to a process that is suspended by SIGSTOP. Therefore a filter that drops every packet
is attached to each listener, which takes no time. Only root may always do that to another process: elsewhere Yama
(`kernel.yama.ptrace_scope`) may refuse it. Then the listener's queue is filled, beyond which the kernel drops
connections, too: those that are closed again stay in the queue until they are accepted. That takes a quarter of a
second, and longer for a long queue.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import select
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import psutil

#: The number of `pidfd_getfd(2)`, the same on every architecture; Python has no name for it.
_PIDFD_GETFD: Final = 438

#: `SO_ATTACH_FILTER` of Linux; Python has no name for it.
_ATTACH_FILTER: Final = 26

#: `BPF_RET | BPF_K` with 0: of every packet keep no byte.
_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)

#: Upper bound of a queue's length: it is limited by `net.core.somaxconn`, which is usually 4,096.
_MOST: Final = 70_000

#: A queue that accepts no connection in this time is full; on one machine accepting takes microseconds.
_FULL_MS: Final = 20

#: Minimum number of consecutive attempts that must find the queue full.
_FULL_TIMES: Final = 12

#: Several listeners may share a port, as those of gRPC do, and a connection goes to a random one. This is the
#: maximum probability that one of the queues is left with room.
_LEFT: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Listener:
    pid: int
    descriptor: int
    port: int
    is_jvm: bool


def silence(pids: Iterable[int], host: str, *, is_by_filter: bool = True) -> None:
    """Make the ports on which suspended processes listen at the host's address unresponsive.

    Without ``is_by_filter`` their queues are filled, as where filters are refused.
    """
    refused = [each for each in _listening(pids, host) if not (is_by_filter and _is_filtered(each))]
    # Ports of JVMs come last: a long queue takes a second or two each, and clients connect to our ports.
    for is_jvm in (False, True):
        ports = Counter(each.port for each in refused if each.is_jvm is is_jvm)
        with ThreadPoolExecutor(max_workers=max(1, len(ports))) as pool:
            # In parallel: most of the time is spent waiting.
            list(pool.map(partial(_fill, host), ports, map(full_times, ports.values())))


def _is_filtered(listener: _Listener) -> bool:
    """Return whether the listener drops every packet from now on; False if that is refused, or it has ended."""
    try:
        process = os.pidfd_open(listener.pid)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.syscall(_PIDFD_GETFD, process, listener.descriptor, 0)
        finally:
            os.close(process)
        if descriptor < 0:
            return False
        code = ctypes.create_string_buffer(_DROP_ALL)
        with socket.socket(fileno=descriptor) as ours:
            ours.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(code)))
    except OSError:
        return False
    return True


def full_times(listeners: int) -> int:
    """Return how many consecutive attempts must find a full queue before those of all sharing listeners are full."""
    if listeners < 2:
        return _FULL_TIMES
    return max(_FULL_TIMES, math.ceil(math.log(_LEFT) / math.log(1 - 1 / listeners)))


def _listening(pids: Iterable[int], host: str) -> Iterator[_Listener]:
    # gRPC and Java listen at IPv4 addresses through IPv6 sockets.
    own = {host, f"::ffff:{host}"}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            is_jvm = process.name() == "java"
            for each in process.net_connections(kind="tcp"):
                if each.status == psutil.CONN_LISTEN and each.laddr.ip in own:
                    yield _Listener(pid, each.fd, each.laddr.port, is_jvm)


def _fill(host: str, port: int, times: int) -> None:
    full = 0
    for _ in range(_MOST):
        with socket.socket() as client:
            client.setblocking(False)
            said = client.connect_ex((host, port))
            if said not in (0, errno.EINPROGRESS):
                return  # the listener has ended
            full = 0 if said == 0 or _is_connected(client) else full + 1
            if full == times:
                return


def _is_connected(client: socket.socket) -> bool:
    waiting = select.poll()
    waiting.register(client, select.POLLOUT)
    return bool(waiting.poll(_FULL_MS))
