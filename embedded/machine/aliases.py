"""Plain aliases for directories whose names YARN does not support.

YARN's scripts do not quote directory names, commas separate its lists, and colons separate class paths. If the
cluster, the jars or Java are in a directory whose name has, for example, a space, the servers use symbolic links to
them. Each cluster has its own directory of links.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from standby.errors import Unavailable

_PLAIN: Final = re.compile(r"[A-Za-z0-9/._+=@-]+")


def alias(cluster_id: str, name: str, path: Path) -> Path:
    """Return a plain path of the directory ``path``: the path itself if it is plain, else a link ``name`` to it.

    Raises :class:`Unavailable` if the link cannot be created.
    """
    if _PLAIN.fullmatch(str(path)):
        return path
    directory = _directory(cluster_id)
    link = directory / name
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.lstat().st_uid != os.geteuid():
            raise Unavailable(f"{directory} belongs to another user: remove it")
        if not link.is_symlink() or link.readlink() != path:
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    except OSError as error:
        raise Unavailable(
            f"YARN does not support the path {path}, and the link {link} cannot be created: {error.strerror}"
        ) from error
    return link


def remove_aliases(cluster_id: str) -> None:
    """Remove the links of a cluster, if it has any."""
    shutil.rmtree(_directory(cluster_id), ignore_errors=True)


def _directory(cluster_id: str) -> Path:
    # Not the directory of TMPDIR, whose name may also have a space.
    return Path("/tmp") / f"standfast-{cluster_id}"  # noqa: S108 (made by mkdir, and the owner is looked at)
