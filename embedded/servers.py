"""Configuration files and command lines of the embedded cluster's servers."""

from __future__ import annotations

import base64
import os
import pwd
import shlex
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embedded.java import LEAN, Java
from embedded.machine.ports import free_ports
from embedded.machine.processes import CLUSTER_MARK, HOST_MARK
from embedded.places import yarn_conf
from embedded.templates import render, render_hadoop
from standby.errors import Unavailable

ZOOKEEPER: Final = "zookeeper"
KAFKA: Final = "kafka"
RESOURCE_MANAGER: Final = "resourcemanager"

#: The address of all servers except the NodeManagers, unless ZooKeeper and Kafka have another.
LOOPBACK: Final = "127.0.0.1"

#: The ports of each Kafka broker.
KAFKA_PORTS: Final = ("broker", "controller")

#: The ports that clients must know; they are therefore chosen before the start.
PORTS: Final = {
    ZOOKEEPER: ("client",),
    RESOURCE_MANAGER: ("client", "scheduler", "tracker", "admin", "web"),
}

#: Kafka's commands, with their names in Kafka's distribution.
_KAFKA_TOOLS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}

_COMMON: Final = ("-Djava.net.preferIPv4Stack=true", "-Dfile.encoding=UTF-8")


def node_manager(host: str) -> str:
    """Return the server name of a host's NodeManager."""
    return f"nodemanager-{host}"


def kafka_brokers(count: int) -> tuple[str, ...]:
    """Return the server names of the brokers, in the order of their numbers."""
    return (KAFKA,) if count == 1 else tuple(f"{KAFKA}-{number}" for number in range(1, count + 1))


def choose_ports(hosts: tuple[str, ...], brokers: int, address: str) -> dict[str, int]:
    """Return a free port of ``address`` for each purpose of each server, by ``<server>.<purpose>``.

    Raises :class:`Unavailable`.
    """
    purposes_of = {**PORTS, **dict.fromkeys(kafka_brokers(brokers), KAFKA_PORTS)}
    wanted = [f"{server}.{purpose}" for server, purposes in purposes_of.items() for purpose in purposes]
    ports = dict(zip(wanted, free_ports(len(wanted), address), strict=True))
    return ports | {f"{node_manager(host)}.rpc": free_ports(1, host)[0] for host in hosts}


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one server."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path


