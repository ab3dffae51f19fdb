"""Job files: what is read, what is refused, and that every refusal names what is wrong."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from appmaster.cli.shared.jobfile import JobFile, load
from standby.config import flatten, parse
from standby.config.keys import MOST_CONTAINERS
from standby.errors import BadConfiguration

MINIMAL = {
    "job.name": "a",
    "task.inputs": "in",
    "task.step": "m:f",
    "kafka.bootstrap.servers": "k:1",
    "zookeeper.connect": "z:1",
}


ENVIRONMENT = {"STANDFAST_KAFKA": "k:1", "STANDFAST_ZOOKEEPER": "z:1"}

Read = Callable[..., JobFile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return what reads a job file of this text with these settings on top."""

    def read(text: str, *settings: str, environment: Mapping[str, str] = ENVIRONMENT) -> JobFile:
        path = tmp_path / "job.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path, settings, environment)

    return read


def minimal(more: str = "") -> str:
    return f"job.name: a\ntask.inputs: [in]\ntask.step: m:f\n{more}\n"


def test_nested_and_dotted_keys_are_the_same(read: Read) -> None:
    config = read(
        "job: {name: flights, hotstandby: {enabled: true}, container.count: 3}\n"
        "task: {inputs: [raw], step: 'm:f', stores: [a, b]}\n"
        "job.hotstandby.replicationcount: 2\n",
        "task.feed=plain",
    ).config
    assert (config.job_name, config.container_count, config.standbys) == ("flights", 3, 2)
    assert (config.stores, config.feed, config.kafka_bootstrap) == (("a", "b"), "plain", "k:1")
    assert config.python.startswith("/")


def test_a_packed_environment_is_looked_for_beside_the_job_file(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    job, given = read(minimal("job.python.archive: env.tar.gz")), "job.python.archive"
    for each in (job, job.keeping(job.flat), job.on_pool(3, {})):
        assert each.config.python_archive == str(tmp_path / "env.tar.gz")
        assert each.flat[given] == "env.tar.gz", "the same for an update from another checkout"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "env.tar.gz").write_bytes(b"1")
    first, second = (frozenset({hashlib.sha256(each).hexdigest()}) for each in (b"1", b"2"))
    for name, content, shipped, is_same, is_its_own in (
        # Of an earlier version, which recorded no checksum.
        ("same", b"1", (), True, True),
        ("other", b"2", (), False, True),
        ("gone", None, (), False, False),
        ("same", b"1", first, True, True),
        ("overwritten", b"2", first, True, False),
        ("gone", None, first, True, False),
        ("other", b"2", second, False, True),
        ("both-overwritten", b"3", second, False, True),
    ):
        of_cluster = tmp_path / "elsewhere" / name
        if content is not None:
            of_cluster.write_bytes(content)
        restored = job.restoring({given: str(of_cluster), "job.name": "j"}, shipped)
        assert restored == {
            given: str(of_cluster if is_its_own else tmp_path / "env.tar.gz"),
            "job.name": "j",
        }
        joined = job.joining({given: str(of_cluster)}, shipped)[given]
        assert joined == str(of_cluster if is_same else tmp_path / "env.tar.gz"), name
    assert job.joining({given: "env.tar.gz"}, ())[given] == "env.tar.gz", "of an earlier version"


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


