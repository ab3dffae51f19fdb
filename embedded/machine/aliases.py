"""Plain names for directories whose own names YARN cannot take.

YARN's scripts name its directories without quotes, its lists end at a comma, and a class path at a colon. So where
the cluster, the jars or Java lie in a directory with a space, say, the servers see them through links in a directory
of this cluster's own.
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
    """Return a plain path of the directory ``path``: its own if that will do, else a link, ``name``, to it.

    Raises :class:`Unavailable` when the link cannot be made.
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
            f"YARN cannot take the path {path}, and {link} cannot be made in place of it: {error.strerror}"
        ) from error
    return link


def remove_aliases(cluster_id: str) -> None:
    """Remove the links of a cluster, if it has any."""
    shutil.rmtree(_directory(cluster_id), ignore_errors=True)


def _directory(cluster_id: str) -> Path:
    # Not the temporary directory that TMPDIR names: that may have a space, too.
    return Path("/tmp") / f"standfast-{cluster_id}"  # noqa: S108 (made by mkdir, and the owner is looked at)
