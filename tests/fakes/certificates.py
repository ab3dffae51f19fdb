"""Credentials as a submit issues them: of one cluster for all tests of this process, or of another one."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import ssl
import tempfile
import warnings
from pathlib import Path
from unittest import mock

from appmaster.adapters.credentials.keyring import VARIABLE, Keyring, make_sure
from standby.adapters.tls import TlsCredentials
from standby.security import credentials
from standby.shared.roles import PeerRole
from tests.patience import PATIENCE_SECONDS


def new_keyring(cluster: str = "tests") -> Keyring:
    """Return the keyring of another cluster, in a directory of its own that goes with the process."""
    directory = Path(tempfile.mkdtemp(prefix="standfast-keyring-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with mock.patch.dict(os.environ, {VARIABLE: str(directory)}):
        return make_sure(cluster)


@functools.cache
def shared_keyring() -> Keyring:
    """Return one keyring for all tests of this process."""
    return new_keyring()


def keys_of(role: PeerRole, ring: Keyring | None = None) -> TlsCredentials:
    """Return what a process of a role shows and trusts."""
    return TlsCredentials((ring or shared_keyring()).credentials(role))


def write_credentials(directory: Path, role: PeerRole = PeerRole.CONTAINER) -> None:
    """Put what a process of a role begins with where YARN puts it, into its working directory."""
    directory.mkdir(parents=True, exist_ok=True)
    bootstrap = shared_keyring().bootstrap(role)
    (directory / credentials.FILE).write_bytes(credentials.encode(bootstrap))


def user_directory(directory: Path, cluster: str) -> Path:
    """Return ``directory`` as STANDFAST_CREDENTIALS of a user who has submitted ``cluster`` before."""
    shutil.copytree(shared_keyring().directory, directory / cluster)
    return directory


def alert_to_an_old_client(port: int) -> str:
    """Return why a server on loopback does not speak TLS 1.1 with a client without later versions."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Without this it is the client's own library that refuses.
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as raw:
        try:
            context.wrap_socket(raw).close()
        except ssl.SSLError as error:
            return error.reason or ""
    return ""
