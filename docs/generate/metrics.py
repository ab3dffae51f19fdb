"""docs/monitoring.md: its tables of metrics and label values, each between two marks. The rest is hand-written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from appmaster.adapters.credentials.certificates import EXPIRY
from appmaster.eventlog.counting import sources
from appmaster.eventlog.entries import DECIDED
from appmaster.gauges import OF_CANDIDATE, OF_VIEW, UNREADABLE
from appmaster.planning.state.counters import COUNTERS, HISTOGRAMS, Counter, Histogram
from docs.generate import label_values
from standby.adapters.acceptor import REFUSED_CONNECTIONS
from standby.adapters.prometheus import OF_PROCESS
from standby.kernel.restore.counters import OF_RESTORES
from standby.process.lending import LENT
from standby.process.metrics import OF_CONTROL, OF_REPLICA
from standby.shared.metric import LAGS, Metric

_PAGE: Final = Path(__file__).resolve().parents[1] / "monitoring.md"

Declared: TypeAlias = Metric[Any] | Counter | Histogram

#: Table → every metric of it.
METRICS: Final[Mapping[str, Sequence[Declared]]] = {
    "counters": (*COUNTERS, *HISTOGRAMS),
    "gauges": (*OF_CANDIDATE, EXPIRY, UNREADABLE, *OF_VIEW),
    "containers": (*OF_REPLICA, *OF_CONTROL, *OF_PROCESS, LENT),
    "restores": OF_RESTORES,
    "both": (*LAGS, REFUSED_CONNECTIONS),
}

_MARKED: Final = re.compile(r"(?<=<!-- metrics: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)

_VALUES: Final = re.compile(r"(<!-- label values -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page() -> str:
    """Return the page with current tables; raises LookupError unless it has each table exactly once."""
    text = _PAGE.read_text(encoding="utf-8")
    marked = [each[1] for each in _MARKED.finditer(text)]
    if sorted(marked) != sorted(METRICS):
        raise LookupError(f"{_PAGE.name} has the tables {marked}, and is to have {list(METRICS)}")
    text = _MARKED.sub(lambda found: f"{found[1]}{found[2]}{''.join(_table(METRICS[found[1]]))}", text)
    values = "".join(label_values.table())
    text, count = _VALUES.subn(lambda found: f"{found[1]}{values}", text)
    if count != 1:
        raise LookupError(f"{_PAGE.name} has {count} tables of label values, and is to have one")
    return text


def _table(metrics: Sequence[Declared]) -> Iterator[str]:
    has_sources = any(isinstance(each, Counter) for each in metrics)
    yield "| metric | meaning |" + (" from |\n|---|---|---|\n" if has_sources else "\n|---|---|\n")
    for each in metrics:
        row = f"| `{each.name}{_labels(each.labels)}` | {each.help.removesuffix('.')} |"
        yield row + (f" {_entries(each)} |\n" if isinstance(each, Counter | Histogram) else "\n")


def _labels(labels: Collection[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _entries(metric: Counter | Histogram) -> str:
    kinds = sources(metric)
    if len(kinds) == len(DECIDED):
        return "`decided_…`"
    return ", ".join(f"`{each.value}`" for each in kinds) or "–"
