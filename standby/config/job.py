"""Keys of a job, its standbys and its code."""

from __future__ import annotations

from dataclasses import dataclass

from standby.config.keys import MOST_CONTAINERS, MOST_MS, NAME, OF_HOST, PATH, key


@dataclass(frozen=True, kw_only=True)
class JobKeys:
    """Keys of a job: its name, its processors, and the placement of its copies."""

    job_name: str = key(
        "job.name",
        "Name of the job; topics, group and state directories are named after it.",
        form=NAME,
        scope="run",
    )
    cluster_name: str = key(
        "cluster.name",
        "Name of the standfast cluster that runs the job; by default the job's own name (a cluster per job).",
        "",
        form=NAME,
        scope="run",
    )
    modules: tuple[str, ...] = key(
        "job.modules",
        "Python files of the job, relative to the job file, folders, and `.zip` and `.whl` archives of pure Python; "
        "they are shipped to every container. Names of Python's own modules and of packages that standfast contains or "
        "needs are refused: `json.py`, `kazoo.py`, `locality.py`.",
        (),
        example="[flights.py]",
    )
    container_count: int = key(
        "job.container.count",
        "Number of processors, each with one active container.",
        1,
        minimum=1,
        maximum=MOST_CONTAINERS,
        applies="live",
    )
    grouper: str = key(
        "job.grouper",
        "How tasks are grouped into processors: `balanced`, `range`, or `module:function` of the application "
        "master's Python (see `appmaster.planning.state.grouping`).",
        "balanced",
        applies="live",
    )
    may_grow: bool = key(
        "task.inputs.may.grow",
        "Whether partitions that are added to the input (to every input alike) become new tasks. Keys then move to "
        "other tasks than their state: enable it only if that is acceptable.",
        False,
        applies="live",
    )
    stores_version: str = key(
        "task.stores.version",
        "Version of the format in which the code keeps its state. Set another one with code that writes what the "
        "former code cannot read: `rollback` is then refused once the new code has been active.",
        "",
    )
    racks: tuple[str, ...] = key(
        "yarn.racks",
        "Racks of hosts, if YARN's own topology does not know them.",
        (),
        example="[host1=/rack1, host2=/rack2]",
        applies="live",
        form=OF_HOST,
    )
    host_attributes: tuple[str, ...] = key(
        "yarn.host.attributes",
        "Attributes of hosts, for `job.locality.spread`.",
        (),
        example="[host1=zone:a, host2=zone:b]",
        applies="live",
        form=OF_HOST,
    )
    run_start: str = key(
        "job.start.offset",
        "Where a new run starts reading its input.",
        "earliest",
        choices=("earliest", "latest"),
        scope="run",
    )


@dataclass(frozen=True, kw_only=True)
class HotStandbyKeys:
    """Keys of a job's standbys, and how they take over."""

    standby_enabled: bool = key(
        "job.hotstandby.enabled",
        "Whether tasks have hot standbys.",
        False,
        applies="live",
    )
    replication_count: int = key(
        "job.hotstandby.replicationcount",
        "Standby copies per active; refused without `job.hotstandby.enabled`. Each copy of a task, including the "
        "active, needs a host of its own.",
        1,
        minimum=0,
        maximum=100,
        applies="live",
    )
    failover: str = key(
        "job.hotstandby.failover",
        "How a lost active is replaced: `promote` makes a standby active in place; `restart` starts it again, on its "
        "own host if that is available in time, otherwise on the host of a displaced standby (SEP-23).",
        "promote",
        choices=("promote", "restart"),
        applies="live",
    )
    standby_warm: bool = key(
        "job.hotstandby.warm",
        "Whether standbys keep Spark ready, if the job has a transform for it: the JVM runs, and rehearsals over some "
        "recent records compile the transform. Otherwise a promotion starts the JVM.",
        True,
    )
    mixed: bool = key(
        "job.hotstandby.mixed",
        "Whether containers hold actives and standbys of different tasks together. `job.container.count` is then the "
        "number of all containers, at least 1 + standbys, and each task fails over by itself. Only with policy "
        "`promote`.",
        False,
        applies="never",
    )


@dataclass(frozen=True, kw_only=True)
class CodeKeys:
    """Keys of the hosts' Python, and the activation of new code."""

    code_replicas: int = key(
        "code.min.replication.count",
        "Number of candidates that must hold a job's code before a revision of it is activated.",
        1,
        minimum=1,
        maximum=100,
        applies="live",
    )
    code_wait_seconds: int = key(
        "code.max.replication.wait.seconds",
        "How long a leader waits for that number; then the revision is activated if at least one candidate holds its "
        "code. -1: no limit.",
        60,
        minimum=-1,
        maximum=MOST_MS // 1_000,
        applies="live",
        unit="s",
    )
    python: str = key(
        "job.python",
        "Absolute path of the Python interpreter on every host; by default the one used for the submit.",
        "",
        scope="cluster",
        form=PATH,
    )
    python_archive: str = key(
        "job.python.archive",
        "A packed environment (.tar.gz, .zip) to ship instead, relative to the job file; its `bin/python` is used.",
        "",
        scope="cluster",
    )
