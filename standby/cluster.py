"""What a container and a candidate know before they have met a leader: one small file.

`standfast submit` writes it and Skein's files carry it into every working directory, so that nothing
of it has to travel through environment variables.
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

#: Its name in the working directory of every container and master.
FILE: Final = "cluster.json"

#: Directory in the working directory with the job's Python modules; goes in front of `sys.path`.
CODE_DIRECTORY: Final = "code"

#: Directory in the working directory with Spark's Kafka connector jars.
JARS_DIRECTORY: Final = "jars"


@dataclass(frozen=True)
class ClusterConfig(ClusterKeys):
    """The settings of a cluster that hold for every process of it: `ClusterKeys`, and where all is."""

    name: str
    zookeeper: str
    """Connect string."""
    cell: int = 1
    attempts: int = 1
    """How many attempts of the cell's application YARN makes, as the submit knows it."""
    zookeeper_tls: Tls | None = None
    """None: its servers are talked to in clear."""
    kafka_bootstrap: str = ""
    """Brokers that hold the event log."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Further Kafka client settings."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Host → its rack, as YARN had it at submit."""

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
