"""Strangers by the thousand at the ports of a real container: what they cost, and whether its leader notices."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from embedded.web import open_url
from standby.shared.wire import Heartbeat
from tests.fakes.zookeeper import LoneZooKeeper
from tests.floods import STRANGERS, flood
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.lone.test_container_process import Stage, accepts, get, metric

pytestmark = pytest.mark.soak

#: What a host may allow a process by default.
_DESCRIPTORS = 1_024


@pytest.fixture
def stage(server: LoneZooKeeper, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(server, tmp_path, "floods")
    yield stage
    stage.close()


def test_flood_changes_neither_memory_nor_heartbeats_and_fills_no_disk(stage: Stage) -> None:
    with stage.leader() as leader:
        process = stage.container()
        session = leader.session()
        hello = session.hello
        record = stage.record()
        assert get(hello, "/metrics")[0] == 200
        own = psutil.Process(process.pid)
        assert "Umask:\t0077" in Path(f"/proc/{own.pid}/status").read_text()
        resource.prlimit(own.pid, resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
        threads, rss_bytes, logged = own.num_threads(), own.memory_info().rss, process.log.stat().st_size
        with flood() as strangers:
            strangers.pour(hello.host, [hello.http_port, record.peer_port, hello.port], STRANGERS)
            seen = len(session.received)
            # With everything still open on the strangers' side, it goes on as before.
            session.wait_for(Heartbeat, after=seen)
            assert own.num_threads() <= threads + 8
            assert own.num_fds() < _DESCRIPTORS // 2
            assert own.memory_info().rss - rss_bytes < 32 << 20
            assert accepts(hello)
            answered = open_url(f"http://{hello.host}:{hello.http_port}/healthz", timeout=PATIENCE_SECONDS)
            assert answered.status == 200
            # At the end of their time all of them are gone, and were counted.
            assert strangers.are_closed()
        soon(
            lambda: metric(hello, 'standfast_refused_connections_total{port="http",reason="too slow"}') > 0,
            "they are counted",
        )
        assert metric(hello, 'standfast_refused_connections_total{port="peers",reason="too slow"}') > 0
        session.wait_for(Heartbeat, after=len(session.received))
        numbers = [each.sequence for each in session.received if isinstance(each, Heartbeat)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert not session.is_over.is_set()
        assert process.log.stat().st_size - logged < 100_000
        assert "Traceback" not in process.text()
        print(
            f"log: {process.log.stat().st_size - logged} bytes, threads: {own.num_threads() - threads} more"
        )
