"""YARN's report about an application that has ended, with the last lines of its master's output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from appmaster.adapters import node_logs
from appmaster.cli.shared import yarn
from appmaster.eventlog.entries import ApplicationEndedData, EntryKind, LogEntry, entry_document

#: Number of lines of its master's output that are shown with it.
_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class EndedApplication:
    """An application that has ended."""

    application: str
    state: str
    """YARN's: FINISHED (its master ended it), FAILED (YARN could not run it) or KILLED."""
    final_status: str
    """The final status that its master reported; UNDEFINED if it reported none."""
    diagnostics: str
    """YARN's and the master's text; may be several lines."""
    host: str
    """The last host of its master; empty if the master never ran."""
    at_ms: int
    """Unix milliseconds; 0 if YARN does not report it."""
    output: str = ""
    """The last lines of the master's output; empty if they are not available."""

    def __str__(self) -> str:
        """Return a text for people: one line, and the output's lines below it, indented."""
        how = self.final_status if self.state == "FINISHED" else self.state
        where = f" on {self.host}" if self.host else ""
        words = " ".join(self.diagnostics.split())
        lines = (f"{self.application} ended{where} as {how}: {words or 'YARN gives no reason'}",)
        return "\n    ".join((*lines, *self.output.splitlines()))


def ended_application(client: Any, application: str) -> EndedApplication | None:
    """Return how an application has ended; None while it runs, and if YARN does not know it (any more)."""
    report = yarn.report(client, application)
    return _of(report) if report is not None and str(report.state) in yarn.ENDS else None


def latest_ended(client: Any, cluster: str) -> list[EndedApplication]:
    """Return the last ended application of each cell of a cluster, as far as YARN remembers them."""
    found: dict[str, Any] = {}
    for report in client.get_applications(states=yarn.ENDS):
        # These names are given by `appmaster.cli.launch.application`.
        prefix, _, number = report.name.rpartition("-")
        if prefix != f"standfast-{cluster}" or not number.isdecimal():
            continue
        before = found.get(report.name)
        if before is None or before.start_time < report.start_time:
            found[report.name] = report
    return [_of(each) for _, each in sorted(found.items())]


def _of(report: Any) -> EndedApplication:
    return EndedApplication(
        report.id,
        str(report.state),
        str(report.final_status),
        report.diagnostics or "",
        "" if report.host in (None, "N/A") else report.host,
        # Skein gives local times without their time zone.
        int(report.finish_time.timestamp() * 1000) if report.finish_time is not None else 0,
        node_logs.master_output(report.tracking_url or "", report.id, _LINES),
    )


@dataclass
class ApplicationWatch:
    """Reports each application of a job that ends: once, as progress output and in the cluster's event log."""

    job: str
    say: Callable[[str], None]
    append: Callable[[Mapping[str, object]], None]
    _found: dict[str, EndedApplication] = field(default_factory=dict)

    def look(self, client: Any, applications: Sequence[str]) -> list[EndedApplication]:
        """Return those of ``applications`` that have ended, after reporting the new ones among them."""
        for each in applications:
            end = ended_application(client, each) if each not in self._found else None
            if end is not None:
                self._found[each] = end
                self.say(f"{each} has ended")
                self.append(end_entry(end, self.job))
        return list(self._found.values())


def end_entry(end: EndedApplication, job: str) -> dict[str, object]:
    """Return the event log's entry for the end of an application; docs/events.md describes it."""
    details = ApplicationEndedData(end.application, end.state, end.final_status, end.diagnostics, end.output)
    entry = LogEntry(EntryKind.APPLICATION_ENDED, details, job=job, host=end.host or None, reason=str(end))
    return entry_document(entry, end.at_ms, 0)
