"""Where a container finds a job's modules, here and in its child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from standby.code import bundles
from standby.code.bundles import Bundle
from standby.code.jobcode import JobCode
from standby.errors import CorruptState, Unavailable
from standby.shared.wire import JobDefinition


@pytest.fixture(autouse=True)
def python_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = list(sys.path)
    monkeypatch.setenv("PYTHONPATH", "/inherited")
    yield
    sys.path[:] = before
    for name in ("standfast_new", "standfast_old"):
        sys.modules.pop(name, None)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A container's working directory, with what YARN localised."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "standfast_old.py").write_text("WHERE = 'localised'\n")
    return tmp_path


@pytest.fixture
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    directory = tmp_path_factory.mktemp("modules")
    (directory / "standfast_new.py").write_text("WHERE = 'bundle'\n")
    return bundles.pack(directory)


@pytest.fixture
def code(place: Path, bundle: Bundle) -> JobCode:
    return JobCode(place, {bundle.digest: bundle.data}.__getitem__)


def definition(code: str, name: str = "job") -> JobDefinition:
    return JobDefinition(name, "run", {}, "changelog", "group", 1, 2, code)


def found_by_children(module: str) -> bool:
    command = [sys.executable, "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_without_a_bundle_the_localised_modules_are_found(place: Path, code: JobCode) -> None:
    assert sys.path[0] == str(place / "code")
    code.load(definition(""))
    assert sys.path.count(str(place / "code")) == 1
    assert os.environ["PYTHONPATH"] == f"{place / 'code'}:/inherited"
    assert code.directory_of(definition("")) == place / "code"


def test_a_bundle_takes_the_place_of_the_localised_modules(
    place: Path, bundle: Bundle, code: JobCode
) -> None:
    code.load(definition(bundle.digest))
    directory = code.directory_of(definition(bundle.digest))
    assert directory.parent == place
    assert sys.path[0] == str(directory)
    assert str(place / "code") not in sys.path
    assert os.environ["PYTHONPATH"] == f"{directory}:/inherited"
    import standfast_new  # type: ignore[import-not-found]

    assert standfast_new.WHERE == "bundle"
    with pytest.raises(ModuleNotFoundError):
        import standfast_old  # type: ignore[import-not-found]  # noqa: F401
    assert found_by_children("standfast_new")
    assert not found_by_children("standfast_old")


def test_what_another_job_of_the_container_uses_stays(place: Path, bundle: Bundle, code: JobCode) -> None:
    code.load(definition("", "other"))
    code.load(definition(bundle.digest))
    directory = code.directory_of(definition(bundle.digest))
    assert sys.path[:2] == [str(directory), str(place / "code")]
    assert os.environ["PYTHONPATH"] == f"{directory}:{place / 'code'}:/inherited"


def test_a_bundle_that_is_half_unpacked_is_unpacked_again(place: Path, bundle: Bundle, code: JobCode) -> None:
    directory = code.directory_of(definition(bundle.digest))
    directory.mkdir()
    (directory / "left.py").touch()
    code.load(definition(bundle.digest))
    assert [each.name for each in directory.iterdir()] == ["standfast_new.py"]


def test_a_bundle_that_is_none_changes_nothing(place: Path, bundle: Bundle) -> None:
    broken = JobCode(place, {bundle.digest: b"?"}.__getitem__)
    before = list(sys.path)
    with pytest.raises(CorruptState):
        broken.load(definition(bundle.digest))
    assert sys.path == before
    assert [each.name for each in place.iterdir()] == ["code"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, bundle: Bundle) -> None:
    file = tmp_path / "file"
    file.touch()
    code = JobCode(file, {bundle.digest: bundle.data}.__getitem__)
    with pytest.raises(Unavailable, match=str(file)):
        code.load(definition(bundle.digest))
