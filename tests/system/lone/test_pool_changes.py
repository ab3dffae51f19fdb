"""A job that runs on a pool is changed by command, and goes on counting exactly: nothing here needs YARN."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from appmaster import gauges
from appmaster.planning.state import counters
from appmaster.planning.state.view import ClusterView
from demo.scenario import now_ms
from demo.standing import shared_hosts
from embedded.cluster import LocalCluster
from embedded.machine.ports import free_ports
from tests.monitoring_files import expressions
from tests.patience import soon
from tests.prometheus import Prometheus
from tests.system.lone.pool_job import MASTERS, JobOnPool, pool_of, waiting
from tests.system.lone.pool_lab import host
from tests.system.yarn.counting import some
from tests.system.yarn.scraped import all_are_found, scraping, until

#: Two on each of three hosts: room for two standbys of each of two processors.
NODES = {number: number % 3 for number in range(6)}

#: Appended to a module: other code, that does the same.
OTHER_CODE = "\n\nCHANGED = True\n"

#: A step that no record gets past.
BROKEN_CODE = "\n\ndef step(rows, state, out):\n    raise RuntimeError('this revision is broken')\n"


class ChangedJob(JobOnPool):
    """The job, and settings that a command gives in addition to its file."""

    def append(self, text: str) -> None:
        """Change the module with the job's step."""
        with self.module.open("a", encoding="utf-8") as module:
            module.write(text)

    def restore(self, text: str) -> None:
        """Take a change back."""
        self.module.write_text(self.module.read_text(encoding="utf-8").removesuffix(text), encoding="utf-8")

    @property
    def module(self) -> Path:
        return self.file.parent / "counting_job.py"

    def update(self, *more: str, **settings: str) -> Any:
        """Update the job; return what the command prints as JSON."""
        return self.ask(*self.arguments(*more, **settings))

    def arguments(self, *more: str, **settings: str) -> list[str]:
        """Return the update to the job's file and some settings."""
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        return ["update", str(self.file), *sets, *more]

    def keep(self, **settings: str) -> None:
        """Add settings to the job's file."""
        config = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        self.file.write_text(yaml.safe_dump({**config, **settings}), encoding="utf-8")


def actives(job: JobOnPool) -> dict[int, tuple[int, str | None, int | None]]:
    """Return task → epoch, container and pid of its active."""
    status, found = job.status, {}
    for task in status.tasks:
        (active,) = (each for each in task.replicas if each.copy == task.active)
        found[task.partition] = (task.epoch, active.container, active.pid)
    return found


def revision_of(job: JobOnPool) -> int:
    (found,) = job.client.status()["jobs"]
    revision: int = found["revision"]
    return revision


def containers(job: JobOnPool) -> dict[str, int | None]:
    """Return container → its pid, of all that hold a replica."""
    return {
        each.container: each.pid
        for task in job.status.tasks
        for each in task.replicas
        if each.container is not None
    }


def test_a_job_is_changed_by_command_and_counts_on(cluster: LocalCluster, tmp_path: Path) -> None:
    """Two processors of two tasks, each with a standby."""
    settings = {"job.container.count": "2", "job.hotstandby.mixed": "false"}
    (http_port,) = free_ports(1)
    with (
        pool_of(cluster, tmp_path, NODES, **{"yarn.am.http.port": str(http_port)}) as pool,
        closing(ChangedJob(pool, "changed", **settings)) as job,
    ):
        job.deploy()
        job.wait_whole(4)
        model_and_reasons_are_shown(job)
        state_is_looked_up(job)
        with scraping(map(host, MASTERS), http_port, tmp_path) as prometheus:
            leader_and_containers_are_found(prometheus, job)
            failed_active_and_failed_standby_are_counted_apart(prometheus, job)
            every_metric_comes_in_and_every_panel_s_expression_is_answered(prometheus, job)
            alert_rules_are_evaluated_and_a_job_that_is_well_fires_none(prometheus)
        job.wait_whole(4)
        update_is_no_change_or_refused_all_in_one_message(job)
        more_and_fewer_standbys_leave_every_active_where_it_is(job)
        handover_is_prepared_and_no_failure(job)
        drained_host_is_empty_and_used_again_when_admitted(job)
        rolling_upgrade_starts_every_process_anew_and_loses_nothing(job)
        revision_that_was_never_active_is_rolled_back(job)
        partitions_added_to_the_input_are_reported_and_adopted_when_they_may_be(job)


