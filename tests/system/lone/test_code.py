"""Code among candidates, on a real ZooKeeper and over real TLS (after Storm's Nimbus)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

from appmaster.adapters.credentials.keyring import VARIABLE
from appmaster.adapters.zookeeper.code import tombstone
from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.api.client import ClusterClient
from appmaster.cli.launch.code import deliver
from appmaster.records import JobRecord, encode
from standby.adapters.peers.code import PeerCode
from standby.adapters.peers.code_reader import CodeReader
from standby.adapters.zookeeper.reader import ANSWER_SECONDS, ZooKeeperReader
from standby.code import bundles
from standby.code.bundles import LEFT_BYTES, Bundle
from standby.errors import BadConfiguration, CorruptState, Fenced, Transient, Unavailable
from standby.shared.clock import REAL, Clock
from standby.shared.naming import code_path, code_source_path, job_path
from standby.shared.roles import PeerRole
from standby.shared.wire import JobDefinition
from tests.fakes.candidates import CodeCandidate
from tests.fakes.certificates import keys_of, user_directory
from tests.fakes.clock import HandClock, held
from tests.fakes.jobs import JOB, job_config
from tests.fakes.zookeeper import LoneZooKeeper, record_job
from tests.patience import LOOK_SECONDS, PATIENCE_SECONDS, soon


def bundle(text: str, size: int = 700_000) -> tuple[str, bytes]:
    data = (text.encode() * (size // len(text) + 1))[:size]
    return bundles.digest_of(data), data


ONE, TWO = bundle("one "), bundle("two ")

#: Of a clock that is held; less than any delay of a candidate here.
STEP_SECONDS = 5 * LOOK_SECONDS

Make = Callable[..., CodeCandidate]


@pytest.fixture
def make(server: LoneZooKeeper, zookeeper: ZooKeeper, name: str, tmp_path: Path) -> Iterator[Make]:
    made: list[CodeCandidate] = []

    def make(
        candidate: str,
        *bundles: tuple[str, bytes],
        sync_seconds: float = 0.5,
        gate: threading.Event | None = None,
        clock: Clock = REAL,
    ) -> CodeCandidate:
        disk = tmp_path / candidate
        disk.mkdir(exist_ok=True)
        for digest, data in bundles:
            (disk / digest).write_bytes(data)
        made.append(CodeCandidate(candidate, server.connect, name, disk, sync_seconds, gate, clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


def put(zookeeper: ZooKeeper, job: str, code: str, activated: int = 0) -> None:
    config = {**JOB, "job.name": job}
    definition = JobDefinition(job, "run1", config, "changelog", "group", 1, code=code)
    record_job(zookeeper, JobRecord(definition, activated=activated))


def recorded(zookeeper: ZooKeeper, job: str) -> JobRecord:
    record = zookeeper.jobs.read(job)
    assert record is not None
    return record


def in_time(clock: HandClock, is_so: Callable[[], object], what: str) -> None:
    """Wait for what comes with time, which passes only at each look: a test that stands still misses nothing."""

    def look() -> object:
        clock.advance(STEP_SECONDS)
        return is_so()

    soon(look, what)


def test_survivors_with_different_halves_decline_exchange_and_one_leads(
    make: Make, zookeeper: ZooKeeper
) -> None:
    """Three candidates, the leader is lost for good, each survivor has half of the code."""
    put(zookeeper, "j1", ONE[0], activated=1)
    put(zookeeper, "j2", TWO[0], activated=1)
    leader = make("a", ONE, TWO, sync_seconds=30)
    assert leader.stand() == 1
    gate = threading.Event()
    b = make("b", ONE, sync_seconds=30, gate=gate)
    c = make("c", TWO, sync_seconds=30, gate=gate)
    leader.close()
    assert b.stand() is None
    assert c.stand() is None
    assert [b.service.may_lead(), c.service.may_lead()] == [(TWO[0],), (ONE[0],)]
    gate.set()
    soon(lambda: not b.service.may_lead() and not c.service.may_lead(), "the halves are exchanged")
    assert b.stand() == 2
    assert (b.disk / TWO[0]).read_bytes() == TWO[1]
    assert (c.disk / ONE[0]).read_bytes() == ONE[1]


def test_a_candidate_with_an_empty_disk_fetches_everything_first_and_deletes_nothing(
    make: Make, zookeeper: ZooKeeper
) -> None:
    """It may lead only with the code of every active revision, and deletes none that a job may name."""
    put(zookeeper, "j1", ONE[0], activated=1)
    a = make("a", ONE, TWO)
    soon(lambda: TWO[0] in zookeeper.code.names(), "what no job names is announced too")
    new = make("new")
    soon(lambda: {ONE[0], TWO[0]} <= new.service.view.held, "everything is fetched")
    assert new.service.may_lead() == ()
    assert sorted(each.name for each in new.disk.iterdir()) == sorted([ONE[0], TWO[0]])
    assert {ONE[0], TWO[0]} <= {each.name for each in a.disk.iterdir()}
    put(zookeeper, "j2", bundle("three ")[0], activated=1)
    lacked = new.service.may_lead()
    assert lacked == (bundle("three ")[0],), "a job that was activated just now is counted"


def test_a_job_whose_code_is_nowhere_does_not_keep_candidates_from_leading_for_ever(
    make: Make, zookeeper: ZooKeeper
) -> None:
    put(zookeeper, "j1", ONE[0], activated=1)
    put(zookeeper, "lost", TWO[0], activated=1)
    # Not before it has been asked may the time be over.
    clock = held()
    a, b = make("a", ONE, clock=clock), make("b", clock=clock)
    assert a.stand() is None
    in_time(clock, lambda: not a.service.may_lead() and not b.service.may_lead(), "after twice the sync time")
    assert list(a.service.quarantined()) == ["lost"]
    assert TWO[0] in a.service.quarantined()["lost"].why
    assert b.stand() == 1
    # It returns, and with it the job.
    make("c", TWO)
    in_time(clock, lambda: not a.service.quarantined() and not b.service.quarantined(), "the code is back")


def test_an_upload_is_taken_up_spread_and_goes_on_where_it_broke_off(
    make: Make, zookeeper: ZooKeeper
) -> None:
    a, b = make("a"), make("b")
    client = PeerCode(keys_of(PeerRole.OPERATOR).client_context)
    digest, data = ONE

    def break_off(size: int) -> None:
        if size >= 500_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.upload(digest, data, a.me, break_off)
    begun = a.store.size(digest)
    assert 0 < begun < len(data)
    told: list[int] = []
    client.upload(digest, data, a.me, told.append)
    assert told[0] == begun, "the first answer says how much is there"
    soon(lambda: digest in b.service.view.held, "the other one fetches it")
    assert (b.disk / digest).read_bytes() == data
    assert client.read(digest, b.me) == data
    with pytest.raises(CorruptState, match="another checksum"):
        client.upload(TWO[0], b"something else", a.me, told.append)
    assert a.store.size(TWO[0]) == 0


class Client:
    """A cluster's client as far as delivering code goes: the candidates that are said to be there, and ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper, *candidates: CodeCandidate) -> None:
        self.zookeeper = zookeeper
        self.cluster = "j1"
        self._candidates = candidates

    def info(self) -> dict[str, Any]:
        if not self._candidates:
            raise Unavailable("no candidate answers")
        found = [
            {"candidate": each.name, "host": each.me.host, "peer_port": each.me.port, "is_leader": leads}
            for each, leads in zip(self._candidates, (False, True, False), strict=False)
        ]
        return {"candidates": found}


