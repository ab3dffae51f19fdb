"""``standfast init``, ``master`` and ``node``: a cluster without YARN, on a pool of processes.

`init` writes what the processes of a cluster need: cluster.json and their credentials. Copy the directory to each host;
a host without a master does not need master.json. `master` runs a candidate for the leadership; start it on two or
three hosts. `node` runs a process for tasks, which waits until the leader claims it; start it on every host. Both run
until SIGTERM or Ctrl-C, and start what ends before that again.

Exit status: 0 ended as asked; 2 the arguments or files are wrong, or another process uses the state directory; 3 a
server cannot be used.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import re
import signal
import socket
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

from appmaster.adapters.credentials.keyring import make_sure
from appmaster.cli.shared.jobfile import (
    add_from_environment,
    add_settings,
    own_state_directory,
    parse_named,
    settings_of,
)
from appmaster.cli.shared.output import Progress, printed_as_json
from appmaster.cli.shared.parsers import add_command, cluster_name
from appmaster.config import cluster_config
from appmaster.supervisor import RESIGNED, supervise
from standby import cluster as cluster_file
from standby import node
from standby.cluster import ClusterConfig
from standby.config import JobConfig, in_one_form, keys
from standby.config.cluster import ClusterKeys
from standby.config.servers import ServerKeys
from standby.errors import BadConfiguration
from standby.kernel.store.directories import make_private
from standby.process.witness import end_with
from standby.security import credentials
from standby.security.credentials import Bootstrap
from standby.security.private_files import write_private
from standby.shared.model import NodeOffer
from standby.shared.naming import NAME, NAME_WORDS, escape
from standby.shared.roles import PeerRole

#: The command line, for what is started by it.
COMMAND: Final = (sys.executable, "-m", "appmaster.cli.main")

#: The files of a cluster's directory beside `standby.cluster.FILE`, by the processes that need them.
_CREDENTIALS: Final = {PeerRole.MASTER: "master.json", PeerRole.CONTAINER: "node.json"}

#: The remedy for a file of ``--config`` that cannot be read.
_WRITTEN: Final = "`standfast init` writes it, for one user; --config names its directory"

#: Keys that a job needs and a cluster has not: `parse` wants them.
_OF_A_JOB: Final = {"job.name": "cluster", "task.inputs": "none", "task.step": "none:none"}

#: Statuses of a process that SIGTERM or Ctrl-C has ended, and of its witness then.
_ENDED_BY_SIGNAL: Final = tuple(
    status for each in (signal.SIGTERM, signal.SIGINT) for status in (-each, 128 + each)
)

#: An amount of memory.
_SIZE: Final = re.compile(r"([0-9]+)([mMgG])\Z")

#: What systemd takes as a word without quotes.
_PLAIN_WORD: Final = re.compile(r"[\w%+,./:=@-]+")

#: Variable with the id of the process with which a master or node ends at once; set by `standfast run`.
RUN: Final = "STANDFAST_RUN"

#: A unit of systemd. Its time to stop is above what a process takes at most. Only the command itself gets the signal,
#: and passes it on: systemd would send it to every process, Spark's JVM too, and a second one ends a process at once.
#: No limit of starts: what a start needs, such as DNS or a disk, may be away for longer than systemd would try.
_UNIT: Final = """\
[Unit]
Description=standfast {what}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={user}
ExecStart={command}
Restart=always
RestartSec=1
KillMode=mixed
TimeoutStopSec=60
OOMPolicy=continue

