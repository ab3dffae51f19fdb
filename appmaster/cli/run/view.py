"""What a run shows: a live view on a terminal, plain lines elsewhere; both on standard error."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from appmaster.adapters.kafka_records import TopicRecord
from appmaster.api.snapshot import job_in, tasks_in
from appmaster.cli.reading.observe import describe
from appmaster.cli.shared.output import complain
from appmaster.eventlog.entries import EntryKind
from standby.shared.clock import REAL, Clock

_STORY_LINES: Final = 8
_EVENT_LINES: Final = 6
_OUTPUT_LINES: Final = 6
_MOST_TASKS: Final = 16

#: Of a record, where others are to be seen beside it: characters.
_MOST_OF_A_RECORD: Final = 200

#: Least time between two lines about the progress of the same step, without a live view.
_PLAIN_SECONDS: Final = 5.0

#: Entries of the event log that are lines where there is no live view, which shows all of them.
_PLAIN_KINDS: Final = frozenset(
    {
        EntryKind.CONTAINER_LOST,
        EntryKind.LAUNCH_FAILED,
        EntryKind.REPLICA_FAILED,
        EntryKind.RECORD_GIVEN_UP,
        EntryKind.FAILOVER_STARTED,
        EntryKind.FAILOVER_WITHOUT_STANDBY,
        EntryKind.FAILOVER_FINISHED,
        EntryKind.PROCESSOR_PARKED,
    }
)


class RunView:
    """Shows a run. Every method may be called from any thread."""

    def __init__(
        self, job: str, console: Console | None = None, clock: Clock = REAL, *, is_typed: bool = False
    ) -> None:
        self._job = job
        self._console = console or Console(stderr=True)
        self._is_typed = is_typed
        self._clock = clock
        self._begun = clock.monotonic()
        self._lock = threading.Lock()
        self._story: deque[str] = deque(maxlen=_STORY_LINES)
        self._events: deque[str] = deque(maxlen=_EVENT_LINES)
        self._outputs: deque[str] = deque(maxlen=_OUTPUT_LINES)
        #: How many committed records of the job's outputs were seen.
        self.outputs = 0
        #: The job's last known status.
        self.state = "starting"
        self._step = ""
        self._step_said = float("-inf")
        self._status: Mapping[str, Any] | None = None
        self._live: Live | None = None
        #: After how many seconds the first output was seen; None: there was none yet.
        self.first_output_seconds: float | None = None

    def __enter__(self) -> RunView:
        """Begin the live view, if there is a terminal on which no records are typed; otherwise all is lines."""
        if self._console.is_terminal and not self._is_typed:
            self._live = Live(get_renderable=self.render, console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            with suppress(OSError):  # its terminal was closed
                self._live.stop()
            self._live = None

    @property
    def seconds(self) -> float:
        """The time since the start of the run."""
        return self._clock.monotonic() - self._begun

    def say(self, text: str) -> None:
        """Add a line."""
        line = f"{self.seconds:6.1f} s  {text}"
        with self._lock:
            self._story.append(line)
        if self._live is None:
            complain(line)

    def progress(self, text: str) -> None:
        """Add a line about a step that takes long; not each of its numbers is a line."""
        step = text.partition(":")[0]
        if step == self._step and (step == text or self.seconds - self._step_said < _PLAIN_SECONDS):
            return
        self._step, self._step_said = step, self.seconds
        self.say(text)

    def show(self, status: Mapping[str, Any] | None) -> None:
        """Show the leader's status; None: no leader answers."""
        mine = job_in(status, self._job) if status is not None else None
        reasons = f": {mine['reasons'][0]}" if mine is not None and mine["reasons"] else ""
        state = (
            "waiting for the master"
            if status is None
            else f"{mine['status']}{reasons}"
            if mine
            else "submitted"
        )
        if status is not None:
            self._status = status
        if state != self.state:
            self.state = state
            self.say(f"{self._job}: {state}")

    def event(self, entry: Mapping[str, Any]) -> None:
        """Show an entry of the event log."""
        line = describe(dict(entry))
        with self._lock:
            self._events.append(line)
        if self._live is None and entry["kind"] in _PLAIN_KINDS and entry.get("job") in (None, self._job):
            complain(f"{self.seconds:6.1f} s  {line}")

    def output(self, records: Sequence[TopicRecord]) -> None:
        """Show committed records of the job's outputs."""
        if not records:
            return
        with self._lock:
            self.outputs += len(records)
            self._outputs.extend(map(_shortened, records[-_OUTPUT_LINES:]))
        if self.first_output_seconds is None:
            self.first_output_seconds = self.seconds
            self.say(f"first output: {_shortened(records[0])}")
        elif self._is_typed:
            for each in records:
                complain(f"{self.seconds:6.1f} s  {_in_words(each)}")

    def render(self) -> RenderableType:
        """Return the whole view of this moment."""
        with self._lock:
            story, events, outputs = map("\n".join, (self._story, self._events, self._outputs))
        parts: list[RenderableType] = [
            Text(f"{self._job} · {self.state} · {self.seconds:.0f} s · Ctrl-C ends it", style="bold")
        ]
        if self._status is not None:
            parts.append(_tasks(self._status, self._job))
        if outputs:
            lines = Text(outputs, no_wrap=True, overflow="ellipsis")
            parts.append(Panel(lines, title=f"outputs, {self.outputs:,} records"))
        if events:
            parts.append(Panel(Text(events), title="event log"))
        parts.append(Panel(Text(story), title="run"))
        return Group(*parts)


def _tasks(status: Mapping[str, Any], job: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for each in ("TASK", "EPOCH", "ACTIVE", "STANDBY", "INPUT/S", "INPUT LAG"):
        table.add_column(each)
    tasks = tasks_in(status, job)
    for task in tasks[:_MOST_TASKS]:
        active = next((each for each in task["replicas"] if each["role"] == "active"), None)
        others = [each for each in task["replicas"] if each["role"] != "active"]
        table.add_row(
            str(task["task"]["partition"]),
            str(task["epoch"]),
            _place(active) if active is not None else "none",
            ", ".join(f"{_place(each)}{' in sync' if each['in_sync'] else ''}" for each in others),
            *(_or_dash(active, name) for name in ("input_rate", "input_lag_records")),
        )
    if len(tasks) > _MOST_TASKS:
        table.add_row(f"… and {len(tasks) - _MOST_TASKS} more")
    return table


def _place(replica: Mapping[str, Any]) -> str:
    return f"{replica['host'] or 'nowhere'} {replica['phase'] or 'waiting'}"


def _or_dash(replica: Mapping[str, Any] | None, name: str) -> str:
    value = replica[name] if replica is not None else None
    return "-" if value is None else f"{value:,}"


def _shortened(record: TopicRecord) -> str:
    text = _in_words(record)
    return text if len(text) <= _MOST_OF_A_RECORD else f"{text[:_MOST_OF_A_RECORD]}…"


def _in_words(record: TopicRecord) -> str:
    return f"{record.topic}: {_legible(record.key)}: {_legible(record.value)}"


def _legible(content: bytes | None) -> str:
    """Return a key or a value in one line, without what a terminal would obey."""
    if content is None:
        return "-"
    text = content.decode("utf-8", "replace")
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
