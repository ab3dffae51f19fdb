"""What the command line refuses before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from appmaster.cli.main import build_parser, main


def test_what_no_cluster_can_be_called_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("..", ".", "a/b", ""):
        for command in (["status", "a"], ["drain", "host"]):
            with pytest.raises(SystemExit, match=r"^2$"):
                main([*command, "--cluster", name])
            said = " ".join(capsys.readouterr().err.split())
            assert f"{name!r} is not a cluster name" in said
            assert "letters, digits" in said, "in words, not as a regular expression"


def test_only_a_time_for_which_everything_can_wait_is_a_time_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_parser().parse_args(["drain", "host", "--timeout", "0"]).timeout == 0.0
    for text in ("inf", "nan", "-1", "31536001", "5s"):
        with pytest.raises(SystemExit, match=r"^2$"):
            main(["drain", "host", f"--timeout={text}"])
        said = " ".join(capsys.readouterr().err.split())
        assert f"{text!r} is not a number of seconds from 0 to 31536000" in said


def test_only_kinds_of_entries_can_be_selected(capsys: pytest.CaptureFixture[str]) -> None:
    given = build_parser().parse_args(
        ["events", "a", "--kind", "container_lost", "--kind", "record given up"]
    )
    assert given.kind == ["container_lost", "record_given_up"], "also as the command prints them"
    for name, hint in (("records_given_up", "did you mean record_given_up?"), ("x", "leader_elected, ")):
        with pytest.raises(SystemExit, match=r"^2$"):
            main(["events", "a", "--kind", name])
        said = " ".join(capsys.readouterr().err.split())
        assert f"{name!r} is not a kind of entry" in said
        assert hint in said


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a job file in order, whose servers may not be contacted."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr("appmaster.cli.jobs.submit.Topics", None)
    (tmp_path / "yarn-site.xml").write_text("<configuration/>", encoding="utf-8")
    (tmp_path / "refused.py").write_text(
        "def step(rows, state, out): ...\ndef few(rows): ...\n", encoding="utf-8"
    )
    file = tmp_path / "job.yaml"
    file.write_text(
        """
job: {name: flights, modules: [refused.py]}
task: {inputs: [in], step: "refused:step", feed: plain}
kafka.bootstrap.servers: "127.0.0.1:1"
zookeeper.connect: "127.0.0.1:1"
""",
        encoding="utf-8",
    )
    return file


def test_a_module_with_the_name_of_what_containers_need_is_refused_before_anybody_is_asked(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job.parent / "locality.py").write_text("def step(rows, state, out): ...\n", encoding="utf-8")
    for command in (("submit", "--check"), ("submit",), ("update",), ("update", "--check")):
        assert main([*command, str(job), "--set", "job.modules=locality.py"]) == 2, command
        assert "locality.py has the name of standfast's own package locality" in capsys.readouterr().err


def test_submit_refuses_what_it_can_know_before_anybody_is_asked(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(*settings: str) -> str:
        given = (part for each in settings for part in ("--set", each))
        assert main(["submit", str(job), *given]) == 2, settings
        return capsys.readouterr().err

    for setting, named in (
        ("job.hotstandby.enable=true", "did you mean job.hotstandby.enabled?"),
        ("job.container.count=many", "'many' is not a whole number"),
        ("job.modules=absent.py", "absent.py"),
        ("task.step=absent:step", "there is no module 'absent'"),
        ("task.step=refused:absent", "has no function 'absent'"),
        ("task.step=refused:few", "task.step"),
        ("kafka.message.timeout.ms=300000", "5000, by job.transaction.timeout.ms"),
        # Of these the leader alone makes something.
        ("yarn.racks=h1=/r1,h1=/r2", "yarn.racks: 'h1=/r2': h1 is in /r1 already"),
        ("yarn.host.attributes=h1=zoneA", "yarn.host.attributes: 'h1=zoneA' is not host=key:value"),
        ("job.grouper=ranges", "job.grouper: 'ranges' is not one of balanced, range, nor module:function"),
        ("job.grouper=no_such:one", "job.grouper: there is no module 'no_such'; install"),
    ):
        assert named in refusal(setting), setting


def test_missing_hadoop_configuration_is_named_with_the_remedy(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (job.parent / "yarn-site.xml").unlink()
    for directory, named in (("", "HADOOP_CONF_DIR is not set"), (job.parent, "there is no yarn-site.xml")):
        monkeypatch.setenv("HADOOP_CONF_DIR", str(directory))
        assert main(["submit", str(job)]) == 2
        assert named in capsys.readouterr().err


def test_question_before_any_submit_is_answered_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STANDFAST_CREDENTIALS", str(tmp_path))
    assert main(["get", "nojob", "default", "key", "--zookeeper", "127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert "Its first submit makes them" in said
    assert "--cluster missing?" in said
