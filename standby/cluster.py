"""The settings that a container and a candidate have before they know a leader: one small file.

`standfast submit` writes it, and Skein copies it into every working directory, so it need not be passed in
environment variables. A node of a pool copies it for its process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from standby.config.cluster import ClusterKeys
from standby.ensemble import Tls
from standby.errors import BadConfiguration

#: The name of the file in the working directory of every container and master.
FILE: Final = "cluster.json"

#: Directory in the working directory into which the applications of earlier releases ship the modules of a job without
#: a bundle; in `sys.path` until a bundle is loaded.
CODE_DIRECTORY: Final = "code"

#: The variable with what a process of a pool offers (`standby.shared.records.NodeOffer`).
OFFER: Final = "STANDFAST_OFFER"

#: Variables that every process is started with. Job code that computes in local time, as Spark does for Python UDFs,
#: has the same time zone on every host, and one in which no hour occurs twice.
VARIABLES: Final[Mapping[str, str]] = {"PYTHONUNBUFFERED": "1", "LANG": "C.UTF-8", "TZ": "UTC"}


@dataclass(frozen=True)
class ClusterConfig(ClusterKeys):
    """The settings of all processes of a cluster: `ClusterKeys`, and the addresses of its servers."""

    name: str
    zookeeper: str
    """Connect string."""
    cell: int = 1
    attempts: int = 1
    """Number of application attempts that YARN makes for the cell, as known at submit."""
    zookeeper_tls: Tls | None = None
    """None: plain text."""
    kafka_bootstrap: str = ""
    """Brokers with the event log."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Further Kafka client settings."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Host → rack, as known to YARN at submit."""
    is_pool: bool = False
    """Whether its containers are processes of a pool, without YARN."""

    def __repr__(self) -> str:
        # Without Kafka's settings, some of which are passwords.
        return f"ClusterConfig({self.name!r}, {self.zookeeper!r}, cell={self.cell})"


def load(
    path: Path,
    remedy: str = "this process must be started by YARN through standfast submit, or by a node of a pool",
) -> ClusterConfig:
    """Return the cluster's settings in ``path``. Raises `BadConfiguration`, with ``remedy`` if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterConfig)
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror}; {remedy}") from error
    except msgspec.MsgspecError as error:
        raise BadConfiguration(f"{path}: {error}") from error


def dump(config: ClusterConfig) -> bytes:
    """Return the file's content."""
    return msgspec.json.encode(config)
