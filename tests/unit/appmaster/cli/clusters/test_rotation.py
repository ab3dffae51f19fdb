"""A rotation's steps: at every moment any two processes of the cluster talk to each other, wherever it breaks off."""

from __future__ import annotations

import math
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from appmaster.adapters.credentials import keyring
from appmaster.adapters.credentials.authority import new_authority
from appmaster.adapters.credentials.keyring import Keyring
from appmaster.adapters.credentials.processes import ClusterProcess, handshake_failure
from appmaster.cli.clusters.rotation import rotate
from appmaster.cli.main import main
from appmaster.cli.shared.deadline import Deadline
from standby.adapters.peers.server import PeerServer
from standby.adapters.tls import TlsCredentials
from standby.errors import StandfastError
from standby.security.credentials import Credentials
from standby.shared.peers import PeerAnswer
from standby.shared.roles import PeerRole
from tests.fakes.certificates import new_keyring
from tests.fakes.clock import WaitClock


class BrokenOff(Exception):
    """The command was ended."""


@dataclass
class Cluster:
    """Real servers, which hear of what is given out when the test lets them."""

    ring: Keyring
    published: dict[PeerRole, Credentials] = field(default_factory=dict)
    servers: dict[ClusterProcess, tuple[PeerServer, TlsCredentials]] = field(default_factory=dict)
    deaf: set[ClusterProcess] = field(default_factory=set)
    #: Gives out so many times before it is ended.
    left: int = 6
    #: What came of each handshake: the same comes of it whichever processes of those roles are at it.
    met: dict[tuple[str, ...], str] = field(default_factory=dict)

    def start(self, role: PeerRole, name: str) -> ClusterProcess:
        """Start a process as YARN does: with what the submit gave out, and then what is given out."""
        keys = TlsCredentials(BEGIN[self.ring.directory][role])
        server = PeerServer("127.0.0.1", keys)
        server.start({"test": lambda _: PeerAnswer(200, b"yes", "text/plain")})
        process = ClusterProcess(role, name, "127.0.0.1", server.port)
        self.servers[process] = server, keys
        self.hear(process)
        return process

    def hear(self, process: ClusterProcess) -> None:
        given = self.published.get(process.role)
        if given is not None:
            self.servers[process][1].renew(given)

    def talk(self, process: ClusterProcess, shown: Credentials) -> str:
        """Return why a process does not talk to a peer that shows and trusts this, tried over TLS once for all."""
        there = self.servers[process][1].now
        pair = (process.role.value, there.trust, there.certificate, shown.trust, shown.certificate)
        if pair not in self.met:
            self.met[pair] = handshake_failure(process, shown)
        return self.met[pair]

    def given(self, role: PeerRole) -> Credentials | None:
        return self.published.get(role)

    def give(self, role: PeerRole, credentials: Credentials) -> None:
        self.left -= 1
        if self.left < 0:
            raise BrokenOff
        self.published[role] = credentials

    def running(self) -> tuple[ClusterProcess, ...]:
        return tuple(self.servers)

    def one_hears(self, chance: random.Random) -> None:
        """Have any one process hear, and see that all still talk to each other."""
        late = [
            each
            for each, (_, keys) in self.servers.items()
            if each not in self.deaf
            and (given := self.published.get(each.role)) is not None
            and keys.now.number < given.number
        ]
        if late:
            heard = chance.choice(late)
            self.hear(heard)
            self.assert_talks(heard)

    def assert_talks(self, one: ClusterProcess) -> None:
        """Fail unless a process talks to all others, and they to it."""
        for other in self.servers:
            for from_, to in ((one, other), (other, one)):
                assert self.talk(to, self.servers[from_][1].now) == "", f"{from_} and {to}"

    def assert_all_talk(self) -> None:
        for each in self.servers:
            self.assert_talks(each)

    def rotate(self, deadline: Deadline) -> int:
        giving: Any = self
        return rotate(self.ring, giving, self.running, self.talk, lambda _: None, deadline)

    def close(self) -> None:
        for server, _ in self.servers.values():
            server.close()


#: What processes begin with for the life of their application, by the keyring's directory.
BEGIN: dict[object, dict[PeerRole, Credentials]] = {}


