"""Where the embedded cluster keeps its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from standby.errors import BadConfiguration, Unavailable


def yarn_conf() -> Path:
    """Return the directory of templates and jar lock: of the installed package, or of the checkout."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "yarn-conf", package.parent / "yarn-conf"):
        if (candidate / "jars.lock").is_file():
            return candidate
    raise Unavailable(f"yarn-conf is neither in {package} nor next to it: install standfast again")


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return where downloaded files are kept; they can be fetched again.

    Raises :class:`BadConfiguration` when nothing says where.
    """
    return _own_or(environment, "STANDFAST_CACHE", "XDG_CACHE_HOME", ".cache")


def clusters_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory that has one directory per embedded cluster; raises :class:`BadConfiguration`."""
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
    """Return this user's home directory, None where neither HOME nor the user database names one."""
    try:
        return Path.home()
    except RuntimeError:
        return None
