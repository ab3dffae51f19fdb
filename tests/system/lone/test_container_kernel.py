"""The whole container, as it ships, on real ZooKeeper and Kafka, with the plain feed; the test is the leader.

Two processes on two hosts hold an active and a standby of every task. Their orders are what the
leader would tell: first the record in ZooKeeper, then the order.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import ssl
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from appmaster.adapters.zookeeper.session import ZooKeeper
from demo.topics import read_committed
from embedded.cluster import LocalCluster
from standby.cluster import ClusterConfig
from standby.code import bundles
from standby.shared import exits, naming
from standby.shared.model import Phase, ReplicaId, ReplicaStatus, Role, TaskId, TaskRecord, Wanted
from standby.shared.records import ContainerRecord, decoded, encode, encode_task
from standby.shared.roles import PeerRole
from standby.shared.wire import JobDefinition, Report
from tests.fakes.certificates import keys_of, write_credentials
from tests.fakes.leader import ScriptedLeader, Session
from tests.patience import PATIENCE_SECONDS
from tests.system.lone.test_container_process import Process
from tests.topics import make_topics

HOSTS = ("127.0.0.11", "127.0.0.12")
TASKS = 2
KEYS = 50

#: How often a record of each key is sent while input flows.
SENDS_PER_SECOND = 20

#: Hand-overs of each kind.
ROUNDS = 2

#: Counts per key: what is emitted says exactly which records were taken in, and how often.
MODULE = """
def unchanged(rows):
    return rows


def count(rows, state, out):
    store = state["default"]
    for key in rows["key"].to_pylist():
        number = int(store.get(key) or b"0") + 1
        store.put(key, b"%d" % number)
        out.emit(key, b"%d" % number)
"""


class Job:
    """A job's topics and definition, and what went in and came out."""

    def __init__(self, cluster: LocalCluster, state_dir: Path, feed: str) -> None:
        self.bootstrap = cluster.kafka_bootstrap
        self.cluster = f"kernel-{uuid.uuid4().hex[:8]}"
        self.input, self.output = f"{self.cluster}-in", f"{self.cluster}-out"
        run = uuid.uuid4().hex
        self.definition = JobDefinition(
            name="counting",
            run=run,
            config={
                "job.name": "counting",
                "cluster.name": self.cluster,
                "task.inputs": self.input,
                "task.outputs": self.output,
                "task.step": "counting:count",
                "task.feed": feed,
                "task.transform": "counting:unchanged",
                "job.state.dir": str(state_dir),
                "job.hotstandby.enabled": "true",
                "kafka.bootstrap.servers": self.bootstrap,
                "zookeeper.connect": cluster.zookeeper_connect,
            },
            changelog=naming.changelog_topic(self.cluster, "counting", "main", run),
            group=naming.consumer_group(self.cluster, "counting", "main", run),
            tasks=TASKS,
        )
        topics = [
            NewTopic(self.input, TASKS),
            NewTopic(self.output, TASKS),
            NewTopic(self.definition.changelog, TASKS, config={"cleanup.policy": "compact"}),
        ]
        make_topics(self.bootstrap, topics)
        self.sent: Counter[bytes] = Counter()
        self._producer = Producer({"bootstrap.servers": self.bootstrap})

    def send(self, records: int) -> None:
        """Send so many records, over all keys and partitions, and wait for the broker."""
        for number in range(records):
            key = b"key-%d" % (number % KEYS)
            self._producer.produce(self.input, b"", key, partition=(number % KEYS) % TASKS)
            self.sent[key] += 1
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def outputs(self) -> dict[bytes, list[int]]:
        """Return every committed output, by key, in order, once no transaction is open among them.

        Kafka tells of a commit before all its markers are written: what is committed may be hidden for a moment.
        """
        found: dict[bytes, list[int]] = {}
        for each in read_committed(self.bootstrap, self.output, PATIENCE_SECONDS):
            assert each.value is not None
            found.setdefault(each.key, []).append(int(each.value))
        return found

    def assert_exact(self) -> None:
        """Every record counted, none lost, none twice, in order."""
        assert self.outputs() == {key: list(range(1, count + 1)) for key, count in self.sent.items()}


