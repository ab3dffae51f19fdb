"""The display of a run: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.events import EventLog
from demo.standing import Replica, Status
from demo.traffic import Traffic
from demo.watch import Sample, Watch

_REFRESHES_PER_SECOND: Final = 4
_STORY_LINES: Final = 12
_EVENT_LINES: Final = 8
_RATE_SAMPLES: Final = 4
#: Without a terminal, the interval between two status lines.
_PLAIN_SECONDS: Final = 5.0

#: The style of a replica by its phase; all other phases are transitional.
_STYLES: Final = {
    "active": "bold green",
    "tailing": "cyan",
    "failed": "bold red",
    "fenced": "red",
    "closed": "dim",
}


class Screen:
    """Shows a run. Every method may be called from any thread."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console()
        self._clock = clock
        self._begin = clock()
        self._story: deque[str] = deque(maxlen=_STORY_LINES)
        self._phase = ""
        self._passing = ""
        self._last_plain = clock()
        self._watch: Watch | None = None
        self._log: EventLog | None = None
        self._traffic: Traffic | None = None
        self._live: Live | None = None

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self.render, console=self._console, refresh_per_second=_REFRESHES_PER_SECOND
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def follow(self, watch: Watch, log: EventLog, traffic: Traffic) -> None:
        """Show these from now on."""
        self._watch, self._log, self._traffic = watch, log, traffic

    def phase(self, text: str) -> None:
        """Show ``text`` as the current step, and add it to the log."""
        self._phase, self._passing = text, ""
        self.say(text)

    def say(self, text: str) -> None:
        """Add a line to the log."""
        if not text.strip():
            return
        line = f"{self._clock() - self._begin:7.1f} s  {text}"
        self._story.append(line)
        if self._live is None:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(self, text: str) -> None:
        """Show the progress of something long: in the live view only, where it is overwritten."""
        if self._live is not None:
            self._passing = text

    def pulse(self) -> None:
        """Print the status from time to time, if there is no live view."""
        now = self._clock()
        if self._live is None and now - self._last_plain >= _PLAIN_SECONDS:
            self._last_plain = now
            sample = self._watch.latest if self._watch is not None else None
            if sample is not None and self._traffic is not None and not self._traffic.is_over:
                self.say(plain(sample, self._traffic.count, self._rates()))

    def render(self) -> RenderableType:
        """Return the whole view of this moment."""
        parts: list[RenderableType] = [
            Text(f"standfast demo · {self._clock() - self._begin:.0f} s · {self._phase}", style="bold")
        ]
        if self._passing:
            parts.append(Text(self._passing, style="dim"))
        sample = self._watch.latest if self._watch is not None else None
        if sample is not None and self._traffic is not None:
            parts += [self._numbers(sample), tasks_table(sample.status)]
            if self._log is not None:
                recent = self._log.events[-_EVENT_LINES:]
                parts.append(Panel("\n".join(each.text for each in recent) or "none yet", title="event log"))
        parts.append(Panel("\n".join(self._story), title="story"))
        return Group(*parts)

    def _numbers(self, sample: Sample) -> Text:
        rate_in, rate_out = self._rates()
        lag = input_lag(sample.status)
        sent = self._traffic.count if self._traffic is not None else 0
        age = "" if sample.is_fresh else "  (the leader does not answer)"
        return Text(
            f"in {rate_in:>7,.0f}/s   out {rate_out:>7,.0f}/s   waiting {lag:>7,}   sent {sent:>9,}{age}"
        )

    def _rates(self) -> tuple[float, float]:
        return rates(self._watch.samples) if self._watch is not None else (0.0, 0.0)


def rates(samples: tuple[Sample, ...]) -> tuple[float, float]:
    """Return records in and offsets out per second over the last samples."""
    recent = samples[-_RATE_SAMPLES:]
    seconds = (recent[-1].at_ms - recent[0].at_ms) / 1_000 if recent else 0.0
    if seconds <= 0:
        return 0.0, 0.0
    first, last = recent[0], recent[-1]
    return (last.input_end - first.input_end) / seconds, (last.output_end - first.output_end) / seconds


def input_lag(status: Status) -> int:
    """Return how many input records wait for their actives, by the last reports."""
    return sum(
        max(0, active.input_end - active.input_committed)
        for task in status.tasks
        if (active := task.active_replica) is not None
        and active.input_end is not None
        and active.input_committed is not None
    )


def plain(sample: Sample, sent: int, rate: tuple[float, float]) -> str:
    """Return the sample in a line."""
    active = sum(
        task.active_replica is not None and task.active_replica.is_active for task in sample.status.tasks
    )
    in_sync = sum(len(task.in_sync) for task in sample.status.tasks)
    replicas = sum(len(task.replicas) for task in sample.status.tasks)
    return (
        f"  {sent:,} sent, in {rate[0]:,.0f}/s, out {rate[1]:,.0f}/s, {input_lag(sample.status):,} waiting; "
        f"{active} of {len(sample.status.tasks)} tasks active, {in_sync} of {replicas} replicas in sync"
    )


def tasks_table(status: Status) -> Table:
    """Return where each replica is: a row per task, a column per host."""
    hosts = sorted({each.host for task in status.tasks for each in task.replicas if each.host})
    table = Table(title=None, expand=False)
    table.add_column("task")
    table.add_column("epoch", justify="right")
    for host in hosts:
        is_master = status.leader is not None and status.leader.host == host
        table.add_column(f"{host} (master)" if is_master else host)
    table.add_column("unplaced")
    for task in sorted(status.tasks, key=lambda each: each.partition):
        cells = [
            _cell([each for each in task.replicas if each.host == host and each.container is not None])
            for host in hosts
        ]
        unplaced = [each for each in task.replicas if each.container is None]
        table.add_row(
            str(task.partition), str(task.epoch), *cells, Text(str(len(unplaced) or ""), style="red")
        )
    return table


def _cell(replicas: list[Replica]) -> Text:
    text = Text()
    for each in replicas:
        lag = f" -{each.lag_records:,}" if each.lag_records else ""
        warm = " warm" if each.warm and not each.is_active else ""
        text.append(
            f"#{each.copy} {each.phase or '…'}{lag}{warm} ", style=_STYLES.get(each.phase or "", "yellow")
        )
    return text
