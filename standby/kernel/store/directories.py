"""Directories of task state: private, and below directories that no other user could have planted."""

from __future__ import annotations

import fcntl
import grp
import itertools
import logging
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from standby.errors import Unavailable

_log: Final = logging.getLogger(__name__)

#: Retries: a process that deletes the last task's state also deletes the empty directories above it.
_TRIES: Final = 100


def make_private(directory: Path, key: str = "job.state.dir") -> None:
    """Create a directory and its missing parents, accessible to this user only (0700).

    Raises `Unavailable` like `check_owners`, and when it cannot be created.
    """
    check_owners(directory, key=key)
    try:
        for _ in range(_TRIES):
            missing = itertools.takewhile(lambda each: not each.is_dir(), (directory, *directory.parents))
            with suppress(FileNotFoundError):
                for each in reversed(list(missing)):
                    each.mkdir(mode=0o700, exist_ok=True)
                return
    except OSError as error:
        raise Unavailable(f"{directory}: cannot be created: {error.strerror}") from error
    raise Unavailable(f"{directory}: cannot be created, because its parents are removed each time")


def kept_in_use(directory: Path) -> int | None:
    """Return the directory, open: until it is closed, systemd-tmpfiles leaves all below it as it is; None if it cannot.

    That removes what was not read for 30 days in ``/var/tmp``, also below a directory in use, but skips what is locked.
    """
    try:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):  # a file system without locks on directories
        fcntl.flock(opened, fcntl.LOCK_SH)
    return opened


def tighten(directory: Path) -> bool:
    """Revoke other users' permissions on a directory of this user; return whether there were any.

    An administrator who created it may have left them. A directory that others may write to is left as it is, because
    its content may be theirs: `check_owners` refuses it.
    """
    try:
        status = directory.lstat()
        mode = stat.S_IMODE(status.st_mode)
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or not mode & 0o077 or _is_writable_by_others(status):
            return False
        directory.chmod(mode & ~0o077)
    except FileNotFoundError:
        return False  # the first container of this cluster on this host
    except OSError as error:
        _log.warning("%s: cannot revoke other users' permissions: %s", directory, error.strerror)
        return False
    _log.info("%s had mode %o; it is now accessible to its owner only", directory, mode)
    return True


def check_owners(directory: Path, user: int | None = None, key: str = "job.state.dir") -> None:
    """Raise `Unavailable` when another user could plant files in the directory or in one of its parents.

    Each directory up to the root, symbolic links followed, must belong to root or to ``user``, by default the user
    of this process. No other user may have write permission, unless the sticky bit protects our files. A group whose
    only member is ``user`` is allowed. ``key`` is the configuration key that names the directory.
    """
    trusted = (0, os.geteuid() if user is None else user)
    real = directory.resolve()
    for each in dict.fromkeys((directory, *directory.parents, real, *real.parents)):
        try:
            status = each.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise Unavailable(f"{each}: {error.strerror}") from error
        if status.st_uid not in trusted:
            raise Unavailable(
                f"{each} belongs to another user (id {status.st_uid}), who could put anything there: set {key} to "
                f"a directory of user {trusted[1]}, below directories of root or of that user"
            )
        if not stat.S_ISLNK(status.st_mode) and _is_writable_by_others(status):
            raise Unavailable(
                f"{each} can be written by other users (mode {stat.S_IMODE(status.st_mode):o}), who could put anything "
                f"there: revoke that permission (chmod go-w {each}), or set {key} to another directory"
            )


def _is_writable_by_others(status: os.stat_result) -> bool:
    """Return whether users other than the owner may remove and replace the content of a directory."""
    if status.st_mode & stat.S_ISVTX:
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_uid, status.st_gid)


def _is_private_group(user: int, group: int) -> bool:
    """Return whether a group is a user's private group, which many systems create for each user."""
    if group == 0:
        return True
    try:
        name, members = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}


def is_shared(directory: Path) -> bool:
    """Return whether all users may write to a directory."""
    return bool(directory.stat().st_mode & stat.S_IWOTH)


def content_bytes(directory: Path) -> int:
    """Return the size of all files in a directory; 0 if it cannot be read."""
    try:
        return sum(each.stat().st_size for each in directory.iterdir())
    except OSError:
        return 0


def remove_empty(directory: Path, *, state_dir: Path) -> None:
    """Remove a directory and its parents while they are empty, up to the state directory.

    The state directory itself is removed only where all users may create it again, like the default one. Otherwise
    an administrator has created it.
    """
    with suppress(OSError):
        for each in _up_to(directory, state_dir):
            if each != state_dir or is_shared(each.parent):
                each.rmdir()


def _up_to(directory: Path, top: Path) -> Iterator[Path]:
    for each in (directory, *directory.parents):
        if not each.is_relative_to(top):
            return
        yield each
