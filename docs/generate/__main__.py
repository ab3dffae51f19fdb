"""Writes every generated page: ``python -m docs.generate``; with ``--check`` it only compares them (`make pages`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from docs.generate import configuration, events, failover, lifecycle, metrics, scenarios

FOLDER: Final = Path(__file__).resolve().parents[1]

#: Page → the function that returns its text.
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "configuration.md": configuration.page,
    "events.md": events.page,
    "failover-scenarios.md": scenarios.page,
    "failover.md": failover.page,
    "lifecycle.md": lifecycle.page,
    "monitoring.md": metrics.page,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them; print which of them differ, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a page is not up to date"
    )
    is_check = parser.parse_args(arguments).check
    status = 0
    for name, page in PAGES.items():
        text = page()
        if (FOLDER / name).read_text(encoding="utf-8") == text:
            continue
        if is_check:
            sys.stdout.write(f"docs/{name} is not up to date: python -m docs.generate\n")
            status = 1
        else:
            (FOLDER / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"docs/{name}: rewritten\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
