"""Job files: what is read, what is refused, and that every refusal names what is wrong."""

from __future__ import annotations

import os
import pwd
import re
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


ENVIRONMENT = {"STANDFAST_KAFKA": "k:1", "STANDFAST_ZOOKEEPER": "z:1"}

#: What YAML 1.1, YAML 1.2 or Python takes for something other than these characters.
GUESSED = (
    *("0123", "0o17", "0x1F", "0b11", "1_000", "+5", "007", "1e3", "1.50", ".5", "-.inf", ".NaN"),
    *("+10:30", "1:30:00", "190:20:30", "2024-01-02", "2024-01-02T03:04:05Z"),
    *("on", "off", "yes", "No", "y", "n", "True", "FALSE", "tRUE", "=", "<<"),
)


def minimal(more: str) -> str:
    return f"job.name: a\ntask.inputs: [in]\ntask.step: m:f\n{more}\n"


@pytest.mark.parametrize("value", GUESSED)
@pytest.mark.parametrize("key", ["kafka.client.id", "spark.app.name", "task.stores.version"])
def test_text_by_its_key_is_taken_as_written(tmp_path: Path, key: str, value: str) -> None:
    for text in (f"{key}: {value}", f"{key}: '{value}'", "? " + key + "\n: " + value):
        assert load(write(tmp_path, minimal(text)), [], ENVIRONMENT).flat[key] == value
    assert load(write(tmp_path, minimal("")), [f"{key}={value}"], ENVIRONMENT).flat[key] == value


def test_names_and_items_of_lists_are_taken_as_written(tmp_path: Path) -> None:
    text = "job: {name: 0123}\ntask: {inputs: [0012, 1_000, 1e3, yes], outputs: 0o17, step: 'm:f'}\n"
    config = load(write(tmp_path, text), [], ENVIRONMENT).config
    assert (config.job_name, config.inputs, config.outputs) == (
        "0123",
        ("0012", "1_000", "1e3", "yes"),
        ("0o17",),
    )
    given = load(write(tmp_path, text), ["task.inputs=0012,010"], ENVIRONMENT).config
    assert given.inputs == ("0012", "010")


def test_names_of_keys_are_taken_as_written(tmp_path: Path) -> None:
    job = load(write(tmp_path, minimal("spark: {on: {0123: a}, 1_0: b, 'null': c, ~: d}")), [], ENVIRONMENT)
    assert job.config.spark == {"spark.on.0123": "a", "spark.1_0": "b", "spark.null": "c", "spark.~": "d"}


@pytest.mark.parametrize(
    ("value", "number"),
    [("7", 7), ("007", 7), ("+7", 7), ("0o17", 15), ("0x1F", 31), ("0x1f", 31), ("'7'", 7)],
)
def test_numbers_follow_the_core_rules_and_are_recorded_in_one_form(
    tmp_path: Path, value: str, number: int
) -> None:
    key = "job.container.count"
    for text, settings in ((f"{key}: {value}", []), ("", [f"{key}={value.strip(chr(39))}"])):
        job = load(write(tmp_path, minimal(text)), settings, ENVIRONMENT)
        assert (job.config.container_count, job.flat[key]) == (number, str(number))


@pytest.mark.parametrize(
    "value", ["1_000", "1:30", "1e3", "1.0", "0b11", "\u0663", "1,000", "0o18", "0X1F", "+0x1F", "true"]
)
def test_what_is_no_whole_number_by_the_core_rules_is_refused_with_its_key(
    tmp_path: Path, value: str
) -> None:
    for text, settings in ((f"job.container.count: {value}", []), ("", [f"job.container.count={value}"])):
        with pytest.raises(BadConfiguration, match=rf"job\.container\.count: '{re.escape(value)}' is not a"):
            load(write(tmp_path, minimal(text)), settings, ENVIRONMENT)


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_truth_values_follow_the_core_rules_and_are_recorded_in_one_form(tmp_path: Path, value: str) -> None:
    key = "job.hotstandby.enabled"
    for text, settings in ((f"{key}: {value}", []), ("", [f"{key}={value}"])):
        job = load(write(tmp_path, minimal(text)), settings, ENVIRONMENT)
        assert (job.config.standby_enabled, job.flat[key]) == (True, "true")


