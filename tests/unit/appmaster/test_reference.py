"""The page about configuration says what the checks do."""

from __future__ import annotations

from pathlib import Path

from appmaster.cli.reference import render

ROOT = Path(__file__).resolve().parents[3]


def test_configuration_page_is_generated_from_the_present_table() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -m appmaster.cli.reference > docs/configuration.md"
