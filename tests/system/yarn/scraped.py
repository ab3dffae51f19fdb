"""A Prometheus that scrapes a deployed job with the example configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring_files import FOLDER
from tests.patience import looks
from tests.prometheus import Prometheus


@contextmanager
def scraping(hosts: Iterable[str], http_port: int, directory: Path) -> Iterator[Prometheus]:
    """Run a Prometheus with the example configuration: other hosts, another port, shorter intervals."""
    directory.mkdir(parents=True, exist_ok=True)
    config: Any = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), "1s")
    config["rule_files"] = [str(FOLDER / "alerts.yml")]
    (scrape,) = config["scrape_configs"]
    # A master may be on any of the hosts, as far as the author of this file knows.
    scrape["http_sd_configs"] = [
        {"url": f"http://{host}:{http_port}/sd", "refresh_interval": "1s"} for host in hosts
    ]
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    prometheus = Prometheus(directory, path)
    try:
        yield prometheus
    finally:
        prometheus.close()


def until(prometheus: Prometheus, expression: str, expected: Callable[[dict[str, float]], bool]) -> None:
    """Wait for the value of an expression, by the value of its one label (or none)."""
    found: dict[str, float] = {}
    for _ in looks():
        found = {"".join(labels.values()): value for labels, value in prometheus.query(expression)}
        if expected(found):
            return
    raise AssertionError(f"{expression} is {found}\n{prometheus.log}")


def all_are_found(prometheus: Prometheus, job: str) -> None:
    """Wait until Prometheus has both masters of a job's cluster, one of which leads, and its four whole containers."""
    until(
        prometheus, "count by (component) (up == 1)", lambda found: found == {"candidate": 2, "container": 4}
    )
    until(prometheus, "sum(standfast_is_leader)", lambda found: found == {"": 1})
    until(prometheus, "min(standfast_in_sync_replicas)", lambda found: found == {"": 2})
    # The metric's own label, not the scrape's: `honor_labels`.
    assert {labels["job"] for labels, _ in prometheus.query("standfast_replica_in_sync")} == {job}
