"""One container of standfast, active or standby for every task of a job, until its standard input ends.

Prints ``ready`` on standard output when it is active, or in sync.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from benchmarks.contest import ROOT
from benchmarks.kernel import Container, FixedRecords, Job
from benchmarks.traced import Trace
from standby.adapters.kafka.writer import KafkaWriter
from standby.adapters.processes import collect_garbage_rarely, end_children
from standby.adapters.rocksdict import open_database
from standby.config import JobConfig
from standby.feed.make import make_feed
from standby.feed.plain import PlainFeed
from standby.kernel.active.markers import Markers
from standby.ports import Feed
from standby.shared.model import Phase, Role
from standby.shared.wire import JobDefinition

_PATIENCE_SECONDS = 180.0


def command(
    job: Job,
    copy: int,
    copies: int,
    *,
    transform: str | None = None,
    step: str = "count",
    commit_seconds: float = 0.0,
    trace: Path | None = None,
    is_blind: bool = False,
) -> list[str]:
    """Return the command of the container of one copy; copy 0 is the active.

    A ``transform`` is a function of `benchmarks.steps`, which needs Spark. With ``is_blind`` it does not check the
    markers of its commits.
    """
    return [
        *(sys.executable, "-m", "benchmarks.replica", "--job", job.name, "--tasks", str(job.tasks)),
        *("--bootstrap", job.bootstrap, "--state", str(job.state), "--copy", str(copy)),
        *("--copies", str(copies), "--step", step),
        *(("--transform", transform) if transform is not None else ()),
        *("--commit-seconds", str(commit_seconds)),
        *(("--trace", str(trace)) if trace is not None else ()),
        *(("--blind",) if is_blind else ()),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--copy", type=int, required=True)
    parser.add_argument("--copies", type=int, required=True)
    parser.add_argument("--transform", choices=("unchanged", "called"))
    parser.add_argument("--step", choices=("count", "profile"), required=True)
    parser.add_argument("--commit-seconds", type=float, default=0.0)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--blind", action="store_true")
    arguments = parser.parse_args(argv)
    # As every container does.
    collect_garbage_rarely()
    if arguments.blind:
        _look_at_no_markers()
    is_active = arguments.copy == 0
    trace = Trace()
    settings = {
        "task.step": f"benchmarks.steps:{arguments.step}",
        # A standby runs no Spark here: the cost of keeping it warm is measured with the failover, not with
        # its state.
        "task.commit.interval.ms": str(round(1000 * arguments.commit_seconds)),
        "task.feed": "spark" if is_active and arguments.transform else "plain",
    }
    job = Job(
        arguments.job,
        arguments.tasks,
        changelog_of(arguments.job),
        arguments.bootstrap,
        arguments.state,
        settings,
    )
    container = Container(
        job,
        f"host-{arguments.copy}",
        FixedRecords(0, 1, {each: f"container-{each}" for each in range(arguments.copies)}),
        make_feed=partial(_spark_feed, arguments.state, arguments.transform)
        if is_active and arguments.transform
        else PlainFeed,
        databases=trace.open if arguments.trace is not None else open_database,
    )
    container.want(arguments.copy, Role.ACTIVE if is_active else Role.STANDBY)
    wanted = Phase.ACTIVE if is_active else Phase.TAILING
    container.wait(lambda each: each.phase is wanted, _PATIENCE_SECONDS)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    container.close()
    if arguments.trace is not None:
        trace.save(arguments.trace)
    end_children()
    return 0


def changelog_of(job: str) -> str:
    """Return the name of the job's changelog topic."""
    return f"{job}-changelog"


def _look_at_no_markers() -> None:
    """Disable the kernel's check of its markers, in this process and permanently."""
    for each in ("look", "wait", "note"):
        patch.object(Markers, each, lambda *_: None).start()
    patch.object(KafkaWriter, "_arrived", None).start()


def _spark_feed(state: Path, transform: str, config: JobConfig, job: JobDefinition) -> Feed:
    # What a JVM that is killed leaves behind is beside the code, and goes with the state.
    code = state / "code"
    code.mkdir(parents=True, exist_ok=True)
    spark = {**config.spark, "spark.executorEnv.PYTHONPATH": str(ROOT)}
    return make_feed(
        replace(config, feed="spark", transform=f"benchmarks.steps:{transform}", spark=spark), job, code
    )


if __name__ == "__main__":
    sys.exit(main())
