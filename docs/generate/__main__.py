"""Writes every generated page: ``python -m docs.generate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.generate import configuration, events, failover, lifecycle

FOLDER: Final = Path(__file__).resolve().parents[1]

#: Page → what makes its text.
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "configuration.md": configuration.page,
    "events.md": events.page,
    "failover.md": failover.page,
    "lifecycle.md": lifecycle.page,
}


def main() -> None:
    """Write the pages; say which of them are others now."""
    for name, page in PAGES.items():
        text = page()
        if (FOLDER / name).read_text(encoding="utf-8") != text:
            (FOLDER / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"docs/{name}: rewritten\n")


if __name__ == "__main__":
    main()
