"""Directories of the embedded cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from standby.errors import BadConfiguration, Unavailable


def yarn_conf() -> Path:
    """Return the directory of the templates and the jar lock, in the installed package or in the checkout."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "yarn-conf", package.parent / "yarn-conf"):
        if (candidate / "jars.lock").is_file():
            return candidate
    raise Unavailable(f"yarn-conf is neither in {package} nor next to it: install standfast again")


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of downloaded files; they can be downloaded again.

    Raises :class:`BadConfiguration` if neither a variable nor a home directory determines it.
    """
    return _own_or(environment, "STANDFAST_CACHE", "XDG_CACHE_HOME", ".cache")


def clusters_directory(environment: Mapping[str, str]) -> Path:
    """Return the parent directory of embedded clusters. Raises :class:`BadConfiguration` like `cache_directory`."""
    return _own_or(environment, "STANDFAST_HOME", "XDG_STATE_HOME", ".local/state") / "local"


def _own_or(environment: Mapping[str, str], own: str, xdg: str, default: str) -> Path:
    if environment.get(own):
        return Path(environment[own]).expanduser().absolute()
    if environment.get(xdg):
        return Path(environment[xdg]).expanduser().absolute() / "standfast"
    home = home_directory()
    if home is None:
        raise BadConfiguration(
            f"this user has no home directory, and HOME is not set: set {own} to a directory"
        )
    return home / default / "standfast"


def home_directory() -> Path | None:
    """Return this user's home directory; None if neither HOME nor the user database has one."""
    try:
        return Path.home()
    except RuntimeError:
        return None
