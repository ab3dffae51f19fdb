"""A Kafka broker of its own that wants TLS and a password, for tests of settings that reach every client.

A child of whoever starts it. The port without TLS is for the broker itself, and for preparing topics.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Final

from embedded import probes
from embedded.jars import open_cache
from embedded.java import find_java
from embedded.ports import free_ports
from embedded.servers import KAFKA, LOOPBACK, Blueprint, start_child
from standby.errors import Unavailable

_START_SECONDS: Final = 90.0


class SecuredBroker:
    """One broker; ``pair`` is a file with its private key (PKCS #8) and its certificate, in PEM."""

    def __init__(self, directory: Path, pair: Path, user: str, password: str) -> None:
        cache = open_cache()
        cache.require("kafka")
        plain, controller, secured = free_ports(3)
        self.plain = f"{LOOPBACK}:{plain}"
        self.bootstrap = f"{LOOPBACK}:{secured}"
        self._log = directory / "kafka.log"
        blueprint = Blueprint(
            directory=directory,
            cluster_id=str(uuid.uuid4()),
            java=find_java(os.environ),
            jars={"kafka": cache.path("kafka")},
            ports={f"{KAFKA}.broker": plain, f"{KAFKA}.controller": controller},
            host_memory_mb=1,
            host_vcores=1,
            environment=os.environ,
        )
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self._launch = blueprint.kafka(
            further=f"""
listeners=BROKER://{self.plain},CONTROLLER://{LOOPBACK}:{controller},SECURED://{self.bootstrap}
advertised.listeners=BROKER://{self.plain},SECURED://{self.bootstrap}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL
listener.name.secured.sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config={login} required user_{user}="{password}";
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={pair}
"""
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; return when it serves."""
        process = self._process = start_child(self._launch, self._log)

        def check() -> None:
            if process.poll() is not None:
                raise Unavailable(f"the broker ended:\n{self._log.read_text(encoding='utf-8')[-2_000:]}")

        probes.kafka(self.plain, probes.Patience(time.monotonic() + _START_SECONDS, check, threading.Event()))

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> SecuredBroker:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
