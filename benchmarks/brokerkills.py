"""Random kills of Kafka brokers under load: ``python -m benchmarks.brokerkills --brokers 1 --kills 200``.

The kernel runs without YARN, as in tests/system/lone/broker_kills.py: two containers, each a separate process, and
four tasks, whose outputs go to every partition of the output topic. A broker is killed at a random moment and
restarted at once; with three brokers sometimes a second one is killed, and sometimes a container as well. The result
has the lost, duplicate and wrong outputs, the number of jobs that ended in a named failure, and what the kernel
reported about hanging transactions. After a given number of kills, or when a job cannot continue, it is verified and
another job is started.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.broker import whole_arena
from benchmarks.contest import say
from embedded.servers import RESOURCE_MANAGER, ZOOKEEPER
from tests.system.lone.broker_kills import Course, Tally


def main(argv: Sequence[str] | None = None) -> int:
    """Run it, write the result after each job; return the exit status: 1 if the outputs of a job are not exact."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kills-per-job", type=int, default=20, metavar="N")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--rate", type=float, default=400, help="records a second (default: 400)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--scratch", type=Path, help="where the states lie (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/brokerkills.json"))
    arguments = parser.parse_args(argv)
    say(f"seed {arguments.seed}")
    settings = {name: str(value) for name, value in vars(arguments).items()}
    tallies: list[Tally] = []
    with whole_arena(arguments.scratch, nodes=1, brokers=arguments.brokers) as (cluster, directory):
        cluster.kill_host(cluster.hosts[0])
        for each in (RESOURCE_MANAGER, ZOOKEEPER):
            cluster.stop_server(each)
        while (done := sum(each.kills for each in tallies)) < arguments.kills:
            seed = arguments.seed + len(tallies)
            course = Course(cluster, directory / str(seed), seed, arguments.tasks, arguments.rate)
            tally = course.run(min(arguments.kills_per_job, arguments.kills - done))
            tallies.append(tally)
            say(f"seed {seed}: {_summary(tally)}")
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(
                json.dumps({"settings": settings, "result": _total(tallies)}, indent=2), encoding="utf-8"
            )
    total = _total(tallies)
    say(str(total))
    return 0 if total["exact_jobs"] == total["jobs"] else 1


def _summary(tally: Tally) -> str:
    verdict = tally.verdicts[-1]
    is_exact = "exact" if verdict.is_exact else f"NOT EXACT: {verdict}"
    failed = "".join(f"; FAILED: {each}" for each in (*tally.named_failures, *tally.stuck))
    return (
        f"{tally.kills} kills of brokers, {tally.container_kills} of containers, {tally.markers_left_out} times "
        f"markers left out, {verdict.records} records {is_exact}; {dict(tally.said)}{failed}"
    )


def _total(tallies: Sequence[Tally]) -> dict[str, Any]:
    verdicts = [each for tally in tallies for each in tally.verdicts]
    again = [each for tally in tallies for each in tally.again_seconds]
    said: Counter[str] = sum((tally.said for tally in tallies), Counter())
    return {
        "jobs": len(verdicts),
        "exact_jobs": sum(each.is_exact for each in verdicts),
        "broker_kills": sum(each.kills for each in tallies),
        "container_kills": sum(each.container_kills for each in tallies),
        "take_overs": sum(each.take_overs for each in tallies),
        "containers_ended_by_themselves": sum(each.broken for each in tallies),
        "records": sum(each.records for each in verdicts),
        "lost": sum(each.lost for each in verdicts),
        "doubled": sum(each.doubled for each in verdicts),
        "wrong": sum(each.wrong for each in verdicts),
        "disordered_keys": sum(each.disordered for each in verdicts),
        "examples": [each.example for each in verdicts if each.example],
        "named_failures": [each for tally in tallies for each in tally.named_failures],
        "stuck": [each for tally in tallies for each in tally.stuck],
        "times_markers_were_left_out": sum(each.markers_left_out for each in tallies),
        "said": dict(said),
        "again_seconds_median": statistics.median(again) if again else None,
        "again_seconds_most": max(again, default=None),
    }


if __name__ == "__main__":
    sys.exit(main())