def test_missing_or_empty_required_key_is_named_and_the_environment_does_not_fill_it(read: Read) -> None:
    for key in MINIMAL:
        with pytest.raises(BadConfiguration, match=f"{key}: missing"):
            parse({each: value for each, value in MINIMAL.items() if each != key})
        with pytest.raises(BadConfiguration, match=f"{key}: empty; "):
            parse({**MINIMAL, key: ""})
        with pytest.raises(BadConfiguration, match=f"{key}: empty; "):
            read(minimal(), f"{key}=")
    with pytest.raises(BadConfiguration, match=r"kafka\.bootstrap\.servers: empty; "):
        read(minimal("kafka.bootstrap.servers: ''"))


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("job.name", "..", "not allowed"),
        ("job.name", "naïve", "job.name"),
        ("cluster.name", ".", "not allowed"),
        ("task.inputs", ",", "at least one topic"),
        ("task.inputs", "a,b,a", "'a' is given twice"),
        ("task.outputs", "in", "feed itself"),
        ("job.hotstandby.heartbeat.timeout.ms", "200", "less than twice"),
        ("job.python", "python3", "absolute"),
        ("job.state.dir", "state", "absolute"),
        ("task.stores", "a,a", "twice"),
        ("job.name", "a/b", "job.name: 'a/b' is not allowed; it can be up to 120 letters, digits"),
        ("task.inputs", "two words", "'two words' is not allowed; it can be up to 249 letters, digits"),
        ("task.step", "flights.totals", "'flights.totals' is not allowed; it can be module:function"),
        ("task.stores", "1st", "'1st' is not allowed; it can be a letter, then"),
    ],
)
def test_contradictions_are_refused_in_words(key: str, value: str, part: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        parse({**MINIMAL, key: value})
    assert part in str(caught.value)
    assert not {"[", "\\", "{"} & set(str(caught.value)), "no regular expression"


def test_a_commit_may_come_once_late_before_an_active_counts_as_stuck() -> None:
    keys = {**MINIMAL, "task.commit.interval.ms": "1000", "task.progress.timeout.ms": "2000"}
    assert parse(keys).commit_interval_ms == 1000
    with pytest.raises(BadConfiguration, match=r"task\.progress\.timeout\.ms: 1999 is less than twice"):
        parse({**keys, "task.progress.timeout.ms": "1999"})


#: What no job file is, and a part of what is said of it.
UNREADABLE = (
    ("job: [", "job.yaml: not YAML"),
    ("- a\n- b\n", "mapping"),
    ("job.name: a\njob: {name: b}\n", "given twice"),
    ("job: {name: {}}\n", "job.name: missing"),
    ("job.name: a\n\njob.name: b\n", "job.yaml: job.name is given twice, in line 1 and in line 3"),
    ("job: {name: a}\ntask: {}\njob: {modules: []}\n", "job is given twice, in line 1 and in line 3"),
    ("job:\n  name: a\n  name: a\n", "name is given twice, in line 2 and in line 3"),
    ("task:\n  stores: [{a: 1, a: 2}]\n", "a is given twice, in line 2 and in line 2"),
)


@pytest.mark.parametrize(("text", "part"), UNREADABLE)
def test_unreadable_job_files_are_refused_with_the_reason(read: Read, text: str, part: str) -> None:
    with pytest.raises(BadConfiguration, match=re.escape(part)):
        read(text)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("@s3cret", "found character '@' that cannot start any token in line 2, column 22"),
        ("a: s3cret", "mapping values are not allowed here in line 2, column 23"),
        (
            "'s3cret",
            "while scanning a quoted scalar in line 2, column 22: found unexpected end of stream in line 3",
        ),
        ("*s3cret", "found undefined alias in line 2, column 22"),
        ("!s3cret!x y", "found undefined tag handle in line 2, column 22"),
        (
            "!s3cret",
            "kafka.sasl.password: the tag *** is not supported; write the value without it, or in quotes",
        ),
    ],
)
def test_no_error_of_a_job_file_shows_a_password(read: Read, value: str, part: str) -> None:
    with pytest.raises(BadConfiguration, match=re.escape(part)) as refused:
        read(f"job.name: a\nkafka.sasl.password: {value}\n")
    assert "s3cret" not in str(refused.value)


def test_a_key_may_override_a_merged_one(read: Read) -> None:
    text = "job: {name: a}\ntask: {<<: {inputs: [x], step: 'm:f'}, inputs: [y]}\n"
    assert read(text).config.inputs == ("y",)


def test_a_comma_in_a_text_makes_no_list_in_a_job_file(read: Read) -> None:
    for key in ("task.inputs", "task.stores", "job.modules", "yarn.hosts"):
        for value in ("'a, b'", "a,b", "[a, 'b,c']"):
            with pytest.raises(BadConfiguration, match=rf"{key}: .*write a list: {key}: \[.*b.*\]"):
                read(f"job.name: a\n{key}: {value}\n")


