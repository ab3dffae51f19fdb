"""An operator's credentials: made once, for each role, announced before they expire, and given to others in part."""

from __future__ import annotations

import datetime as dt
import errno
import itertools
import os
import shutil
import ssl
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509

from appmaster.adapters.credentials import keyring
from appmaster.adapters.credentials.authority import DAYS, issue, new_authority, skein_pair
from appmaster.adapters.credentials.certificates import EXPIRY, end_of, expiry_warning
from appmaster.adapters.credentials.keyring import VARIABLE, Keyring, make_sure, user_name
from appmaster.api.client import ClusterClient
from appmaster.cli.shared.yarn import as_security, skein_client
from standby.adapters.tls import TlsCredentials
from standby.adapters.zookeeper.access import AS_IT_IS, container_secret
from standby.errors import BadConfiguration, Unavailable
from standby.security.credentials import Credentials
from standby.shared.roles import Caller, PeerRole, caller_of_peer
from tests.fakes.certificates import keys_of, new_keyring, shared_keyring

NOW = dt.datetime.now(dt.timezone.utc)
CERTIFICATE = shared_keyring().credentials(PeerRole.OPERATOR).certificate.encode()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "credentials"))
    return tmp_path / "credentials"


def test_expiry_is_reported_when_it_is_near_and_by_a_metric() -> None:
    def told(now: dt.datetime) -> str:
        return expiry_warning(CERTIFICATE, Path("/s"), now)

    for days, said in ((0, ""), (300, ""), (330, "expire on"), (364, "expire on")):
        warning = told(NOW + dt.timedelta(days=days))
        assert said in warning
        assert bool(warning) == bool(said), days
    with pytest.raises(BadConfiguration, match=r"in /s expired on .*standfast credentials rotate"):
        told(NOW + dt.timedelta(days=DAYS + 1))
    ((_, value),) = EXPIRY.of(CERTIFICATE.decode()).values
    end = dt.datetime.fromtimestamp(value, dt.timezone.utc)
    assert end == end_of(CERTIFICATE)
    with pytest.raises(BadConfiguration, match="expired on"):
        told(end)


def test_each_role_has_a_certificate_of_its_own_and_containers_a_secret_of_their_own(root: Path) -> None:
    ring = make_sure("c")
    for role in PeerRole:
        found = x509.load_pem_x509_certificate(ring.credentials(role).certificate.encode())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [role.server_name]
    master, container = ring.bootstrap(PeerRole.MASTER), ring.bootstrap(PeerRole.CONTAINER)
    assert master.secret == ring.secret
    assert container.secret == container_secret(ring.secret) != ring.secret
    assert container.owner == master.owner
    assert "authority" not in container.credentials.key
    assert ring.credentials(PeerRole.CONTAINER).key != ring.credentials(PeerRole.MASTER).key


def test_they_are_made_once_and_for_their_user_alone(root: Path) -> None:
    with ThreadPoolExecutor(4) as together:
        made = list(together.map(make_sure, ["c"] * 4))
    assert len({each.secret for each in made}) == 1
    assert make_sure("other").secret != made[0].secret
    for each in root.rglob("*"):
        wanted = 0o700 if each.is_dir() else 0o600
        assert stat.S_IMODE(each.stat().st_mode) == wanted or each.name == ".lock", each


def test_a_certificate_ends_with_its_authority_at_last() -> None:
    authority = new_authority("c", days=2)
    leaf = issue(authority, PeerRole.MASTER, "c", days=30)
    assert end_of(leaf.certificate.encode()) == end_of(authority.certificate.encode())


def test_an_issued_keyring_names_its_operator_and_holds_nothing_else(root: Path, tmp_path: Path) -> None:
    ring = make_sure("c")
    issued = ring.issue("ann", tmp_path / "ann" / "c")
    assert not issued.is_whole
    names = {each.name for each in issued.directory.iterdir()}
    assert names == {"authority.crt", "number", "operator.crt", "operator.key"}
    context = issued.keys.client_context()
    assert isinstance(context, ssl.SSLContext)
    found = x509.load_pem_x509_certificate(issued.credentials(PeerRole.OPERATOR).certificate.encode())
    assert found.subject.rfc4514_string() == "CN=ann"
    for use in (lambda: issued.secret, lambda: issued.issue("eve", tmp_path / "eve"), issued.next):
        with pytest.raises(BadConfiguration, match="holds only an operator's certificate"):
            use()
    with pytest.raises(BadConfiguration, match="exists already"):
        ring.issue("ann", issued.directory)
    (tmp_path / "file").touch()
    with pytest.raises(BadConfiguration, match=r"file/c cannot be made: Not a directory"):
        ring.issue("ann", tmp_path / "file" / "c")


