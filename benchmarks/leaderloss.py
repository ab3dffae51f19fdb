"""The effects of the loss of the leader: ``python -m benchmarks.leaderloss --kinds process am host --kills 10``.

One embedded cluster, the flights job in two cells, a steady stream. Three failures alternate: the leader's process is
killed (``process``); the Skein application master of its cell is killed, which ends the cell's containers (``am``); its
host becomes silent (``host``). If no active is lost by this, a container with an active is killed at the same moment.
For each loss the result has:

- the time until another candidate leads;
- the time until the first decision of the new leader was carried out, that is, the first lost task is active again;
- the longest silence of the tasks in the lost cell, and of the other tasks, by the time at which outputs were written,
  and by the time at which a reader of committed records received them (an open transaction of a dead active blocks it);
- for comparison the longest silence in an equally long time before the loss.

Two more kinds separate the causes of the silence of the other tasks: the leader's process alone (``process-alone``),
and a container with an active and no leader (``container``). Writes a JSON file with every loss, medians and maxima,
and whether everything was exact.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from benchmarks.rounds import figures
from benchmarks.stream import endless, flow, leave, parser_of, save, settings_of, status_of
from demo.interrupt import Interrupts
from demo.own_cluster import cluster_of_our_own
from demo.report import step_times
from demo.scenario import FAILOVER_SECONDS, RESTORE_SECONDS, Scenario, Shape, now_ms
from demo.screen import Screen
from demo.topics import QUIET, end_offsets
from demo.traffic import Traffic
from demo.versions import versions
from embedded.cluster import LocalCluster
from examples.flights.replay import INPUT_TOPIC, OUTPUT_TOPICS
from standby.errors import StandfastError, Unavailable

#: The module that the killed process of the leader's container runs, by kind of loss.
_PROGRAMS: Final = {
    "process": "appmaster",
    "process-alone": "appmaster",
    "am": "com.anaconda.skein.ApplicationMaster",
}
_KINDS: Final = ("process", "am", "host")
_CONTROLS: Final = ("process-alone", "container")

#: Every killed AM uses one attempt, and so does an attempt that ends in favour of one on another host.
_ATTEMPTS: Final = "100"

#: For how long after the last step of a loss a silence may still be caused by it, milliseconds.
_AFTERMATH_MS: Final = 3_000
#: A silence may have begun this long before the loss.
_AHEAD_MS: Final = 1_000
_LOOK_SECONDS: Final = 0.25


class Readers:
    """Reads all committed outputs, and records their arrival by task."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": "leaderloss",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        topics = (INPUT_TOPIC, *OUTPUT_TOPICS)
        places = [TopicPartition(each, part, 0) for each in topics for part in end_offsets(bootstrap, each)]
        self._consumer.assign(places)
        # A key's task is the partition of its records in the input topic, which is read before their outputs.
        self._tasks: dict[bytes | str | None, int] = {}
        self._arrivals: dict[int, list[int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readers", daemon=True)
        self._thread.start()

    def close(self) -> dict[int, list[int]]:
        """End; return task → arrival times of its outputs, Unix milliseconds, ascending."""
        self._ended.set()
        self._thread.join()
        self._consumer.close()
        return self._arrivals

    def _run(self) -> None:
        while not self._ended.is_set():
            messages = self._consumer.consume(2_000, 0.05)
            now = now_ms()
            for message in messages:
                partition = message.partition()
                if message.error() is not None or partition is None:
                    continue
                if message.topic() == INPUT_TOPIC:
                    self._tasks[message.key()] = partition
                elif (task := self._tasks.get(message.key())) is not None:
                    times = self._arrivals.setdefault(task, [])
                    # Once for each poll: between outputs that arrive together there is no silence.
                    if not times or times[-1] != now:
                        times.append(now)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if another candidate led each time and everything was exact, else 1."""
    parser = parser_of("leaderloss", __doc__, steady_seconds=12.0)
    parser.add_argument("--kills", type=int, default=10, help="of each kind (default: %(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=(*_KINDS, *_CONTROLS), default=_KINDS)
    arguments = parser.parse_args(argv)

    def measure() -> bool:
        with (
            Interrupts() as interrupts,
            Screen() as screen,
            cluster_of_our_own(screen, interrupts, arguments.output.parent / "logs") as cluster,
        ):
            result = _measure(arguments, cluster, screen)
        save(result, arguments.output)
        for kind, found in result["summary"].items():
            print(kind)
            for name, each in found.items():
                print(f"  {name:40}{each['median']:>8,.0f} ({each['min']:,.0f}-{each['max']:,.0f})")
        print(f"exact: {result['exact']} {result['findings']}")
        print(arguments.output)
        return bool(result["exact"])

    return status_of(measure)


def _measure(arguments: argparse.Namespace, cluster: LocalCluster, screen: Screen) -> dict[str, Any]:
    settings = {
        "yarn.am.max.attempts": _ATTEMPTS,
        # Otherwise a hand-over that spreads actives could be measured together with the next loss.
        "job.locality.rebalance": "manual",
        **settings_of(arguments),
    }
    load_before = os.getloadavg()[0]
    losses: list[dict[str, Any]] = []
    shape = Shape(partitions=arguments.partitions)
    with Scenario(cluster, shape, screen.say, settings, screen.pulse) as scenario:
        screen.phase("submitting the job")
        scenario.submit()
        traffic = Traffic(cluster.kafka_bootstrap, endless(), arguments.rate)
        screen.follow(scenario.watch, scenario.log, traffic)
        readers = Readers(cluster.kafka_bootstrap)
        traffic.start()
        try:
            _until_whole(scenario)
            for number in range(arguments.kills):
                for kind in arguments.kinds:
                    flow(arguments.steady_seconds, traffic)
                    screen.phase(f"{kind} {number + 1} of {arguments.kills}")
                    losses.append(_lose(kind, scenario, cluster))
                    screen.say(json.dumps(losses[-1]))
            flow(arguments.steady_seconds, traffic)
        finally:
            traffic.stop()
        screen.phase("verifying")
        scenario.drain()
        verification = scenario.verify()
    arrivals = readers.close()
    for loss in losses:
        for how, times in (("written", verification.output_times), ("read", arrivals)):
            loss.update(_silences(how, loss, times))
            loss.update(_silence_before(how, loss, times))
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "kills": arguments.kills,
        "rate": arguments.rate,
        "tasks": arguments.partitions,
        "settings": settings,
        "summary": {
            kind: {
                name: each.as_json()
                for name, each in figures(
                    [
                        {name: value for name, value in each.items() if name.endswith("_ms")}
                        for each in losses
                        if each["kind"] == kind
                    ]
                ).items()
            }
            for kind in arguments.kinds
        },
        "exact": verification.is_exact and verification.records_in == traffic.count,
        "findings": verification.findings(),
        "losses": losses,
        "load_before": round(load_before, 2),
        "versions": versions(),
    }


def _lose(kind: str, scenario: Scenario, cluster: LocalCluster) -> dict[str, Any]:
    """Cause the loss of the leader; when all is whole again, return the figures, in milliseconds since the loss."""
    info = scenario.client.info()
    leader = next(each for each in info["candidates"] if each["is_leader"])
    cells = {each["container"]: each["cell"] for each in info["containers"]}
    hosts = {each["container"]: each["host"] for each in info["containers"]}
    actives = _actives(scenario)
    lost = sorted(
        task
        for task, container in actives.items()
        if kind in ("am", "host")
        and (cells[container] == leader["cell"] or (kind == "host" and hosts[container] == leader["host"]))
    )
    begun = now_ms()
    if kind == "host":
        cluster.kill_host(leader["host"], silent=True)
    elif kind in _PROGRAMS:
        _kill(cluster, leader["container"], _PROGRAMS[kind])
    killed = [] if lost or kind == "process-alone" else _kill_active(cluster, actives)
    leads = _elected(kind, scenario, begun) if kind != "container" else None
    wanted = set(lost or killed)

    def steps() -> dict[int, dict[str, int]]:
        # Actives of a lost cell that still run are handed over as planned; those that died fail over.
        events = scenario.log.events
        return {
            task: times
            for finished in ("handover_finished", "failover_finished")
            for task, times in step_times(events, begun, finished).items()
            if task in wanted
        }

    scenario.log.wait_for(lambda _: wanted <= set(steps()), FAILOVER_SECONDS)
    carried_out = [each["active"] for each in steps().values() if "active" in each]
    done = max([leads or begun, *carried_out])
    if kind == "host":
        cluster.finish_silent(leader["host"])
        cluster.start_host(leader["host"])
    _until_whole(scenario)
    return {
        "kind": kind,
        "begun_at": begun,
        "until": done + _AFTERMATH_MS,
        "lost_tasks": lost,
        # Their silence belongs to a separate failover.
        "killed_tasks": killed,
        **({"another_leads_ms": leads - begun} if leads is not None else {}),
        **({"first_decision_carried_out_ms": min(carried_out) - begun} if carried_out else {}),
        **({"all_carried_out_ms": max(carried_out) - begun} if carried_out else {}),
        "whole_again_ms": now_ms() - begun,
    }


def _elected(kind: str, scenario: Scenario, begun: int) -> int:
    """Return when another candidate led, Unix milliseconds; raises `Unavailable` if none does in time."""
    elected = scenario.log.wait_for(
        lambda events: any(each.kind == "leader_elected" and each.at_ms > begun for each in events),
        FAILOVER_SECONDS,
    )
    if elected is None:
        raise Unavailable(
            f"no candidate has led for {FAILOVER_SECONDS:.0f} s after the leader's {kind} was lost"
        )
    return min(each.at_ms for each in elected if each.kind == "leader_elected" and each.at_ms > begun)


def _kill(cluster: LocalCluster, container: str, program: str) -> None:
    for each in cluster.container_processes():
        if each.container_id == container and program in each.command:
            each.send(signal.SIGKILL)
            return
    raise Unavailable(f"{container} has no process that runs {program}")


def _kill_active(cluster: LocalCluster, actives: Mapping[int, str]) -> list[int]:
    """Kill all processes of a container that has actives; return the tasks."""
    container = min(actives.values())
    for each in cluster.container_processes():
        if each.container_id == container:
            each.send(signal.SIGKILL)
    return sorted(task for task, each in actives.items() if each == container)


def _actives(scenario: Scenario) -> dict[int, str]:
    """Return task → the container of its active."""
    return {
        task["task"]["partition"]: each["container"]
        for task in scenario.client.status()["tasks"]
        for each in task["replicas"]
        if each["copy"] == task["active"]
    }


def _until_whole(scenario: Scenario) -> None:
    """Wait until both cells have candidates, and every task has copies in both cells, in sync and warm."""
    deadline = time.monotonic() + RESTORE_SECONDS
    while time.monotonic() < deadline:
        if scenario.wait_until_whole() is None or not scenario.wait_until_warm():
            break
        try:
            status, info = scenario.client.status(), scenario.client.info()
        except StandfastError:
            continue
        cells = {each["container"]: each["cell"] for each in status["containers"]}
        copies = [{cells.get(each["container"]) for each in task["replicas"]} for task in status["tasks"]]
        if len(info["candidates"]) == len(info["cells"]) and all(
            len(each) == len(info["cells"]) for each in copies
        ):
            return
        time.sleep(_LOOK_SECONDS)
    raise Unavailable("the job did not become whole again; nothing more can be measured")


def _silences(how: str, loss: Mapping[str, Any], times: Mapping[int, Sequence[int]]) -> dict[str, int]:
    """Return the longest silence around a loss of the lost tasks, and of the others."""
    longest: dict[str, int] = {}
    for task, stamps in times.items():
        if task in loss["killed_tasks"]:
            continue
        name = f"{'lost' if task in loss['lost_tasks'] else 'other'}_tasks_silent_{how}_ms"
        silence = _longest(stamps, loss["begun_at"] - _AHEAD_MS, loss["until"])
        longest[name] = max(longest.get(name, 0), silence)
    return longest


def _silence_before(how: str, loss: Mapping[str, Any], times: Mapping[int, Sequence[int]]) -> dict[str, int]:
    """Return the longest silence of the other tasks in an equally long time before the loss."""
    end = loss["begun_at"] - _AHEAD_MS
    begin = end - (loss["until"] - end)
    others = times.keys() - {*loss["killed_tasks"], *loss["lost_tasks"]}
    if not others:
        return {}
    return {f"other_tasks_silent_before_{how}_ms": max(_longest(times[each], begin, end) for each in others)}


def _longest(stamps: Sequence[int], begin: int, end: int) -> int:
    """Return the longest time between two of the stamps from begin to end; 0 for fewer than two."""
    near = [each for each in stamps if begin <= each <= end]
    return max((after - before for before, after in pairwise(near)), default=0)


if __name__ == "__main__":
    leave(main())