def test_code_is_delivered_to_the_leader_else_to_another_candidate_and_small_code_to_zookeeper(
    make: Make, zookeeper: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(user_directory(tmp_path / "credentials", "j1")))
    config = job_config(job__name="j1")
    # Neither fetches from the other, so it shows which was given what.
    a, b = (make(each, gate=threading.Event()) for each in ("a", "b"))
    said: list[str] = []
    deliver(Bundle(*ONE), config, cast("ClusterClient", Client(zookeeper, a, b)), said.append)
    assert (a.store.has(ONE[0]), b.store.has(ONE[0])) == (False, True)
    assert said[-1] == "uploading the code: 683 of 683 KiB"
    b.close()
    deliver(Bundle(*TWO), config, cast("ClusterClient", Client(zookeeper, a, b)), said.append)
    assert a.store.has(TWO[0])
    assert any("refused" in each for each in said)
    assert zookeeper.code.has(TWO[0]), "for the time when every candidate is lost"
    large = Bundle(*bundle("large ", LEFT_BYTES + 1))
    deliver(large, config, cast("ClusterClient", Client(zookeeper, a)), said.append)
    assert a.store.has(large.digest)
    assert not zookeeper.code.has(large.digest)
    with pytest.raises(BadConfiguration, match="too much for ZooKeeper"):
        deliver(large, config, cast("ClusterClient", Client(zookeeper)), said.append)
    small = Bundle(*bundle("small "))
    deliver(small, config, cast("ClusterClient", Client(zookeeper)), said.append)
    assert zookeeper.code.has(small.digest)


