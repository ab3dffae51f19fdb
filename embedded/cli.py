"""The commands ``standfast local …``, which run the embedded cluster.

Exit status: 0 success; 1 ``status`` found a server that is not running; 2 a wrong argument, or the cluster does not
exist (or already exists); 3 a failure outside the program (Java, disk, network, a server).
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from embedded.cluster import HOST_MEMORY_MB, HOST_VCORES, LocalCluster
from embedded.registry import end
from embedded.state import ClusterStatus
from embedded.terminal import ProgressLine
from standby.errors import BadConfiguration

_FOLLOW_SECONDS: Final = 0.3
_MEGABYTE: Final = 1 << 20


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``local`` and its commands on the command line."""
    local = subparsers.add_parser(
        "local",
        help="run ZooKeeper, Kafka and YARN on this machine",
        description="The embedded cluster: ZooKeeper, Kafka, a YARN ResourceManager, and hosts that can die.",
        epilog=__doc__.partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = local.add_subparsers(title="commands", metavar="COMMAND", required=True)

    up = _command(commands, "up", _up, "start the servers and print the environment that clients need")
    up.add_argument(
        "--nodes",
        type=int,
        default=3,
        metavar="N",
        help="number of hosts (default: 3); 0: ZooKeeper and Kafka only",
    )
    up.add_argument(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="number of Kafka brokers; with three, a topic has three replicas unless set otherwise (default: 1)",
    )
    up.add_argument(
        "--memory",
        type=int,
        default=HOST_MEMORY_MB,
        metavar="MB",
        help="what a host offers (default: %(default)s)",
    )
    up.add_argument(
        "--vcores",
        type=int,
        default=HOST_VCORES,
        metavar="N",
        help="what a host offers (default: %(default)s)",
    )
    _command(commands, "down", _down, "end every process and remove everything")
    _command(
        commands,
        "status",
        _status,
        "show the state of every server and host; exit status 1 if one is not running",
    )
    _command(commands, "env", _env, 'print the environment for clients: eval "$(standfast local env)"')

    logs = _command(commands, "logs", _logs, "print the end of the servers' logs")
    logs.add_argument(
        "server", nargs="?", metavar="SERVER", help="a server listed by `status` (default: all)"
    )
    logs.add_argument(
        "--lines", type=int, default=20, metavar="N", help="number of lines of each log (default: 20)"
    )
    logs.add_argument(
        "--follow", action="store_true", help="keep printing lines as they are added to one server's log"
    )

    kill = _command(
        commands, "kill-host", _kill_host, "kill a host: its NodeManager and every process that it started"
    )
    kill.add_argument("host", metavar="HOST")
    kill.add_argument(
        "--silent",
        action="store_true",
        help="only suspend its processes: no connection closes, as when a cable is pulled; "
        "the same command without --silent (or start-host, or down) kills them",
    )
    start = _command(
        commands, "start-host", _start_host, "start a killed host again, with its disk unchanged"
    )
    start.add_argument("host", metavar="HOST")


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text.replace("%", "%%"), description=text.replace("%", "%%"))
    parser.add_argument("--name", default="default", help="which embedded cluster (default: default)")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    parser.set_defaults(run=run)
    return parser


def _up(arguments: argparse.Namespace) -> int:
    progress = ProgressLine()
    begin = time.monotonic()
    try:
        cluster = LocalCluster.start(
            arguments.name,
            nodes=arguments.nodes,
            brokers=arguments.brokers,
            host_memory_mb=arguments.memory,
            host_vcores=arguments.vcores,
            show=progress.show,
        )
    finally:
        progress.close()
    seconds = time.monotonic() - begin
    if arguments.json:
        _print_json(
            {
                "name": cluster.name,
                "directory": str(cluster.directory),
                "hosts": cluster.hosts,
                "resource_manager": cluster.resource_manager_url if cluster.hosts else None,
                "environment": cluster.additional_environment(),
                "seconds": round(seconds, 1),
            }
        )
        return 0
    name = "" if cluster.name == "default" else f" --name {cluster.name}"
    what = (
        f"with the hosts {', '.join(cluster.hosts)}" if cluster.hosts else "ZooKeeper and Kafka without YARN"
    )
    print(f"# {cluster.name} is up after {seconds:.1f} s, {what}.")
    if cluster.hosts:
        print(f"# YARN's page is {cluster.resource_manager_url}/cluster")
    print(f'# To use it: eval "$(standfast local env{name})"')
    _print_exports(cluster)
    return 0


