"""A Kafka broker of its own, beside no cluster, with listeners of one's choice. For tests.

A child of whoever starts it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from embedded import probes
from embedded.jars import open_cache
from embedded.java import find_java
from embedded.ports import free_ports
from embedded.servers import KAFKA, LOOPBACK, Blueprint, start_child
from standby.errors import Unavailable

if TYPE_CHECKING:
    from typing_extensions import Self

_START_SECONDS: Final = 90.0


class OwnBroker:
    """One broker; beside the port without TLS, ``plain``, it listens where ``listeners`` say."""

    def __init__(
        self, directory: Path, listeners: dict[str, tuple[str, str, str]], further: str = ""
    ) -> None:
        """``listeners``: name → protocol, address, and the address that clients are told to come to.

        ``further`` are lines of the broker's configuration.
        """
        cache = open_cache()
        cache.require("kafka")
        plain, controller = free_ports(2)
        self.plain = f"{LOOPBACK}:{plain}"
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
        own = {"BROKER": ("PLAINTEXT", self.plain, self.plain)} | listeners
        binds = [f"{name}://{address}" for name, (_, address, _) in own.items()]
        tells = [f"{name}://{address}" for name, (_, _, address) in own.items()]
        protocols = [f"{name}:{protocol}" for name, (protocol, _, _) in own.items()]
        self._launch = blueprint.kafka(
            further=f"""
listeners={",".join(binds)},CONTROLLER://{LOOPBACK}:{controller}
advertised.listeners={",".join(tells)}
listener.security.protocol.map={",".join(protocols)},CONTROLLER:PLAINTEXT
{further}"""
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

    def __enter__(self) -> Self:
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
