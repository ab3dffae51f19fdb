"""Who lends a transform, and what becomes of the rows: real HTTP between containers, without Spark and ZooKeeper."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from standby.adapters.peers import lenders as adapter
from standby.adapters.peers.lenders import HttpLender, Lenders
from standby.adapters.peers.server import PeerServer
from standby.errors import Transient
from standby.kernel.restore.snapshots import NotNow
from standby.ports import LentTransform, NotLent, PeerRefused
from standby.process import lending
from standby.process.lending import _AT_ONCE, Lending
from standby.replica.lenders import asked_tasks, holders
from standby.shared.model import TaskId, TaskRecord
from standby.shared.peers import ROWS_BYTES, TRANSFORMS_ROUTE, PeerAddress, PeerRequest
from standby.shared.roles import Caller, PeerRole
from standby.shared.wire import JobDefinition
from tests.fakes.certificates import keys_of
from tests.meanwhile import background
from tests.patience import A_MOMENT_SECONDS, LOOK_SECONDS, NEVER_SECONDS, PATIENCE_SECONDS, soon

JOB = JobDefinition("job a/b", "run", {}, "changelog", "group", 4, revision=3)
TASKS = tuple(TaskId(JOB.name, "main", number) for number in range(JOB.tasks))
OURS = "ours"


def lent_idle(run: Callable[[bytes], bytes] = bytes.upper) -> LentTransform:
    return LentTransform(run, is_idle=True)


class Net:
    """The containers of a job, and who asks."""

    def __init__(self) -> None:
        self.records: list[TaskRecord] = []
        self.addresses: dict[str, PeerAddress] = {}
        self.servers: list[PeerServer] = []
        self.is_away = False
        self.refusals: list[Exception] = []
        """What the next requests are refused with."""
        self.lenders = Lenders(OURS, self, keys_of(PeerRole.CONTAINER).client_context)
        self.found: list[HttpLender] = []

    def lender(self) -> HttpLender:
        """Return who lends; closed when the test is over."""
        found = self.lenders.find(JOB, TASKS[:1])
        assert found is not None
        self.found.append(found)
        return found

    def known(self, tasks: Iterable[TaskId]) -> list[TaskRecord]:
        if self.is_away:
            raise Transient("no ZooKeeper")
        asked = set(tasks)
        return [each for each in self.records if each.task in asked]

    def find(self, container: str) -> PeerAddress | None:
        return self.addresses.get(container)

    def add(self, container: str, lent: LentTransform | Exception) -> Lending:
        """Start a container that lends this, or refuses with the error, and holds a standby of the next task."""

        def found(*job: object) -> LentTransform:
            assert job == (JOB.name, JOB.run, JOB.revision)
            if self.refusals:
                raise self.refusals.pop()
            if isinstance(lent, Exception):
                raise lent
            return lent

        lends = Lending(found)
        server = PeerServer("127.0.0.1", keys_of(PeerRole.CONTAINER))
        server.start({TRANSFORMS_ROUTE: lends.answer})
        self.servers.append(server)
        self.place(container, server.port)
        return lends

    def place(self, container: str, port: int) -> None:
        self.addresses[container] = PeerAddress(container, "127.0.0.1", port)
        self.records.append(TaskRecord(TASKS[len(self.records)], 0, 1, {0: OURS, 1: container}))


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Iterator[Net]:
    # However slow the machine is: a search ends with the last answer.
    monkeypatch.setattr(adapter, "_ASK_SECONDS", PATIENCE_SECONDS)
    net = Net()
    yield net
    for lender in net.found:
        lender.close()
    for each in net.servers:
        each.close()


def test_rows_are_transformed_by_another_container(net: Net) -> None:
    lends = net.add("a", lent_idle())
    lender = net.lender()
    assert str(lender).startswith("a at 127.0.0.1:")
    rows = b"r" * (ROWS_BYTES - 1)
    assert [lender.run(each) for each in (b"rows", b"", rows)] == [b"ROWS", b"", rows.upper()]
    (counted,) = lends.metrics()
    assert counted.values == (((JOB.name,), 3.0),)


def test_an_idle_container_is_chosen_before_one_with_actives(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_IDLE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(adapter, "_IDLE_TIMES", math.inf)
    net.add("busy", LentTransform(lambda _: b"of busy", is_idle=False))
    net.add("idle", LentTransform(lambda _: b"of idle", is_idle=True))
    assert net.lender().run(b"") == b"of idle"


def test_one_with_actives_lends_if_no_other_does(net: Net) -> None:
    net.add("cold", NotNow("not warm", is_soon=True))
    net.add("other", NotNow("another revision"))
    net.add("busy", LentTransform(lambda _: b"of busy", is_idle=False))
    assert net.lender().run(b"") == b"of busy"


def test_one_that_hangs_delays_no_other(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_ANSWER_SECONDS", NEVER_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        net.place("silent", silent.getsockname()[1])
        net.add("idle", lent_idle())
        assert net.lender().run(b"rows") == b"ROWS"


def test_nobody_lends(net: Net) -> None:
    assert net.lenders.find(JOB, TASKS[:1]) is None
    net.records.append(TaskRecord(TASKS[0], 0, 1, {0: OURS, 1: "ended"}))
    assert net.lenders.find(JOB, TASKS[:1]) is None
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    net.place("gone", port)
    net.add("cold", NotNow("not warm"))
    assert net.lenders.find(JOB, TASKS[:1]) is None
    net.is_away = True
    assert net.lenders.find(JOB, TASKS[:1]) is None


def test_one_with_actives_is_not_kept_waiting_for_a_silent_one(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_ANSWER_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(adapter, "_IDLE_SECONDS", NEVER_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        net.place("silent", silent.getsockname()[1])
        net.add("busy", LentTransform(lambda _: b"of busy", is_idle=False))
        assert net.lender().run(b"") == b"of busy"


def test_silent_containers_are_not_waited_for_without_end(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_ANSWER_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(adapter, "_ASK_SECONDS", A_MOMENT_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        net.place("silent", silent.getsockname()[1])
        assert net.lenders.find(JOB, TASKS[:1]) is None


@pytest.mark.parametrize(
    ("error", "says", "is_soon"),
    [
        (NotLent("it has given way"), "it has given way", True),
        (LookupError("no such plane"), "LookupError: no such plane", False),
        # Perhaps the rows have ended it.
        (Transient("the JVM has died"), "the JVM has died", False),
    ],
)
def test_an_error_is_told_apart_from_one_of_the_rows(
    net: Net, error: Exception, says: str, is_soon: bool
) -> None:
    def fail(_: bytes) -> bytes:
        raise error

    lends = net.add("a", lent_idle(fail))
    lender = net.lender()
    for _ in range(2):
        with pytest.raises(PeerRefused, match=says) as caught:
            lender.run(b"rows")
        assert caught.value.is_soon is is_soon
    (counted,) = lends.metrics()
    assert counted.values == ()


def test_no_more_batches_are_taken_than_the_own_ones_can_wait_for(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "_PLACE_SECONDS", LOOK_SECONDS)
    go_on = threading.Event()
    begun = threading.Semaphore(0)

    def held(rows: bytes) -> bytes:
        begun.release()
        assert go_on.wait(PATIENCE_SECONDS)
        return rows

    net.add("a", lent_idle(held))
    *lenders, late = (net.lender() for _ in range(_AT_ONCE + 1))
    running = [background(partial(each.run, b"rows")) for each in lenders]
    assert all(begun.acquire(timeout=PATIENCE_SECONDS) for _ in running)
    with pytest.raises(PeerRefused, match="batches of others") as caught:
        late.run(b"rows")
    assert caught.value.is_soon
    go_on.set()
    for each in running:
        each.result(PATIENCE_SECONDS)
    assert late.run(b"rows") == b"rows"


def test_a_batch_of_a_lender_that_goes_away_fails_and_can_be_interrupted(net: Net) -> None:
    begun = threading.Event()
    go_on = threading.Event()

    def held(rows: bytes) -> bytes:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        return rows

    net.add("a", lent_idle(held))
    for end in ("interrupt", "cut off"):
        begun.clear()
        lender = net.lender()
        running = background(partial(lender.run, b"rows"))
        assert begun.wait(PATIENCE_SECONDS)
        if end == "interrupt":
            lender.interrupt()
        else:
            for connection in tuple(net.servers[0].gate._connections):
                with suppress(OSError):
                    socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)
        raised = running.exception(PATIENCE_SECONDS)
        assert isinstance(raised, Transient)
        assert not isinstance(raised, PeerRefused)
    go_on.set()


def test_a_lender_that_ended_before_it_had_the_rows_says_nothing_about_them(net: Net) -> None:
    net.add("a", lent_idle())
    lender = net.lender()
    net.refusals.append(NotNow("the job has ended here"))
    with pytest.raises(PeerRefused, match="has ended here") as refused:
        lender.run(b"rows")
    assert refused.value.is_soon
    net.servers[0].close()
    soon(lambda: not net.servers[0].gate._connections, "its connections are closed")
    with pytest.raises(PeerRefused) as caught:
        lender.run(b"rows")
    assert caught.value.is_soon


JOB_PATH = (TRANSFORMS_ROUTE, "job")


@pytest.mark.parametrize(
    ("method", "path", "query", "status"),
    [
        # The job is gone, which says nothing about rows that come for it.
        ("GET", JOB_PATH, {"run": "run", "revision": "3"}, 409),
        ("POST", JOB_PATH, {"run": "run", "revision": "3"}, 503),
        ("GET", (TRANSFORMS_ROUTE,), {"run": "run", "revision": "3"}, 400),
        ("GET", (*JOB_PATH, "more"), {"run": "run", "revision": "3"}, 400),
        ("GET", JOB_PATH, {"run": "run"}, 400),
        ("POST", JOB_PATH, {"run": "run", "revision": "new"}, 400),
        ("DELETE", JOB_PATH, {"run": "run", "revision": "3"}, 405),
    ],
)
def test_a_request_for_a_job_that_is_gone_or_for_none_is_refused(
    method: str, path: tuple[str, ...], query: dict[str, str], status: int
) -> None:
    def gone(*_: object) -> LentTransform:
        raise NotNow("another revision")

    request = PeerRequest(Caller(PeerRole.CONTAINER, "c"), method, path, query)
    assert Lending(gone).answer(request).status == status


def test_standbys_are_asked_before_actives_and_each_container_once() -> None:
    records = [
        TaskRecord(TASKS[0], 0, 1, {0: "a", 1: "b"}),
        TaskRecord(TASKS[1], 1, 1, {0: "c", 1: OURS, 2: "b"}),
        TaskRecord(TASKS[2], None, 0, {0: "d", 1: "a"}),
        TaskRecord(TASKS[3], 0, 1, {0: "e"}),
    ]
    assert holders(records, OURS) == ("b", "c", "d", "a", "e")
    assert holders([], OURS) == ()


def test_the_tasks_whose_holders_are_asked_are_spread_over_the_job() -> None:
    def asked(first: int, tasks: int, most: int) -> list[int]:
        own = [TaskId("job", "main", first + 1), TaskId("job", "main", first)]
        found = asked_tasks(own, tasks, most)
        assert {(each.job, each.stage) for each in found} == {("job", "main")}
        return [each.partition for each in found]

    assert asked(1, 4, 16) == [1, 2, 3, 0]
    assert asked(30, 100, 4) == [30, 55, 80, 5]
    assert asked(0, 5, 4) == [0, 2, 4]
