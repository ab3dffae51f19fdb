"""Directories that task state lies in: private, below a place that nobody else could have made for us."""

from __future__ import annotations

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
from standby.shared.naming import escape

_log: Final = logging.getLogger(__name__)

#: Whoever deletes the last task's state deletes the empty directories above it: so often they are made again.
_TRIES: Final = 100


def make_private(directory: Path, key: str = "job.state.dir") -> None:
    """Make a directory with those above it that are missing, for this user alone (0700).

    Raises `Unavailable` as `check_owners` does, and when it cannot be made.
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
        raise Unavailable(f"{directory}: cannot be made: {error.strerror}") from error
    raise Unavailable(f"{directory}: cannot be made, for it is removed each time")


def tighten(directory: Path) -> bool:
    """Take from everybody else what rights they have to a directory of this user's; return whether they had any.

    A release before this one, or its umask, may have left them. One that others may write to is left as it is, for what
    is in it may be theirs: `check_owners` refuses it.
    """
    try:
        status = directory.lstat()
        mode = stat.S_IMODE(status.st_mode)
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or not mode & 0o077 or _is_writable_by_others(status):
            return False
        directory.chmod(mode & ~0o077)
    except OSError as error:
        _log.warning("%s: others keep their rights to it: %s", directory, error.strerror)
        return False
    _log.info("%s had mode %o, and is for its owner alone from here on", directory, mode)
    return True


def tighten_below(state_dir: Path, cluster: str, host: str) -> None:
    """Take from others what rights an earlier release left them to a cluster's state on this host (`tighten`).

    The uppermost directories keep everybody out of those below. The state directory itself keeps its mode: other
    things may lie in it.
    """
    for each in (state_dir / escape(cluster), state_dir / escape(cluster) / escape(host)):
        tighten(each)


def check_owners(directory: Path, user: int | None = None, key: str = "job.state.dir") -> None:
    """Raise `Unavailable` when another user may put something there, or into one above it, for us to use.

    Each directory up to the root, symbolic links followed, has to belong to root or to ``user``, by default the one
    that this process runs as; and nobody else may write to it, unless its sticky bit keeps them from what is ours. A
    group of which ``user`` is the only member is nobody else. ``key`` is what names the directory in a job file.
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
                f"{each} belongs to another user (id {status.st_uid}), who could put anything there: let {key} name "
                f"a directory of user {trusted[1]}'s own, below directories of root's or of its own"
            )
        if not stat.S_ISLNK(status.st_mode) and _is_writable_by_others(status):
            raise Unavailable(
                f"{each} can be written by other users (mode {stat.S_IMODE(status.st_mode):o}), who could put anything "
                f"there: take that right away (chmod go-w {each}), or let {key} name another directory"
            )


def _is_writable_by_others(status: os.stat_result) -> bool:
    """Return whether somebody else than the owner may remove and replace what is in a directory."""
    if status.st_mode & stat.S_ISVTX:
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_uid, status.st_gid)


def _is_private_group(user: int, group: int) -> bool:
    """Return whether a group is a user's own, as many systems make one for each user."""
    if group == 0:
        return True
    try:
        name, members = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}


def is_shared(directory: Path) -> bool:
    """Return whether everybody may write to a directory."""
    return bool(directory.stat().st_mode & stat.S_IWOTH)


def remove_empty(directory: Path, *, state_dir: Path) -> None:
    """Remove a directory and those above it, as far as they are empty, up to the state directory.

    That one goes only from where everybody may make it again, as the default one: else an administrator made it.
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
