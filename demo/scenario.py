"""The parts of the demo and of the failover benchmark: one job, its failures, its end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from appmaster.adapters.credentials.keyring import keyring_in
from appmaster.api.client import ClusterClient
from demo.command import ROOT, standfast
from demo.events import Event, EventLog
from demo.gaps import Disturbance
from demo.hosts import Hosts
from demo.report import Failover, moved_away, step_times
from demo.standing import (
    Status,
    active_on,
    is_spread,
    is_warm,
    placement,
    victim_host,
    victim_process,
    what_is_missing,
)
from demo.topics import QUIET, end_offsets
from demo.verification import Verification, verify
from demo.watch import Sample, Watch
from examples.flights.replay import INPUT_TOPIC, create_topics
from standby.errors import Unavailable
from standby.shared import naming

JOB_FILE: Final = ROOT / "examples" / "flights" / "flights.yaml"
JOB: Final = "flights"
STAGE: Final = "main"

#: Called before a failure. It returns a function that is called when the tasks are processed again, with the
#: time of the failure (Unix milliseconds) and the tasks that it hit. That function returns what else happened
#: in the meantime.
Meanwhile = Callable[[], Callable[[int, Sequence[int]], Mapping[str, Any]]]

#: How long a promotion may take before the run counts as failed.
FAILOVER_SECONDS: Final = 90.0
#: How long a new standby may take until it is in sync: its container starts a Python and a JVM.
RESTORE_SECONDS: Final = 240.0
#: How long a new standby may take until its JVM has loaded and compiled what a promotion needs.
WARM_SECONDS: Final = 90.0
#: How long the leader may take to spread actives again: it pauses first, and hands them over one after the other.
SPREAD_SECONDS: Final = 60.0
_DRAIN_SECONDS: Final = 180.0
_LOOK_SECONDS: Final = 0.25

#: How often to try to have an active on another host than the leader, within what time it may be handed back, and how
#: long the move may take for which it is.
_HAND_OVERS: Final = 10
_HAND_BACK_SECONDS: Final = 3.0
_MOVE_SECONDS: Final = 30.0


def now_ms() -> int:
    """Return Unix milliseconds, by the clock that the brokers of this machine share."""
    return time.time_ns() // 1_000_000


def wait_for_none(
    left: Callable[[], int | None], clock: Callable[[], float], pause: Callable[[float], None]
) -> int | None:
    """Return 0 as soon as ``left`` returns 0, or its last value if that has not decreased for three minutes.

    None: it is not known now, or was not known all the time. On a slow machine the wait lasts as long as it progresses.
    """
    least = known = left()
    deadline = clock() + _DRAIN_SECONDS
    while known != 0 and clock() < deadline:
        pause(_LOOK_SECONDS)
        known = left()
        if known is not None and (least is None or known < least):
            least, deadline = known, clock() + _DRAIN_SECONDS
    return least


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of the job."""

    partitions: int = 4
    processors: int = 2
    copies: int = 2
    """Replicas per task: an active and its standbys."""


