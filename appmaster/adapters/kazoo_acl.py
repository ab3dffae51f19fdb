"""Whose a cluster's tree in ZooKeeper is: everybody's, or that of the holders of the cluster's credentials.

The root node's list speaks for the whole tree. ``/standfast`` itself is everybody's: clusters of several users lie
below it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import ACL, Permissions, make_acl

from standby import naming
from standby.adapters.kazoo_access import Access
from standby.errors import BadConfiguration

#: So many nodes are asked about at once.
_AT_ONCE: Final = 500


def enter(client: Any, cluster: str, access: Access) -> bool | None:
    """Have a session create nodes as those are that it finds; return whether they are closed, None without a tree.

    Raises `BadConfiguration` when the tree is closed to this session, or not as ``access`` wants it.
    """
    if not cluster:
        return None
    is_closed = _is_closed(client, cluster, access)
    if is_closed and access.is_closed is False:
        raise BadConfiguration(
            f"zookeeper.acl: open, but the tree of cluster {cluster} is closed to others; leave the key out "
            "(`standfast delete` of its last job removes the tree)"
        )
    if is_closed is not None:
        client.default_acl = access.holders_only if is_closed else None
    return is_closed


def make_way(client: Any, access: Access) -> None:
    """Have a new tree be as ``access`` says, and be one of several users' below the common root."""
    if access.is_closed is False or not access.secret:
        client.default_acl = None
        return
    client.default_acl = access.holders_only
    # Everybody adds to it, and nobody may close it to the others.
    everybody = [make_acl("world", "anyone", read=True, create=True, delete=True)]
    try:
        client.create(naming.ROOT, b"", acl=everybody, makepath=True)
    except NodeExistsError:
        found, _ = client.get_acls(naming.ROOT)
        if any(_is_everybodys(each) for each in found):
            client.set_acls(naming.ROOT, everybody)


def protect(client: Any, cluster: str, access: Access) -> int:
    """Close a tree to all but the holders of the secret; return how many nodes of an open one were closed."""
    make_way(client, access)
    if _is_closed(client, cluster, access) is not False:
        return 0
    return hand_over(client, cluster, access.holders_only)


def hand_over(client: Any, cluster: str, acl: list[ACL]) -> int:
    """Give every node of a tree the list ``acl``, the root last; return how many there were.

    The root speaks for the whole tree: while it is as it was, what broke off is done by the same command again.
    """
    root = naming.cluster_path(cluster)
    count = 1
    waiting = [f"{root}/{child}" for child in client.get_children(root)]
    while waiting:
        now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        for each, pending in [(each, client.set_acls_async(each, acl)) for each in now]:
            with suppress(NoNodeError):  # it went meanwhile
                pending.get()
                count += 1
                waiting += [f"{each}/{child}" for child in client.get_children(each)]
    client.set_acls(root, acl)
    return count


def _is_closed(client: Any, cluster: str, access: Access) -> bool | None:
    """Return whether a cluster's tree is closed to others; None when there is none.

    Raises `BadConfiguration` when it is closed to this session, too.
    """
    path = naming.cluster_path(cluster)
    try:
        found, _ = client.get_acls(path)
    except NoNodeError:
        return None
    except NoAuthError as error:
        raise _refused(path) from error
    if any(_is_everybodys(each) for each in found):
        return False
    if access.secret and any(each in found for each in access.holders_only):
        return True
    raise _refused(path)


def _is_everybodys(acl: ACL) -> bool:
    return bool(acl.id.scheme == "world" and acl.perms == Permissions.ALL)


def _refused(path: str) -> BadConfiguration:
    return BadConfiguration(
        f"{path} in ZooKeeper is closed to these Skein credentials: set SKEIN_CONFIG to the "
        "directory that the first submit of this cluster used, or take another cluster.name"
    )
