"""What YARN is asked for: masters and containers."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import MOST_MIB, key


@dataclass(frozen=True, kw_only=True)
class YarnKeys:
    """What YARN is asked for: masters and containers."""

    memory_mb: int = key(
        "cluster-manager.container.memory.mb",
        "Memory of a container.",
        1_536,
        minimum=64,
        maximum=MOST_MIB,
        unit="MiB",
        scope="cluster",
    )
    vcores: int = key(
        "cluster-manager.container.cpu.cores",
        "Virtual cores of a container.",
        1,
        minimum=1,
        maximum=10_000,
        scope="cluster",
    )
    retry_exhausted: str = key(
        "cluster-manager.container.retry.exhausted",
        "What happens after too many failures in the window: `fail` the job, or `park` the processor until `standfast "
        "unpark`, while the rest of the job keeps running.",
        "fail",
        choices=("fail", "park"),
        applies="live",
    )
    cells: int = key(
        "appmaster.cells",
        "Number of cells: YARN applications of the cluster, each with an application master that can lead and with "
        "the containers that it requested. Losing one takes its containers with it; with two or more, no task has all "
        "its copies in one cell.",
        2,
        minimum=1,
        maximum=32,
        scope="cluster",
    )
    am_memory_mb: int = key(
        "yarn.am.container.memory.mb",
        "Memory of the application master's container.",
        512,
        minimum=128,
        maximum=MOST_MIB,
        unit="MiB",
        scope="cluster",
    )
    am_vcores: int = key(
        "yarn.am.container.cpu.cores",
        "Virtual cores of the application master's container.",
        1,
        minimum=1,
        maximum=10_000,
        scope="cluster",
    )
    am_max_attempts: int = key(
        "yarn.am.max.attempts",
        "Application-master attempts (limited by the cluster's own maximum).",
        4,
        minimum=1,
        maximum=1_000,
        scope="cluster",
    )
    queue: str = key(
        "yarn.queue",
        "YARN queue.",
        "default",
        scope="cluster",
    )
    container_label: str = key(
        "yarn.container.label",
        "Node label for the job's containers.",
        "",
        scope="cluster",
    )
    am_label: str = key(
        "yarn.am.container.label",
        "Node label for the application master.",
        "",
        scope="cluster",
    )
    hosts: tuple[str, ...] = key(
        "yarn.hosts",
        "Hosts that may be requested by name; empty: every RUNNING node at submit. Later hosts are reached by "
        "any-host requests.",
        (),
        scope="cluster",
    )
