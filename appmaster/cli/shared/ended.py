"""YARN's own words for an application that has ended, with the last lines that its master wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from appmaster.adapters import node_logs
from appmaster.cli.shared import yarn
from appmaster.eventlog.entries import ApplicationEnded, EntryKind, LogEntry, written

#: Lines of its master's output that are shown with it.
_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Ended:
    """An application that has ended."""

    application: str
    name: str
    state: str
    """YARN's: FINISHED (its master ended it), FAILED (YARN could not run it) or KILLED."""
    final_status: str
    """What its master said of the end; UNDEFINED when it said nothing."""
    diagnostics: str
    """YARN's and the master's words; may be several lines."""
    host: str
    """Where its master ran last; empty when it never did."""
    at_ms: int
    """Unix milliseconds; 0 when YARN does not say."""
    output: str = ""
    """The last lines of the master's output; empty where they cannot be had."""

    def __str__(self) -> str:
        """Return it for people: one line, and the output's lines below, indented."""
        how = self.final_status if self.state == "FINISHED" else self.state
        where = f" on {self.host}" if self.host else ""
        words = " ".join(self.diagnostics.split())
        lines = (f"{self.application} ended{where} as {how}: {words or 'YARN gives no reason'}",)
        return "\n    ".join((*lines, *self.output.splitlines()))


def ended(client: Any, application: str) -> Ended | None:
    """Return how an application has ended; None while it runs, and when YARN does not know it (any more)."""
    report = yarn.report(client, application)
    return _of(report) if report is not None and str(report.state) in yarn.ENDS else None


def latest(client: Any, cluster: str) -> list[Ended]:
    """Return the last ended application of each cell of a cluster, as far as YARN remembers them."""
    found: dict[str, Any] = {}
    for report in client.get_applications(states=yarn.ENDS):
        # As `appmaster.cli.launch.application` names them.
        prefix, _, number = report.name.rpartition("-")
        if prefix != f"standfast-{cluster}" or not number.isdecimal():
            continue
        before = found.get(report.name)
        if before is None or before.start_time < report.start_time:
            found[report.name] = report
    return [_of(each) for _, each in sorted(found.items())]


def _of(report: Any) -> Ended:
    return Ended(
        report.id,
        report.name,
        str(report.state),
        str(report.final_status),
        report.diagnostics or "",
        "" if report.host in (None, "N/A") else report.host,
        # Skein gives local times, without their zone.
        int(report.finish_time.timestamp() * 1000) if report.finish_time is not None else 0,
        node_logs.master_output(report.tracking_url or "", report.id, _LINES),
    )


class Ends:
    """Tells of each application of a job that ends: once, to who waits and in the cluster's event log."""

    def __init__(
        self, job: str, say: Callable[[str], None], append: Callable[[Mapping[str, object]], None]
    ) -> None:
        self._job = job
        self._say = say
        self._append = append
        self._found: dict[str, Ended] = {}

    def look(self, client: Any, applications: Sequence[str]) -> list[Ended]:
        """Return those of ``applications`` that have ended, after telling of the new ones among them."""
        for each in applications:
            end = ended(client, each) if each not in self._found else None
            if end is not None:
                self._found[each] = end
                self._say(f"{each} has ended")
                self._append(entry(end, self._job))
        return list(self._found.values())


def entry(end: Ended, job: str) -> dict[str, object]:
    """Return the event log's entry for the end of an application; docs/events.md describes it."""
    details = ApplicationEnded(end.application, end.state, end.final_status, end.diagnostics, end.output)
    told = LogEntry(EntryKind.APPLICATION_ENDED, details, job=job, host=end.host or None, reason=str(end))
    return written(told, end.at_ms, 0)
