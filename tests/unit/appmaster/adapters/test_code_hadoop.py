"""Code through the cluster's file system: what happens between two calls of Hadoop's shell, which is a small script."""

from __future__ import annotations

from pathlib import Path

import pytest

from appmaster.adapters.code.hadoop import HadoopCode
from standby.code import bundles
from standby.errors import Transient
from standby.shared.clock import REAL

DATA = b"abc" * 1000
DIGEST = bundles.digest_of(DATA)

#: `hadoop fs` on local files, as far as it is used; `mv` replaces nothing.
SHELL = """#!/bin/sh
command=$1
shift
while [ "${1#-}" != "$1" ]; do shift; done
case $command in
    -test) [ -e "$1" ] ;;
    -mkdir) mkdir -p "$1" ;;
    -put) cp "$1" "$2" ;;
    -get) cp "$1" "$2" ;;
    -rm) for each; do rm -f "$each"; done ;;
    -mv)
        [ -e "$1" ] || { echo "mv: '$1': No such file or directory" >&2; exit 1; }
        [ ! -e "$2" ] || { echo "mv: '$2': File exists" >&2; exit 1; }
        mv "$1" "$2" ;;
    -ls) ls -d $1 ;;
esac
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The directory of the bundles in the file system."""
    return tmp_path / "files"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / DIGEST).write_bytes(DATA)
    return tmp_path / DIGEST


@pytest.fixture
def code(tmp_path: Path, files: Path) -> HadoopCode:
    shell = tmp_path / "hadoop"
    shell.write_text(SHELL, encoding="utf-8")
    shell.chmod(0o755)
    return HadoopCode([str(shell)], str(files))


def names(files: Path) -> list[str]:
    return sorted(each.name for each in files.iterdir())


def test_bundle_that_is_wanted_again_while_it_is_forgotten_stays(
    code: HadoopCode, files: Path, source: Path
) -> None:
    """Its publisher had found it just before, and so had written nothing."""
    code.publish(DIGEST, source)
    code.forget(DIGEST, lambda: False)
    assert names(files) == [f"{DIGEST}.zip"]

    def fail() -> bool:
        raise Transient("ZooKeeper does not answer")

    with pytest.raises(Transient, match="ZooKeeper"):
        code.forget(DIGEST, fail)
    assert names(files) == [f"{DIGEST}.zip"]
    code.forget(DIGEST, lambda: True)
    assert names(files) == []


def test_bundle_is_buried_when_no_publisher_finds_it_any_more(
    code: HadoopCode, files: Path, source: Path
) -> None:
    code.publish(DIGEST, source)

    def publish_again() -> bool:
        code.publish(DIGEST, source)
        return False

    code.forget(DIGEST, publish_again)
    assert names(files) == [f"{DIGEST}.zip"], "one of both, and no draft"
    assert (files / f"{DIGEST}.zip").read_bytes() == DATA


def test_bundle_that_was_never_published_is_buried(code: HadoopCode) -> None:
    buried: list[str] = []

    def bury() -> bool:
        buried.append(DIGEST)
        return True

    code.forget(DIGEST, bury)
    assert buried == [DIGEST]


def test_bundle_is_available_again_although_its_candidate_ends(
    code: HadoopCode, files: Path, source: Path
) -> None:
    code.publish(DIGEST, source)

    def end() -> bool:
        code.interrupt()
        return False

    code.forget(DIGEST, end)
    assert names(files) == [f"{DIGEST}.zip"]


def test_bundle_is_fetched_although_its_candidate_was_killed_while_it_forgot_it(
    code: HadoopCode, files: Path, source: Path, tmp_path: Path
) -> None:
    """Whoever published it again just before had found it, and so had written nothing."""
    code.publish(DIGEST, source)
    part, suffix = tmp_path / "part", f"{REAL.now_ms()}.{'a' * 32}"
    aside = files / f".{DIGEST}.{suffix}"
    (files / f"{DIGEST}.zip").rename(aside)
    # Of one that is being published, and of another bundle.
    for each in (f".{DIGEST}.{suffix}._COPYING_", f".{'0' * 64}.{suffix}"):
        (files / each).write_bytes(b"")
    code.fetch(DIGEST, (), part)
    assert part.read_bytes() == DATA
    aside.unlink()
    with pytest.raises(Transient, match=f"{DIGEST}.zip.*No such file"):
        code.fetch(DIGEST, (), part)


def test_drafts_of_processes_that_were_killed_are_removed_a_day_later(
    code: HadoopCode, files: Path, source: Path
) -> None:
    now_ms = REAL.now_ms()
    hours = (0, 23, 25, 1_000)
    drafts = [f".{'0' * 64}.{now_ms - each * 3_600_000}.{'a' * 32}" for each in hours]
    others = [f".{'0' * 64}.zip", ".hidden", f"{'0' * 64}.zip"]

    def abandon() -> None:
        files.mkdir(exist_ok=True)
        for each in (*drafts, f"{drafts[2]}._COPYING_", *others):
            (files / each).write_bytes(b"")

    abandon()
    code.publish(DIGEST, source)
    assert names(files) == sorted([*drafts[:2], *others, f"{DIGEST}.zip"])
    abandon()
    code.forget(DIGEST, lambda: True)
    assert names(files) == sorted([*drafts[:2], *others])
