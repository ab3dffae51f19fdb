"""An operator's credentials: a directory for each cluster in $STANDFAST_CREDENTIALS, else ~/.standfast/credentials.

The first submit of a cluster makes all of them: its authority, a certificate for each role, the secret that protects
its tree in ZooKeeper, and the pair for Skein's AM. The holder of the authority's key issues certificates for further
operators (`standfast credentials issue`); their directories contain only a certificate.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import getpass
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from appmaster.adapters.credentials.authority import PemKeyPair, issue, new_authority, skein_pair
from appmaster.adapters.credentials.certificates import end_of, expiry_warning
from standby.adapters.tls import TlsCredentials
from standby.adapters.zookeeper.access import AS_IT_IS, Access, container_secret, owner_access, owner_digest
from standby.ensemble import Tls, tls_of
from standby.errors import BadConfiguration
from standby.security.credentials import Bootstrap, Credentials
from standby.security.private_files import write_private
from standby.shared.naming import NAME
from standby.shared.roles import PeerRole

VARIABLE: Final = "STANDFAST_CREDENTIALS"

_TRUST: Final = "authority.crt"
_AUTHORITY: Final = "authority"
_SECRET: Final = "zookeeper.secret"  # noqa: S105 (the name of a file)
_NUMBER: Final = "number"

#: Of a rotation under way: the credentials that every process is to have in the end.
_NEXT: Final = "next"


@dataclass(frozen=True, slots=True)
class Keyring:
    """An operator's credentials of one cluster, in ``directory``."""

    cluster: str
    directory: Path

    @property
    def keys(self) -> TlsCredentials:
        """The keys that this operator shows to the cluster's processes; raises `BadConfiguration` if invalid."""
        return TlsCredentials(self.credentials(PeerRole.OPERATOR))

    def expiry_warning(self) -> str:
        """Return the message about the certificate's expiry; empty while it is far away.

        Raises `BadConfiguration` if it has expired.
        """
        return expiry_warning(self._read("operator.crt").encode(), self.directory)

    @property
    def has_expired(self) -> bool:
        """Whether the cluster's authority has expired, and every certificate of it, too."""
        return end_of(self.authorities().encode()) <= dt.datetime.now(dt.timezone.utc)

    def credentials(self, role: PeerRole) -> Credentials:
        """Return the credentials with which processes of a role start."""
        pair, trust = self.pair(role), self._read(_TRUST)
        if role is PeerRole.OPERATOR and (following := self.directory / _NEXT / _TRUST).exists():
            # A rotation is under way: some processes already show the new certificate, others still the old one.
            trust += following.read_text()
        return Credentials(self.number, trust, pair.certificate, pair.key)

    def pair(self, role: PeerRole) -> PemKeyPair:
        """Return the certificate of a role."""
        return self._pair(role.value)

    def bootstrap(self, role: PeerRole) -> Bootstrap:
        """Return what a process of a role has before its first connection."""
        secret = self.secret
        mine = container_secret(secret) if role is PeerRole.CONTAINER else secret
        return Bootstrap(self.credentials(role), mine, owner_digest(secret))

    @property
    def is_whole(self) -> bool:
        """Whether it belongs to the cluster's owner, who submits and rotates."""
        return (self.directory / _SECRET).exists()

    @property
    def secret(self) -> str:
        """The secret that protects the cluster's tree in ZooKeeper; raises `BadConfiguration` for an issued keyring."""
        self._check_whole("submit, or look into ZooKeeper")
        return self._read(_SECRET).strip()

    @property
    def skein(self) -> PemKeyPair:
        """The pair for Skein's AM."""
        return PemKeyPair(self._read("skein.crt"), self._read("skein.pem"))

    @property
    def number(self) -> int:
        """The number under which the credentials in the directory were last given out."""
        try:
            return int(self._read(_NUMBER))
        except ValueError as error:
            raise BadConfiguration(f"{self.directory / _NUMBER}: not a number") from error

    def issue(self, name: str, target: Path) -> Keyring:
        """Return a keyring in ``target`` for another operator, called ``name``: certificates only, no secret.

        Raises `BadConfiguration` if ``target`` exists, or cannot be made.
        """
        self._check_whole("issue a certificate")
        if target.exists():
            raise BadConfiguration(f"{target} exists already; name a new directory")
        files = {
            _TRUST: self._read(_TRUST),
            _NUMBER: str(self.number),
            **_files("operator", issue(self._pair(_AUTHORITY), PeerRole.OPERATOR, name)),
        }
        try:
            _write(target, files)
        except OSError as error:
            raise BadConfiguration(f"{target} cannot be made: {error.strerror}") from error
        return Keyring(self.cluster, target)

    def access(self, *, is_closed: bool | None = None, tls: Tls | None = None) -> Access:
        """Return the authentication of this user's sessions with ZooKeeper: none unless the keyring is the owner's.

        ``tls`` are the settings for connections to its servers, if the environment does not have them.
        """
        tls = tls or tls_of(os.environ)
        return (
            owner_access(self.secret, is_closed=is_closed, tls=tls)
            if self.is_whole
            else replace(AS_IT_IS, tls=tls)
        )

    # ---- rotation ----

    def next(self) -> Keyring:
        """Return the credentials that every process is to have in the end; made once, and kept until `finish`."""
        self._check_whole("rotate")
        directory = self.directory / _NEXT
        # Of one that was interrupted at its very end, the empty directory is left.
        if not (directory / _TRUST).exists():
            _write(directory, _made(self.cluster, user_name()))
        return Keyring(self.cluster, directory)

    def authorities(self) -> str:
        """Return the certificates of the trusted authorities, in PEM."""
        return self._read(_TRUST)

    def finish(self, number: int) -> None:
        """Replace the directory's credentials by those of `next`, last given out with ``number``."""
        # With the number there, `resume` goes on from wherever this is interrupted.
        write_private(self.directory / _NEXT / _NUMBER, str(number).encode())
        self.resume()

    def resume(self) -> int:
        """Complete a `finish` that was interrupted, and return its number; 0: there is none."""
        following = self.directory / _NEXT
        if not (following / _NUMBER).exists():
            return 0
        for name in (_TRUST, *(f"{each}.{end}" for each in _PARTS for end in ("crt", "key")), _NUMBER):
            if (following / name).exists():
                (following / name).replace(self.directory / name)
        shutil.rmtree(following)
        return self.number

    def _check_whole(self, what: str) -> None:
        if not self.is_whole:
            raise BadConfiguration(
                f"{self.directory} holds only an operator's certificate; the user who first submitted cluster "
                f"{self.cluster} has the credentials to {what}"
            )

    def _pair(self, name: str) -> PemKeyPair:
        return PemKeyPair(self._read(f"{name}.crt"), self._read(f"{name}.key"))

    def _read(self, name: str) -> str:
        path = self.directory / name
        try:
            return path.read_text()
        except OSError as error:
            raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from error