[Install]
WantedBy=multi-user.target
"""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the commands on the command line."""
    init = add_command(subparsers, "init", _init, "make the files of a cluster without YARN", __doc__)
    init.add_argument("--cluster", required=True, type=cluster_name, metavar="NAME", help="its name")
    init.add_argument("--to", required=True, type=Path, metavar="DIR", help="a new directory for the files")
    add_settings(init, "the defaults: a key of the whole cluster, or of the servers")
    init.add_argument("--json", action="store_true", help="print the result as JSON")
    for name, run, text in (
        ("master", _master, "run a candidate for the leadership of a cluster without YARN"),
        ("node", _node, "run a process for tasks of a cluster without YARN"),
    ):
        parser = add_command(subparsers, name, run, text, __doc__)
        parser.add_argument(
            "--config", required=True, type=Path, metavar="DIR", help="the directory that `init` has made"
        )
        parser.add_argument(
            "--host",
            default="",
            type=_host_name,
            help="the name, or the address of IPv4, by which the other hosts reach this one (default: its fully "
            "qualified name)",
        )
        parser.add_argument(
            "--state",
            type=Path,
            metavar="DIR",
            help="directory for what outlives a process, for this one alone (default: job.state.dir of cluster.json, "
            "else $STANDFAST_STATE_DIR, else /var/tmp/standfast-USER)",
        )
        parser.add_argument(
            "--systemd", action="store_true", help="print a unit of systemd for this command, and end"
        )
        parser.add_argument("--json", action="store_true", help="print the exit status as JSON at the end")
        if name == "node":
            _add_offer(parser)


def _add_offer(parser: argparse.ArgumentParser) -> None:
    """Add what a process offers; a job asks for it by the keys that it asks YARN with."""
    parser.add_argument(
        "--attribute",
        action="append",
        default=[],
        type=_attribute,
        metavar="KEY=VALUE",
        help="an attribute of this host, for job.locality.spread; rack=NAME is its rack; may be repeated",
    )
    parser.add_argument(
        "--group",
        type=_group,
        metavar="NAME",
        help="only for jobs with this yarn.container.label (default: for those without one)",
    )
    parser.add_argument(
        "--memory",
        default=0,
        type=_memory,
        metavar="SIZE",
        help="what the process may use, as 4g or 512m: only for jobs whose cluster-manager.container.memory.mb is at "
        "most that (default: for any)",
    )
    for option, text in (
        (
            "--cores",
            "only for jobs whose cluster-manager.container.cpu.cores is at most that (default: for any)",
        ),
        ("--tasks", "the most copies of tasks that the process takes (default: any number)"),
    ):
        parser.add_argument(option, default=0, type=_count, metavar="N", help=text)


def _host_name(text: str) -> str:
    if ":" in text:
        # Addresses of ports are written as host:port.
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a name nor an address of IPv4; one of IPv6 cannot be used"
        )
    return text