def model_and_reasons_are_shown(job: ChangedJob) -> None:
    model = job.ask("model", job.name)
    assert [each["copies"] for each in model["processors"]] == [[0, 1], [0, 1]]
    assert sorted(task["task"] for each in model["processors"] for task in each["tasks"]) == [0, 1, 2, 3]
    for each in model["processors"]:
        for task in each["tasks"]:
            active = job.replica(task["task"], active=True)
            assert (task["active"]["host"], task["active"]["container"]) == (active.host, active.container)
            assert task["standbys"][0]["host"] == job.replica(task["task"], active=False).host
    assert "CHANGELOG PARTITION" in job.standfast("model", job.name)
    assert len(job.ask("tasks", job.name)) == 4
    assert len(job.ask("containers", job.name)) == 4
    assert "active processors: " in job.standfast("status", job.name)
    explained = job.ask("explain", job.name, "2")
    assert [(each["copy"], each["role"]) for each in explained["copies"]] == [(0, "active"), (1, "standby")]
    # A host on which no process waits is not asked about.
    roomy = tuple(f"{host(each)}: " for each in NODES.values())
    assert any(line.startswith(roomy) for line in explained["copies"][0]["why"]), explained
    assert "it has 0 to 3" in job.standfast("explain", job.name, "9", status=2)


def state_is_looked_up(job: ChangedJob) -> None:
    def get(store: str, key: str, *options: str, status: int | None = 0) -> str:
        return job.standfast("get", job.name, store, key, *options, status=status)

    job.produce(0, [(b"looked up", b"x")] * 4)
    job.assert_exact()
    assert get("default", "looked up") == "4\n"
    assert get("default", b"looked up".hex(), "--key-format", "hex", "--value-format", "hex") == "34\n"

    def of_standby() -> list[Any]:
        options = ("--standby", "--max-lag-ms", "10000", "--partition", "0", "--json")
        said = get("default", "looked up", *options, status=None)
        answers = json.loads(said)["answers"] if said.startswith("{") else []
        return [each for each in answers if each["value"] == "4"]

    (answer,) = soon(of_standby, "a standby that has it")
    assert (answer["role"], answer["container"]) == ("standby", job.replica(0, active=False).container)
    assert 0 <= answer["lag_ms"] <= 10_000
    assert "no such key" in get("default", "never", status=1)
    assert "no store nope" in get("nope", "k", status=2)
    assert "has no task 7" in get("default", "k", "--partition", "7", status=2)
    assert "there is no job" in job.standfast("get", "absent", "default", "k", status=2)


# ---- what a real Prometheus finds, set up as the example has it ----

#: Panels of these are empty while nothing of the kind has happened: no hand-over, no replica on its way, no failed
#: request, nothing released, no spare container taken, no source of state that failed, no copy of it for another
#: replica.
QUIET = (
    "standfast_job_unreadable",
    "standfast_handover_seconds_sum",
    "standfast_replica_phase_since_timestamp_seconds",
    "standfast_container_requests_total",
    "standfast_containers_released_total",
    "standfast_spare_containers_taken_total",
    "standfast_restore_failures_total",
    "standfast_snapshots_total",
    "standfast_lent_batches_total",
)


def leader_and_containers_are_found(prometheus: Prometheus, job: ChangedJob) -> None:
    all_are_found(prometheus, job.name)
    assert {labels["cluster"] for labels, _ in prometheus.query("up")} == {job.cluster_name}
    hosts = {labels["host"] for labels, _ in prometheus.query('up{component="container"}')}
    assert hosts == {each.host for each in job.status.containers}
    until(prometheus, "count(standfast_replica_in_sync == 1)", lambda found: found == {"": 8})


