"""Translates library errors that no adapter has translated: into one line and a documented exit status.

Adapters translate the errors they know, and say what was being done. This module handles the rest at a command's end.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from standby.errors import BadConfiguration, StandfastError, Unavailable

#: Libraries, by the first part of their modules' names, and what they communicate with.
_OTHER_ENDS: Final = {
    "cimpl": "Kafka",  # confluent_kafka's own
    "confluent_kafka": "Kafka",
    "cryptography": "the credentials",
    "grpc": "the cluster's application masters",
    "http": "the cluster's HTTP ports",
    "kazoo": "ZooKeeper",
    "py4j": "Spark",
    "pyspark": "Spark",
    "skein": "YARN",
    "ssl": "TLS",
    "subprocess": "a local command",
}

#: Errors that repetition does not fix: the client lacks the permission.
_REFUSALS: Final = ("NoAuthError", "AuthFailedError")

_ROOT: Final = Path(__file__).parents[3]
_OURS: Final = ("appmaster", "embedded", "locality", "standby")


def translated(error: Exception) -> StandfastError | None:
    """Return the error to report in place of a traceback; None for an error of this program itself."""
    if isinstance(error, StandfastError):
        return error
    library = next(
        (name for kind in type(error).__mro__ if (name := kind.__module__.partition(".")[0]) in _OTHER_ENDS),
        None,
    )
    if library is not None:
        kind = BadConfiguration if type(error).__name__ in _REFUSALS else Unavailable
        return kind(f"{_OTHER_ENDS[library]}: {_said(error)} ({_place(error)})")
    if isinstance(error, OSError):
        return Unavailable(f"{_said(error)} ({_place(error)})")
    return None


def _said(error: Exception) -> str:
    """Return the error's type and text, in one line."""
    code, details = (getattr(error, each, None) for each in ("code", "details"))
    text = str(error)
    if callable(code) and callable(details):
        # gRPC's errors have a page of text; these two suffice.
        text = f"{getattr(code(), 'name', '')}: {details()}"
    return ": ".join(filter(None, (type(error).__name__, " ".join(text.split()))))


def _place(error: Exception) -> str:
    """Return the place in this program where it was raised, for a bug report."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _OURS:
            return f"{path.relative_to(_ROOT)}:{frame.lineno}"
    return "in a library"