class Container(Process):
    """One container's process."""

    def __init__(
        self, job: Job, cluster: LocalCluster, host: str, copy: int, directory: Path, localised: str = MODULE
    ) -> None:
        self.id = f"container_1_0001_01_00000{copy + 2}"
        directory.mkdir()
        (directory / "code").mkdir()
        (directory / "code" / "counting.py").write_text(localised)
        config = ClusterConfig(
            job.cluster,
            cluster.zookeeper_connect,
            zookeeper_session_ms=6_000,
            zookeeper_acl="open",
            heartbeat_interval_ms=200,
            state_dirs=(job.definition.config["job.state.dir"],),
        )
        write_credentials(directory)
        # Spark sees that this is YARN, and asks for its disks.
        environment = {"CONTAINER_ID": self.id, "NM_HOST": host, "LOCAL_DIRS": str(directory)}
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        super().__init__(directory, config, environment, "standby")


class Play:
    """A leader, a job, and containers by copy number."""

    def __init__(self, cluster: LocalCluster, directory: Path, feed: str) -> None:
        self.embedded = cluster
        self.directory = directory
        self.job = Job(cluster, directory / "state", feed)
        self.zookeeper: Any = KazooClient(cluster.zookeeper_connect, timeout=10)
        self.zookeeper.start(timeout=PATIENCE_SECONDS)
        self.leader = ScriptedLeader(keys_of(PeerRole.MASTER))
        self.zookeeper.create(
            naming.controller_path(self.job.cluster), encode(self.leader.record), makepath=True
        )
        self.containers: list[Container] = []
        self.sessions: dict[int, Session] = {}
        self.number = 0
        #: Of the last order on the present stream of each copy.
        self.ordered: dict[int, int] = {}

    def start(self, copy: int, localised: str = MODULE) -> Session:
        """Start the container of a copy, with that as its localised module; return its stream."""
        place = self.directory / f"container-{copy}-{len(self.containers)}"
        self.containers.append(Container(self.job, self.embedded, HOSTS[copy % 2], copy, place, localised))
        return self.follow(copy)

    def follow(self, copy: int) -> Session:
        """Return the next stream, which must be of that copy's container."""
        session = self.leader.session()
        assert session.hello.container.endswith(str(copy + 2)), session.hello
        self.sessions[copy], self.ordered[copy] = session, 0
        return session

    def record(self, active: int, epoch: int, *, claimed: bool) -> None:
        """Write every task's record, as the leader does before any order."""
        for number in range(TASKS):
            task = TaskId("counting", "main", number)
            path = naming.task_path(self.job.cluster, task)
            data = encode_task(TaskRecord(task, active, epoch, claimed=claimed))
            if self.zookeeper.exists(path):
                self.zookeeper.set(path, data)
            else:
                self.zookeeper.create(path, data, makepath=True)

    def order(self, copy: int, role: Role, epoch: int, *, is_next: bool = False) -> None:
        """Tell a container to hold every task in that role."""
        self.number += 1
        self.ordered[copy] = self.number
        wanted = tuple(
            Wanted(ReplicaId(TaskId("counting", "main", each), copy), role, epoch, is_next)
            for each in range(TASKS)
        )
        self.sessions[copy].assign(self.number, replicas=wanted, jobs=(self.job.definition,))

    def report(self, copy: int, condition: Callable[[Report], bool]) -> Report:
        """Return the first report that fulfils the condition, of those since a copy has its last order."""
        number = self.ordered[copy]
        return self.sessions[copy].wait_for(Report, lambda each: each.number >= number and condition(each))

    def wait(self, copy: int, condition: Callable[[ReplicaStatus], bool]) -> tuple[ReplicaStatus, ...]:
        """Return a copy's statuses once each of them fulfils the condition, since its last order."""
        return self.report(
            copy, lambda each: len(each.replicas) == TASKS and all(map(condition, each.replicas))
        ).replicas

    def processed(self, copy: int) -> tuple[ReplicaStatus, ...]:
        """Return a copy's statuses once it has committed all input."""
        ends = {
            each: sum(count for key, count in self.job.sent.items() if int(key[4:]) % TASKS == each)
            for each in range(TASKS)
        }

        def is_done(status: ReplicaStatus) -> bool:
            # Transactions of this input leave no markers in it: offsets are counts.
            return status.input_committed == ends[status.replica.task.partition]

        return self.wait(copy, is_done)

    def unregistered(self, copy: int) -> None:
        """Wait until the session of a copy's container has expired."""
        path = naming.container_path(self.job.cluster, f"container_1_0001_01_00000{copy + 2}")
        gone = threading.Event()
        while self.zookeeper.exists(path, watch=lambda _: gone.set()) is not None:
            assert gone.wait(PATIENCE_SECONDS), "the session did not expire"
            gone.clear()

    def close(self) -> None:
        self.leader.cut()
        for each in self.containers:
            each.kill()
        self.zookeeper.delete(naming.cluster_path(self.job.cluster), recursive=True)
        self.zookeeper.stop()
        self.zookeeper.close()


