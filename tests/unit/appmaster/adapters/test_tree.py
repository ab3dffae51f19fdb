"""What becomes of a cluster's nodes when they are given to another owner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import NoNodeError

from appmaster.adapters.zookeeper.credentials import ZooKeeperCredentials
from appmaster.adapters.zookeeper.tree import ZooKeeperTree
from standby.adapters.zookeeper.access import owner_access
from standby.security.credentials import Credentials, encode
from standby.shared import naming
from standby.shared.roles import PeerRole


class Session:
    """The nodes of a cluster: a client, as far as it is asked for."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.nodes = nodes
        self.lists: dict[str, Any] = {}

    def get_children(self, path: str) -> list[str]:
        below = (each.removeprefix(f"{path}/") for each in self.nodes if each.startswith(f"{path}/"))
        return sorted({each.partition("/")[0] for each in below})

    def get(self, path: str, watch: object = None) -> tuple[bytes, None]:
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path], None

    def set(self, path: str, data: bytes) -> None:
        self.get(path)
        self.nodes[path] = data

    def set_acls(self, path: str, given: Any) -> None:
        self.lists[path] = given

    def set_acls_async(self, path: str, given: Any) -> Any:
        return SimpleNamespace(get=lambda: self.set_acls(path, given))


def test_new_owner_does_not_get_the_credentials_that_a_rotation_of_the_former_has_given_out() -> None:
    path, job = naming.credentials_path("c", PeerRole.MASTER), naming.job_path("c", "j")
    session = Session({path: encode(Credentials(4, "", "", "")), job: b"record"})
    given = ZooKeeperCredentials(session, "c")
    assert given.given(PeerRole.MASTER) is not None
    new = owner_access("new")
    ZooKeeperTree(session, "c", owner_access("former")).hand_over(new)
    assert given.given(PeerRole.MASTER) is None
    assert session.nodes[job] == b"record"
    assert session.lists[path] == new.list_for(path)
