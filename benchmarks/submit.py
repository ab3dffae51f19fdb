"""Where the time of a submit goes: ``python -m benchmarks.submit --on yarn pool --rounds 3``.

The flights job, four tasks on two processors with a standby each, is submitted as a new job, killed when every replica
is warm, submitted again with its state, and deleted at the end of the round. Its input has a steady rate all the time.
Each step is timed from the start of the command until: the checks are over; a leader is elected (on a pool one leads
already); the last container has registered; the job is deployed; the command has returned; the first output is there;
every container is warm. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.contest import ROOT, Failed, Results, say
from benchmarks.report import Measure, Report
from benchmarks.stream import endless
from demo.events import Event
from demo.hosts import POOL, YARN, Hosts
from demo.interrupt import Interrupts
from demo.network import enter
from demo.own_cluster import hosts_of_our_own
from demo.scenario import Scenario, Shape, now_ms
from demo.screen import Screen
from demo.traffic import Traffic
from examples.flights.replay import create_topics

NEW: Final = "a new job"
AGAIN: Final = "again, with its state"

#: What the command says when its checks are over.
_CHECKED: Final = ("submitting to YARN", "submitted to the pool")

_OUTPUT_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.1

_MEASURES: Final[tuple[Measure, ...]] = (
    ("checked_seconds", "checked, s", 1.0),
    ("led_seconds", "leader, s", 1.0),
    ("registered_seconds", "containers, s", 1.0),
    ("deployed_seconds", "deployed, s", 1.0),
    ("returned_seconds", "command returned, s", 1.0),
    ("output_seconds", "first output, s", 1.0),
    ("warm_seconds", "warm, s", 1.0),
    ("cores_until_deployed", "cores busy until deployed", 1.0),
    ("cores_until_warm", "cores busy until warm", 1.0),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every submit succeeded, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.submit", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--on", choices=(YARN, POOL), nargs="+", default=[YARN, POOL])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rate", type=float, default=1_000.0, help="records per second (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "submit.json")
    arguments = parser.parse_args(argv)
    report = Report(arguments.output, "A submit", _MEASURES, arguments)

    def measure() -> None:
        if POOL in arguments.on:
            enter(["-m", "benchmarks.submit", *(sys.argv[1:] if argv is None else argv)])
        for on in arguments.on:
            _measure(on, arguments, report.case(on, (NEW, AGAIN)))

    return report.carry_out(measure)


def _measure(on: str, arguments: argparse.Namespace, results: Results) -> None:
    logs = arguments.output.parent / f"logs-submit-{on}"
    with (
        Interrupts() as interrupts,
        Screen() as screen,
        hosts_of_our_own(on, screen, interrupts, logs) as cluster,
        _traffic(cluster, arguments.rate),
    ):
        for turn in range(arguments.rounds):
            for kind in (NEW, AGAIN):
                with results.attempt(f"{on}, round {turn + 1}, {kind}"):
                    found = _submit(cluster, is_last=kind == AGAIN)
                    results.add(kind, found)
                    text = ", ".join(
                        f"{title} {found[key]:.1f}" for key, title, _ in _MEASURES if key in found
                    )
                    say(f"{on}, round {turn + 1} of {arguments.rounds}, {kind}: {text}")


@contextmanager
def _traffic(cluster: Hosts, rate: float) -> Iterator[None]:
    """Produce input during the block."""
    create_topics(cluster.kafka_bootstrap, Shape().partitions)
    traffic = Traffic(cluster.kafka_bootstrap, endless(), rate)
    traffic.start()
    try:
        yield
    finally:
        traffic.stop()


def _submit(cluster: Hosts, *, is_last: bool) -> dict[str, Any]:
    """Submit the job, end it once it is warm, and return the times; with ``is_last`` delete it."""
    lines: list[tuple[int, str]] = []
    with Scenario(cluster, Shape(), lambda text: lines.append((now_ms(), text))) as scenario:
        begun, idle = now_ms(), _idle_seconds()
        took = scenario.submit()
        found = steps(scenario.log.events, lines, begun)
        found["cores_until_deployed"] = _cores(begun, idle)
        found["returned_seconds"] = took
        found["output_seconds"] = (_first_output_ms(scenario) - begun) / 1_000
        if scenario.wait_until_whole() is None or not scenario.wait_until_warm():
            raise Failed("not every replica is in sync and warm")
        found["warm_seconds"] = (now_ms() - begun) / 1_000
        found["cores_until_warm"] = _cores(begun, idle)
        scenario.kill()
        if is_last:
            scenario.delete()
    return found


def steps(events: Iterable[Event], lines: Iterable[tuple[int, str]], begun: int) -> dict[str, Any]:
    """Return when each step of a submit that began at ``begun`` (Unix milliseconds) was over, seconds after it.

    ``lines`` are the command's output, each with its time. Raises `Failed` without a deployment.
    """
    mine = [each for each in events if each.at_ms >= begun]
    deployed = [
        each.at_ms for each in mine if each.kind == "job_status" and (each.data or {})["status"] == "deployed"
    ]
    if not deployed:
        raise Failed("the event log has no deployment")
    registered = [
        each.at_ms for each in mine if each.kind == "container_registered" and each.at_ms <= deployed[0]
    ]
    elected = [each.at_ms for each in mine if each.kind == "leader_elected"]
    checked = [at for at, text in lines if any(each in text for each in _CHECKED)]
    steps = {
        "checked": checked[:1],
        "led": elected[:1],
        "registered": registered[-1:],
        "deployed": deployed[:1],
    }
    return {f"{name}_seconds": (at - begun) / 1_000 for name, found in steps.items() for at in found}


def _first_output_ms(scenario: Scenario) -> int:
    """Return when an output was first seen that was not there at the first look, Unix milliseconds."""
    deadline = time.monotonic() + _OUTPUT_SECONDS
    while time.monotonic() < deadline:
        samples = scenario.watch.samples
        for each in samples:
            if each.output_end > samples[0].output_end:
                return each.at_ms
        time.sleep(_LOOK_SECONDS)
    raise Failed("there is no output")


def _idle_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.idle + times.iowait)


def _cores(begun: int, idle: float) -> float:
    """Return how many cores were busy on average since ``begun``, when they had been idle for ``idle`` seconds."""
    seconds = (now_ms() - begun) / 1_000
    return (psutil.cpu_count() or 1) - (_idle_seconds() - idle) / seconds


if __name__ == "__main__":
    sys.exit(main())
