"""Hosts with networks of their own on this machine: Linux network namespaces that a bridge connects.

All of them are in a network namespace of this program's own (`enter`). The rest of the machine sees nothing of it, and
it is gone when its last process has ended. A host whose link is down answers nothing and closes nothing, like one
whose cable is pulled.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embedded.machine.processes import ProcessIdentity, is_alive, start_detached
from standby.errors import Unavailable

#: The address at which what is on no host is reached.
SERVERS: Final = "10.77.0.1"

_PREFIX: Final = "10.77.0."
_BRIDGE: Final = "standfast"
_TOOLS: Final = ("ip", "nsenter", "unshare")
#: Without root, a user namespace of its own gives the rights.
_WAYS: Final = (("unshare", "--net"), ("unshare", "--net", "--user", "--map-root-user"))
_FURNISH: Final = (
    f"ip link set lo up && ip link add {_BRIDGE} type bridge && ip address add {SERVERS}/24 dev {_BRIDGE} && "
    f'ip link set {_BRIDGE} up && exec "$@"'
)
_SECONDS: Final = 10.0


def enter(arguments: Sequence[str]) -> None:
    """Start this program again, with these arguments of Python, in a new network; return if it is in one already.

    It has loopback and a bridge for hosts, nothing else. Raises `Unavailable` if this machine permits none.
    """
    if _BRIDGE in (name for _, name in socket.if_nameindex()):
        return
    way = _way()
    os.execvp(way[0], [*way, "sh", "-c", _FURNISH, "sh", sys.executable, *arguments])


def _way() -> tuple[str, ...]:
    missing = [each for each in _TOOLS if shutil.which(each) is None]
    if missing:
        raise Unavailable(
            f"{', '.join(missing)}: not on the PATH (Debian: iproute2 and util-linux have them)"
        )
    said = ""
    for way in _WAYS:
        tried = subprocess.run([*way, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return way
        said = tried.stderr.strip()
    raise Unavailable(f"this machine permits no network namespace, neither to root nor to a user ({said})")


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """A host with a network of its own, for as long as its holder lives."""

    number: int
    holder: ProcessIdentity
    """A process that does nothing but keep the host's network."""

    @classmethod
    def make(cls, number: int, environment: Mapping[str, str], log: Path) -> NetworkHost:
        """Return a new host that the others reach; ``environment`` marks its holder. Raises `Unavailable`."""
        sleep = ["unshare", "--net", "sleep", "infinity"]
        holder = start_detached(sleep, environment=environment, directory=log.parent, log=log)
        host = cls(number, holder)
        deadline = time.monotonic() + _SECONDS
        while host._network() in ("", str(Path("/proc/self/ns/net").readlink())):
            if not is_alive(holder) or time.monotonic() > deadline:
                raise Unavailable(f"the host {host.address} got no network: see {log}")
            time.sleep(0.01)
        pair = ["type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)]
        _ip("link", "add", host._link, *pair)
        _ip("link", "set", host._link, "master", _BRIDGE, "up")
        for arguments in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{host.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            _run([*host.inside, "ip", *arguments])
        return host

    @property
    def address(self) -> str:
        """Return the address by which the others reach it."""
        return f"{_PREFIX}{self.number}"

    @property
    def inside(self) -> tuple[str, ...]:
        """Return the begin of a command that runs there."""
        return ("nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--")

    def cut(self) -> None:
        """Take its link down: whatever is on its way is lost."""
        _ip("link", "set", self._link, "down")

    def connect(self) -> None:
        """Bring its link up again."""
        _ip("link", "set", self._link, "up")

    @property
    def _link(self) -> str:
        return f"host{self.number}"

    def _network(self) -> str:
        try:
            return str(Path(f"/proc/{self.holder.pid}/ns/net").readlink())
        except OSError:
            return ""


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
