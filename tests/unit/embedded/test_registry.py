"""Which embedded clusters there are."""

from __future__ import annotations

from pathlib import Path

from embedded.places import clusters_directory
from embedded.registry import ID_FILE, end_abandoned, names


def test_a_cluster_that_is_just_removed_is_none(tmp_path: Path) -> None:
    environment = {"STANDFAST_HOME": str(tmp_path)}
    for name in ("here", "gone.removed"):
        directory = clusters_directory(environment) / name
        directory.mkdir(parents=True)
        (directory / ID_FILE).write_text("id", encoding="ascii")
    assert names(environment) == ["here"]
    end_abandoned(environment)
