"""The files of monitoring/, as the tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "monitoring"


def dashboard() -> Any:
    """Return the Grafana dashboard."""
    return json.loads((FOLDER / "standfast-dashboard.json").read_text(encoding="utf-8"))


def panels() -> list[Any]:
    """Return its panels, rows included."""
    found: list[Any] = dashboard()["panels"]
    return found


def expressions() -> list[str]:
    """Return every expression of the dashboard, including Grafana's variables."""
    board = dashboard()
    found = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    found += [each["expr"] for each in board["annotations"]["list"]]
    # label_values(series, label): the first argument is a selector.
    found += [
        each["definition"].removeprefix("label_values(").rpartition(",")[0]
        for each in board["templating"]["list"]
        if each["type"] == "query"
    ]
    return found


def alerts() -> list[Any]:
    """Return the alert rules."""
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    found: list[Any] = group["rules"]
    return found
