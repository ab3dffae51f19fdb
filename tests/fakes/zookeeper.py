"""A real ZooKeeper server all by itself, for tests that need no broker and no YARN, and may hurt it."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType

from kazoo.client import KazooClient

from embedded import probes
from embedded.jars import open_cache
from embedded.java import find_java
from embedded.ports import free_ports
from embedded.servers import ZOOKEEPER, Blueprint, start_child
from tests.patience import PATIENCE_SECONDS


class LoneZooKeeper:
    """One server on loopback: as the embedded cluster's, but a child of the test."""

    def __init__(self, directory: Path) -> None:
        cache = open_cache()
        cache.require("zookeeper")
        port = free_ports(1)[0]
        self.connect = f"127.0.0.1:{port}"
        self._launch = Blueprint(
            directory=directory,
            cluster_id=str(uuid.uuid4()),
            java=find_java(os.environ),
            jars={"zookeeper": cache.path("zookeeper")},
            ports={f"{ZOOKEEPER}.client": port},
            host_memory_mb=1,
            host_vcores=1,
            environment=os.environ,
        ).zookeeper()
        self._log = directory / "zookeeper.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in the state in which it was; returns when it serves."""
        process = self._process = start_child(self._launch, self._log)

        def check() -> None:
            assert process.poll() is None, self._log.read_text()

        probes.zookeeper(self.connect, probes.Patience(time.monotonic() + 60, check, threading.Event()))

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> KazooClient:
        """Return a started client."""
        client = KazooClient(self.connect, timeout=5)
        client.start(timeout=PATIENCE_SECONDS)
        return client

    def __enter__(self) -> LoneZooKeeper:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
