"""The contestants of `benchmarks.stategap`, with their own ways to start, kill and restore them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka.admin import AdminClient

from appmaster.adapters.credentials.keyring import keyring_in
from appmaster.api.client import ClusterClient
from benchmarks.contest import ROOT, Failed, say
from benchmarks.dataset import make_topic
from benchmarks.restarted import Processes, Restarted, WarmSpark
from benchmarks.running import Running
from benchmarks.streams import QUIX, SPARK, STREAMS, Case, Place, batch_of, commands
from demo.command import standfast
from demo.events import EventLog
from demo.report import step_times
from demo.standing import Status, active_on, is_warm, parse, victim_process, what_is_missing
from embedded.cluster import LocalCluster
from standby.errors import StandfastError
from standby.shared import naming

TASKS: Final = 2

_JOB_FILE: Final = ROOT / "benchmarks" / "gapjob.yaml"
_WHOLE_SECONDS: Final = 900.0
_LOOK_SECONDS: Final = 0.5

#: A killed instance gets its task back at the next probing rebalance: here after one minute, the minimum,
#: instead of ten. The failover itself does not wait for it.
_STREAMS_SETTINGS: Final = ("probing.rebalance.interval.ms=60000",)
_LOOK_STREAMS_SECONDS: Final = 2.0
#: The lag that a standby may have: as many records as arrive in one second.
_MOST_BEHIND: Final = 1_000


class Entrant(Protocol):
    """One contestant, running."""

    def start(self) -> None:
        """Start it; its outputs show when it works."""
        ...

    def ready(self) -> None:
        """Wait until it is ready for the next failure; raises `Failed`."""
        ...

    def kill(self) -> tuple[int, ...]:
        """Send SIGKILL to one of its processes and their children, and return the tasks that were active there."""
        ...

    def phases(self, killed_ms: int) -> Mapping[str, float]:
        """Return the times of the steps after that moment (Unix milliseconds), seconds, as far as they are known."""
        ...

    def mend(self) -> None:
        """Restart the killed process, if nothing else does."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Standfast:
    """standfast as a whole: a job submitted to YARN, with a standby for each task."""

    def __init__(self, cluster: LocalCluster, place: Place) -> None:
        self._cluster, self._place = cluster, place
        self._environment = cluster.environment()
        self._open = ExitStack()
        self._log = EventLog(cluster.kafka_bootstrap, naming.event_topic(place.job))
        self._client: ClusterClient | None = None

    def start(self) -> None:
        """Submit the job."""
        place = self._place
        settings = {
            "job.name": place.job,
            "cluster.name": place.job,
            "task.inputs": place.input,
            "task.outputs": place.output,
            "job.state.dir": str(place.state),
            # Of the records that fill the state, 20 MB at once.
            "task.batch.max.records": str(batch_of("keep")),
        }
        self._open.callback(self._log.stop)
        self._log.start()
        pairs = (part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
        standfast(self._environment, say, "submit", str(_JOB_FILE), *pairs)
        ring = keyring_in(Path(self._environment["STANDFAST_CREDENTIALS"]) / place.job, place.job)
        self._client = self._open.enter_context(
            ClusterClient(place.job, self._cluster.zookeeper_connect, ring)
        )

    def ready(self) -> None:
        """Wait until every replica is in sync, and warm."""
        give_up = time.monotonic() + _WHOLE_SECONDS
        missing = "no status"
        while time.monotonic() < give_up:
            try:
                status = self._status()
            except StandfastError as error:
                missing = str(error)
            else:
                missing = what_is_missing(status, TASKS, 2) or ("" if is_warm(status) else "not all are warm")
                if not missing:
                    return
            time.sleep(_LOOK_SECONDS)
        raise Failed(f"the job is not whole: {missing}")

    def kill(self) -> tuple[int, ...]:
        """Kill all processes of an active's container."""
        status = self._status()
        victim = victim_process(status)
        if victim is None or victim.container is None:
            raise Failed("there is no active to kill")
        tasks = active_on(status, container=victim.container)
        processes = self._cluster.container_processes(victim.host)
        ours = [each for each in processes if each.container_id == victim.container]
        # First the container's own process, and immediately its JVM: a crash ends both.
        for each in sorted(ours, key=lambda each: each.pid != victim.pid):
            each.send(signal.SIGKILL)
        return tasks

    def phases(self, killed_ms: int) -> Mapping[str, float]:
        """Return the steps of the slowest task's failover, as the leader logged them."""
        self._log.wait_for(lambda events: bool(step_times(events, killed_ms)), 30)
        found: dict[str, float] = {}
        for steps in step_times(self._log.events, killed_ms).values():
            for name, at in steps.items():
                found[f"{name}_seconds"] = max(found.get(f"{name}_seconds", 0.0), (at - killed_ms) / 1_000)
        return found

    def mend(self) -> None:
        """Do nothing: the leader does it."""

    def close(self) -> None:
        """Delete the job; its application ends with it."""
        with self._open:
            standfast(self._environment, say, "delete", self._place.job)

    def _status(self) -> Status:
        assert self._client is not None
        return parse(self._client.status())


class Streams:
    """Two instances of Kafka Streams, each with a standby of the other's task."""

    def __init__(self, place: Place, log: Path, settings: Sequence[str]) -> None:
        self._place, self._log = place, log
        plain = commands(STREAMS, Case("keep", TASKS, 1), place)
        self._commands = [
            [*each, "num.stream.threads=1", f"client.id=instance-{number}", *_STREAMS_SETTINGS, *settings]
            for number, each in enumerate(plain)
        ]
        self._running: dict[int, Running] = {}
        self._admin = AdminClient({"bootstrap.servers": place.bootstrap})

    def start(self) -> None:
        """Start both."""
        for number in range(len(self._commands)):
            self._begin(number)

    def ready(self) -> None:
        """Wait until each has one active task, and an up-to-date standby of the other's."""
        give_up = time.monotonic() + _WHOLE_SECONDS
        while missing := self._what_is_missing():
            if time.monotonic() > give_up:
                raise Failed(f"the instances are not whole: {missing}")
            time.sleep(_LOOK_STREAMS_SECONDS)

    def kill(self) -> tuple[int, ...]:
        """Kill one of the two."""
        number, tasks = next(iter(self._actives().items()))
        self._running.pop(number).kill()
        return tasks

    def phases(self, killed_ms: int) -> Mapping[str, float]:
        """Return nothing: it does not report its steps."""
        return {}

    def mend(self) -> None:
        """Start the killed instance again, with the state on its disk."""
        for number in set(range(len(self._commands))) - set(self._running):
            self._begin(number)

    def close(self) -> None:
        """Kill both."""
        for each in self._running.values():
            each.kill()

    def _begin(self, number: int) -> None:
        self._running[number] = Running(self._commands[number], self._log)

    def _what_is_missing(self) -> str:
        """Return what is missing for the next failure; empty if nothing is."""
        if sorted((actives := self._actives()).values()) != [(0,), (1,)]:
            return f"the tasks are not spread over the instances: {actives}"
        for number, each in self._running.items():
            state, stores, behind = each.ask("how do you stand?", 60).split()
            if state != "RUNNING" or int(stores) != TASKS or int(behind) > _MOST_BEHIND:
                return (
                    f"instance {number} is {state}, has {stores} stores, one of them {behind} records behind"
                )
        return ""

    def _actives(self) -> dict[int, tuple[int, ...]]:
        """Return the input partitions of each instance, as its group's coordinator knows them."""
        future = self._admin.describe_consumer_groups([self._place.job])[self._place.job]
        found: dict[int, tuple[int, ...]] = {}
        for member in future.result(30).members:
            # client.id=instance-<n>, and the suffix of Kafka Streams.
            number = int(member.client_id.removeprefix("instance-").partition("-")[0])
            assigned = [each.partition for each in member.assignment.topic_partitions]
            found[number] = (*found.get(number, ()), *assigned)
        return {number: tuple(sorted(each)) for number, each in found.items() if each}


OURS: Final = "standfast"
STREAMS_DEFAULT: Final = "Kafka Streams, default detection"
STREAMS_TUNED: Final = "Kafka Streams, tuned detection"
SPARK_COLD: Final = "Spark, cold start"
SPARK_WARM: Final = "Spark, warm session"
ALL: Final = (OURS, STREAMS_DEFAULT, STREAMS_TUNED, SPARK_COLD, SPARK_WARM, QUIX)

#: Contestants whose state is at most one gigabyte, because larger ones would only take long.
SMALL: Final = (SPARK_COLD, SPARK_WARM, QUIX)

#: The lowest value that a broker allows by default, and a transaction that does not outlive its owner for
#: long.
_TUNED: Final = (
    "consumer.session.timeout.ms=6000",
    "consumer.heartbeat.interval.ms=1000",
    "producer.transaction.timeout.ms=2000",
)


def entrant(name: str, cluster: LocalCluster, place: Place, log: Path) -> Entrant:
    """Return a contestant that is not started yet; raises `Unavailable` if it cannot run here."""
    if name == OURS:
        return Standfast(cluster, place)
    if name in (STREAMS_DEFAULT, STREAMS_TUNED):
        settings: Sequence[Any] = _TUNED if name == STREAMS_TUNED else ()
        return Streams(place, log, settings)
    # Quix Streams has its state on a local disk; Spark has a checkpoint on shared storage.
    contestant, own = (QUIX, "--state") if name == QUIX else (SPARK, "--local")
    command = commands(contestant, Case("keep", TASKS, 0), place)[0]
    processes = Processes(command, own, place.state, log)
    if name == SPARK_WARM:
        return WarmSpark(processes, TASKS, partial(_rehearsal, place, count()))
    return Restarted(processes, TASKS)


def _rehearsal(place: Place, numbers: Iterator[int]) -> tuple[str, str]:
    """Return two new topics; their names contain the job's name, so that they are deleted with its own."""
    apart = Place(place.bootstrap, f"{place.job}-rehearsal-{next(numbers)}", place.state)
    for topic in (apart.input, apart.output):
        make_topic(place.bootstrap, topic, TASKS, "delete")
    return apart.input, apart.output
