"""Every environment variable that the code reads from its users is in docs/running.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

#: What standfast's own processes tell each other.
INTERNAL = {
    "STANDFAST_CANDIDATE_ENDED",
    "STANDFAST_CANDIDATE_ENDS_WITH",
    "STANDFAST_CANDIDATE_LIFE",
    "STANDFAST_LOCAL_CLUSTER",
    "STANDFAST_LOCAL_HOST",
    "STANDFAST_OFFER",
    "STANDFAST_POOL",
    "STANDFAST_RUN",
}


def test_variables_of_users_are_documented_with_the_rest() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("appmaster", "standby", "embedded", "locality")
        for path in (ROOT / folder).rglob("*.py")
    )
    read = set(re.findall(r"STANDFAST_[A-Z_]+[A-Z]", code)) - INTERNAL
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    assert read == set(re.findall(r"STANDFAST_[A-Z_]+[A-Z]", page))
    assert "--name NAME" in page