def test_one_plain_name_is_a_list_of_one_and_the_command_line_parts_by_commas(read: Read) -> None:
    text = "job: {name: a}\ntask: {inputs: in, step: 'm:f'}\nzookeeper.connect: 'z:1,z:2'\n"
    config = read(text, "task.stores=a,b", environment={"STANDFAST_KAFKA": "k:1,k:2"}).config
    assert (config.inputs, config.stores) == (("in",), ("a", "b"))
    assert (config.zookeeper, config.kafka_bootstrap) == ("z:1,z:2", "k:1,k:2")


def test_missing_job_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"absent\.yaml: the job file cannot be read"):
        load(tmp_path / "absent.yaml", [], {})


def test_set_wins_over_the_file_and_the_environment(read: Read) -> None:
    config = read(minimal(), "job.name=b", "kafka.bootstrap.servers=other:2").config
    assert (config.job_name, config.kafka_bootstrap) == ("b", "other:2")
    with pytest.raises(BadConfiguration, match="--set nonsense"):
        read(minimal(), "nonsense")


def test_state_lies_where_the_environment_says_or_in_a_directory_of_the_user_s_own(read: Read) -> None:
    two = {**ENVIRONMENT, "STANDFAST_STATE_DIR": "/disk1/s,/disk2/s"}
    alone, named = read(minimal()), read(minimal(), environment=two)
    assert alone.config.state_dirs == (f"/var/tmp/standfast-{pwd.getpwuid(os.getuid()).pw_name}",)
    assert named.config.state_dirs == ("/disk1/s", "/disk2/s")
    assert read(minimal(), "job.state.dir=/mine", environment=two).config.state_dirs == ("/mine",)
    kept = named.keeping(alone.flat)
    assert kept.config.state_dirs == alone.config.state_dirs, "a running job keeps what was assumed for it"


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("STANDFAST_STATE_DIR", "state", "job.state.dir"),
        ("STANDFAST_STATE_DIR", " ", "job.state.dir"),
        ("STANDFAST_ZOOKEEPER", "z:1:2", "zookeeper.connect"),
        ("STANDFAST_KAFKA", " ", "kafka.bootstrap.servers"),
        ("STANDFAST_ZOOKEEPER_CA", "ca.pem", "zookeeper.ssl.ca.location"),
    ],
)
def test_a_wrong_value_of_the_environment_is_reported_with_its_variable(
    read: Read, variable: str, value: str, key: str
) -> None:
    wrong = {**ENVIRONMENT, variable: value}
    with pytest.raises(BadConfiguration) as refused:
        read(minimal(), environment=wrong)
    lines = str(refused.value).splitlines()
    assert lines[1].startswith(f"  {key}: ")
    assert lines[2:] == [f"  {key} is from ${variable}"]
    right = {"job.state.dir": "/s", "zookeeper.ssl.ca.location": "/ca.pem"}.get(key, "k:1")
    assert read(minimal(), f"{key}={right}", environment=wrong).flat[key] == right, "it is not used then"
    with pytest.raises(BadConfiguration, match=r"job\.container\.count") as other:
        read(minimal(), "job.container.count=0", f"{key}={right}", environment=wrong)
    assert variable not in str(other.value)


POOL = {"job.hotstandby.mixed": "true", "job.container.count": "5"}