@contextmanager
def playing(cluster: LocalCluster, directory: Path, feed: str) -> Iterator[Play]:
    play = Play(cluster, directory, feed)
    yield play
    play.close()
    for each in play.containers:
        print(f"==> {each.id}\n{each.text()}")


@pytest.fixture
def play(cluster: LocalCluster, tmp_path: Path) -> Iterator[Play]:
    with playing(cluster, tmp_path, "plain") as play:
        yield play


@pytest.fixture
def spark_play(cluster: LocalCluster, tmp_path: Path) -> Iterator[Play]:
    with playing(cluster, tmp_path, "spark") as play:
        yield play


def pair(play: Play) -> None:
    """Have copy 0 active and copy 1 in step with it, both with some input behind them."""
    play.record(0, 1, claimed=False)
    assert play.start(0).hello.leftovers == ()
    play.order(0, Role.ACTIVE, 1)
    play.start(1)
    play.order(1, Role.STANDBY, 1)
    play.job.send(2_000)
    ends = {each.replica.task: each.applied or 0 for each in play.processed(0)}
    # It is in step from the beginning; it has to have that input.
    play.wait(
        1, lambda each: each.phase is Phase.TAILING and (each.applied or 0) >= ends[each.replica.task] > 0
    )


def test_a_killed_active_is_replaced_in_place_and_nothing_is_lost_or_doubled(play: Play) -> None:
    pair(play)
    operators_alone_look_keys_up(play)
    play.job.send(3_000)
    play.containers[0].send(signal.SIGKILL)
    assert play.sessions[0].is_over.wait(PATIENCE_SECONDS)
    # Of what came before it may have processed everything.
    play.job.send(1_000)
    play.record(1, 2, claimed=True)
    play.order(1, Role.ACTIVE, 2)
    play.processed(1)
    play.job.assert_exact()


def operators_alone_look_keys_up(play: Play) -> None:
    path = naming.container_path(play.job.cluster, play.containers[0].id)
    record = decoded(play.zookeeper.get(path)[0], path, ContainerRecord)

    def ask(context: ssl.SSLContext) -> tuple[int, str]:
        context.check_hostname = False
        made = http.client.HTTPSConnection(
            record.host, record.peer_port, context=context, timeout=PATIENCE_SECONDS
        )
        with closing(made) as connection:
            connection.request("GET", "/state/counting/default?key=key-0")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    status, said = ask(keys_of(PeerRole.OPERATOR).client_context())
    (found,) = (each for each in json.loads(said)["answers"] if each["found"])
    assert (status, base64.b64decode(found["value"])) == (200, b"%d" % play.job.sent[b"key-0"])
    for role in (PeerRole.CONTAINER, PeerRole.MASTER):
        # They fetch copies of state at this port, and code.
        assert ask(keys_of(role).client_context()) == (
            403,
            f"not for the cluster's {role.value}: operator only\n",
        )
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    # An alert, an end in the middle of the protocol, or a reset: whichever of the server's answers comes first.
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(stranger)


