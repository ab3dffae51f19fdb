"""ZooKeeper's troubles, on an ensemble of three: candidates keep their leader, containers keep working.

The candidates are real processes with their supervisor, and so is the container; it has a kernel that does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from standby.cluster import ClusterConfig
from standby.errors import StandfastError
from standby.shared.naming import container_path
from standby.shared.roles import PeerRole
from standby.shared.wire import Heartbeat
from tests.fakes.candidate_process import CandidateProcess
from tests.fakes.certificates import keys_of, shared_keyring
from tests.fakes.leader import ScriptedLeader, Session
from tests.patience import TRY_SECONDS, soon
from tests.servers.ensemble import Ensemble
from tests.system.lone.test_container_process import CONTAINER, Stage, metric

#: A third of it is left for another server when one falls silent: a busy machine takes seconds for that.
SESSION_MS = 12_000
#: Longer than a session.
AWAY_SECONDS = 1.25 * SESSION_MS / 1000
CLUSTER = "ensemble"


@dataclass(frozen=True)
class Standing:
    """Which candidate leads under which epoch, and which lives of which candidates there are."""

    leader: str
    epoch: int
    candidates: frozenset[tuple[int, str]]


class Play:
    """Two candidates of one cluster and a container of another, with one ensemble."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "zookeeper").mkdir()
        self.ensemble = Ensemble(directory / "zookeeper")
        self.masters = [
            CandidateProcess(
                directory / f"cell-{number}",
                ClusterConfig(
                    CLUSTER,
                    self.ensemble.connect,
                    cell=number,
                    zookeeper_session_ms=SESSION_MS,
                    kafka_bootstrap="127.0.0.1:1",
                ),
            )
            for number in (1, 2)
        ]
        self._changes = 0
        self._open = ExitStack()
        self.session: Session

    def __enter__(self) -> Play:
        try:
            self._enter()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _enter(self) -> None:
        self._open.enter_context(self.ensemble)
        with self.observer() as zookeeper:
            zookeeper.tree.prepare()
            for each in self.masters:
                each.record(zookeeper)
                self._open.callback(self._end, each)
                each.start()
        (self._directory / "container").mkdir()
        self.stage = Stage(self.ensemble, self._directory / "container", "container")
        self._open.callback(self.stage.close)
        self.leader = self._open.enter_context(ScriptedLeader(keys_of(PeerRole.MASTER)))
        self.stage.announce(self.leader)
        # While it has its leader, it is no orphan, however long ZooKeeper is away.
        self.process = self.stage.container(session_ms=SESSION_MS, orphan_ms=SESSION_MS)
        self._open.callback(lambda: print(f"---- container\n{self.process.text()[-4_000:]}"))
        self.session = self.leader.session()
        soon(lambda: len(self.standing().candidates) == 2 and self.standing().leader, "two candidates")

    @staticmethod
    def _end(master: CandidateProcess) -> None:
        master.kill()
        print(f"---- master of cell {master.number}\n{master.text[-6_000:]}")

    def observer(self) -> ZooKeeper:
        return ZooKeeper(self.ensemble.connect, CLUSTER)

    def standing(self) -> Standing:
        """Return how the cluster stands; there is no leader while ZooKeeper is silent."""
        try:
            with self.observer() as zookeeper:
                leader = zookeeper.election.controller()
                found = frozenset((each.life, each.candidate) for each in zookeeper.registry.candidates())
        except StandfastError:
            leader, found = None, frozenset()
        return Standing(leader.candidate if leader else "", leader.epoch if leader else 0, found)

    def server_of(self, candidate: str) -> int:
        """Return the ZooKeeper server that a candidate is connected to, as soon as it is to one."""
        found: list[int] = []

        def is_found() -> bool:
            try:
                with self.observer() as zookeeper:
                    stat = zookeeper.client.exists(f"/standfast/{CLUSTER}/candidates/{candidate}")
                    found.append(self.ensemble.server_of(stat.ephemeralOwner))
            except StandfastError:
                return False
            return True

        soon(is_found, f"the server of {candidate}")
        return found[0]

    def leave(self, number: int) -> None:
        """Wait until the session of each candidate and of the container is at another server than this one."""

        def have_left() -> bool:
            try:
                with self.observer() as zookeeper:
                    candidates = [each.candidate for each in zookeeper.registry.candidates()]
                    paths = [f"/standfast/{CLUSTER}/candidates/{each}" for each in candidates]
                    stats = [
                        zookeeper.client.exists(each)
                        for each in (*paths, container_path(self.stage.name, CONTAINER))
                    ]
                    for stat in stats:
                        self.ensemble.server_of(stat.ephemeralOwner if stat else 0, but=number)
            except StandfastError:
                return False
            return True

        soon(have_left, f"every session has left server {number}")

    def part(self) -> tuple[str, str]:
        """Have the candidates talk to two servers, the leader to one that follows; return leader and waiting one."""
        while True:
            with self.observer() as zookeeper:
                records = {each.candidate: each for each in zookeeper.registry.candidates()}
            leader = self.standing().leader
            (other,) = records.keys() - {leader}
            home = self.server_of(leader)
            if home == self.ensemble.leader():
                self.ensemble.kill(home)
                self.ensemble.start(home)
            elif home == self.server_of(other):
                (waiting,) = (each for each in self.masters if each.number == records[other].cell)
                waiting.kill()
                soon(lambda: len(self.standing().candidates) == 1, "one candidate")
                waiting.start()
                soon(lambda: len(self.standing().candidates) == 2, "two candidates")
            else:
                return leader, other

    def assert_leads(self) -> None:
        """Fail unless a change of what is desired is made: a leader leads, and its writes are taken."""
        self._changes += 1

        def is_made() -> bool:
            try:
                with ClusterClient(CLUSTER, self.ensemble.connect, shared_keyring()) as client:
                    asked = client.queue("drain", hosts=[f"host-{self._changes}"], reason="a test")
                    client.result(asked, TRY_SECONDS)
            except StandfastError:
                return False
            return True

        soon(is_made, "a change is made")

    def is_container_connected(self) -> float:
        """Return what the container's metric says of its connection to ZooKeeper."""
        return metric(self.session.hello, "standfast_is_zookeeper_connected")

    def assert_container_works(self) -> None:
        """Fail unless the container's process and its present stream to the leader go on."""
        seen = len(self.session.received)
        self.session.wait_for(Heartbeat, after=seen)
        assert not self.session.is_over.is_set()
        assert self.process.popen.poll() is None