def failed_active_and_failed_standby_are_counted_apart(prometheus: Prometheus, job: ChangedJob) -> None:
    failures = (
        f'sum by (role) (standfast_container_failures_total{{job="{job.name}", role=~"active|standby"}})'
    )
    until(prometheus, failures, lambda found: found == {"active": 0, "standby": 0})
    begun, lost, standby = now_ms(), job.replica(0, active=True), job.replica(1, active=False)
    # It stands still first: a step of a take-over is counted only if input waits for it.
    job.send_alone(lost, signal.SIGSTOP)
    for task in range(job.partitions):
        job.produce(task, [(b"%d" % task, b"waits")])
    job.send(lost, signal.SIGKILL)
    job.wait_for_event("failover_finished", begun)
    until(prometheus, failures, lambda found: found == {"active": 1, "standby": 0})
    # A fault of its own spends its retry budget; a kill from outside does not.
    job.send_alone(standby, signal.SIGABRT)
    job.wait_for_event("container_lost", begun, container=standby.container)
    job.assert_exact()
    until(prometheus, failures, lambda found: found == {"active": 1, "standby": 1})
    until(prometheus, f'sum(standfast_failovers_total{{job="{job.name}"}})', lambda found: found == {"": 1})
    until(prometheus, "sum(standfast_failovers_without_standby_total)", lambda found: found == {"": 0})
    until(
        prometheus,
        'sum by (phase) (standfast_failover_seconds_count{phase!="detected"})',
        lambda found: found == dict.fromkeys((*counters.PHASES, "total"), 2),
    )
    # The zero that was there before makes the first failover an increase.
    until(prometheus, "sum(increase(standfast_failovers_total[5m])) > 0", lambda found: len(found) == 1)
    # The containers that came for the lost ones are found, on their new ports.
    all_are_found(prometheus, job.name)


def every_metric_comes_in_and_every_panel_s_expression_is_answered(
    prometheus: Prometheus, job: ChangedJob
) -> None:
    names = set(prometheus.ask("label/__name__/values"))
    expected = {each.metric.name for each in gauges.view_gauges(ClusterView(epoch=1))}
    expected |= {each.name for each in counters.COUNTERS}
    expected |= {f"{each.name}_bucket" for each in counters.HISTOGRAMS}
    assert expected <= names
    # What Grafana puts in for its variables.
    variables = {"$cluster": job.cluster_name, "$job": ".*"}
    variables |= {"$__rate_interval": "5m", "$__range": "5m", "$__interval": "5m"}

    def unanswered() -> list[str]:
        found = []
        for template in expressions():
            expression = template
            for name, value in variables.items():
                expression = expression.replace(name, value)
            if not any(each in expression for each in QUIET) and not prometheus.query(expression):
                found.append(expression)
        return found

    # A rate is known when its container was scraped twice.
    soon(lambda: not unanswered(), lambda: f"{unanswered()} have no answer")


def alert_rules_are_evaluated_and_a_job_that_is_well_fires_none(prometheus: Prometheus) -> None:
    (group,) = prometheus.ask("rules")["groups"]
    assert {each["health"] for each in group["rules"]} == {"ok"}
    firing = {each["name"] for each in group["rules"] if each["state"] == "firing"}
    assert firing == set()


# ---- what commands change ----


def update_is_no_change_or_refused_all_in_one_message(job: ChangedJob) -> None:
    before, first = actives(job), job.update()
    assert (first["changes"], first["is_new_code"]) == ([], False)
    said = job.standfast(
        *job.arguments(**{"task.stores": "other", "cluster-manager.container.memory.mb": "500"}), status=2
    )
    assert "task.stores: " in said
    assert "→ other" in said
    assert "standfast delete" in said
    assert "cluster-manager.container.memory.mb: 256 → 500" in said
    assert "submit --update" in said
    second = job.update()
    assert (second["changes"], second["revision"]) == ([], first["revision"])
    assert actives(job) == before


def more_and_fewer_standbys_leave_every_active_where_it_is(job: ChangedJob) -> None:
    before, processes, revision = actives(job), containers(job), revision_of(job)
    two = {"job.hotstandby.replicationcount": "2"}
    with job.flow():
        checked = job.update("--check", **two)
        assert [each["key"] for each in checked["changes"]] == ["job.hotstandby.replicationcount"]
        assert job.update(**two)["revision"] == revision
        status = job.status
        assert [len(each.in_sync) for each in status.tasks] == [3, 3, 3, 3]
        assert shared_hosts(status) == ()
        assert processes.items() <= containers(job).items(), "every process there was is there still"
        job.update()
    assert actives(job) == before
    assert {len(each.replicas) for each in job.status.tasks} == {2}
    assert processes == containers(job)


