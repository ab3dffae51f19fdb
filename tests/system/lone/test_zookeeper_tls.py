"""ZooKeeper over TLS, on a real server that wants a certificate: sessions, refusals, and a whole container."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appmaster.adapters.zookeeper.session import ZooKeeper
from appmaster.cli.main import main
from appmaster.records import CellRecord
from standby import ensemble
from standby.adapters.zookeeper.access import AS_IT_IS, owner_access
from standby.cluster import FILE, ClusterConfig, dump, load
from standby.ensemble import Tls
from standby.errors import BadConfiguration, Unavailable
from standby.shared.records import ControllerRecord
from tests.fakes.authorities import certificate_in, write_certificate
from tests.fakes.candidate_process import CandidateProcess
from tests.fakes.certificates import shared_keyring, user_directory
from tests.patience import soon
from tests.servers.secured import SecuredZooKeeper


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def tls(directory: Path) -> Tls:
    """What a client of the server is to have."""
    server = write_certificate(directory, "server")
    mine = str(write_certificate(directory, "mine", server))
    return Tls(str(certificate_in(server)), mine, mine)


@pytest.fixture(scope="module")
def server(directory: Path, tls: Tls) -> Iterator[SecuredZooKeeper]:
    with SecuredZooKeeper(directory, directory / "server.pem", Path(tls.ca)) as server:
        yield server


def test_a_session_leads_closes_its_tree_and_is_found_closed(server: SecuredZooKeeper, tls: Tls) -> None:
    access = owner_access("a secret", is_closed=True, tls=tls)
    with ZooKeeper(server.connect, "one", access=access) as session:
        session.tree.make_way()
        session.tree.prepare()
        assert session.cells.claim(1, CellRecord("application_1", "me"))
        assert session.election.lead(ControllerRecord("a", "127.0.0.11", 1, 0)) == 1
        assert session.tree.is_closed
    with pytest.raises(BadConfiguration, match="closed to these credentials"):
        ZooKeeper(server.connect, "one", access=replace(AS_IT_IS, tls=tls)).connect()


def test_client_or_server_without_a_certificate_of_the_authority_is_refused(
    server: SecuredZooKeeper, tls: Tls, tmp_path: Path
) -> None:
    other = write_certificate(tmp_path, "other")
    for unfit, said in (
        (None, ""),
        (Tls(tls.ca), ""),
        (Tls(tls.ca, str(other), str(other)), ""),
        (replace(tls, ca=str(certificate_in(other))), ".*CERTIFICATE_VERIFY_FAILED"),
    ):
        session = ZooKeeper(server.connect, "two", access=replace(AS_IT_IS, tls=unfit))
        with pytest.raises(Unavailable, match=f"no ZooKeeper server answers{said}"):
            session.connect(1.5)


def test_a_server_whose_certificate_is_for_another_host_is_not_talked_to(tls: Tls, tmp_path: Path) -> None:
    authority = Path(tls.certificate).with_name("server.pem")
    elsewhere = write_certificate(tmp_path, "elsewhere", authority, address="192.0.2.1")
    with SecuredZooKeeper(tmp_path, elsewhere, Path(tls.ca)) as server:
        session = ZooKeeper(server.connect, "four", access=replace(AS_IT_IS, tls=tls))
        with pytest.raises(Unavailable, match=r"no ZooKeeper server answers.*IP address mismatch"):
            session.connect(1.5)


def test_files_that_cannot_be_used_are_named(server: SecuredZooKeeper, tls: Tls, tmp_path: Path) -> None:
    for wrong in (replace(tls, ca=str(tmp_path / "absent")), replace(tls, key=tls.ca)):
        with pytest.raises(BadConfiguration, match="cannot be used for TLS with ZooKeeper"):
            ZooKeeper(server.connect, "five", access=replace(AS_IT_IS, tls=wrong))


def test_a_candidate_and_the_commands_use_it(
    server: SecuredZooKeeper,
    tls: Tls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = ClusterConfig("six", server.connect, kafka_bootstrap="127.0.0.1:1", zookeeper_tls=tls)
    (tmp_path / FILE).write_bytes(dump(config))
    assert load(tmp_path / FILE).zookeeper_tls == tls
    access = owner_access(shared_keyring().secret, tls=tls)
    candidate = CandidateProcess(tmp_path / "candidate", config)
    with ZooKeeper(server.connect, "six", access=access) as session:
        session.tree.make_way()
        session.tree.prepare()
        candidate.record(session)
        candidate.start()
        try:
            soon(lambda: session.registry.candidates() != (), "the candidate registers")
            monkeypatch.setenv("STANDFAST_CREDENTIALS", str(user_directory(tmp_path / "credentials", "six")))
            command = ["candidates", "six", "--zookeeper", server.connect]
            assert main(command) == 3, "the server is not talked to in clear"
            for name, value in zip(ensemble.KEYS.values(), (tls.ca, tls.certificate, tls.key), strict=True):
                monkeypatch.setenv(name, value)
            assert main(command) == 0
            assert "127.0.0.1" in capsys.readouterr().out
            monkeypatch.delenv(ensemble.KEY)
            assert main(command) == 2
            assert f"{ensemble.KEY}: missing" in capsys.readouterr().err
        finally:
            candidate.kill()
