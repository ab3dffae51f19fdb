"""The run of the demo on a cluster that is up: stream, kill, lose, verify, report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from demo.command import ROOT
from demo.gaps import gaps, longest_undisturbed_ms
from demo.picture import Timeline, draw
from demo.report import Failover, describe, faults
from demo.scenario import Scenario, Shape, now_ms
from demo.screen import Screen
from demo.traffic import Traffic
from demo.verification import Verification
from demo.versions import versions
from demo.watch import Sample
from embedded.cluster import LocalCluster
from examples.flights.source import ROWS, Raw, flights
from standby.errors import Unavailable

_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """What can be chosen about a run."""

    rate: float = 1_000.0
    """Records per second while things are killed."""
    fast_rate: float = 8_000.0
    """Records per second for what is left then."""
    rows: int = ROWS
    partitions: int = 4
    steady_seconds: float = 15.0
    """Undisturbed flow before each failure, and after the last restoration."""
    heartbeat_timeout_ms: int = 2_000
    output: Path = ROOT / "build" / "demo"
    settings: Mapping[str, str] = field(default_factory=dict)
    is_kept: bool = False


def run(options: Options, cluster: LocalCluster, screen: Screen) -> int:
    """Carry the demo out and write report and picture; return the exit status."""
    begin = time.monotonic()
    picture, path = options.output / "timeline.png", options.output / "report.json"
    options.output.mkdir(parents=True, exist_ok=True)
    for old in (picture, path):
        # A run that ends early must not leave the last one's figures behind as its own.
        old.unlink(missing_ok=True)
    shape = Shape(partitions=options.partitions)
    settings = {
        "job.hotstandby.heartbeat.timeout.ms": str(options.heartbeat_timeout_ms),
        # The last failure leaves two of three hosts; nothing else runs there.
        "cluster-manager.container.request.timeout.ms": "2000",
        **options.settings,
    }
    pool = ThreadPoolExecutor(1, "data")
    try:
        data = pool.submit(lambda: list(flights(options.rows)))
        with Scenario(cluster, shape, screen.say, settings, screen.pulse) as scenario:
            report, timeline = _carry_out(options, scenario, screen, data)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    report["seconds"] = round(time.monotonic() - begin, 1)
    report["faults"] = list(faults(report))
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    draw(timeline, picture)
    for line in outcome(report):
        screen.say(line)
    screen.say(f"{path} and timeline.png tell the rest")
    return 1 if report["faults"] else 0


def _carry_out(
    options: Options, scenario: Scenario, screen: Screen, data: Future[list[Raw]]
) -> tuple[dict[str, Any], Timeline]:
    screen.phase("submitting the job: standfast submit examples/flights/flights.yaml")
    began = time.monotonic()
    submit_seconds = scenario.submit()
    screen.say(f"every replica is deployed after {submit_seconds:.1f} s")
    traffic = Traffic(scenario.cluster.kafka_bootstrap, data.result(), options.rate)
    screen.follow(scenario.watch, scenario.log, traffic)
    screen.phase(
        f"streaming {options.rows:,} flights, {options.rate:,.0f} a second; waiting for warm standbys"
    )
    traffic.start()
    try:
        if scenario.wait_until_whole() is None:
            raise Unavailable("the job did not become whole; see the logs of its containers")
        warm_seconds: float | None = None
        if scenario.wait_until_warm():
            warm_seconds = round(time.monotonic() - began, 1)
            screen.say(f"every standby is warm {warm_seconds} s after the submission began")
        steady_from = now_ms()
        _flow(options.steady_seconds, traffic)
        screen.phase("killing the process of an active")
        killed = scenario.kill_process()
        _flow(options.steady_seconds, traffic)
        screen.phase("losing the host of another active silently")
        scenario.lose_host(avoid=killed.disturbance.tasks)
        _flow(options.steady_seconds, traffic)
        steady_to = now_ms()
        memory = scenario.memory_bytes()
        traffic.rate = options.fast_rate
        screen.phase(f"streaming the rest at {options.fast_rate:,.0f}/s")
        while not traffic.join(_LOOK_SECONDS):
            pass
    finally:
        traffic.stop()
    screen.phase("waiting until the last record is processed")
    scenario.drain()
    if not options.is_kept:
        screen.phase("killing the job: nothing it had promised may be gone with it")
        scenario.kill()
    screen.phase("comparing every output and the final state with the batch model")
    verification = scenario.verify()
    if verification.findings():
        screen.say(verification.findings())
    report, timeline = assemble(
        scenario.failovers, verification, scenario.watch.samples, (steady_from, steady_to)
    )
    report |= {
        "records_sent": traffic.count,
        "same_host_violations": len(scenario.watch.same_host_violations),
        "submit_seconds": round(submit_seconds, 1),
        "warm_seconds": warm_seconds,
        "memory_bytes": memory,
        "versions": versions(),
        "options": {
            **asdict(options),
            "output": str(options.output.name),
            "settings": dict(options.settings),
        },
    }
    if not options.is_kept:
        screen.phase("deleting the job")
        scenario.delete()
    return report, timeline


def _flow(seconds: float, traffic: Traffic) -> None:
    """Let records flow undisturbed; raises `Unavailable` when there are no more."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if traffic.join(_LOOK_SECONDS):
            raise Unavailable("the input ended before everything was killed: lower --rate or raise --rows")