def handover_is_prepared_and_no_failure(job: ChangedJob) -> None:
    before, begun = actives(job), now_ms()
    standby = job.replica(0, active=False)
    with job.flow():
        done = job.ask("handover", job.name, "0")
        (handover,) = done["handovers"]
        assert handover["kind"] == "handover_finished"
        assert handover["container"] == standby.container
        assert set(handover["tasks"]) == {"0", "2"}
        for times in handover["tasks"].values():
            # A task with no input waiting at that moment is done when it is active.
            assert (times["first_commit_ms"] or times["active_ms"]) >= times["detected_ms"]
        said = job.standfast("handover", job.name, "0", "--to", str(standby.copy), status=1)
        assert "is active already" in said
        # The former active may not be in sync yet.
        job.wait_whole(4)
        said = job.standfast("handover", job.name, "--container", str(standby.container))
        assert "task 0: gap" in said
        assert "task 2: gap" in said
    assert {task: each[1:] for task, each in actives(job).items()} == {
        task: each[1:] for task, each in before.items()
    }, job.story(begun)
    job.wait_whole(4)
    assert not {"container_lost", "failover_started"} & job.kinds(begun)
    assert "nobody is known" in job.standfast("failover", job.name, "--container", "nobody", status=1)


def drained_host_is_empty_and_used_again_when_admitted(job: ChangedJob) -> None:
    begun = now_ms()
    emptied = str(job.replica(0, active=True).host)
    assert "not a host of this cluster" in job.standfast("drain", "nowhere", status=2)
    with job.flow():
        done = job.ask("drain", emptied, "--reason", "new disks")
        assert done == {"hosts": [emptied], "stays": []}
        assert all(each.host != emptied for each in job.status.containers)
    assert not {"container_lost", "failover_started"} & job.kinds(begun)
    assert job.ask("admit", emptied) == {"admitted": [emptied], "drained": {}}
    assert "was not drained" in job.standfast("admit", emptied)


def rolling_upgrade_starts_every_process_anew_and_loses_nothing(job: ChangedJob) -> None:
    begun, old, revision = now_ms(), containers(job), revision_of(job)
    later = {"task.batch.max.records": "5000", "task.stores.version": "2"}
    with job.flow():
        job.append(OTHER_CODE)
        done = job.update(**later)
        assert (done["revision"], done["former"][0], done["is_new_code"]) == (revision + 1, revision, True)
        assert {each["key"] for each in done["changes"]} == set(later)
        assert done["is_rolled_out"]
    assert not old.keys() & containers(job).keys()
    soon(lambda: len(waiting(job.pool)) == len(NODES), "each of them is followed by one that waits")
    assert not {"container_lost", "failover_started"} & job.kinds(begun)
    assert "handover_finished" in job.kinds(begun)
    said = job.standfast("rollback", job.name, status=1)
    assert f"revision {revision + 1} of {job.name} has been active" in said
    assert "task.stores.version is 2 now and was not set" in said
    job.keep(**later)


def revision_that_was_never_active_is_rolled_back(job: ChangedJob) -> None:
    tasks, begun, revision = actives(job).keys(), now_ms(), revision_of(job)
    drained = sorted({host(each) for each in NODES.values()})[1:]
    with job.flow():
        # With standbys missing nothing is rolled out: the broken code gets no chance before it is withdrawn.
        job.standfast("drain", *drained, "--no-wait")
        job.wait(lambda status: status.jobs[0].status == "incomplete", "standbys that have nowhere to go")
        job.append(BROKEN_CODE)
        job.update("--wait", "none")
        done = job.ask("rollback", job.name, "--wait", "none")
        assert (done["revision"], done["former"][:2]) == (revision + 2, [revision + 1, revision])
        old = containers(job).keys()
        job.standfast("admit", *drained)
        job.wait(
            lambda status: (
                status.jobs[0].status == "deployed"
                and not old & {each.container for each in status.containers}
            ),
            "every process anew, with the code before",
        )
    assert actives(job).keys() == tasks
    assert not {"container_lost", "failover_started", "replica_failed"} & job.kinds(begun)
    job.restore(BROKEN_CODE)
    assert job.update()["changes"] == [], "it is the code and the configuration before again"


def partitions_added_to_the_input_are_reported_and_adopted_when_they_may_be(job: ChangedJob) -> None:
    job.wait_whole()
    before, processes = actives(job), containers(job)
    job.grow(6)
    job.wait(
        lambda status: any("2 of them are not read" in each for each in status.jobs[0].reasons),
        "a note on the partitions that are not read",
    )
    assert len(job.status.tasks) == 4
    job.produce(5, some(20, 5))
    job.update(**{"task.inputs.may.grow": "true"})
    job.wait_whole()
    job.assert_exact()
    after = actives(job)
    assert {task: after[task] for task in before} == before
    assert containers(job) == processes, "no process was started anew"
    assert job.status.jobs[0].reasons == ()
