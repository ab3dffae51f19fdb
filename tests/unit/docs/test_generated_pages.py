"""The pages that are made from the program's own tables are up to date."""

from __future__ import annotations

import pytest

from docs.generate.__main__ import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_as_it_would_be_generated(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run python -m docs.generate"
