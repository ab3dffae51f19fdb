from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from standby.errors import BadConfiguration
from standby.feed.rules.settings import session_settings
from standby.feed.spark import settings_of
from tests.cases import case
from tests.fakes.jobs import job_config


def test_the_session_has_the_jobs_settings_over_ours() -> None:
    own = {"spark.driver.memory": "2g", "spark.executorEnv.PYTHONPATH": "/own", "spark.my": "1"}
    assert (
        session_settings(job_config(own), "/code", "/scratch").items()
        >= {
            "spark.driver.memory": "2g",
            "spark.my": "1",
            "spark.app.name": "job",
            "spark.executorEnv.PYTHONPATH": "/code:/own",
            "spark.local.dir": "/scratch",
            "spark.sql.session.timeZone": "UTC",
        }.items()
    )


def test_workers_find_modules_in_archives_too(tmp_path: Path) -> None:
    (tmp_path / "lib.zip").touch()
    found = settings_of(job_config(), tmp_path)["spark.executorEnv.PYTHONPATH"]
    assert found == f"{tmp_path}:{tmp_path / 'lib.zip'}"


def test_a_killed_jvm_leaves_its_files_in_the_scratch_directory() -> None:
    """They were left in /tmp, 150 kB for each JVM that was killed."""
    for own, expected in (
        ({}, ["-Djava.io.tmpdir=/a scratch"]),
        (
            {"spark.driver.extraJavaOptions": "-Dx=1 -Djava.io.tmpdir=/own"},
            ["-Djava.io.tmpdir=/a scratch", "-Dx=1", "-Djava.io.tmpdir=/own"],
        ),
    ):
        settings = session_settings(job_config(own), "/code", "/a scratch")
        assert shlex.split(settings["spark.driver.extraJavaOptions"]) == expected
    assert "spark.driver.extraJavaOptions" not in session_settings(job_config({}))


def test_a_setting_that_would_break_the_feed_is_refused() -> None:
    for name, value in {
        "spark.master": "yarn",
        "spark.jars.packages": "a:b:1",
        "spark.driver.host": "x",
        "spark.remote": "sc://",
        "spark.driver.extraJavaOptions": "-Dx='unbalanced",
    }.items():
        with case(name), pytest.raises(BadConfiguration, match=name):
            session_settings(job_config({name: value}))


def test_a_local_master_is_the_jobs_choice() -> None:
    for keys, master in (
        ({"spark.master": "local[1]"}, "local[1]"),
        ({}, "local[2]"),
        ({"cluster-manager.container.cpu.cores": "4"}, "local[4]"),
    ):
        assert session_settings(job_config(keys))["spark.master"] == master
