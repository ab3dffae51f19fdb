"""YARN's own MiniYARNCluster: ResourceManager and NodeManagers in one JVM, for tests in which no host dies.

It is lighter than :class:`embedded.cluster.LocalCluster`, whose hosts are processes, and has neither Kafka
nor ZooKeeper. The JVM runs py4j's gateway server, through which the cluster is made and started: no Java of
ours is in it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from embedded.jars.cache import open_cache
from embedded.jars.ivy import pyspark_jar
from embedded.java import LEAN, find_java
from embedded.machine.processes import CLUSTER_MARK, boot_id, process_info
from embedded.places import yarn_conf
from embedded.registry import ID_FILE, cluster_directory, locked, remove, remove_leftover
from embedded.servers import PORTS, RESOURCE_MANAGER, Blueprint
from embedded.state import ClusterState, save
from embedded.templates import render_hadoop
from embedded.web import open_url
from standby.errors import BadConfiguration, Unavailable
from tests.patience import PATIENCE_SECONDS, looks

HOST_MEMORY_MB: Final = 4096
HOST_VCORES: Final = 32

_HOST: Final = "localhost"
_JAR_SETS: Final = ("hadoop", "miniyarn")

#: The settings that say where the ResourceManager listens, by the name of the port in our templates.
_ADDRESSES: Final = {
    "client": "yarn.resourcemanager.address",
    "scheduler": "yarn.resourcemanager.scheduler.address",
    "tracker": "yarn.resourcemanager.resource-tracker.address",
    "admin": "yarn.resourcemanager.admin.address",
    "web": "yarn.resourcemanager.webapp.address",
}


@dataclass(frozen=True, slots=True)
class MiniYarn:
    """A running MiniYARNCluster. It ends with :meth:`down`, and with the process that started it."""

    name: str
    directory: Path
    #: ``host:port`` of each NodeManager, which is its name in requests.
    nodes: tuple[str, ...]
    resource_manager_url: str
    _blueprint: Blueprint
    _java: subprocess.Popen[str]

    @classmethod
    def start(
        cls,
        name: str = "mini",
        *,
        nodes: int = 2,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> MiniYarn:
        """Start the JVM, wait until every NodeManager runs, and return the cluster.

        Raises :class:`BadConfiguration` when a cluster of that name is up, and :class:`Unavailable` when this
        one does not start.
        """
        environment = os.environ if environment is None else environment
        if nodes < 1:
            raise BadConfiguration(f"nodes is {nodes}; it has to be 1 or more")
        cache = open_cache(environment)
        cache.require(*_JAR_SETS)
        directory = cluster_directory(name, environment)
        blueprint = Blueprint(
            directory=directory,
            cluster_id=str(uuid.uuid4()),
            java=find_java(environment),
            jars={each: cache.path(each) for each in _JAR_SETS},
            ports={f"{RESOURCE_MANAGER}.{each}": 0 for each in PORTS[RESOURCE_MANAGER]},
            host_memory_mb=HOST_MEMORY_MB,
            host_vcores=HOST_VCORES,
            environment=environment,
        )
        with locked(directory):
            remove_leftover(directory, name)
            directory.mkdir(parents=True)
            (directory / ID_FILE).write_text(blueprint.cluster_id, encoding="ascii")
            java: subprocess.Popen[str] | None = None
            try:
                java, gateway = _start_java(blueprint)
                _note(blueprint, name, java)
                ports = _start_yarn(gateway, directory, nodes)
                blueprint = Blueprint(
                    directory=directory,
                    cluster_id=blueprint.cluster_id,
                    java=blueprint.java,
                    jars=blueprint.jars,
                    ports=ports,
                    host_memory_mb=HOST_MEMORY_MB,
                    host_vcores=HOST_VCORES,
                    environment=environment,
                    resource_manager_host=_HOST,
                )
                blueprint.write_client()
                url = f"http://{_HOST}:{ports[f'{RESOURCE_MANAGER}.web']}"
                return cls(name, directory, _await_nodes(url, nodes, timeout_seconds), url, blueprint, java)
            except BaseException:
                if java is not None:
                    _end_java(java)
                remove(directory)
                raise

    def __enter__(self) -> MiniYarn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.down()

    def environment(self) -> dict[str, str]:
        """Return the whole environment of a client process of the cluster."""
        base = self._blueprint.environment
        path = os.pathsep.join(filter(None, (str(self._blueprint.client_bin), base.get("PATH", os.defpath))))
        return {
            **base,
            "HADOOP_CONF_DIR": str(self._blueprint.client_conf),
            "JAVA_HOME": str(self._blueprint.java.home),
            "STANDFAST_CREDENTIALS": str(self.directory / "client" / "credentials"),
            "PATH": path,
        }

    def down(self) -> None:
        """End the JVM and every container, and remove the directory. MiniYARNCluster's own way takes 50 s."""
        with locked(self.directory):
            _end_java(self._java)
            remove(self.directory)


