"""Prometheus' own tool accepts the rules and the example. What a real one finds: test_pool_changes, test_flights."""

from __future__ import annotations

import subprocess

from tests.monitoring_files import FOLDER
from tests.patience import PATIENCE_SECONDS
from tests.prometheus import tool


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        [str(tool("promtool")), *arguments],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alert_rules_are_valid_and_fire_when_they_should() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts.test.yml")


def test_example_configuration_is_valid() -> None:
    promtool("check", "config", "prometheus.yml")
