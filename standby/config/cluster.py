"""The keys that each process of a cluster has from its start, all in `standby.cluster.ClusterConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import MOST_BYTES, MOST_MS, MOST_RETENTION_MS, PATH, key


@dataclass(frozen=True, kw_only=True)
class ClusterKeys:
    """Keys of the job that started the cluster; processes have them before they know any job."""

    state_dirs: tuple[str, ...] = key(
        "job.state.dir",
        "Directories on every host for task state, one per disk; they should survive a container and a reboot. New "
        "state is placed on the disk with the most free space. By default $STANDFAST_STATE_DIR, otherwise "
        "`/var/tmp/standfast-<user>`.",
        (),
        applies="never",
        example="[/disk1/standfast, /disk2/standfast]",
        form=PATH,
        distinct=True,
    )
    stray_delay_ms: int = key(
        "job.state.stray.delay.ms",
        "How long state that can no longer be used stays on a host's disks.",
        3_600_000,
        minimum=0,
        maximum=MOST_RETENTION_MS,
        unit="ms",
    )
    heartbeat_interval_ms: int = key(
        "job.hotstandby.heartbeat.interval.ms",
        "Interval of a container's heartbeats.",
        150,
        minimum=50,
        maximum=60_000,
        unit="ms",
        scope="cluster",
    )
    orphan_timeout_ms: int = key(
        "job.hotstandby.orphan.timeout.ms",
        "A container that finds no leader for this long ends itself.",
        60_000,
        minimum=1_000,
        maximum=MOST_MS,
        unit="ms",
        scope="cluster",
    )
    log_max_bytes: int = key(
        "yarn.container.log.max.bytes",
        "Maximum size of the output of a container's or a candidate's processes that is kept on the host: half in the "
        "file that YARN shows, half in the previous file, whose name ends with `.1`.",
        67_108_864,
        minimum=100_000,
        maximum=MOST_BYTES,
        unit="bytes",
        scope="cluster",
    )
    http_port: int = key(
        "yarn.am.http.port",
        "Port on which the application master serves metrics and service discovery over HTTP; 0, or a port that is in "
        "use: any free one.",
        0,
        minimum=0,
        scope="cluster",
        maximum=65_535,
    )
    http_pages: str = key(
        "yarn.am.http.pages",
        "Pages that this port serves, to everyone: `all`, or `metrics`: `/metrics`, `/healthz` and `/sd` only. The "
        "command line does not need the others.",
        "all",
        choices=("all", "metrics"),
        scope="cluster",
    )
    code_distributor: str = key(
        "code.distributor",
        "How code is distributed to candidates: `local` (from each other) or `hdfs` (through the cluster's own file "
        "system, and from each other where that fails).",
        "local",
        choices=("local", "hdfs"),
        scope="cluster",
    )
    code_directory: str = key(
        "code.directory",
        "Directory on each host in which candidates keep code; by default in their YARN working directory, which is "
        "deleted with the application.",
        "",
        scope="cluster",
    )
    code_hdfs_directory: str = key(
        "code.hdfs.directory",
        "Directory in the cluster's file system for `code.distributor=hdfs`; if relative, below the user's home "
        "directory.",
        "standfast",
        scope="cluster",
    )
    leader_timeout_ms: int = key(
        "cluster.leader.timeout.ms",
        "Silence after which the leader counts as lost if its host does not answer, and another candidate takes its "
        "place: no answer at its port, and no sign of life in ZooKeeper. The leader stops acting before that, so "
        "writes to ZooKeeper that take longer delay its decisions. `zookeeper.session.timeout.ms` if that is shorter.",
        1_000,
        minimum=500,
        maximum=3_600_000,
        unit="ms",
        scope="cluster",
    )
    zookeeper_session_ms: int = key(
        "zookeeper.session.timeout.ms",
        "ZooKeeper session time-out.",
        6_000,
        minimum=500,
        maximum=3_600_000,
        unit="ms",
        scope="cluster",
    )
    zookeeper_acl: str = key(
        "zookeeper.acl",
        "`digest`: only clients with the credentials of the submit may read and change the cluster's nodes in "
        "ZooKeeper. `open`: everyone who can reach ZooKeeper may, and so can run code as the job's user "
        "(docs/security.md).",
        "digest",
        choices=("digest", "open"),
        scope="cluster",
    )
