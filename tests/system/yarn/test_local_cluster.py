"""The embedded cluster itself: that it serves, that hosts die as hosts do, and that nothing of it stays."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from appmaster.adapters.skein_library import load_skein
from appmaster.cli.main import main
from embedded import probes
from embedded.cluster import LocalCluster
from embedded.machine.processes import process_info
from embedded.registry import end_abandoned, names
from embedded.servers import ZOOKEEPER
from embedded.state import ServerStatus
from standby.errors import BadConfiguration, Unavailable
from tests.patience import PATIENCE_SECONDS, soon

STATES = ("WAITING", "REQUESTED", "RUNNING", "SUCCEEDED", "FAILED", "KILLED")

#: One that stays in its session, one that leaves it, one that leaves its environment, too.
SCRIPT = "setsid sleep 1001 & setsid env -i sleep 1002 & exec sleep 1003"


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment().items():
            patch.setenv(name, value)
        skein = load_skein()
        # Credentials of its own, since skein reads where the common ones are when it is first imported.
        security = skein.Security.new_credentials()
        java_options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        with skein.Client(log=False, security=security, java_options=java_options) as client:
            yield client


@dataclass(frozen=True)
class Sleeping:
    """An application with one container on each host, of a service named like the host."""

    client: Any
    #: Of each host, the processes in its container.
    processes: Mapping[str, set[int]]

    def states(self, host: str) -> list[str]:
        return [str(each.state) for each in self.client.get_containers(services=[host], states=list(STATES))]


@contextlib.contextmanager
def application(client: Any, cluster: LocalCluster) -> Iterator[Sleeping]:
    import skein

    services = {
        host: skein.Service(
            instances=1,
            resources=skein.Resources("64 MiB", 1),
            script=SCRIPT,
            allow_failures=True,
            max_restarts=0,
            nodes=[host],
            relax_locality=False,
        )
        for host in cluster.hosts
    }
    master = skein.Master(resources=skein.Resources("256 MiB", 1), script="sleep 1000")
    application_id = client.submit(skein.ApplicationSpec(name="sleep", services=services, master=master))
    try:

        def sleepers() -> dict[str, set[int]]:
            return {
                host: {
                    each.pid
                    for each in cluster.container_processes(host)
                    if each.command[:1] == ("sleep",)
                    and each.command[1:] in {("1001",), ("1002",), ("1003",)}
                }
                for host in cluster.hosts
            }

        soon(lambda: all(len(each) == 3 for each in sleepers().values()), "all sleep")
        yield Sleeping(client.connect(application_id), sleepers())
    finally:
        client.kill_application(application_id)
        # YARN ends a container's session; those that left it would stay.
        soon(
            lambda: all(each.command[:1] in {(), ("sleep",)} for each in cluster.container_processes()),
            "nothing but what sleeps",
        )
        for each in cluster.container_processes():
            each.send(signal.SIGKILL)
        soon(lambda: not cluster.container_processes(), "nothing runs")


def state_of(pid: int) -> str:
    process = process_info(pid)
    return process.state if process is not None and process.is_alive else "gone"


def test_every_server_serves_and_the_commands_say_so(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*arguments: str) -> Any:
        assert main(["local", *arguments, "--name", cluster.name, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    status = cluster.status()
    assert status.is_whole
    assert [each.host for each in status.hosts] == ["127.0.0.11", "127.0.0.12", "127.0.0.13"]
    assert {each.yarn_state for each in status.hosts} == {"RUNNING"}
    assert all(each.memory_bytes > 10_000_000 for each in status.servers)
    assert ask("env") == cluster.additional_environment()
    assert [each["host"] for each in ask("status")["hosts"]] == list(cluster.hosts)
    log = ask("logs", "kafka", "--lines", "10000")["kafka"]
    assert any("Kafka Server started" in line for line in log["lines"])
    standfast = f"{sys.executable} -m appmaster.cli.main"
    command = f'eval "$({standfast} local env --name {cluster.name})" && yarn classpath --glob'
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert cluster.additional_environment()["HADOOP_CONF_DIR"] in done.stdout


def test_hosts_die_as_hosts_do_and_come_back_with_their_disks(cluster: LocalCluster, client: Any) -> None:
    with application(client, cluster) as sleeping:
        containers_are_found_whatever_they_did_to_hide(cluster, sleeping)
        one, other = (host for host in cluster.hosts if not has_master(cluster, host))
        a_host_dies_with_all_its_processes(cluster, sleeping, one, other)
        a_silent_death_closes_no_connection_until_it_is_finished(cluster, sleeping, other)


def containers_are_found_whatever_they_did_to_hide(cluster: LocalCluster, sleeping: Sleeping) -> None:
    found = cluster.container_processes()
    assert set().union(*sleeping.processes.values()) <= {each.pid for each in found}
    assert {each.container_id.partition("_")[0] for each in found} <= {"container", ""}
    status = {each.host: each for each in cluster.status().hosts}
    assert all(status[host].containers >= 1 for host in cluster.hosts)


def a_host_dies_with_all_its_processes(
    cluster: LocalCluster, sleeping: Sleeping, victim: str, other: str
) -> None:
    kept = cluster.host_directory(victim) / "state" / "kept"
    kept.write_text("state", encoding="utf-8")
    assert cluster.kill_host(victim) > 3
    assert {state_of(pid) for pid in sleeping.processes[victim]} == {"gone"}
    others = set(cluster.hosts) - {victim}
    assert all(state_of(pid) == "S" for host in others for pid in sleeping.processes[host])
    assert not cluster.container_processes(victim)
    assert not cluster.status().is_whole
    cluster.start_host(victim)
    assert cluster.status().is_whole
    assert kept.read_text(encoding="utf-8") == "state"
    # Known again, and so without what ran there before: YARN does not wait for the old one's expiry.
    soon(lambda: sleeping.states(victim) == ["FAILED"], "its container has failed")
    assert sleeping.states(other) == ["RUNNING"]
    with pytest.raises(BadConfiguration, match=f"the host {victim} runs"):
        cluster.start_host(victim)


def a_silent_death_closes_no_connection_until_it_is_finished(
    cluster: LocalCluster, sleeping: Sleeping, victim: str
) -> None:
    port = next(each.ports["rpc"] for each in cluster.status().servers if each.name.endswith(victim))
    with (
        socket.create_connection((victim, port), timeout=PATIENCE_SECONDS) as connection,
        socket.socket() as late,
    ):
        cluster.kill_host(victim, silent=True)
        assert {state_of(pid) for pid in sleeping.processes[victim]} == {"T"}
        assert all(each.is_stopped for each in cluster.container_processes(victim))
        late.setblocking(False)
        late.connect_ex((victim, port))
        soon(lambda: probes.nodes(cluster.resource_manager_url)[victim].state == "LOST", "the host is lost")
        told = select.select([connection, late], [late], [], 0)
        assert told == ([], [], []), "neither is closed or answered in all this time"
        assert cluster.finish_silent(victim) > 3
    assert not cluster.container_processes(victim)
    assert {state_of(pid) for pid in sleeping.processes[victim]} == {"gone"}
    cluster.start_host(victim)


def has_master(cluster: LocalCluster, host: str) -> bool:
    return any(
        "com.anaconda.skein.ApplicationMaster" in each.command for each in cluster.container_processes(host)
    )


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as client:
        client.settimeout(PATIENCE_SECONDS)
        return client.connect_ex((host, int(port))) == 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for the clusters of one test, whose state files it may spoil."""
    monkeypatch.setenv("STANDFAST_HOME", str(tmp_path))
    return tmp_path


