"""The end of Skein's credentials is told of before it comes, and named when it has come."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from appmaster.adapters.credentials import as_metric, end_of, told_of_end
from appmaster.cli.yarn import credentials, skein_client
from appmaster.client import ClusterClient, skein_directory, user_name
from standby.errors import BadConfiguration, Unavailable
from tests.fakes.certificates import shared_credentials

NOW = dt.datetime.now(dt.timezone.utc)
CERTIFICATE = shared_credentials().certificate


@pytest.mark.parametrize(("days", "said"), [(0, ""), (300, ""), (330, "end on"), (364, "end on")])
def test_end_is_told_of_when_it_is_near(days: int, said: str) -> None:
    told = told_of_end(CERTIFICATE, Path("/s"), NOW + dt.timedelta(days=days))
    assert said in told
    assert bool(told) == bool(said)


def test_ended_credentials_are_named_with_the_remedy() -> None:
    with pytest.raises(BadConfiguration, match=r"in /s have ended on .*docs/security\.md"):
        told_of_end(CERTIFICATE, Path("/s"), NOW + dt.timedelta(days=366))


def test_metric_tells_when_they_end() -> None:
    ((_, value),) = as_metric(end_of(CERTIFICATE)).values
    ends = dt.datetime.fromtimestamp(value, dt.timezone.utc)
    assert told_of_end(CERTIFICATE, Path("/s"), ends - dt.timedelta(days=1)).endswith(
        "docs/security.md tells how keys change"
    )
    with pytest.raises(BadConfiguration, match="have ended"):
        told_of_end(CERTIFICATE, Path("/s"), ends)


def test_client_says_what_is_wrong_with_its_credentials(tmp_path: Path) -> None:
    (tmp_path / "skein.pem").write_bytes(shared_credentials().key)
    (tmp_path / "skein.crt").write_bytes(b"nothing of the kind")
    with pytest.raises(BadConfiguration, match=r"skein\.crt: no certificate"):
        ClusterClient("c", "127.0.0.1:1", tmp_path)


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id that has no entry in the user database, as in some containers."""
    for name in ("HOME", "SKEIN_CONFIG", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1 << 30)


@pytest.mark.usefixtures("without_home")
def test_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfiguration, match="set SKEIN_CONFIG to a directory"):
        skein_directory()
    monkeypatch.setenv("SKEIN_CONFIG", "/a b")
    assert skein_directory() == Path("/a b")


@pytest.mark.usefixtures("without_home")
def test_user_without_a_name_is_called_by_the_number() -> None:
    assert user_name() == f"uid {1 << 30}"


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


@pytest.mark.parametrize("name", ["a b", "a#b", "a%20b;c?d"])
def test_credentials_are_made_and_read_in_odd_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("SKEIN_CONFIG", str(tmp_path / name))
    made = credentials()
    assert (made._get_bytes("cert"), made._get_bytes("key")) == (
        (tmp_path / name / "skein.crt").read_bytes(),
        (tmp_path / name / "skein.pem").read_bytes(),
    )


def test_directory_that_cannot_be_made_is_named_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SKEIN_CONFIG", str(tmp_path / "file" / "skein"))
    with pytest.raises(BadConfiguration, match=r"file/skein cannot be used .*SKEIN_CONFIG"):
        credentials()
