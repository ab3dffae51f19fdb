from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from embedded.jars.lock import Coordinate, Jar, JarSet, distinct, measure, read_lock, relock
from embedded.places import yarn_conf
from standby.errors import BadConfiguration

SHA = "0" * 64


def test_a_coordinate_is_written_as_it_was_read_and_what_is_none_is_refused() -> None:
    for text, file in (
        ("org.example:lib:1.0", "lib-1.0.jar"),
        ("io.netty:epoll:4.1.Final:linux-x86_64", "epoll-4.1.Final-linux-x86_64.jar"),
    ):
        found = Coordinate.parse(text)
        assert (str(found), found.file_name) == (text, file)
    for text in ("", "a:b", "a:b:c:d:e", "a: b:c", "a:b:c/../d"):
        with pytest.raises(BadConfiguration, match="is not group:artifact:version"):
            Coordinate.parse(text)


def lock(directory: Path, text: str) -> Path:
    path = directory / "jars.lock"
    path.write_text(text, encoding="utf-8")
    return path


def test_sets_are_read_in_order_without_comments(tmp_path: Path) -> None:
    path = lock(
        tmp_path,
        f"# why\n\none g:a:1 a-1.jar 3 {SHA}  # because\ntwo g:b:1 b-1.jar 4 {SHA}\none g:c:1 c-1.jar - -\n",
    )
    sets = read_lock(path)
    assert [jar.file_name for jar in sets["one"].jars] == ["a-1.jar", "c-1.jar"]
    assert [jar.is_locked for jar in sets["one"].jars] == [True, False]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("one g:a:1 a-1.jar 3", "4 fields instead of five"),
        (f"one g:a:1 b-1.jar 3 {SHA}", "the file of g:a:1 is a-1.jar, not b-1.jar"),
        ("one g:a:1 a-1.jar 3 ABC", "is not a SHA-256"),
        (f"one g:a:1 a-1.jar three {SHA}", "invalid literal"),
        (
            f"one g:a:1 a-1.jar 3 {SHA}\none h:a:1 a-1.jar 3 {SHA}",
            "line 2: a-1.jar is already in the set one",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(BadConfiguration, match=complaint):
        read_lock(lock(tmp_path, line))


def test_a_set_of_other_jars_has_another_directory_and_a_jar_of_two_sets_is_one_jar() -> None:
    one, other = (Jar(Coordinate("g", "a", "1"), 3, each) for each in (SHA, "1" * 64))
    assert JarSet("s", (one,)).directory_name != JarSet("s", (other,)).directory_name
    assert JarSet("s", (one, one)).directory_name.startswith("s-")
    assert list(distinct([JarSet("one", (one,)), JarSet("two", (one,))])) == [one]


def test_relocking_writes_sizes_and_checksums_and_leaves_the_rest(tmp_path: Path) -> None:
    path = lock(tmp_path, "# why\n\none g:a:1 a-1.jar - -\n")
    jar_file = tmp_path / "a-1.jar"
    jar_file.write_bytes(b"abc")
    jar = measure(Coordinate("g", "a", "1"), jar_file)
    relock(path, {jar.coordinate: jar})
    digest = hashlib.sha256(b"abc").hexdigest()
    assert path.read_text(encoding="utf-8") == f"# why\n\none g:a:1 a-1.jar 3 {digest}\n"


def test_the_lock_of_this_project_is_whole() -> None:
    sets = read_lock(yarn_conf() / "jars.lock")
    assert set(sets) == {"hadoop", "kafka", "kafka-tools", "zookeeper", "miniyarn"}
    assert all(jar.is_locked for jar in distinct(sets.values()))
