"""The audit of changes: entries of the event log that name the caller by its certificate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from appmaster.eventlog.entries import AuditData, EntryKind, LogEntry, entry_document
from standby.shared.clock import Clock
from standby.shared.roles import Caller, PeerRole

_log: Final = logging.getLogger("appmaster.audit")

#: Minimum between two entries about refusals of containers, seconds: a caller that is refused could keep asking.
_REFUSED_SECONDS: Final = 10.0


@dataclass
class Auditor:
    """Appends an entry for each call that asks for a change, and for some calls that were refused for their role.

    Any thread may call.
    """

    append: Callable[[dict[str, Any]], None]
    """Takes an entry (docs/events.md)."""
    clock: Clock
    epoch: Callable[[], int]
    """Returns that of this candidate's leadership."""
    candidate: str
    host: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refused: tuple[float, int] = (-_REFUSED_SECONDS, 0)
    """When the last entry about a refusal was made, monotonic seconds, and how many refusals were skipped since."""

    def __call__(self, caller: Caller, operation: str, about: Mapping[str, Any], said: str) -> None:
        """Log that ``caller`` asked for ``operation``, and the answer ``said``; ``about`` must contain no secret."""
        before = None
        if caller.role is PeerRole.CONTAINER:
            before = self._refused_before()
            if before is None:
                return
        details = AuditData(
            caller.name,
            caller.role.value,
            operation,
            {name: value for name, value in about.items() if name != "job"},
            said,
            self.candidate,
            before,
        )
        job = about.get("job")
        _log.info("%s asked for %s of %s: %s", caller, operation, job or "the cluster", said)
        entry = LogEntry(EntryKind.ASKED, details, job=job if isinstance(job, str) else None, host=self.host)
        self.append(entry_document(entry, self.clock.now_ms(), self.epoch()))

    def _refused_before(self) -> int | None:
        """Return how many refusals were skipped since the last entry; None: this one is skipped, too."""
        with self._lock:
            at, count = self._refused
            now = self.clock.monotonic()
            if now - at < _REFUSED_SECONDS:
                self._refused = (at, count + 1)
                return None
            self._refused = (now, 0)
            return count
