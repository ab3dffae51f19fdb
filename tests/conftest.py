"""Shared by all tests: Hypothesis' settings, the cluster of the tests on real servers, and its logs on failure."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from embedded.cluster import LocalCluster
from embedded.registry import names
from tests.servers.shared import shared_cluster

_TAIL_LINES = 60
_TAIL_FILES = 12
_BEFORE_DUMP = 20
_DUMPS = ("Fatal Python error", "Thread 0x", "Current thread 0x")

# A busy machine is not a failure, so no example has a deadline. The gate uses the same examples each time;
# `make soak` searches for new ones.
settings.register_profile("gate", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("STANDFAST_HYPOTHESIS", "gate"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """ZooKeeper and Kafka. A test that damages one of them starts its own servers."""
    with shared_cluster(hosts=0) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker: the one in `STANDFAST_KAFKA`, otherwise the phase's own."""
    return os.environ.get("STANDFAST_KAFKA") or str(request.getfixturevalue("cluster").kafka_bootstrap)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the newest container and master logs to the report of a test that failed on the cluster."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    # It ends in the last test's teardown, which may itself have failed.
    if report.failed and isinstance(cluster, LocalCluster) and cluster.name in names():
        report.sections.append(("logs of the embedded cluster", _logs(cluster)))
        revive(cluster)
    return report


def revive(cluster: LocalCluster) -> None:
    """Start the hosts that are dead or held."""
    for host in cluster.status().hosts:
        if host.state != "running":
            cluster.start_host(host.host)


def _logs(cluster: LocalCluster) -> str:
    logs = [
        path
        for host in cluster.hosts
        for path in (cluster.host_directory(host) / "logs").rglob("*")
        if path.is_file() and path.stat().st_size
    ]
    logs.sort(key=lambda path: path.stat().st_mtime)
    tails = [(path, path.read_text(encoding="utf-8", errors="replace").splitlines()) for path in logs]
    # The reason of a crash or a hang comes first, however long ago it was, so that it is never cut from the
    # report.
    dumps = [each for each in tails if _dump_begins(each[1]) is not None]
    others = [each for each in tails if _dump_begins(each[1]) is None]
    return (
        "\n".join(_tail(*each) for each in (*dumps, *others[-_TAIL_FILES:]))
        or "no container has written anything"
    )


def _tail(path: Path, lines: Sequence[str]) -> str:
    begins = _dump_begins(lines)
    shown = lines[-_TAIL_LINES:] if begins is None else lines[max(0, begins - _BEFORE_DUMP) :]
    return "\n".join((f"==> {path}", *shown))


def _dump_begins(lines: Sequence[str]) -> int | None:
    """Return the line at which faulthandler's dump of the threads begins, if there is one."""
    return next((at for at, line in enumerate(lines) if line.startswith(_DUMPS)), None)