@contextmanager
def cluster_of(ring: Keyring) -> Iterator[Cluster]:
    made = Cluster(ring)
    BEGIN[ring.directory] = {role: ring.credentials(role) for role in PeerRole}
    for role, name in ((PeerRole.MASTER, "m1"), (PeerRole.CONTAINER, "c1"), (PeerRole.CONTAINER, "c2")):
        made.start(role, name)
    yield made
    made.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(new_keyring()) as made:
        yield made


@pytest.fixture
def expired(monkeypatch: pytest.MonkeyPatch) -> Keyring:
    with monkeypatch.context() as back_then:
        back_then.setattr(keyring, "new_authority", partial(new_authority, days=0))
        return new_keyring()


def test_all_talk_to_each_other_at_every_moment_and_it_goes_on_where_it_broke_off(cluster: Cluster) -> None:
    chance = random.Random(1)
    former = cluster.ring.credentials(PeerRole.OPERATOR)
    in_time = Deadline(math.inf, WaitClock(lambda: cluster.one_hears(chance)))

    for breaks_off_after in range(6):
        cluster.left = breaks_off_after
        with pytest.raises(BrokenOff):
            cluster.rotate(in_time)
        if breaks_off_after % 2:
            cluster.one_hears(chance)
    cluster.left = 6
    number = cluster.rotate(in_time)
    assert cluster.ring.number == number
    present = cluster.ring.credentials(PeerRole.OPERATOR)
    # One that YARN starts now begins with what the submit gave out.
    cluster.start(PeerRole.CONTAINER, "c3")
    cluster.assert_all_talk()
    for process in cluster.running():
        assert handshake_failure(process, present) == ""
        assert "certificate" in handshake_failure(process, former).lower()
        assert handshake_failure(process, Credentials(1, present.trust, former.certificate, former.key)) != ""


def test_one_that_does_not_follow_is_named_and_stays_reachable(cluster: Cluster) -> None:
    late = next(each for each in cluster.running() if each.name == "c2")
    cluster.deaf.add(late)
    chance = random.Random(1)
    clock = WaitClock(lambda: cluster.one_hears(chance))
    with pytest.raises(StandfastError, match=r"not true yet: every process trusts .* c2 on 127\.0\.0\.1: "):
        cluster.rotate(Deadline(120.0, clock))
    cluster.left = 6
    cluster.assert_all_talk()
    assert handshake_failure(late, cluster.ring.credentials(PeerRole.OPERATOR)) == ""
    cluster.servers.pop(late)[0].close()
    cluster.rotate(Deadline(120.0, clock))
    cluster.assert_all_talk()


def test_expired_credentials_are_replaced_while_processes_run(expired: Keyring) -> None:
    with cluster_of(expired) as cluster:
        for each in cluster.running():
            assert "expired" in handshake_failure(each, expired.credentials(PeerRole.OPERATOR))

        def all_hear() -> None:
            for each in cluster.running():
                cluster.hear(each)

        cluster.rotate(Deadline(5.0, WaitClock(all_hear)))
        cluster.assert_all_talk()


def test_expired_credentials_of_a_cluster_that_was_deleted_are_replaced(
    expired: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(keyring.VARIABLE, str(expired.directory.parent))
    gone = nullcontext(SimpleNamespace(tree=SimpleNamespace(exists=lambda: False)))
    monkeypatch.setattr("appmaster.cli.clusters.credentials.open_zookeeper", lambda _: gone)
    command = ["credentials", "rotate", "tests", "--zookeeper", "zk1:2181"]
    assert main(command) == 0
    assert (expired.number, expired.expiry_warning()) == (2, "")
    assert main(command) == 2, "a name that is wrong, for all that is known"


def test_a_process_that_says_nothing_has_not_followed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appmaster.adapters.credentials.processes._SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = ClusterProcess(PeerRole.MASTER, "m", "127.0.0.1", silent.getsockname()[1])
        assert "TimeoutError" in handshake_failure(process, cluster.ring.credentials(PeerRole.OPERATOR))


def test_a_role_is_asked_for(cluster: Cluster) -> None:
    container = next(each for each in cluster.running() if each.role is PeerRole.CONTAINER)
    pretender = ClusterProcess(PeerRole.MASTER, "m", container.host, container.port)
    said = handshake_failure(pretender, cluster.ring.credentials(PeerRole.OPERATOR))
    assert ssl.SSLCertVerificationError.__name__ in said
