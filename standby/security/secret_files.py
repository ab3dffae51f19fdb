"""Secrets that a job does not give itself but by a file of each host: ``kafka.sasl.password.file`` and its like.

Only the file's path travels: through the job file, ZooKeeper and the working directories. Each process reads the value
where it makes a client, so that a new one is taken up with the next client.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from standby.errors import BadConfiguration
from standby.security.disclosure import FILE, is_path_of_secret

#: A key or a chain of certificates has some thousands.
_MOST_BYTES: Final = 64 << 10


def resolved(settings: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return ``settings`` with the values that files hold in place of the files' paths.

    ``prefix`` is what the names lack of a job file's keys (``kafka.``). A newline at the end of a file is not part of
    the value. Raises `BadConfiguration` naming key and file when it cannot be read here, or everybody can read it.
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
        # Not to wait at a pipe that nobody writes to, nor to read a disk.
        is_small = stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES
        content = path.read_bytes() if is_small else b""
    except OSError as error:
        raise BadConfiguration(
            f"{key}: {path}: {error.strerror}; the file has to be on every host of the job and where it is submitted, "
            "readable by the user that containers run as"
        ) from error
    if not is_small:
        raise BadConfiguration(
            f"{key}: {path}: give a file with the value alone, of at most {_MOST_BYTES >> 10} KiB"
        )
    if status.st_mode & stat.S_IROTH:
        raise BadConfiguration(
            f"{key}: {path}: everybody on this host can read it; take that right away (chmod o-rwx {path})"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{key}: {path}: it is not UTF-8 text") from error
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise BadConfiguration(f"{key}: {path}: the file is empty")
    return value
