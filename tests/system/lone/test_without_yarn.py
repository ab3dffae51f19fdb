"""The embedded servers without hosts: ZooKeeper and Kafka, and nothing of YARN."""

from __future__ import annotations

import json

import pytest

from appmaster.cli.main import main
from embedded.cluster import LocalCluster
from embedded.servers import KAFKA, RESOURCE_MANAGER, ZOOKEEPER
from standby.errors import BadConfiguration


def test_there_are_two_servers_and_no_host(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.hosts == ()
    assert main(["local", "status", "--name", cluster.name, "--json"]) == 0, "the cluster is whole"
    status = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in status["servers"]] == [ZOOKEEPER, KAFKA]
    assert status["hosts"] == []
    with pytest.raises(BadConfiguration, match=f"there is no server '{RESOURCE_MANAGER}'"):
        cluster.log(RESOURCE_MANAGER)
    with pytest.raises(BadConfiguration, match=r"there is no host '127\.0\.0\.11'"):
        cluster.kill_host("127.0.0.11")
