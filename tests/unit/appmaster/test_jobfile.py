"""Job files: what is read, what is refused, and that every refusal names what is wrong."""

from __future__ import annotations

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


def test_no_standbys_unless_enabled() -> None:
    assert parse({**MINIMAL, "job.hotstandby.replicationcount": "2"}).standbys == 0


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
        ("task.inputs", "a,b,a", "none twice"),
        ("task.outputs", "in", "feed itself"),
        ("job.hotstandby.heartbeat.timeout.ms", "600", "less than twice"),
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


def test_pass_through_keys_reach_their_clients() -> None:
    config = parse({**MINIMAL, "kafka.security.protocol": "SSL", "spark.ui.enabled": "true"})
    assert config.kafka == {"security.protocol": "SSL"}
    assert config.spark == {"spark.ui.enabled": "true"}


def test_flatten_writes_truth_values_and_lists_as_text() -> None:
    assert flatten({"a": {"b": True, "c": [1, 2]}, "d.e": None}) == {"a.b": "true", "a.c": "1,2"}
