"""Secrets in files on each host, given by settings such as ``kafka.sasl.password.file``.

Only the file's path is distributed, through the job file, ZooKeeper and the working directories. Each process reads
the value when it creates a client, so that a changed value is used by the next client.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from standby.errors import BadConfiguration
from standby.security.disclosure import FILE, is_path_of_secret

#: Maximum file size; a key or a certificate chain has some thousand bytes.
_MOST_BYTES: Final = 64 << 10


def resolved(settings: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return ``settings`` with the files' contents in place of their paths.

    ``prefix`` is the prefix of the job file's keys (``kafka.``) that the names lack. A newline at the end of a file
    is not part of the value. Raises `BadConfiguration` with key and file when the file cannot be read here, or is
    readable by all users.
    """
    found: dict[str, str] = {}
    for name, value in settings.items():
        if is_path_of_secret(f"{prefix}{name}"):
            found[name.removesuffix(FILE)] = _read(f"{prefix}{name}", Path(value))
        else:
            found[name] = value
    return found


def _read(key: str, path: Path) -> str:
    try:
        status = path.stat()
        # Do not block on a pipe without a writer, or read a device.
        is_small = stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES
        content = path.read_bytes() if is_small else b""
    except OSError as error:
        raise BadConfiguration(
            f"{key}: {path}: {error.strerror}; the file must exist on every host of the job and where it is submitted, "
            "readable by the user that containers run as"
        ) from error
    if not is_small:
        raise BadConfiguration(
            f"{key}: {path}: give a file that contains only the value, of at most {_MOST_BYTES >> 10} KiB"
        )
    if status.st_mode & stat.S_IROTH:
        raise BadConfiguration(
            f"{key}: {path}: all users of this host can read it; revoke that permission (chmod o-rwx {path})"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{key}: {path}: it is not UTF-8 text") from error
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise BadConfiguration(f"{key}: {path}: the file is empty")
    return value