#: Each of these has a certificate and a key.
_PARTS: Final = (_AUTHORITY, *(each.value for each in PeerRole))


def root() -> Path:
    """Return the directory of this user's keyrings; raises `BadConfiguration` if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    try:
        return Path.home() / ".standfast" / "credentials"
    except RuntimeError as error:
        raise BadConfiguration(
            f"this user has no home directory, and HOME is not set: set {VARIABLE} to a directory for credentials"
        ) from error


def user_name() -> str:
    """Return this user's name, or the number if the user database has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        return f"uid {os.getuid()}"


def find(cluster: str) -> Keyring | None:
    """Return this user's keyring of a cluster; None if there is none."""
    return _in(root() / _checked(cluster), cluster)


def require(cluster: str) -> Keyring:
    """Return this user's keyring of a cluster; raises `BadConfiguration` with a remedy if there is none."""
    found = find(cluster)
    if found is None:
        raise BadConfiguration(
            f"{root()} has no credentials of cluster {cluster}: is the name right, or --cluster missing? Its first "
            f"submit makes them; {VARIABLE} names the directory that it used"
        )
    return found


def make_sure(cluster: str) -> Keyring:
    """Return this user's keyring of a cluster, made at the first use; raises `BadConfiguration`."""
    directory = root() / _checked(cluster)
    try:
        root().mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(root()):
            if _in(directory, cluster) is None:
                _write(
                    directory,
                    {
                        **_made(cluster, user_name()),
                        _SECRET: secrets.token_hex(32),
                        _NUMBER: "1",
                        "skein.crt": (skein := skein_pair()).certificate,
                        "skein.pem": skein.key,
                    },
                )
    except OSError as error:
        raise BadConfiguration(
            f"{directory} cannot be created ({error.strerror}): set {VARIABLE} to a writable directory"
        ) from error
    return Keyring(cluster, directory)


def keyring_in(directory: Path, cluster: str) -> Keyring:
    """Return the keyring in ``directory``, wherever that is; raises `BadConfiguration` if there is none."""
    found = _in(directory, cluster)
    if found is None:
        raise BadConfiguration(f"{directory} holds no credentials of a cluster: there is no operator.crt")
    return found


def access_to(cluster: str) -> Access:
    """Return the authentication of this user's sessions with ZooKeeper; none if this user does not own the cluster."""
    found = find(cluster)
    return anonymous_access() if found is None else found.access()


def anonymous_access() -> Access:
    """Return the access of a session without authentication, with this environment's settings for connections."""
    return replace(AS_IT_IS, tls=tls_of(os.environ))


def _made(cluster: str, operator: str) -> dict[str, str]:
    authority = new_authority(cluster)
    names = {PeerRole.OPERATOR: operator, PeerRole.MASTER: cluster, PeerRole.CONTAINER: cluster}
    files = {_TRUST: authority.certificate, f"{_AUTHORITY}.key": authority.key}
    for role, name in names.items():
        files |= _files(role.value, issue(authority, role, name))
    return files


def _files(name: str, pair: PemKeyPair) -> dict[str, str]:
    return {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}


def _in(directory: Path, cluster: str) -> Keyring | None:
    return Keyring(cluster, directory) if (directory / "operator.crt").exists() else None


def _checked(cluster: str) -> str:
    if not NAME.match(cluster):
        raise BadConfiguration(f"{cluster!r} is not a cluster name")
    return cluster


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """Create a directory with files that only this user can read; either all of them or none."""
    draft = directory.with_name(f".{directory.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700, parents=True)
    try:
        for name, text in files.items():
            write_private(draft / name, text.encode())
        draft.replace(directory)
    finally:
        # Keys that belong to nobody, if the disk is full for example.
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