def assemble(
    failovers: Sequence[Failover],
    verification: Verification,
    samples: Sequence[Sample],
    steady: tuple[int, int],
) -> tuple[dict[str, Any], Timeline]:
    """Return the part of the report that is computed from what was recorded, and the picture's timeline.

    ``steady`` is the span, Unix milliseconds, in which intervals without failure are looked for: the one
    with the same input rate as around the failures.
    """
    disturbances = [each.disturbance for each in failovers]
    times = verification.output_times
    undisturbed = {
        partition: longest_undisturbed_ms(times.get(partition, ()), disturbances, *steady)
        for partition in times
    }
    found = [gaps(each, times) for each in disturbances]
    outputs, state = verification.outputs, verification.state
    report: dict[str, Any] = {
        "records_in": verification.records_in,
        "outputs_expected": outputs.expected,
        "outputs_seen": outputs.seen,
        "lost": outputs.lost,
        "duplicated": outputs.duplicated,
        "mismatched": outputs.mismatched,
        "misordered": outputs.misordered,
        "state_keys": state.keys,
        "state_mismatched": state.mismatched,
        "examples": [*outputs.examples, *state.examples],
        "failovers": [
            describe(failover, each, undisturbed) for failover, each in zip(failovers, found, strict=True)
        ],
        "replicas_restored": bool(failovers) and all(each.is_restored for each in failovers),
    }
    actives = [
        (
            sample.at_ms,
            {
                task.partition: active.host
                for task in sample.status.tasks
                if (active := task.active_replica) is not None and active.host
            },
        )
        for sample in samples
    ]
    return report, Timeline(verification.input_times, times, failovers, found, actives)


def outcome(report: Mapping[str, Any]) -> list[str]:
    """Return the report's substance in a few lines."""
    lines = [
        f"{report['records_in']:,} records in",
        f"{report['outputs_seen']:,} outputs seen of {report['outputs_expected']:,}",
        f"{report['lost']} lost, {report['duplicated']} duplicated, {report['mismatched']} wrong",
        f"{report['state_mismatched']} of {report['state_keys']:,} state keys wrong",
    ]
    lines += [
        f"{each['kind']} lost: output away for {each['gap_ms']} ms (otherwise at most "
        f"{each['longest_gap_without_failure_ms']} ms); noticed {each['detected_ms']} ms after the loss, fenced "
        f"{each['fenced_ms']}, drained {each['drained_ms']}, first output {each['first_output_ms']}"
        for each in report["failovers"]
    ]
    lines += [f"NOT as promised: {fault}" for fault in report["faults"]]
    return lines
