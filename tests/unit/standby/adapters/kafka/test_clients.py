"""Every client that a job makes is made before it is submitted, and what one refuses is said with key and bound."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from standby.adapters.kafka import clients
from standby.adapters.kafka.clients import KINDS, ClientKind, check_clients
from standby.config import JobConfig, kafka_settings
from standby.errors import BadConfiguration
from tests.cases import case
from tests.fakes.jobs import job_config

_ROOT = Path(__file__).parents[5]


def config(**settings: str) -> JobConfig:
    """Return a job's configuration; ``settings`` have underscores for dots, and no prefix."""
    return job_config({f"kafka.{name.replace('_', '.')}": each for name, each in settings.items()})


def test_usual_settings_pass() -> None:
    check_clients(config())
    check_clients(
        config(message_timeout_ms="5000", socket_timeout_ms="5000", compression_type="lz4", client_id="me")
    )
    check_clients(config(socket_keepalive_enable="true"))
    check_clients(job_config({"kafka.message.timeout.ms": "300000", "job.transaction.timeout.ms": "300000"}))
    # More than a job may have now, and as an earlier release has recorded it.
    check_clients(job_config({"job.restore.threads": "65536", "job.transaction.timeout.ms": "2147483647"}))


def test_refused_setting_is_named_with_its_value_and_the_rule() -> None:
    below = "must be set <= `transaction.timeout.ms`"
    for key, value, rule in (
        (
            "message.timeout.ms",
            "300000",
            f"{below} (transaction.timeout.ms is 5000, by job.transaction.timeout.ms",
        ),
        ("delivery.timeout.ms", "300000", f"{below} (transaction.timeout.ms is 5000"),
        ("socket.timeout.ms", "60000", f"{below} + 100"),
        ("max.in.flight", "6", "must be set <= 5"),
        ("max.in.flight.requests.per.connection", "6", "must be set <= 5"),
        ("retries", "0", "must be set >= 1"),
        ("message.send.max.retries", "0", "must be set >= 1"),
        ("request.required.acks", "1", "must be set to `all`"),
        ("queuing.strategy", "lifo", "must be set to `fifo`"),
        ("receive.message.max.bytes", "1000", "must be >= `fetch.max.bytes` + 512"),
        ("linger.ms", "1000000", "outside allowed range"),
        ("log_level", "9", "outside allowed range"),
    ):
        with case(key), pytest.raises(BadConfiguration) as raised:
            check_clients(job_config({f"kafka.{key}": value}))
        said = str(raised.value)
        # Of this one it is not known that its value is harmless.
        shown = "" if key == "log_level" else f"{value}: "
        assert said.startswith(f"kafka.{key}: {shown}")
        assert rule in said


def test_only_what_is_refused_is_named() -> None:
    with pytest.raises(BadConfiguration) as raised:
        check_clients(config(compression_type="lz4", message_timeout_ms="300000", max_in_flight="6"))
    named = re.findall(r"kafka\.[a-z.]+", str(raised.value))
    assert named in (["kafka.message.timeout.ms"], ["kafka.max.in.flight"])


def test_a_value_that_may_be_a_secret_is_not_shown() -> None:
    with pytest.raises(BadConfiguration, match="No such configuration property") as raised:
        check_clients(config(some_plugin="s3cret"))
    assert "s3cret" not in str(raised.value)
    with pytest.raises(BadConfiguration, match=r"kafka\.sasl\.oauthbearer\.assertion\.algorithm") as raised:
        check_clients(job_config({"kafka.sasl.oauthbearer.assertion.algorithm": "s3cret"}))
    assert "s3cret" not in str(raised.value)


def test_what_takes_a_function_takes_no_text() -> None:
    for name in ("error_cb", "logger", "oauth_cb", "on_delivery", "default.topic.config"):
        with case(name), pytest.raises(BadConfiguration, match=re.escape(f"kafka.{name}: ")):
            check_clients(job_config({f"kafka.{name}": "x"}))


def test_a_setting_of_ours_wins_over_its_other_names() -> None:
    # librdkafka takes the last of several names of one setting.
    made = clients.EVENTS_WRITER._merged(
        {"message.timeout.ms": "1", "delivery.timeout.ms": "2", "linger.ms": "7"}, {}
    )
    names = list(made)
    assert made["message.timeout.ms"] == 300_000
    assert names.index("delivery.timeout.ms") < names.index("message.timeout.ms")