def test_no_keys_are_left_of_credentials_that_could_not_be_written(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = make_sure("c")
    written: list[Path] = []

    def write(path: Path, content: bytes) -> None:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        path.write_bytes(content)

    monkeypatch.setattr(keyring, "write_private", write)
    with pytest.raises(BadConfiguration, match="No space left"):
        ring.issue("ann", tmp_path / "ann" / "c")
    assert list((tmp_path / "ann").iterdir()) == []


def test_who_does_not_own_a_cluster_proves_nothing(root: Path) -> None:
    assert keyring.access_to("c") == AS_IT_IS
    make_sure("c")
    assert keyring.access_to("c").secret == make_sure("c").secret


def test_later_credentials_replace_earlier_ones_and_nothing_else_does(root: Path) -> None:
    ring = make_sure("c")
    keys, first = keys_of(PeerRole.CONTAINER, ring), ring.credentials(PeerRole.CONTAINER)
    server, client = keys.server_context(), keys.client_context()
    later = new_keyring("c").credentials(PeerRole.CONTAINER)
    assert not keys.renew(Credentials(first.number, later.trust, later.certificate, later.key))
    assert keys.server_context() is server
    with pytest.raises(BadConfiguration, match="credentials 2 of this cluster cannot be used"):
        keys.renew(Credentials(2, later.trust, later.certificate, first.key))
    assert keys.now == first
    assert keys.renew(Credentials(2, later.trust, later.certificate, later.key))
    assert keys.server_context() is not server
    assert keys.client_context() is not client


def test_a_rotation_goes_on_with_the_same_authority_until_it_is_finished(root: Path) -> None:
    ring = make_sure("c")
    before, secret = ring.authorities(), ring.secret
    following = ring.next()
    after = following.authorities()
    assert ring.next().authorities() == after != before
    # Meanwhile some show the one already, and others the other.
    assert ring.credentials(PeerRole.OPERATOR).trust == before + after
    assert ring.credentials(PeerRole.CONTAINER).trust == before
    ring.finish(4)
    assert (ring.authorities(), ring.number, ring.secret) == (after, 4, secret)
    assert ring.credentials(PeerRole.OPERATOR).trust == after
    assert isinstance(TlsCredentials(ring.credentials(PeerRole.MASTER)), TlsCredentials)
    assert not following.directory.exists()


def test_a_rotation_that_was_interrupted_at_its_very_end_is_completed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = make_sure("c")
    after = ring.next().authorities()
    real, is_done = Path.replace, False
    for moves in itertools.count():
        there = Keyring("c", shutil.copytree(ring.directory, tmp_path / str(moves)))
        left = iter(range(moves))

        def replace(path: Path, target: Path, left: Iterator[int] = left) -> Path:
            if next(left, None) is None:
                raise InterruptedError
            return real(path, target)

        with monkeypatch.context() as interrupted:
            interrupted.setattr(Path, "replace", replace)
            with suppress(InterruptedError):
                there.finish(4)
                is_done = True
        if is_done:
            break
        if not there.resume():
            assert moves == 0, "what it is to be called was not there yet"
            there.finish(4)
        assert (there.authorities(), there.number) == (after, 4)
        for role in PeerRole:
            assert TlsCredentials(there.credentials(role)).now.trust == after
        assert there.next().authorities() != after, "another one may begin"


def test_caller_is_who_the_certificate_says() -> None:
    shown = {
        "subject": ((("commonName", "ann"),),),
        "subjectAltName": (("DNS", PeerRole.OPERATOR.server_name),),
    }
    assert caller_of_peer(shown) == Caller(PeerRole.OPERATOR, "ann")
    assert caller_of_peer({**shown, "subjectAltName": (("DNS", "operator"),)}) is None
    assert caller_of_peer({}) is None


def test_client_says_what_is_wrong_with_its_credentials(root: Path) -> None:
    with pytest.raises(BadConfiguration, match=f"no credentials of cluster c: .*; {VARIABLE} names"):
        ClusterClient("c", "127.0.0.1:1")
    ring = make_sure("c")
    (ring.directory / "operator.crt").write_bytes(b"nothing of the kind")
    with pytest.raises(BadConfiguration, match=r"operator\.crt: no certificate"):
        ClusterClient("c", "127.0.0.1:1")


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id that has no entry in the user database, as in some containers."""
    for name in ("HOME", VARIABLE, "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1 << 30)


@pytest.mark.usefixtures("without_home")
def test_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_name() == f"uid {1 << 30}"
    with pytest.raises(BadConfiguration, match=f"set {VARIABLE} to a directory"):
        keyring.root()
    monkeypatch.setenv(VARIABLE, "/a b")
    assert keyring.root() == Path("/a b")


def test_user_without_an_entry_is_told_that_yarn_needs_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("java", "yarn"):
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "yarn-site.xml").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1 << 30)
    with (
        pytest.raises(Unavailable, match=rf"uid {1 << 30} has no entry in the user database"),
        skein_client(),
    ):
        pass


def test_credentials_are_made_and_read_in_odd_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("a b", "a#b", "a%20b;c?d"):
        monkeypatch.setenv(VARIABLE, str(tmp_path / name))
        made = as_security(make_sure("c").skein)
        assert made._get_bytes("cert") == (tmp_path / name / "c" / "skein.crt").read_bytes()
    assert end_of(skein_pair(days=1).certificate.encode()) < NOW + dt.timedelta(days=1.1)


def test_what_cannot_be_made_or_read_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = make_sure("c")
    (ring.directory / "master.key").unlink()
    with pytest.raises(BadConfiguration, match=r"master\.key: cannot be read: No such file"):
        Keyring("c", ring.directory).credentials(PeerRole.MASTER)
    (root / "file").touch()
    monkeypatch.setenv(VARIABLE, str(root / "file" / "credentials"))
    with pytest.raises(BadConfiguration, match=rf"credentials/c cannot be created .*{VARIABLE}"):
        make_sure("c")