@pytest.mark.parametrize(
    ("sets", "present", "becomes"),
    [
        pytest.param([], {}, (True, 5), id="every process that waits"),
        pytest.param(["job.hotstandby.replicationcount=6"], {}, (True, 7), id="as many as a task has copies"),
        pytest.param([], {**POOL, "job.container.count": "3"}, (True, 3), id="as its run began"),
        pytest.param(["job.container.count=2"], {}, (False, 2), id="the file says how many"),
        pytest.param(["job.hotstandby.failover=restart"], {}, (False, 1), id="mixed containers only promote"),
        pytest.param(["job.hotstandby.enabled=false"], {}, (False, 1), id="nothing to mix"),
    ],
)
def test_a_job_on_a_pool_is_mixed_unless_its_file_says_how_many_containers_it_has(
    read: Read, sets: list[str], present: dict[str, str], becomes: tuple[bool, int]
) -> None:
    job = read(minimal(), "job.hotstandby.enabled=true", *sets)
    found = job.on_pool(5, present)
    assert (found.config.mixed, found.config.container_count) == becomes
    assert found.given == job.given
    running = found.flat
    kept = job.keeping(running, is_on_pool=True).config
    assert (kept.mixed, kept.container_count) == becomes, "an update leaves it as it is"
    assert not job.keeping(running).config.mixed


def test_numbers_of_a_file_and_of_a_pool_are_within_what_a_job_may_have(read: Read) -> None:
    with pytest.raises(BadConfiguration, match=r"task\.on\.error\.limit: 1000001 is above the most allowed"):
        read(minimal(), "task.on.error.limit=1000001")
    small = read(minimal(), "job.hotstandby.enabled=true")
    large = small.on_pool(1_000_000, {})
    assert large.config.container_count == MOST_CONTAINERS
    # An earlier release recorded as many as there were processes.
    recorded = {**POOL, "job.container.count": "1000000"}
    for kept in (large.keeping(recorded, is_on_pool=True), small.on_pool(5, recorded)):
        assert kept.config.container_count == 1_000_000


def test_flatten_writes_truth_values_and_lists_as_text() -> None:
    assert flatten({"a": {"b": True, "c": [1, 2]}, "d.e": None}) == {"a.b": "true", "a.c": "1,2"}


#: What YAML 1.1, YAML 1.2 or Python takes for something other than these characters.
GUESSED = (
    *("0123", "0o17", "0x1F", "0b11", "1_000", "+5", "007", "1e3", "1.50", ".5", "-.inf", ".NaN"),
    *("+10:30", "1:30:00", "190:20:30", "2024-01-02", "2024-01-02T03:04:05Z"),
    *("on", "off", "yes", "No", "y", "n", "True", "FALSE", "tRUE", "=", "<<"),
)


@pytest.mark.parametrize("key", ["kafka.client.id", "spark.app.name", "task.stores.version"])
def test_text_by_its_key_is_taken_as_written(read: Read, key: str) -> None:
    for value in GUESSED:
        for text in (f"{key}: {value}", f"{key}: '{value}'", f"? {key}\n: {value}"):
            assert read(minimal(text)).flat[key] == value, text
        assert read(minimal(), f"{key}={value}").flat[key] == value


def test_names_and_items_are_taken_as_written(read: Read) -> None:
    text = "job: {name: 0123}\ntask: {inputs: [0012, 1_000, 1e3, yes], outputs: 0o17, step: 'm:f'}\n"
    config = read(text).config
    assert (config.job_name, config.outputs) == ("0123", ("0o17",))
    assert config.inputs == ("0012", "1_000", "1e3", "yes")
    assert read(text, "task.inputs=0012,010").config.inputs == ("0012", "010")
    keys = read(minimal("spark: {on: {0123: a}, 1_0: b, 'null': c, ~: d}")).config.spark
    assert keys == {"spark.on.0123": "a", "spark.1_0": "b", "spark.null": "c", "spark.~": "d"}


