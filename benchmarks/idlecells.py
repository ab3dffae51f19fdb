"""The cost of an idle second cell: ``python -m benchmarks.idlecells``.

A small job without input runs on the embedded YARN, alternately in one cell and in two. When every replica is in
sync, some seconds are measured: CPU time and memory of the masters (Skein's JVM, supervisor, candidate), CPU time of
the job's containers and of ZooKeeper, and the requests to ZooKeeper. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from appmaster.adapters.credentials.keyring import keyring_in
from appmaster.api.client import ClusterClient
from benchmarks import meter
from benchmarks.broker import whole_arena
from benchmarks.contest import ROOT, Failed, Results, say
from benchmarks.dataset import make_topic
from benchmarks.report import Measure, Report
from benchmarks.rounds import order
from demo.command import standfast
from demo.standing import parse, what_is_missing
from embedded.cluster import LocalCluster
from standby.errors import StandfastError

_TASKS: Final = 2
_JOB_FILE: Final = ROOT / "benchmarks" / "gapjob.yaml"
_WHOLE_SECONDS: Final = 180.0
_LOOK_SECONDS: Final = 0.5
_MEASURES: Final[tuple[Measure, ...]] = (
    ("masters_core_share", "masters, % of a core", 100.0),
    ("masters_bytes", "masters, MB", 1e-6),
    ("containers_core_share", "containers, % of a core", 100.0),
    ("zookeeper_core_share", "ZooKeeper, % of a core", 100.0),
    ("zookeeper_requests_per_second", "requests to ZooKeeper a second", 1.0),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every round succeeded, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idlecells", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--cells", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle-seconds", type=float, default=15.0, help="before it is measured")
    parser.add_argument("--seconds", type=float, default=30.0, help="that are measured")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "benchmarks" / "idlecells.json")
    arguments = parser.parse_args(argv)
    report = Report(arguments.output, "An idle cluster, by number of cells", _MEASURES, arguments)

    def measure() -> None:
        results = report.case("a job without input", [_name(each) for each in arguments.cells])
        with whole_arena(arguments.scratch) as (cluster, scratch):
            for turn in range(arguments.rounds):
                for cells in order(arguments.cells, turn):
                    with results.attempt(f"round {turn + 1}, {_name(cells)}"):
                        _round(arguments, cluster, scratch / f"idle{turn}-{cells}", cells, results)

    return report.carry_out(measure)


def _name(cells: int) -> str:
    return f"{cells} cell{'s' if cells > 1 else ''}"


def _round(
    arguments: argparse.Namespace, cluster: LocalCluster, state: Path, cells: int, results: Results
) -> None:
    job = state.name
    make_topic(cluster.kafka_bootstrap, f"{job}-in", _TASKS, "delete")
    make_topic(cluster.kafka_bootstrap, f"{job}-out", 1, "delete")
    settings = {
        "job.name": job,
        "cluster.name": job,
        "task.inputs": f"{job}-in",
        "task.outputs": f"{job}-out",
        "task.feed": "plain",
        "job.state.dir": str(state),
        "appmaster.cells": str(cells),
    }
    pairs = (part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
    environment = cluster.environment()
    with ExitStack() as stack:
        stack.callback(standfast, environment, say, "delete", job)
        standfast(environment, say, "submit", str(_JOB_FILE), *pairs)
        ring = keyring_in(Path(environment["STANDFAST_CREDENTIALS"]) / job, job)
        client = stack.enter_context(ClusterClient(job, cluster.zookeeper_connect, ring))
        _until_whole(client, cells)
        time.sleep(arguments.settle_seconds)
        found = _idle(cluster, client, arguments.seconds)
    results.add(_name(cells), found)
    say(f"{_name(cells)}: " + ", ".join(f"{label} {found[key] * by:.1f}" for key, label, by in _MEASURES))


def _until_whole(client: ClusterClient, cells: int) -> None:
    give_up = time.monotonic() + _WHOLE_SECONDS
    missing = "no status"
    while time.monotonic() < give_up:
        try:
            missing = what_is_missing(parse(client.status()), _TASKS, 2)
            if not missing and len(client.info()["candidates"]) == cells:
                return
        except StandfastError as error:
            missing = str(error)
        time.sleep(_LOOK_SECONDS)
    raise Failed(f"the job is not whole: {missing}")


def _idle(cluster: LocalCluster, client: ClusterClient, seconds: float) -> dict[str, Any]:
    masters = {each["container"] for each in client.info()["candidates"]}
    processes = [each for each in cluster.container_processes() if each.container_id]
    pids = {
        "masters": [each.pid for each in processes if each.container_id in masters],
        "containers": [each.pid for each in processes if each.container_id not in masters],
        "zookeeper": [each.pid for each in cluster.status().servers if each.name == "zookeeper" and each.pid],
    }
    before, requests = {name: meter.cpu_seconds(each) for name, each in pids.items()}, _requests(cluster)
    begun = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begun
    used = {name: meter.cpu_seconds(each) - before[name] for name, each in pids.items()}
    return {
        **{f"{name}_core_share": each / took for name, each in used.items()},
        "masters_bytes": meter.resident_bytes(pids["masters"]),
        "zookeeper_requests_per_second": (_requests(cluster) - requests) / took,
    }


def _requests(cluster: LocalCluster) -> int:
    """Return how many packets ZooKeeper has received since it started."""
    host, _, port = cluster.zookeeper_connect.partition("/")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"mntr")
        said = b"".join(iter(lambda: connection.recv(65_536), b""))
    for line in said.decode().splitlines():
        name, _, value = line.partition("\t")
        if name == "zk_packets_received":
            return int(value)
    raise Failed(f"ZooKeeper says nothing of its packets: {said[:200]!r}")


if __name__ == "__main__":
    sys.exit(main())