def _attribute(text: str) -> tuple[str, str]:
    key, _, value = (each.strip() for each in text.partition("="))
    if not (key and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    if key == "cell":
        raise argparse.ArgumentTypeError(f"{text!r}: cell is not an attribute; the name is reserved")
    return key, value


def _group(text: str) -> str:
    if not NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a group: it can be {NAME_WORDS}")
    return text


def _memory(text: str) -> int:
    found = _SIZE.match(text)
    size = int(found[1]) * (1024 if found[2] in "gG" else 1) if found is not None else 0
    if not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, as 4g or 512m")
    return size


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


# ---- init ----


def _init(arguments: argparse.Namespace) -> int:
    config = _cluster_of(arguments)
    target: Path = arguments.to
    if (target / cluster_file.FILE).exists():
        raise BadConfiguration(
            f"{target / cluster_file.FILE} exists already: name another directory, or remove it first; the cluster's "
            "credentials stay the same"
        )
    files = write_files(config, target)
    if printed_as_json(arguments, {"cluster": config.name, "files": [str(target / each) for each in files]}):
        return 0
    say = Progress().say
    say(f"cluster {config.name}: {', '.join(files)} are in {target}")
    say(
        f"copy the directory to each host, {_CREDENTIALS[PeerRole.MASTER]} to the masters' hosts only; then start "
        "`standfast master` and `standfast node` there"
    )
    return 0


def write_files(config: ClusterConfig, target: Path) -> list[str]:
    """Write what the processes of a cluster need into a directory; return the files' names.

    The cluster's credentials are made unless this user has them. Raises `BadConfiguration` if a file cannot be written.
    """
    ring = make_sure(config.name)
    files = {name: credentials.encode(ring.bootstrap(role)) for role, name in _CREDENTIALS.items()} | {
        cluster_file.FILE: cluster_file.dump(config)
    }
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in files.items():
            write_private(target / name, content)
    except OSError as error:
        raise BadConfiguration(f"{target}: {error.strerror}") from error
    return sorted(files)


def _cluster_of(arguments: argparse.Namespace) -> ClusterConfig:
    """Return the settings of a new cluster; raises `BadConfiguration` for a key that it cannot have."""
    flat = settings_of(arguments.settings)
    allowed = {
        each.name
        for each, field in keys()
        if field.name in ClusterKeys.__dataclass_fields__ or field.name in ServerKeys.__dataclass_fields__
    }
    wrong = sorted(each for each in flat if each not in allowed and not each.startswith("kafka."))
    if wrong:
        raise BadConfiguration(f"{', '.join(wrong)}: not a key of a cluster; set it in the file of a job")
    if "code.hdfs.directory" in flat:
        # Only here: in the file of a job that also runs on YARN it does no harm.
        raise BadConfiguration("code.hdfs.directory: only for a Hadoop cluster; leave it out")
    variables = add_from_environment(flat)
    config = parse_named({**_OF_A_JOB, **in_one_form(flat), "cluster.name": arguments.cluster}, variables)
    return pool_of(config)


def pool_of(config: JobConfig) -> ClusterConfig:
    """Return the settings of a pool for a job's cluster; raises `BadConfiguration` for a key that it cannot have."""
    if config.code_distributor == "hdfs":
        raise BadConfiguration("code.distributor: hdfs needs a Hadoop cluster; leave it out")
    if config.code_directory:
        raise BadConfiguration("code.directory: masters keep code in their state directories; leave it out")
    return replace(cluster_config(config, 1), is_pool=True)


# ---- master and node ----


def _read(arguments: argparse.Namespace, role: PeerRole) -> tuple[ClusterConfig, Bootstrap]:
    """Return what `init` has written for processes of a role, with this process's own state directories."""
    config = cluster_file.load(arguments.config / cluster_file.FILE, _WRITTEN)
    if not config.is_pool:
        raise BadConfiguration(
            f"{arguments.config / cluster_file.FILE}: not of a cluster that `init` has made"
        )
    bootstrap = credentials.read(arguments.config / _CREDENTIALS[role], _WRITTEN)
    if arguments.state is not None:
        state_dirs: tuple[str, ...] = (str(arguments.state.absolute()),)
    else:
        state_dirs = config.state_dirs or (_of_environment() or own_state_directory(),)
    return replace(config, state_dirs=state_dirs), bootstrap


def _of_environment() -> str:
    """Return the state directory that the environment names; empty if it names none."""
    named = os.environ.get("STANDFAST_STATE_DIR", "")
    if named and not Path(named).is_absolute():
        # It would be another one for each process of a node, below the working directory that ends with the process.
        raise BadConfiguration(f"STANDFAST_STATE_DIR: {named!r} is not an absolute path")
    return named


def _host(arguments: argparse.Namespace) -> str:
    """Return the name by which other hosts reach this one; raises `BadConfiguration` if the default does not do.

    Many systems resolve their own name to a loopback address, and each host would then have the same name, or open its
    ports where no other reaches them. A name that is given is not judged: a cluster may be on one machine.
    """
    if arguments.host:
        return str(arguments.host)
    name = socket.getfqdn()
    try:
        # Those at which its processes listen.
        found = {str(each[4][0]) for each in socket.getaddrinfo(name, None, socket.AF_INET)}
    except OSError as error:
        raise BadConfiguration(
            f"--host: {name}, the name of this host, has no address of IPv4: {error}{_give()}"
        ) from error
    if all(ipaddress.ip_address(each).is_loopback for each in found):
        raise BadConfiguration(
            f"--host: {name}, the name of this host, is {' and '.join(sorted(found))}, where other hosts do not reach "
            f"it{_give()}"
        )
    return name


def _give() -> str:
    """Return what to do about a name that does not do, with this host's address if it has a route to others."""
    example = ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            # Nothing is sent: this only selects a route, here to an address that is reserved for documentation.
            route.connect(("192.0.2.1", 9))
            example = f", such as --host {route.getsockname()[0]}"
        except OSError:
            pass
    return f"; give the name or the address by which they reach this one{example}"


def _begin() -> None:
    """Log to standard error, and end with the process that this one belongs to, if there is one."""
    if run := os.environ.get(RUN):
        end_with(int(run))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )


