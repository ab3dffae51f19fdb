"""Where the servers of ZooKeeper are, as it is written."""

from __future__ import annotations

import pytest

from standby.adapters.zookeeper.access import make_client
from standby.ensemble import wrong_servers
from standby.errors import BadConfiguration
from tests.cases import case


def test_servers_may_have_ports_a_path_and_spaces_around_them() -> None:
    for connect, hosts, chroot in (
        ("zk1", [("zk1", 2181)], ""),
        ("10.0.0.1", [("10.0.0.1", 2181)], ""),
        ("zk1:2181,zk2:2182", [("zk1", 2181), ("zk2", 2182)], ""),
        ("zk1:2181/", [("zk1", 2181)], ""),
        ("zk1/apps/sf", [("zk1", 2181)], "/apps/sf"),
        (" zk1:2181 , zk2:2182 ", [("zk1", 2181), ("zk2", 2182)], ""),
        ("zk1:2181 /apps", [("zk1", 2181)], "/apps"),
        ("zk1 ,zk2:2182 /apps/sf\n", [("zk1", 2181), ("zk2", 2182)], "/apps/sf"),
        ("[::1]:2182 , zk2", [("::1", 2182), ("zk2", 2181)], ""),
    ):
        assert list(wrong_servers(connect)) == [], connect
        with case(connect):
            client = make_client(connect, 6_000)
            assert (sorted(client.hosts), client.chroot) == (sorted(hosts), chroot)


def test_what_names_no_servers_is_reported_with_what_would() -> None:
    for connect, said in {
        "": "'' is not a server",
        "zk1:port": "'zk1:port' is not a server: it must have a form like zk1:2181",
        "zk1:0": "'zk1:0' is not a server",
        "zk1:70000": "'zk1:70000' is not a server",
        "zk1:2181,": "'' is not a server",
        "zk1 :2181": "'zk1 :2181' is not a server",
        "[::::]:2181": "'[::::]:2181' is not a server",
        "[10.0.0.1]": "'[10.0.0.1]' is not a server",
        "zk1 zk2": "'zk1 zk2' is not a server",
        "http://zk1:2181": "'http:' is not a server",
        "zk1:2181/a,zk2:2181/a": "/a,zk2:2181/a: give the path once, after the last server",
        "zk1:2181/a//b": "/a//b is not a path in ZooKeeper",
        "zk1:2181/a/": "/a/ is not a path in ZooKeeper",
        "zk1:2181/../a": "/../a is not a path in ZooKeeper",
    }.items():
        assert said in "; ".join(wrong_servers(connect)), connect
        with case(connect), pytest.raises(BadConfiguration, match="STANDFAST_ZOOKEEPER"):
            make_client(connect, 6_000)
