"""Bundles of a job's modules, and where a container finds them, here and in its child processes."""

from __future__ import annotations

import errno
import io
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from standby.code import bundles
from standby.code.bundles import Bundle
from standby.code.jobcode import JobCode
from standby.errors import BadConfiguration, CorruptState, Unavailable
from standby.shared.wire import JobDefinition
from tests.cases import case


def write(directory: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def read(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


FILES = {
    "job.py": b"import steps\n",
    "steps/__init__.py": b"",
    "steps/clé.py": "x = 'é'\n".encode(),
    "z.txt": b"1" * 70_000,
}


def test_what_is_unpacked_is_what_was_packed_even_if_it_is_nothing(tmp_path: Path) -> None:
    for name, files in (("full", FILES), ("empty", {})):
        (tmp_path / name).mkdir()
        bundle = bundles.pack(write(tmp_path / name, files))
        bundles.unpack(bundle.digest, bundle.data, tmp_path / "unpacked" / name)
        assert read(tmp_path / "unpacked" / name) == files


def test_only_names_and_contents_decide_on_the_digest(tmp_path: Path) -> None:
    first = bundles.pack(write(tmp_path / "a", FILES))
    # Another order of making, other times and modes, what Python leaves behind, and files behind links.
    other = write(tmp_path / "b", dict(reversed(FILES.items())))
    os.utime(other / "job.py", (1, 1))
    (other / "z.txt").chmod(0o755)
    write(other, {"__pycache__/job.cpython-311.pyc": b"?", "steps/__pycache__/x.pyc": b"?", "job.pyc": b"?"})
    (other / "job.py").rename(tmp_path / "elsewhere.py")
    (other / "job.py").symlink_to(tmp_path / "elsewhere.py")
    assert bundles.pack(other) == first
    (tmp_path / "elsewhere.py").write_bytes(b"import steps \n")
    assert bundles.pack(other).digest != first.digest
    assert first.digest == "7a17aad9a7a9454acad5da5a202c7366b9050f4318124a0239e114b891fa31b0"


def test_too_much_is_refused_with_the_way_out(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(bundles.LEFT_BYTES)
    with pytest.raises(BadConfiguration, match=r"8\.0 MiB.*job\.python\.archive"):
        bundles.pack(write(tmp_path, {"model.bin": noise}), bundles.LEFT_BYTES)
    assert bundles.pack(write(tmp_path, {"model.bin": noise[:-1000]}), bundles.LEFT_BYTES).data
    # No machine has the memory for it.
    os.truncate(tmp_path / "model.bin", 1 << 40)
    with pytest.raises(BadConfiguration, match=r"1048576\.0 MiB.*job\.python\.archive"):
        bundles.pack(tmp_path)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.csv")).write_bytes(b"1")
    with pytest.raises(BadConfiguration, match=r"caf\\udce9\.csv' has a name that is not UTF-8 text"):
        bundles.pack(tmp_path)


def test_other_bytes_than_the_name_says_are_not_unpacked(tmp_path: Path) -> None:
    bundle = bundles.pack(write(tmp_path / "a", FILES))
    with pytest.raises(CorruptState, match=bundle.digest):
        bundles.unpack(bundle.digest, bundle.data[:-1], tmp_path / "b")
    with pytest.raises(CorruptState, match="not an archive"):
        bundles.unpack(bundles.digest_of(b"zip?"), b"zip?", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_nothing_is_written_outside_of_the_directory(tmp_path: Path) -> None:
    for name in ("../out.py", "/out.py", "a/../../out.py"):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr(zipfile.ZipInfo(name), b"")
        data = content.getvalue()
        with case(name), pytest.raises(CorruptState, match="outside of its directory"):
            bundles.unpack(bundles.digest_of(data), data, tmp_path / "b")


def test_chunks_put_together_are_the_whole() -> None:
    data = random.Random(2).randbytes(2 * bundles.CHUNK_BYTES + 5)
    parts = bundles.chunks(data)
    assert [len(each) for each in parts] == [bundles.CHUNK_BYTES, bundles.CHUNK_BYTES, 5]
    assert b"".join(parts) == data
    assert bundles.chunks(b"") == ()


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


def test_modules_in_archives_of_a_bundle_are_found(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    modules = tmp_path_factory.mktemp("modules")
    for name, module in (("b-1-py3-none-any.whl", "standfast_new"), ("a.zip", "standfast_more")):
        with zipfile.ZipFile(modules / name, "w") as archive:
            archive.writestr(f"{module}.py", b"")
    (modules / "c.txt").touch()
    bundle = bundles.pack(modules)
    code = JobCode(place, {bundle.digest: bundle.data}.__getitem__)
    code.load(definition(bundle.digest))
    directory = code.directory_of(definition(bundle.digest))
    shown = [str(directory), str(directory / "a.zip"), str(directory / "b-1-py3-none-any.whl")]
    assert sys.path[:3] == shown
    assert os.environ["PYTHONPATH"] == ":".join((*shown, "/inherited"))
    assert found_by_children("standfast_new")


def test_a_link_to_a_directory_above_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "one.py").touch()
    (tmp_path / "twice").symlink_to("pkg")
    assert len(list(bundles.files_of(tmp_path))) == 2
    (tmp_path / "twice").unlink()
    (tmp_path / "pkg" / "again").symlink_to(tmp_path)
    with pytest.raises(BadConfiguration, match=r"job\.modules: pkg/again leads back to"):
        list(bundles.files_of(tmp_path))


def test_a_module_without_its_source_is_packed(tmp_path: Path) -> None:
    """Python imports it, so the check of the job's functions found it, and containers did not."""
    files = {"job.py": b"import steps\n", "steps.pyc": b"compiled", "pkg/one.pyc": b"compiled"}
    bundle = bundles.pack(write(tmp_path / "a", files))
    bundles.unpack(bundle.digest, bundle.data, tmp_path / "b")
    assert read(tmp_path / "b") == files


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"job.py": b"", "closed/data.csv": b""})
    listed = Path.iterdir

    def iterdir(self: Path) -> Iterator[Path]:
        if self.name == "closed":
            # Root, which tests may run as, can read any.
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(BadConfiguration, match=r"job\.modules: .*/closed cannot be read: Permission denied"):
        bundles.pack(tmp_path)


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