@dataclass(frozen=True, slots=True)
class Blueprint:
    """The values from which configuration files and command lines of one cluster are made."""

    directory: Path
    cluster_id: str
    java: Java
    #: The directory of each set of jars.
    jars: Mapping[str, Path]
    ports: Mapping[str, int]
    host_memory_mb: int
    host_vcores: int
    environment: Mapping[str, str]
    resource_manager_host: str = LOOPBACK
    #: Number of Kafka brokers.
    brokers: int = 1
    #: Where ZooKeeper and Kafka listen.
    address: str = LOOPBACK

    @property
    def client_conf(self) -> Path:
        """The Hadoop configuration directory for clients."""
        return self.directory / "client" / "conf"

    @property
    def client_bin(self) -> Path:
        """The directory with the commands of clients."""
        return self.directory / "client" / "bin"

    def host_directory(self, host: str) -> Path:
        """Return the directory with all files of a host; all hosts share one disk."""
        return self.directory / "hosts" / host

    def zookeeper(self, further: str = "", jars: Sequence[str] = (ZOOKEEPER,)) -> Launch:
        """Write ZooKeeper's configuration, with ``further`` lines; return its launch with these sets of jars."""
        directory = self._server_directory(ZOOKEEPER)
        config = directory / "zoo.cfg"
        values = {
            "directory": directory,
            "address": self.address,
            "client_port": self.ports[f"{ZOOKEEPER}.client"],
        }
        _write(config, render(yarn_conf() / "zookeeper" / "zoo.cfg", values) + further)
        options = (
            "-Xmx128m",
            *LEAN,
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
            # Its transaction log begins with 64 MB of zeros, in KB.
            "-Dzookeeper.preAllocSize=1024",
            # The page cache survives the death of a process, and a failure of this machine is not simulated.
            "-Dzookeeper.forceSync=no",
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return self._launch(options, [self.jars[each] for each in jars], main, [str(config)], directory)

    def kafka(self, number: int = 1, further: str = "") -> Launch:
        """Write a broker's configuration and format its disk if it is new; return its launch.

        ``number`` counts the brokers from 1; ``further`` are lines of the configuration that override those of the
        template.
        """
        servers = kafka_brokers(self.brokers)
        server = servers[number - 1]
        directory = self._server_directory(server)
        config = directory / "server.properties"
        # An acknowledged record is on two brokers, so any one of three may be lost permanently.
        values = {
            "directory": directory,
            "address": self.address,
            "number": number,
            "broker_port": self.ports[f"{server}.broker"],
            "controller_port": self.ports[f"{server}.controller"],
            "voters": ",".join(
                f"{each}@{self.address}:{self.ports[f'{name}.controller']}"
                for each, name in enumerate(servers, 1)
            ),
            "election_ms": 200 if self.brokers == 1 else 1_000,
            "fetch_ms": 500 if self.brokers == 1 else 2_000,
            "replicas": min(3, self.brokers),
            "replicas_in_sync": min(2, self.brokers),
        }
        _write(config, render(yarn_conf() / "kafka" / "server.properties", values) + further)
        log4j = directory / "log4j2.properties"
        _write(log4j, (yarn_conf() / "kafka" / "log4j2.properties").read_text(encoding="utf-8"))
        logging = f"-Dlog4j2.configurationFile={log4j}"
        jars = [self.jars["kafka"]]
        if not (directory / "data" / "meta.properties").exists():
            format_arguments = ["format", "-t", kafka_cluster_id(self.cluster_id), "-c", str(config)]
            _run(
                self._launch(
                    ("-Xmx128m", *LEAN), jars, "kafka.tools.StorageTool", format_arguments, directory
                )
            )
        # No -XX:TieredStopAtLevel=1: a broker must also be fast in the long run.
        heap = "-Xmx512m" if self.brokers == 1 else "-Xmx320m"
        options = (heap, "-XX:+UseSerialGC", "-Xss512k", "-XX:-UsePerfData", logging)
        return self._launch(options, jars, "kafka.Kafka", [str(config)], directory)

    def resource_manager(self) -> Launch:
        """Write the ResourceManager's configuration; return its launch."""
        directory = self._server_directory(RESOURCE_MANAGER)
        conf = directory / "conf"
        self.write_hadoop(conf, "yarn-site.xml")
        _write(
            conf / "capacity-scheduler.xml",
            render_hadoop([yarn_conf() / "hadoop" / "capacity-scheduler.xml"], self.hadoop_values()),
        )
        main = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
        return self._launch_hadoop("-Xmx256m", conf, main, directory)

    def node_manager(self, host: str) -> Launch:
        """Write the configuration of a host's NodeManager; return its launch."""
        directory = self.host_directory(host)
        for name in ("local", "logs", "state"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        conf = directory / "conf"
        self.write_hadoop(
            conf,
            "yarn-site.xml",
            "yarn-site.nodemanager.xml",
            host=host,
            host_directory=directory,
            host_port=self.ports[f"{node_manager(host)}.rpc"],
        )
        main = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
        launch = self._launch_hadoop("-Xmx192m", conf, main, directory)
        return Launch(launch.arguments, {**launch.environment, HOST_MARK: host}, launch.directory)

    def write_client(self) -> None:
        """Write the clients' configuration directory, and the command ``yarn``, from which Skein gets jars."""
        self.write_hadoop(self.client_conf, "yarn-site.xml", "yarn-site.client.xml")
        java = (str(self.java.command), "-Xmx256m", *LEAN, "--add-opens=java.base/java.lang=ALL-UNNAMED")
        self._write_command("yarn", _yarn(self.client_conf, self.jars["hadoop"], java))

    def write_kafka_tools(self) -> None:
        """Write Kafka's commands for creating, filling and reading topics."""
        classpath = os.pathsep.join(f"{self.jars[each]}/*" for each in ("kafka", "kafka-tools"))
        java = shlex.join([str(self.java.command), "-Xmx256m", *LEAN, "-cp", classpath])
        for name, main in _KAFKA_TOOLS.items():
            self._write_command(name, f'exec {java} {main} "$@"\n')

    def _write_command(self, name: str, text: str) -> None:
        command = self.client_bin / name
        _write(command, f"#!/bin/sh\n{text}")
        command.chmod(0o755)

    def _server_directory(self, server: str) -> Path:
        directory = self.directory / server
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def hadoop_values(self, **more: object) -> dict[str, object]:
        """Return the values for the Hadoop templates, and ``more``."""
        return {
            "directory": self.directory,
            "files": self.directory / "files",
            "user": _user(),
            "rm_host": self.resource_manager_host,
            **{
                f"rm_{name}_port": self.ports[f"{RESOURCE_MANAGER}.{name}"]
                for name in PORTS[RESOURCE_MANAGER]
            },
            "host_memory_mb": self.host_memory_mb,
            "host_vcores": self.host_vcores,
            "client_conf": self.client_conf,
            "hadoop_jars": self.jars["hadoop"],
            **more,
        }

    def write_hadoop(self, conf: Path, *yarn_site: str, **more: object) -> None:
        """Write a Hadoop configuration directory, its ``yarn-site.xml`` made from the templates ``yarn_site``."""
        templates = yarn_conf() / "hadoop"
        # core-site.xml refers to them. The ResourceManager tries for a long time to create them, and cannot.
        for name in ("user", "tmp"):
            (self.directory / "files" / name).mkdir(parents=True, exist_ok=True)
        values = self.hadoop_values(**more)
        _write(conf / "core-site.xml", render_hadoop([templates / "core-site.xml"], values))
        _write(conf / "yarn-site.xml", render_hadoop([templates / name for name in yarn_site], values))
        _write(conf / "log4j.properties", (templates / "log4j.properties").read_text(encoding="utf-8"))

    def _launch_hadoop(self, heap: str, conf: Path, main: str, directory: Path) -> Launch:
        options = (heap, *LEAN, "--add-opens=java.base/java.lang=ALL-UNNAMED")
        launch = self._launch(options, [conf, self.jars["hadoop"]], main, [], directory)
        return Launch(launch.arguments, {**launch.environment, "HADOOP_CONF_DIR": str(conf)}, directory)

    def _launch(
        self,
        options: tuple[str, ...],
        classpath: list[Path],
        main: str,
        arguments: list[str],
        directory: Path,
    ) -> Launch:
        temporary = self.directory / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        entries = [str(each) if each.name == "conf" else f"{each}/*" for each in classpath]
        environment = {
            **{name: value for name, value in self.environment.items() if name not in _NOT_INHERITED},
            "JAVA_HOME": str(self.java.home),
            CLUSTER_MARK: self.cluster_id,
        }
        return Launch(
            arguments=(
                str(self.java.command),
                *options,
                *_COMMON,
                f"-Djava.io.tmpdir={temporary}",
                "-cp",
                os.pathsep.join(entries),
                main,
                *arguments,
            ),
            environment=environment,
            directory=directory,
        )


#: YARN's client commands: the program in the cluster's jars, and whether it expects the command's name.
_YARN_CLIENTS: Final = {
    "app": ("org.apache.hadoop.yarn.client.cli.ApplicationCLI", True),
    "application": ("org.apache.hadoop.yarn.client.cli.ApplicationCLI", True),
    "applicationattempt": ("org.apache.hadoop.yarn.client.cli.ApplicationCLI", True),
    "container": ("org.apache.hadoop.yarn.client.cli.ApplicationCLI", True),
    "logs": ("org.apache.hadoop.yarn.client.cli.LogsCLI", False),
    "node": ("org.apache.hadoop.yarn.client.cli.NodeCLI", False),
    "queue": ("org.apache.hadoop.yarn.client.cli.QueueCLI", False),
    "rmadmin": ("org.apache.hadoop.yarn.client.cli.RMAdminCLI", False),
    "version": ("org.apache.hadoop.util.VersionInfo", False),
}

_YARN: Final = """\
# The embedded cluster's yarn: prints its class path; all else is for another yarn on the PATH, or for its own jars.
conf=${{HADOOP_CONF_DIR:-{conf}}}
jars={jars}
if [ "$1" = classpath ]; then
  printf '%s:%s\\n' "$conf" "$jars"
  exit 0
fi
# Without this file's own directory, whatever name it has there: it would run itself without end.
rest=$PATH:
PATH=
while [ -n "$rest" ]; do
  [ "${{rest%%:*}}/yarn" -ef "$0" ] || PATH=$PATH${{PATH:+:}}${{rest%%:*}}
  rest=${{rest#*:}}
done
if command -v yarn >/dev/null; then
  exec yarn "$@"
fi
case "$1" in
{clients}
*)
  echo "yarn: standfast's embedded cluster has only {known}, and no other yarn is on the PATH" >&2
  exit 127
esac
exec {java} -cp "$conf:$jars" "$main" "$@"
"""


def _yarn(conf: Path, jars: Path, java: Sequence[str]) -> str:
    """Return the text of the command ``yarn``."""
    clients = "\n".join(
        f"{name}) main={main}{'' if wants_name else '; shift'};;"
        for name, (main, wants_name) in _YARN_CLIENTS.items()
    )
    known = ", ".join(("classpath", *_YARN_CLIENTS))
    return _YARN.format(
        conf=shlex.quote(str(conf)),
        jars=shlex.quote(f"{jars}/*"),
        java=shlex.join(java),
        clients=clients,
        known=known,
    )


#: Variables for other programs of the user, and those that would direct these servers to another cluster.
_NOT_INHERITED: Final = frozenset(
    {
        "CLASSPATH",
        "HADOOP_CLASSPATH",
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "JDK_JAVA_OPTIONS",
        "KAFKA_OPTS",
        "SPARK_HOME",
        "YARN_CONF_DIR",
        HOST_MARK,
    }
)


def kafka_cluster_id(cluster_id: str) -> str:
    """Return the cluster's id in Kafka's form: 22 characters of base64, the first one a letter.

    A leading dash, as in one id of 64, would be parsed as an option.
    """
    content = bytearray(uuid.UUID(cluster_id).bytes)
    content[0] &= 0x3F
    return base64.urlsafe_b64encode(bytes(content)).rstrip(b"=").decode()


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise Unavailable(
            f"uid {os.geteuid()} has no entry in the user database (/etc/passwd): Hadoop does not start without the "
            "user's name; add one, or run as another user"
        ) from None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _run(launch: Launch) -> None:
    """Run a short-lived tool of a server to its end. Raises :class:`Unavailable` with its output."""
    try:
        subprocess.run(
            launch.arguments,
            env=dict(launch.environment),
            cwd=launch.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{launch.arguments[-5]} failed: {error.stdout.strip()[-2000:]}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{launch.arguments[0]} cannot be run: {error}") from error
