"""``standfast run``: a job on this machine with all that it needs, until Ctrl-C.

It starts what is missing of ZooKeeper and Kafka, one master and some nodes (a cluster without YARN), and submits the
job. What the job file, --set or the environment names of ZooKeeper and Kafka is used as it is. A view shows the tasks,
what happens, and what the job writes; where standard error is no terminal, it is lines.

Ctrl-C, SIGTERM or SIGHUP ends all of it; a second one does not wait for anything. Nothing is left then: embedded
servers are removed, and from given ones the job and its cluster are deleted. Inputs and outputs stay on a given Kafka.
--keep keeps the job's state on given servers for the next run with the same directory.

Embedded servers need Java and their jars, which are downloaded once. Other commands reach a run with embedded servers
after: eval "$(standfast local env --name run)"

Exit status: 0 ended by a signal after the job was submitted; 1 the job failed, or a process ends again and
again; 2 the job, a key, a value or a topic is wrong; 3 a server cannot be used; 130 interrupted before the submit.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.kafka import Topics
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.cli.clusters.standalone import COMMAND, pool_of, write_files
from appmaster.cli.launch import checks
from appmaster.cli.run import records, servers
from appmaster.cli.run.processes import RunProcess, RunProcesses, ended_in_time, environment_of, in_time
from appmaster.cli.run.servers import RunPlace
from appmaster.cli.run.signals import EndSignals
from appmaster.cli.run.view import RunView
from appmaster.cli.shared.deadline import Deadline
from appmaster.cli.shared.jobfile import JobFile, add_job_file
from appmaster.cli.shared.output import printed_as_json
from appmaster.cli.shared.parsers import add_command, add_timeout
from appmaster.cli.shared.waiting import PollResult, until
from standby.code.reserved import check_names
from standby.config import JobConfig, kafka_settings
from standby.errors import BadConfiguration, StandfastError, Unavailable
from standby.feed.functions import job_code, step_of
from standby.shared import naming

_MOST_NODES: Final = 100

#: Nodes are on loopback addresses: copies of a task are on different hosts. The master's comes first.
_HOSTS: Final = "127.0.0.{}"
_FIRST_HOST: Final = 11

#: Between two looks at the job, and at its processes, seconds.
_LOOK_SECONDS: Final = 0.5

#: How long the end of the job may take, seconds.
_END_JOB_SECONDS: Final = 20.0

#: How long ZooKeeper may take to answer at the end, and a cluster to be removed, seconds. Kazoo would wait without end.
_ANSWER_SECONDS: Final = 5.0
_FORGET_SECONDS: Final = 20.0

#: How long a leader that has ended may still be in ZooKeeper, seconds.
_LEFT_SECONDS: Final = 10.0

#: What a command prints before the text of a line.
_STAMP: Final = re.compile(r"^ *[0-9.]+ s  |^standfast: ")


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount ``run`` on the command line."""
    text = "run a job on this machine with all that it needs, until Ctrl-C"
    parser = add_command(subparsers, "run", _run, text, __doc__)
    add_job_file(parser, "the job file")
    parser.add_argument(
        "--nodes", type=int, default=2, metavar="N", help="number of processes for tasks (default: 2)"
    )
    parser.add_argument("--plain", action="store_true", help="without Spark, as --set task.feed=plain")
    parser.add_argument(
        "--create-topics",
        action="store_true",
        help="create the job's topics that are missing (on an embedded Kafka: always)",
    )
    parser.add_argument(
        "--partitions", type=int, default=4, metavar="N", help="of topics that are created (default: 4)"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="TOPIC=FILE",
        help="write each line of a file, KEY|VALUE, to a topic; - is standard input (repeatable)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep credentials, logs and the job's state, with given servers",
    )
    parser.add_argument(
        "--name", default="run", help="name of the embedded cluster, of which several can run (default: run)"
    )
    add_timeout(parser, 120.0, "how long the processes may take until all of them wait for the job")
    parser.add_argument("--json", action="store_true", help="print the result as JSON at the end")


