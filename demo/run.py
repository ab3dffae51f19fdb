"""The run of the demo on a running cluster: stream, kill a process, lose a host, verify, report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from demo.command import ROOT
from demo.gaps import gaps, longest_before_ms
from demo.hosts import POOL, YARN, Hosts
from demo.picture import Stretch, Timeline, draw
from demo.report import Failover, describe, faults
from demo.scenario import Scenario, Shape, now_ms
from demo.screen import Screen
from demo.traffic import Traffic
from demo.verification import Verification
from demo.versions import versions
from demo.watch import Sample
from examples.flights.source import ROWS, Raw, flights
from standby.errors import Unavailable

_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run."""

    rate: float = 1_000.0
    """Records per second during the failures."""
    fast_rate: float = 8_000.0
    """Records per second for the rest."""
    rows: int = ROWS
    partitions: int = 4
    steady_seconds: float = 15.0
    """Undisturbed time before each failure, and after the last recovery."""
    heartbeat_timeout_ms: int = 2_000
    output: Path = ROOT / "build" / "demo"
    settings: Mapping[str, str] = field(default_factory=dict)
    is_kept: bool = False
    on: str = YARN
    """What the hosts belong to. The silent host of a pool comes back during the run."""


def run(options: Options, cluster: Hosts, screen: Screen) -> int:
    """Run the demo and write report and picture; return the exit status."""
    begin = time.monotonic()
    picture, path = options.output / "timeline.png", options.output / "report.json"
    options.output.mkdir(parents=True, exist_ok=True)
    for old in (picture, path):
        # A run that ends early must not leave figures of the previous run.
        old.unlink(missing_ok=True)
    shape = Shape(partitions=options.partitions)
    settings = {
        "job.hotstandby.heartbeat.timeout.ms": str(options.heartbeat_timeout_ms),
        # After the last failure two of three hosts are left; nothing else runs on them.
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
    screen.phase("waiting until every standby is warm: each container's JVM loads and compiles its pipeline")
    if scenario.wait_until_whole() is None:
        raise Unavailable("the job did not become whole; see the logs of its containers")
    warm_seconds: float | None = None
    if scenario.wait_until_warm():
        warm_seconds = round(time.monotonic() - began, 1)
        screen.say(f"every standby is warm {warm_seconds} s after the submission began")
    records = data.result()
    first, rest = records[: int(options.rate)], records[int(options.rate) :]
    first_seconds = _first(first, options, scenario, screen)
    traffic = Traffic(scenario.cluster.kafka_bootstrap, rest, options.rate)
    screen.follow(scenario.watch, scenario.log, traffic)
    stretches, of_stream = _stream(traffic, options, scenario, screen)
    screen.phase("waiting until the last record is processed")
    left = scenario.drain()
    if left != 0:
        screen.say(
            f"NOT processed: {left} records, and for minutes none was; their outputs will show as lost"
        )
    if not options.is_kept:
        screen.phase("killing the job: nothing it had promised may be gone with it")
        scenario.kill()
    screen.phase("comparing every output and the final state with the batch model")
    verification = scenario.verify()
    if verification.findings():
        screen.say(verification.findings())
    report, timeline = assemble(scenario.failovers, verification, scenario.watch.samples, stretches)
    report |= {
        "records_sent": len(first) + traffic.count,
        "same_host_violations": len(scenario.watch.same_host_violations),
        "submit_seconds": round(submit_seconds, 1),
        "warm_seconds": warm_seconds,
        "first_records_seconds": first_seconds,
        **of_stream,
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


def _first(records: Sequence[Raw], options: Options, scenario: Scenario, screen: Screen) -> float:
    """Process the first records before the stream begins; return how long that took, seconds.

    An active that was deployed on an empty input has read nothing yet. Its first batch loads and compiles what reading
    and transforming need, in every container at once.
    """
    screen.phase(f"the first {len(records):,} flights: the first batch that each active ever runs")
    traffic = Traffic(scenario.cluster.kafka_bootstrap, records, options.rate)
    screen.follow(scenario.watch, scenario.log, traffic)
    began = time.monotonic()
    traffic.start()
    try:
        while not traffic.join(_LOOK_SECONDS):
            pass
    finally:
        traffic.stop()
    scenario.drain()
    took = round(time.monotonic() - began, 1)
    screen.say(f"they are processed {took} s after the first was sent; the JVMs have run what they will run")
    return took


def _stream(
    traffic: Traffic, options: Options, scenario: Scenario, screen: Screen
) -> tuple[tuple[Stretch, ...], dict[str, Any]]:
    """Stream all records and cause the failures; return the stretches of the stream, and what the report has of it."""
    screen.phase(f"streaming, {options.rate:,.0f} flights a second")
    slow = Stretch(now_ms(), f"{options.rate:,.0f} records a second")
    traffic.start()
    try:
        scenario.calm()
        _flow(options.steady_seconds, traffic)
        screen.phase("killing the process of an active")
        killed = scenario.kill_process()
        scenario.wait_until_spread()
        _flow(options.steady_seconds, traffic)
        screen.phase("losing the host of another active silently")
        _, host = scenario.lose_host(avoid=killed.disturbance.tasks)
        _flow(options.steady_seconds, traffic)
        found: dict[str, Any] = {"memory_bytes": scenario.memory_bytes()}
        if options.on == POOL:
            screen.phase("connecting the host again: its processes must do no harm")
            connected_ms = now_ms()
            found["returned_ms"] = scenario.bring_back(host)
            _flow(options.steady_seconds, traffic)
            found["failovers_after_return"] = scenario.failovers_since(connected_ms)
        fast = Stretch(now_ms(), f"{options.fast_rate:,.0f} records a second")
        traffic.rate = options.fast_rate
        screen.phase(f"streaming the rest at {options.fast_rate:,.0f}/s")
        while not traffic.join(_LOOK_SECONDS):
            pass
    finally:
        traffic.stop()
    return (slow, fast), found


def _flow(seconds: float, traffic: Traffic) -> None:
    """Let records flow undisturbed; raises `Unavailable` if there are no more."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if traffic.join(_LOOK_SECONDS):
            raise Unavailable("the input ended before everything was killed: lower --rate or raise --rows")


def assemble(
    failovers: Sequence[Failover],
    verification: Verification,
    samples: Sequence[Sample],
    stretches: Sequence[Stretch] = (),
) -> tuple[dict[str, Any], Timeline]:
    """Return the part of the report that is computed from the recorded data, and the picture's timeline.

    ``stretches`` are the parts of the run that the picture shows next to each other.
    """
    disturbances = [each.disturbance for each in failovers]
    times = verification.output_times
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
            describe(failover, each, longest_before_ms(failover.disturbance, times))
            for failover, each in zip(failovers, found, strict=True)
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
    return report, Timeline(verification.input_times, times, failovers, found, actives, stretches)


def outcome(report: Mapping[str, Any]) -> list[str]:
    """Return a summary of the report in a few lines."""
    lines = [
        f"{report['records_in']:,} records in",
        f"{report['outputs_seen']:,} outputs seen of {report['outputs_expected']:,}",
        f"{report['lost']} lost, {report['duplicated']} duplicated, {report['mismatched']} wrong",
        f"{report['state_mismatched']} of {report['state_keys']:,} state keys wrong",
    ]
    lines += [
        f"{each['kind']} lost: no output of task {each['longest_waiting_task']} for {each['gap_ms']} ms (its longest "
        f"pause in the {each['calm_before_ms'] / 1_000:.0f} s before: {each['longest_gap_before_ms']} ms); noticed "
        f"{each['detected_ms']} ms after the loss, fenced {each['fenced_ms']}, drained {each['drained_ms']}, first "
        f"output {each['first_output_ms']}"
        for each in report["failovers"]
    ]
    lines += [f"NOT as promised: {fault}" for fault in report["faults"]]
    return lines
