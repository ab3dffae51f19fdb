"""Files with secrets, which only this user can read."""

from __future__ import annotations

from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read, over the one that may be there."""
    draft = path.with_name(f".{path.name}")
    # One that an interrupted command has left is not taken over, nor what somebody has linked there.
    draft.unlink(missing_ok=True)
    draft.touch(0o600, exist_ok=False)
    draft.write_bytes(content)
    draft.replace(path)
