"""A host of a pool that is cut off silently and comes back: the demo on a pool, with few records and no JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from demo.command import ROOT
from tests.system.yarn.flights_job import PLAIN

#: Far above the silence after which a *host* is lost: that it does not answer must be enough.
HEARTBEAT_MS = 10_000


def test_a_host_that_is_cut_off_fails_over_and_does_no_harm_when_it_is_back(tmp_path: Path) -> None:
    options = ["--rate", "200", "--rows", "60000", "--steady-seconds", "3"]
    plain = [f"--set={name}={value}" for name, value in PLAIN.items()]
    more = ["--heartbeat-timeout-ms", str(HEARTBEAT_MS), "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--on", "pool", *options, *plain, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["faults"] == [], "exact, every replica came back, and nothing happened when the host did"
    _, host = report["failovers"]
    assert host["kind"] == "host"
    assert host["detected_ms"] < HEARTBEAT_MS, "it answered at no port"
    assert report["returned_ms"] is not None
