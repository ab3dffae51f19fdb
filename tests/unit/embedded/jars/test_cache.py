"""The jar cache, over a repository that is a directory of this test's; with the real Ivy where its words matter."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import http.server
import os
import resource
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embedded.jars.cache import JarCache
from embedded.jars.lock import Coordinate, Jar, JarSet
from embedded.java import Java, find_java
from embedded.places import yarn_conf
from standby.errors import BadConfiguration, StandfastError, Unavailable

ONE = Coordinate("org.example", "one", "1.0")
TWO = Coordinate("org.example", "two", "1.0")
#: The same module in another version, and one file of it by a classifier.
ONE_NEWER = Coordinate("org.example", "one", "2.0")
ONE_TESTS = Coordinate("org.example", "one", "2.0", "tests")

SETTINGS = """
<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="here"/>
  <resolvers>
    <filesystem name="here" m2compatible="true">
      <artifact pattern="{directory}/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""

UNREACHABLE = """
<ivysettings>
  <settings defaultResolver="nowhere"/>
  <resolvers><ibiblio name="nowhere" m2compatible="true" usepoms="false" root="http://127.0.0.1:1/"/></resolvers>
</ivysettings>
"""


def content(coordinate: Coordinate, size: int = 1000) -> bytes:
    return str(coordinate).encode().ljust(size, b".")


def jar(coordinate: Coordinate, size: int = 1000) -> Jar:
    data = content(coordinate, size)
    return Jar(coordinate, len(data), hashlib.sha256(data).hexdigest())


class Repository:
    """A Maven repository in a directory, and the settings that lead Ivy to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings = directory / "ivysettings.xml"
        self.settings.write_text(SETTINGS.format(directory=directory), encoding="utf-8")

    def file(self, coordinate: Coordinate) -> Path:
        group = coordinate.group.replace(".", "/")
        return self.directory / group / coordinate.artifact / coordinate.version / coordinate.file_name

    def publish(self, coordinate: Coordinate, data: bytes | None = None) -> None:
        file = self.file(coordinate)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content(coordinate) if data is None else data)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    directory = tmp_path / "repository"
    directory.mkdir()
    repository = Repository(directory)
    for each in (ONE, TWO, ONE_NEWER, ONE_TESTS):
        repository.publish(each)
    return repository


@pytest.fixture
def cache(tmp_path: Path, repository: Repository) -> JarCache:
    sets = {
        "both": JarSet("both", (jar(ONE), jar(TWO))),
        "newer": JarSet("newer", (jar(ONE_NEWER), jar(ONE_TESTS), jar(TWO))),
    }
    environment = {**os.environ, "STANDFAST_IVY_SETTINGS": str(repository.settings)}
    return JarCache(sets, tmp_path / "cache", environment, yarn_conf() / "ivysettings.xml")


@pytest.fixture
def without_ivy(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have copies made where Ivy would download: for what the cache itself does with the files."""

    def copied(coordinates: Sequence[Coordinate], directory: Path, **_: Any) -> dict[Coordinate, Path]:
        return {
            each: Path(shutil.copy(repository.file(each), directory / each.file_name)) for each in coordinates
        }

    monkeypatch.setattr("embedded.jars.cache.find_java", lambda _: Java(Path("/jdk"), 17))
    monkeypatch.setattr("embedded.jars.cache.download", copied)


def with_environment(cache: JarCache, **changes: str) -> JarCache:
    return JarCache(cache.sets, cache.directory, {**cache.environment, **changes}, cache.ivy_settings)


def names_in(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()} if directory.exists() else set()


def test_what_is_required_is_there_afterwards_and_needs_neither_java_nor_repository_then(
    cache: JarCache,
) -> None:
    cache.require()
    for name in ("both", "newer"):
        found = cache.classpath(name)
        assert [path.name for path in found] == [each.file_name for each in cache.sets[name].jars]
        assert cache.path(name) in found[0].parents
    cache.verify()
    assert names_in(cache.directory) == {".lock", *(cache.path(name).name for name in cache.sets)}
    with_environment(cache, PATH="", JAVA_HOME="", STANDFAST_IVY_SETTINGS="/nowhere").require("both")