def _inputs(arguments: Sequence[str], config: JobConfig) -> list[tuple[str, str]]:
    """Return the topics of ``--input``, each with the file to be written to it; raises `BadConfiguration`."""
    pairs = []
    for each in arguments:
        topic, equals, source = each.partition("=")
        if not equals or not source or topic not in config.inputs:
            raise BadConfiguration(
                f"--input {each}: not of the form TOPIC=FILE with one of the job's inputs, "
                f"{', '.join(config.inputs)}"
            )
        records.check_input(source)
        pairs.append((topic, source))
    return pairs


def _run(arguments: argparse.Namespace) -> int:
    settings = [*arguments.settings, *(["task.feed=plain"] if arguments.plain else [])]
    if not 1 <= arguments.nodes <= _MOST_NODES:
        raise BadConfiguration(f"--nodes {arguments.nodes}: it can be 1 to {_MOST_NODES}")
    if arguments.partitions < 1:
        raise BadConfiguration(f"--partitions {arguments.partitions}: it is at least 1")
    if arguments.job.is_fifo():
        # It is read again once the embedded servers have their addresses.
        raise BadConfiguration(f"{arguments.job}: a pipe, which can be read only once; give a file")
    job, missing = servers.read_job(arguments.job, settings, arguments.cluster)
    config = job.config
    inputs = _inputs(arguments.input, config)
    is_typed = any(source == "-" for _, source in inputs) and sys.stdin.isatty()
    # What is wrong with the job is found before anything is started.
    pool_of(config)
    check_names(job.directory, config.modules)
    with job_code(job.directory, config.modules):
        step_of(config)
    if missing or config.needs_spark:
        servers.require_java()
    with EndSignals() as signals, RunView(config.job_name, is_typed=is_typed) as view:
        with servers.place_of(job, missing, arguments.name, arguments.keep, view) as place:
            os.environ.update(place.variables)
            job, _ = servers.read_job(arguments.job, settings, arguments.cluster)
            run = _Run(arguments, settings, job, inputs, place, signals, view)
            run.until_asked()
        view.say("ended")
    result = {
        "job": config.job_name,
        "cluster": config.cluster,
        "status": view.state,
        "outputs": view.outputs,
        "first_output_seconds": _rounded(view.first_output_seconds),
        "seconds": _rounded(view.seconds),
    }
    printed_as_json(arguments, result)
    return 0


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run whose servers are there."""

    arguments: argparse.Namespace
    settings: Sequence[str]
    job: JobFile
    inputs: Sequence[tuple[str, str]]
    place: RunPlace
    signals: EndSignals
    view: RunView

    def until_asked(self) -> None:
        """Run the job until a signal comes; raises `StandfastError` if it cannot run any longer.

        Whatever was started has ended then, in the order in which it depends on each other.
        """
        config, say = self.job.config, self.view.say
        with ExitStack() as stack, self.signals.until_end():
            topics = Topics(kafka_settings(config))
            self._make_topics(topics)
            etc = self.place.directory / "etc"
            is_continued = self.place.is_kept and (etc / "node.json").exists()
            write_files(pool_of(config), etc)
            client = stack.enter_context(
                ClusterClient(config.cluster, config.zookeeper, tls=config.zookeeper_tls)
            )
            if not is_continued and client.zookeeper.tree.exists():
                raise BadConfiguration(
                    f"{config.zookeeper} has a cluster {config.cluster} already: `standfast submit` takes the job into "
                    "it; for a cluster of this command alone give another name with --cluster"
                )
            if self.place.is_foreign and not self.place.is_kept:
                stack.callback(self._forget, client, topics)
            started = self._processes(etc)
            stack.callback(started.end, self.signals.hurried)
            say(f"starting a master and {_nodes_in_words(self.arguments.nodes)}")
            started.start()
            self._await_pool(client, started)
            settings = kafka_settings(config)
            counts = {each: topics.count(each) for each in config.outputs}
            for name, work in (
                ("outputs", records.follow_outputs(settings, counts, self.view.output)),
                (
                    "events",
                    records.follow_events(settings, naming.event_topic(config.cluster), self.view.event),
                ),
            ):
                stack.enter_context(records.in_background(work, name, say))
            stack.callback(self._end_job, client)
            self._submit()
            for topic, source in self.inputs:
                work = records.write_input(settings, topic, source, say)
                stack.enter_context(records.in_background(work, f"input {topic}", say))
            self.signals.begun()
            say("the job is submitted; Ctrl-C ends it")
            watch(config.job_name, client.status, started, self.signals, self.view)
            say("ending the job")

    # ---- before the job ----

    def _make_topics(self, topics: Topics) -> None:
        """Create the job's topics if that is wanted; raises `BadConfiguration` if one is missing otherwise."""
        config = self.job.config
        if not self.arguments.create_topics and not self._has_own_kafka:
            try:
                checks.check_topics(self.job, topics)
            except BadConfiguration as error:
                raise BadConfiguration(f"{error}; or give --create-topics") from error
            return
        present = {each: topics.count(each) for each in config.inputs}
        count = max(present.values()) or self.arguments.partitions
        for each in (*config.inputs, *config.written_topics):
            if topics.create(each, count, -1, {}):
                self.view.say(f"topic {each} is created with {count} partitions")

    @property
    def _has_own_kafka(self) -> bool:
        return "STANDFAST_KAFKA" in self.place.variables

    def _processes(self, etc: Path) -> RunProcesses:
        directory = self.place.directory
        environment = environment_of(self.place)
        log = directory / "log"
        log.mkdir(parents=True, exist_ok=True)
        found = []
        for number in range(self.arguments.nodes + 1):
            what, name = ("node", f"node {number}") if number else ("master", "master")
            host = _HOSTS.format(_FIRST_HOST + number)
            mine = ["--config", str(etc), "--host", host, "--state", str(directory / "state" / host)]
            file = log / f"{name.replace(' ', '-')}.log"
            found.append(RunProcess(name, [what, *mine], file, environment, self.view.say))
        return RunProcesses(found, self.view.say)

    def _await_pool(self, client: ClusterClient, started: RunProcesses) -> None:
        """Return once the master runs and a process of each node waits; raises `StandfastError` if that fails."""
        nodes, zookeeper = self.arguments.nodes, client.zookeeper

        def look() -> PollResult[str]:
            started.look()
            if not zookeeper.tree.exists() or not zookeeper.registry.candidates():
                return PollResult(False, "no master runs")
            waiting = len(zookeeper.pool.names())
            return PollResult(waiting >= nodes, f"{waiting} of {nodes} processes wait for the job")

        seen = until(Deadline(self.arguments.timeout), look)
        if not seen.is_done:
            raise Unavailable(f"after {self.arguments.timeout:g} s, {seen.what}")

    # ---- the job ----

    def _submit(self) -> None:
        """Submit the job; raises the error with which that command ends."""
        given = [part for each in self.settings for part in ("--set", each)]
        named = ["--cluster", self.arguments.cluster] if self.arguments.cluster else []
        # A run that was killed has left its job as it was.
        more = ["--update"] if self.place.is_kept else []
        status, last = self._command(
            "submit", str(self.arguments.job), "--wait", "none", *given, *named, *more
        )
        if status != 0:
            kinds = {each.exit_status: each for each in (BadConfiguration, Unavailable)}
            raise kinds.get(status, StandfastError)(last or f"the submit ended with status {status}")

    # ---- the end ----

    def _end_job(self, client: ClusterClient) -> None:
        """End the job in order, unless its end is hurried; delete what it would leave on given servers."""
        config = self.job.config
        if self.signals.hurried.is_set():
            return
        try:
            read = partial(client.zookeeper.jobs.read, config.job_name)
            if in_time(read, "ZooKeeper", _ANSWER_SECONDS, self.signals.hurried) is None:
                return
        except StandfastError as error:
            self.view.say(f"warning: the job has not ended in order: {error}")
            return
        is_left = self.place.is_foreign and not self.place.is_kept
        status, last = self._command(
            "delete" if is_left else "kill",
            config.job_name,
            "--cluster",
            config.cluster,
            seconds=_END_JOB_SECONDS,
        )
        if status != 0:
            self.view.say(f"warning: the job has not ended in order: {last}")

    def _forget(self, client: ClusterClient, topics: Topics) -> None:
        """Remove the cluster from servers that stay."""
        cluster = self.job.config.cluster
        try:
            patience = 0.0 if self.signals.hurried.is_set() else _LEFT_SECONDS
            work = partial(forget, cluster, client.zookeeper, topics, patience)
            # A signal has hurried what was before this.
            hurried = None if self.signals.hurried.is_set() else self.signals.hurried
            in_time(work, "ZooKeeper or Kafka", _FORGET_SECONDS, hurried)
        except StandfastError as error:
            self.view.say(f"warning: something of cluster {cluster} is left on its servers: {error}")

    def _command(self, *arguments: str, seconds: float = float("inf")) -> tuple[int, str]:
        """Run a command of the command line, and show what it says; return its status and last line."""
        environment = {**environment_of(self.place), "STANDFAST_ZOOKEEPER": self.job.config.zookeeper}
        lines: list[str] = []

        def read(process: subprocess.Popen[str], say: Callable[[str], None]) -> None:
            assert process.stderr is not None
            for line in process.stderr:
                text = _STAMP.sub("", line.rstrip())
                if text:
                    lines.append(text)
                    say(text)

        with subprocess.Popen(
            [*COMMAND, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                with records.in_background(
                    lambda _: read(process, self.view.say), arguments[0], self.view.say
                ):
                    is_over = ended_in_time(lambda: process.poll() is not None, self.signals.hurried, seconds)
            except BaseException:
                process.send_signal(signal.SIGINT)
                raise
            finally:
                if not ended_in_time(lambda: process.poll() is not None, self.signals.hurried, 5.0):
                    process.kill()
        if not is_over:
            return 1, f"`standfast {arguments[0]}` did not end in time"
        return process.returncode, lines[-1] if lines else ""


def watch(
    job: str,
    ask: Callable[[], Mapping[str, Any]],
    started: RunProcesses,
    signals: EndSignals,
    view: RunView,
) -> None:
    """Show a job until a signal comes; raises `StandfastError` if it has failed, or a process cannot run any longer.

    ``ask`` asks its leader, on a thread of its own: without a leader it asks ZooKeeper, and may wait for that without
    end.
    """
    failed: queue.SimpleQueue[StandfastError] = queue.SimpleQueue()

    def look(over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            try:
                status: Mapping[str, Any] | None = ask()
            except Unavailable:
                status = None
            except StandfastError as error:
                failed.put(error)
                return
            if over.is_set():
                return
            view.show(status)
            for each in (status or {}).get("jobs", ()):
                if each["name"] == job and each["status"] == "failed":
                    trace = f"\n{each['traceback']}" if each.get("traceback") else ""
                    failed.put(StandfastError(f"{job} failed: {'; '.join(each['reasons'])}{trace}"))

    with records.in_background(look, "status", view.say):
        while not signals.asked.wait(_LOOK_SECONDS):
            started.look()
            if not failed.empty():
                raise failed.get()


def forget(cluster: str, zookeeper: ZooKeeper, topics: Topics, patience_seconds: float) -> None:
    """Remove a cluster of which no process runs, with the jobs that have not ended in order.

    ``patience_seconds``: how long its leader's record may still be there. Raises `StandfastError` if something is left:
    topics rather than the tree, which can be removed with this run's credentials only.
    """
    records = (zookeeper.jobs.read(each) for each in zookeeper.jobs.names())
    left = [each.definition for each in records if each is not None]
    for each in left:
        zookeeper.jobs.delete(each.name)
    zookeeper.tree.drop(patience_seconds)
    # Their groups expire in Kafka: a request to delete one can end the process, and there are servers to be ended.
    topics.delete([*(each.changelog for each in left), naming.event_topic(cluster)])


def _nodes_in_words(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"