def server_of(cluster: LocalCluster, name: str) -> ServerStatus:
    (found,) = (each for each in cluster.status().servers if each.name == name)
    return found


def marked(cluster_id: str) -> list[int]:
    mark = f"STANDFAST_LOCAL_CLUSTER={cluster_id}".encode()
    pids: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0") and state_of(int(path.parent.name)) != "gone":
                pids.append(int(path.parent.name))
    return pids


START_AND_WAIT = """
import os, signal, sys
from embedded.cluster import LocalCluster
def show(text):
    print(text, flush=True)
# A shell has what it runs in the background ignore it, and so does all that is started from there.
signal.signal(signal.SIGINT, signal.default_int_handler)
cluster = LocalCluster.start("crash", nodes=0, is_temporary=True, show=show)
print("up", flush=True)
signal.pause()
"""


@contextlib.contextmanager
def starter(last_word: str) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a cluster, when it has said so much."""
    with subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(last_word):
                    break
            yield process
        finally:
            process.kill()


def cluster_id(home: Path) -> str:
    return (home / "local" / "crash" / "cluster-id").read_text(encoding="ascii")


def test_one_at_a_time_may_start_it_and_a_crash_in_the_middle_leaves_nothing_that_stays(home: Path) -> None:
    with starter("waiting for") as process:
        with pytest.raises(Unavailable, match="another command is changing the embedded cluster 'crash'"):
            LocalCluster.start("crash", nodes=1)
        process.kill()
        process.wait()
    first = cluster_id(home)
    assert marked(first)
    # The next start clears away what the crash left.
    with LocalCluster.start("crash", nodes=1) as cluster:
        assert not marked(first)
        assert cluster.status().is_whole
        second = cluster_id(home)
        assert marked(second)
        addresses = [
            f"{each.name.removeprefix('nodemanager-') if 'nodemanager' in each.name else '127.0.0.1'}:{port}"
            for each in cluster.status().servers
            for port in each.ports.values()
        ]
        assert all(map(answers, addresses))
    assert not marked(second)
    assert not names()
    assert not any(map(answers, addresses))


def test_of_three_brokers_the_one_that_clients_ask_first_may_die(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And ZooKeeper may stand still."""
    assert main(["local", "up", "--name", "crash", "--nodes", "0", "--brokers", "3", "--json"]) == 0
    environment = json.loads(capsys.readouterr().out)["environment"]
    cluster = LocalCluster.attach("crash")
    try:
        assert len(environment["STANDFAST_KAFKA"].split(",")) == 3
        assert [each for each in cluster.servers if "kafka" in each] == ["kafka-1", "kafka-2", "kafka-3"]
        # As a client with one address that is still good.
        admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("topic", 3)])["topic"].result(PATIENCE_SECONDS)
        topics = {"topic", "__transaction_state", "__consumer_offsets"}
        soon(lambda: topics == in_sync_everywhere(admin), "everything is in sync")
        cluster.stop_server(cluster.brokers[0])
        assert not answers(cluster.kafka_bootstrap.split(",")[0])
        assert not cluster.status().is_whole
        producer = Producer(
            {"bootstrap.servers": cluster.kafka_bootstrap, "transactional.id": "p", "log_level": 0}
        )
        producer.init_transactions(PATIENCE_SECONDS)
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("topic", b"value", partition=partition)
        producer.commit_transaction(PATIENCE_SECONDS)
        cluster.start_server(cluster.brokers[0])
        assert cluster.status().is_whole
        soon(lambda: topics == in_sync_everywhere(admin), "it has what it had, and the rest")
        zookeeper_goes_on_after_a_pause(cluster)
        mark = cluster_id(home)
        assert main(["local", "down", "--name", "crash"]) == 0
        assert not marked(mark)
    finally:
        cluster.down()


