"""Ports that answer nobody: what is left of a host whose cable is pulled.

The kernel answers for a process that SIGSTOP holds, and accepts connections in its name. It drops what comes once a
listener's queue is full; so the queue is filled. Connections that are closed again stay in it until they are accepted.
"""

from __future__ import annotations

import contextlib
import errno
import math
import select
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil

#: No queue is longer: `net.core.somaxconn` bounds them, which is 4,096 as a rule.
_MOST = 70_000

#: A queue that takes no connection in this time is full: on one machine it takes microseconds.
_FULL_MS = 20

#: So often in a row a full queue has to be met, at least.
_FULL_TIMES = 12

#: Several listeners may share a port, as gRPC's do, and it is for chance which one gets a connection. No more than this
#: is the chance that one of them is left with room.
_LEFT = 1e-9


def silence(pids: Iterable[int], host: str) -> None:
    """Have the ports of processes that are held answer nobody any more, as far as they listen at the host's address.

    Those of JVMs come last: it takes a second or two for each that has a long queue, and ours are who is asked.
    """
    listeners = Counter(_listening(pids, host))
    for is_jvm in (False, True):
        ports = {port: count for (of_jvm, port), count in listeners.items() if of_jvm is is_jvm}
        with ThreadPoolExecutor(max_workers=max(1, len(ports))) as pool:
            # At once: each is waited for most of the time.
            list(pool.map(partial(_fill, host), ports, map(full_times, ports.values())))


def full_times(listeners: int) -> int:
    """Return how often in a row a full queue has to be met, so that those of all who share a port are full."""
    if listeners < 2:
        return _FULL_TIMES
    return max(_FULL_TIMES, math.ceil(math.log(_LEFT) / math.log(1 - 1 / listeners)))


def _listening(pids: Iterable[int], host: str) -> Iterator[tuple[bool, int]]:
    """Yield whether a JVM listens, and where, for each listener."""
    # gRPC and Java listen at IPv4 addresses by IPv6.
    own = {host, f"::ffff:{host}"}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            is_jvm = process.name() == "java"
            for each in process.net_connections(kind="tcp"):
                if each.status == psutil.CONN_LISTEN and each.laddr.ip in own:
                    yield is_jvm, each.laddr.port


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
