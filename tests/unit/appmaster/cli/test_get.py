"""`standfast get`: which process is asked, which is believed, and what is printed, on kernels in memory."""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appmaster.adapters.lookups import StateClient
from appmaster.api.search import Search, WantedKey
from appmaster.cli.main import build_parser
from appmaster.cli.reading import get
from appmaster.cli.shared.deadline import Deadline
from standby.adapters.peers.server import PeerServer
from standby.errors import BadConfiguration, StandfastError, Transient, Unavailable
from standby.process.lookup import Lookups
from standby.shared.model import Phase, Role
from standby.shared.peers import STATE_ROUTE, PeerAddress, PeerAnswer, PeerRequest
from standby.shared.roles import PeerRole
from standby.state import INT, TEXT, Counters, Expiring, tuple_of
from tests.fakes.certificates import keys_of
from tests.fakes.clock import WaitClock
from tests.memory_lab import JOB, MemoryContainer, MemoryLab
from tests.patience import PATIENCE_SECONDS

TASKS = 2


def count(rows: Any, state: Any, _: Any) -> None:
    keys = [key.decode() for key in rows["key"].to_pylist()]
    Counters(state["counts"], key=TEXT).add_many(keys)
    Expiring(state["chains"], now_ms=1_000, ttl_ms=50, key=TEXT, value=TEXT).put_many(
        dict.fromkeys(keys, "seen")
    )