@pytest.mark.parametrize("value", ["on", "off", "yes", "no", "y", "1", "0", "tRUE"])
def test_what_is_no_truth_value_by_the_core_rules_is_refused_with_its_key(tmp_path: Path, value: str) -> None:
    for text, settings in (
        (f"job.hotstandby.enabled: {value}", []),
        ("", [f"job.hotstandby.enabled={value}"]),
    ):
        with pytest.raises(
            BadConfiguration, match=rf"job\.hotstandby\.enabled: '{value}' is not true or false"
        ):
            load(write(tmp_path, minimal(text)), settings, ENVIRONMENT)


@pytest.mark.parametrize("value", ["~", "null", "Null", "NULL"])
def test_null_is_no_text_and_no_value_where_none_is_needed(tmp_path: Path, value: str) -> None:
    for key, text in {
        "kafka.sasl.password": f"kafka: {{sasl.password: {value}}}",
        "task.outputs": f"task.outputs: [{value}]",
        "task.dead.letter": f"task.dead.letter: {value}",
    }.items():
        with pytest.raises(BadConfiguration, match=rf"{key}: {value} means no value in YAML.*quotes"):
            load(write(tmp_path, minimal(text)), [], ENVIRONMENT)
    quoted = load(write(tmp_path, minimal(f"kafka.client.id: '{value}'")), [], ENVIRONMENT)
    assert quoted.flat["kafka.client.id"] == value
    assert (
        "job.container.count"
        not in load(write(tmp_path, minimal(f"job.container.count: {value}")), [], ENVIRONMENT).flat
    )
    assert "kafka.client.id" not in load(write(tmp_path, minimal("kafka.client.id:")), [], ENVIRONMENT).flat


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("kafka: {client.id: !!int 0123}", r"kafka\.client\.id: the tag !!int"),
        ("kafka.client.id: !!float 1", r"kafka\.client\.id: the tag !!float"),
        ("kafka.client.id: !!binary aGVsbG8=", r"kafka\.client\.id: the tag !!binary"),
        ("job.hotstandby.enabled: !!bool off", r"job\.hotstandby\.enabled: the tag !!bool"),
        ("task.outputs: !!set {a, b}", r"task\.outputs: the tag !!set"),
        ("task.outputs: [!x a]", r"task\.outputs: the tag !x"),
        ("kafka: &k {client: *k}", r"kafka\.client: refers to itself"),
        ("task.outputs: &o [*o]", r"task\.outputs: refers to itself"),
        ("kafka.client.id:\n- a\n-", r"kafka\.client\.id: an item of the list is empty"),
        ("? [a, b]\n: c", r"line 4: a key must be text"),
        ("kafka: {? {a: b} : c}", r"line 4: a key must be text"),
    ],
)
def test_what_only_yaml_knows_is_refused_with_its_key(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(BadConfiguration, match=part):
        load(write(tmp_path, minimal(text)), [], ENVIRONMENT)


@pytest.mark.parametrize("key", ["job.name", "cluster.name", "task.step", "kafka.bootstrap.servers"])
def test_text_of_our_own_is_not_trimmed(tmp_path: Path, key: str) -> None:
    text = minimal("").replace("job.name: a", "") if key == "job.name" else minimal("")
    with pytest.raises(BadConfiguration, match=rf"{key}: ' m:f' begins or ends with white space"):
        load(write(tmp_path, text), [f"{key}= m:f"], ENVIRONMENT)


@pytest.mark.parametrize("item", ["' b'", "'b\t'", "''", "' '"])
def test_items_of_lists_are_neither_trimmed_nor_left_out(tmp_path: Path, item: str) -> None:
    with pytest.raises(
        BadConfiguration, match=r"task\.outputs: .* is empty, or begins or ends with white space"
    ):
        load(write(tmp_path, minimal(f"task.outputs: [a, {item}]")), [], ENVIRONMENT)


def test_a_setting_that_is_handed_on_is_not_trimmed(tmp_path: Path) -> None:
    path = write(tmp_path, minimal("kafka.client.id: ' a '"))
    assert load(path, [], ENVIRONMENT).config.kafka == {"client.id": " a "}
    assert load(path, ["kafka.client.id=\tb "], ENVIRONMENT).config.kafka == {"client.id": "\tb "}
