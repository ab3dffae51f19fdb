"""Access control for a cluster's nodes in ZooKeeper: its owner has full access, its containers limited access.

Every session authenticates with ZooKeeper's digest scheme: masters and operators with the owner's secret, containers
with another one, which is derived from it one-way. Nodes are closed to everyone else unless ``zookeeper.acl=open``.
Authentication is always sent, because it is harmless with an open tree.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
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
from kazoo.protocol.serialization import Create, Create2, SetData, Transaction
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions, make_digest_acl_credential

from standby.ensemble import Tls, read_servers, wrong_servers
from standby.errors import BadConfiguration
from standby.shared.naming import ROOT

_log: Final = logging.getLogger(__name__)

_OWNER: Final = "standfast"
_CONTAINER: Final = "standfast-container"

#: Maximum back-off between attempts to reach a server.
_RECONNECT_SECONDS: Final = 1.0

#: The fraction of a session that is left when its server's silence is noticed. The other servers may know less: a
#: server passes on its clients' pings with the next tick, and those that it has not passed on are lost with it.
_LAST_SHARE: Final = 0.4

#: Maximum number of doublings of the time for one answer: beyond any time that kazoo waits.
_DOUBLED_AT_MOST: Final = 8

#: Largest request that a server accepts unless its `jute.maxbuffer` is changed, bytes. It closes the connection of a
#: client that sends more, and everything else that is on its way fails, too.
MOST_BYTES: Final = 0xFFFFF

#: What kazoo puts before the body of each request, bytes: its number, and its type.
_HEADER_BYTES: Final = 8

#: Purpose of the derived secret.
_PURPOSE: Final = b"standfast container"

#: Containers' permissions on the nodes below a cluster's, by the first component of the path; none on other nodes.
#: They read the leader, the task records, code and each other's addresses.
_READ: Final = Permissions.READ
_RIGHTS: Final = {
    "controller": _READ,
    "code": _READ,
    "containers": Permissions.READ | Permissions.CREATE | Permissions.DELETE,
    "pool": Permissions.READ | Permissions.CREATE | Permissions.DELETE,
}


@dataclass(frozen=True, slots=True)
class Access:
    """A session's authentication, and the permissions on the nodes that it creates."""

    secret: str = field(default="", repr=False)
    """Empty: no authentication."""
    is_closed: bool | None = None
    """Whether its nodes are closed to others; None: like the cluster's tree; a new tree is closed."""
    owner: str = ""
    """The owner's digest."""
    container: str = ""
    """The containers' digest."""
    is_container: bool = False
    tls: Tls | None = None
    """TLS settings; None: plain text."""

    @property
    def proofs(self) -> set[tuple[str, str]]:
        """The authentication that kazoo sends with each new connection."""
        if not self.secret:
            return set()
        user = _CONTAINER if self.is_container else _OWNER
        return {("digest", f"{user}:{self.secret}")}

    def list_for(self, path: str) -> list[ACL]:
        """Return the ACL of the node at ``path``, which is below a cluster's node."""
        kept = [ACL(Permissions.ALL, Id("digest", self.owner))]
        rights = container_rights(path)
        if rights:
            kept.append(ACL(rights, Id("digest", self.container)))
        return kept

    @property
    def closes(self) -> bool:
        """Whether its nodes are closed unless known otherwise."""
        return bool(self.is_closed and self.secret)


#: No authentication, and open nodes.
AS_IT_IS: Final = Access()


def container_rights(path: str) -> int:
    """Return the containers' permissions on the node at ``path``, as `kazoo.security.Permissions`."""
    parts = path.removeprefix(f"{ROOT}/").split("/")[1:]
    if parts[:1] in (["containers"], ["pool"]) and len(parts) > 1:
        return int(Permissions.ALL)  # its own node, which it could delete anyway by ending its session
    if parts[:1] == ["jobs"] and "tasks" in parts[2:]:
        return int(_READ)
    if parts[:1] == ["credentials"]:
        return int(_READ) if parts[1:] == ["container"] else 0
    return int(_RIGHTS.get(parts[0] if parts else "", 0))


