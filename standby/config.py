"""The configuration of a job: every key once, with its type, default, bounds and meaning.

`docs/configuration.md` is generated from this table (``python -m appmaster.cli.reference``), so the
page and the checks cannot differ. Keys follow Samza and SEP-23 where those have one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal

from standby import disclosure, naming
from standby.disclosure import FILE, is_path_of_secret
from standby.errors import BadConfiguration
from standby.secret_files import resolved


@dataclass(frozen=True, slots=True)
class Form:
    """What a value looks like: for the check, and in words for whoever gave another one."""

    pattern: re.Pattern[str]
    words: str


_NAME: Final = Form(naming.NAME, naming.NAME_WORDS)
#: Kafka's own rule for topic names, kept for jobs and clusters because topics are named after them.
_TOPIC: Final = Form(
    re.compile(r"[A-Za-z0-9._-]{1,249}\Z"), "up to 249 letters, digits, dots, underscores and dashes"
)
_FUNCTION: Final = Form(
    re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z"),
    "module:function, both by their Python names, as in flights:totals",
)
_STORE: Final = Form(
    re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z"),
    "a letter, then up to 63 letters, digits, underscores and dashes",
)

#: The largest record that a changelog takes, key and value: the topic, its writers and its readers agree on it.
CHANGELOG_RECORD_BYTES: Final = 8 << 20

_COUNT: Final = "job.hotstandby.replicationcount"

#: Prefixes whose keys are handed on as they are: to every Kafka client, and to the Spark session.
PASS_THROUGH: Final = ("kafka.", "spark.")

#: Settings that the exactly-once kernel owns; a job that sets one would break the law it rests on.
OWNED_BY_KERNEL: Final = frozenset(
    {
        "kafka.transactional.id",
        "kafka.enable.idempotence",
        "kafka.enable.auto.commit",
        "kafka.enable.auto.offset.store",
        "kafka.auto.offset.reset",
        "kafka.isolation.level",
        "kafka.group.id",
        "kafka.acks",
    }
)


#: Settings of the Java client (without prefix) that librdkafka refuses: logins that cannot be translated for Spark.
_JAVA_ONLY: Final = frozenset({"sasl.jaas.config", "sasl.login.callback.handler.class"})


@dataclass(frozen=True, slots=True)
class Key:
    """One documented key of the job file."""

    name: str
    doc: str
    minimum: int | None = None
    choices: tuple[str, ...] = ()
    form: Form | None = None
    example: str = ""
    applies: Applies = "start"
    """What a change of it takes on a running job."""


#: What a change of a key takes while the job runs: nothing but the leader's knowing (``live``), containers
#: started anew one by one (``start``), or a job of its own, since state and offsets depend on it (``never``).
Applies = Literal["live", "start", "never"]


def _key(
    name: str,
    doc: str,
    default: Any = dataclasses.MISSING,
    *,
    minimum: int | None = None,
    choices: tuple[str, ...] = (),
    form: Form | None = None,
    example: str = "",
    applies: Applies = "start",
) -> Any:
    """Return a dataclass field that carries its key; required when there is no default."""
    key = Key(name, doc, minimum, choices, form, example, applies)
    return field(default=default, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """A job's configuration, validated; build it with `parse`."""

    # ---- the job ----
    job_name: str = _key(
        "job.name",
        "Name of the job; topics, group and state directories are named after it.",
        form=_NAME,
        applies="never",
    )
    cluster_name: str = _key(
        "cluster.name",
        "Name of the standfast cluster that runs the job; by default the job's own name (a cluster per job).",
        "",
        form=_NAME,
        applies="never",
    )
    modules: tuple[str, ...] = _key(
        "job.modules",
        "Python files of the job, relative to the job file; they are shipped to every container.",
        (),
        example="[flights.py]",
    )
    container_count: int = _key(
        "job.container.count",
        "Number of processors, each with one active container.",
        1,
        minimum=1,
        applies="live",
    )
    grouper: str = _key(
        "job.grouper",
        "How tasks are grouped into processors: `balanced`, `range`, or `module:function` of the application "
        "master's Python (see `appmaster.planning.grouping`).",
        "balanced",
        applies="live",
    )
    may_grow: bool = _key(
        "task.inputs.may.grow",
        "Whether partitions that are added to the input (to every input alike) become new tasks. Keys then move to "
        "other tasks than their state: say yes only if that is all right.",
        False,
        applies="live",
    )
    stores_version: str = _key(
        "task.stores.version",
        "Version of the form in which the code keeps its state. Set another one with code that writes what the former "
        "code cannot read: `rollback` is then refused once the new code has been active.",
        "",
    )
    locality_expiry_ms: int = _key(
        "job.locality.expiry.ms",
        "For how long it is remembered that a host held a task.",
        86_400_000,
        minimum=0,
        applies="live",
    )
    spread: tuple[str, ...] = _key(
        "job.locality.spread",
        "What the copies of a task should not share where that can be had, most important first: `cell`, `rack`, "
        "or the name of a host attribute.",
        ("cell", "rack"),
        applies="live",
    )
    racks: tuple[str, ...] = _key(
        "yarn.racks",
        "Racks of hosts, where YARN's own topology does not know them.",
        (),
        example="[host1=/rack1, host2=/rack2]",
        applies="live",
    )
    host_attributes: tuple[str, ...] = _key(
        "yarn.host.attributes",
        "Attributes of hosts, for `job.locality.spread`.",
        (),
        example="[host1=zone:a, host2=zone:b]",
        applies="live",
    )
    run_start: str = _key(
        "job.start.offset",
        "Where a new run begins to read its input.",
        "earliest",
        choices=("earliest", "latest"),
        applies="never",
    )

    # ---- the pipeline ----
    inputs: tuple[str, ...] = _key(
        "task.inputs",
        "Input topics. Several must have equally many partitions: task n reads partition n of each, so records "
        "of one key meet in one task where all topics are keyed and partitioned alike.",
        form=_TOPIC,
        applies="never",
    )
    outputs: tuple[str, ...] = _key(
        "task.outputs", "Output topics; the first is the default of `Output.emit`.", (), form=_TOPIC
    )
    transform: str = _key(
        "task.transform",
        "`module:function`, DataFrame → DataFrame on the streaming DataFrame; empty: rows pass as they are.",
        "",
        form=_FUNCTION,
        example="flights:clean",
    )
    step: str = _key(
        "task.step",
        "`module:function`, the keyed state function called with the rows of one task, in offset order.",
        form=_FUNCTION,
        example="flights:totals",
    )
    stores: tuple[str, ...] = _key(
        "task.stores",
        "Names of the task's state stores.",
        ("default",),
        form=_STORE,
        applies="never",
    )
    feed: str = _key(
        "task.feed",
        "What reads the input: Spark, or the plain reader without a JVM.",
        "spark",
        choices=("spark", "plain"),
    )
    batch_max_records: int = _key(
        "task.batch.max.records",
        "Most input records in one micro-batch, all tasks of a container together. The first batches have 2,500 at "
        "most; the bound grows while they are quick. When one takes over a second it falls, to 2,500 if need be, "
        "unless smaller batches get far less done.",
        40_000,
        minimum=1,
    )
    batch_max_bytes: int = _key(
        "task.batch.max.bytes",
        "Most bytes of input in one micro-batch, all tasks of a container together; one record there is in any case. "
        "With Spark, whose source counts records only, it is kept to by the mean size of the records before, and the "
        "first batch has 100 at most. Rows are in memory several times: raise it with `spark.driver.memory` and "
        "`cluster-manager.container.memory.mb` only.",
        33_554_432,
        minimum=1,
    )
    on_error: str = _key(
        "task.on.error",
        "What becomes of an input record on which the job's own code fails again and again: `fail` ends the job "
        "(or parks the processor), `skip` leaves the record out, `dead-letter` writes it to `task.dead.letter`.",
        "fail",
        choices=("fail", "skip", "dead-letter"),
    )
    error_attempts: int = _key(
        "task.on.error.attempts",
        "Failures at one committed offset, counted across replicas, before `task.on.error` decides.",
        3,
        minimum=1,
    )
    error_limit: int = _key(
        "task.on.error.limit",
        "Most records of one task that are left out within an hour; more fail the job: the code is wrong, not "
        "the data. -1: no bound.",
        100,
        minimum=-1,
    )
    dead_letter: str = _key(
        "task.dead.letter",
        "Topic for records that were given up, with their error and offset; needed for `dead-letter`.",
        "",
        form=_TOPIC,
    )
    input_lost: str = _key(
        "task.input.lost",
        "What becomes of a task whose next input was deleted before it was processed (its topic's retention is too "
        "short): `fail` ends it, `skip` goes on at the first record that is left; the log and the records given "
        "up tell how many offsets are missing.",
        "fail",
        choices=("fail", "skip"),
    )
    progress_timeout_ms: int = _key(
        "task.progress.timeout.ms",
        "An active with waiting input and no commit for so long is a failure. For so long, and at least 15 s above "
        "job.transaction.timeout.ms, a promotion may stand still, or an active be cut off from Kafka, while another "
        "copy could take over; then that one does.",
        60_000,
        minimum=1_000,
    )

    # ---- state ----
    state_dirs: tuple[str, ...] = _key(
        "job.state.dir",
        "Directories on every host for task state, one per disk; they should survive a container and a reboot. "
        "New state goes where most room is. By default $STANDFAST_STATE_DIR, else `/var/tmp/standfast-<user>`.",
        (),
        applies="never",
        example="[/disk1/standfast, /disk2/standfast]",
    )
    stray_delay_ms: int = _key(
        "job.state.stray.delay.ms",
        "How long state that nobody can use any more stays on a host's disks.",
        3_600_000,
        minimum=0,
    )
    peer_min_records: int = _key(
        "job.restore.peer.min.records",
        "Length of a task's changelog from which on a new replica fetches a copy of another replica's state rather "
        "than replay it; -1: never.",
        50_000,
        minimum=-1,
    )
    peer_max_bytes_per_second: int = _key(
        "job.restore.peer.max.bytes.per.second",
        "Most bytes a second that a container gives to others that fetch state, and most that it fetches; 0: no "
        "bound.",
        268_435_456,
        minimum=0,
    )
    peer_max_concurrent: int = _key(
        "job.restore.peer.max.concurrent",
        "Most copies of state that a container gives at once, and most that it fetches at once.",
        2,
        minimum=1,
    )
    restore_threads: int = _key(
        "job.restore.threads",
        "Most changelogs that a container replays side by side for the job's copies that are not in sync yet; those "
        "in sync are followed by one thread more, however many they are.",
        4,
        minimum=1,
    )
    restore_max_bytes_per_second: int = _key(
        "job.restore.max.bytes.per.second",
        "Most bytes of changelog records that a container replays a second for the job's copies that are not in sync "
        "yet; 0: no bound. A promotion is never slowed down by it.",
        0,
        minimum=0,
    )
    restore_paused: tuple[str, ...] = _key(
        "job.restore.paused",
        "Hosts on which copies that are not in sync replay nothing for now; `all`: everywhere. One that is to become "
        "active replays what it lacks all the same.",
        (),
        example="[host1, host2]",
        applies="live",
    )
    changelog_replication: int = _key(
        "job.changelog.replication.factor",
        "Replication factor of the changelog topic; -1: the brokers' default.",
        -1,
        minimum=-1,
        applies="never",
    )
    changelog_min_in_sync: int = _key(
        "job.changelog.min.insync.replicas",
        "How many replicas of the changelog must have a record before it counts as written; -1: 2 where it has three "
        "or more, else 1.",
        -1,
        minimum=-1,
    )
    changelog_delete_retention_ms: int = _key(
        "job.changelog.delete.retention.ms",
        "How long tombstones are kept; older left-over state is not used, or deleted keys would come back.",
        86_400_000,
        minimum=60_000,
        applies="never",
    )
    transaction_timeout_ms: int = _key(
        "job.transaction.timeout.ms",
        "Age at which the broker aborts a dead active's open transaction, if nobody fences it before: for so long, "
        "and up to the broker's own clean-up interval more, readers of its outputs stand still when nobody takes "
        "over. A transaction that takes longer is aborted too, so keep it above the time a batch needs to be written.",
        5_000,
        minimum=1_000,
    )

    # ---- hot standby ----
    standby_enabled: bool = _key(
        "job.hotstandby.enabled",
        "Whether tasks have hot standbys.",
        False,
        applies="live",
    )
    replication_count: int = _key(
        _COUNT,
        "Standby copies per active; refused without `job.hotstandby.enabled`. Each copy of a task needs a host of its "
        "own, the active's included.",
        1,
        minimum=0,
        applies="live",
    )
    failover: str = _key(
        "job.hotstandby.failover",
        "How a lost active is replaced: `promote` makes a standby active in place; `restart` starts it again, "
        "on its own host if that can be had in time, else on the host of a standby that makes way (SEP-23).",
        "promote",
        choices=("promote", "restart"),
        applies="live",
    )
    standby_query: str = _key(
        "job.hotstandby.query",
        "What a standby does ahead of a promotion, with `task.feed=spark`. `hot`: its streaming query runs all the "
        "time, held at a gate a little behind the active, so that it has nothing to start. `warm`: it rehearses the "
        "start of a query now and then. `cold`: nothing, and the promotion starts Spark.",
        "hot",
        choices=("cold", "warm", "hot"),
    )
    samehost_timeout_ms: int = _key(
        "job.hotstandby.samehost.timeout.ms",
        "Policy `restart`: how long the lost active's own host is asked for before a standby makes way.",
        5_000,
        minimum=0,
        applies="live",
    )
    mixed: bool = _key(
        "job.hotstandby.mixed",
        "Whether containers hold actives and standbys of different tasks side by side. `job.container.count` is "
        "then the number of all containers, and each task fails over by itself.",
        False,
        applies="never",
    )
    prepare_timeout_ms: int = _key(
        "job.hotstandby.prepare.timeout.ms",
        "How long a planned hand-over waits for the standby to be ready before it goes on all the same.",
        10_000,
        minimum=0,
        applies="live",
    )
    heartbeat_interval_ms: int = _key(
        "job.hotstandby.heartbeat.interval.ms",
        "How often a container says that it lives.",
        150,
        minimum=50,
        applies="never",
    )
    heartbeat_timeout_ms: int = _key(
        "job.hotstandby.heartbeat.timeout.ms",
        "Silence after which a container is taken for lost although its host answers: its process stands still.",
        2_000,
        minimum=200,
    )
    host_timeout_ms: int = _key(
        "job.hotstandby.host.timeout.ms",
        "Silence after which a container is taken for lost whose host does not answer either.",
        1_000,
        minimum=200,
    )
    suspect_grace_ms: int = _key(
        "job.hotstandby.suspect.grace.ms",
        "How long a silent container that YARN still lists may come back before it is released and replaced.",
        3_000,
        minimum=0,
        applies="live",
    )
    restore_delay_ms: int = _key(
        "job.hotstandby.restore.delay.ms",
        "For how long at most lost copies wait for a failover under way to end before they are asked for: "
        "a container that starts takes processor and network from the one that takes over.",
        3_000,
        minimum=0,
        applies="live",
    )
    lag_time_ms: int = _key(
        "job.hotstandby.lag.time.ms",
        "A standby behind the changelog's end for longer is not in sync. Keep it above the heartbeat time-out: the "
        "transaction that a silent host leaves open hides the end, and its standby is not late by that.",
        10_000,
        minimum=100,
    )
    orphan_timeout_ms: int = _key(
        "job.hotstandby.orphan.timeout.ms",
        "A container that finds no leader for so long ends itself.",
        60_000,
        minimum=1_000,
        applies="never",
    )
    host_affinity: bool = _key(
        "job.host-affinity.enabled",
        "Whether a lost replica is asked for on its last host first, where its state lies.",
        True,
        applies="live",
    )

    # ---- YARN ----
    memory_mb: int = _key(
        "cluster-manager.container.memory.mb",
        "Memory of a container, MiB.",
        1_536,
        minimum=64,
        applies="never",
    )
    vcores: int = _key(
        "cluster-manager.container.cpu.cores",
        "Virtual cores of a container.",
        1,
        minimum=1,
        applies="never",
    )
    request_timeout_ms: int = _key(
        "cluster-manager.container.request.timeout.ms",
        "How long a request for a preferred host waits before any host will do.",
        5_000,
        minimum=100,
        applies="live",
    )
    retry_count: int = _key(
        "cluster-manager.container.retry.count",
        "Failures of one processor copy inside the window after which the job fails; -1: no bound.",
        8,
        minimum=-1,
        applies="live",
    )
    retry_window_ms: int = _key(
        "cluster-manager.container.retry.window.ms",
        "The window in which failures are counted.",
        300_000,
        minimum=1_000,
        applies="live",
    )
    retry_exhausted: str = _key(
        "cluster-manager.container.retry.exhausted",
        "What too many failures in the window do: `fail` the job, or `park` the processor until "
        "`standfast unpark`, while the rest of the job runs on.",
        "fail",
        choices=("fail", "park"),
        applies="live",
    )
    cells: int = _key(
        "appmaster.cells",
        "Number of cells: YARN applications of the cluster, each with an application master that can lead and with "
        "the containers it asked for. Losing one takes its containers with it; with two or more no task has all its "
        "copies in one.",
        2,
        minimum=1,
        applies="never",
    )
    am_memory_mb: int = _key(
        "yarn.am.container.memory.mb",
        "Memory of the application master's container, MiB.",
        512,
        minimum=128,
        applies="never",
    )
    am_vcores: int = _key(
        "yarn.am.container.cpu.cores",
        "Virtual cores of the application master's container.",
        1,
        minimum=1,
        applies="never",
    )
    am_max_attempts: int = _key(
        "yarn.am.max.attempts",
        "Application-master attempts (bounded by the cluster's own maximum).",
        4,
        minimum=1,
        applies="never",
    )
    log_max_bytes: int = _key(
        "yarn.container.log.max.bytes",
        "Most bytes of what a container's or a candidate's processes have printed that are kept on the host: half of "
        "it in the file that YARN shows, half in the one before it, whose name ends with `.1`.",
        67_108_864,
        minimum=100_000,
        applies="never",
    )
    am_heartbeat_ms: int = _key(
        "yarn.am.heartbeat.interval.ms",
        "How often the application master talks to the ResourceManager.",
        200,
        minimum=50,
        applies="never",
    )
    http_port: int = _key(
        "yarn.am.http.port",
        "Port on which the application master serves metrics and service discovery over HTTP; "
        "0, or one that is taken: any free one.",
        0,
        minimum=0,
        applies="never",
    )
    http_pages: str = _key(
        "yarn.am.http.pages",
        "What that port answers, to everybody: `all` pages, or `metrics`: `/metrics`, `/healthz` and `/sd` only. The "
        "command line does not need the others.",
        "all",
        choices=("all", "metrics"),
        applies="never",
    )
    # ---- the code of jobs ----
    code_replicas: int = _key(
        "code.min.replication.count",
        "Number of candidates that must hold a job's code before a revision of it is activated.",
        1,
        minimum=1,
        applies="live",
    )
    code_wait_seconds: int = _key(
        "code.max.replication.wait.seconds",
        "How long a leader waits for that number; then the revision is activated if at least one candidate holds "
        "its code. -1: for ever.",
        60,
        minimum=-1,
        applies="live",
    )
    code_sync_seconds: int = _key(
        "code.sync.seconds",
        "How often at least a candidate tries again to fetch code that it lacks (it also tries at each change). Twice "
        "this time without any live holder, and the job stops keeping candidates from leading.",
        30,
        minimum=1,
        applies="never",
    )
    code_distributor: str = _key(
        "code.distributor",
        "How code comes to candidates: `local` (from each other) or `hdfs` (through the cluster's own file system, "
        "and from each other where that fails).",
        "local",
        choices=("local", "hdfs"),
        applies="never",
    )
    code_directory: str = _key(
        "code.directory",
        "Directory on each host in which candidates keep code; by default in their YARN working directory, which goes "
        "with the application.",
        "",
        applies="never",
    )
    code_hdfs_directory: str = _key(
        "code.hdfs.directory",
        "Directory in the cluster's file system for `code.distributor=hdfs`; relative: below the user's home.",
        "standfast",
        applies="never",
    )
    queue: str = _key(
        "yarn.queue",
        "YARN queue.",
        "default",
        applies="never",
    )
    container_label: str = _key(
        "yarn.container.label",
        "Node label for the job's containers.",
        "",
        applies="never",
    )
    am_label: str = _key(
        "yarn.am.container.label",
        "Node label for the application master.",
        "",
        applies="never",
    )
    hosts: tuple[str, ...] = _key(
        "yarn.hosts",
        "Hosts that may be asked for by name; empty: every RUNNING node at submit. "
        "Later hosts are reached by any-host requests.",
        (),
        applies="never",
    )

    # ---- Python on the hosts ----
    python: str = _key(
        "job.python",
        "Absolute path of the Python interpreter on every host; by default the one that submits.",
        "",
        applies="never",
    )
    python_archive: str = _key(
        "job.python.archive",
        "A packed environment (.tar.gz, .zip) to ship instead; its `bin/python` is used.",
        "",
        applies="never",
    )

    # ---- servers ----
    kafka_bootstrap: str = _key(
        "kafka.bootstrap.servers",
        "Kafka brokers; by default $STANDFAST_KAFKA.",
        example="broker1:9092,broker2:9092",
        applies="never",
    )
    zookeeper: str = _key(
        "zookeeper.connect",
        "ZooKeeper servers; by default $STANDFAST_ZOOKEEPER.",
        example="zk1:2181,zk2:2181",
        applies="never",
    )
    zookeeper_session_ms: int = _key(
        "zookeeper.session.timeout.ms",
        "ZooKeeper session time-out.",
        6_000,
        minimum=500,
        applies="never",
    )
    zookeeper_acl: str = _key(
        "zookeeper.acl",
        "`digest`: only who has the Skein credentials of the submit may read and change the cluster's nodes in "
        "ZooKeeper. `open`: everybody who reaches ZooKeeper may, and so run code as the job's user (docs/security.md).",
        "digest",
        choices=("digest", "open"),
        applies="never",
    )

    # Without their values in the representation: passwords are among them.
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every other `kafka.*` key, prefix taken off: settings of each Kafka client."""
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every `spark.*` key with its prefix: settings of the Spark session."""

    @property
    def cluster(self) -> str:
        """Return the cluster's name."""
        return self.cluster_name or self.job_name

    @property
    def standbys(self) -> int:
        """Return how many standby copies each active has."""
        return self.replication_count if self.standby_enabled else 0

    @property
    def stage(self) -> str:
        """Return the name of the job's one stage."""
        return "main"


