"""The version of standfast that runs."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """Return the installed distribution's version, or ``unknown`` in a tree that was never installed."""
    try:
        return importlib.metadata.version("standfast")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