def test_jars_come_through_the_proxy_of_the_environment(
    cache: JarCache, repository: Repository, tmp_path: Path
) -> None:
    asked: list[tuple[str, str | None]] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Proxy-Authorization"]
            asked.append((self.path, known))
            if known is None:
                self.send_response(407)
                self.send_header("Proxy-Authenticate", 'Basic realm="here"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path = repository.directory / self.path.removeprefix("http://repository.invalid/")
            data = path.read_bytes() if path.is_file() else b""
            self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if self.command == "GET" else b"")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    settings = tmp_path / "through.xml"
    settings.write_text(UNREACHABLE.replace("http://127.0.0.1:1/", "http://repository.invalid/"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with_environment(
                cache,
                http_proxy=f"http://me:p%40%20ss@127.0.0.1:{server.server_port}",
                STANDFAST_IVY_SETTINGS=str(settings),
            ).require("both")
        finally:
            server.shutdown()
    cache.verify("both")
    known = base64.b64encode(b"me:p@ ss").decode()
    assert f"Basic {known}" in {each for _, each in asked}


@pytest.mark.usefixtures("without_ivy")
def test_a_spoilt_jar_is_noticed_by_its_size_and_by_verify_and_fetched_again(cache: JarCache) -> None:
    cache.require("both")
    one, two = cache.classpath("both")
    two.write_bytes(content(ONE))
    with pytest.raises(Unavailable, match=r"org\.example:two:1\.0 is not the file that was pinned"):
        cache.verify("both")
    two.write_bytes(content(TWO))
    one.write_bytes(b"half")
    with pytest.raises(Unavailable, match=r"run python -m embedded\.jars fetch"):
        cache.classpath("both")
    cache.require("both")
    cache.verify("both")


def fails(cache: JarCache, match: str, kind: type[StandfastError] = Unavailable) -> None:
    """Assert that nothing can be had, that the message says why, and that nothing half-made is left."""
    with pytest.raises(kind, match=match):
        cache.require("both")
    assert names_in(cache.directory) <= {".lock"}


@pytest.mark.usefixtures("without_ivy")
def test_a_file_that_is_not_the_pinned_one_is_named(cache: JarCache, repository: Repository) -> None:
    named = r"org\.example:two:1\.0 is not the file that was pinned: its SHA-256 is "
    repository.publish(TWO, content(ONE))
    fails(cache, f"{named}[0-9a-f]{{64}}, the lock says")
    repository.publish(TWO, b"short")
    fails(cache, f"{named}unlike, with 5 instead of 1000 bytes")


def test_a_jar_that_the_repository_lacks_is_named(cache: JarCache, repository: Repository) -> None:
    repository.file(TWO).unlink()
    fails(cache, r"org\.example:two:1\.0 cannot be downloaded: .*not found")


def test_a_repository_that_cannot_be_reached_is_a_matter_of_the_network(
    cache: JarCache, tmp_path: Path
) -> None:
    settings = tmp_path / "unreachable.xml"
    settings.write_text(UNREACHABLE, encoding="utf-8")
    fails(
        with_environment(cache, STANDFAST_IVY_SETTINGS=str(settings)),
        r"org\.example:\w+:1\.0 and 1 more jars cannot be downloaded: the repository cannot be reached",
    )


def test_what_can_be_known_before_is_reported_before_anything_is_downloaded(
    cache: JarCache, tmp_path: Path
) -> None:
    fails(
        with_environment(cache, STANDFAST_IVY_SETTINGS="/nowhere/settings.xml"),
        "STANDFAST_IVY_SETTINGS names /nowhere/settings.xml",
        BadConfiguration,
    )
    without_java = with_environment(cache, PATH="/nowhere", JAVA_HOME="")
    fails(without_java, "no java on the PATH.*install a JDK of release 17")
    endless = {"both": JarSet("both", (Jar(ONE, 1 << 60, "0" * 64),))}
    fails(replace(cache, sets=endless), "free some space, or set STANDFAST_CACHE to another directory")
    (tmp_path / "occupied").touch()
    occupied = replace(cache, directory=tmp_path / "occupied" / "cache")
    fails(occupied, "set STANDFAST_CACHE to a writable directory")
    with pytest.raises(BadConfiguration, match="there is no set of jars 'none'; there are both, newer"):
        cache.require("none")


@contextmanager
def small_disk() -> Iterator[None]:
    """Let this process and its children write no file of more than 1 MB, as if a disk were full then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_meanwhile_is_named(cache: JarCache, repository: Repository) -> None:
    repository.publish(ONE, content(ONE, 4 << 20))
    large = replace(cache, sets={"both": JarSet("both", (jar(ONE, 4 << 20),))})
    with small_disk():
        fails(large, "the disk is full")


@pytest.mark.usefixtures("without_ivy")
def test_what_a_killed_process_left_behind_is_removed(cache: JarCache) -> None:
    (cache.directory / ".staging-of-the-dead").mkdir(parents=True)
    cache.require("both")
    assert names_in(cache.directory) == {".lock", cache.path("both").name}


@pytest.mark.usefixtures("without_ivy")
def test_a_second_process_waits_and_then_finds_everything(cache: JarCache) -> None:
    cache.directory.mkdir()
    said: list[str] = []
    with (cache.directory / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def show(text: str) -> None:
            said.append(text)
            if text.startswith("waiting for another process"):
                fcntl.flock(held, fcntl.LOCK_UN)

        cache.require("both", show=show)
    assert said[0].startswith("waiting for another process")
    cache.verify("both")


def test_a_java_is_judged_by_what_it_says(tmp_path: Path) -> None:
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    environment = {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}

    def says(script: str) -> None:
        command.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        command.chmod(0o755)

    says("echo '    java.specification.version = 25' >&2")
    assert find_java(environment) == Java(tmp_path, 25)
    # A shim is not where the Java is that it runs.
    says("printf '    java.specification.version = 25\\n    java.home = /my jdk\\n' >&2")
    assert find_java(environment).command == Path("/my jdk/bin/java")
    for script, told in (
        ("echo '    java.specification.version = 1.8' >&2", "is Java 8, which is too old: install a JDK"),
        ("echo '    java.specification.version = 11' >&2", "is Java 11, which is too old: install a JDK"),
        ("exit 1", "bin/java does not run"),
        ("echo hello", "does not say which release it is"),
    ):
        says(script)
        with pytest.raises(Unavailable, match=told):
            find_java(environment)
    with pytest.raises(Unavailable, match=r"JAVA_HOME is .* which has no bin/java"):
        find_java({**environment, "JAVA_HOME": str(tmp_path / "absent")})
