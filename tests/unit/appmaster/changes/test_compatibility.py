"""What a job has to agree with when it is submitted into a cluster that runs already."""

from __future__ import annotations

import pytest

from appmaster.changes.compatibility import check_joins, cluster_settings
from standby.config import parse
from standby.errors import BadConfiguration
from tests.fakes.jobs import JOB

FLAT = {**JOB, "cluster.name": "shared"}
SETTINGS = cluster_settings(
    parse({**FLAT, "cluster-manager.container.memory.mb": "700", "yarn.hosts": "h1,h2", "task.feed": "plain"})
)


def test_a_job_that_leaves_them_out_or_gives_them_alike_joins() -> None:
    check_joins("shared", SETTINGS, {**FLAT, "task.feed": "spark"})  # whatever feed the first job has
    alike = {"cluster-manager.container.memory.mb": "700", "yarn.hosts": "h1, h2"}
    check_joins("shared", SETTINGS, {**FLAT, **alike})
    check_joins("shared", {}, {**FLAT, "cluster-manager.container.memory.mb": "99"})


def test_what_a_job_leaves_out_has_to_go_with_what_it_gives() -> None:
    """Its containers say something every 2 s, as the cluster has it; a time-out of 2 s would be one failover a beat."""
    slow = cluster_settings(
        parse(
            {
                **FLAT,
                "job.hotstandby.heartbeat.interval.ms": "2000",
                "job.hotstandby.heartbeat.timeout.ms": "8000",
                "job.hotstandby.host.timeout.ms": "8000",
            }
        )
    )
    with pytest.raises(BadConfiguration, match="takes over from it") as refused:
        check_joins("shared", slow, FLAT)
    assert "job.hotstandby.heartbeat.timeout.ms: 2000 is less than twice the interval (2000)" in str(
        refused.value
    )
    slower = ("job.hotstandby.heartbeat.timeout.ms", "job.hotstandby.host.timeout.ms")
    check_joins("shared", slow, {**FLAT, **dict.fromkeys(slower, "8000")})


def test_what_a_job_gives_otherwise_is_refused_all_at_once() -> None:
    with pytest.raises(BadConfiguration) as refused:
        check_joins(
            "shared", SETTINGS, {**FLAT, "cluster-manager.container.memory.mb": "800", "yarn.hosts": "h3"}
        )
    said = str(refused.value)
    assert "cluster-manager.container.memory.mb: 800, and the cluster has 700" in said
    assert "yarn.hosts: h3, and the cluster has h1,h2" in said
    assert "task.feed" not in said
    assert "cluster shared runs already" in said