def _down(arguments: argparse.Namespace) -> int:
    was_there = end(arguments.name)
    if arguments.json:
        _print_json({"name": arguments.name, "was_there": was_there})
    else:
        print(f"{arguments.name} is down" if was_there else f"{arguments.name} was not up")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    status = LocalCluster.attach(arguments.name).status()
    if arguments.json:
        _print_json(msgspec.to_builtins(status))
    else:
        _print_status(status)
    return 0 if status.is_whole else 1


def _env(arguments: argparse.Namespace) -> int:
    cluster = LocalCluster.attach(arguments.name)
    if arguments.json:
        _print_json(cluster.additional_environment())
    else:
        _print_exports(cluster)
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    cluster = LocalCluster.attach(arguments.name)
    servers = [arguments.server] if arguments.server else list(cluster.servers)
    logs = {server: cluster.log(server) for server in servers}
    if arguments.follow and (arguments.json or len(logs) > 1):
        raise BadConfiguration("--follow takes one SERVER, and no --json")
    ends = {server: _last_lines(path, arguments.lines) for server, path in logs.items()}
    if arguments.json:
        _print_json({server: {"path": str(logs[server]), "lines": lines} for server, lines in ends.items()})
        return 0
    for server, lines in ends.items():
        if len(ends) > 1:
            print(f"==> {server}: {logs[server]}")
        print("\n".join(lines))
    if arguments.follow:
        _follow(logs[arguments.server])
    return 0


def _kill_host(arguments: argparse.Namespace) -> int:
    cluster = LocalCluster.attach(arguments.name)
    count = cluster.kill_host(arguments.host, silent=arguments.silent)
    verb = "stopped" if arguments.silent else "killed"
    if arguments.json:
        _print_json({"host": arguments.host, "processes": count, "done": verb})
    else:
        print(f"{arguments.host}: {count} processes {verb}")
        if arguments.silent:
            print("they stay suspended until the same command without --silent, start-host or down")
    return 0


def _start_host(arguments: argparse.Namespace) -> int:
    cluster = LocalCluster.attach(arguments.name)
    cluster.start_host(arguments.host)
    if arguments.json:
        _print_json({"host": arguments.host, "done": "started"})
    else:
        print(f"{arguments.host} is back")
    return 0


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout, indent=2)
    print()


def _print_exports(cluster: LocalCluster) -> None:
    for name, value in cluster.additional_environment().items():
        text = f'{shlex.quote(value)}:"$PATH"' if name == "PATH" else shlex.quote(value)
        print(f"export {name}={text}")


def _print_status(status: ClusterStatus) -> None:
    print(f"{status.name} in {status.directory}")
    print(f"{'SERVER':<24} {'STATE':<8} {'PID':>8} {'MEMORY':>8} {'UPTIME':>9}  PORTS")
    for server in status.servers:
        ports = " ".join(f"{name}={number}" for name, number in server.ports.items())
        print(
            f"{server.name:<24} {server.state:<8} {server.pid or '-':>8} "
            f"{server.memory_bytes // _MEGABYTE:>5} MB {server.uptime_seconds:>7.0f} s  {ports}"
        )
    print(f"{'HOST':<24} {'STATE':<8} {'YARN':>8} {'MEMORY':>8} CONTAINERS")
    for host in status.hosts:
        print(
            f"{host.host:<24} {host.state:<8} {host.yarn_state:>8} "
            f"{host.container_memory_bytes // _MEGABYTE:>5} MB {host.containers} ({host.container_processes} processes)"
        )


def _last_lines(path: Path, count: int) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return lines[-count:] if count > 0 else []


def _follow(path: Path) -> None:
    with path.open(encoding="utf-8", errors="replace") as file:
        file.seek(0, 2)
        while True:
            text = file.read()
            if text:
                print(text, end="", flush=True)
            else:
                time.sleep(_FOLLOW_SECONDS)
