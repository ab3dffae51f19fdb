"""Installs a lock's packages, and checks that they fit together: ``python -m third_party.packages install|check LOCK``.

Both act on the environment of the Python that runs this, need only this Python and its pip, and follow the user's pip
settings. After pip's output they say what is at fault: the lock, the network, or the disk.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

_PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")

#: Nothing is resolved, because the lock is complete. When a pip older than 23.3 resolves, it ignores the lock
#: for a package that another one requires with an extra (coverage[toml]), and fails as soon as that package
#: has a newer release.
_INSTALL: Final = ("install", "--no-deps", "--require-hashes", "--requirement")

_PIN_ANEW: Final = "Please report it; `make lock` pins the newest releases instead"


class Cause(Enum):
    """What is at fault. The value is the message to the user; ``{}`` is the fault's detail."""

    NO_ROOM = (
        "no room is left on the disk: in the environment, in the directory for temporary files (TMPDIR) or in pip's "
        "cache (pip cache dir). Make room, then try again"
    )
    OTHER_FILE = (
        "the lock is at fault: the package index has another file of {} than the one whose hash is locked. If no "
        f"proxy or mirror of yours changes or truncates files, do not trust that file. {_PIN_ANEW}"
    )
    NO_HASH = f"the lock is at fault: it does not give the exact release and the hash of {{}}. {_PIN_ANEW}"
    NO_REQUIREMENT = f"the lock is at fault: pip cannot read {{}} as a requirement. {_PIN_ANEW}"
    UNREACHABLE = (
        "the network is at fault, not the lock: the package index did not answer, or refused. Check the connection, "
        "the proxy and the index (pip config list), then try again"
    )
    NO_PACKAGE = (
        "the package index has no release of {} that this Python can use. Check that it is the right index (pip "
        f"config list); if it is, the lock is at fault. {_PIN_ANEW}"
    )
    NO_RELEASE = (
        "the lock is at fault: the package index has other releases, but not {}. If it is a mirror, it may be behind "
        f"(pip config list). {_PIN_ANEW}"
    )
    NOT_BUILT = (
        "a package could not be built from its source, for the reason above. A build fetches what it requires from "
        "the package index too: check the network, and the compiler if it asks for one"
    )
    INCOMPLETE = f"the lock is at fault: {{}} {_PIN_ANEW}"
    UNFULFILLED = (
        "the lock is at fault, it does not fulfil pyproject.toml: {} `make lock` pins what that requires"
    )
    LEFT_OVER = (
        "the environment is at fault: {} The lock does not have the former, which was installed there before. Make "
        "the environment anew (`make clean` removes that of make), then try again"
    )
    UNKNOWN = "pip failed for the reason above"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why pip failed."""

    cause: Cause
    detail: str = ""
    """The first requirement concerned, or pip's message about it."""

    def __str__(self) -> str:
        return self.cause.value.format(self.detail)


_NAMED: Final = r"([\w.\[\],=-]+)"
_NOT_FOUND: Final = rf"^ERROR: Could not find a version .* requirement {_NAMED} "
_INTERRUPTED: Final = (
    r"connection broken by|Connection(?:ResetError| aborted| refused)|Max retries exceeded|timed out"
    r"|HTTP error \d+ while getting|IncompleteRead|incomplete-download"
)

#: The pattern of each cause in pip's log; the first match counts. An index that could not be reached comes
#: before one that does not have a release. An interruption, which a retry may have corrected, comes after
#: certain causes.
_SIGNS: Final = (
    (Cause.NO_ROOM, r"No space left on device|Disk quota exceeded"),
    (Cause.OTHER_FILE, rf"DO NOT MATCH THE HASHES.*\n +{_NAMED}"),
    (Cause.NO_HASH, rf"(?:Hashes are required|must have their versions pinned).*\n +{_NAMED}"),
    (Cause.NO_REQUIREMENT, r"Invalid requirement: (.*?)(?: \(from |:|$)"),
    (Cause.UNREACHABLE, r"Could not fetch URL (?!.* 404 Client Error)|is not a trusted or secure host"),
    (Cause.NO_PACKAGE, rf"{_NOT_FOUND}.*\(from versions: none\)"),
    (Cause.NO_RELEASE, _NOT_FOUND),
    (Cause.UNREACHABLE, _INTERRUPTED),
    (Cause.NOT_BUILT, r"exited with \d|Failed to build|metadata-generation-failed"),
)
_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3} ", re.MULTILINE)
_COMPLAINT: Final = re.compile(r"^(\S+) \S+ (?:requires|has requirement|is not supported) .*$", re.MULTILINE)
_LOCKED: Final = re.compile(r"^([\w.-]+)==", re.MULTILINE)


def why_not_installed(log: str) -> Fault:
    """Return why ``pip install`` failed, from its log."""
    for cause, sign in _SIGNS:
        found = re.search(sign, log, re.MULTILINE)
        if found is not None:
            return Fault(cause, *found.groups())
    return Fault(Cause.UNKNOWN)


def why_not_consistent(log: str, lock: str) -> Fault:
    """Return why ``pip check`` failed after ``lock`` was installed, from its log."""
    locked = {_normal(each) for each in _LOCKED.findall(lock)}
    faults = []
    for complaint in _COMPLAINT.finditer(log):
        name = _normal(complaint[1])
        cause = Cause.INCOMPLETE if name in locked else Cause.LEFT_OVER
        faults.append(Fault(Cause.UNFULFILLED if name == "standfast" else cause, complaint[0]))
    # Packages that are not in the lock are reported only if nothing is wrong with the lock.
    return min(faults, key=lambda each: each.cause is Cause.LEFT_OVER, default=Fault(Cause.UNKNOWN))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(*arguments: str) -> tuple[int, str]:
    """Run pip with its output on ours; return its exit status and its log.

    The log has more than pip prints: if no retries are left, only the log says that an index cannot be reached. It is
    in memory, because a full disk is one of the causes.
    """
    log = os.memfd_create("pip-log")
    with os.fdopen(log, encoding="utf-8", errors="replace") as reader:
        ended = subprocess.run([*_PIP, "--log", f"/dev/fd/{log}", *arguments], check=False, pass_fds=[log])
        text = reader.read()
    if "PIP_LOG" in os.environ:
        with Path(os.environ["PIP_LOG"]).open("a", encoding="utf-8") as wanted:
            wanted.write(text)
    return ended.returncode, _STAMP.sub("", text)


def main(argv: Sequence[str] | None = None) -> int:
    """Install or check; return the exit status."""
    parser = argparse.ArgumentParser("python -m third_party.packages", description="A lock's packages.")
    parser.add_argument("command", choices=["install", "check"])
    parser.add_argument("lock", type=Path)
    # The variable PIP_TARGET would also reach the pip that installs what a build requires, which then fails.
    parser.add_argument("--target", type=Path, help="install into this directory, not into the environment")
    arguments = parser.parse_args(argv)
    if not arguments.lock.is_file():
        parser.error(f"{arguments.lock}: no such file")
    if arguments.command == "install":
        target = () if arguments.target is None else ("--target", str(arguments.target))
        status, log = _run(*_INSTALL, str(arguments.lock), *target)
        fault = why_not_installed(log)
    else:
        status, log = _run("check")
        fault = why_not_consistent(log, arguments.lock.read_text(encoding="utf-8"))
    if status:
        print(f"{arguments.lock.name}: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
