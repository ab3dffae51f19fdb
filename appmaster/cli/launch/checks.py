"""Checks before anything is created: the tree, topics, YARN, brokers; each raises what is wrong, or warns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from appmaster import groupers
from appmaster.adapters import kafka_release
from appmaster.adapters.kafka import Topics, first_event, read_events
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.cli.launch.cells import Topology
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.hadoop_conf import HadoopConfiguration
from appmaster.cli.shared.jobfile import JobFile, environment_digest
from appmaster.cli.shared.waiting import PollResult, until
from appmaster.config import job_demand
from appmaster.records import JobRecord
from appmaster.topics import brokers, changelog
from appmaster.topics.ids import judge, kinds
from appmaster.topics.ports import TopicShape
from locality.fit import serves, why_none
from locality.hosts import parse_table
from standby.config import JobConfig, KafkaSettings, check_size, kafka_settings
from standby.errors import BadConfiguration, Unavailable
from standby.security.disclosure import is_secret
from standby.shared import naming
from standby.shared.model import TopicIdentity
from standby.shared.wire import JobDefinition

#: Time after which every broker knows a topic that was created.
_NEW_TOPIC_SECONDS: Final = 10.0

_CODE_REPLICAS: Final = "code.min.replication.count"

#: Resource → YARN's setting of the most that a container is granted, and its default.
_MOST_GRANTED: Final = {
    "memory": ("yarn.scheduler.maximum-allocation-mb", 8_192),
    "vcores": ("yarn.scheduler.maximum-allocation-vcores", 4),
}


def check_tree(job: JobFile, *, is_open: bool, is_new: bool) -> str:
    """Return a warning if everyone who can reach ZooKeeper can change the job's cluster; empty if not.

    ``is_open``: whether they already can; ``is_new``: whether no other job of the cluster runs. Raises
    `BadConfiguration` if the job does not want that, or has secrets, which everyone could read.
    """
    config = job.config
    is_meant = config.zookeeper_acl == "open"
    if not is_open and not is_meant:
        return ""
    if is_new and is_open and not is_meant:
        raise BadConfiguration(
            f"the tree of cluster {config.cluster} in ZooKeeper is open: everybody who reaches ZooKeeper can run code "
            f"as you. Close it with `standfast protect {config.cluster}`, or set zookeeper.acl=open if that is meant"
        )
    check_secrets(job, lambda: True)
    return (
        f"everybody who reaches ZooKeeper can run code as you, because the tree of cluster {config.cluster} is open; "
        f"to close it, kill its jobs and give `standfast protect {config.cluster}`"
    )


def check_secrets(job: JobFile, is_open: Callable[[], bool]) -> None:
    """Raise `BadConfiguration` if the job has secrets that everybody who reaches ZooKeeper could read there.

    ``is_open`` returns whether the cluster's tree is open; it is called only if that decides.
    """
    readable = sorted(name for name, value in job.flat.items() if value and is_secret(name))
    if readable and (job.config.zookeeper_acl == "open" or is_open()):
        raise BadConfiguration(
            f"{', '.join(readable)}: everybody who reaches ZooKeeper could read it there, because the tree of cluster "
            f"{job.config.cluster} is open. Give the names of files on the hosts instead ({readable[0]}.file); or kill "
            f"the jobs, close the tree with `standfast protect {job.config.cluster}`, and leave zookeeper.acl=open out"
        )


def check_no_namesake(
    config: JobConfig,
    topics: Topics,
    deadline: Deadline,
    first: Callable[[KafkaSettings, str], int] = first_event,
    read: Callable[..., Iterable[Mapping[str, Any]]] = read_events,
) -> None:
    """Raise `BadConfiguration` if a leader of a cluster of this name has written to Kafka, for a cluster that is new.

    Names in Kafka contain the cluster's name alone. Of two clusters that use the same ones, each active would fence the
    other's. An entry of a command (epoch 0) does not count: a submit whose cluster was deleted may write one later. A
    log with entries that have expired counts, because a leader may have written them, and nothing since. Raises
    `Unavailable` if that cannot be found out within ``deadline``.
    """
    topic, settings = naming.event_topic(config.cluster), kafka_settings(config)
    if not topics.count(topic):
        return
    entries = read(settings, topic, follow=False, stop=lambda: deadline.is_over)
    if first(settings, topic) > 0 or any(each["epoch"] for each in entries):
        raise BadConfiguration(
            f"{config.kafka_bootstrap} has {topic}, the event log of a cluster {config.cluster}, which is not in "
            f"ZooKeeper at {config.zookeeper}. If it runs with other servers, or another path, in zookeeper.connect, "
            "set cluster.name to a name of its own: the tasks of both would fence each other. If it does not run any "
            "more, delete this topic"
        )
    if deadline.is_over:
        raise Unavailable(
            f"the event log {topic} could not be read within {deadline.seconds:g} s; give a longer --timeout"
        )


def check_placement(config: JobConfig) -> None:
    """Raise `BadConfiguration` for entries about hosts, or a grouper, that the leader cannot use.

    A grouper of the job's own is looked for in this Python, and the master must not find it missing either: call it
    where the job's modules are not on the path.
    """
    wrong = parse_table(config.racks, config.host_attributes).wrong
    if wrong:
        raise BadConfiguration("; ".join(wrong))
    groupers.resolve(config.grouper)


def check_topics(job: JobFile, topics: Topics, present: JobConfig | None = None) -> int:
    """Return the number of tasks, which is the number of partitions of every input.

    ``present``: of a job that runs. Raises `BadConfiguration` naming each topic that does not exist, or each input's
    number of partitions if they differ, or that are too many (`check_size`), `Unavailable` naming a topic that this
    principal may not describe.
    """
    config = job.config
    known = dict(topics.partitions())
    # Kafka's list leaves out topics that may not be described; asked for such a topic by name, Kafka reports that.
    unlisted = [name for name in (*config.inputs, *config.written_topics) if name not in known]
    known.update((name, topics.count(name)) for name in unlisted)
    missing = [name for name in unlisted if not known[name]]
    if missing:
        raise BadConfiguration(
            f"topic {', '.join(missing)} does not exist on {config.kafka_bootstrap}; create it, "
            f"or correct task.inputs{', task.dead.letter' if config.dead_letter_topic else ''} and task.outputs"
        )
    if len({known[name] for name in config.inputs}) > 1:
        counts = ", ".join(f"{name} has {known[name]}" for name in config.inputs)
        raise BadConfiguration(
            f"task.inputs: the inputs need equally many partitions, because task n reads partition n of each; {counts}"
        )
    tasks = known[config.inputs[0]]
    check_size(config, tasks, present)
    return tasks


def check_yarn(config: JobConfig, client: Any) -> Topology:
    """Return the same as `topology_of`, for a job that starts its cluster.

    Raises `BadConfiguration` for requests that YARN cannot satisfy.
    """
    nodes = _running_nodes(client)
    # YARN grants no more than its largest host has, of cores either, whatever its scheduler counts.
    for resource, unit, asked in _asked_of_yarn(config):
        largest = max(int(getattr(each.total_resources, resource)) for each in nodes)
        for key, value in asked:
            if value > largest:
                raise BadConfiguration(f"{key}: {value}{unit}, but the largest host offers {largest}")
    names = {queue.name for queue in client.get_all_queues()}
    if config.queue not in names:
        raise BadConfiguration(f"yarn.queue: no queue {config.queue}; YARN has {', '.join(sorted(names))}")
    running = {each.host for each in nodes}
    unknown = [each for each in config.hosts if each not in running]
    if unknown:
        raise BadConfiguration(
            f"yarn.hosts: {', '.join(unknown)} not RUNNING in YARN; it has {', '.join(sorted(running))}"
        )
    return _topology(config, nodes)


def _asked_of_yarn(config: JobConfig) -> tuple[tuple[str, str, tuple[tuple[str, int], ...]], ...]:
    """Return each resource with its unit, and what is asked of it by which key."""
    return (
        (
            "memory",
            " MiB",
            (
                ("cluster-manager.container.memory.mb", config.memory_mb),
                ("yarn.am.container.memory.mb", config.am_memory_mb),
            ),
        ),
        (
            "vcores",
            "",
            (
                ("cluster-manager.container.cpu.cores", config.vcores),
                ("yarn.am.container.cpu.cores", config.am_vcores),
            ),
        ),
    )


def allocation_warnings(config: JobConfig, hadoop: HadoopConfiguration) -> Iterator[str]:
    """Yield a warning for each request above what YARN grants at most, according to the client's configuration. Pure.

    The ResourceManager's own configuration decides, and a queue may have less; neither can be asked.
    """
    for resource, unit, asked in _asked_of_yarn(config):
        name, default = _MOST_GRANTED[resource]
        given = (hadoop.get(name) or "").strip()
        most = int(given) if given.isdecimal() else default
        where = "in the Hadoop configuration here" if given.isdecimal() else "by default"
        for key, value in asked:
            if value > most:
                yield (
                    f"warning: {key}: {value}{unit}, and {name} is {most} {where}: if the ResourceManager has that, "
                    "too, YARN refuses the requests, and the applications fail; ask for less, or raise it there"
                )


def topology_of(config: JobConfig, client: Any) -> Topology:
    """Return the hosts that get their own service, and the rack of every host; raises `Unavailable` without any."""
    return _topology(config, _running_nodes(client))


def _running_nodes(client: Any) -> Sequence[Any]:
    nodes: Sequence[Any] = client.get_nodes(states=["RUNNING"])
    if not nodes:
        raise Unavailable("YARN has no RUNNING node")
    return nodes


def _topology(config: JobConfig, nodes: Sequence[Any]) -> Topology:
    running = tuple(sorted(each.host for each in nodes))
    return config.hosts or running, {each.host: str(each.rack_name or "") for each in nodes}


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """What a pool has for a job."""

    hosts: tuple[str, ...]
    """Hosts with a process that fits, whether it waits or not."""
    waiting: int
    """How many processes wait that fit."""
    lack: str
    """Why no process fits; empty: one does, or there is none at all."""


def check_pool(config: JobConfig, zookeeper: ZooKeeper) -> PoolAnswer:
    """Return what a cluster's pool has for a job.

    Raises `Unavailable` if the cluster has no master: nothing would take the job.
    """
    if not zookeeper.registry.candidates():
        raise Unavailable(
            "the cluster is a pool, and no master of it runs; start one with `standfast master`"
        )
    members = zookeeper.pool.read(sorted(zookeeper.pool.names())).values()
    # How many tasks each process has is decided later.
    demand = replace(job_demand(config), tasks=1)
    fitting = [each for each in members if serves(each.process, demand)]
    hosts = {each.record.host for each in fitting}
    waiting = sum(not each.record.claim for each in fitting)
    lack = why_none(demand, [each.process for each in members])
    return PoolAnswer(tuple(sorted(hosts)), waiting, lack)


def missing_hosts_warning(config: JobConfig, hosts: int) -> str:
    """Return a warning if this number of hosts cannot hold every copy of a task; empty if it can. Pure."""
    needed = 1 + config.standbys
    if hosts >= needed:
        return ""
    copies = "1 standby and its" if config.standbys == 1 else f"{config.standbys} standbys and their"
    there = "there is 1 host" if hosts == 1 else f"there are {hosts} hosts"
    return (
        f"warning: {copies} active need {needed} hosts, one each, and {there}: some copies have no place until there "
        "are more (job.hotstandby.replicationcount)"
    )


def unused_topic_warning(config: JobConfig) -> str:
    """Return a warning if a topic is named for dead letters, and none are written; empty otherwise. Pure."""
    if not config.dead_letter or config.on_error == "dead-letter":
        return ""
    return (
        f"warning: task.dead.letter has no effect, because task.on.error is {config.on_error}; set that to "
        f"dead-letter, or nothing is written to {config.dead_letter}"
    )


def check_candidates(config: JobConfig, cells: int | None, *, is_new: bool) -> None:
    """Raise `BadConfiguration` if the job would wait without end until more candidates hold its code than there are.

    On YARN each of the cluster's ``cells`` has one candidate; None: a pool, which may have any number, or it is not
    known. ``is_new``: whether the job starts the cluster. Pure.
    """
    if cells is not None and config.code_replicas > cells and config.code_wait_seconds < 0:
        remedy = (
            "Lower it, raise appmaster.cells, or give a limit"
            if is_new
            else "Lower it, or give a limit (appmaster.cells is fixed while a cluster runs)"
        )
        raise BadConfiguration(
            f"{_CODE_REPLICAS}: {config.code_replicas}, and the cluster has {_candidates(cells)}; with "
            f"code.max.replication.wait.seconds=-1 the job would wait for more without end. {remedy}"
        )


def missing_candidates_warning(config: JobConfig, cells: int | None, *, is_new: bool) -> str:
    """Return a warning if the job would wait so in vain, but not without end; empty otherwise. Pure.

    The arguments are those of `check_candidates`.
    """
    if cells is None or config.code_replicas <= cells or config.code_wait_seconds <= 0:
        return ""
    remedy = "lower it, or raise appmaster.cells" if is_new else "lower it"
    return (
        f"warning: {_CODE_REPLICAS} is {config.code_replicas}, and the cluster has {_candidates(cells)}: each revision "
        f"is activated only after {config.code_wait_seconds} s (code.max.replication.wait.seconds); {remedy}"
    )


def _candidates(cells: int) -> str:
    return f"{cells} candidate{'' if cells == 1 else 's'}, one for each cell"


def other_environment_warning(
    config: JobConfig, shipped: Collection[str], *, is_restored: bool = False
) -> str:
    """Return a warning if a job's packed environment is another than its running cluster ships; empty otherwise.

    ``shipped``: `appmaster.records.recorded_environments`. ``is_restored``: whether cells are restored with it; else
    the cluster goes on with its own. The file may just have been packed again, which never gives the same bytes. One
    that is not here cannot be compared.
    """
    mine = environment_digest(config.python_archive) if shipped else ""
    if not mine or mine in shipped:
        return ""
    follows = (
        "a restored cell ships it as it is now, so that its processes may have other releases of packages, and of "
        "standfast, than those of the other cells"
        if is_restored
        else "they go on with what they were started with. To use this one, kill every job of the cluster and submit "
        "it again (`standfast submit --update` does both for a cluster's only job; state and offsets stay)"
    )
    return (
        f"warning: job.python.archive: {config.python_archive} has other contents than when the cells of cluster "
        f"{config.cluster} were started; {follows}"
    )


def describe_brokers(config: JobConfig, definition: JobDefinition) -> brokers.Brokers:
    """Return what can be found out about the brokers and the topics that the job writes to, or will create.

    Raises `BadConfiguration` if the job could never write to one of them.
    """
    written = (definition.changelog, *config.written_topics)
    found = kafka_release.inspect_brokers(kafka_settings(config), written)
    brokers.check(found, config.transaction_timeout_ms)
    asked, present = config.changelog_replication, found.topics.get(definition.changelog)
    replicas = present.replicas if present is not None else asked if asked > 0 else found.default_replicas
    if replicas is None:
        return found
    changelog.check_in_sync(config, replicas)
    if present is not None:
        return found
    in_sync = {"min.insync.replicas": str(changelog.least_in_sync(config, replicas))}
    planned = {"(the changelog)": TopicShape(definition.tasks, replicas, in_sync)}
    return replace(found, topics={**planned, **found.topics})


def check_changelog(
    job: JobFile, topics: Topics, definition: JobDefinition, present: JobRecord | None
) -> None:
    """Raise `BadConfiguration` for an existing changelog that is unfit for state, before anything is stopped."""
    if topics.count(definition.changelog):
        # It has the partitions of the former tasks; those for added input partitions are created later.
        tasks = definition.tasks if present is None else present.definition.tasks
        changelog.check(topics, definition.changelog, tasks, job.config)


def with_topic_ids(
    config: JobConfig,
    topics: Topics,
    definition: JobDefinition,
    say: Callable[[str], None],
    *,
    has_run: bool,
) -> JobDefinition:
    """Return the definition to submit with the ids of its topics, as far as they exist.

    Raises `BadConfiguration` if an existing run would continue with another input or changelog than its own.
    """
    found = topics.ids(kinds(definition, config))
    judged = judge(definition, config, found)
    if judged.obstacle:
        raise BadConfiguration(judged.obstacle)
    if has_run:
        if definition.changelog not in found:
            raise BadConfiguration(
                f"{definition.changelog}, the changelog with the state of {definition.name}, does not exist any more. "
                "To begin with empty state: create it (wrong settings are reported), then `standfast topics "
                f"{definition.name} --accept {definition.changelog}`; or `standfast delete {definition.name}`"
            )
        for each in judged.events:
            say(each.reason)
    return structs.replace(definition, topics=judged.topics)


def with_ids_of_the_run(
    config: JobConfig, topics: Topics, definition: JobDefinition, deadline: Deadline
) -> JobDefinition:
    """Return a definition with the ids of its changelog and of every input (rule `topic-id`).

    They may just have been created, and not every broker knows them at once. Raises `Unavailable`.
    """
    present = definition.topics
    unknown = {
        each for each in (definition.changelog, *config.inputs) if each not in present or not present[each].id
    }

    def look() -> PollResult[dict[str, str]]:
        found = topics.ids(unknown) if unknown else {}
        return PollResult(unknown <= found.keys(), found)

    seen = until(deadline.beyond(_NEW_TOPIC_SECONDS), look)
    if not seen.is_done:
        lacking = ", ".join(sorted(unknown - seen.what.keys()))
        raise Unavailable(f"topic {lacking} was created, but no broker knows it")
    known = {
        topic: replace(present.get(topic, TopicIdentity()), id=topic_id)
        for topic, topic_id in seen.what.items()
    }
    return structs.replace(definition, topics={**present, **known})
