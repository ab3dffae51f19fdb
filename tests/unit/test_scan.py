"""What `make scan` says of what the scanner ended with, by a scanner of our own."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "third_party" / "scan.sh"


def program(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)


def scanned(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    # Nothing else: a machine may have a scanner, or Go, among its commands.
    for each in ("chmod", "dirname", "mkdir"):
        with suppress(FileExistsError):
            (tmp_path / "bin" / each).symlink_to(shutil.which(each) or each)
    environment = {"PATH": str(tmp_path / "bin"), "STANDFAST_CACHE": str(tmp_path / "cache")}
    return subprocess.run(["/bin/bash", SCRIPT], env=environment, capture_output=True, text=True, check=False)


def test_what_the_scanner_found_is_the_status_and_a_database_that_cannot_be_reached_is_no_clean_bill(
    tmp_path: Path,
) -> None:
    for status, told in ((0, 0), (1, 1), (127, 2)):
        program(tmp_path / "bin" / "osv-scanner", 'echo "$@"', f"exit {status}")
        ended = scanned(tmp_path)
        assert ended.returncode == told
        assert "requirements-dev.lock" in ended.stdout
        assert "standfast.cdx.json" in ended.stdout
        assert ("nothing was looked up" in ended.stderr) == (told == 2)


def test_a_scanner_that_is_built_here_is_built_once_and_reported_as_one_that_is_there(tmp_path: Path) -> None:
    built = "printf '#!/bin/sh\\nexit 1\\n' > \"$GOBIN/osv-scanner\""
    program(
        tmp_path / "bin" / "go", 'mkdir -p "$GOBIN"', built, 'chmod +x "$GOBIN/osv-scanner"', "echo built"
    )
    first, second = scanned(tmp_path), scanned(tmp_path)
    assert (first.returncode, second.returncode) == (1, 1)
    assert "built" in first.stdout
    assert "built" not in second.stdout


def test_without_a_scanner_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    ended = scanned(tmp_path)
    assert ended.returncode == 2
    assert "install OSV-Scanner" in ended.stderr
