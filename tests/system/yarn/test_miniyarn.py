"""The light form of YARN: it runs an application, tells its NodeManagers apart, and leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appmaster.adapters.skein_library import load_skein
from embedded.machine.processes import Owned
from embedded.registry import names
from tests.patience import PATIENCE_SECONDS, soon
from tests.servers.miniyarn import MiniYarn


def test_an_application_runs_on_the_node_it_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skein = load_skein()
    started = tmp_path / "started"
    theirs = {**os.environ, "OTHER": "stays"}
    with MiniYarn.start(f"mini-{os.getpid()}", nodes=2, environment=theirs) as mini:
        assert len(set(mini.nodes)) == 2
        environment = mini.environment()
        assert environment["OTHER"] == "stays"
        assert environment["PATH"].endswith(os.environ["PATH"])
        assert environment["HADOOP_CONF_DIR"].startswith(str(mini.directory))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        owned = Owned((mini.directory / "cluster-id").read_text(encoding="ascii"), {})
        service = skein.Service(
            instances=1,
            resources=skein.Resources("64 MiB", 1),
            script=f'echo "$NM_HOST:$NM_PORT" > {started}.new && mv {started}.new {started}; sleep 1000',
            nodes=[mini.nodes[1]],
            relax_locality=False,
        )
        master = skein.Master(resources=skein.Resources("256 MiB", 1), script="sleep 1000")
        security = skein.Security.new_credentials()
        java_options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        with skein.Client(log=False, security=security, java_options=java_options) as client:
            client.submit(skein.ApplicationSpec(name="sleep", services={"s": service}, master=master))
            soon(started.exists, "a container runs", 2 * PATIENCE_SECONDS)
        assert started.read_text(encoding="utf-8").strip() == mini.nodes[1]
        assert len(owned.processes()) > 3
    assert not owned.processes()
    assert mini.name not in names()