def zookeeper_goes_on_after_a_pause(cluster: LocalCluster) -> None:
    client = KazooClient(cluster.zookeeper_connect, timeout=20)
    client.start(PATIENCE_SECONDS)
    pid = server_of(cluster, ZOOKEEPER).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    soon(lambda: server_of(cluster, ZOOKEEPER).state == "stopped", "it is suspended")
    os.kill(pid, signal.SIGCONT)
    client.create(f"/{uuid.uuid4()}", ephemeral=True)
    client.stop()
    client.close()


def in_sync_everywhere(admin: AdminClient) -> set[str]:
    """Return the topics of which every partition has three replicas in sync."""
    found = admin.list_topics(timeout=PATIENCE_SECONDS).topics.items()
    return {name for name, topic in found if all(len(each.isrs) == 3 for each in topic.partitions.values())}


def test_the_cluster_of_a_dead_session_is_ended_by_the_next(home: Path) -> None:
    with starter("up") as process:
        process.kill()
        process.wait()
    crashed = cluster_id(home)
    assert marked(crashed)
    end_abandoned()
    assert not marked(crashed)
    assert not names()


def test_ctrl_c_while_it_starts_leaves_nothing(home: Path) -> None:
    with starter("waiting for") as process:
        crashed = cluster_id(home)
        assert marked(crashed)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) != 0
    assert not marked(crashed)
    assert not names()


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:+NoSuchOption"}
    with pytest.raises(Unavailable, match="does not run"):
        LocalCluster.start("crash", nodes=1, environment=environment)
    assert not names()
