"""Where the embedded cluster keeps its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from standby.errors import Unavailable


def yarn_conf() -> Path:
    """Return the directory of templates and jar lock: of the installed package, or of the checkout."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "yarn-conf", package.parent / "yarn-conf"):
        if (candidate / "jars.lock").is_file():
            return candidate
    raise Unavailable(f"yarn-conf is neither in {package} nor next to it: install standfast again")


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return where downloaded files are kept; they can be fetched again."""
    return _own_or(environment, "STANDFAST_CACHE", "XDG_CACHE_HOME", ".cache")


def clusters_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory that has one directory per embedded cluster."""
    return _own_or(environment, "STANDFAST_HOME", "XDG_STATE_HOME", ".local/state") / "local"


def _own_or(environment: Mapping[str, str], own: str, xdg: str, default: str) -> Path:
    if environment.get(own):
        return Path(environment[own]).expanduser().absolute()
    if environment.get(xdg):
        return Path(environment[xdg]).expanduser().absolute() / "standfast"
    return Path.home() / default / "standfast"
