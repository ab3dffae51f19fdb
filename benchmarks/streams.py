"""The contestants of `benchmarks.steady`, and the commands that start each for a case."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.kafkastreams.build import java_command, spark_connector
from benchmarks.kernel import Job
from benchmarks.quix import venv
from benchmarks.replica import changelog_of, command
from standby.errors import BadConfiguration

OURS: Final = "standfast, plain feed"
OURS_SPARK: Final = "standfast, Spark feed"
#: With a transform that calls a function in Python for each row.
OURS_CALLED: Final = "standfast, Spark feed, Python function"
#: With the interval of commits that Kafka Streams has.
OURS_PACED: Final = "standfast, plain feed, commits every 100 ms"
STREAMS: Final = "Kafka Streams"
QUIX: Final = "Quix Streams"
SPARK: Final = "Spark's own state"
#: standfast without the check of the markers of its commits (docs/decisions/0036), to measure the cost of the
#: check.
OURS_BLIND: Final = "standfast, plain feed, blind"
ALL: Final = (OURS, OURS_SPARK, STREAMS, QUIX, SPARK)

#: Spark's real-time mode, which has no state from Python: each record is forwarded unchanged.
SPARK_REALTIME: Final = "Spark's real-time mode, without state"

#: The contestants with standbys.
WITH_STANDBYS: Final = (OURS, OURS_SPARK, STREAMS)

#: The commit interval of contestants that do not commit per batch: Kafka Streams' default for exactly-once.
_COMMIT_SECONDS: Final = 0.1

#: The maximum records of a micro-batch: the default of `task.batch.max.records`, and less for large records.
_BATCH: Final = 40_000
_BATCH_OF_LARGE: Final = 5_000


@dataclass(frozen=True, slots=True)
class Case:
    """The step."""

    step: str
    partitions: int
    standbys: int

    def __str__(self) -> str:
        return f"{self.step}, {self.partitions} partitions, {self.standbys} standbys"


@dataclass(frozen=True, slots=True)
class Place:
    """The names and places of one run of one contestant."""

    bootstrap: str
    job: str
    """A name unique to the run, used for topics, group and state."""
    state: Path

    @property
    def input(self) -> str:
        """Return the input topic."""
        return f"{self.job}-in"

    @property
    def output(self) -> str:
        """Return the output topic."""
        return f"{self.job}-out"

    @property
    def changelog(self) -> str:
        """Return standfast's changelog topic."""
        return changelog_of(self.job)


def commands(name: str, case: Case, place: Place) -> list[list[str]]:
    """Return the commands, one per process; raises `Unavailable` if the contestant cannot run here."""
    if case.standbys and name not in WITH_STANDBYS:
        raise BadConfiguration(f"{name} has no standbys")
    if name in (OURS, OURS_SPARK, OURS_CALLED, OURS_PACED, OURS_BLIND):
        transform = {OURS_SPARK: "unchanged", OURS_CALLED: "called"}.get(name)
        job = Job(place.job, case.partitions, place.changelog, place.bootstrap, place.state, {})
        copies = 1 + case.standbys
        seconds = _COMMIT_SECONDS if name == OURS_PACED else 0.0
        is_blind = name == OURS_BLIND
        return [
            command(
                job,
                copy,
                copies,
                transform=transform,
                step=case.step,
                commit_seconds=seconds,
                is_blind=is_blind,
            )
            for copy in range(copies)
        ]
    if name == STREAMS:
        return _streams(case, place)
    common = ["--bootstrap", place.bootstrap, "--input", place.input, "--output", place.output]
    common += ["--step", case.step]
    if name == QUIX:
        more = ["--group", place.job, "--commit-seconds", str(_COMMIT_SECONDS), "--state", str(place.state)]
        return [[str(venv.python()), "-m", "benchmarks.quix.steady", *common, *more]]
    more = ["--partitions", str(case.partitions), "--batch", str(batch_of(case.step))]
    more += ["--state", str(place.state / "checkpoint"), "--local", str(place.state / "local")]
    more += ["--connector", os.pathsep.join(map(str, spark_connector()))]
    more += ["--realtime"] if name == SPARK_REALTIME else []
    return [[sys.executable, "-m", "benchmarks.spark_steady", *common, *more]]


def batch_of(step: str) -> int:
    """Return the maximum number of records in a micro-batch, for contestants with such a setting."""
    return _BATCH_OF_LARGE if step == "keep" else _BATCH


def _streams(case: Case, place: Place) -> list[list[str]]:
    # A single thread would leave a core idle that the other contestants use.
    threads = min(case.partitions, len(os.sched_getaffinity(0)))
    settings: Sequence[str] = (
        f"num.stream.threads={threads}",
        f"num.standby.replicas={case.standbys}",
    )
    program = java_command("SteadyStreams", heap_mb=1024)
    return [
        [
            *program,
            *(place.bootstrap, place.job, place.input, place.output),
            *(str(place.state / f"instance-{number}"), case.step, *settings),
        ]
        for number in range(1 + case.standbys)
    ]
