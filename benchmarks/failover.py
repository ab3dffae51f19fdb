"""The gap in the output caused by a failure: ``python -m benchmarks.failover --policy promote --kind both --kills 10``.

One embedded cluster, one job, a steady stream. Processes of actives are killed (``process``), hosts of actives become
silent and come back (``host``), both in turn, or the active role is handed over as planned (``handover``: no failure).
The next failure comes when every replica is in sync and warm again. With ``--soon`` every second one comes as soon as
they are in sync, and is listed separately. Writes a JSON file with every failover and what else the machine did until
its end (`benchmarks.beside`), median and maximum of each step and of each phase between two steps, and whether the
outputs and the state were exact in the end. With ``--on pool`` there is no YARN, and a host is lost by its network
link; with ``--on yarn pool`` both are measured, one after the other. With ``--spares 1`` the job has a spare container,
which has to be ready before a failure that is not soon after another; ``--spares 0 1`` measures without and with one,
one after the other. The commands:

    python -m benchmarks.failover --policy promote --kind both
    python -m benchmarks.failover --policy restart --kind both
    python -m benchmarks.failover --kind handover
    python -m benchmarks.failover --kind both --on yarn pool
    python -m benchmarks.failover --kind both --soon --spares 0 1
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.beside import begun_beside, beside, look
from benchmarks.stream import endless, flow, leave, parser_of, save, settings_of, status_of
from demo.hosts import POOL, YARN, Hosts
from demo.interrupt import Interrupts
from demo.network import enter
from demo.own_cluster import hosts_of_our_own
from demo.report import phase_summary, summary
from demo.run import assemble
from demo.scenario import Scenario, Shape, now_ms
from demo.screen import Screen
from demo.traffic import Traffic
from demo.versions import versions
from standby.errors import Unavailable


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every failover succeeded and everything was exact, else 1."""
    parser = parser_of("failover", __doc__, steady_seconds=5.0)
    parser.add_argument("--kills", type=int, default=10, help="of each kind (default: %(default)s)")
    parser.add_argument("--kind", choices=("process", "host", "handover", "both"), default="process")
    parser.add_argument(
        "--soon", action="store_true", help="have every second one come before the standbys are warm again"
    )
    parser.add_argument(
        "--on", choices=(YARN, POOL), nargs="+", default=[YARN], help="what starts containers (default: yarn)"
    )
    parser.add_argument(
        "--spares",
        type=int,
        nargs="+",
        default=[0],
        metavar="N",
        help="spare containers of the job (default: 0)",
    )
    parser.add_argument("--policy", choices=("promote", "restart"), default="promote")
    arguments = parser.parse_args(argv)

    def measure() -> bool:
        if POOL in arguments.on:
            enter(["-m", "benchmarks.failover", *(sys.argv[1:] if argv is None else argv)])
        found = [_measured_on(on, spares, arguments) for on in arguments.on for spares in arguments.spares]
        return all(found)

    return status_of(measure)


def _measured_on(on: str, spares: int, arguments: argparse.Namespace) -> bool:
    names = [arguments.output.stem, *([on] if on != YARN else []), *([f"spares-{spares}"] if spares else [])]
    output = arguments.output.with_stem("-".join(names))
    # Interrupts are ignored from the end of a cluster on.
    with (
        Interrupts() as interrupts,
        Screen() as screen,
        hosts_of_our_own(on, screen, interrupts, output.parent / f"logs-{output.stem}") as cluster,
    ):
        result = _measure(arguments, spares, cluster, screen) | {"on": on}
    _report(result, output)
    return bool(result["exact"] and result["replicas_restored"])


def _report(result: Mapping[str, Any], output: Path) -> None:
    save(result, output)
    for kind in result["summary"]:
        title = f"{kind}, {result['policy']}, {result['on']}, {result['spares']} spare containers"
        print(f"{title}, ms: {json.dumps(result['summary'][kind], indent=2)}")
        print(f"{title}, ms a phase: {json.dumps(result['phases'][kind], indent=2)}")
    print(output)