def _print_unit(arguments: argparse.Namespace, what: str) -> int:
    """Print a unit that runs this command with the same arguments, for the present user and interpreter."""
    config = ["--config", str(arguments.config.absolute())]
    more: list[str] = []
    for option in ("host", "state"):
        value = getattr(arguments, option, None)
        if value:
            more += [f"--{option}", str(value.absolute() if isinstance(value, Path) else value)]
    more += _offer_options(arguments) if what == "node" else []
    command = " ".join(map(_word_of_unit, [*COMMAND, what, *config, *more]))
    print(_UNIT.format(what=what, user=os.geteuid(), command=command), end="")
    return 0


def _word_of_unit(word: str) -> str:
    """Return a word as systemd reads it, which expands specifiers and variables also in quotes (systemd.service(5))."""
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return quoted if _PLAIN_WORD.fullmatch(word) else f'"{quoted}"'


def _offer_options(arguments: argparse.Namespace) -> list[str]:
    offered = {
        "--group": arguments.group,
        "--memory": arguments.memory and f"{arguments.memory}m",
        "--cores": arguments.cores,
        "--tasks": arguments.tasks,
    }
    options = [(option, str(value)) for option, value in offered.items() if value]
    options += [("--attribute", f"{key}={value}") for key, value in arguments.attribute]
    return [word for each in options for word in each]


def _master(arguments: argparse.Namespace) -> int:
    if arguments.systemd:
        return _print_unit(arguments, "master")
    config, bootstrap = _read(arguments, PeerRole.MASTER)
    host = _host(arguments)
    _begin()
    place = Path(config.state_dirs[0]) / escape(config.name)
    name = f"{escape(host)}.master"
    with node.locked((place,), f"{name}.lock", f"master of cluster {config.name} on {host}"):
        # It keeps the code of the jobs from one start to the next.
        work = place / name
        make_private(work, "--state")
        write_private(work / cluster_file.FILE, cluster_file.dump(config))
        write_private(work / credentials.FILE, credentials.encode(bootstrap))
        os.chdir(work)
        os.environ.update(CONTAINER_ID=f"master_{host}-{uuid.uuid4().hex[:12]}", NM_HOST=host)
        status = supervise([sys.executable, "-m", "appmaster"], is_own_master=True)
    return _ended(arguments, 0 if status == RESIGNED else status)


def _ended(arguments: argparse.Namespace, status: int) -> int:
    # The process may not have heeded the signal yet; it was passed on by this command, which only then returns.
    status = 0 if status in _ENDED_BY_SIGNAL else status
    printed_as_json(arguments, {"status": status})
    return status


def _node(arguments: argparse.Namespace) -> int:
    if arguments.systemd:
        return _print_unit(arguments, "node")
    config, bootstrap = _read(arguments, PeerRole.CONTAINER)
    _begin()
    offer = NodeOffer(
        *(arguments.group or "", arguments.memory, arguments.cores, arguments.tasks),
        dict(arguments.attribute),
    )
    settings = node.NodeSettings(config, bootstrap, _host(arguments), offer)
    return _ended(arguments, node.run(settings))
