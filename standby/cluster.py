"""What a container and a candidate know before they have met a leader: one small file.

`standfast submit` writes it and Skein's files carry it into every working directory, so that nothing
of it has to travel through environment variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from standby.errors import BadConfiguration

#: Its name in the working directory of every container and master.
FILE: Final = "cluster.json"

#: Directory in the working directory with the job's Python modules; goes in front of `sys.path`.
CODE_DIRECTORY: Final = "code"

#: Directory in the working directory with Spark's Kafka connector jars.
JARS_DIRECTORY: Final = "jars"


class ClusterConfig(msgspec.Struct, frozen=True):
    """The settings of a cluster that hold for every process of it."""

    name: str
    zookeeper: str
    """Connect string."""
    cell: int = 1
    attempts: int = 1
    """How many attempts of the cell's application YARN makes, as the submit knows it."""
    zookeeper_session_ms: int = 6_000
    zookeeper_acl: str = "digest"
    """``digest``: nodes are for holders of the cluster's credentials only."""
    kafka_bootstrap: str = ""
    """Brokers that hold the event log."""
    kafka: Mapping[str, str] = {}
    """Further Kafka client settings."""
    heartbeat_interval_ms: int = 150
    heartbeat_timeout_ms: int = 2_000
    suspect_grace_ms: int = 3_000
    orphan_timeout_ms: int = 60_000
    racks: Mapping[str, str] = {}
    """Host → its rack, as YARN had it at submit."""
    state_dirs: tuple[str, ...] = ()
    """Directories on every host in which task state may lie: a container tells what it finds before it knows
    of any job."""
    stray_delay_ms: int = 3_600_000
    """For how long state that nobody can use any more stays on a host's disks."""
    http_port: int = 0
    """Where candidates serve HTTP; 0: on any free port."""
    http_pages: str = "all"
    """``metrics``: what is answered without credentials is no more than monitoring needs."""
    log_max_bytes: int = 67_108_864
    """Most bytes of what a process and its children have printed that are kept on its host."""
    code_sync_seconds: int = 30
    code_distributor: str = "local"
    code_directory: str = ""
    code_hdfs_directory: str = "standfast"

    def __repr__(self) -> str:
        # Without Kafka's settings: passwords are among them.
        return f"ClusterConfig({self.name!r}, {self.zookeeper!r}, cell={self.cell})"


def load(path: Path) -> ClusterConfig:
    """Return the cluster's settings in ``path``; raises `BadConfiguration` naming what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterConfig)
    except FileNotFoundError as error:
        raise BadConfiguration(
            f"{path}: missing; this process is to be started by YARN through standfast submit"
        ) from error
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"{path}: {error}") from error


def dump(config: ClusterConfig) -> bytes:
    """Return the file's content."""
    return msgspec.json.encode(config)
