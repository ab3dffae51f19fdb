"""A cluster's cell as a Skein application: its master, one service per host, and the files they need."""

from __future__ import annotations

import os
import shlex
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import skein

from appmaster.adapters.credentials.keyring import Keyring
from appmaster.adapters.skein import ANYWHERE, service_name
from appmaster.cli.launch.code import is_shipped
from appmaster.cli.shared import hadoop_conf
from appmaster.cli.shared.hadoop_conf import HadoopConfiguration, Property
from appmaster.cli.shared.yarn import as_security
from appmaster.config import cluster_config
from standby import cluster as cluster_file
from standby.code.bundles import Bundle, shipped_name
from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.security import credentials
from standby.security.private_files import write_private
from standby.shared.roles import PeerRole

#: In the master's working directory, first on its class path: a yarn-site.xml with quick heartbeats.
HEARTBEAT_JAR: Final = "00-heartbeat.jar"

#: How often the application master talks to the ResourceManager.
HEARTBEAT_MS: Final = 200

#: YARN's expiry that determines the AM's heartbeat interval: half of it.
_EXPIRY: Final = "yarn.am.liveness-monitor.expiry-interval-ms"

#: The limit of an application's attempts, and YARN's default for it. YARN itself exceeds it if a global limit
#: (``am.global.max-attempts``) is higher. Skein does not: it considers the failure of a master in this attempt the end
#: of the application.
_MOST_ATTEMPTS: Final = "yarn.resourcemanager.am.max-attempts"
_DEFAULT_ATTEMPTS: Final = 2

#: Characters at which Skein, which treats a file's path as a URL, ends the path.
_PARTS_OF_URLS: Final = ("#", "?", ";")

#: Read by Skein's driver (third_party/skein).
MASTER_HOSTS: Final = "SKEIN_MASTER_HOSTS"

#: Options of a small JVM for the Skein AM.
AM_JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss512k"


#: Memory of a container of `build_sweep`, MiB.
_SWEEP_MEMORY_MB: Final = 256


def build(
    config: JobConfig,
    hosts: Sequence[str],
    bundle: Bundle,
    scratch: Path,
    hadoop: HadoopConfiguration,
    keyring: Keyring,
    environment: Mapping[str, str] = os.environ,
    racks: Mapping[str, str] | None = None,
    cell: int = 1,
    master_hosts: Collection[str] = (),
) -> Any:
    """Return the `skein.ApplicationSpec` of one cell for ``config``.

    ``hadoop`` is the client's configuration, ``bundle`` the job's modules, ``keyring`` the cluster's credentials,
    ``racks`` the racks of hosts according to YARN. The master starts on one of ``master_hosts``, if they have room.
    ``scratch`` must exist until the application has been submitted. Raises `BadConfiguration` for files that cannot be
    used.
    """
    attempts = granted_attempts(hadoop, config.am_max_attempts)
    settings = scratch / cluster_file.FILE
    # It may contain Kafka's password.
    write_private(settings, cluster_file.dump(cluster_config(config, cell, racks, attempts)))
    files: dict[str, Any] = {
        cluster_file.FILE: _file(settings),
        credentials.FILE: _bootstrap(scratch, keyring, PeerRole.CONTAINER),
        **_environment(config),
    }
    python = interpreter(config)

    def service(**where: Any) -> Any:
        return skein.Service(
            instances=0,
            resources=skein.Resources(f"{config.memory_mb} MiB", config.vcores),
            files=files,
            env=_variables(environment),
            script=_script(python, "standby"),
            # Failed containers just end: the leader decides what follows, never Skein.
            allow_failures=True,
            max_restarts=0,
            node_label=config.container_label,
            **where,
        )

    services = {ANYWHERE: service()}
    for index, host in enumerate(hosts):
        services[service_name(index)] = service(nodes=[host], relax_locality=False)
    master_files = {
        cluster_file.FILE: files[cluster_file.FILE],
        credentials.FILE: _bootstrap(scratch, keyring, PeerRole.MASTER),
        HEARTBEAT_JAR: _file(heartbeat_jar(scratch, hadoop, HEARTBEAT_MS)),
        **_environment(config),
    }
    if is_shipped(bundle, config):
        shipped = scratch / shipped_name(bundle.digest)
        shipped.write_bytes(bundle.data)
        master_files[shipped.name] = _file(shipped)
    return skein.ApplicationSpec(
        name=f"standfast-{config.cluster}-{cell}",
        queue=config.queue,
        node_label=config.am_label,
        tags={"standfast"},
        max_attempts=config.am_max_attempts,
        services=services,
        master=skein.Master(
            resources=skein.Resources(f"{config.am_memory_mb} MiB", config.am_vcores),
            files=master_files,
            security=as_security(keyring.skein),
            env={**_master_variables(environment), **_wish(master_hosts, racks or {})},
            script=_script(python, "appmaster.supervisor"),
        ),
    )


def _bootstrap(scratch: Path, keyring: Keyring, role: PeerRole) -> Any:
    """Return the file by which the cluster authenticates a process of this role."""
    target = scratch / f"{role.value}-{credentials.FILE}"
    write_private(target, credentials.encode(keyring.bootstrap(role)))
    return _file(target)


