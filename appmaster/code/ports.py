"""The interfaces of a candidate's code service to the outside world. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from appmaster.code.rules import Directory
from standby.shared.peers import BundleSource


class CodeDistributor(Protocol):
    """Brings bundles of code to candidates (Storm's ``ICodeDistributor``). Called on one thread; may block."""

    def publish(self, bundle: str, path: Path) -> None:
        """Make the complete bundle at ``path`` available to others; harmless if it is already.

        Raises `Unavailable` if that is not possible now.
        """
        ...

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Complete the file ``part`` with what it lacks of the bundle; ``sources`` are tried in order.

        What the file already contains is the bundle's beginning. The caller checks the content. Raises `Unavailable` if
        no source has it now; what has arrived so far is kept.
        """
        ...

    def forget(self, bundle: str, bury: Callable[[], bool]) -> None:
        """Remove what `publish` made of a deleted bundle, once ``bury`` has returned that nobody wants it again.

        ``bury`` is called when `fetch` and `publish` do not find it any more. If it returns False or raises, what
        `publish` made is there again: another process may have found it just before, and have published nothing.
        """
        ...

    def interrupt(self) -> None:
        """Make everything fail from now on (any thread)."""
        ...


class CodeDirectory(Protocol):
    """What candidates share about code."""

    def start(self, changed: Callable[[], None]) -> None:
        """Start reading; ``changed`` is called, on any thread, whenever `read` has something new."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...

    def read(self) -> Directory | None:
        """Return what is known at this moment; None before the first complete read."""
        ...

    def fresh(self, timeout_seconds: float) -> Directory:
        """Return the present content, including everything written before this call; raises `Transient`."""
        ...

    def announce(self, bundle: str, source: BundleSource) -> None:
        """Register a source for as long as this session lasts; raises `Transient`."""
        ...

    def withdraw(self, bundle: str, source: BundleSource) -> None:
        """End such a registration; raises `Transient`."""
        ...

    def revive(self, bundle: str) -> None:
        """Remove a bundle's tombstone; raises `Transient`."""
        ...

    def condemn(self, bundle: str, epoch: int) -> None:
        """Put a tombstone on a bundle that no job names at this moment; raises as `activate`."""
        ...

    def bury(self, bundle: str, version: int) -> bool:
        """Remove a deleted bundle's node, unless it changed or has a source; raises `Transient`."""
        ...

    def activate(self, job: str, run: str, revision: int, epoch: int) -> None:
        """Record that a revision is active, unless the job has another run now.

        Raises `Fenced` if ``epoch`` is not the newest, and `Transient`.
        """
        ...