def ways(key: str, value: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return a job file that has the value, and one on top of which the command line sets it."""
    return (minimal(f"{key}: {value}"), ()), (minimal(), (f"{key}={value.strip(chr(39))}",))


#: Key, the one form in which a value is recorded, and the forms of YAML 1.2's core rules in which it can be written.
UNDERSTOOD = (
    ("job.container.count", "7", ("7", "007", "+7", "'7'")),
    ("job.container.count", "15", ("0o17",)),
    ("job.container.count", "31", ("0x1F", "0x1f")),
    ("job.hotstandby.enabled", "true", ("true", "True", "TRUE")),
)


def test_numbers_and_truth_values_follow_the_core_rules_and_are_recorded_in_one_form(read: Read) -> None:
    for key, recorded, values in UNDERSTOOD:
        for value in values:
            for text, settings in ways(key, value):
                assert read(text, *settings).flat[key] == recorded, (key, value)


NO_NUMBERS = ("1_000", "1:30", "1e3", "1.0", "0b11", "\u0663", "1,000", "0o18", "0X1F", "+0x1F", "true")
NO_TRUTH_VALUES = ("on", "off", "yes", "no", "y", "1", "0", "tRUE")


@pytest.mark.parametrize(
    ("key", "values", "what"),
    [
        ("job.container.count", NO_NUMBERS, "a whole number"),
        ("job.hotstandby.enabled", NO_TRUTH_VALUES, "true or false"),
    ],
)
def test_what_is_none_by_the_core_rules_is_refused_with_its_key(
    read: Read, key: str, values: Sequence[str], what: str
) -> None:
    for value in values:
        for text, settings in ways(key, value):
            with pytest.raises(BadConfiguration, match=re.escape(f"{key}: '{value}' is not {what}")):
                read(text, *settings)


def test_null_is_no_text_and_no_value_where_none_is_needed(read: Read) -> None:
    for value in ("~", "null", "Null", "NULL"):
        for key, text in {
            "kafka.sasl.password": f"kafka: {{sasl.password: {value}}}",
            "task.outputs": f"task.outputs: [{value}]",
            "task.dead.letter": f"task.dead.letter: {value}",
        }.items():
            with pytest.raises(BadConfiguration, match=rf"{key}: {value} means no value in YAML.*quotes"):
                read(minimal(text))
        assert read(minimal(f"kafka.client.id: '{value}'")).flat["kafka.client.id"] == value
        assert "job.container.count" not in read(minimal(f"job.container.count: {value}")).flat
    assert "kafka.client.id" not in read(minimal("kafka.client.id:")).flat


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("kafka: {client.id: !!int 0123}", "kafka.client.id: the tag !!int"),
        ("kafka.client.id: !!float 1", "kafka.client.id: the tag !!float"),
        ("kafka.client.id: !!binary aGVsbG8=", "kafka.client.id: the tag !!binary"),
        ("job.hotstandby.enabled: !!bool off", "job.hotstandby.enabled: the tag !!bool"),
        ("task.outputs: !!set {a, b}", "task.outputs: the tag !!set"),
        ("task.outputs: [!x a]", "task.outputs: the tag !x"),
        ("kafka: &k {client: *k}", "kafka.client: refers to itself"),
        ("task.outputs: &o [*o]", "task.outputs: refers to itself"),
        ("kafka.client.id:\n- a\n-", "kafka.client.id: an item of the list is empty"),
        ("? [a, b]\n: c", "line 4: a key must be text"),
        ("kafka: {? {a: b} : c}", "line 4: a key must be text"),
    ],
)
def test_what_only_yaml_knows_is_refused_with_its_key(read: Read, text: str, part: str) -> None:
    with pytest.raises(BadConfiguration, match=re.escape(part)):
        read(minimal(text))


def test_nothing_is_trimmed(read: Read) -> None:
    for key in ("job.name", "cluster.name", "task.step", "kafka.bootstrap.servers"):
        with pytest.raises(BadConfiguration, match=rf"{key}: ' m:f' begins or ends with white space"):
            read(minimal(), f"{key}= m:f")
    for item in ("' b'", "'b\t'", "''", "' '"):
        told = r"task\.outputs: .* is empty, or begins or ends with white space"
        with pytest.raises(BadConfiguration, match=told):
            read(minimal(f"task.outputs: [a, {item}]"))
    handed_on = minimal("kafka.client.id: ' a '")
    assert read(handed_on).config.kafka == {"client.id": " a "}
    assert read(handed_on, "kafka.client.id=\tb ").config.kafka == {"client.id": "\tb "}