@pytest.fixture(scope="module")
def long_play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    with Play(tmp_path_factory.mktemp("ensemble")) as play:
        yield play


@pytest.fixture
def play(long_play: Play) -> Iterator[Play]:
    """All servers serve when a test begins, however the one before has ended."""
    yield long_play
    long_play.ensemble.resume()
    long_play.ensemble.start()


def lose_follower(play: Play) -> None:
    play.ensemble.kill(play.ensemble.follower())


def lose_leader(play: Play) -> None:
    play.ensemble.kill(play.ensemble.leader())


def hold_all_briefly(play: Play) -> None:
    play.ensemble.pause()
    time.sleep(SESSION_MS / 3000)
    play.ensemble.resume()


TROUBLES: dict[str, Callable[[Play], None]] = {
    "a follower is lost": lose_follower,
    "its leader is lost": lose_leader,
    "away for less than the session": hold_all_briefly,
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_trouble_that_changes_nothing(play: Play, trouble: Callable[[Play], None]) -> None:
    before, registered = play.standing(), play.stage.czxid()
    trouble(play)
    play.assert_leads()
    play.assert_container_works()
    play.ensemble.start()
    assert play.standing() == before, "the same leader under the same epoch, and no candidate has begun anew"
    assert play.stage.czxid() == registered


def test_a_leader_whose_server_hangs_goes_to_another_or_is_succeeded_by_one_that_has(play: Play) -> None:
    """It leaves no beat for some seconds; which is quicker depends on how busy the machine is."""
    leader, other = play.part()
    before, registered = play.standing(), play.stage.czxid()
    number = play.server_of(leader)
    play.ensemble.pause(number)
    play.leave(number)
    play.assert_leads()
    play.assert_container_works()
    play.ensemble.resume(number)
    soon(
        lambda: len(play.standing().candidates) == 2 and play.standing().leader, "a leader of two candidates"
    )
    after = play.standing()
    assert (after.leader, after.epoch) in ((leader, before.epoch), (other, before.epoch + 1))
    assert play.stage.czxid() == registered


def test_all_servers_stand_still_for_longer_than_the_session(play: Play) -> None:
    """Sessions may end with it; then candidates begin anew and the container registers anew, and goes on working."""
    before = play.standing()
    play.ensemble.pause()
    time.sleep(AWAY_SECONDS)
    play.assert_container_works()
    assert play.is_container_connected() == 0
    play.ensemble.resume()
    play.ensemble.await_service()
    soon(play.is_container_connected, "it is connected again")
    play.assert_leads()
    soon(lambda: len(play.standing().candidates) == 2, "two candidates")
    if play.stage.czxid() != play.session.hello.incarnation:
        # Its process is the same; a new incarnation introduces itself anew.
        play.session = play.leader.session()
        assert play.stage.czxid() == play.session.hello.incarnation
    play.assert_container_works()
    after = play.standing()
    assert after.epoch >= before.epoch
    assert (after.leader == before.leader) == (after.epoch == before.epoch)


def test_everything_is_stopped_and_started_again_on_what_is_on_the_disks(play: Play) -> None:
    play.assert_leads()
    before = play.standing()
    with play.observer() as zookeeper:
        drained = zookeeper.changes.drained()
    for each in play.masters:
        each.kill()
    play.ensemble.kill()
    play.ensemble.start()
    for each in play.masters:
        each.start()
    play.assert_leads()
    soon(lambda: len({each[1] for each in play.standing().candidates}) >= 2, "two candidates")
    after = play.standing()
    assert after.epoch > before.epoch
    with play.observer() as zookeeper:
        found: dict[str, Any] = zookeeper.changes.drained()
    assert drained.items() < found.items(), "what was asked for before, and the change after"
    play.assert_container_works()
