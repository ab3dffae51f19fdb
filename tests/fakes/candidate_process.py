"""A cell's master without YARN: the real supervisor and candidate, in separate processes.

Its Skein AM is dead from the start: its port refuses connections. Everything that a candidate does without an AM is
real.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.records import CellRecord
from embedded.machine.silence import silence
from standby.cluster import FILE, ClusterConfig, dump
from standby.shared.roles import PeerRole
from tests.fakes.certificates import shared_keyring, write_credentials

_ROOT = Path(__file__).parents[2]


class CandidateProcess:
    """The master of cell ``config.cell``, in ``directory``."""

    def __init__(
        self, directory: Path, config: ClusterConfig, attempt: int = 1, host: str = "127.0.0.1"
    ) -> None:
        directory.mkdir()
        self._host = host
        write_credentials(directory, PeerRole.MASTER)
        # As Skein does.
        pair = shared_keyring().skein
        (directory / ".skein.crt").write_text(pair.certificate)
        (directory / ".skein.pem").write_text(pair.key)
        (directory / FILE).write_bytes(dump(config))
        self.number = config.cell
        self._directory = directory
        self._application = f"application_1700000000000_{config.cell:04}"
        self._container = f"container_1700000000000_{config.cell:04}_{attempt:02}_000001"
        self._log = directory / "master.log"
        self._process: subprocess.Popen[bytes] | None = None

    def record(self, zookeeper: ZooKeeper) -> None:
        assert zookeeper.cells.claim(self.number, CellRecord(self._application, "me"))

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "appmaster.supervisor"],
                cwd=self._directory,
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(_ROOT),
                    "GRPC_VERBOSITY": "ERROR",
                    "NM_HOST": self._host,
                    "CONTAINER_ID": self._container,
                    "SKEIN_APPLICATION_ID": self._application,
                    "SKEIN_APPMASTER_ADDRESS": "127.0.0.1:1",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # The candidate is its child, and ends with it.
                start_new_session=True,
            )

    def wait(self, seconds: float) -> int:
        """Return the supervisor's exit status."""
        assert self._process is not None
        status = self._process.wait(seconds)
        self._process = None
        return status

    def fall_silent(self) -> None:
        """Hold both processes, and have their ports not answer: as when the host's cable is pulled."""
        assert self._process is not None
        supervisor = psutil.Process(self._process.pid)
        group = [supervisor, *supervisor.children(recursive=True)]
        os.killpg(supervisor.pid, signal.SIGSTOP)
        silence((each.pid for each in group), self._host)

    def kill(self) -> None:
        """End both processes at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
