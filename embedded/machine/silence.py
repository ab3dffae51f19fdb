"""Makes the ports of suspended processes unresponsive, like those of a host whose cable is pulled.

The kernel completes connections to a process that is suspended by SIGSTOP until the listener's queue is full, and
then drops further ones. Therefore the queue is filled. Connections that are closed again stay in the queue until
they are accepted.
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

#: Upper bound of a queue's length: it is limited by `net.core.somaxconn`, which is usually 4,096.
_MOST = 70_000

#: A queue that accepts no connection in this time is full; on one machine accepting takes microseconds.
_FULL_MS = 20

#: Minimum number of consecutive attempts that must find the queue full.
_FULL_TIMES = 12

#: Several listeners may share a port, as those of gRPC do, and a connection goes to a random one. This is the
#: maximum probability that one of the queues is left with room.
_LEFT = 1e-9


def silence(pids: Iterable[int], host: str) -> None:
    """Make the ports on which suspended processes listen at the host's address unresponsive.

    Ports of JVMs come last: a long queue takes a second or two each, and clients connect to our ports.
    """
    listeners = Counter(_listening(pids, host))
    for is_jvm in (False, True):
        ports = {port: count for (of_jvm, port), count in listeners.items() if of_jvm is is_jvm}
        with ThreadPoolExecutor(max_workers=max(1, len(ports))) as pool:
            # In parallel: most of the time is spent waiting.
            list(pool.map(partial(_fill, host), ports, map(full_times, ports.values())))


def full_times(listeners: int) -> int:
    """Return how many consecutive attempts must find a full queue before those of all sharing listeners are full."""
    if listeners < 2:
        return _FULL_TIMES
    return max(_FULL_TIMES, math.ceil(math.log(_LEFT) / math.log(1 - 1 / listeners)))


def _listening(pids: Iterable[int], host: str) -> Iterator[tuple[bool, int]]:
    """Yield for each listener whether its process is a JVM, and its port."""
    # gRPC and Java listen at IPv4 addresses through IPv6 sockets.
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