def keys() -> Iterator[tuple[Key, dataclasses.Field[Any]]]:
    """Yield every documented key with its dataclass field, in the order of the reference page."""
    for each in dataclasses.fields(JobConfig):
        key = each.metadata.get("key")
        if key is not None:
            yield key, each


def shown(name: str, value: str) -> str:
    """Return a setting's value as it may be shown: what is not known to be harmless only as three asterisks."""
    return disclosure.shown(name, value, {key.name for key, _ in keys()})


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested configuration as flat dotted keys with text values; lists join with commas.

    ``{"job": {"name": "a", "hotstandby.enabled": True}}`` gives ``{"job.name": "a",
    "job.hotstandby.enabled": "true"}``. Raises `BadConfiguration` where a key is given twice, and where a comma is
    in a text that is to be a list, or in one of its items: it would part what was written as one.
    """
    flat: dict[str, str] = {}
    lists = {key.name for key, each in keys() if _is_list(each)}

    def put(name: str, value: str) -> None:
        if name in flat:
            raise BadConfiguration(f"{name}: given twice, nested and dotted; keep one")
        flat[name] = value

    for name, value in tree.items():
        full = f"{prefix}{name}"
        if full in lists:
            _refuse_commas(full, value)
        if isinstance(value, Mapping):
            for inner, text in flatten(value, f"{full}.").items():
                put(inner, text)
        elif isinstance(value, (list, tuple)):
            put(full, ",".join(_text(each, full) for each in value))
        elif value is not None:
            put(full, _text(value, full))
    return flat


def _is_list(each: dataclasses.Field[Any]) -> bool:
    return str(each.type).startswith("tuple")


def _refuse_commas(name: str, value: object) -> None:
    """Raise `BadConfiguration` for a list that is written as text, with the list that was probably meant."""
    items = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(each, str) and "," in each for each in items):
        parts = (part.strip() for each in items for part in str(each).split(","))
        meant = ", ".join(part for part in parts if part)
        raise BadConfiguration(f"{name}: a comma in a text makes no list; write a list: {name}: [{meant}]")


def _text(value: object, name: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    given = shown(name, repr(value))
    raise BadConfiguration(f"{name}: {given} is neither text, number, truth value nor a list of those")


def parse(flat: Mapping[str, str]) -> JobConfig:
    """Return the configuration in ``flat``, every value checked.

    Raises `BadConfiguration` naming each wrong key or value, all of them in one message.
    """
    known = {key.name: (key, each) for key, each in keys()}
    wrong: list[str] = []
    values: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    spark: dict[str, str] = {}
    for name, text in flat.items():
        if name in known:
            key, each = known[name]
            try:
                values[each.name] = _value(key, str(each.type), text)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
        elif name in OWNED_BY_KERNEL:
            wrong.append(f"{name}: exactly-once rests on this setting, a job cannot change it; remove it")
        elif name.startswith("kafka."):
            kafka[name[len("kafka.") :]] = text
        elif name.startswith("spark."):
            spark[name] = text
        else:
            near = get_close_matches(name, known, n=1, cutoff=0.7)
            wrong.append(f"{name}: no such key" + (f"; did you mean {near[0]}?" if near else ""))
    for key, each in keys():
        required = each.default is dataclasses.MISSING
        if required and each.name not in values and key.name not in flat:
            wrong.append(f"{key.name}: missing; {key.doc}")
    if not wrong:
        config = JobConfig(**values, kafka=kafka, spark=spark)
        wrong.extend(_contradictions(config))
        wrong.extend(_left_out(flat, config))
        if not wrong:
            return config
    raise BadConfiguration("the configuration is wrong:\n  " + "\n  ".join(wrong))


def _value(key: Key, kind: str, text: str) -> Any:
    """Return ``text`` as the field's type; raises ValueError with what was expected."""
    text = text.strip()
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is not true or false")
        return text.lower() == "true"
    if kind == "int":
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None
        if key.minimum is not None and number < key.minimum:
            raise ValueError(f"{number} is below the least allowed, {key.minimum}")
        return number
    parts = (
        tuple(part.strip() for part in text.split(",") if part.strip())
        if kind.startswith("tuple")
        else (text,)
    )
    for part in parts:
        if key.choices and part not in key.choices:
            raise ValueError(f"{part!r} is not one of {', '.join(key.choices)}")
        if key.form and part and not key.form.pattern.match(part):
            raise ValueError(f"{part!r} is not allowed; it can be {key.form.words}")
    if kind.startswith("tuple"):
        return parts
    return text


