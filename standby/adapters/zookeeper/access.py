"""Who may use a cluster's nodes in ZooKeeper: its owner everything, its containers what they need, nobody else.

Every session of ours proves by ZooKeeper's digest scheme that it has a secret: masters and operators the owner's,
containers another one, which is made from it and does not lead back. Nodes are closed to everybody else unless
``zookeeper.acl=open``. A proof that an open tree does not ask for is harmless, so it is always given.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import NodeExistsError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Create
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions, make_digest_acl_credential

from standby.ensemble import Tls, wrong_servers
from standby.errors import BadConfiguration
from standby.shared.naming import ROOT

_OWNER: Final = "standfast"
_CONTAINER: Final = "standfast-container"

#: The longest pause between two tries to reach a server.
_RECONNECT_SECONDS: Final = 1.0

#: What is left of a session when its server's silence is noticed. The servers may know of less: one tells the others of
#: its clients with the next tick, and dies with what it has not told, the client's last ping.
_LAST_SHARE: Final = 0.4

#: How often the time for one answer is doubled: past any time that kazoo waits.
_DOUBLED_AT_MOST: Final = 8

#: One secret, another one of it for each use.
_PURPOSE: Final = b"standfast container"

#: What containers may do with the nodes below a cluster's, by the first part of the path from there on; with those
#: that are not named, nothing. They read who leads, the tasks' records, code and each other's addresses.
_READ: Final = Permissions.READ
_RIGHTS: Final = {
    "controller": _READ,
    "code": _READ,
    "containers": Permissions.READ | Permissions.CREATE | Permissions.DELETE,
}


@dataclass(frozen=True, slots=True)
class Access:
    """What a session proves, and what it lets others do with the nodes that it creates."""

    secret: str = field(default="", repr=False)
    """Empty: it proves nothing."""
    is_closed: bool | None = None
    """Whether its nodes are closed to others; None: as the cluster's tree is, and a new one is closed."""
    owner: str = ""
    """The digest by which ZooKeeper knows the owner."""
    container: str = ""
    """That of the containers."""
    is_container: bool = False
    tls: Tls | None = None
    """How servers are talked to; None: in clear."""

    @property
    def proofs(self) -> set[tuple[str, str]]:
        """What kazoo sends with each new connection."""
        if not self.secret:
            return set()
        user = _CONTAINER if self.is_container else _OWNER
        return {("digest", f"{user}:{self.secret}")}

    def list_for(self, path: str) -> list[ACL]:
        """Return who may do what with the node at ``path``, which is below a cluster's own."""
        kept = [ACL(Permissions.ALL, Id("digest", self.owner))]
        rights = container_rights(path)
        if rights:
            kept.append(ACL(rights, Id("digest", self.container)))
        return kept

    @property
    def closes(self) -> bool:
        """Whether its nodes are closed wherever nothing else is known."""
        return bool(self.is_closed and self.secret)


#: Proves nothing, and creates open nodes where no tree is closed.
AS_IT_IS: Final = Access()


def container_rights(path: str) -> int:
    """Return what containers may do with the node at ``path``, as `kazoo.security.Permissions`."""
    parts = path.removeprefix(f"{ROOT}/").split("/")[1:]
    if parts[:1] == ["containers"] and len(parts) > 1:
        return int(Permissions.ALL)  # its own; it would be gone with its session all the same
    if parts[:1] == ["jobs"] and "tasks" in parts[2:]:
        return int(_READ)
    if parts[:1] == ["credentials"]:
        return int(_READ) if parts[1:] == ["container"] else 0
    return int(_RIGHTS.get(parts[0] if parts else "", 0))


def owner_access(secret: str, *, is_closed: bool | None = None, tls: Tls | None = None) -> Access:
    """Return the access of whoever has the owner's ``secret``."""
    return Access(
        secret,
        is_closed,
        owner_digest(secret),
        make_digest_acl_credential(_CONTAINER, container_secret(secret)),
        tls=tls,
    )


def container_access(
    secret: str, owner: str, *, is_closed: bool | None = None, tls: Tls | None = None
) -> Access:
    """Return the access of a container, whose secret this is; ``owner`` is `owner_digest`."""
    return Access(
        secret, is_closed, owner, make_digest_acl_credential(_CONTAINER, secret), is_container=True, tls=tls
    )


