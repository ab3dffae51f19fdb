"""What is submitted to Skein for a cell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appmaster.cli.launch import application
from appmaster.cli.shared.hadoop_conf import read
from standby.code.bundles import LEFT_BYTES, Bundle, shipped_name
from standby.config import JobConfig
from standby.errors import BadConfiguration
from tests.fakes.certificates import shared_keyring
from tests.fakes.jobs import job_config

YARN_SITE = "<configuration><property><name>a</name><value>b</value></property></configuration>"

SMALL = Bundle("small", b"")


def build(directory: Path, scratch: Path, java_home: str = "", bundle: Bundle = SMALL, **keys: str) -> Any:
    return wishing(job_config(task__step="code:step", **keys), directory, scratch, java_home, bundle)


def wishing(
    config: JobConfig,
    directory: Path,
    scratch: Path,
    java_home: str = "",
    bundle: Bundle = SMALL,
    *,
    wished: tuple[str, ...] = (),
    racks: Mapping[str, str] | None = None,
) -> Any:
    conf = directory / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "yarn-site.xml").write_text(YARN_SITE, encoding="utf-8")
    scratch.mkdir(exist_ok=True)
    ring, environment = shared_keyring(), {"JAVA_HOME": java_home}
    return application.build(
        config, ["h1"], bundle, scratch, read([conf]), ring, environment, racks, master_hosts=wished
    )


def test_interpreter_is_found_wherever_it_lies(tmp_path: Path) -> None:
    for name in ("plain", "a b", "a'b", 'a"b', "a$HOME`b&c;d"):
        python = tmp_path / name / "python"
        python.parent.mkdir()
        python.write_text('#!/bin/sh\necho "$@"\n', encoding="ascii")
        python.chmod(0o755)
        spec = build(tmp_path, tmp_path / "scratch", job__python=str(python))
        scripts = [each.script for each in spec.services.values()] + [spec.master.script]
        said = [subprocess.check_output(["bash", "-c", each], text=True, env={}).strip() for each in scripts]
        assert said == ["-m standby"] * (len(scripts) - 1) + ["-m appmaster.supervisor"]


def test_files_in_odd_directories_are_shipped_or_the_directory_is_named(tmp_path: Path) -> None:
    for name in ("a b", "a&b", "a%20b", "ü"):
        spec = build(tmp_path, tmp_path / name)
        sources = [each.to_protobuf().source.file for each in spec.master.files.values()]
        assert sources
        assert all(Path(each).exists() for each in sources), sources
    for name in ("a#b", "a?b", "a;b"):
        with pytest.raises(BadConfiguration, match=r"a[#?;]b/.* use another directory .*TMPDIR"):
            build(tmp_path, tmp_path / name)


def test_archive_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"job\.python\.archive: .*/absent\.tar\.gz does not exist"):
        build(tmp_path, tmp_path / "scratch", job__python__archive="absent.tar.gz")


def test_master_is_started_by_its_hosts_java_where_the_path_of_ours_would_be_cut(tmp_path: Path) -> None:
    spec = build(tmp_path, tmp_path / "scratch", "/opt/jdk 17")
    assert "JAVA_HOME" not in spec.master.env
    assert {each.env["JAVA_HOME"] for each in spec.services.values()} == {"/opt/jdk 17"}
    spec = build(tmp_path, tmp_path / "scratch", "/opt/jdk-17")
    assert spec.master.env["JAVA_HOME"] == "/opt/jdk-17"


def test_master_names_the_hosts_that_it_is_to_start_on(tmp_path: Path) -> None:
    racks = {"h1": "/a", "h2": "/a", "h3": "/b"}
    spec = wishing(job_config(task__step="code:step"), tmp_path, tmp_path, wished=("h1", "h3"), racks=racks)
    assert spec.master.env[application.MASTER_HOSTS] == "h1=/a h3=/b /a /b"
    assert all(application.MASTER_HOSTS not in each.env for each in spec.services.values())
    spec = build(tmp_path, tmp_path / "scratch")
    assert application.MASTER_HOSTS not in spec.master.env


#: What a Python UDF of Spark gives back of each instant that it is given, half an hour apart, in the night of a change.
INSTANTS = """
from pyspark.sql.types import TimestampType
kind, hour = TimestampType(), 1_383_454_800_000_000
print([kind.toInternal(kind.fromInternal(hour + each * 1_800_000_000)) - hour for each in range(4)])
"""


def test_code_of_the_job_runs_in_one_time_zone_in_which_no_hour_comes_twice(tmp_path: Path) -> None:
    spec = build(tmp_path, tmp_path / "scratch")
    for env in [spec.master.env, *(each.env for each in spec.services.values())]:
        # As YARN passes on what its own processes have, but for what the application says.
        environment = {**os.environ, "TZ": "America/New_York", **env}
        said = subprocess.check_output([sys.executable, "-c", INSTANTS], text=True, env=environment)
        assert said.strip() == "[0, 1800000000, 3600000000, 5400000000]"


def test_modules_that_nobody_could_give_the_first_masters_are_shipped_with_them(tmp_path: Path) -> None:
    large = Bundle("large", b"x" * (LEFT_BYTES + 1))
    for bundle, keys, is_shipped in (
        (SMALL, {}, False),
        (large, {}, True),
        (large, {"code__distributor": "hdfs", "code__hdfs__directory": "/code"}, False),
    ):
        scratch = tmp_path / f"{bundle.digest}{len(keys)}"
        spec = build(tmp_path, scratch, bundle=bundle, **keys)
        found = spec.master.files.get(shipped_name(bundle.digest))
        assert (found is not None) == is_shipped
        assert found is None or (scratch / shipped_name(bundle.digest)).read_bytes() == bundle.data