def _left_out(flat: Mapping[str, str], config: JobConfig) -> Iterator[str]:
    """Yield what is wrong between keys that were given and others that were not."""
    if "job.state.dir" in flat and not config.state_dirs:
        yield "job.state.dir: give at least one directory, or leave it out"
    if _COUNT in flat and config.replication_count and "job.hotstandby.enabled" not in flat:
        yield (
            f"{_COUNT}: {config.replication_count}, but job.hotstandby.enabled is not set; set it to true for "
            "standbys, or to false to do without"
        )


def _secrets(given: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with secrets that are given by files."""
    for name, path in given.items():
        if not is_path_of_secret(name):
            continue
        if name.removesuffix(FILE) in given:
            yield f"{name} and {name.removesuffix(FILE)}: give one of them"
        if not path.startswith("/"):
            yield f"{name}: {path!r} is not an absolute path"


def _contradictions(config: JobConfig) -> Iterator[str]:
    """Yield what is wrong between keys that are right one by one."""
    yield from _secrets({**{f"kafka.{name}": each for name, each in config.kafka.items()}, **config.spark})
    if config.heartbeat_timeout_ms < 2 * config.heartbeat_interval_ms:
        yield (
            f"job.hotstandby.heartbeat.timeout.ms: {config.heartbeat_timeout_ms} is less than twice the interval "
            f"({config.heartbeat_interval_ms}); one late heartbeat would be a failover"
        )
    if config.host_timeout_ms < 2 * config.heartbeat_interval_ms:
        yield (
            f"job.hotstandby.host.timeout.ms: {config.host_timeout_ms} is less than twice the interval of heartbeats "
            f"({config.heartbeat_interval_ms}); one lost packet would be a failover"
        )
    if not config.inputs or len(set(config.inputs)) != len(config.inputs):
        yield "task.inputs: give at least one topic, and none twice"
    if config.python and not config.python.startswith("/"):
        yield f"job.python: {config.python!r} is not an absolute path"
    if config.python and config.python_archive:
        yield "job.python and job.python.archive: give one of them"
    for each in config.state_dirs:
        if not each.startswith("/"):
            yield f"job.state.dir: {each!r} is not an absolute path"
    if len(set(config.state_dirs)) != len(config.state_dirs):
        yield "job.state.dir: give none twice"
    longest = naming.changelog_topic(config.cluster, config.job_name, config.stage, "0" * 32)
    if len(longest) > 249:
        yield (
            "job.name, cluster.name: too long together; "
            f"the changelog's topic would have {len(longest)} characters, Kafka allows 249"
        )
    yield from _contradictions_of_failures(config)
    if config.stores and len(set(config.stores)) != len(config.stores):
        yield "task.stores: a name is given twice"
    if set(config.inputs) & set(config.outputs):
        yield "task.outputs: an input topic is also an output; the job would feed itself"


def _contradictions_of_failures(config: JobConfig) -> Iterator[str]:
    """Yield what is wrong between the keys of failover, placement and failing records."""
    if config.on_error == "dead-letter" and not config.dead_letter:
        yield "task.dead.letter: missing; task.on.error is dead-letter, and needs a topic to write to"
    if config.dead_letter and config.dead_letter in config.inputs:
        yield "task.dead.letter: an input topic; the job would feed itself"
    if config.mixed and config.failover != "promote":
        yield "job.hotstandby.failover: mixed containers can only promote (job.hotstandby.mixed)"
    if config.mixed and config.container_count < 1 + config.standbys:
        yield (
            f"job.container.count: {config.container_count} mixed containers cannot keep {1 + config.standbys} "
            "copies of a task apart"
        )
    if config.http_port > 65_535:
        yield f"yarn.am.http.port: {config.http_port} is no port; the highest is 65535"
    for name, entries in (("yarn.racks", config.racks), ("yarn.host.attributes", config.host_attributes)):
        for entry in entries:
            host, parted, value = entry.partition("=")
            if not (host and parted and value):
                yield f"{name}: {entry!r} is not host=value"


def kafka_settings(config: JobConfig, **ours: str | int | bool) -> dict[str, str | int | bool]:
    """Return librdkafka settings: the job's `kafka.*` keys, then ``ours`` (underscores for dots), which win."""
    return {
        **librdkafka_settings(config.kafka_bootstrap, config.kafka),
        **{name.replace("_", "."): value for name, value in ours.items()},
    }


def librdkafka_settings(bootstrap: str, further: Mapping[str, str]) -> dict[str, str | int | bool]:
    """Return settings for librdkafka, without those of ``further`` that are for Spark's reader alone.

    Secrets that files hold are read here, on this host; raises as `standby.secret_files.resolved`.
    """
    return {
        "bootstrap.servers": bootstrap,
        **{name: value for name, value in resolved(further, "kafka.").items() if name not in _JAVA_ONLY},
    }