def test_no_client_makes_statistics_which_nothing_would_take() -> None:
    for kind in KINDS:
        made = kind._merged({"statistics.interval.ms": "1000"}, {})
        assert int(made.get("statistics.interval.ms", 0)) == 0, kind.what


def test_a_job_can_be_fenced_whatever_it_says_of_writing() -> None:
    job = config(
        message_timeout_ms="300000", max_in_flight="6", retries="0", queuing_strategy="lifo", acks_typo="1"
    )
    names = clients.ClientNames("group", "id")
    clients.FENCE.make(kafka_settings(job), clients.FENCE.of_job(job, names))


def test_a_fence_connects_as_the_job_does() -> None:
    job = config(security_protocol="of our own", message_timeout_ms="300000")
    with pytest.raises(BadConfiguration, match="of our own"):
        clients.FENCE.make(kafka_settings(job), clients.FENCE.of_job(job, clients.ClientNames("group", "id")))


def test_every_kind_is_checked() -> None:
    declared = [each for each in vars(clients).values() if isinstance(each, ClientKind)]
    assert sorted(map(id, declared)) == sorted(map(id, KINDS))
    assert len({each.what for each in KINDS}) == len(KINDS)


def _modules(words: set[str]) -> Iterator[tuple[str, ast.Module]]:
    """Yield path and tree of each module of the program that has one of these words."""
    for package in ("appmaster", "locality", "standby"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if any(each in text for each in words):
                yield str(path.relative_to(_ROOT)), ast.parse(text)


def _attributes(module: ast.Module) -> set[str]:
    return {each.attr for each in ast.walk(module) if isinstance(each, ast.Attribute)}


def _called(module: ast.Module) -> set[str]:
    calls = [each.func for each in ast.walk(module) if isinstance(each, ast.Call)]
    return {each.attr for each in calls if isinstance(each, ast.Attribute)} | {
        each.id for each in calls if isinstance(each, ast.Name)
    }


def test_a_client_is_made_of_its_kind_and_nowhere_else() -> None:
    classes = {"Producer", "Consumer", "AdminClient", "SerializingProducer", "DeserializingConsumer"}
    assert [path for path, module in _modules(classes) if _called(module) & classes] == []


def test_a_consumer_of_a_job_is_of_the_jobs_group_the_only_one_on_which_its_principal_has_rights() -> None:
    """Also one that commits nothing and asks for no offsets: librdkafka looks for its group's coordinator."""
    names = clients.ClientNames("the job's")
    groups = {
        kind.what: {**kind.ours, **kind.of_job(config(), names)}["group.id"]
        for kind in KINDS
        if kind.library is Consumer
    }
    # Of the command line, which may read before there is a job.
    assert groups.pop(clients.EVENTS_READER.what) == "standfast-events-reader"
    assert groups.pop(clients.OUTPUTS_READER.what) == "standfast-outputs-reader"
    assert set(groups.values()) == {"the job's"}


#: What the admin client asks the coordinator of a group or of a transaction: librdkafka 2.16 can end the process when a
#: broker goes away at that moment.
_OF_COORDINATOR = {
    "alter_consumer_group_offsets",
    "delete_consumer_group_offsets",
    "delete_consumer_groups",
    "describe_consumer_groups",
    "describe_transactions",
    "list_consumer_group_offsets",
    "list_consumer_groups",
}


def test_nothing_that_runs_for_long_asks_a_coordinator_through_the_admin_client() -> None:
    asking = {path: _attributes(module) & _OF_COORDINATOR for path, module in _modules(_OF_COORDINATOR)}
    assert {path: each for path, each in asking.items() if each} == {
        "appmaster/adapters/kafka.py": {"delete_consumer_groups"}
    }
    # That may end it where a partition's leader is not known (`standby.adapters.kafka.offsets`).
    assert [
        path for path, module in _modules({"list_offsets"}) if "list_offsets" in _attributes(module)
    ] == []
    # In the command line alone: a command that ends so is no success, and the job's record is still there.
    using = {path for path, module in _modules({"delete_group"}) if "delete_group" in _attributes(module)}
    assert using == {"appmaster/cli/jobs/stop.py", "appmaster/cli/jobs/submit.py"}
