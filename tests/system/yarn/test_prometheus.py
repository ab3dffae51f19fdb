"""A real Prometheus finds leader and containers by itself and reads SEP-23's counters, as the examples set it up."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from appmaster.metrics import counters, gauges
from appmaster.planning.state.view import ClusterView
from demo.scenario import JOB, now_ms
from embedded.cluster import LocalCluster
from embedded.machine.ports import free_ports
from tests.monitoring_files import FOLDER, expressions
from tests.patience import PATIENCE_SECONDS
from tests.prometheus import Prometheus, tool
from tests.system.yarn.flights_job import FlightsJob, deployed
from tests.system.yarn.scraped import scraping, until

#: What Grafana puts in for its variables.
VARIABLES = {"$cluster": JOB, "$job": ".*", "$__rate_interval": "5m", "$__range": "5m", "$__interval": "5m"}

#: Panels of these show nothing as long as nothing of the kind has happened: no hand-over, no replica on its way,
#: no request in vain, nothing given back, no source of state in vain, no copy of it for another replica.
QUIET = (
    "standfast_handover_seconds_sum",
    "standfast_replica_phase_since_timestamp_seconds",
    "standfast_container_requests_total",
    "standfast_containers_released_total",
    "standfast_restore_failures_total",
    "standfast_snapshots_total",
)


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


def test_a_real_one_finds_counts_and_answers(cluster: LocalCluster, tmp_path: Path) -> None:
    (http_port,) = free_ports(1)
    with (
        deployed(cluster, **{"yarn.am.http.port": str(http_port)}) as job,
        scraping(cluster, http_port, tmp_path) as prometheus,
    ):
        leader_and_containers_are_found(prometheus, job)
        killed_active_and_killed_standby_are_counted_apart(prometheus, job)
        every_metric_comes_in_and_every_panel_s_expression_is_answered(prometheus)
        alert_rules_are_evaluated_and_a_job_that_is_well_fires_none(prometheus)


def leader_and_containers_are_found(prometheus: Prometheus, job: FlightsJob) -> None:
    until(
        prometheus, "count by (component) (up == 1)", lambda found: found == {"candidate": 2, "container": 4}
    )
    assert {labels["cluster"] for labels, _ in prometheus.query("up")} == {JOB}
    hosts = {labels["host"] for labels, _ in prometheus.query('up{component="container"}')}
    assert hosts == {each.host for each in job.status.containers}
    until(prometheus, "sum(standfast_is_leader)", lambda found: found == {"": 1})
    until(prometheus, "min(standfast_in_sync_replicas)", lambda found: found == {"": 2})
    # The metric's own label, not the scrape's: `honor_labels`.
    assert {labels["job"] for labels, _ in prometheus.query("standfast_replica_in_sync")} == {JOB}
    until(prometheus, "count(standfast_replica_in_sync == 1)", lambda found: found == {"": 8})


def killed_active_and_killed_standby_are_counted_apart(prometheus: Prometheus, job: FlightsJob) -> None:
    zeros = f'sum by (role) (standfast_container_failures_total{{job="{JOB}", role=~"active|standby"}})'
    until(prometheus, zeros, lambda found: found == {"active": 0, "standby": 0})
    begun = now_ms()
    with job.flow():
        job.send(job.replica(0, active=True), signal.SIGKILL)
        job.wait_for_event("failover_finished", begun)
    until(prometheus, zeros, lambda found: found == {"active": 1, "standby": 0})
    until(prometheus, f'sum(standfast_failovers_total{{job="{JOB}"}})', lambda found: found == {"": 1})
    until(prometheus, "sum(standfast_failovers_without_standby_total)", lambda found: found == {"": 0})
    until(
        prometheus,
        'sum by (phase) (standfast_failover_seconds_count{phase!="detected"})',
        lambda found: found == dict.fromkeys((*counters.PHASES, "total"), 2),
    )
    # The zero that was there before makes the first failover an increase.
    until(prometheus, "sum(increase(standfast_failovers_total[5m])) > 0", lambda found: len(found) == 1)
    # The container that came for the lost one is found, on its new port.
    until(
        prometheus, "count by (component) (up == 1)", lambda found: found == {"candidate": 2, "container": 4}
    )
    standby = job.replica(1, active=False)
    with job.flow():
        # By a fault of its own, which counts; what is killed from outside spends nothing of the retry budget.
        job.send_alone(standby, signal.SIGABRT)
        job.wait_for_event("container_lost", begun, container=standby.container)
    until(prometheus, zeros, lambda found: found == {"active": 1, "standby": 1})
    until(prometheus, f'sum(standfast_failovers_total{{job="{JOB}"}})', lambda found: found == {"": 1})


def every_metric_comes_in_and_every_panel_s_expression_is_answered(prometheus: Prometheus) -> None:
    names = set(prometheus.ask("label/__name__/values"))
    expected = {each.metric.name for each in gauges.view_gauges(ClusterView(epoch=1))}
    expected |= {each.name for each in counters.COUNTERS}
    expected |= {f"{each.name}_bucket" for each in counters.HISTOGRAMS}
    assert expected <= names
    empty = []
    for template in expressions():
        expression = template
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        if not prometheus.query(expression):
            empty.append(expression)
    assert [each for each in empty if not any(name in each for name in QUIET)] == []


def alert_rules_are_evaluated_and_a_job_that_is_well_fires_none(prometheus: Prometheus) -> None:
    (group,) = prometheus.ask("rules")["groups"]
    assert {each["health"] for each in group["rules"]} == {"ok"}
    firing = {each["name"] for each in group["rules"] if each["state"] == "firing"}
    assert firing == set()
