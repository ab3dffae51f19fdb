"""Several ZooKeeper servers on loopback that form one ensemble, for tests that damage it.

They are children of the process that starts them, in its directory, and end with the block.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from kazoo.client import KazooClient

from embedded import probes
from embedded.machine.ports import free_ports
from embedded.servers import LOOPBACK, ZOOKEEPER, Launch
from standby.errors import Unavailable
from tests.patience import PATIENCE_SECONDS, TRY_SECONDS
from tests.servers.own import Started, check_lives, own_blueprint, start_child


class Ensemble(Started):
    """``size`` servers, numbered from 1."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        self.numbers = tuple(range(1, size + 1))
        ports = free_ports(3 * size)
        self._ports = dict(zip(self.numbers, ports, strict=False))
        members = "".join(
            f"server.{number}={LOOPBACK}:{peers}:{election}\n"
            for number, peers, election in zip(
                self.numbers, ports[size : 2 * size], ports[2 * size :], strict=True
            )
        )
        self._directory = directory
        self._launches: dict[int, Launch] = {}
        for number, port in self._ports.items():
            own = directory / str(number)
            data = own / ZOOKEEPER / "data"
            data.mkdir(parents=True)
            (data / "myid").write_text(f"{number}\n", encoding="ascii")
            blueprint = own_blueprint(own, ZOOKEEPER, {f"{ZOOKEEPER}.client": port})
            # So many ticks may a follower take to join, and to answer.
            self._launches[number] = blueprint.zookeeper(f"initLimit=20\nsyncLimit=4\n{members}")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def connect(self) -> str:
        """The connect string of all servers."""
        return ",".join(self.address(each) for each in self.numbers)

    def address(self, number: int) -> str:
        """Return one server's ``host:port`` for clients."""
        return f"{LOOPBACK}:{self._ports[number]}"

    def start(self, *numbers: int) -> None:
        """Start servers, all of those that do not run unless some are named; return when the ensemble serves."""
        for number in numbers or [each for each in self.numbers if each not in self._processes]:
            launch = self._launches[number]
            self._processes[number] = start_child(launch, self._directory / f"{number}.log")
        self.await_service()

    def await_service(self) -> None:
        """Return when every server that runs is part of the ensemble, and serves."""
        patience = probes.Patience(time.monotonic() + PATIENCE_SECONDS, self._check, threading.Event())
        for each in self._processes:
            probes.zookeeper(self.address(each), patience)

    def mode(self, number: int) -> str:
        """Return what a server is: ``leader``, ``follower``, or nothing while it does not serve."""
        said = self._ask(number, b"srvr")
        found = [line.partition(": ")[2] for line in said.splitlines() if line.startswith("Mode: ")]
        return found[0] if found else ""

    def leader(self) -> int:
        """Return the number of the server that leads the ensemble; raises `Unavailable` when none does."""
        for each in self._processes:
            if self.mode(each) == "leader":
                return each
        raise Unavailable("no server leads the ensemble")

    def follower(self) -> int:
        """Return the number of a server that follows; raises `Unavailable` when none does."""
        for each in self._processes:
            if self.mode(each) == "follower":
                return each
        raise Unavailable("no server follows")

    def server_of(self, session: int, but: int = 0) -> int:
        """Return the number of the server that a session is connected to; raises `Unavailable` when it is to none.

        ``but``: a server that is not asked, as it would not answer.
        """
        for each in self._processes:
            if each != but and f"sid=0x{session:x}," in self._ask(each, b"cons"):
                return each
        raise Unavailable(f"session 0x{session:x} is connected to no server")

    def client(self) -> KazooClient:
        """Return a started client."""
        client = KazooClient(self.connect, timeout=10)
        client.start(timeout=PATIENCE_SECONDS)
        return client

    def kill(self, *numbers: int) -> None:
        """End servers at once, all of them unless some are named; what they wrote stays."""
        for number in numbers or tuple(self._processes):
            process = self._processes.pop(number)
            process.kill()
            process.wait()

    def pause(self, *numbers: int) -> None:
        """Hold servers by SIGSTOP, all of them unless some are named: connections stay open, nothing answers."""
        for number in numbers or tuple(self._processes):
            self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, *numbers: int) -> None:
        """Let servers go on that `pause` holds."""
        for number in numbers or tuple(self._processes):
            self._processes[number].send_signal(signal.SIGCONT)

    def _check(self) -> None:
        for number, process in self._processes.items():
            check_lives(process, f"ZooKeeper server {number}", self._directory / f"{number}.log")

    def _ask(self, number: int, word: bytes) -> str:
        """Return what a server says to one of ZooKeeper's four-letter words; nothing when it does not answer."""
        try:
            with socket.create_connection((LOOPBACK, self._ports[number]), timeout=TRY_SECONDS) as connection:
                connection.sendall(word)
                said = b""
                while piece := connection.recv(4096):
                    said += piece
                return said.decode(errors="replace")
        except OSError:
            return ""
