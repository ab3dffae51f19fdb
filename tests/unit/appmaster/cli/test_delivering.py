"""How code is delivered by an operator to whom the cluster's tree in ZooKeeper is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from appmaster.adapters.credentials.keyring import VARIABLE
from appmaster.api.client import ClusterClient
from appmaster.cli.launch import code
from standby.code.bundles import Bundle
from standby.errors import BadConfiguration
from tests.fakes.certificates import user_directory
from tests.fakes.jobs import job_config


class Closed:
    """A cluster with one candidate, or none."""

    cluster = "j1"

    def __init__(self, *candidates: str) -> None:
        self._candidates = candidates

    @property
    def zookeeper(self) -> Any:
        raise BadConfiguration("closed to these credentials")

    def info(self) -> dict[str, Any]:
        found = [
            {"candidate": each, "host": "h", "peer_port": 1, "is_leader": False} for each in self._candidates
        ]
        return {"candidates": found}


@pytest.mark.parametrize("distributor", ["local", "hdfs"])
def test_a_candidate_alone_takes_it(
    distributor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    class Peer:
        def __init__(self, context: object) -> None:
            pass

        def upload(self, digest: str, *_: object) -> None:
            taken.append(digest)

    monkeypatch.setattr(code, "PeerCode", Peer)
    monkeypatch.setenv(VARIABLE, str(user_directory(tmp_path, "j1")))
    config = job_config(code__distributor=distributor)
    code.deliver(Bundle("d1", b"x"), config, cast("ClusterClient", Closed("a")), print)
    assert taken == ["d1"]
    with pytest.raises(BadConfiguration, match="closed to these credentials"):
        code.deliver(Bundle("d1", b"x"), config, cast("ClusterClient", Closed()), print)
