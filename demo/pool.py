"""A pool on this machine: masters and nodes as an operator starts them, on hosts with networks of their own.

ZooKeeper and Kafka are those of an embedded cluster without YARN. The network is `demo.network`'s, which
this process must have entered. A silent host keeps its processes: its link is down, and they notice it by themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from appmaster.adapters.credentials.keyring import keyring_in
from appmaster.adapters.zookeeper.session import ZooKeeper
from demo.command import CLI, ROOT, without_yarn
from demo.network import SERVERS, NetworkHost
from embedded.cluster import LocalCluster
from embedded.machine.processes import (
    CLUSTER_MARK,
    HOST_MARK,
    Owned,
    ProcessIdentity,
    is_alive,
    send_signal,
    start_detached,
)
from embedded.registry import ID_FILE
from embedded.state import ClusterStatus, ContainerProcess, processes_on
from standby.adapters.zookeeper.access import owner_access
from standby.errors import Unavailable

#: The name of the pool's cluster: that of the job, as a job file that names no cluster has it.
CLUSTER: Final = "flights"

#: Hosts with a master each.
MASTERS: Final = 2

_FIRST_HOST: Final = 11
_REGISTERED_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
#: A node hands over what is active there before it ends, for 30 s at most.
_STOPPED_SECONDS: Final = 60.0


class PoolHosts:
    """Hosts of a pool: `demo.hosts.Hosts`, and the nodes of each host."""

    def __init__(self, cluster: LocalCluster, hosts: Mapping[str, NetworkHost], nodes: int) -> None:
        self.name = cluster.name
        self.directory = cluster.directory
        self.hosts = tuple(hosts)
        self.nodes = tuple((host, number) for number in range(1, nodes + 1) for host in hosts)
        """Every node: its host, and its number there."""
        self._cluster = cluster
        self._network = hosts
        self._running: dict[tuple[str, int], ProcessIdentity] = {}
        self._id = (cluster.directory / ID_FILE).read_text(encoding="ascii").strip()
        self._owned = Owned(self._id, {host: self.host_directory(host) for host in hosts})

    @classmethod
    def start(
        cls,
        name: str,
        *,
        hosts: int = 3,
        nodes: int = 2,
        is_temporary: bool = False,
        show: Callable[[str], None] = lambda _: None,
    ) -> PoolHosts:
        """Start ZooKeeper, Kafka, masters, and ``nodes`` on each host; return when all of their processes wait.

        Raises what `LocalCluster.start` raises.
        """
        cluster = LocalCluster.start(name, nodes=0, address=SERVERS, is_temporary=is_temporary, show=show)
        show("making hosts")
        mark = {**os.environ, CLUSTER_MARK: (cluster.directory / ID_FILE).read_text(encoding="ascii").strip()}
        log = cluster.directory / "log" / "hosts.log"
        made = [NetworkHost.make(_FIRST_HOST + number, mark, log) for number in range(hosts)]
        pool = cls(cluster, {each.address: each for each in made}, nodes)
        command = [*CLI, "init", "--cluster", CLUSTER, "--to", str(pool.directory / "etc")]
        done = subprocess.run(
            command, cwd=ROOT, env=pool.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Unavailable(f"standfast init: {done.stdout}{done.stderr}")
        for host in pool.hosts:
            (pool.host_directory(host) / "logs").mkdir(parents=True)
        for host in pool.hosts[:MASTERS]:
            pool._start("master", host, "master")
        for host, number in pool.nodes:
            pool.start_node(host, number)
        show("waiting for the nodes")
        pool._await_waiting(len(pool.nodes))
        return pool

    @property
    def kafka_bootstrap(self) -> str:
        """The ``host:port`` of the Kafka broker."""
        return self._cluster.kafka_bootstrap

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's ``host:port``."""
        return self._cluster.zookeeper_connect

    def environment(self) -> dict[str, str]:
        """Return the whole environment of a client process, which has nothing of YARN."""
        return without_yarn(self._cluster.environment())

    def host_directory(self, host: str) -> Path:
        """Return the directory that is a host's disk."""
        return self.directory / "hosts" / host

    def container_processes(self, host: str | None = None) -> list[ContainerProcess]:
        """Return the processes of one host or of all, oldest first."""
        return processes_on(self._owned, self.hosts if host is None else (host,))

    def status(self) -> ClusterStatus:
        """Return the state of ZooKeeper and Kafka."""
        return self._cluster.status()

    def kill_host(self, host: str, *, silent: bool = False) -> int:
        """Lose a host: silently, that is by its link; else its processes are killed. Return their number."""
        if silent:
            self._network[host].cut()
            return len(self.container_processes(host))
        return self._owned.kill(host)

    def finish_silent(self, host: str) -> int:
        """Leave a silent host alone: its processes have to end by themselves. Return their number."""
        return len(self.container_processes(host))

    def start_host(self, host: str) -> None:
        """Connect a silent host again, with whatever runs there."""
        self._network[host].connect()

    def start_node(self, host: str, number: int) -> None:
        """Start a node."""
        self._running[host, number] = self._start("node", host, f"node-{number}")

    def stop_node(self, host: str, number: int) -> float:
        """Stop a node as planned, by SIGTERM; return how long it took, seconds. Raises `Unavailable`."""
        node = self._running.pop((host, number))
        begin = time.monotonic()
        send_signal(node, signal.SIGTERM)
        while is_alive(node):
            if time.monotonic() > begin + _STOPPED_SECONDS:
                raise Unavailable(
                    f"node {number} on {host} has not ended {_STOPPED_SECONDS:.0f} s after SIGTERM"
                )
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - begin

    def containers_of_node(self, host: str, number: int) -> tuple[str, ...]:
        """Return the container ids of a node's process and of what that has started."""
        node = self._running[host, number]
        with suppress(psutil.NoSuchProcess):
            below = {each.pid for each in psutil.Process(node.pid).children(recursive=True)}
            found = (each.container_id for each in self.container_processes(host) if each.pid in below)
            return tuple(sorted({each for each in found if each}))
        return ()

    def _start(self, what: str, host: str, name: str) -> ProcessIdentity:
        directory = self.host_directory(host)
        options = ["--config", str(self.directory / "etc"), "--host", host, "--state", str(directory / name)]
        return start_detached(
            [*self._network[host].inside, *CLI, what, *options],
            environment={**self.environment(), CLUSTER_MARK: self._id, HOST_MARK: host},
            directory=directory,
            log=directory / "logs" / f"{name}.log",
        )

    def _await_waiting(self, count: int) -> None:
        """Wait until so many processes are registered in the pool; raises `Unavailable`."""
        ring = keyring_in(Path(self.environment()["STANDFAST_CREDENTIALS"]) / CLUSTER, CLUSTER)
        deadline = time.monotonic() + _REGISTERED_SECONDS
        with ZooKeeper(self.zookeeper_connect, CLUSTER, access=owner_access(ring.secret)) as zookeeper:
            while (found := len(zookeeper.pool.names())) < count:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"{found} of {count} processes wait in the pool: see {self.directory / 'hosts'}"
                    )
                time.sleep(_LOOK_SECONDS)
