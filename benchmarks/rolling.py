"""A rolling restart of a pool: ``python -m benchmarks.rolling``.

One pool on three hosts with two nodes each, one job with four containers, a steady stream. Every node is stopped by
SIGTERM, as an operator or systemd does it, and started again; the next one follows when every replica is in sync and
warm again. Writes a JSON file with the longest time without output of each task, during the restarts and in the
undisturbed time before them, how long each node took, what the leader began meanwhile, and whether outputs and state
were exact in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, Final

from benchmarks.stream import endless, flow, leave, parser_of, save, settings_of, status_of
from demo.gaps import longest_between_ms
from demo.hosts import POOL
from demo.interrupt import Interrupts
from demo.network import enter
from demo.own_cluster import hosts_of_our_own
from demo.pool import PoolHosts
from demo.scenario import Scenario, Shape, now_ms
from demo.screen import Screen
from demo.traffic import Traffic
from demo.versions import versions
from standby.errors import Unavailable

#: Entries of the event log that are counted.
_COUNTED: Final = ("failover_started", "handover_started", "container_lost")


@dataclass(frozen=True, slots=True)
class Restart:
    """One node that was stopped and started again."""

    host: str
    node: int
    actives: tuple[int, ...]
    """The tasks that were active there."""
    begun_ms: int
    stopped_seconds: float
    """From SIGTERM to its end: hand-overs, and the end of its process."""
    restored_seconds: float
    """From SIGTERM until every replica was in sync again."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if there was no failover and everything was exact, else 1."""
    arguments = parser_of("rolling", __doc__, steady_seconds=15.0).parse_args(argv)

    def measure() -> bool:
        enter(["-m", "benchmarks.rolling", *(sys.argv[1:] if argv is None else argv)])
        with (
            Interrupts() as interrupts,
            Screen() as screen,
            hosts_of_our_own(POOL, screen, interrupts, arguments.output.parent / "logs-rolling") as hosts,
        ):
            assert isinstance(hosts, PoolHosts)
            result = _measure(arguments, hosts, screen)
        save(result, arguments.output)
        shown = ("longest_gap_ms", "longest_gap_before_ms", *_COUNTED)
        print(json.dumps({name: result[name] for name in shown}))
        print(arguments.output)
        return bool(result["exact"] and not result["failover_started"])

    return status_of(measure)


def _measure(arguments: argparse.Namespace, pool: PoolHosts, screen: Screen) -> dict[str, Any]:
    load_before = os.getloadavg()[0]
    chosen = settings_of(arguments)
    shape = Shape(partitions=arguments.partitions)
    with Scenario(pool, shape, screen.say, chosen, screen.pulse) as scenario:
        screen.phase("submitting the job")
        scenario.submit()
        traffic = Traffic(pool.kafka_bootstrap, endless(), arguments.rate)
        screen.follow(scenario.watch, scenario.log, traffic)
        traffic.start()
        try:
            _await_whole(scenario, now_ms())
            calm_ms = now_ms()
            flow(arguments.steady_seconds, traffic)
            begun_ms = now_ms()
            restarts = [_restart(pool, host, node, scenario, screen) for host, node in pool.nodes]
            ended_ms = now_ms()
            flow(arguments.steady_seconds, traffic)
        finally:
            traffic.stop()
        screen.phase("verifying")
        scenario.drain()
        verification = scenario.verify()
        events = [each for each in scenario.log.events if begun_ms <= each.at_ms <= ended_ms]
        violations = len(scenario.watch.same_host_violations)
    times = verification.output_times
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "rate": arguments.rate,
        "tasks": arguments.partitions,
        "settings": chosen,
        "seconds": round((ended_ms - begun_ms) / 1_000, 1),
        "longest_gap_ms": longest_between_ms(times, begun_ms, ended_ms),
        "longest_gap_before_ms": longest_between_ms(times, calm_ms, begun_ms),
        **{kind: sum(each.kind == kind for each in events) for kind in _COUNTED},
        "restarts": [asdict(each) for each in restarts],
        "exact": verification.is_exact and verification.records_in == traffic.count,
        "findings": verification.findings(),
        "records_in": verification.records_in,
        "same_host_violations": violations,
        "load_before": round(load_before, 2),
        "versions": versions(),
    }


def _restart(pool: PoolHosts, host: str, node: int, scenario: Scenario, screen: Screen) -> Restart:
    status = scenario.status()
    there = pool.containers_of_node(host, node)
    actives = tuple(
        task.partition
        for task in status.tasks
        if task.active_replica is not None and task.active_replica.container in there
    )
    screen.phase(f"restarting node {node} of {host}: {len(actives)} tasks are active there")
    begun_ms = now_ms()
    stopped = pool.stop_node(host, node)
    pool.start_node(host, node)
    restored_ms = _await_whole(scenario, now_ms(), there)
    return Restart(
        host, node, actives, begun_ms, round(stopped, 1), round((restored_ms - begun_ms) / 1_000, 1)
    )


def _await_whole(scenario: Scenario, since_ms: int, without: Sequence[str] = ()) -> int:
    """Wait until every replica is in sync and warm; return when they were in sync. Raises `Unavailable`."""
    whole = scenario.wait_until_whole(without=without, since_ms=since_ms)
    if whole is None:
        raise Unavailable("the job did not become whole; see the logs of its containers")
    scenario.wait_until_warm()
    return whole.at_ms


if __name__ == "__main__":
    leave(main())
