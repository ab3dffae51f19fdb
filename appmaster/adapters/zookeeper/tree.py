"""A cluster's tree in ZooKeeper as a whole: whether it exists, and who has access to it.

It is open to everyone, or closed to all but the holders of the cluster's secrets. The root node's ACL applies to the
whole tree. ``/standfast`` itself is open to everyone, since clusters of several users are below it.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.security import ACL, Id, Permissions, make_acl

from appmaster.adapters.zookeeper.calls import children, translated
from standby.adapters.zookeeper.access import Access
from standby.errors import BadConfiguration
from standby.shared import naming
from standby.shared.roles import PeerRole

_log = logging.getLogger(__name__)

#: Number of nodes whose ACL is changed at once.
_AT_ONCE: Final = 500


class ZooKeeperTree:
    """The tree of one cluster, for a session that authenticates by ``access``. Calls may raise `Transient`."""

    def __init__(self, client: Any, cluster: str, access: Access) -> None:
        self._client = client
        self._cluster = cluster
        self._access = access
        self._was_closed: bool | None = None

    def enter(self) -> None:
        """Make the session create nodes with the same access as those it finds.

        Raises `BadConfiguration` if the tree is closed to this session, or is not as its access wants it.
        """
        with translated("checking the access to the cluster's tree"):
            if not self._cluster:
                return
            is_closed = self._found_closed()
            if is_closed and self._access.is_closed is False:
                raise BadConfiguration(
                    f"zookeeper.acl: open, but the tree of cluster {self._cluster} is closed to others; leave the key "
                    "out (`standfast delete` of its last job removes the tree)"
                )
            if is_closed is not None:
                self._client.is_closing = is_closed
            self._was_closed = is_closed

    @property
    def is_open(self) -> bool:
        """Whether every client of ZooKeeper could read and change the cluster's tree when the session began."""
        return self._was_closed is False

    @property
    def is_closed(self) -> bool:
        """Whether what this session creates is closed to others, as the tree was found or is to be."""
        return bool(self._client.is_closing)

    def exists(self) -> bool:
        """Return whether the cluster has a tree."""
        with translated("looking for the cluster"):
            return self._client.exists(naming.controller_epoch_path(self._cluster)) is not None

    def make_way(self) -> None:
        """Prepare for a new tree that is closed to others; `prepare` creates it.

        Also creates the path that `zookeeper.connect` names. Raises `BadConfiguration` if that is not permitted.
        """
        self._make_chroot()
        if self._was_closed is None:
            with translated("making the cluster's tree"):
                self._make_way()

    def prepare(self) -> None:
        """Create the cluster's tree as far as it is missing; `drop` removes it."""
        root = naming.cluster_path(self._cluster)
        self._make_chroot()
        with translated("preparing the cluster's tree"):
            for each in ("cells", "candidates", "code", "containers", "jobs", "changes", "pool"):
                self._client.ensure_path(f"{root}/{each}")
            with suppress(NodeExistsError):
                self._client.create(naming.controller_epoch_path(self._cluster), b"0")

    def drop(self, patience_seconds: float = 0.0) -> None:
        """Remove the cluster's tree, unless it has a job.

        A leader that is about to end keeps its ephemeral record until then; ``patience_seconds`` is how long to wait
        for that.
        """
        root = naming.cluster_path(self._cluster)
        leader, epoch = naming.controller_path(self._cluster), naming.controller_epoch_path(self._cluster)
        with translated("removing the cluster's tree"):
            if children(self._client, f"{root}/jobs"):
                return
            others = [f"{root}/{each}" for each in children(self._client, root)]
            # The epoch is removed last: a leader that is still there fails its next write.
            for each in (*(each for each in others if each not in (leader, epoch)), epoch):
                self._drop(each)
            has_left = threading.Event()
            if self._client.exists(leader, watch=lambda _: has_left.set()) is not None:
                has_left.wait(patience_seconds)
            # The record of a leader that was killed stays until its session ends.
            self._drop(leader)
            self._drop(root)

    def protect(self) -> int:
        """Close the tree to all but the holders of the secret; return how many nodes of an open tree were closed.

        No process of the cluster may run: what it creates would stay open.
        """
        with translated("closing the cluster's tree"):
            self._make_way()
            if self._found_closed() is not False:
                return 0
            return self._give(self._access)

    def prove(self, access: Access) -> None:
        """Authenticate with another secret, too: a part of the tree may belong to its holders already."""
        with translated("authenticating"):
            for proof in access.proofs:
                self._client.add_auth(*proof)

    def hand_over(self, access: Access) -> int:
        """Give a closed tree to the holders of another, authenticated secret; return how many nodes it has."""
        with translated("giving the cluster's tree away"):
            return self._give(access)

    def _make_chroot(self) -> None:
        chroot = self._client.chroot
        with translated("making the path of zookeeper.connect"):
            try:
                self._client.make_chroot()
            except NoAuthError as error:
                raise BadConfiguration(
                    f"zookeeper.connect: {chroot} does not exist, and its parent is closed to these credentials: "
                    f"have its owner create the path, and let everyone read it and create nodes below it"
                ) from error

    def _make_way(self) -> None:
        """Set the access of a new tree, and open the common root to several users."""
        if self._access.is_closed is False or not self._access.secret:
            self._client.is_closing = False
            return
        self._client.is_closing = True
        # Every user adds to it, and none may close it to the others.
        everybody = [make_acl("world", "anyone", read=True, create=True, delete=True)]
        try:
            self._client.create(naming.ROOT, b"", acl=everybody, makepath=True)
        except NodeExistsError:
            found, _ = self._client.get_acls(naming.ROOT)
            if any(_is_everybodys(each) for each in found):
                self._client.set_acls(naming.ROOT, everybody)

    def _give(self, access: Access) -> int:
        """Give every node to the holders of the secrets of ``access``, the root last; return how many there were.

        The root's ACL applies to the whole tree: while it is unchanged, an interrupted change is completed by repeating
        the command.
        """
        client, root = self._client, naming.cluster_path(self._cluster)
        count = 1
        waiting = [f"{root}/{child}" for child in client.get_children(root)]
        while waiting:
            now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            for each, pending in [(each, client.set_acls_async(each, access.list_for(each))) for each in now]:
                with suppress(NoNodeError):  # it went meanwhile
                    pending.get()
                    count += 1
                    waiting += [f"{each}/{child}" for child in client.get_children(each)]
        # What a rotation gave out, or a stranger. Later processes would adopt it, because its number is the higher one.
        for role in PeerRole:
            with suppress(NoNodeError):
                client.set(naming.credentials_path(self._cluster, role), b"")
        client.set_acls(root, access.list_for(root))
        return count

    def _found_closed(self) -> bool | None:
        """Return whether the tree is closed to others; None if there is none.

        Raises `BadConfiguration` if it is closed to this session, too.
        """
        path = naming.cluster_path(self._cluster)
        try:
            found, _ = self._client.get_acls(path)
        except NoNodeError:
            return None
        except NoAuthError as error:
            raise _refused(path) from error
        if any(_is_everybodys(each) for each in found):
            return False
        access = self._access
        if access.secret and ACL(Permissions.ALL, Id("digest", access.owner)) in found:
            return True
        raise _refused(path)

    def _drop(self, path: str) -> None:
        """Remove a node and everything below it, unless another client adds to it meanwhile."""
        try:
            self._client.delete(path, recursive=True)
        except NoNodeError:
            return
        except NotEmptyError:
            _log.warning("%s could not be removed: another client still uses it", path)


def _is_everybodys(acl: ACL) -> bool:
    return bool(acl.id.scheme == "world" and acl.perms == Permissions.ALL)


def _refused(path: str) -> BadConfiguration:
    return BadConfiguration(
        f"{path} in ZooKeeper is closed to these credentials: set STANDFAST_CREDENTIALS to the "
        "directory that the first submit of this cluster used, or take another cluster.name"
    )