def test_a_fetch_goes_on_from_another_holder_and_tries_the_dead_first_listed_too(
    make: Make, tmp_path: Path
) -> None:
    a = make("a", ONE)
    gone = make("gone")
    gone.close()
    part = tmp_path / "part"
    part.write_bytes(ONE[1][:300_000])
    PeerCode(keys_of(PeerRole.OPERATOR).client_context).fetch(ONE[0], [gone.me, a.me], part)
    assert part.read_bytes() == ONE[1]
    part.unlink()
    with pytest.raises(Transient, match=r"gone at .*refused"):
        PeerCode(keys_of(PeerRole.OPERATOR).client_context).fetch(ONE[0], [gone.me], part)


def test_what_a_submit_left_in_zookeeper_is_fetched_and_damage_is_mended(
    make: Make, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    zookeeper.code.put(*ONE)
    put(zookeeper, "j1", ONE[0])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ONE[0]).write_bytes(b"damaged")
    (tmp_path / "a" / f"{ONE[0]}.part").write_bytes(b"of another file")
    a = make("a")
    assert a.stand() == 1
    soon(lambda: recorded(zookeeper, "j1").activated == 1, "one source is enough by default")
    assert (a.disk / ONE[0]).read_bytes() == ONE[1]


def test_a_container_reads_code_from_any_holder_and_else_what_a_submit_left(
    make: Make, zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    reader = CodeReader(
        ZooKeeperReader(client, name, ANSWER_SECONDS), keys_of(PeerRole.CONTAINER).client_context
    )
    with pytest.raises(BadConfiguration, match="submit the job's code again"):
        reader.read_code(ONE[0])
    a, b = make("a", ONE), make("b")
    soon(lambda: ONE[0] in b.service.view.held, "both hold it")
    soon(lambda: len(client.get_children(code_path(name, ONE[0]))) == 2, "both say so")
    assert reader.read_code(ONE[0]) == ONE[1]
    # One whose disk has gone bad, and one whose process is gone but not yet its registration.
    (a.disk / ONE[0]).write_bytes(b"rotten")
    for _ in range(6):
        assert reader.read_code(ONE[0]) == ONE[1]
    b.peers.close()
    with pytest.raises(Transient, match="refused"):
        reader.read_code(ONE[0])
    zookeeper.code.put(*ONE)
    assert reader.read_code(ONE[0]) == ONE[1]


def test_code_that_no_job_has_named_for_long_is_marked_then_goes_and_comes_back_when_it_is_asked_for_again(
    make: Make, zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    # Each state lasts for the delay, and has to be seen.
    clock = held()
    a, b = (make(each, ONE, TWO, clock=clock) for each in ("a", "b"))
    zookeeper.code.put(*ONE)
    put(zookeeper, "j2", TWO[0], activated=1)
    soon(lambda: TWO[0] in zookeeper.code.names(), "both are announced")
    assert a.stand() == 1
    in_time(clock, lambda: ONE[0] in a.service.view.deleted_since, "after the delay it is marked")
    assert a.store.has(ONE[0])
    # A job names this one: the tombstone is a mistake, and stays without effect.
    client.set(code_path(name, TWO[0]), encode(tombstone()))
    in_time(
        clock, lambda: not a.store.has(ONE[0]) and not b.store.has(ONE[0]), "after the delay again it goes"
    )
    in_time(clock, lambda: not zookeeper.code.has(ONE[0]), "and with it what was left in ZooKeeper")
    assert a.store.has(TWO[0])
    assert b.store.has(TWO[0])
    PeerCode(keys_of(PeerRole.OPERATOR).client_context).upload(*TWO, b.me, lambda _: None)
    soon(lambda: TWO[0] in zookeeper.code.names(), "an upload takes the tombstone away")
    PeerCode(keys_of(PeerRole.OPERATOR).client_context).upload(*ONE, b.me, lambda _: None)
    soon(lambda: ONE[0] in a.service.view.held, "asked for again, it spreads again")


def test_no_candidate_condemns_what_a_job_names_now_or_under_an_old_epoch(
    make: Make, zookeeper: ZooKeeper, client: KazooClient, name: str
) -> None:
    # The candidate itself would mark what no job has named for some time.
    a = make("a", ONE, clock=held())
    assert a.stand() == 1
    soon(lambda: ONE[0] in zookeeper.code.names(), "it is announced")
    directory = a.service.directory
    # Seen by ZooKeeper, and perhaps not yet by this candidate.
    put(zookeeper, "j1", ONE[0])
    directory.condemn(ONE[0], 1)
    assert ONE[0] in zookeeper.code.names()
    client.set(job_path(name, "j1"), b"of a later version")
    with pytest.raises(BadConfiguration):
        directory.condemn(ONE[0], 1)
    client.delete(job_path(name, "j1"), recursive=True)
    with pytest.raises(Fenced):
        directory.condemn(ONE[0], 0)
    assert ONE[0] in zookeeper.code.names()
    directory.condemn("0" * 64, 1)
    directory.condemn(ONE[0], 1)
    assert ONE[0] not in zookeeper.code.names()


def test_a_deposed_leader_activates_nothing_and_hears_of_it(make: Make, zookeeper: ZooKeeper) -> None:
    a = make("a", ONE)
    assert a.stand() == 1
    leader = zookeeper.election.controller()
    b = make("b", TWO)
    assert leader is not None
    assert b.zookeeper.election.lead(leader, depose=leader) == 2
    put(zookeeper, "j1", ONE[0])
    soon(lambda: a.resigned, "the write is refused")
    assert recorded(zookeeper, "j1").activated == 0
    with pytest.raises(Fenced):
        a.service.directory.activate("j1", recorded(zookeeper, "j1").definition.run, 1, epoch=1)


def test_a_bundle_is_announced_again_after_the_session_was_lost(
    make: Make, zookeeper: ZooKeeper, server: LoneZooKeeper, client: KazooClient, name: str
) -> None:
    a = make("a", ONE)
    soon(lambda: ONE[0] in zookeeper.code.names(), "it is announced")
    before = a.client.client_id
    thief = KazooClient(server.connect, client_id=before)
    thief.start(timeout=PATIENCE_SECONDS)
    # Closing it ends the session for both.
    thief.stop()
    thief.close()
    path = code_source_path(name, ONE[0], "a")

    def is_announced() -> bool:
        stat = client.exists(path)
        return stat is not None and stat.ephemeralOwner not in (0, before[0])

    soon(is_announced, "announced by the new session")
