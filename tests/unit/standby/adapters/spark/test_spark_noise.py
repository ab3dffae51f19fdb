"""What Spark's JVM prints where a job is only checked: nothing, unless it does not start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from standby.adapters.spark.jvm import SparkProcess
from standby.config import JobConfig
from standby.errors import BadConfiguration
from standby.feed.spark import check_spark_transform
from tests.fakes.jobs import job_config

NOISE = "WARN NativeCodeLoader: Unable to load native-hadoop library"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the `java` that is started; what is appended to it comes after the noise."""
    command = tmp_path / "home" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{NOISE}' >&2\necho started\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    return command


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    (tmp_path / "quiet_job.py").write_text("def clean(df): return df\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return job_config(task__transform="quiet_job:clean")


def test_jvm_prints_to_its_log(java: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with java.open("a", encoding="utf-8") as script:
        # The gateway's address, as Spark writes it; the process ends with its input.
        script.write('printf "\\0\\0\\0\\001\\0\\0\\0\\001x" > "$_PYSPARK_DRIVER_CONN_INFO_PATH"\nexec cat\n')
    log = tmp_path / "spark.log"
    process = SparkProcess({}, log=log)
    assert (process.port, process.secret) == (1, "x")
    process.close()
    assert capfd.readouterr() == ("", "")
    assert log.read_text(encoding="utf-8").splitlines() == [NOISE, "started"]


def test_what_a_jvm_prints_that_does_not_start_is_in_the_error(
    java: Path, config: JobConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    with java.open("a", encoding="utf-8") as script:
        # It refuses its flags: without any it starts.
        script.write('[ "$*" = -version ] && exit 0\n')
        script.write("echo 'Error: Could not create the Java Virtual Machine.' >&2\nexit 1\n")
    with pytest.raises(BadConfiguration, match=r"Could not create the Java Virtual Machine") as refused:
        check_spark_transform(config, Path(os.devnull))
    assert NOISE in str(refused.value)
    printed, complained = capfd.readouterr()
    # Kafka clients of other tests in this process may have something to say on threads of their own.
    assert (printed, [each for each in complained.splitlines() if not each.startswith("%")]) == ("", [])