class Scenario:
    """The flights job on YARN or on a pool, watched until the end of its block."""

    def __init__(
        self,
        cluster: Hosts,
        shape: Shape,
        show: Callable[[str], None],
        settings: Mapping[str, str] | None = None,
        on_look: Callable[[], None] = lambda: None,
        *,
        probes_hosts: bool = True,
    ) -> None:
        """``probes_hosts``: whether a submit first checks a host, which takes a separate application."""
        self.cluster = cluster
        self.shape = shape
        self._show = show
        self._on_look = on_look
        self._submit_options = () if probes_hosts else ("--no-probe",)
        self._settings = {
            "job.container.count": str(shape.processors),
            "job.hotstandby.enabled": "true",
            "job.hotstandby.replicationcount": str(shape.copies - 1),
            "job.state.dir": str(cluster.directory / "state"),
            **(settings or {}),
        }
        self._environment = cluster.environment()
        self._open = ExitStack()
        self._watch: Watch | None = None
        self._client: ClusterClient | None = None
        self._log: EventLog | None = None
        self._run_id = ""
        self._calm_from_ms = 0
        self._lost: dict[str, frozenset[str]] = {}
        self.failovers: list[Failover] = []
        self.waits_until_warm = True
        """Whether a failure is over when every standby is warm again, rather than in sync."""
        self.meanwhile: Meanwhile = lambda: lambda begun_ms, tasks: {}

    def __enter__(self) -> Scenario:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the options of the submit in addition to the job file."""
        return self._settings

    @property
    def watch(self) -> Watch:
        """Return the watch of the job; it does not exist before `submit`."""
        assert self._watch is not None
        return self._watch

    @property
    def client(self) -> ClusterClient:
        """Return the client of the leader; it does not exist before `submit`."""
        assert self._client is not None
        return self._client

    @property
    def log(self) -> EventLog:
        """Return the event log; it does not exist before `submit`."""
        assert self._log is not None
        return self._log

    def submit(self) -> float:
        """Create the topics and submit the job; return how long the submission took, seconds.

        When it returns, every replica is deployed. Raises `Unavailable` when the submission fails.
        """
        create_topics(self.cluster.kafka_bootstrap, self.shape.partitions)
        begin = time.monotonic()
        self._log = EventLog(self.cluster.kafka_bootstrap, naming.event_topic(JOB))
        self._open.callback(self._log.stop)
        self._log.start()
        pairs = (part for name, value in self._settings.items() for part in ("--set", f"{name}={value}"))
        self._standfast("submit", str(JOB_FILE), *pairs, *self._submit_options)
        took = time.monotonic() - begin
        ring = keyring_in(Path(self._environment["STANDFAST_CREDENTIALS"]) / JOB, JOB)
        # One client for the watch, on its thread, and one for requests.
        self._client, watching = (
            self._open.enter_context(ClusterClient(JOB, self.cluster.zookeeper_connect, ring))
            for _ in range(2)
        )
        self._watch = Watch(watching, self.cluster.kafka_bootstrap, self._on_look)
        self._open.callback(self._watch.stop)
        self._watch.start()
        return took

    def kill(self) -> None:
        """Kill the job: its containers end, its topics, offsets and state stay; raises `Unavailable`."""
        self._run_id = self._run()
        self.watch.stop()
        self._standfast("kill", JOB)

    def delete(self) -> None:
        """Delete the job with its topics, group and state; raises `Unavailable` if that fails."""
        # State on hosts is removed with the embedded cluster's directory.
        self._standfast("delete", JOB, "--no-sweep")

    def wait_until_whole(self, *, without: Iterable[str] = (), since_ms: int | None = None) -> Sample | None:
        """Return the first sample since then with every replica in sync; None if there is none in time.

        ``without`` names containers that it must not contain: right after a loss the status still shows them.
        """
        gone = set(without)

        def is_whole(status: Status) -> bool:
            placed = {each.container for task in status.tasks for each in task.replicas}
            return not what_is_missing(status, self.shape.partitions, self.shape.copies) and not placed & gone

        return self.watch.wait_for(is_whole, RESTORE_SECONDS, since_ms)

    def wait_until_warm(self) -> bool:
        """Return whether every replica is in sync and warm within a minute and a half."""
        partitions, copies = self.shape.partitions, self.shape.copies
        return (
            self.watch.wait_for(
                lambda status: is_warm(status) and not what_is_missing(status, partitions, copies),
                WARM_SECONDS,
            )
            is not None
        )

    def wait_until_spread(self) -> bool:
        """Return whether, in time, actives are spread over hosts again and every standby is warm; show the progress.

        A failure may have left them on one host. The leader spreads them by itself, unless the job's key forbids it.
        """
        if is_spread(self.status()):
            return True
        self._show("actives are unevenly spread over hosts; the leader hands some over after a pause")
        sample = self.watch.wait_for(is_spread, SPREAD_SECONDS)
        if sample is None:
            self._show(f"actives are NOT spread again within {SPREAD_SECONDS:.0f} s")
            return False
        (text,) = (each.spread.text for each in sample.status.jobs if each.name == JOB)
        self._show(f"actives are spread again, active processors: {text}")
        is_warm_again = self.wait_until_warm()
        self.calm()
        return is_warm_again

    def status(self) -> Status:
        """Return the status; raises `Unavailable` if no master answers within half a minute."""
        latest = self.watch.wait_for(lambda _: True, 30.0)
        if latest is None:
            raise Unavailable("the application master does not answer")
        return latest.status

    def calm(self) -> None:
        """Record the start of an undisturbed time with input at one rate, which lasts until the next failure."""
        self._calm_from_ms = now_ms()

    def kill_process(self, avoid: Iterable[str] = ()) -> Failover:
        """Kill all processes of an active's container, and return the failure.

        Raises `Unavailable` if there is no active to kill.
        """
        status = self.status()
        victim = victim_process(status, avoid)
        if victim is None or victim.container is None or victim.host is None:
            raise Unavailable("there is no active whose process could be killed")
        container, host = victim.container, victim.host
        tasks = active_on(status, container=container)
        # First the container's own process, and immediately its JVM: a crash ends both.
        tree = sorted(
            (each for each in self.cluster.container_processes(host) if each.container_id == container),
            key=lambda each: each.pid != victim.pid,
        )
        self._show(f"kill -9 {victim.pid}: the active of task {_list(tasks)} in {container} on {host}")
        meanwhile = self.meanwhile()
        begun = now_ms()
        for each in tree:
            each.send(signal.SIGKILL)
        return self._follow("process", container, (container,), tasks, begun, now_ms(), meanwhile)

    def lose_host(self, avoid: Iterable[int] = ()) -> tuple[Failover, str]:
        """Lose a host silently, kill its processes after the failover; return the failure, and the host.

        The host has at least one active, if possible of tasks other than ``avoid``, and is not the leader's. It is
        another master's only if there is no choice: its cell is lost with it, and the cell's replicas on other hosts
        are handed over during the failover. Raises `Unavailable` if there is none.
        """
        status = self.status()
        host = victim_host(status, avoid, self._masters())
        if host is None:
            actives = {each.partition: each.active_replica for each in status.tasks}
            where = ", ".join(
                f"{task} on {active.host}" for task, active in actives.items() if active is not None
            )
            leader = status.leader.host if status.leader is not None else "an unknown host"
            raise Unavailable(
                f"no host has an active but not the leader: {where or 'no active'}; leader on {leader}"
            )
        tasks = active_on(status, host=host)
        containers = tuple(each.container for each in status.containers if each.host == host)
        self._show(f"the host {host} falls silent: the active of task {_list(tasks)} was there")
        meanwhile = self.meanwhile()
        self._lost[host] = frozenset(containers)
        begun = now_ms()
        self.cluster.kill_host(host, silent=True)
        failover = self._follow("host", host, containers, tasks, begun, now_ms(), meanwhile, host)
        return failover, host

    def bring_back(self, host: str) -> int | None:
        """Bring a lost host back; return how long until no process of its lost containers is left there, milliseconds.

        None if one is left for too long.
        """
        containers = self._lost.pop(host)
        begin = time.monotonic()
        self.cluster.start_host(host)
        while any(each.container_id in containers for each in self.cluster.container_processes(host)):
            if time.monotonic() > begin + RESTORE_SECONDS:
                self._show(f"processes of {', '.join(sorted(containers))} are STILL there on {host}")
                return None
            time.sleep(_LOOK_SECONDS)
        took = round((time.monotonic() - begin) * 1_000)
        self._show(f"the host {host} is back; what was lost there has ended, after {took:,} ms at most")
        return took

    def failovers_since(self, since_ms: int) -> int:
        """Return how many failovers the leader has begun since a time, Unix milliseconds."""
        return sum(each.kind == "failover_started" and each.at_ms >= since_ms for each in self.log.events)

    def spare_master(self) -> None:
        """Hand an active over if all of them are on the master's host, so that another host can be lost.

        Under policy `restart` actives return to their former hosts, and in the end all may be on that host. The leader
        hands an active back if the copy that has become active is about to move to another cell, and a further
        hand-over would call off its request for a container there. So this waits for the move, and tries again with
        another active, since a copy may have to move for longer than this waits.
        """
        handed_back: set[str] = set()
        for _ in range(_HAND_OVERS):
            if victim_host(self.status()) is not None:
                return
            handed_back.add(self.hand_over(handed_back).victim)
            if self.watch.wait_for(lambda status: victim_host(status) is None, _HAND_BACK_SECONDS) is None:
                return
            self._wait_for_move()
            self.wait_until_warm()

    def _wait_for_move(self) -> None:
        before = placement(self.status())
        self.watch.wait_for(lambda status: placement(status) != before, _MOVE_SECONDS)

    def hand_over(self, avoid: Collection[str] = ()) -> Failover:
        """Request a planned hand-over of all actives in one container, and return its result.

        If possible it is none of the containers in ``avoid``.

        Its times count from the decision: until then the active keeps running while its standby prepares. Raises
        `Unavailable` if there is no active, `StandfastError` if the leader refuses.
        """
        status = self.status()
        active = victim_process(status, avoid) or victim_process(status)
        if active is None or active.container is None:
            raise Unavailable("there is no active that could be handed over")
        tasks = active_on(status, container=active.container)
        self._show(f"handing over task {_list(tasks)} of {active.container} on {active.host}")
        meanwhile = self.meanwhile()
        asked = now_ms()
        self.client.call("handover", container=active.container)
        return self._follow("handover", active.container, (), tasks, asked, asked, meanwhile)

    def drain(self) -> int | None:
        """Wait until every input record is committed as processed; return how many are not, None if not known.

        It gives up if none was processed for three minutes. This raises nothing: the verification finds what is
        missing.
        """
        ends = end_offsets(self.cluster.kafka_bootstrap, INPUT_TOPIC)
        asked = [TopicPartition(INPUT_TOPIC, partition) for partition in ends]
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.cluster.kafka_bootstrap,
                "group.id": self._group(),
                "enable.auto.commit": False,
            }
        )

        def left() -> int | None:
            try:
                committed = {each.partition: each.offset for each in consumer.committed(asked, timeout=10)}
            except KafkaException:
                return None
            return sum(max(0, end - max(0, committed.get(each, 0))) for each, end in ends.items())

        try:
            return wait_for_none(left, time.monotonic, time.sleep)
        finally:
            consumer.close()

    def verify(self) -> Verification:
        """Return how outputs and state compare with the batch model; raises `Unavailable`."""
        changelog = naming.changelog_topic(JOB, JOB, STAGE, self._run())
        return verify(self.cluster.kafka_bootstrap, changelog)

    def memory_bytes(self) -> dict[str, int]:
        """Return the resident memory of every server and container of the cluster."""
        status = self.cluster.status()
        memory = {each.name: each.memory_bytes for each in status.servers}
        for process in self.cluster.container_processes():
            name = process.container_id or f"other on {process.host}"
            memory[name] = memory.get(name, 0) + process.memory_bytes
        return memory

    def _follow(
        self,
        kind: str,
        victim: str,
        containers: Sequence[str],
        tasks: tuple[int, ...],
        begun: int,
        done: int,
        meanwhile: Callable[[int, Sequence[int]], Mapping[str, Any]],
        silent_host: str | None = None,
    ) -> Failover:
        wanted = set(tasks)
        is_planned = kind == "handover"
        finished = "handover_finished" if is_planned else "failover_finished"

        def elsewhere(events: Iterable[Event]) -> set[int]:
            return set() if is_planned else moved_away(events, begun, containers)

        self.log.wait_for(
            lambda events: wanted <= {*step_times(events, begun, finished), *elsewhere(events)},
            FAILOVER_SECONDS,
        )
        steps = step_times(self.log.events, begun, finished)
        for partition in sorted(wanted & elsewhere(self.log.events) - set(steps)):
            self._show(f"task {partition} was not lost: it had just been handed over")
            wanted.discard(partition)
        tasks = tuple(sorted(wanted)) or tasks
        beside = meanwhile(begun, tasks)
        if is_planned:
            begun = min((each["detected"] for each in steps.values()), default=begun)
        fenced = {task: each["fenced"] for task, each in steps.items() if "fenced" in each}
        since = "the decision" if is_planned else "the loss"
        for partition in sorted(wanted & set(steps)):
            first = steps[partition].get("first_commit")
            took = f"{first - begun:,} ms after {since}" if first is not None else "at some later time"
            self._show(f"task {partition} is processed again: first commit {took}")
        for partition in sorted(wanted - set(steps)):
            self._show(f"task {partition} was NOT taken over within {FAILOVER_SECONDS:.0f} s")
        if silent_host is not None:
            self.cluster.finish_silent(silent_host)
        whole = self.wait_until_whole(without=containers, since_ms=done)
        restored = whole.at_ms if whole is not None else now_ms()
        if whole is not None:
            self._show(f"every replica is in sync again, {(restored - begun) / 1_000:.1f} s after {since}")
            # The next failure must find a warm standby, as at any other time.
            if self.waits_until_warm and self.wait_until_warm():
                self._show(f"every standby is warm again, {(now_ms() - begun) / 1_000:.1f} s after {since}")
        else:
            missing = what_is_missing(self.status(), self.shape.partitions, self.shape.copies)
            self._show(f"the replicas were NOT restored within {RESTORE_SECONDS:.0f} s: {missing}")
        disturbance = Disturbance(tasks, self._calm_from_ms, begun, done, restored, now_ms(), fenced)
        self.calm()
        failover = Failover(kind, victim, disturbance, steps, whole is not None, beside)
        self.failovers.append(failover)
        return failover

    def _masters(self) -> tuple[str, ...]:
        """Return the hosts that have an application master."""
        return tuple(each["host"] for each in self.client.info()["candidates"])

    def _run(self) -> str:
        """Return the job's run id; after `kill` no leader can be queried for it."""
        if self._run_id:
            return self._run_id
        run = next((job.run for job in self.status().jobs if job.name == JOB), None)
        if run is None:
            raise Unavailable(f"the application master knows no job {JOB}")
        return run

    def _group(self) -> str:
        return naming.consumer_group(JOB, JOB, STAGE, self._run())

    def _standfast(self, *arguments: str) -> None:
        standfast(self._environment, self._show, *arguments)


def _list(tasks: Iterable[int]) -> str:
    return ", ".join(map(str, tasks)) or "none"
