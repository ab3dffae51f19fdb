"""What became of the containers that were requested for a slot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from appmaster.planning.state.reasons import Setback


@dataclass(frozen=True, slots=True)
class Attempts:
    """Recent failures of a slot."""

    failures_ms: tuple[int, ...] = ()
    """When its container failed, within the retry window."""
    not_before_ms: int = 0
    """No request is made before this time."""
    in_row: int = 0
    """Failures and refusals since it last held a container that worked."""
    last: Setback | None = None
    """The last of all; None: there was none."""
    move_not_before_ms: int = 0
    """No container to which its copy is to move is requested before this time."""
    moves_in_row: int = 0
    """Failures and refusals of such containers since its copy last moved."""

    def row(self, *, is_move: bool) -> tuple[int, int]:
        """Return the failures in a row, and when the next request may be made.

        ``is_move``: of containers to which the copy was to move. That it serves where it is proves nothing about these,
        and their failures delay no request for a copy that is lost.
        """
        return (self.moves_in_row, self.move_not_before_ms) if is_move else (self.in_row, self.not_before_ms)
