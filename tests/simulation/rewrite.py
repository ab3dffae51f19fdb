"""Runs the stories whose event logs are stored, and rewrites the files: ``python -m tests.simulation.rewrite``.

Any difference to the committed files must be intended.
"""

from __future__ import annotations

import sys

from tests.simulation.eventlog import FOLDER, SEEDS, path, told


def main() -> None:
    """Rewrite every file, and remove those of no seed; say which of them are others now."""
    FOLDER.mkdir(exist_ok=True)
    kept = {path(seed): told(seed) for seed in SEEDS}
    for file in sorted(set(FOLDER.iterdir()) - kept.keys()):
        file.unlink()
        sys.stdout.write(f"{file}: removed\n")
    for file, text in kept.items():
        if not file.exists() or text != file.read_text(encoding="utf-8"):
            file.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{file}: rewritten\n")


if __name__ == "__main__":
    main()
