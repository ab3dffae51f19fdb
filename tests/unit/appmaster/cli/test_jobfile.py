"""Job files: what is read, what is refused, and that every refusal names what is wrong."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from appmaster.cli.jobfile import load
from standby.config import flatten, parse
from standby.errors import BadConfiguration

MINIMAL = {
    "job.name": "a",
    "task.inputs": "in",
    "task.step": "m:f",
    "kafka.bootstrap.servers": "k:1",
    "zookeeper.connect": "z:1",
}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nested_and_dotted_keys_are_the_same(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "job: {name: flights, hotstandby: {enabled: true}, container.count: 3}\n"
        "task: {inputs: [raw], step: 'm:f', stores: [a, b]}\n"
        "job.hotstandby.replicationcount: 2\n",
    )
    job = load(path, ["task.feed=plain"], {"STANDFAST_KAFKA": "k:1", "STANDFAST_ZOOKEEPER": "z:1"})
    assert job.config.job_name == "flights"
    assert job.config.container_count == 3
    assert job.config.standbys == 2
    assert job.config.stores == ("a", "b")
    assert job.config.feed == "plain"
    assert job.config.kafka_bootstrap == "k:1"
    assert job.config.python.startswith("/")


def test_standbys_are_counted_only_where_they_are_enabled() -> None:
    count = {"job.hotstandby.replicationcount": "2"}
    with pytest.raises(
        BadConfiguration, match=r"replicationcount: 2, but job\.hotstandby\.enabled is not set"
    ):
        parse({**MINIMAL, **count})
    assert parse({**MINIMAL, **count, "job.hotstandby.enabled": "false"}).standbys == 0
    assert parse({**MINIMAL, "job.hotstandby.replicationcount": "0"}).standbys == 0


def test_every_wrong_key_and_value_is_named_at_once() -> None:
    wrong = {
        "job.nam": "x",
        "job.container.count": "none",
        "job.hotstandby.enabled": "yes",
        "task.step": "no-colon",
        "kafka.acks": "1",
        "job.hotstandby.failover": "hope",
        "cluster-manager.container.memory.mb": "1",
    }
    with pytest.raises(BadConfiguration) as caught:
        parse({**MINIMAL, **wrong})
    for key in wrong:
        assert f"{key}:" in str(caught.value)
    assert "did you mean job.name?" in str(caught.value)


@pytest.mark.parametrize("missing", sorted(MINIMAL))
def test_missing_required_key_is_named(missing: str) -> None:
    with pytest.raises(BadConfiguration, match=f"{missing}: missing"):
        parse({key: value for key, value in MINIMAL.items() if key != missing})


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("job.name", "a/b", "job.name"),
        ("job.name", "..", "not allowed"),
        ("cluster.name", ".", "not allowed"),
        ("task.inputs", ",", "at least one topic"),
        ("task.inputs", "a,b,a", "'a' is given twice"),
        ("task.outputs", "in", "feed itself"),
        ("job.hotstandby.heartbeat.timeout.ms", "200", "less than twice"),
        ("job.python", "python3", "absolute"),
        ("job.state.dir", "state", "absolute"),
        ("task.stores", "a,a", "twice"),
        ("job.name", "naïve", "job.name"),
    ],
)
def test_contradictions_are_refused(key: str, value: str, part: str) -> None:
    with pytest.raises(BadConfiguration, match=part):
        parse({**MINIMAL, key: value})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("job: [", "not YAML"),
        ("- a\n- b\n", "mapping"),
        ("job.name: a\njob: {name: b}\n", "given twice"),
        ("job: {name: {}}\n", "job.name: missing"),
    ],
)
def test_unreadable_job_files_are_refused_with_the_reason(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(BadConfiguration, match=part):
        load(write(tmp_path, text), [], {})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("job.name: a\n\njob.name: b\n", r"job\.yaml: job\.name is given twice, in line 1 and in line 3"),
        (
            "job: {name: a}\ntask: {step: 'm:f'}\njob: {modules: []}\n",
            "job is given twice, in line 1 and in line 3",
        ),
        ("job:\n  name: a\n  name: a\n", r"name is given twice, in line 2 and in line 3"),
        ("task:\n  stores: [{a: 1, a: 2}]\n", "a is given twice, in line 2 and in line 2"),
    ],
)
def test_a_key_that_is_written_twice_is_named_with_both_lines(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(BadConfiguration, match=part):
        load(write(tmp_path, text), [], {})


def test_a_key_may_override_a_merged_one(tmp_path: Path) -> None:
    environment = {"STANDFAST_KAFKA": "k:1", "STANDFAST_ZOOKEEPER": "z:1"}
    text = "job: {name: a}\ntask: {<<: {inputs: [x], step: 'm:f'}, inputs: [y]}\n"
    assert load(write(tmp_path, text), [], environment).config.inputs == ("y",)


@pytest.mark.parametrize("key", ["task.inputs", "task.stores", "job.modules", "yarn.hosts"])
@pytest.mark.parametrize("value", ["'a, b'", "a,b", "[a, 'b,c']"])
def test_a_comma_in_a_text_makes_no_list_in_a_job_file(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(BadConfiguration, match=rf"{key}: .*write a list: {key}: \[.*b.*\]"):
        load(write(tmp_path, f"job.name: a\n{key}: {value}\n"), [], {})


def test_one_plain_name_is_a_list_of_one_and_the_command_line_parts_by_commas(tmp_path: Path) -> None:
    environment = {"STANDFAST_KAFKA": "k:1,k:2", "STANDFAST_ZOOKEEPER": "z:1"}
    path = write(tmp_path, "job: {name: a}\ntask: {inputs: in, step: 'm:f'}\nzookeeper.connect: 'z:1,z:2'\n")
    config = load(path, ["task.stores=a,b"], environment).config
    assert (config.inputs, config.stores) == (("in",), ("a", "b"))
    assert (config.zookeeper, config.kafka_bootstrap) == ("z:1,z:2", "k:1,k:2")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("job.name", "a/b", "up to 120 letters, digits"),
        ("task.inputs", "two words", "up to 249 letters, digits"),
        ("task.step", "flights.totals", "module:function"),
        ("task.stores", "1st", "a letter, then"),
    ],
)
def test_what_is_allowed_is_told_in_words(key: str, value: str, words: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        parse({**MINIMAL, key: value})
    assert f"{key}: {value!r} is not allowed; it can be {words}" in str(caught.value)
    assert not {"[", "\\", "{"} & set(str(caught.value)), "no regular expression"


def test_missing_job_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"absent\.yaml: the job file cannot be read"):
        load(tmp_path / "absent.yaml", [], {})


def test_set_must_be_key_equals_value(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="--set nonsense"):
        load(write(tmp_path, "job: {name: a}"), ["nonsense"], {})


def test_set_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "job: {name: a}\ntask: {inputs: in, step: 'm:f'}\n")
    environment = {"STANDFAST_KAFKA": "k:1", "STANDFAST_ZOOKEEPER": "z:1"}
    assert (
        load(path, ["job.name=b", "kafka.bootstrap.servers=other:2"], environment).config.kafka_bootstrap
        == "other:2"
    )


def test_state_lies_where_the_environment_says_or_in_a_directory_of_the_user_s_own(tmp_path: Path) -> None:
    path = write(tmp_path, "job: {name: a}\ntask: {inputs: in, step: 'm:f'}\n")
    environment = {"STANDFAST_KAFKA": "k:1", "STANDFAST_ZOOKEEPER": "z:1"}
    name = pwd.getpwuid(os.getuid()).pw_name
    alone = load(path, [], environment)
    assert alone.config.state_dirs == (f"/var/tmp/standfast-{name}",)
    named = load(path, [], {**environment, "STANDFAST_STATE_DIR": "/disk1/s,/disk2/s"})
    assert named.config.state_dirs == ("/disk1/s", "/disk2/s")
    assert load(
        path, ["job.state.dir=/mine"], {**environment, "STANDFAST_STATE_DIR": "/s"}
    ).config.state_dirs == ("/mine",)
    kept = named.keeping(alone.flat)
    assert kept.config.state_dirs == alone.config.state_dirs, "a running job keeps what was assumed for it"


def test_pass_through_keys_reach_their_clients() -> None:
    config = parse({**MINIMAL, "kafka.security.protocol": "SSL", "spark.ui.enabled": "true"})
    assert config.kafka == {"security.protocol": "SSL"}
    assert config.spark == {"spark.ui.enabled": "true"}


def test_flatten_writes_truth_values_and_lists_as_text() -> None:
    assert flatten({"a": {"b": True, "c": [1, 2]}, "d.e": None}) == {"a.b": "true", "a.c": "1,2"}
