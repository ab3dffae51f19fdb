"""What the command line refuses before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from appmaster.cli.main import main


@pytest.mark.parametrize("name", ["..", ".", "a/b", ""])
def test_what_no_cluster_can_be_called_is_refused_by_name(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["status", "a"], ["drain", "host"]):
        with pytest.raises(SystemExit) as caught:
            main([*command, "--cluster", name])
        assert caught.value.code == 2
        said = capsys.readouterr().err
        assert f"{name!r} is no name of a cluster" in said
        assert "letters, digits" in " ".join(said.split()), "in words, not as a regular expression"


def test_setting_that_a_client_of_the_job_would_refuse_is_refused_before_anybody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (tmp_path / "count.py").write_text("def step(rows, state, out): ...\n")
    (tmp_path / "job.yaml").write_text(
        """
job: {name: flights, modules: [count.py]}
task: {inputs: [in], step: "count:step", feed: plain}
kafka: {bootstrap.servers: "127.0.0.1:1", message.timeout.ms: 300000}
zookeeper.connect: "127.0.0.1:1"
"""
    )
    assert main(["submit", str(tmp_path / "job.yaml"), "--check"]) == 2
    said = capsys.readouterr().err
    assert "kafka.message.timeout.ms: 300000: " in said
    assert "5000, by job.transaction.timeout.ms" in said


def test_question_before_any_submit_is_answered_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STANDFAST_CREDENTIALS", str(tmp_path))
    assert main(["get", "nojob", "default", "key", "--zookeeper", "127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert "Its first submit makes them" in said
    assert "--cluster missing?" in said