def _start_java(blueprint: Blueprint) -> tuple[subprocess.Popen[str], JavaGateway]:
    """Start a JVM that does what py4j says, and that ends when this process does."""
    conf = blueprint.directory / "conf"
    blueprint.write_hadoop(
        conf,
        "yarn-site.xml",
        "yarn-site.nodemanager.xml",
        "yarn-site.miniyarn.xml",
        host=_HOST,
        host_port=0,
        host_directory=blueprint.directory,
    )
    values = blueprint.hadoop_values()
    scheduler = render_hadoop([yarn_conf() / "hadoop" / "capacity-scheduler.xml"], values)
    (conf / "capacity-scheduler.xml").write_text(scheduler, encoding="utf-8")
    temporary = blueprint.directory / "tmp"
    temporary.mkdir()
    classpath = [conf, *(f"{blueprint.jars[each]}/*" for each in _JAR_SETS), pyspark_jar("py4j")]
    with (blueprint.directory / "miniyarn.log").open("ab") as log:
        java = subprocess.Popen(
            [
                str(blueprint.java.command),
                "-Xmx512m",
                *LEAN,
                "-Djava.net.preferIPv4Stack=true",
                f"-Djava.io.tmpdir={temporary}",
                "--add-opens=java.base/java.lang=ALL-UNNAMED",
                *("-cp", os.pathsep.join(map(str, classpath))),
                *("py4j.GatewayServer", "--die-on-broken-pipe", "0"),
            ],
            # Not YARN's own directory for containers: it writes relative paths.
            cwd=blueprint.directory,
            env={**blueprint.environment, "HADOOP_CONF_DIR": str(conf), CLUSTER_MARK: blueprint.cluster_id},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert java.stdout is not None
    port = java.stdout.readline().strip()
    if not port.isdigit():
        _end_java(java)
        raise Unavailable(f"MiniYARNCluster's JVM ended at once: see {blueprint.directory / 'miniyarn.log'}")
    return java, JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auto_convert=True))


def _start_yarn(gateway: Any, directory: Path, nodes: int) -> dict[str, int]:
    """Start YARN inside the JVM; return the ResourceManager's ports."""
    try:
        yarn = gateway.jvm.org.apache.hadoop.yarn
        conf = yarn.conf.YarnConfiguration()
        cluster = yarn.server.MiniYARNCluster("mini", nodes, 1, 1)
        cluster.init(conf)
        cluster.start()
        settings = cluster.getConfig()
        return {
            f"{RESOURCE_MANAGER}.{name}": int(settings.get(key).rpartition(":")[2])
            for name, key in _ADDRESSES.items()
        }
    except Py4JError as error:
        raise Unavailable(
            f"MiniYARNCluster does not start ({error}): see {directory / 'miniyarn.log'}"
        ) from error
    finally:
        gateway.close()


def _await_nodes(resource_manager_url: str, count: int, timeout_seconds: float) -> tuple[str, ...]:
    running: tuple[str, ...] = ()
    for _ in looks(timeout_seconds):
        running = _running_nodes(resource_manager_url)
        if len(running) >= count:
            return running
    raise Unavailable(f"{len(running)} of {count} NodeManagers run after {timeout_seconds:.0f} s")


def _running_nodes(resource_manager_url: str) -> tuple[str, ...]:
    """Return ``host:port`` of every running NodeManager, all of them on one host."""
    with open_url(f"{resource_manager_url}/ws/v1/cluster/nodes", PATIENCE_SECONDS) as response:
        listed = (json.load(response).get("nodes") or {}).get("node") or []
    return tuple(sorted(each["id"] for each in listed if each["state"] == "RUNNING"))


def _note(blueprint: Blueprint, name: str, java: subprocess.Popen[str]) -> None:
    """Write down what a later process needs to end what this one could not."""
    own, server = process_info(os.getpid()), process_info(java.pid)
    assert own is not None
    if server is not None:
        state = ClusterState(
            name=name,
            cluster_id=blueprint.cluster_id,
            boot_id=boot_id(),
            owner=own.identity,
            is_temporary=True,
            hosts=(),
            host_memory_mb=HOST_MEMORY_MB,
            host_vcores=HOST_VCORES,
            ports={},
            servers={"miniyarn": server.identity},
            is_complete=True,
        )
        save(blueprint.directory, state)


def _end_java(java: subprocess.Popen[str]) -> None:
    java.send_signal(signal.SIGKILL)
    java.wait()
    for stream in (java.stdin, java.stdout):
        if stream is not None:
            stream.close()
