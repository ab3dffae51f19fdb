"""Who may use a cluster's nodes in ZooKeeper: whoever holds the cluster's credentials.

Every session of ours proves by ZooKeeper's digest scheme that it has the private key that Skein puts into each working
directory. What it sends is made from the key and tells nothing about it. Nodes are closed to everybody else
unless ``zookeeper.acl=open``. A proof that an open tree does not ask for is harmless, so it is always given.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from kazoo.security import ACL, make_digest_acl

_USER: Final = "standfast"

#: One key, a secret of its own for each use of it.
_PURPOSE: Final = b"standfast zookeeper.acl=digest"


@dataclass(frozen=True, slots=True)
class Access:
    """What a session proves, and what it lets others do with the nodes that it creates."""

    secret: str = field(default="", repr=False)
    """Empty: it proves nothing."""
    is_closed: bool | None = None
    """Whether its nodes are for holders of the secret only; None: as the cluster's tree is, and a new one is closed."""

    @property
    def proofs(self) -> set[tuple[str, str]]:
        """What kazoo sends with each new connection."""
        return {("digest", f"{_USER}:{self.secret}")} if self.secret else set()

    @property
    def holders_only(self) -> list[ACL]:
        """The list that lets holders of the secret do everything, and everybody else nothing."""
        return [make_digest_acl(_USER, self.secret, all=True)]

    @property
    def acl(self) -> list[ACL] | None:
        """The list for new nodes; None: open."""
        return self.holders_only if self.is_closed and self.secret else None


#: Proves nothing, and creates open nodes where no tree is closed.
AS_IT_IS: Final = Access()


def access_of(key: bytes, *, is_closed: bool | None = None) -> Access:
    """Return the access of whoever has the credentials' private ``key``, as in its PEM file."""
    return Access(hmac.new(key.strip(), _PURPOSE, hashlib.sha256).hexdigest(), is_closed)
