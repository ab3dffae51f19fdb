"""Dashboard and alert rules name only what a leader or a container shows, and the dashboard all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import yaml

from appmaster.eventlog.entries import EntryKind
from appmaster.planning.state.counters import Counter, Histogram
from docs.generate.metrics import METRICS
from standby.shared.metric import Metric, MetricKind
from tests.monitoring_files import FOLDER, ROOT, alerts, dashboard, expressions, panels
from tests.unit.test_house import PRODUCT

#: What service discovery and Prometheus itself add to every series (`appmaster.api.discovery`).
TARGET_LABELS = {"cluster", "component", "host", "candidate", "container", "instance", "job"}

#: Prometheus' own, and those of its client library that are used.
OTHERS = {
    "up": set[str](),
    "process_resident_memory_bytes": set[str](),
    "process_cpu_seconds_total": set[str](),
}

#: Prometheus' are seconds and bytes.
NO_BASE_UNITS = {
    *("ms", "millis", "milliseconds", "minutes", "hours", "days"),
    *("kb", "mb", "kilobytes", "megabytes"),
}

DECLARED = [each for metrics in METRICS.values() for each in metrics]
OWN = {each.name: set(each.labels) for each in DECLARED}


def samples() -> dict[str, set[str]]:
    """Return every name that can be queried with the labels that it has."""
    histograms = {each.name for each in DECLARED if isinstance(each, Histogram)}
    found: dict[str, set[str]] = {}
    for name, labels in {**OTHERS, **OWN}.items():
        if name in histograms:
            found |= {f"{name}_sum": labels, f"{name}_count": labels, f"{name}_bucket": labels | {"le"}}
        else:
            found[name] = labels
    return {name: labels | TARGET_LABELS for name, labels in found.items()}


EXPRESSIONS = [*expressions(), *(each["expr"] for each in alerts())]


def selected(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric of an expression, with the labels that it is selected by."""
    for found in re.finditer(r"\b(standfast_\w+|process_\w+|up)\b(?:\{([^}]*)\})?", expression):
        yield found[1], set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', found[2] or "")))


def grouped(expression: str) -> set[str]:
    """Return the labels that an expression groups, joins or matches by."""
    lists = re.findall(r"\b(?:by|on|group_left|without)\s*\(([^()]*)\)", expression)
    return {label.strip() for each in lists for label in each.split(",") if label.strip()}


def unknown(expression: str, known: Mapping[str, set[str]]) -> set[str]:
    """Return the metrics and labels of an expression that do not exist, or say that it has none."""
    used = list(selected(expression))
    labels = set[str]().union(*(known.get(name, set()) for name, _ in used))
    missing = {name for name, _ in used} - known.keys()
    for name, chosen in used:
        missing |= chosen - known.get(name, set())
    return missing | (grouped(expression) - labels) or (set() if used else {"nothing is asked for"})


def test_expressions_use_metrics_and_labels_that_exist() -> None:
    known = samples()
    wrong = {
        "sum(standfast_is_leadre)": {"standfast_is_leadre"},
        'standfast_failovers_total{phase="total"}': {"phase"},
        "sum by (outcome) (standfast_failovers_total)": {"outcome"},
        "vector(1)": {"nothing is asked for"},
    }
    assert {each: unknown(each, known) for each in wrong} == wrong
    assert [each for each in EXPRESSIONS if unknown(each, known)] == []


def test_alerts_ask_for_buckets_that_exist() -> None:
    asked = [
        (name, float(end))
        for each in alerts()
        for name, end in re.findall(r'(\w+)_bucket\{[^}]*le="([\d.]+)"', each["expr"])
    ]
    buckets = {each.name: each.buckets for each in DECLARED if isinstance(each, Histogram)}
    assert asked
    assert [(name, end) for name, end in asked if end not in buckets[name]] == []


def test_every_metric_is_declared_once_and_is_in_a_table() -> None:
    """Else the page and the tests here would not know it."""
    sources = [path.read_text(encoding="utf-8") for each in PRODUCT for path in (ROOT / each).rglob("*.py")]
    named = sorted(name for each in sources for name in re.findall(r'"(standfast_\w+)"', each))
    assert named == sorted(OWN)
    assert len(OWN) == len(DECLARED)


def test_names_and_help_texts_follow_prometheus_conventions() -> None:
    for each in DECLARED:
        is_counter = isinstance(each, Counter) or (
            isinstance(each, Metric) and each.kind is MetricKind.COUNTER
        )
        assert re.fullmatch("standfast(_[a-z]+)+", each.name)
        assert each.name.endswith("_total") == is_counter, each.name
        assert not isinstance(each, Histogram) or each.name.endswith("_seconds")
        assert not set(each.name.split("_")) & NO_BASE_UNITS, each.name
        assert each.help.endswith("."), each.name
        # A time of day, which its name distinguishes from a duration.
        assert each.name.endswith("_timestamp_seconds") == each.help.startswith("Unix time"), each.name
        ambiguous = ("_start_seconds", "_end_seconds", "_since_seconds", "_time_seconds")
        assert not each.name.endswith(ambiguous), f"{each.name}: a time of day, or a duration?"
        # What is used up only rises.
        assert is_counter or "cpu" not in each.name, each.name


def test_dashboard_shows_every_metric() -> None:
    used = {name for each in expressions() for name, _ in selected(each)}
    shown = {re.sub("_(sum|count|bucket)$", "", name) for name in used if name.startswith("standfast_")}
    assert shown == OWN.keys()


def test_dashboard_is_one_that_grafana_takes() -> None:
    board = dashboard()
    variables = [each["name"] for each in board["templating"]["list"]]
    assert variables == ["datasource", "cluster", "job"]
    ids = [each["id"] for each in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert place["x"] + place["w"] <= 24
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'cluster="$cluster"' in target["expr"], f"{panel['title']} mixes clusters"


def test_panel_filters_by_job_wherever_its_metrics_have_one() -> None:
    """Without `job` in the selector the choice of a job would change nothing in such a panel."""
    names = {
        f"{name}{suffix}": "job" in labels
        for name, labels in OWN.items()
        for suffix in ("", "_sum", "_count", "_bucket")
    }
    for panel in panels():
        for target in panel.get("targets", ()):
            for name, labels in selected(target["expr"]):
                assert ("job" in labels) == names.get(name, False), f"{panel['title']}: {name}"


def test_every_alert_has_a_rule_test_and_says_what_is_wrong() -> None:
    tested = yaml.safe_load((FOLDER / "alerts.test.yml").read_text(encoding="utf-8"))["tests"]
    cases = [case for each in tested for case in each["alert_rule_test"]]
    for alert in alerts():
        assert alert["annotations"].keys() == {"summary", "description"}
        assert alert["labels"]["severity"] in ("warning", "critical")
        mine = [case for case in cases if case["alertname"] == alert["alert"]]
        assert any(case.get("exp_alerts") for case in mine), f"{alert['alert']} is never seen to fire"


def test_kinds_of_entries_that_are_named_exist() -> None:
    pages = [
        each
        for folder in (FOLDER, ROOT / "docs")
        for each in folder.rglob("*")
        if each.suffix in {".yml", ".md"}
    ]
    texts = [each.read_text(encoding="utf-8") for each in [ROOT / "README.md", *pages]]
    named = {kind for each in texts for kind in re.findall(r"standfast events [^`\n]*--kind ([a-z_]+)", each)}
    assert {"container_lost", "record_given_up"} <= named <= {each.value for each in EntryKind}
