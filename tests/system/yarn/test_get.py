"""`standfast get` on a real YARN: the active's value, a standby's, and the successor's after a failover."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest

from appmaster.topics.partitioners import PARTITIONERS
from demo.standing import Status
from embedded.cluster import LocalCluster
from standby.shared.records import ContainerRecord
from standby.shared.roles import PeerRole
from tests.fakes.certificates import keys_of
from tests.patience import PATIENCE_SECONDS, soon
from tests.system.yarn.counting import CountingJob, some, submitted
from tests.system.yarn.running import NOTICES_SILENCE, keyring, session

NAME = "looked-up"
STORE = "default"


@pytest.fixture(scope="module")
def job(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingJob]:
    """Return a job of two tasks; ``key 0`` to ``key 4`` came 4 times to task 0, and ``only`` once to task 1."""
    job = CountingJob(cluster, tmp_path_factory.mktemp("get") / "job", NAME, NAME, 2, **NOTICES_SILENCE)
    with submitted(job):
        job.produce(0, some(20, 5))
        job.produce(1, [(b"only", b"x")])
        job.assert_exact()
        yield job


def get(job: CountingJob, key: str, *options: str) -> Any:
    return job.ask("get", NAME, STORE, key, *options)


def test_the_active_is_asked_wherever_it_is(job: CountingJob) -> None:
    assert job.standfast("get", NAME, STORE, "key 3") == "4\n"
    (answer,) = get(job, "key 3")["answers"]
    active = job.replica(0, active=True)
    assert (answer["partition"], answer["role"], answer["value"]) == (0, "active", "4")
    assert (answer["container"], answer["copy"], answer["lag_ms"]) == (active.container, active.copy, 0)
    assert (
        job.standfast("get", NAME, STORE, b"only".hex(), "--key-format", "hex", "--value-format", "hex")
        == "31\n"
    )
    assert get(job, "only", "--partition", "1")["answers"][0]["value"] == "1"
    # Where the rule says that it is, and where it is not.
    place = PARTITIONERS["murmur2"](b"only", 2)
    found = job.standfast("get", NAME, STORE, "only", "--partitioner", "murmur2", status=None)
    assert (found == "1\n") == (place == 1)


def fresh(job: CountingJob) -> list[Any]:
    """Return the answers of standbys, once they have all that came."""
    found = get(job, "key 3", "--partition", "0", "--standby", "--max-lag-ms", "10000")["answers"]
    return [each for each in found if each["value"] == "4"]


def test_a_standby_says_how_far_behind_it_may_be(job: CountingJob) -> None:
    standby = job.replica(0, active=False)
    (answer,) = soon(lambda: fresh(job), "a standby that has it")
    assert (answer["role"], answer["container"]) == ("standby", standby.container)
    assert 0 <= answer["lag_ms"] <= 10_000


def test_what_cannot_be_found_has_a_status_of_its_own(job: CountingJob) -> None:
    assert "no such key" in job.standfast("get", NAME, STORE, "never", status=1)
    assert "no store nope" in job.standfast("get", NAME, "nope", "k", status=2)
    assert "has no task 7" in job.standfast("get", NAME, STORE, "k", "--partition", "7", status=2)
    assert "there is no job" in job.standfast("get", "nobody", STORE, "k", "--cluster", NAME, status=2)
    assert "no credentials of cluster nobody" in job.standfast("get", "nobody", STORE, "k", status=2)


def test_whoever_has_no_credentials_is_not_answered(job: CountingJob) -> None:
    with session(job.cluster, NAME) as zookeeper:
        container = zookeeper.registry.containers()[0]
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    ours = keyring(job.cluster, NAME).keys.client_context()
    ours.check_hostname = False
    containers = keys_of(PeerRole.CONTAINER, keyring(job.cluster, NAME)).client_context()
    containers.check_hostname = False
    assert _answer(container, ours).startswith(b"HTTP/1.1 200")
    assert _answer(container, containers).startswith(b"HTTP/1.1 403"), (
        "containers take copies, and ask nothing"
    )
    assert not _answer(container, stranger).startswith(b"HTTP/")
    assert not _answer(container, None).startswith(b"HTTP/")


def _answer(container: ContainerRecord, context: ssl.SSLContext | None) -> bytes:
    """Return what a client reads that speaks TLS like this, or none; nothing when it is hung up on."""
    request = f"GET /state/{NAME}/{STORE}?key=only HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    try:
        plain = socket.create_connection((container.host, container.peer_port), timeout=PATIENCE_SECONDS)
        with plain if context is None else context.wrap_socket(plain) as line:
            line.sendall(request)
            return line.recv(100)
    except OSError:
        return b""


def test_a_stopped_active_that_wakes_up_is_not_believed(job: CountingJob) -> None:
    former = job.replica(0, active=True)
    epoch = get(job, "key 3", "--partition", "0")["answers"][0]["epoch"]
    job.send(former, signal.SIGSTOP)
    try:
        job.wait(lambda status: _active_of(status) != former.copy, "a successor")
        after = get(job, "key 3", "--partition", "0", "--timeout", "30")["answers"][0]
        assert (after["value"], after["copy"] != former.copy, after["epoch"] > epoch) == ("4", True, True)
        job.produce(0, [(b"key 3", b"again")])
    finally:
        job.send(former, signal.SIGCONT)
    # From here on the former active may be a standby, may still take itself for the active, or be gone.
    deadline = time.monotonic() + PATIENCE_SECONDS
    seen: list[str] = []
    while not seen or seen[-1] != "5":
        assert time.monotonic() < deadline, seen
        found = json.loads(job.standfast("get", NAME, STORE, "key 3", "--json", "--timeout", "30"))["answers"]
        seen += [each["value"] for each in found]
        assert all(each["epoch"] > epoch for each in found)
    job.assert_exact()


def _active_of(status: Status) -> int | None:
    return next(each.active for each in status.tasks if each.partition == 0)
