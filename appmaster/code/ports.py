"""What a candidate's code service needs of the world outside. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from appmaster.code.rules import Directory
from standby.shared.peers import BundleSource


class CodeDistributor(Protocol):
    """Brings bundles of code to candidates (Storm's ``ICodeDistributor``). Called on one thread; may block."""

    def publish(self, bundle: str, path: Path) -> None:
        """Let others have the bundle that lies complete at ``path``; harmless when they have it.

        Raises `Unavailable` when that cannot be done now.
        """
        ...

    def fetch(self, bundle: str, sources: Sequence[BundleSource], part: Path) -> None:
        """Complete the file ``part`` with what it lacks of the bundle; ``sources`` are tried in turn.

        What is there already is the bundle's beginning. The caller checks the content. Raises `Unavailable`
        when nobody gives it now; what came so far stays.
        """
        ...

    def forget(self, bundle: str) -> None:
        """Remove what `publish` made of a deleted bundle, wherever nobody else keeps it."""
        ...

    def interrupt(self) -> None:
        """Have everything fail from now on (any thread)."""
        ...


class CodeDirectory(Protocol):
    """What candidates tell each other of code."""

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to read; ``changed`` is called, on any thread, whenever `read` has something new."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...

    def read(self) -> Directory | None:
        """Return what is known at this moment; None before everything was read once."""
        ...

    def fresh(self, timeout_seconds: float) -> Directory:
        """Return what holds now, whoever wrote it before this call; raises `Transient`."""
        ...

    def announce(self, bundle: str, source: BundleSource) -> None:
        """Register a source as long as this session lasts; raises `Transient`."""
        ...

    def withdraw(self, bundle: str, source: BundleSource) -> None:
        """End such a registration; raises `Transient`."""
        ...

    def revive(self, bundle: str) -> None:
        """Remove a bundle's tombstone; raises `Transient`."""
        ...

    def condemn(self, bundle: str, epoch: int) -> None:
        """Put a tombstone on a bundle that no job names, as of now; raises as `activate`."""
        ...

    def bury(self, bundle: str, version: int) -> bool:
        """Remove a deleted bundle's node, unless it changed or has a source; raises `Transient`."""
        ...

    def activate(self, job: str, revision: int, epoch: int) -> None:
        """Record that a revision is active; raises `Fenced` when ``epoch`` is not the newest, `Transient`."""
        ...
