"""The embedded cluster: ZooKeeper, Kafka and YARN, each server a process, each host an address of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from embedded import probes
from embedded.jars.cache import open_cache
from embedded.java import Java, find_java
from embedded.machine.aliases import alias
from embedded.machine.processes import (
    CLUSTER_MARK,
    Owned,
    ProcessIdentity,
    boot_id,
    is_alive,
    process_info,
    send_signal,
    start_detached,
    uptime_seconds,
)
from embedded.registry import (
    ID_FILE,
    PATIENCE_SECONDS,
    cluster_directory,
    locked,
    remove,
    remove_leftover,
)
from embedded.servers import (
    LOOPBACK,
    RESOURCE_MANAGER,
    ZOOKEEPER,
    Blueprint,
    Launch,
    choose_ports,
    kafka_brokers,
    node_manager,
)
from embedded.state import (
    ClusterState,
    ClusterStatus,
    ContainerProcess,
    HostStatus,
    ServerStatus,
    load,
    processes_on,
    save,
)
from standby.errors import BadConfiguration, Unavailable

#: Default resources that one host offers to YARN.
HOST_MEMORY_MB: Final = 8192
HOST_VCORES: Final = 32

#: How long a server may take to start, on a machine that is busy with other work.
START_SECONDS: Final = 120.0

#: How long a killed server may take to end.
_DEATH_SECONDS: Final = 20.0

_JAR_SETS: Final = ("hadoop", "kafka", "kafka-tools", "zookeeper")
_WITHOUT_YARN: Final = ("kafka", "kafka-tools", "zookeeper")
_FIRST_HOST: Final = 11
_MOST_HOSTS: Final = 200
_BROKERS: Final = (0, 1, 3, 4, 5)


def _silent(_: str) -> None:
    """Show nothing."""


class LocalCluster:
    """A cluster on this machine's loopback interface.

    It outlives the process that started it. :meth:`down` ends it, from any process; a context manager ends it with
    the block. Every method may be called from several processes; changes are made one at a time.
    """

    def __init__(self, directory: Path, state: ClusterState, environment: Mapping[str, str]) -> None:
        self.name = state.name
        self.directory = directory
        self.hosts = state.hosts
        self._state = state
        self._environment = environment
        self._owned = Owned(state.cluster_id, {host: directory / "hosts" / host for host in state.hosts})

    @classmethod
    def start(
        cls,
        name: str = "default",
        *,
        nodes: int = 3,
        brokers: int = 1,
        has_zookeeper: bool = True,
        host_memory_mb: int = HOST_MEMORY_MB,
        host_vcores: int = HOST_VCORES,
        address: str = LOOPBACK,
        is_temporary: bool = False,
        environment: Mapping[str, str] = os.environ,
        show: Callable[[str], None] = _silent,
        timeout_seconds: float = START_SECONDS,
    ) -> LocalCluster:
        """Start the servers, wait until all of them serve, and return the cluster.

        With ``nodes=0`` there are ZooKeeper and Kafka only, which listen at ``address``; one of them is left out with
        ``brokers=0``, or without ``has_zookeeper``.
        Anything that an earlier start under that name left behind is removed. A temporary cluster whose starter has
        ended counts as left behind, see :func:`end_abandoned`. Raises :class:`BadConfiguration` for a bad argument
        and if the cluster is up, and :class:`Unavailable` if a server does not start; then nothing is left behind.
        """
        directory = cluster_directory(name, environment)
        if not 0 <= nodes <= _MOST_HOSTS:
            raise BadConfiguration(
                f"nodes is {nodes}; it can be 1 to {_MOST_HOSTS}, or 0 for ZooKeeper and Kafka without YARN"
            )
        if brokers not in _BROKERS:
            raise BadConfiguration(
                f"brokers is {brokers}; it can be {', '.join(map(str, _BROKERS[1:]))}: with two, neither may fail"
            )
        java = find_java(environment)
        cache = open_cache(environment)
        cache.require(*(_JAR_SETS if nodes else _WITHOUT_YARN), show=show)
        with locked(directory):
            remove_leftover(directory, name)
            hosts = tuple(f"127.0.0.{_FIRST_HOST + number}" for number in range(nodes))
            own = process_info(os.getpid())
            assert own is not None
            state = ClusterState(
                name=name,
                cluster_id=str(uuid.uuid4()),
                boot_id=boot_id(),
                owner=own.identity,
                is_temporary=is_temporary,
                hosts=hosts,
                host_memory_mb=host_memory_mb,
                host_vcores=host_vcores,
                ports=choose_ports(hosts, brokers, address),
                brokers=brokers,
                has_zookeeper=has_zookeeper,
                address=address,
            )
            try:
                directory.mkdir(parents=True)
                # Written first: this file is enough for `down` to find every process.
                (directory / ID_FILE).write_text(state.cluster_id, encoding="ascii")
            except OSError as error:
                raise Unavailable(f"{directory} cannot be written: {error.strerror}") from error
            cluster = cls(directory, state, environment)
            try:
                cluster._save()
                blueprint = cluster._blueprint(java_home=str(java.home))
                blueprint.write_client()
                blueprint.write_kafka_tools()
                cluster._start_all(blueprint, show, timeout_seconds)
                cluster._save(is_complete=True)
            except BaseException:
                remove(directory)
                raise
        return cluster

    @classmethod
    def attach(cls, name: str = "default", *, environment: Mapping[str, str] = os.environ) -> LocalCluster:
        """Return the started cluster of that name. Raises :class:`BadConfiguration` if there is none."""
        directory = cluster_directory(name, environment)
        state = load(directory)
        if state is None or state.boot_id != boot_id():
            raise BadConfiguration(
                f"there is no embedded cluster {name!r}: `standfast local up --name {name}` starts one, and `standfast "
                f"run --name {name}` has one for as long as it runs"
            )
        return cls(directory, state, environment)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.down()

    @property
    def kafka_bootstrap(self) -> str:
        """The ``host:port`` of every Kafka broker, separated by commas."""
        return ",".join(map(self._kafka_address, self.brokers))

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the servers that are Kafka brokers, in the order of their ids, from 1."""
        return kafka_brokers(self._state.brokers)

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's ``host:port``."""
        return f"{self._state.address}:{self._state.ports[f'{ZOOKEEPER}.client']}"

    @property
    def resource_manager_url(self) -> str:
        """The URL of the ResourceManager's web page and REST interface."""
        return f"http://{LOOPBACK}:{self._state.ports[f'{RESOURCE_MANAGER}.web']}"

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of all servers."""
        return (*self._zookeeper, *self.brokers, *self._yarn)

    @property
    def _zookeeper(self) -> tuple[str, ...]:
        return (ZOOKEEPER,) if self._state.has_zookeeper else ()

    @property
    def _yarn(self) -> tuple[str, ...]:
        """The names of YARN's servers; without hosts there are none."""
        return (RESOURCE_MANAGER, *map(node_manager, self.hosts)) if self.hosts else ()

    def additional_environment(self) -> dict[str, str]:
        """Return the variables that a client of the cluster needs; ``PATH`` is only the entry to prepend."""
        client = self.directory / "client"
        servers = {
            **({"STANDFAST_KAFKA": self.kafka_bootstrap} if self.brokers else {}),
            **({"STANDFAST_ZOOKEEPER": self.zookeeper_connect} if self._zookeeper else {}),
        }
        return {
            **servers,
            "HADOOP_CONF_DIR": str(client / "conf"),
            "JAVA_HOME": str(find_java(self._environment).home),
            # By default in the home directory; here the file is removed with the embedded cluster.
            "STANDFAST_CREDENTIALS": str(client / "credentials"),
            # Below the cluster's own directory, so it is removed with the cluster; its paths include the hosts'
            # names.
            "STANDFAST_STATE_DIR": str(self.state_directory),
            "PATH": str(client / "bin"),
        }

    @property
    def mark(self) -> dict[str, str]:
        """The variables of a process that `down` is to end, with all that it starts."""
        return {CLUSTER_MARK: self._state.cluster_id}

    def environment(self) -> dict[str, str]:
        """Return the whole environment of a client process of the cluster."""
        additional = self.additional_environment()
        path = os.pathsep.join(filter(None, (additional["PATH"], self._environment.get("PATH", os.defpath))))
        return {**self._environment, **additional, "PATH": path}

    def host_directory(self, host: str) -> Path:
        """Return the directory that is a host's disk."""
        return self.directory / "hosts" / self._known(host)

    @property
    def state_directory(self) -> Path:
        """The default directory of jobs' state, for all hosts."""
        return self.directory / "state"

    def log(self, server: str) -> Path:
        """Return a server's log file. Raises :class:`BadConfiguration` for an unknown name."""
        if server not in self.servers:
            raise BadConfiguration(f"there is no server {server!r}; there are {', '.join(self.servers)}")
        return self.directory / "log" / f"{server}.log"

    def container_processes(self, host: str | None = None) -> list[ContainerProcess]:
        """Return the processes inside containers, of one host or of all, oldest first."""
        self._refresh()
        hosts = self.hosts if host is None else (self._known(host),)
        return processes_on(self._owned, hosts, frozenset(self._state.servers.values()))

    def kill_host(self, host: str, *, silent: bool = False) -> int:
        """Kill a host: its NodeManager and every process that it started; return the number of processes.

        Silent: they are suspended with SIGSTOP and their ports do not answer, as when a cable is pulled. A second
        call, :meth:`finish_silent`, :meth:`start_host` or :meth:`down` then kills them.
        """
        self._known(host)
        with self._changing():
            # The NodeManager first: if the containers died before it, it would report their ends.
            server = self._state.servers.get(node_manager(host))
            first = [server] if server is not None else []
            if silent:
                return self._owned.stop(host, first=first)
            return self._owned.kill(host, first=first)

    def finish_silent(self, host: str) -> int:
        """Kill the processes that a silent kill suspended; return their number."""
        return self.kill_host(host)

    def start_host(self, host: str, *, timeout_seconds: float = START_SECONDS) -> None:
        """Start a killed host again, with the state of jobs on its disk unchanged; wait until YARN lists it.

        Raises :class:`BadConfiguration` if it is running.
        """
        server = node_manager(self._known(host))
        with self._changing():
            identity = self._state.servers.get(server)
            process = process_info(identity.pid) if identity and is_alive(identity) else None
            if process is not None and not process.is_stopped:
                raise BadConfiguration(f"the host {host} runs: standfast local kill-host {host}")
            self._owned.kill(host)
            # A NodeManager without recovery does this itself, but in the background and after its registration.
            shutil.rmtree(self.host_directory(host) / "local", ignore_errors=True)
            try:
                before = probes.nodes(self.resource_manager_url).get(host)
            except OSError as error:
                raise Unavailable(f"the ResourceManager does not answer: {error}") from error
            self._launch(server, self._blueprint().node_manager(host))

        def has_come(nodes: Mapping[str, probes.YarnNode]) -> bool:
            node = nodes.get(host)
            # If YARN has not noticed the failure yet, it still lists the old NodeManager's page.
            is_new = before is None or (node is not None and node.web_address != before.web_address)
            return node is not None and node.state == "RUNNING" and is_new

        self._wait(
            (server,),
            lambda patience: probes.yarn(self.resource_manager_url, has_come, patience),
            timeout_seconds,
            threading.Event(),
        )

    def stop_server(self, server: str) -> None:
        """Kill a server, as when its machine fails. Raises :class:`BadConfiguration` for an unknown name."""
        self.log(server)
        with self._changing():
            identity = self._state.servers.get(server)
            if identity is None or not send_signal(identity, signal.SIGKILL):
                return
            deadline = time.monotonic() + _DEATH_SECONDS
            while is_alive(identity):
                if time.monotonic() > deadline:
                    raise Unavailable(f"the process {identity.pid} does not react to SIGKILL")
                time.sleep(0.005)

    def start_server(self, server: str, *, timeout_seconds: float = START_SECONDS) -> None:
        """Start a stopped server with its existing disk, and wait until it serves.

        Raises :class:`BadConfiguration` for an unknown name, for a NodeManager (see :meth:`start_host`), and if the
        server is running.
        """
        launches: dict[str, Callable[[Blueprint], Launch]] = {
            ZOOKEEPER: Blueprint.zookeeper,
            RESOURCE_MANAGER: Blueprint.resource_manager,
            **{name: partial(Blueprint.kafka, number=each) for each, name in enumerate(self.brokers, 1)},
        }
        self.log(server)
        if server not in launches:
            raise BadConfiguration(f"{server} is started with its host: standfast local start-host")
        with self._changing():
            if server in self._servers_alive():
                raise BadConfiguration(f"{server} runs")
            self._launch(server, launches[server](self._blueprint()))
        self._wait((server,), self._probe(server), timeout_seconds, threading.Event())

    def status(self) -> ClusterStatus:
        """Return the state of every server and host."""
        self._refresh()
        try:
            nodes = probes.nodes(self.resource_manager_url) if self.hosts else {}
        except OSError:
            nodes = {}
        servers = {name: self._server_status(name) for name in self.servers}
        hosts: list[HostStatus] = []
        for host in self.hosts:
            node = nodes.get(host)
            processes = self.container_processes(host)
            hosts.append(
                HostStatus(
                    host=host,
                    state=servers[node_manager(host)].state,
                    yarn_state=node.state if node else "UNKNOWN",
                    containers=len({each.container_id for each in processes if each.container_id}),
                    container_processes=len(processes),
                    container_memory_bytes=sum(each.memory_bytes for each in processes),
                )
            )
        return ClusterStatus(self.name, str(self.directory), tuple(servers.values()), tuple(hosts))

    def down(self) -> None:
        """End every process of the cluster and remove its directory; no error if the cluster is already gone."""
        with locked(self.directory, PATIENCE_SECONDS):
            remove(self.directory)

    def _start_all(self, blueprint: Blueprint, show: Callable[[str], None], timeout_seconds: float) -> None:
        if self.hosts:
            self._launch(RESOURCE_MANAGER, blueprint.resource_manager())
        for host in self.hosts:
            self._launch(node_manager(host), blueprint.node_manager(host))
        if self._zookeeper:
            self._launch(ZOOKEEPER, blueprint.zookeeper())
        # Last, since their disks must be formatted first.
        with ThreadPoolExecutor(max_workers=max(1, len(self.brokers))) as pool:
            launches = pool.map(blueprint.kafka, range(1, len(self.brokers) + 1))
            for name, launch in zip(self.brokers, launches, strict=True):
                self._launch(name, launch)
        kinds = {ZOOKEEPER: self._zookeeper, "kafka": self.brokers, "yarn": self._yarn}
        waiting = {name: servers for name, servers in kinds.items() if servers}
        cancelled = threading.Event()
        with ThreadPoolExecutor(max_workers=len(waiting)) as pool:
            names = {
                pool.submit(self._wait, servers, self._probe(*servers), timeout_seconds, cancelled): name
                for name, servers in waiting.items()
            }
            left = set(names)
            try:
                while left:
                    show(f"waiting for {', '.join(name for each, name in names.items() if each in left)}")
                    done, left = wait(left, 0.05, FIRST_EXCEPTION)
                    for each in done:
                        each.result()
            finally:
                cancelled.set()

    def _probe(self, *servers: str) -> Callable[[probes.Patience], None]:
        """Return a function that waits until servers of one kind serve."""
        if servers[0] == ZOOKEEPER:
            return lambda patience: probes.zookeeper(self.zookeeper_connect, patience)
        if servers[0] in self.brokers:
            addresses = ",".join(map(self._kafka_address, servers))
            return lambda patience: probes.kafka(addresses, patience)
        alive = [host for host in self.hosts if node_manager(host) in self._servers_alive()]

        def all_run(nodes: Mapping[str, probes.YarnNode]) -> bool:
            return all(host in nodes and nodes[host].state == "RUNNING" for host in alive)

        return lambda patience: probes.yarn(self.resource_manager_url, all_run, patience)

    def _wait(
        self,
        servers: tuple[str, ...],
        probe: Callable[[probes.Patience], None],
        timeout_seconds: float,
        cancelled: threading.Event,
    ) -> None:
        def check() -> None:
            for server in servers:
                if not is_alive(self._state.servers[server]):
                    raise Unavailable(f"{server} ended while it was starting.\n{self._tail(server)}")

        try:
            probe(probes.Patience(time.monotonic() + timeout_seconds, check, cancelled))
        except TimeoutError as error:
            raise Unavailable(
                f"{servers[0]} does not serve after {timeout_seconds:.0f} s.\n{self._tail(servers[0])}"
            ) from error

    def _tail(self, server: str, lines: int = 15) -> str:
        try:
            text = self.log(server).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "It has no log."
        return "The end of its log:\n" + "\n".join(f"  {line}" for line in text.splitlines()[-lines:])

    def _launch(self, server: str, launch: Launch) -> None:
        log = self.log(server)
        log.parent.mkdir(exist_ok=True)
        identity = start_detached(
            launch.arguments, environment=launch.environment, directory=launch.directory, log=log
        )
        self._save(servers={**self._state.servers, server: identity})

    def _servers_alive(self) -> dict[str, ProcessIdentity]:
        return {name: identity for name, identity in self._state.servers.items() if is_alive(identity)}

    def _server_status(self, server: str) -> ServerStatus:
        ports = {
            name.removeprefix(f"{server}."): number
            for name, number in self._state.ports.items()
            if name.startswith(f"{server}.")
        }
        identity = self._state.servers.get(server)
        process = process_info(identity.pid) if identity and is_alive(identity) else None
        if process is None:
            return ServerStatus(server, "dead", None, ports, 0, 0.0)
        return ServerStatus(
            name=server,
            state="stopped" if process.is_stopped else "running",
            pid=process.pid,
            ports=ports,
            memory_bytes=process.memory_bytes,
            uptime_seconds=round(uptime_seconds(process.identity), 1),
        )

    def _blueprint(self, java_home: str = "") -> Blueprint:
        environment = {**self._environment, "JAVA_HOME": java_home} if java_home else self._environment
        cache = open_cache(environment)
        java = find_java(environment)
        plain = partial(alias, self._state.cluster_id)
        return Blueprint(
            directory=plain("cluster", self.directory),
            cluster_id=self._state.cluster_id,
            java=Java(plain("java", java.home), java.release),
            jars={name: plain(name, cache.path(name)) for name in _JAR_SETS},
            ports=self._state.ports,
            host_memory_mb=self._state.host_memory_mb,
            host_vcores=self._state.host_vcores,
            environment=self._environment,
            brokers=self._state.brokers,
            address=self._state.address,
        )

    def _kafka_address(self, broker: str) -> str:
        return f"{self._state.address}:{self._state.ports[f'{broker}.broker']}"

    def _known(self, host: str) -> str:
        if host not in self.hosts:
            raise BadConfiguration(f"there is no host {host!r}; there are {', '.join(self.hosts)}")
        return host

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with locked(self.directory, PATIENCE_SECONDS):
            self._refresh()
            yield

    def _refresh(self) -> None:
        state = load(self.directory)
        if state is None or state.cluster_id != self._state.cluster_id:
            raise BadConfiguration(f"the embedded cluster {self.name!r} no longer exists")
        self._state = state

    def _save(self, **changes: object) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        save(self.directory, self._state)