def owner_access(secret: str, *, is_closed: bool | None = None, tls: Tls | None = None) -> Access:
    """Return the access for the owner's ``secret``."""
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
    """Return the access of a container with its secret; ``owner`` is `owner_digest`."""
    return Access(
        secret, is_closed, owner, make_digest_acl_credential(_CONTAINER, secret), is_container=True, tls=tls
    )


def owner_digest(secret: str) -> str:
    """Return the owner's digest for ZooKeeper; it does not reveal the secret."""
    return str(make_digest_acl_credential(_OWNER, secret))


def container_secret(secret: str) -> str:
    """Return the containers' secret, derived from the owner's."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Leaves an unresponsive server early enough to reach another one within the session.

    A connected server is left when nothing was received from it for 0.6 of the session. Kazoo does this after two
    thirds, but not while it is sending: it counts every sent request as a sign of life, even without an answer. The
    abandoned server is skipped once, because kazoo's order is random and sometimes begins with it.

    A server that accepts a connection and then sends nothing is left after a share of the rest. A server that has
    just started loses early requests, and a hanging one still accepts connections; kazoo waits for the session time
    divided by the number of servers.

    Used on the connection's thread only.
    """

    def __init__(self, session_seconds: float, servers: int) -> None:
        super().__init__()
        self._silence_seconds = session_seconds * (1 - _LAST_SHARE)
        self._share_seconds: float = session_seconds * _LAST_SHARE / servers
        self._tries_per_session = round(servers / _LAST_SHARE)
        #: Number of consecutive attempts without an answer.
        self._unanswered = 0
        self._servers = servers
        self._is_connected = False
        self._address: tuple[str, int] | None = None
        #: The server that was left last, if it is to be skipped.
        self._left: tuple[str, int] | None = None
        self._heard_at = 0.0

    def on_state(self, state: str) -> None:
        """Record the state of the session."""
        self._is_connected = state == KazooState.CONNECTED
        if self._is_connected:
            self._unanswered = 0
            self._heard_at = time.monotonic()
        self._left = self._address if state == KazooState.SUSPENDED and self._servers > 1 else None

    def create_connection(self, address: tuple[str, int], *, timeout: float, **settings: Any) -> Any:
        """Return a connection; see kazoo."""
        if address == self._left:
            self._left = None
            raise ConnectionError("the connection to this server was just lost; it is tried after the others")
        self._address = address
        try:
            return self._connect(address, timeout=min(timeout, self._patience_seconds), **settings)
        except TimeoutError:
            self._unanswered += 1
            raise

    def _connect(self, *where: Any, **settings: Any) -> Any:
        return super().create_connection(*where, **settings)

    def select(self, readable: Any, writable: Any, broken: Any, timeout: float | None = None) -> Any:
        """Wait for the connection, which is the first readable one; see kazoo."""
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
        """How long to wait for a server; doubled whenever all attempts of a whole session had no answer.

        Limited by kazoo's own time-out.
        """
        doubled = min(self._unanswered // self._tries_per_session, _DOUBLED_AT_MOST)
        return self._share_seconds * float(2**doubled)


class _TlsHandler(_Handler):
    """Connects to servers over TLS; certificates must match the server's name and the configured authority."""

    def __init__(self, session_seconds: float, servers: int, tls: Tls) -> None:
        super().__init__(session_seconds, servers)
        self._tls = tls
        #: Why the last connection failed; empty: it succeeded.
        self.refusal = ""
        self._said = ""
        """Why the files could not be used, as it was logged; empty: they could."""
        # Report unusable files at once, not as unresponsive servers.
        self._context()

    def _connect(self, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> ssl.SSLSocket:
        """Return a connection; other arguments of kazoo are ignored."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The files are read for each connection, so that they can be replaced.
            made = self._context().wrap_socket(plain, server_hostname=hostname)
        except BaseException as error:
            plain.close()
            self.refusal = f"{address[0]}:{address[1]}: {error}"
            if isinstance(error, BadConfiguration):
                # They may be being replaced just now. Kazoo never tries again after anything but an error of a socket.
                if (said := str(error)) != self._said:
                    _log.error("%s", said)
                self._said = said
                raise ConnectionError(said) from error
            raise
        self._said = ""
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
    """Kazoo's client, which sets each new node's ACL according to its path while `is_closing`."""

    def __init__(self, access: Access, hosts: str, timeout: float, **settings: Any) -> None:
        servers = len(collect_hosts(hosts)[0])
        if access.tls is not None:
            # The library's own context would also trust every public authority.
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
        """Why the TLS handshake with the last server failed; empty if unknown."""
        return self.handler.refusal if isinstance(self.handler, _TlsHandler) else ""

    def _call(self, request: Any, answer: Any) -> Any:
        """Send a request (kazoo sends every one here), unless it is too large: that error is its answer then."""
        if (error := _too_large(request)) is not None:
            answer.set_exception(error)
            return False
        return super()._call(request, answer)

    def create_async(self, path: str, value: bytes = b"", acl: Any = None, **how: Any) -> Any:
        """Create a node; see kazoo."""
        return super().create_async(path, value, acl or self._list(path), **how)

    def ensure_path_async(self, path: str, acl: Any = None) -> Any:
        """Create the missing nodes of a path; ``acl`` is ignored, because it applies to the last node only."""
        return super().ensure_path_async(path)

    def start(self, timeout: float = 15.0) -> None:
        """Connect; see kazoo. Unlike kazoo, it does not warn about a missing chroot, which `make_chroot` creates."""
        self.start_async().wait(timeout=timeout)
        if not self.connected:
            self.stop()
            raise self.handler.timeout_exception("Connection time-out")

    def make_chroot(self) -> None:
        """Create the chroot path of this client if it is missing.

        It is always open to everyone, like a node without an ACL: it does not belong to a cluster's tree, and may be
        shared with others. Raises like kazoo.
        """
        if not self.chroot or self.exists("/") is not None:
            return
        path = ""
        for each in self.chroot.strip("/").split("/"):
            path += f"/{each}"
            # This call bypasses the chroot, which applies to all other calls.
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
    """Return a client that is not started, and that never gives up reconnecting.

    Servers that come back restart each session's time. Kazoo's default back-off of up to a minute could miss that: a
    leader would be deposed, or a container considered lost, without need. Raises `BadConfiguration` for an invalid
    server list.
    """
    if said := "; ".join(wrong_servers(connect)):
        raise BadConfiguration(
            f"ZooKeeper servers {connect}: {said} (zookeeper.connect, or STANDFAST_ZOOKEEPER)"
        )
    servers, chroot = read_servers(connect)
    retry = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=_RECONNECT_SECONDS)
    # Looking up the servers' names raises it for want of descriptors, for example, and would end kazoo's thread.
    retry.retry_exceptions = (*retry.retry_exceptions, OSError)
    return Client(
        access,
        hosts=",".join(servers) + chroot,
        timeout=session_timeout_ms / 1000,
        connection_retry=retry,
    )


def _too_large(request: Any) -> BadConfiguration | None:
    """Return the error for a request that servers do not accept, None for one that they do."""
    if not isinstance(request, (Create, Create2, SetData, Transaction)):
        return None
    size = _HEADER_BYTES + len(request.serialize())
    if size <= MOST_BYTES:
        return None
    written = request.operations if isinstance(request, Transaction) else (request,)
    largest = max(written, key=lambda each: len(getattr(each, "data", b"")))
    return BadConfiguration(
        f"{largest.path}: {size} bytes are too many for ZooKeeper, which accepts {MOST_BYTES} at once "
        "(its default of jute.maxbuffer; a larger one is not used): give the job fewer tasks, or shorter values in its "
        "job file"
    )


class _Transaction(TransactionRequest):  # type: ignore[misc] # kazoo has no types
    def create(self, path: str, value: bytes = b"", acl: Any = None, **how: Any) -> None:
        super().create(path, value, acl or self.client._list(path), **how)  # noqa: SLF001 (part of the same class in effect)
