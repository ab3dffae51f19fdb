"""The end of Skein's credentials is told of before it comes, and named when it has come."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from appmaster.adapters.credentials import told_of_end
from appmaster.client import ClusterClient
from standby.errors import BadConfiguration
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


def test_client_says_what_is_wrong_with_its_credentials(tmp_path: Path) -> None:
    (tmp_path / "skein.pem").write_bytes(shared_credentials().key)
    (tmp_path / "skein.crt").write_bytes(b"nothing of the kind")
    with pytest.raises(BadConfiguration, match=r"skein\.crt: no certificate"):
        ClusterClient("c", "127.0.0.1:1", tmp_path)