def owner_digest(secret: str) -> str:
    """Return by what ZooKeeper knows the owner; nobody finds the secret by it."""
    return str(make_digest_acl_credential(_OWNER, secret))


def container_secret(secret: str) -> str:
    """Return the containers' secret, made from the owner's."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Leaves a server that does not answer while there is time for another one within the session.

    One that is connected to is left when nothing was heard of it for 0.6 of the session. Kazoo does so, too, after two
    thirds, but not while it sends: there every request counts as a sign of life, also those that nobody answers. The
    server that was left is passed over once: kazoo's order is random, and begins with it at times.

    One that takes a connection and then says nothing is left after a share of the rest. A server that has just
    started loses what it was sent too early, and one that hangs takes connections all the same; kazoo waits for as long
    as the session lasts, divided by the servers.

    Used on the connection's thread alone.
    """

    def __init__(self, session_seconds: float, servers: int) -> None:
        super().__init__()
        self._silence_seconds = session_seconds * (1 - _LAST_SHARE)
        self._share_seconds: float = session_seconds * _LAST_SHARE / servers
        self._tries_per_session = round(servers / _LAST_SHARE)
        #: How many tries in succession heard nothing.
        self._unanswered = 0
        self._servers = servers
        self._is_connected = False
        self._address: tuple[str, int] | None = None
        #: The one that was left last, if it is to be passed over.
        self._left: tuple[str, int] | None = None
        self._heard_at = 0.0

    def on_state(self, state: str) -> None:
        """Take note of how the session stands."""
        self._is_connected = state == KazooState.CONNECTED
        if self._is_connected:
            self._unanswered = 0
            self._heard_at = time.monotonic()
        self._left = self._address if state == KazooState.SUSPENDED and self._servers > 1 else None

    def create_connection(self, address: tuple[str, int], *, timeout: float, **settings: Any) -> Any:
        """Return a connection; see kazoo."""
        if address == self._left:
            self._left = None
            raise ConnectionError("this server was lost just now, and is tried after the others")
        self._address = address
        try:
            return self._connect(address, timeout=min(timeout, self._patience_seconds), **settings)
        except TimeoutError:
            self._unanswered += 1
            raise

    def _connect(self, *where: Any, **settings: Any) -> Any:
        return super().create_connection(*where, **settings)

    def select(self, readable: Any, writable: Any, broken: Any, timeout: float | None = None) -> Any:
        """Wait for the connection, which is the first of those that are read from; see kazoo."""
        if timeout is None:
            return super().select(readable, writable, broken)
        if not self._is_connected:
            found = super().select(readable, writable, broken, min(timeout, self._patience_seconds))
            if not any(found):
                self._unanswered += 1
            return found
        left = max(0.0, self._heard_at + self._silence_seconds - time.monotonic())
        found = super().select(readable, writable, broken, min(timeout, left))
        if readable and readable[0] in found[0]:
            self._heard_at = time.monotonic()
        elif time.monotonic() - self._heard_at >= self._silence_seconds:
            raise self.timeout_exception(f"nothing was heard for {self._silence_seconds:g} s")
        return found

    @property
    def _patience_seconds(self) -> float:
        """How long a server is waited for: twice as long each time that a whole session's tries heard nothing.

        Kazoo's own limit is the longest.
        """
        doubled = min(self._unanswered // self._tries_per_session, _DOUBLED_AT_MOST)
        return self._share_seconds * float(2**doubled)


class _TlsHandler(_Handler):
    """Connects to servers over TLS whose certificates are for their names, and of the authority that was named."""

    def __init__(self, session_seconds: float, servers: int, tls: Tls) -> None:
        super().__init__(session_seconds, servers)
        self._tls = tls
        #: Why the latest connection was not made; empty: it was.
        self.refusal = ""
        # What is wrong with the files is told at once, and not as servers that do not answer.
        self._context()

    def _connect(self, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> ssl.SSLSocket:
        """Return a connection; called with more, which says what this class knows."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The files are read for each connection, so that others can be put in their place.
            made = self._context().wrap_socket(plain, server_hostname=hostname)
        except BaseException as error:
            plain.close()
            self.refusal = f"{address[0]}:{address[1]}: {error}"
            raise
        self.refusal = ""
        return made

    def _context(self) -> ssl.SSLContext:
        tls = self._tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(tls.ca)
            if tls.certificate:
                context.load_cert_chain(tls.certificate, tls.key)
        except OSError as error:
            raise BadConfiguration(
                f"{' or '.join(filter(None, (tls.ca, tls.certificate, tls.key)))}: cannot be used for TLS with "
                f"ZooKeeper: {error.strerror or error}; every host needs these files in PEM "
                "(zookeeper.ssl.*.location, or STANDFAST_ZOOKEEPER_CA and its kin)"
            ) from error
        return context


class Client(KazooClient):  # type: ignore[misc] # kazoo has no types
    """Kazoo's client, by which each node is closed as its place asks, while `is_closing`."""

    def __init__(self, access: Access, hosts: str, timeout: float, **settings: Any) -> None:
        servers = len(collect_hosts(hosts)[0])
        if access.tls is not None:
            # The library's own context trusts every public authority besides.
            handler: _Handler = _TlsHandler(timeout, servers, access.tls)
        else:
            handler = _Handler(timeout, servers)
        super().__init__(
            auth_data=access.proofs,
            hosts=hosts,
            timeout=timeout,
            handler=handler,
            use_ssl=access.tls is not None,
            **settings,
        )
        self.add_listener(handler.on_state)
        self._access = access
        #: Whether the nodes that it creates are closed to others.
        self.is_closing = access.closes

    @property
    def refusal(self) -> str:
        """Why TLS could not be agreed on with the server that was tried last; empty where nothing is known."""
        return self.handler.refusal if isinstance(self.handler, _TlsHandler) else ""

    def create_async(self, path: str, value: bytes = b"", acl: Any = None, **how: Any) -> Any:
        """Create a node; see kazoo."""
        return super().create_async(path, value, acl or self._list(path), **how)

    def ensure_path_async(self, path: str, acl: Any = None) -> Any:
        """Create what is missing on the way; ``acl`` is meant for its last node, and not for those above it."""
        return super().ensure_path_async(path)

    def start(self, timeout: float = 15.0) -> None:
        """Connect; see kazoo, which also warns of a chroot that is not there: that is for `make_chroot`."""
        self.start_async().wait(timeout=timeout)
        if not self.connected:
            self.stop()
            raise self.handler.timeout_exception("Connection time-out")

    def make_chroot(self) -> None:
        """Create the path that all nodes of this client are below, where it is missing.

        Whatever the client closes, this is open to everybody, as a node is that nobody says anything about: it is no
        part of a cluster's tree, and others may have theirs there. Raises as kazoo does.
        """
        if not self.chroot or self.exists("/") is not None:
            return
        path = ""
        for each in self.chroot.strip("/").split("/"):
            path += f"/{each}"
            # Past the chroot, below which all other calls are.
            made = self.handler.async_result()
            self._call(Create(path, b"", OPEN_ACL_UNSAFE, 0), made)
            with suppress(NodeExistsError):
                made.get()

    def transaction(self) -> Any:
        """Return a transaction; see kazoo."""
        return _Transaction(self)

    def _list(self, path: str) -> list[ACL] | None:
        return self._access.list_for(path) if self.is_closing else None


def make_client(connect: str, session_timeout_ms: int, access: Access = AS_IT_IS) -> Client:
    """Return a client that is not started and that never gives up reconnecting.

    Servers that come back give each session its time anew. Kazoo's own back-off, of up to a minute, would miss that: a
    leader would be deposed, or a container taken for lost, for nothing. Raises `BadConfiguration` for what names no
    servers.
    """
    if said := "; ".join(wrong_servers(connect)):
        raise BadConfiguration(
            f"ZooKeeper servers {connect}: {said} (zookeeper.connect, or STANDFAST_ZOOKEEPER)"
        )
    return Client(
        access,
        hosts=connect,
        timeout=session_timeout_ms / 1000,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=_RECONNECT_SECONDS),
    )


class _Transaction(TransactionRequest):  # type: ignore[misc] # kazoo has no types
    def create(self, path: str, value: bytes = b"", acl: Any = None, **how: Any) -> None:
        super().create(path, value, acl or self.client._list(path), **how)  # noqa: SLF001 (of one piece with it)
