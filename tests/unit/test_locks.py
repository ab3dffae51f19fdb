"""Both locks are complete, so that they can be installed without resolving.

``pip check`` does not look at what a requirement's extras require; this does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]

#: Each lock, and the extras of standfast that it is for.
LOCKS: Final = {"requirements.lock": "", "requirements-dev.lock": "dev"}


def pinned(lock: str) -> Mapping[str, str]:
    """Return the release of each package that a lock has for the running Python."""
    lines = re.findall(r"^[^\s#].*$", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE)
    requirements = [Requirement(each.rstrip("\\")) for each in lines]
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in requirements
        if each.marker is None or each.marker.evaluate()
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_has_a_release_and_hashes(lock: str) -> None:
    text = re.sub(r" *#.*\n", "", (ROOT / lock).read_text(encoding="utf-8"))
    entry = r"[a-z0-9.-]+==[^\s;]+(?: ; [^\\\n]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.sub(entry, "", text) == ""


@pytest.mark.parametrize(("lock", "extra"), LOCKS.items())
def test_whatever_a_locked_package_requires_is_locked(lock: str, extra: str) -> None:
    releases = pinned(lock)
    missing = []
    asked = {("standfast", extra), *((each, "") for each in releases)}
    waiting = list(asked)
    while waiting:
        name, wanted = waiting.pop()
        found = distribution(name)
        if name != "standfast":
            assert found.version == releases[name], "the environment is not the lock's: run make venv"
        for each in map(Requirement, found.requires or ()):
            if each.marker is not None and not each.marker.evaluate({"extra": wanted}):
                continue
            required = canonicalize_name(each.name)
            release = releases.get(required)
            if release is None or not each.specifier.contains(release, prereleases=True):
                missing.append(f"{name} requires {each}, locked is {release}")
                continue
            more = {(required, each_extra) for each_extra in each.extras} - asked
            asked |= more
            waiting += more
    assert missing == []
