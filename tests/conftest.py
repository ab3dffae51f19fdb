"""What every test on real servers shares: one embedded cluster for the session, and its logs on failure."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from embedded.cluster import LocalCluster, end_abandoned
from embedded.registry import names
from embedded.terminal import Progress

_DEPLOYING = "tests/integration/"
_SERVING = (
    "tests/contracts/",
    *(
        f"tests/integration/test_{each}"
        for each in (
            *("code", "container", "discovery", "exactness", "kafka", "kernel"),
            *("leadership", "spark", "visits", "zookeeper"),
        )
    ),
)
_NICENESS = 10
_TAIL_LINES = 60
_TAIL_FILES = 12
_BEFORE_DUMP = 20
_DUMPS = ("Fatal Python error", "Thread 0x", "Current thread 0x")

# A busy machine is no failure: an example took 355 ms where Hypothesis allows 200.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what has one process run all tests that deploy jobs, another those that need a broker or ZooKeeper alone.

    Each keeps to its order and to its own cluster. Everything else comes after these, wherever there is time.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByServers(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            # The largest scopes are begun first.
            if nodeid.startswith(_SERVING):
                return "serving"
            return "deploying" if nodeid.startswith(_DEPLOYING) else nodeid

    return ByServers(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give way to the servers' tests where they run at the same time: what those wait for has deadlines."""
    if "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith((_DEPLOYING, *_SERVING)):
        os.nice(max(0, _NICENESS - os.nice(0)))


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """ZooKeeper, Kafka and YARN with three hosts. Whoever lets a host or a server die starts it again.

    A test that fails may not get to it; then its hosts are started here, so that one failure stays one.
    """
    end_abandoned()
    progress = Progress()
    cluster = LocalCluster.start(f"test-{os.getpid()}", is_temporary=True, show=progress.show)
    progress.close()
    with cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the newest container and master logs to the report of a test that failed on the cluster."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    # It ends in the last test's teardown, which may itself be what failed.
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
    # Why a process crashed or stood still is shown first, however long ago that was and short the report is cut.
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
    """Return the line at which faulthandler begins to tell where each thread is, if it had to."""
    return next((at for at, line in enumerate(lines) if line.startswith(_DUMPS)), None)