def _measure(arguments: argparse.Namespace, spares: int, cluster: Hosts, screen: Screen) -> dict[str, Any]:
    kinds = ("process", "host") if arguments.kind == "both" else (arguments.kind,)
    chosen = settings_of(arguments)
    # Otherwise a hand-over that spreads actives could be measured together with the next failure.
    settings = {
        "job.hotstandby.failover": arguments.policy,
        "job.locality.rebalance": "manual",
        "job.container.spare.count": str(spares),
        **chosen,
    }
    load_before = os.getloadavg()[0]
    shape = Shape(partitions=arguments.partitions)
    labels: dict[int, str] = {}
    with Scenario(cluster, shape, screen.say, settings, screen.pulse) as scenario:
        scenario.meanwhile = lambda: _meanwhile(scenario, cluster)
        screen.phase("submitting the job")
        submit_seconds = scenario.submit()
        traffic = Traffic(cluster.kafka_bootstrap, endless(), arguments.rate)
        screen.follow(scenario.watch, scenario.log, traffic)
        traffic.start()
        try:
            if scenario.wait_until_whole() is None:
                raise Unavailable("the job did not become whole; see the logs of its containers")
            scenario.wait_until_warm()
            scenario.calm()
            for number in range(arguments.kills):
                # So that with --soon each kind follows the other.
                for kind in kinds if number % 2 == 0 else kinds[::-1]:
                    flow(arguments.steady_seconds, traffic)
                    screen.phase(f"{kind} {number + 1} of {arguments.kills}")
                    is_soon = not scenario.waits_until_warm
                    scenario.waits_until_warm = is_soon or not arguments.soon
                    _disturb(kind, scenario)
                    label = f"{kind}, soon after another" if is_soon else kind
                    labels[len(scenario.failovers) - 1] = label
            flow(arguments.steady_seconds, traffic)
        finally:
            traffic.stop()
        screen.phase("verifying")
        scenario.drain()
        verification = scenario.verify()
        report, _ = assemble(scenario.failovers, verification, scenario.watch.samples)
        violations = len(scenario.watch.same_host_violations)
    failovers = report.pop("failovers")
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for number, label in labels.items():
        by_kind.setdefault(label, []).append(failovers[number])
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "policy": arguments.policy,
        "kind": arguments.kind,
        "kills": arguments.kills,
        "spares": spares,
        "rate": arguments.rate,
        "tasks": arguments.partitions,
        "settings": settings,
        "submit_seconds": round(submit_seconds, 1),
        "summary": {kind: summary(each) for kind, each in by_kind.items()},
        "phases": {kind: phase_summary(each) for kind, each in by_kind.items()},
        "exact": verification.is_exact and verification.records_in == traffic.count,
        "findings": verification.findings(),
        **report,
        "same_host_violations": violations,
        "failovers": failovers,
        "load_before": round(load_before, 2),
        "versions": versions(),
    }


def _disturb(kind: str, scenario: Scenario) -> None:
    if kind == "process":
        failover = scenario.kill_process()
    elif kind == "handover":
        failover = scenario.hand_over()
    else:
        scenario.spare_master()
        failover, host = scenario.lose_host()
        if scenario.bring_back(host) is None:
            raise Unavailable("what was lost on the host did not end; nothing more can be measured")
    if not failover.is_restored:
        raise Unavailable("the replicas were not restored; nothing more can be measured")


def _meanwhile(scenario: Scenario, cluster: Hosts) -> Callable[[int, Sequence[int]], Mapping[str, Any]]:
    before = look(cluster)

    def measure(begun_ms: int, tasks: Sequence[int]) -> Mapping[str, Any]:
        after, until_ms = look(cluster), now_ms()
        status = scenario.status()
        actives = [each.active_replica for each in status.tasks if each.partition in tasks]
        promoted = [each.container for each in actives if each is not None and each.container is not None]
        return {
            **beside(before, after, begun_ms, promoted),
            "begun": begun_beside(scenario.log.events, begun_ms, until_ms),
            "load": round(os.getloadavg()[0], 2),
        }

    return measure


if __name__ == "__main__":
    leave(main())