def test_an_active_that_stood_still_past_its_successors_claim_writes_nothing_more(play: Play) -> None:
    pair(play)
    play.containers[0].send(signal.SIGSTOP)
    play.job.send(2_000)
    play.record(1, 2, claimed=True)
    play.order(1, Role.ACTIVE, 2)
    play.wait(1, lambda each: each.phase is Phase.ACTIVE)
    play.processed(1)
    former = play.sessions[0]
    play.unregistered(0)
    play.containers[0].send(signal.SIGCONT)
    play.job.send(1_000)
    # Its session had expired: it comes with a new incarnation, its inventory, and no right to write.
    again = play.follow(0)
    assert again.hello.incarnation > former.hello.incarnation
    assert len(again.hello.replicas) == TASKS
    play.wait(0, lambda each: each.phase is Phase.FENCED)
    play.order(0, Role.STANDBY, 2)
    play.wait(0, lambda each: each.role is Role.STANDBY and each.phase is Phase.TAILING)
    play.processed(1)
    play.job.assert_exact()


def test_who_ends_in_order_leaves_its_state_to_the_next_one_and_loses_nothing(play: Play) -> None:
    """The standby first; then the active, while it processes."""
    pair(play)
    play.containers[1].send(signal.SIGTERM)
    assert play.containers[1].ends() == exits.ORDERLY
    hello = play.start(1).hello
    assert [(each.task.partition, each.run) for each in hello.leftovers] == [
        (number, play.job.definition.run) for number in range(TASKS)
    ]
    assert all(each.position > 0 for each in hello.leftovers)
    play.order(1, Role.STANDBY, 1)
    first = play.wait(1, lambda each: each.applied is not None)
    assert all((each.applied or 0) > 0 for each in first), "no restore from the start"
    play.wait(1, lambda each: each.phase is Phase.TAILING and each.lag_records == 0)
    play.job.send(5_000)
    play.containers[0].send(signal.SIGTERM)
    assert play.containers[0].ends() == exits.ORDERLY
    play.record(1, 2, claimed=True)
    play.order(1, Role.ACTIVE, 2)
    play.processed(1)
    play.job.assert_exact()


# ---- with Spark ----


def java_of(container: Container) -> psutil.Process:
    """Return the container's JVM."""
    found = [
        each for each in psutil.Process(container.popen.pid).children(recursive=True) if "java" in each.name()
    ]
    assert len(found) == 1, found
    return found[0]


#: A job whose transform calls, in Spark's Python workers, what lies in a module of its own.
BUNDLED = {
    "counting.py": MODULE
    + """
def wanted(rows):
    from choosing import choose
    from pyspark.sql.functions import udf
    return rows.where(udf(choose, "boolean")("key"))
""",
    "choosing.py": "def choose(key):\n    return key.startswith(b'key-')\n",
}


def roll_out(play: Play, files: dict[str, str], **config: str) -> None:
    """Make the job's next revision run from a bundle; what containers have localised is of no use."""
    source = play.directory / "source"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)
    bundle = bundles.pack(source)
    with ZooKeeper(play.embedded.zookeeper_connect, play.job.cluster) as master:
        master.code.put(bundle.digest, bundle.data)
    first = play.job.definition
    play.job.definition = msgspec.structs.replace(
        first, revision=2, code=bundle.digest, config={**first.config, **config}
    )