def interpreter(config: JobConfig) -> str:
    """Return the path of the job's Python on every host; relative to the working directory if it is shipped."""
    return "./environment/bin/python" if config.python_archive else config.python


def _environment(config: JobConfig) -> dict[str, Any]:
    """Return the Python environment to ship, if the job has one; raises `BadConfiguration` if it is not here."""
    if not config.python_archive:
        return {}
    archive = Path(config.python_archive).resolve()
    if not archive.is_file():
        raise BadConfiguration(f"job.python.archive: {archive} does not exist on this machine, or is no file")
    return {"environment": _archive(archive)}


def build_probe(config: JobConfig, files: Sequence[Path], environment: Mapping[str, str] = os.environ) -> Any:
    """Return a `skein.ApplicationSpec` whose master runs the first of ``files`` with the others as its arguments.

    It has the interpreter, the queue and the hosts of the job's containers.
    """
    shipped = {**{each.name: _file(each) for each in files}, **_environment(config)}
    script = shlex.join((interpreter(config), *(each.name for each in files)))
    return skein.ApplicationSpec(
        name=f"standfast-{config.cluster}-probe",
        queue=config.queue,
        node_label=config.container_label,
        tags={"standfast"},
        max_attempts=1,
        master=skein.Master(
            resources=skein.Resources(f"{config.am_memory_mb} MiB", config.am_vcores),
            files=shipped,
            env=_master_variables(environment),
            script=f"exec {script}",
        ),
    )


def build_sweep(
    config: JobConfig, file: Path, hosts: Sequence[str], environment: Mapping[str, str] = os.environ
) -> Any:
    """Return a `skein.ApplicationSpec` that runs `standby.sweep` once on each host, with ``file`` beside it."""
    shipped = {file.name: _file(file), **_environment(config)}
    services = {
        service_name(index): skein.Service(
            instances=1,
            resources=skein.Resources(f"{_SWEEP_MEMORY_MB} MiB", 1),
            files=shipped,
            env=_variables(environment),
            script=_script(interpreter(config), "standby.sweep"),
            max_restarts=0,
            node_label=config.container_label,
            nodes=[host],
            relax_locality=False,
        )
        for index, host in enumerate(hosts)
    }
    return skein.ApplicationSpec(
        name=f"standfast-{config.cluster}-sweep",
        queue=config.queue,
        node_label=config.am_label,
        tags={"standfast"},
        max_attempts=1,
        services=services,
        master=skein.Master(
            resources=skein.Resources(f"{config.am_memory_mb} MiB", config.am_vcores),
            env=_master_variables(environment),
        ),
    )


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a container."""
    variables = dict(cluster_file.VARIABLES)
    if environment.get("JAVA_HOME"):
        variables["JAVA_HOME"] = environment["JAVA_HOME"]
    return variables


def _master_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a master, and of the JVM that Skein starts beside it."""
    variables = _variables(environment)
    # YARN's script starts it by $JAVA_HOME without quotes. With a space in that path, the host's own Java is used.
    if len(variables.get("JAVA_HOME", "").split()) > 1:
        del variables["JAVA_HOME"]
    return {**variables, "JDK_JAVA_OPTIONS": AM_JAVA_OPTIONS}


def _wish(hosts: Collection[str], racks: Mapping[str, str]) -> dict[str, str]:
    """Return the variable by which the driver asks YARN for one of these hosts, otherwise for any in these racks."""
    if not hosts:
        return {}
    wished = [f"{each}={racks[each]}" for each in hosts]
    return {MASTER_HOSTS: " ".join((*wished, *sorted(set(racks.values()))))}


def granted_attempts(hadoop: HadoopConfiguration, asked: int) -> int:
    """Return how many attempts YARN makes of an application that asks for ``asked``.

    ``hadoop`` is the client's configuration; YARN's defaults apply to what it does not contain.
    """
    most = (hadoop.get(_MOST_ATTEMPTS) or "").strip()
    return min(asked, int(most) if most.isdecimal() else _DEFAULT_ATTEMPTS)


def heartbeat_jar(scratch: Path, hadoop: HadoopConfiguration, heartbeat_ms: int) -> Path:
    """Return a jar with the client's yarn-site.xml in one file, but an AM heartbeat every ``heartbeat_ms``.

    The interval is ``min(5000, expiry / 2)`` with the expiry as the AM itself reads it; the cluster's own setting is
    unchanged.
    """
    others = (each for each in hadoop.shipped() if each.name != _EXPIRY)
    target = scratch / HEARTBEAT_JAR
    with zipfile.ZipFile(target, "w") as jar:
        jar.writestr(
            hadoop_conf.YARN_SITE, hadoop_conf.write((*others, Property(_EXPIRY, str(2 * heartbeat_ms))))
        )
    return target


def _script(python: str, module: str) -> str:
    return f"exec {shlex.quote(python)} -m {module}"


def _file(path: Path, kind: str = "file") -> Any:
    if any(each in str(path) for each in _PARTS_OF_URLS):
        raise BadConfiguration(
            f"{path}: Skein would end the path at {' or '.join(_PARTS_OF_URLS)}; use another "
            "directory (TMPDIR names the one for temporary files)"
        )
    return skein.File(source=str(path), type=kind)


def _archive(path: Path) -> Any:
    return _file(path, "archive")
