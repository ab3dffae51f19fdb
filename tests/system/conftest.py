"""Every test in this folder runs on real servers; gate.txt says which of them the gate runs."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder that the gate does not run as acceptance.

    Raises `pytest.UsageError` for a line of gate.txt that names no test of a folder that was collected whole.
    """
    lines = (HERE / "gate.txt").read_text(encoding="utf-8").splitlines()
    gate = {line for line in lines if line and not line.startswith("#")}
    found = set[str]()
    for item in items:
        if HERE not in item.path.parents:
            continue
        module = item.path.relative_to(HERE).as_posix()
        names = {module, f"{module}::{item.name}"} & gate
        found |= names
        if not names:
            item.add_marker(pytest.mark.acceptance)
    whole = {Path(each).resolve() for each in config.args}
    unknown = [
        each for each in sorted(gate - found) if whole & {(HERE / each.partition("::")[0]).parent, HERE}
    ]
    if unknown:
        raise pytest.UsageError(f"tests/system/gate.txt names no test by {', '.join(unknown)}")