class Cluster:
    """Two containers, each with a port for its peers, and what a leader would say of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lab = MemoryLab(directory / "state", tasks=TASKS)
        self.active, self.epoch = 0, 1
        self.containers: list[MemoryContainer] = []
        self.servers: list[PeerServer] = []
        self.asked: list[tuple[int, PeerRequest]] = []
        for host in "ab":
            container = self.lab.container(host, step=count)
            lookups = Lookups(container.replicas.held, self.lab.clock.now_ms)

            def route(
                request: PeerRequest, number: int = len(self.servers), lookups: Lookups = lookups
            ) -> PeerAnswer:
                self.asked.append((number, request))
                return lookups.answer(request)

            server = PeerServer("127.0.0.1", keys_of(PeerRole.CONTAINER))
            server.start({STATE_ROUTE: route})
            self.containers.append(container)
            self.servers.append(server)
        self.tell(0)
        self.tell(1)

    def tell(self, copy: int) -> None:
        self.lab.name(self.active, self.epoch)
        role = Role.ACTIVE if copy == self.active else Role.STANDBY
        self.containers[copy].want(copy, role, self.epoch)

    def produce(self, partition: int, *keys: bytes) -> None:
        for key in keys:
            self.lab.kafka.append("in", partition, key, b"v")
        self.containers[self.active].await_processed()

    def status(self) -> dict[str, Any]:
        return {
            "jobs": [{"name": JOB, "run": self.lab.definition.run}],
            "tasks": [
                {
                    "task": {"job": JOB, "stage": "main", "partition": partition},
                    "epoch": self.epoch,
                    "active": self.active,
                    "replicas": [{"copy": each, "container": f"container_{each}"} for each in range(2)],
                }
                for partition in range(TASKS)
            ],
        }

    def registered(self) -> list[PeerAddress]:
        return [
            PeerAddress(f"container_{number}", "127.0.0.1", each.port)
            for number, each in enumerate(self.servers)
        ]

    def search(self, key: bytes, role: Role = Role.ACTIVE, **more: Any) -> Search:
        """Return a search in every task, by what the leader and the addresses say unless ``more`` says otherwise."""
        status, registered = more.pop("status", self.status), more.pop("registered", self.registered)
        wanted = {"store": "counts", "partitions": frozenset(range(TASKS)), "max_lag_ms": None, **more}
        look_up = StateClient(keys_of(PeerRole.OPERATOR)).look_up
        return Search(WantedKey(JOB, key=key, role=role, **wanted), status, registered, look_up)

    def answers(self, key: bytes, role: Role = Role.ACTIVE, **more: Any) -> list[dict[str, Any]]:
        """Return what one round of questions answers in full."""
        search = self.search(key, role, **more)
        assert search.ask(), search.complaint()
        return search.answers()

    def complaint(self, key: bytes, role: Role = Role.ACTIVE, **more: Any) -> str:
        """Return why one round of questions is not answered."""
        search = self.search(key, role, **more)
        assert not search.ask()
        return search.complaint()

    def close(self) -> None:
        for server, container in zip(self.servers, self.containers, strict=True):
            server.close()
            container.replicas.close(PATIENCE_SECONDS)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_every_active_is_asked_and_the_one_that_has_the_key_answers(cluster: Cluster) -> None:
    cluster.produce(0, b"a", b"b", b"a")
    cluster.produce(1, b"b")
    (answer,) = cluster.answers(b"a")
    shown = {name: answer[name] for name in ("partition", "role", "epoch", "container")}
    assert shown == {"partition": 0, "role": "active", "epoch": 1, "container": "container_0"}
    assert INT.load(base64.b64decode(answer["value"])) == 2
    assert [number for number, _ in cluster.asked] == [0], "one question for all tasks of a container"

    def found(key: bytes, **more: Any) -> list[tuple[int, bool]]:
        return [(each["partition"], each["found"]) for each in cluster.answers(key, **more)]

    assert found(b"b") == [(0, True), (1, True)]
    assert found(b"nowhere") == [(0, False), (1, False)]
    assert found(b"a", partitions=frozenset({1})) == [(1, False)]


def test_a_standby_answers_when_it_is_fresh_enough(cluster: Cluster) -> None:
    cluster.produce(0, b"a")
    standby = cluster.containers[1]
    standby.await_phase(Phase.TAILING)
    applied = {each.replica.task: each.applied or 0 for each in cluster.containers[0].statuses()}
    standby.eventually(
        lambda: all((each.applied or 0) >= applied[each.replica.task] for each in standby.statuses())
    )
    (answer,) = cluster.answers(b"a", Role.STANDBY, max_lag_ms=20_000)
    assert (answer["role"], answer["container"], answer["copy"]) == ("standby", "container_1", 1)
    assert 0 <= answer["lag_ms"] <= 20_000
    cluster.lab.kafka.is_away = True
    cluster.lab.now_ms += 60_000
    complaint = cluster.complaint(b"a", Role.STANDBY, max_lag_ms=20_000)
    assert complaint.count("container_1") == complaint.count("behind") == TASKS


def test_a_former_active_is_not_believed(cluster: Cluster) -> None:
    cluster.produce(0, b"a")
    # The leader has made the other copy active; the first one got no order, and answers as ever.
    cluster.active, cluster.epoch = 1, 2
    cluster.containers[1].await_phase(Phase.TAILING)
    assert "container_1: it is" in cluster.complaint(b"a")
    # Nor is it when it is active again, and has not heard of it: somebody else was meanwhile.
    cluster.active, cluster.epoch = 0, 3
    told = "copy 0 in container_0 answers at epoch 1, but copy 0 is active at epoch 3"
    assert told in cluster.complaint(b"a")
    cluster.active, cluster.epoch = 1, 4
    cluster.tell(1)
    cluster.containers[1].await_phase(Phase.ACTIVE)
    assert [(each["copy"], each["epoch"]) for each in cluster.answers(b"a")] == [(1, 4)]
    newer = {**cluster.status(), "jobs": [{"name": JOB, "run": "newer"}]}
    assert "another run" in cluster.complaint(b"a", status=lambda: newer)


def test_the_leader_is_asked_once_for_each_time_that_the_containers_are(cluster: Cluster) -> None:
    """Its answer grows with the cluster: 10,000 tasks are some megabytes."""
    cluster.produce(0, b"a")
    asked = []

    def status() -> dict[str, Any]:
        asked.append(len(cluster.asked))
        # At first it knows of no task.
        return cluster.status() if len(asked) > 1 else {**cluster.status(), "tasks": []}

    search = cluster.search(b"a", status=status)
    assert not search.ask()
    assert search.ask(), search.complaint()
    assert asked == [0, 0], "before the container, which was asked the second time only"
    assert len(cluster.asked) == 1


def test_a_container_that_does_not_answer_is_asked_again(cluster: Cluster) -> None:
    cluster.produce(0, b"a")
    down = [PeerAddress("container_0", "127.0.0.1", 1), cluster.registered()[1]]
    registered = iter([[], down, cluster.registered()])
    search = cluster.search(b"a", registered=lambda: next(registered))
    assert not search.ask()
    unknown = "container_0 is not registered"
    assert search.complaint() == f"task 0: {unknown}; task 1: {unknown}"
    assert not search.ask()
    assert "ConnectionRefusedError" in search.complaint()
    assert search.ask(), search.complaint()


#: What is asked of a container whose task 0 has the key ``a``, the status, and what is in the answer.
QUESTIONS = (
    ("/state/ledger/counts?key=a&partition=0", 200, '"found": true'),
    ("/state/ledger/counts?hex=61", 200, '"found": true'),
    ("/state/ledger/counts?key=", 200, '"found": false'),
    ("/state/other/counts?key=a", 200, '"answers": []'),
    ("/state/ledger/nope?key=a", 404, "it has counts, chains"),
    ("/state/ledger?key=a", 400, "/state/<job>/<store>"),
    ("/state/ledger/counts", 400, "key and hex"),
    ("/state/ledger/counts?key=a&hex=61", 400, "key and hex"),
    ("/state/ledger/counts?hex=6", 400, "hex"),
    ("/state/ledger/counts?key=a&role=any", 400, "role"),
    ("/state/ledger/counts?key=a&partition=-1", 400, "partition"),
    ("/state/ledger/counts?key=a&max_lag_ms=x", 400, "max_lag_ms"),
    ("/state/ledger/counts?key=a&lag=1", 400, "lag: no such"),
)


def test_what_is_asked_over_http(cluster: Cluster) -> None:
    cluster.produce(0, b"a")
    context = keys_of(PeerRole.OPERATOR).client_context()
    context.check_hostname = False

    def ask(method: str, path: str) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", cluster.servers[0].port, context=context, timeout=PATIENCE_SECONDS
        )
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    for path, status, text in QUESTIONS:
        answered = ask("GET", path)
        assert (answered[0], text in answered[1]) == (status, True), (path, answered)
    assert ask("DELETE", QUESTIONS[0][0]) == (405, "state can only be read here\n")


def test_the_client_tells_a_wrong_question_from_a_server_in_trouble(cluster: Cluster) -> None:
    cluster.produce(0, b"a")
    with pytest.raises(BadConfiguration, match="no store nope"):
        cluster.search(b"a", store="nope").ask()
    client = StateClient(keys_of(PeerRole.OPERATOR))
    with pytest.raises(Transient, match="container_0 at"):
        client.look_up(PeerAddress("container_0", "127.0.0.1", 1), JOB, "counts", {"key": "a"})


def test_keys_can_be_given_in_every_form_and_what_is_none_is_refused() -> None:
    for form, text, key in (
        ("text", "a b", b"a b"),
        ("text", "", b""),
        ("hex", "00ff", b"\x00\xff"),
        ("json", "5", INT.dump(5)),
        ("json", '"5"', b"5"),
        ("json", '["a", -5]', tuple_of(TEXT, INT).dump(("a", -5))),
        ("json", '[["a", 1], 2]', tuple_of(tuple_of(TEXT, INT), INT).dump((("a", 1), 2))),
    ):
        assert get.key_of(text, form) == key, (form, text)
    for form, texts in (("hex", ("0",)), ("json", ("x", "1.5", "true", "[]", str(1 << 64)))):
        for text in texts:
            with pytest.raises(
                BadConfiguration, match=f"{re.escape(repr(text))} is not a key in the form {form}"
            ):
                get.key_of(text, form)


def search(*rounds: bool | Unavailable) -> Search:
    """Return a search that comes to this round after round, and to the last one ever after."""
    left = iter(rounds)

    def ask() -> bool:
        found = next(left, rounds[-1])
        if isinstance(found, Unavailable):
            raise found
        return found

    return cast("Search", SimpleNamespace(ask=ask, complaint=lambda: "task 0: silent"))


def test_a_key_is_looked_for_until_everybody_has_answered_or_the_time_is_over() -> None:
    away, clock = Unavailable("no leader"), WaitClock()
    get.find(search(away, False, True), Deadline(10.0, clock))
    assert clock.waits == 2
    for rounds, error, told in (
        ((away, False), StandfastError, "task 0: silent"),
        ((False, away), Unavailable, "no leader"),
    ):
        with pytest.raises(StandfastError, match=told) as raised:
            get.find(search(*rounds), Deadline(10.0, clock))
        assert type(raised.value) is error, "the exit status depends on it"


def shown_as(value_format: str, **more: Any) -> argparse.Namespace:
    usual = {"value_format": value_format, "expiring": False, "json": False, "job": JOB, "store": "counts"}
    return argparse.Namespace(**{**usual, **more})


def answer(value: bytes | None, partition: int = 0) -> dict[str, Any]:
    return {
        "partition": partition,
        "copy": 0,
        "container": "container_0",
        "role": "active",
        "epoch": 3,
        "applied": 7,
        "lag_ms": 0,
        "found": value is not None,
        "value": None if value is None else base64.b64encode(value).decode(),
    }


def test_the_value_alone_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    where = "task 0: found in the active copy 0 in container_0, epoch 3, changelog offset 7, lag 0 ms"
    for value, form, printed in (
        (b"text", "text", "text"),
        (b"\x00\xff", "hex", "00ff"),
        (b"\x00\xff", "base64", "AP8="),
        (b'{"a":1}', "json", '{"a": 1}'),
        (INT.dump(12), "int", "12"),
    ):
        assert get._show([answer(value)], shown_as(form)) == 0
        assert capsys.readouterr() == (f"{printed}\n", f"{where}\n"), form
    assert get._show([answer(INT.dump(1_050) + b"seen")], shown_as("text", expiring=True)) == 0
    assert capsys.readouterr() == ("seen\n", f"{where}, expires at 1050\n")


def test_a_missing_and_an_ambiguous_key_have_a_status_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert get._show([answer(None), answer(None, 1)], shown_as("text")) == 1
    assert capsys.readouterr().out == ""
    with pytest.raises(StandfastError, match="tasks 0, 1 have this key"):
        get._show([answer(b"a"), answer(b"b", 1)], shown_as("text"))
    with pytest.raises(BadConfiguration, match="--value-format hex"):
        get._show([answer(b"\xff")], shown_as("text"))
    # Python reads it; nobody else would read what was printed.
    with pytest.raises(BadConfiguration, match="NaN"):
        get._show([answer(b'{"a": NaN}')], shown_as("json", json=True))
    capsys.readouterr()
    assert get._show([answer(b"a"), answer(b"b", 1)], shown_as("text", json=True)) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["value"] for each in document["answers"]] == ["a", "b"]
    assert document["found"] is True


def test_a_lag_needs_a_standby() -> None:
    arguments = build_parser().parse_args(["get", JOB, "counts", "k", "--max-lag-ms", "5"])
    with pytest.raises(BadConfiguration, match="--standby"):
        arguments.run(arguments)
