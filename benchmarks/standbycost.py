"""The cost of a standby, cold and warm: ``python -m benchmarks.standbycost --rates 0 1000 5000``.

The flights job runs on the embedded cluster, without and with `job.hotstandby.warm`. The result has the time
from the submission until every standby is warm, and at each rate the CPU time and memory of the containers with
standbys only, compared with those with actives only. A container's CPU time includes all its processes: kernel, JVM
and Spark's Python workers. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import meter
from benchmarks.broker import whole_arena
from benchmarks.contest import ROOT, Failed, Results, say
from benchmarks.report import Measure, Report
from benchmarks.rounds import order
from benchmarks.stream import endless
from demo.scenario import Scenario, Shape
from demo.traffic import Traffic
from embedded.cluster import LocalCluster
from standby.shared.model import Role

_WAYS: Final = ("cold", "warm")

#: A copy that finds a better place once all cells are up moves there, some time after it is in sync.
_ATTEMPTS: Final = 3

_MEASURES: Final[tuple[Measure, ...]] = (
    ("standby_core_share", "a container of standbys, % of a core", 100.0),
    ("standby_bytes", "a container of standbys, MB", 1e-6),
    ("active_core_share", "a container of actives, % of a core", 100.0),
    ("active_bytes", "a container of actives, MB", 1e-6),
    ("ready_seconds", "from the submission until every standby is as it can be, s", 1.0),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every round succeeded, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.standbycost", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[0.0, 1_000.0, 5_000.0], help="records a second"
    )
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=_WAYS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--settle-seconds", type=float, default=15.0, help="at each rate, before it is measured"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="that are measured at each rate")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "standbycost.json")
    arguments = parser.parse_args(argv)
    report = Report(arguments.output, "What a standby costs", _MEASURES, arguments)

    def measure() -> None:
        found = {rate: report.case(f"{rate:,.0f} records/s", arguments.ways) for rate in arguments.rates}
        for turn in range(arguments.rounds):
            for way in order(arguments.ways, turn):
                with (
                    found[arguments.rates[0]].attempt(f"round {turn + 1}, {way}"),
                    whole_arena(arguments.scratch) as (cluster, _),
                ):
                    _round(arguments, cluster, way, found)

    return report.carry_out(measure)


def _round(
    arguments: argparse.Namespace, cluster: LocalCluster, way: str, results: Mapping[float, Results]
) -> None:
    is_warm = way == "warm"
    with Scenario(cluster, Shape(), say, {"job.hotstandby.warm": str(is_warm).lower()}) as scenario:
        begun = time.monotonic()
        scenario.submit()
        # A cold standby never becomes warm.
        if scenario.wait_until_whole() is None or (is_warm and not scenario.wait_until_warm()):
            raise Failed("the job did not become whole and warm")
        ready_seconds = time.monotonic() - begun
        traffic = Traffic(cluster.kafka_bootstrap, endless(), 0.0)
        try:
            for rate in arguments.rates:
                traffic.rate = rate
                if rate and not traffic.count:
                    traffic.start()
                time.sleep(arguments.settle_seconds)
                used = {**_used(arguments.seconds, scenario, cluster), "ready_seconds": ready_seconds}
                results[rate].add(way, used)
                used_by_measure = ", ".join(f"{label} {used[key] * by:.1f}" for key, label, by in _MEASURES)
                say(f"{way}, {rate:,.0f} records/s: {used_by_measure}")
        finally:
            traffic.stop()
        scenario.drain()
        found = scenario.verify()
        if not found.is_exact:
            raise Failed(found.findings())


def _used(seconds: float, scenario: Scenario, cluster: LocalCluster) -> dict[str, float]:
    """Return the average CPU time (shares of a core) and memory of a container of standbys and of one of actives."""
    for _ in range(_ATTEMPTS):
        roles = _roles(scenario)
        used = _used_by(roles, seconds, cluster)
        if _roles(scenario) == roles:
            return used
        say("copies were moved meanwhile: it is measured again")
    raise Failed(f"the roles changed while it was measured, {_ATTEMPTS} times")


def _used_by(roles: Mapping[Role, frozenset[str]], seconds: float, cluster: LocalCluster) -> dict[str, float]:
    pids: dict[Role, list[int]] = {role: [] for role in roles}
    for process in cluster.container_processes():
        for role, containers in roles.items():
            if process.container_id in containers:
                pids[role].append(process.pid)
    before = {role: meter.cpu_seconds(each) for role, each in pids.items()}
    begun = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begun
    return {
        key: value
        for role, each in pids.items()
        for key, value in {
            f"{role.value}_core_share": (meter.cpu_seconds(each) - before[role]) / took / len(roles[role]),
            f"{role.value}_bytes": meter.resident_bytes(each) / len(roles[role]),
        }.items()
    }


def _roles(scenario: Scenario) -> dict[Role, frozenset[str]]:
    """Return the containers with replicas of one role only, by role; raises `Failed` if a role has none."""
    status = scenario.status()
    held: dict[str, set[str]] = {}
    for task in status.tasks:
        for each in task.replicas:
            if each.container is not None:
                held.setdefault(each.container, set()).add(each.role)
    found = {
        role: frozenset(name for name, roles in held.items() if roles == {role.value})
        for role in (Role.STANDBY, Role.ACTIVE)
    }
    if not all(found.values()):
        raise Failed(f"no container holds one role only: {held}")
    return found


if __name__ == "__main__":
    sys.exit(main())