def test_a_new_revision_runs_from_its_bundle_and_goes_on_where_the_old_one_was(play: Play) -> None:
    play.record(0, 1, claimed=False)
    play.start(0)
    play.order(0, Role.ACTIVE, 1)
    play.job.send(500)
    play.processed(0)
    old = play.sessions[0].wait_for(Report, lambda each: bool(each.revisions))
    assert old.revisions == {"counting": 1}
    again = MODULE.replace('b"%d" % number', 'b"%d" % (number + 0)')
    assert again != MODULE
    roll_out(play, {"counting.py": again})
    # What is not known any more must not be found: a job of this name as YARN localised it is wrong here.
    session = play.start(1, localised="raise RuntimeError('the old revision')")
    assert session.hello.revisions == {}
    play.order(1, Role.STANDBY, 1)
    play.wait(1, lambda each: each.phase is Phase.TAILING)
    assert session.wait_for(Report, lambda each: bool(each.revisions)).revisions == {"counting": 2}
    # The old container gets the new revision, too, by a leader that should know better.
    play.order(0, Role.ACTIVE, 1)
    play.job.send(500)
    play.processed(0)
    play.record(1, 2, claimed=True)
    play.order(0, Role.STANDBY, 2)
    play.order(1, Role.ACTIVE, 2)
    play.job.send(500)
    play.processed(1)
    assert play.report(0, lambda each: bool(each.replicas)).revisions == {"counting": 1}
    play.job.assert_exact()


class Flow:
    """Input that keeps coming, a thousand records a second."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_ending.wait(1 / SENDS_PER_SECOND):
            self._job.send(KEYS)


def hand_over(play: Play, old: int, new: int, epoch: int, *, is_planned: bool) -> None:
    """Make ``new`` active while the input flows; as planned: prepared while ``old`` goes on."""
    if is_planned:
        play.order(new, Role.STANDBY, epoch - 1, is_next=True)
        play.wait(new, lambda each: each.is_prepared and each.epoch == epoch - 1)
    play.record(new, epoch, claimed=True)
    play.order(old, Role.STANDBY, epoch)
    play.order(new, Role.ACTIVE, epoch)
    play.wait(new, lambda each: each.epoch == epoch and each.first_commit_ms is not None)
    play.wait(old, lambda each: each.epoch == epoch and each.phase is Phase.TAILING)


@pytest.mark.spark
def test_hand_overs_back_and_forth_prepared_or_not_are_exact_while_input_flows(spark_play: Play) -> None:
    """How long each pauses the output is measured by ``python -m benchmarks.failover --kind handover``.

    Spark's Python workers find the modules of the bundle.
    """
    play = spark_play
    roll_out(play, BUNDLED, **{"task.transform": "counting:wanted"})
    play.record(0, 1, claimed=False)
    play.start(0, localised="raise RuntimeError('the old revision')")
    play.order(0, Role.ACTIVE, 1)
    play.start(1, localised="raise RuntimeError('the old revision')")
    play.order(1, Role.STANDBY, 1)
    play.job.send(2_000)
    play.wait(0, lambda each: each.first_commit_ms is not None)
    with Flow(play.job):
        for epoch in range(2, 2 + 2 * ROUNDS):
            old, new = (0, 1) if epoch % 2 == 0 else (1, 0)
            play.report(new, lambda each: each.warm)
            # Each way both ways.
            hand_over(play, old, new, epoch, is_planned=epoch % 4 in (2, 3))
    play.processed(epoch % 2 == 0)
    play.job.assert_exact()


@pytest.mark.spark
def test_a_container_and_its_jvm_die_together(spark_play: Play) -> None:
    play = spark_play
    play.record(0, 1, claimed=False)
    session = play.start(0)
    play.job.send(1_000)
    play.order(0, Role.ACTIVE, 1)
    play.wait(0, lambda each: each.first_commit_ms is not None)
    play.processed(0)
    java = java_of(play.containers[0])
    session.wait_for(
        Report,
        lambda each: each.rss_bytes > java.memory_info().rss,
        after=len(session.received),
    )
    play.containers[0].send(signal.SIGKILL)
    assert session.is_over.wait(PATIENCE_SECONDS)
    java.wait(PATIENCE_SECONDS)

    # The former's own files, as a restart of the container on its host finds them.
    session = play.start(0)
    play.order(0, Role.ACTIVE, 1)
    play.wait(0, lambda each: each.phase is Phase.ACTIVE)
    play.job.send(500)
    play.processed(0)
    java = java_of(play.containers[1])
    java.kill()
    assert play.containers[1].ends() == exits.BROKEN
    play.job.assert_exact()
