"""The jar cache, with the real Ivy, and a repository that is a directory of this test's."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import http.server
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded.jarlock import Coordinate, Jar, JarSet
from embedded.jars import JarCache
from embedded.java import find_java
from embedded.places import yarn_conf
from standby.errors import BadConfiguration, StandfastError, Unavailable
from tests.patience import PATIENCE_SECONDS

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

    def publish(self, coordinate: Coordinate, data: bytes | None = None) -> None:
        directory = (
            self.directory / coordinate.group.replace(".", "/") / coordinate.artifact / coordinate.version
        )
        directory.mkdir(parents=True, exist_ok=True)
        (directory / coordinate.file_name).write_bytes(content(coordinate) if data is None else data)


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


def with_environment(cache: JarCache, **changes: str) -> JarCache:
    return JarCache(cache.sets, cache.directory, {**cache.environment, **changes}, cache.ivy_settings)


def names_in(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()} if directory.exists() else set()


def test_what_is_required_is_there_afterwards(cache: JarCache) -> None:
    cache.require()
    for name in ("both", "newer"):
        assert [path.name for path in cache.classpath(name)] == [
            each.file_name for each in cache.sets[name].jars
        ]
        assert cache.path(name) in cache.classpath(name)[0].parents
    cache.verify()
    assert names_in(cache.directory) == {".lock", *(cache.path(name).name for name in cache.sets)}


def test_what_is_there_needs_neither_java_nor_repository(cache: JarCache) -> None:
    cache.require("both")
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


def test_a_jar_that_was_cut_short_is_fetched_again(cache: JarCache) -> None:
    cache.require("both")
    spoilt = cache.classpath("both")[0]
    spoilt.write_bytes(b"half")
    with pytest.raises(Unavailable, match=r"run python -m embedded\.jars fetch"):
        cache.classpath("both")
    cache.require("both")
    cache.verify("both")


def test_verify_names_a_jar_that_was_altered(cache: JarCache) -> None:
    cache.require("both")
    cache.classpath("both")[1].write_bytes(content(ONE))
    with pytest.raises(Unavailable, match=r"org\.example:two:1\.0 is not the file that was pinned"):
        cache.verify("both")


def test_a_set_that_nobody_defined_is_refused(cache: JarCache) -> None:
    with pytest.raises(BadConfiguration, match="there is no set of jars 'none'; there are both, newer"):
        cache.require("none")


def fails(cache: JarCache, match: str, kind: type[StandfastError] = Unavailable) -> None:
    """Assert that nothing can be had, that the message says why, and that nothing half-made is left."""
    with pytest.raises(kind, match=match):
        cache.require("both")
    assert names_in(cache.directory) <= {".lock"}


def test_a_wrong_checksum_is_named(cache: JarCache, repository: Repository) -> None:
    repository.publish(TWO, content(ONE))
    fails(
        cache,
        r"org\.example:two:1\.0 is not the file that was pinned: its SHA-256 is [0-9a-f]{64}, the lock says",
    )


def test_a_wrong_size_is_named(cache: JarCache, repository: Repository) -> None:
    repository.publish(TWO, b"short")
    fails(cache, r"org\.example:two:1\.0 is not the file .* 5 instead of 1000 bytes")


def test_a_jar_that_the_repository_lacks_is_named(cache: JarCache, repository: Repository) -> None:
    (repository.directory / "org/example/two/1.0/two-1.0.jar").unlink()
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


def test_settings_that_are_not_there_are_refused(cache: JarCache) -> None:
    fails(
        with_environment(cache, STANDFAST_IVY_SETTINGS="/nowhere/settings.xml"),
        "STANDFAST_IVY_SETTINGS names /nowhere/settings.xml",
        BadConfiguration,
    )


def test_without_java_the_remedy_is_named(cache: JarCache) -> None:
    fails(
        with_environment(cache, PATH="/nowhere", JAVA_HOME=""),
        "no java on the PATH.*install a JDK of release 17",
    )


def test_more_than_the_disk_has_is_not_even_begun(cache: JarCache) -> None:
    endless = JarCache(
        {"both": JarSet("both", (Jar(ONE, 1 << 60, "0" * 64),))},
        cache.directory,
        cache.environment,
        cache.ivy_settings,
    )
    fails(endless, "free some room, or let STANDFAST_CACHE name another directory")


FILL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.unit.embedded.test_jars import filled_disk
filled_disk(Path({cache!r}), Path({settings!r}))
"""


def filled_disk(directory: Path, settings: Path) -> None:
    """Require a jar of 4 MB in a process that may write files of 1 MB; runs in a process of its own."""
    # Of all this process's children, the Java ones too: a write beyond it fails with EFBIG, as one on a full
    # disk does with ENOSPC.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    environment = {**os.environ, "STANDFAST_IVY_SETTINGS": str(settings)}
    sets = {"both": JarSet("both", (jar(ONE, 4 << 20),))}
    try:
        JarCache(sets, directory, environment, yarn_conf() / "ivysettings.xml").require("both")
    except Unavailable as error:
        print(error)


def test_a_disk_that_fills_up_meanwhile_is_named(cache: JarCache, repository: Repository) -> None:
    repository.publish(ONE, content(ONE, 4 << 20))
    root = Path(__file__).parents[3]
    script = FILL.format(root=str(root), cache=str(cache.directory), settings=str(repository.settings))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert "the disk is full" in done.stdout
    assert names_in(cache.directory) == {".lock"}


def test_a_cache_that_cannot_be_written_is_named(cache: JarCache, tmp_path: Path) -> None:
    occupied = tmp_path / "occupied"
    occupied.touch()
    with pytest.raises(Unavailable, match="let STANDFAST_CACHE name a directory that can"):
        JarCache(cache.sets, occupied / "cache", cache.environment, cache.ivy_settings).require("both")


def test_what_a_killed_process_left_behind_is_removed(cache: JarCache) -> None:
    (cache.directory / ".staging-of-the-dead").mkdir(parents=True)
    cache.require("both")
    assert names_in(cache.directory) == {".lock", cache.path("both").name}


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


JavaScript = Callable[[str], dict[str, str]]


@pytest.fixture
def java_that_says(tmp_path: Path) -> JavaScript:
    def make(script: str) -> dict[str, str]:
        command = tmp_path / "jdk" / "bin" / "java"
        command.parent.mkdir(parents=True)
        command.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        command.chmod(0o755)
        return {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}

    return make


@pytest.mark.parametrize(("version", "release"), [("1.8", 8), ("11", 11)])
def test_an_old_java_is_too_old(java_that_says: JavaScript, version: str, release: int) -> None:
    environment = java_that_says(f"echo '    java.specification.version = {version}' >&2")
    with pytest.raises(Unavailable, match=f"is Java {release}, which is too old: install a JDK"):
        find_java(environment)


def test_a_new_java_will_do(java_that_says: JavaScript) -> None:
    environment = java_that_says("echo '    java.specification.version = 25' >&2")
    assert find_java(environment).release == 25


def test_a_java_that_does_not_run_is_named(java_that_says: JavaScript) -> None:
    with pytest.raises(Unavailable, match="bin/java does not run"):
        find_java(java_that_says("exit 1"))


def test_a_java_that_says_something_else_is_named(java_that_says: JavaScript) -> None:
    with pytest.raises(Unavailable, match="does not say which release it is"):
        find_java(java_that_says("echo hello"))


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"JAVA_HOME is .* which has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
